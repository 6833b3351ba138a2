//! The kind of every error of this crate.

use std::io;

use larder_format::ErrorKind;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_reader::ReadError;
use larder_source::target::TargetError;
use larder_store::RepositoryError;
use larder_store::jobs::CommitError;
use larder_testkit::assert_kinds;

use crate::assemble::AssembleError;
use crate::transfer::CopyError;
use crate::{BackupError, RestoreError};

#[test]
fn every_error_has_its_kind() {
    let (id, path) = (JobId([0; 16]), Vec::new);
    let unshared = || BackupError::UnsharedBase {
        id,
        series: String::new(),
        layout: Layout::Lifecycle,
        wanted: String::new(),
        wanted_layout: Layout::Standard,
    };
    assert_kinds!(BackupError {
        BackupError::Interrupted => BackupError::Interrupted, ErrorKind::Interrupted;
        BackupError::Input { .. } =>
            BackupError::Input { path: path(), source: io::Error::other("x") }, ErrorKind::Resource;
        BackupError::NothingRead => BackupError::NothingRead, ErrorKind::Precondition;
        BackupError::NoThreads => BackupError::NoThreads, ErrorKind::Resource;
        BackupError::WorkerDied => BackupError::WorkerDied, ErrorKind::Bug;
        BackupError::ForeignBase { .. } => BackupError::ForeignBase { id }, ErrorKind::Precondition;
        BackupError::NoSuchBase { .. } => BackupError::NoSuchBase { id }, ErrorKind::Precondition;
        BackupError::UnsharedBase { .. } => unshared(), ErrorKind::Precondition;
        BackupError::NeedsMemory { .. } =>
            BackupError::NeedsMemory { layout: Layout::Lifecycle }, ErrorKind::Precondition;
        BackupError::Commit(_) => BackupError::Commit(CommitError::Fenced), ErrorKind::LostRace;
        BackupError::Source(_) => BackupError::Source(RepositoryError::NoKeys), ErrorKind::BadKey;
        BackupError::Repository(_) => BackupError::Repository(RepositoryError::NoKeys), ErrorKind::BadKey;
    });
    let container = ContainerId { kind: ContainerKind::Data, job: id, seq: 0 };
    assert_kinds!(AssembleError {
        AssembleError::Interrupted => AssembleError::Interrupted, ErrorKind::Interrupted;
        AssembleError::NoThreads => AssembleError::NoThreads, ErrorKind::Resource;
        AssembleError::NotInBase { .. } => AssembleError::NotInBase { segment: 0 }, ErrorKind::Bug;
        AssembleError::NotNamed { .. } => AssembleError::NotNamed { container }, ErrorKind::Bug;
        AssembleError::OtherLength { .. } =>
            AssembleError::OtherLength { stream_bytes: 0, entry_bytes: 1 }, ErrorKind::Bug;
        AssembleError::Commit(_) => AssembleError::Commit(CommitError::Fenced), ErrorKind::LostRace;
        AssembleError::Repository(_) => AssembleError::Repository(RepositoryError::NoKeys), ErrorKind::BadKey;
    });
    assert_kinds!(CopyError {
        CopyError::Read(_) => CopyError::Read(ReadError::Forgotten { id }), ErrorKind::Precondition;
        CopyError::Backup(_) => CopyError::Backup(BackupError::Interrupted), ErrorKind::Interrupted;
    });
    assert_kinds!(RestoreError {
        RestoreError::Interrupted => RestoreError::Interrupted, ErrorKind::Interrupted;
        RestoreError::NoSuchPath { .. } => RestoreError::NoSuchPath { path: path() }, ErrorKind::Precondition;
        RestoreError::Forgotten { .. } => RestoreError::Forgotten { id }, ErrorKind::Precondition;
        RestoreError::Target(_) =>
            RestoreError::Target(TargetError::Misuse { path: path(), problem: "x" }), ErrorKind::Bug;
        RestoreError::Repository(_) => RestoreError::Repository(RepositoryError::NoKeys), ErrorKind::BadKey;
    });
}
