//! The kind of every error of this crate.

use larder_format::ids::JobId;
use larder_format::{EncodeError, ErrorKind};
use larder_store::RepositoryError;
use larder_testkit::assert_kinds;

use crate::{LeaseLost, MarkError, RandomError, ReadError};

#[test]
fn every_error_has_its_kind() {
    let repository = || RepositoryError::Unstorable(EncodeError { what: "x", why: "y" });
    assert_kinds!(ReadError {
        ReadError::Forgotten { .. } => ReadError::Forgotten { id: JobId([0; 16]) }, ErrorKind::Precondition;
        ReadError::Repository(_) => ReadError::Repository(repository()), ErrorKind::Bug;
    });
    assert_eq!(LeaseLost { id: JobId([0; 16]) }.kind(), ErrorKind::LostRace);
    assert_kinds!(MarkError {
        MarkError::Index(_) => MarkError::Index(repository().into()), ErrorKind::Bug;
        MarkError::Interrupted => MarkError::Interrupted, ErrorKind::Interrupted;
    });
    let path = || b"a".to_vec();
    assert_kinds!(RandomError {
        RandomError::NoSuchFile { .. } => RandomError::NoSuchFile { path: path() }, ErrorKind::Precondition;
        RandomError::Folder { .. } =>
            RandomError::Folder { path: path(), candidates: Vec::new(), has_more: false }, ErrorKind::Precondition;
        RandomError::NotAFile { .. } => RandomError::NotAFile { path: path() }, ErrorKind::Precondition;
        RandomError::SeveralFiles { .. } =>
            RandomError::SeveralFiles { candidates: Vec::new(), has_more: false }, ErrorKind::Precondition;
        RandomError::NoFiles => RandomError::NoFiles, ErrorKind::Precondition;
        RandomError::BeyondEnd { .. } =>
            RandomError::BeyondEnd { offset: 0, length: 1, size: 0 }, ErrorKind::BadRequest;
        RandomError::NotKept { .. } => RandomError::NotKept { reason: "x".to_owned() }, ErrorKind::Full;
        RandomError::Interrupted => RandomError::Interrupted, ErrorKind::Interrupted;
        RandomError::Repository(_) => RandomError::Repository(repository()), ErrorKind::Bug;
    });
}
