//! Repair of versions: restores lost data from sources that still have it, or saves the rest.
//!
//! * [`heal()`]: chunks of data containers that are damaged or missing, put back from files that
//!   still have them. A version so healed gets a new generation of its manifest, as from
//!   defragmenting.
//! * [`salvage()`]: saves the rest of a damaged version as a new version of its series, as from a
//!   backup.
//!
//! Both begin with a check, and both only add: nothing is deleted, no object is overwritten, and
//! irreparable versions stay as they are. Damaged containers go when nothing needs them any more,
//! with a pass like everything else. Either may be interrupted anywhere and be run again.
//! `docs/concurrency.md` says why they may run beside everything else.
//!
//! Not here: the index (`gnode`), and manifests that do not open, because nothing says what they
//! held.

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

/// Tag of versions that hold the saved rest of others.
pub const TAG_REPAIRED: &str = "repaired";

/// A repair that did not come to its end. Its finished work holds; nothing is worse than before.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// It was asked to stop.
    #[error("the repair was interrupted; what it had finished holds, and it can be run again")]
    Interrupted,
    /// No thread could be started.
    #[error("no thread could be started; is there a limit on threads or memory?")]
    NoThreads,
    /// A worker thread ended by itself: a bug.
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
