//! Why a drill stops.

use std::io;
use std::path::PathBuf;

use larder_format::ErrorKind;
use larder_lnode::RestoreError;
use larder_reader::ReadError;
use larder_store::RepositoryError;

/// The scratch folder has less space than a drill needs.
#[derive(Debug, thiserror::Error)]
#[error("{} has {free} bytes free, and the sample needs {needed}", folder.display())]
pub struct NoRoom {
    /// The folder.
    pub folder: PathBuf,
    /// Free bytes.
    pub free: u64,
    /// Bytes that are needed.
    pub needed: u64,
}

/// A drill that stopped.
#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    /// The restore stopped, or could not begin.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The scratch folder is too small.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The scratch folder cannot be used.
    #[error("the scratch folder {} cannot be used", folder.display())]
    Scratch {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A restored file cannot be read back.
    #[error("{} cannot be read back from the scratch folder: {reason}", larder_source::PathText(.path))]
    ScratchFile {
        /// Its path in the version.
        path: Vec<u8>,
        /// The system's word.
        reason: String,
    },
}

impl DrillError {
    /// The reaction that a caller can choose.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Restore(error) => error.kind(),
            Self::Repository(error) => error.kind(),
            Self::NoRoom(_) => ErrorKind::Full,
            Self::Scratch { .. } | Self::ScratchFile { .. } => ErrorKind::Resource,
        }
    }
}

impl From<ReadError> for DrillError {
    fn from(error: ReadError) -> Self {
        Self::Restore(error.into())
    }
}
