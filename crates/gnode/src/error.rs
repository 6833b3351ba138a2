//! Why a pass failed.

use larder_format::ErrorKind;
use larder_format::ids::JobId;
use larder_index::IndexError;
use larder_job::{Cancel, RolledBack};
use larder_rewrite::chunk_copier::RewriteError;
use larder_store::{RepositoryError, StoreError};

use crate::reclaim::ReclaimError;

/// A pass that failed.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// A version cannot be read: its references are unknown, so nothing may be deleted.
    #[error("nothing may be deleted while {name} cannot be read, because what it needs is not known")]
    UnreadableManifest {
        /// Its manifest.
        name: String,
        /// Its id.
        id: JobId,
        /// The error.
        source: RepositoryError,
    },
    /// The manifest of a version is gone, although the version was not forgotten.
    #[error("nothing may be deleted while {name} is missing: nobody has forgotten that snapshot")]
    LostManifest {
        /// Its manifest.
        name: String,
        /// Its id.
        id: JobId,
    },
    /// A job announced itself, and its lease cannot be read.
    #[error("nothing may be deleted while {name} cannot be read: a job may be running that needs what is not known")]
    UnreadableLease {
        /// Its lease.
        name: String,
        /// The error.
        source: RepositoryError,
    },
    /// A listing lacked an object that is there. It may have lacked more, so nothing is decided.
    #[error("the store's listing lacked {name}, which is there; nothing was decided")]
    WrongListing {
        /// The object.
        name: String,
    },
    /// A rebuild could not read more containers than an index can name.
    #[error("{containers} containers that no snapshot names cannot be read; nothing was changed")]
    TooMuchUnread {
        /// How many.
        containers: usize,
    },
    /// A manifest went away while the versions were read.
    #[error("another pass deleted while this one looked; it did nothing")]
    Overtaken,
    /// It was asked to stop before it had decided.
    #[error("the pass was interrupted before it had decided anything")]
    Interrupted,
    /// There is no index, but there has been one, so unneeded objects are not known. A pass that is
    /// not dry rebuilds it first.
    #[error("the index is gone, so nobody can say what a pass would do")]
    LostIndex,
    /// The repository is older than this machine remembers it.
    #[error("{0}: the storage may show an earlier state of the repository, so nothing was deleted")]
    RolledBack(RolledBack),
    /// Only an index of this machine may be built on.
    #[error("index {number} was not made on this machine, and --own-index-only was given; nothing was deleted")]
    ForeignIndex {
        /// Its number.
        number: u64,
    },
    /// The index holds something that this pass does not know how to keep.
    #[error("the index has tables that this program does not know how to keep; nothing was deleted")]
    UnknownTables,
    /// What a pass always holds in memory takes more than it may.
    #[error(
        "a pass over this repository needs {} MiB of memory for tables, and may take {} MiB; \
         tables have half of --memory",
        needed.div_ceil(1 << 20),
        memory >> 20
    )]
    TooLittleMemory {
        /// Bytes that it may take for tables.
        memory: u64,
        /// Bytes that it needs.
        needed: u64,
    },
    /// No thread could be started for compressing.
    #[error("no thread could be started; is there a limit on threads or memory?")]
    NoThreads,
    /// A worker thread ended by itself: a bug.
    #[error("a worker thread ended unexpectedly")]
    WorkerDied,
    /// It would write, and has announced no job.
    #[error("a pass without a lease would write")]
    Unannounced,
    /// The index cannot be read, or its next number cannot be claimed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl PassError {
    /// The action that a caller can take.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnreadableManifest { .. }
            | Self::LostManifest { .. }
            | Self::UnreadableLease { .. }
            | Self::TooMuchUnread { .. }
            | Self::RolledBack(_)
            | Self::LostIndex => ErrorKind::Damaged,
            Self::WrongListing { .. } => ErrorKind::Retry,
            Self::Overtaken => ErrorKind::LostRace,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::UnknownTables | Self::ForeignIndex { .. } => ErrorKind::Precondition,
            Self::NoThreads | Self::TooLittleMemory { .. } => ErrorKind::Resource,
            Self::WorkerDied | Self::Unannounced => ErrorKind::Bug,
            Self::Index(error) => error.kind(),
            Self::Repository(error) => error.kind(),
        }
    }
}

/// An error if a pass should stop before it has decided anything.
pub(crate) fn stop_if_asked(cancel: &Cancel) -> Result<(), PassError> {
    if cancel.is_cancelled() { Err(PassError::Interrupted) } else { Ok(()) }
}

impl From<StoreError> for PassError {
    fn from(error: StoreError) -> Self {
        Self::Repository(error.into())
    }
}

impl From<ReclaimError> for PassError {
    fn from(error: ReclaimError) -> Self {
        match error {
            ReclaimError::Index(error) => error.into(),
            ReclaimError::ChunkCopier(RewriteError::Repository(error)) => error.into(),
            ReclaimError::ChunkCopier(RewriteError::Interrupted) => Self::Interrupted,
            ReclaimError::ChunkCopier(RewriteError::NoThreads) => Self::NoThreads,
            // Reclaiming begins again by itself when a worker is wrong.
            ReclaimError::ChunkCopier(RewriteError::WorkerDied | RewriteError::WorkerWrong) => Self::WorkerDied,
        }
    }
}
