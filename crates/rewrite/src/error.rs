//! Why a version was not repaired or changed.

use larder_format::ErrorKind;
use larder_lnode::backup::BackupError;
use larder_store::RepositoryError;

use crate::check::CheckError;
use crate::chunk_copier::RewriteError;

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
            // Repairs have no other process.
            RewriteError::WorkerDied | RewriteError::WorkerWrong => Self::WorkerDied,
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
