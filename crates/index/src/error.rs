//! What can go wrong with the index.

use larder_format::EncodeError;
use larder_store::{RepositoryError, StoreError};

/// A failure of the index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// An object is damaged or missing, or the store failed. The message names the object.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The highest number is taken by something that does not open. It may have been an index that somebody acted on, so nothing
    /// is built on an older one.
    #[error("the newest index cannot be read, and nothing is built on an older one; `repair index` makes it anew")]
    NewestUnreadable {
        /// What is wrong with it, and its name.
        #[source]
        source: RepositoryError,
    },
    /// Manifests appear and vanish faster than they can be read.
    #[error("manifests of the index were deleted while they were read, {attempts} times in a row")]
    Unstable {
        /// How often it was tried.
        attempts: u32,
    },
    /// There is no number above the highest one in use, which somebody must have planted.
    #[error("index/{highest} leaves no number for the next index; remove it if it is none of yours")]
    NumbersExhausted {
        /// The highest number.
        highest: u64,
    },
}

impl From<StoreError> for IndexError {
    fn from(error: StoreError) -> Self {
        Self::Repository(error.into())
    }
}

impl From<EncodeError> for IndexError {
    fn from(error: EncodeError) -> Self {
        Self::Repository(error.into())
    }
}

impl IndexError {
    /// Whether this is about the bytes of an object, damaged or missing, and not about reaching the store.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Repository(error) | Self::NewestUnreadable { source: error } => error.is_damage(),
            Self::Unstable { .. } | Self::NumbersExhausted { .. } => false,
        }
    }
}
