//! The kind of every error of this crate.

use larder_format::ErrorKind;
use larder_format::ids::JobId;
use larder_index::IndexError;
use larder_job::RolledBack;
use larder_rewrite::chunk_copier::RewriteError;
use larder_state::SeenIndex;
use larder_store::RepositoryError;
use larder_testkit::assert_kinds;

use crate::defragment::DefragmentError;
use crate::maintenance::MaintenanceError;
use crate::pass::PassError;
use crate::reclaim::ReclaimError;

#[test]
fn every_error_has_its_kind() {
    let index = || IndexError::Unstable { attempts: 1 };
    let (name, id, source) = (String::new, JobId([0; 16]), || RepositoryError::NoKeys);
    assert_kinds!(PassError {
        PassError::UnreadableManifest { .. } =>
            PassError::UnreadableManifest { name: name(), id, source: source() }, ErrorKind::Damaged;
        PassError::LostManifest { .. } => PassError::LostManifest { name: name(), id }, ErrorKind::Damaged;
        PassError::UnreadableLease { .. } =>
            PassError::UnreadableLease { name: name(), source: source() }, ErrorKind::Damaged;
        PassError::WrongListing { .. } => PassError::WrongListing { name: name() }, ErrorKind::Retry;
        PassError::TooMuchUnread { .. } => PassError::TooMuchUnread { containers: 1 }, ErrorKind::Damaged;
        PassError::Overtaken => PassError::Overtaken, ErrorKind::LostRace;
        PassError::Interrupted => PassError::Interrupted, ErrorKind::Interrupted;
        PassError::RolledBack(_) => PassError::RolledBack(RolledBack::Index {
            seen: SeenIndex { number: 2, attempt: [0; 16], is_own: false },
            newest: 1,
        }), ErrorKind::Damaged;
        PassError::ForeignIndex { .. } => PassError::ForeignIndex { number: 1 }, ErrorKind::Precondition;
        PassError::LostIndex => PassError::LostIndex, ErrorKind::Damaged;
        PassError::UnknownTables => PassError::UnknownTables, ErrorKind::Precondition;
        PassError::NoThreads => PassError::NoThreads, ErrorKind::Resource;
        PassError::TooLittleMemory { .. } =>
            PassError::TooLittleMemory { memory: 1, needed: 2 }, ErrorKind::Resource;
        PassError::WorkerDied => PassError::WorkerDied, ErrorKind::Bug;
        PassError::Unannounced => PassError::Unannounced, ErrorKind::Bug;
        PassError::Index(_) => PassError::Index(index()), ErrorKind::LostRace;
        PassError::Repository(_) => PassError::Repository(source()), ErrorKind::BadKey;
    });
    assert_kinds!(DefragmentError {
        DefragmentError::Repository(_) => DefragmentError::Repository(source()), ErrorKind::BadKey;
        DefragmentError::Index(_) => DefragmentError::Index(index()), ErrorKind::LostRace;
        DefragmentError::ChunkCopier(_) =>
            DefragmentError::ChunkCopier(RewriteError::NoThreads), ErrorKind::Resource;
    });
    assert_kinds!(MaintenanceError {
        MaintenanceError::Defragment(_) =>
            MaintenanceError::Defragment(DefragmentError::Index(index())), ErrorKind::LostRace;
        MaintenanceError::Pass(_) => MaintenanceError::Pass(PassError::LostIndex), ErrorKind::Damaged;
    });
    assert_kinds!(ReclaimError {
        ReclaimError::Index(_) => ReclaimError::Index(index()), ErrorKind::LostRace;
        ReclaimError::ChunkCopier(_) => ReclaimError::ChunkCopier(RewriteError::NoThreads), ErrorKind::Resource;
    });
}
