//! The kind of every error of this crate.

use std::io;

use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::Table;
use larder_format::{DecodeError, EncodeError, ErrorKind};
use larder_store::RepositoryError;
use larder_testkit::assert_kinds;

use crate::IndexError as Error;

#[test]
fn every_error_has_its_kind() {
    let job = JobId([0; 16]);
    let source = || DecodeError::Truncated { what: "x" };
    let damaged = || RepositoryError::Damaged { name: "x".to_owned(), source: source() };
    assert_kinds!(Error {
        Error::Repository(_) => Error::from(EncodeError { what: "x", why: "y" }), ErrorKind::Bug;
        Error::NewestUnreadable { .. } => Error::NewestUnreadable { source: damaged() }, ErrorKind::Damaged;
        Error::NewestLost { .. } => Error::NewestLost { number: 1 }, ErrorKind::Damaged;
        Error::Unstable { .. } => Error::Unstable { attempts: 1 }, ErrorKind::LostRace;
        Error::NumbersExhausted { .. } => Error::NumbersExhausted { highest: 1 }, ErrorKind::Precondition;
        Error::TooManyRuns { .. } => Error::TooManyRuns { job }, ErrorKind::Resource;
        Error::WrongRecord { .. } =>
            Error::WrongRecord { table: Table::Chunks, key: Vec::new(), source: source() }, ErrorKind::Damaged;
        Error::NoPartition { .. } => Error::NoPartition { table: Table::Chunks }, ErrorKind::Bug;
        Error::Hidden { .. } => Error::Hidden { id: RunId { job, seq: 1 }, key: Vec::new() }, ErrorKind::Damaged;
        Error::Spill { .. } => Error::Spill { doing: "x", source: io::Error::other("x") }, ErrorKind::Resource;
        Error::SpillDamaged { .. } => Error::SpillDamaged { source: source() }, ErrorKind::Resource;
    });
}
