//! The kind of every error of this crate.

use larder_format::ids::JobId;
use larder_format::{EncodeError, ErrorKind};
use larder_store::RepositoryError;
use larder_testkit::assert_kinds;

use crate::ReadError;

#[test]
fn every_error_has_its_kind() {
    let repository = || RepositoryError::Unstorable(EncodeError { what: "x", why: "y" });
    assert_kinds!(ReadError {
        ReadError::Forgotten { .. } => ReadError::Forgotten { id: JobId([0; 16]) }, ErrorKind::Precondition;
        ReadError::Repository(_) => ReadError::Repository(repository()), ErrorKind::Bug;
    });
}
