//! Repair of versions: restores lost data from sources that still have it, or saves the rest.
//!
//! * [`heal()`]: restores chunks of damaged or missing data containers from files that still have
//!   them. A healed version gets a new generation of its manifest, as by defragmenting.
//! * [`salvage()`]: saves the rest of a damaged version as a new version of its series, as by a
//!   backup.
//!
//! Both begin with a check, and both only add: nothing is deleted, no object is overwritten, and
//! irreparable versions stay as they are. A pass deletes damaged containers when nothing needs them
//! any more. Both may be interrupted anywhere and run again. `docs/concurrency.md` explains why
//! they may run beside all other jobs.
//!
//! Not here: the index (`gnode`), and manifests that do not open, because their contents are
//! unknown.

mod heal;
mod holes;
mod rewriting;
mod salvage;
mod sharing;

pub use heal::{HealOptions, HealOutcome, HealReport, HealedVersion, heal};
pub use salvage::{Losses, SalvageOptions, SalvageOutcome, SalvageReport, SalvagedVersion, replaced, salvage};

use larder_format::ErrorKind;
use larder_lnode::backup::BackupError;
use larder_store::RepositoryError;

use crate::check::CheckError;
use crate::chunk_copier::RewriteError;

/// Why a version is left alone whose id another one has too.
const SHARED_ID: &str = "several snapshots have this id, and somebody made one of them on purpose";

/// Tag of versions that hold the saved rest of others.
pub const TAG_REPAIRED: &str = "repaired";

/// A repair that did not finish. Its finished work holds; the rest is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// It was asked to stop.
    #[error("the repair was interrupted; what it had finished holds, and it can be run again")]
    Interrupted,
    /// No thread could be started.
    #[error("no thread could be started; is there a limit on threads or memory?")]
    NoThreads,
    /// A worker thread ended unexpectedly: a bug.
    #[error("a worker thread ended unexpectedly")]
    WorkerDied,
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl RepairError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Interrupted => ErrorKind::Interrupted,
            Self::NoThreads => ErrorKind::Resource,
            Self::WorkerDied => ErrorKind::Bug,
            Self::Repository(error) => error.kind(),
        }
    }
}

impl From<CheckError> for RepairError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Interrupted => Self::Interrupted,
            CheckError::Repository(error) => Self::Repository(error),
        }
    }
}

impl From<RewriteError> for RepairError {
    fn from(error: RewriteError) -> Self {
        match error {
            RewriteError::Interrupted => Self::Interrupted,
            RewriteError::NoThreads => Self::NoThreads,
            RewriteError::WorkerDied => Self::WorkerDied,
            RewriteError::Repository(error) => Self::Repository(error),
        }
    }
}

impl From<BackupError> for RepairError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Interrupted => Self::Interrupted,
            BackupError::Repository(error) => Self::Repository(error),
            BackupError::NoThreads => Self::NoThreads,
            // The front of the pipeline alone neither commits nor has a base.
            _ => Self::WorkerDied,
        }
    }
}
