//! The kind of every error of this crate.

use larder_format::ErrorKind;
use larder_lnode::BackupError;
use larder_store::RepositoryError;
use larder_testkit::assert_kinds;

use crate::check::CheckError;
use crate::chunk_copier::RewriteError;
use crate::repair::RepairError;

#[test]
fn every_error_has_its_kind() {
    assert_kinds!(CheckError {
        CheckError::Interrupted => CheckError::Interrupted, ErrorKind::Interrupted;
        CheckError::Repository(_) => CheckError::Repository(RepositoryError::NoKeys), ErrorKind::BadKey;
    });
    assert_kinds!(RewriteError {
        RewriteError::Repository(_) => RewriteError::Repository(RepositoryError::NoKeys), ErrorKind::BadKey;
        RewriteError::NoThreads => RewriteError::NoThreads, ErrorKind::Resource;
        RewriteError::WorkerDied => RewriteError::WorkerDied, ErrorKind::Bug;
        RewriteError::Interrupted => RewriteError::Interrupted, ErrorKind::Interrupted;
        RewriteError::WorkerWrong => RewriteError::WorkerWrong, ErrorKind::LostRace;
    });
    assert_kinds!(RepairError {
        RepairError::Interrupted => RepairError::Interrupted, ErrorKind::Interrupted;
        RepairError::NoThreads => RepairError::NoThreads, ErrorKind::Resource;
        RepairError::WorkerDied => RepairError::WorkerDied, ErrorKind::Bug;
        RepairError::Repository(_) => RepairError::Repository(RepositoryError::NoKeys), ErrorKind::BadKey;
    });
}

#[test]
fn a_repair_keeps_the_kind_of_what_stopped_it() {
    for error in [BackupError::Interrupted, BackupError::NoThreads, BackupError::WorkerDied] {
        let kind = error.kind();
        assert_eq!(RepairError::from(error).kind(), kind);
    }
    for error in [RewriteError::Interrupted, RewriteError::NoThreads, RewriteError::WorkerDied] {
        let kind = error.kind();
        assert_eq!(RepairError::from(error).kind(), kind);
    }
}
