//! The kind of every error of this crate.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use larder_format::ErrorKind;
use larder_testkit::assert_kinds;
use rustix::io::Errno;

use crate::exclude::TagFileError;
use crate::target::TargetError;
use crate::{CommandError, ListError, PatternError, PatternFileError, RootsError, StreamNameError};

#[test]
fn arguments_without_a_meaning_are_bad_requests() {
    let path = Vec::new;
    let too_large = || Box::new(regex::Error::CompiledTooBig(1));
    assert_kinds!(PatternError {
        PatternError::Empty => PatternError::Empty, ErrorKind::BadRequest;
        PatternError::Malformed { .. } => PatternError::Malformed { pattern: path() }, ErrorKind::BadRequest;
        PatternError::TooLarge { .. } => PatternError::TooLarge { source: too_large() }, ErrorKind::BadRequest;
    });
    assert_kinds!(PatternFileError {
        PatternFileError::UnsetVariable { .. } =>
            PatternFileError::UnsetVariable { line: 1, name: path() }, ErrorKind::BadRequest;
        PatternFileError::BadVariable { .. } => PatternFileError::BadVariable { line: 1 }, ErrorKind::BadRequest;
    });
    assert_kinds!(TagFileError { TagFileError { .. } => TagFileError { given: path() }, ErrorKind::BadRequest; });
    assert_kinds!(RootsError {
        RootsError::Empty => RootsError::Empty, ErrorKind::BadRequest;
        RootsError::EmptyPath => RootsError::EmptyPath, ErrorKind::BadRequest;
        RootsError::Nul { .. } => RootsError::Nul { path: path() }, ErrorKind::BadRequest;
        RootsError::RelativeBase { .. } => RootsError::RelativeBase { path: path() }, ErrorKind::BadRequest;
    });
    assert_kinds!(StreamNameError {
        StreamNameError { .. } => StreamNameError { name: path() }, ErrorKind::BadRequest;
    });
}

#[test]
fn lists_and_commands_fail_by_their_contents_or_by_the_system() {
    let (list, name, pattern) = (Vec::new, Vec::new, Vec::new);
    let source = || io::Error::other("x");
    assert_kinds!(ListError {
        ListError::Read { .. } => ListError::Read { list: list(), source: source() }, ErrorKind::Resource;
        ListError::Empty { .. } => ListError::Empty { list: list() }, ErrorKind::Precondition;
        ListError::CutOff { .. } => ListError::CutOff { list: list() }, ErrorKind::Precondition;
        ListError::EmptyName { .. } => ListError::EmptyName { list: list(), number: 1 }, ErrorKind::Precondition;
        ListError::Pattern { .. } =>
            ListError::Pattern { list: list(), pattern: pattern() }, ErrorKind::Precondition;
        ListError::Nul { .. } => ListError::Nul { list: list(), name: name() }, ErrorKind::Precondition;
    });
    let (program, status) = (OsString::new, ExitStatus::from_raw(256));
    assert_kinds!(CommandError {
        CommandError::Empty => CommandError::Empty, ErrorKind::Precondition;
        CommandError::Start { .. } =>
            CommandError::Start { program: program(), source: source() }, ErrorKind::Resource;
        CommandError::Wait { .. } => CommandError::Wait { program: program(), source: source() }, ErrorKind::Resource;
        CommandError::Failed { .. } =>
            CommandError::Failed { program: program(), status, stderr: Vec::new() }, ErrorKind::Precondition;
    });
}

#[test]
fn a_target_fails_by_what_the_system_says() {
    let path = Vec::new;
    let failed = |errno: Errno| TargetError::Io { action: "write", path: path(), source: errno.into() };
    let root = |errno: Errno| TargetError::Root { root: "/".into(), source: errno.into() };
    assert_kinds!(TargetError {
        TargetError::Root { .. } => root(Errno::NOSPC), ErrorKind::Full;
        TargetError::Root { .. } => root(Errno::ACCESS), ErrorKind::Resource;
        TargetError::Root { .. } => root(Errno::NOTDIR), ErrorKind::Resource;
        TargetError::Scratch(_) => TargetError::Scratch(Errno::IO.into()), ErrorKind::Resource;
        TargetError::Io { .. } => failed(Errno::DQUOT), ErrorKind::Full;
        TargetError::Io { .. } => failed(Errno::ROFS), ErrorKind::Resource;
        TargetError::Io { .. } => failed(Errno::PERM), ErrorKind::Resource;
        TargetError::Io { .. } => failed(Errno::LOOP), ErrorKind::Precondition;
        TargetError::Protected { .. } =>
            TargetError::Protected { root: "/".into(), folder: "/".into() }, ErrorKind::Precondition;
        TargetError::NotBelowFolder { .. } => TargetError::NotBelowFolder { path: path() }, ErrorKind::Precondition;
        TargetError::Swapped { .. } => TargetError::Swapped { path: path() }, ErrorKind::Precondition;
        TargetError::BadEntry { .. } => TargetError::BadEntry { path: path(), problem: "x" }, ErrorKind::Damaged;
        TargetError::Incomplete { .. } =>
            TargetError::Incomplete { path: path(), expected: 2, got: 1 }, ErrorKind::Resource;
        TargetError::Misuse { .. } => TargetError::Misuse { path: path(), problem: "x" }, ErrorKind::Bug;
    });
}
