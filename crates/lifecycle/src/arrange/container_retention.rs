//! Why a series was not arranged, and the questions of arranging to its pass.

use larder_format::ErrorKind;
use larder_format::ids::ContainerId;
use larder_format::index_tables::ContainerFacts;
use larder_index::IndexError;
use larder_rewrite::chunk_copier::RewriteError;
use larder_store::RepositoryError;

/// Nothing was arranged. The index and the containers are as they were.
#[derive(Debug, thiserror::Error)]
pub enum ArrangeError {
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Copying failed.
    #[error(transparent)]
    ChunkCopier(#[from] RewriteError),
}

impl ArrangeError {
    /// The action that a caller can take.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Index(error) => error.kind(),
            Self::ChunkCopier(error) => error.kind(),
        }
    }
}

impl From<RepositoryError> for ArrangeError {
    fn from(error: RepositoryError) -> Self {
        Self::Index(error.into())
    }
}

/// The pass's knowledge of containers. The rules are those of `docs/concurrency.md`.
pub trait ContainerRetention: Send + Sync {
    /// Whether a container could be deleted were it not for the versions that name it.
    fn is_free(&self, id: &ContainerId) -> bool;

    /// Whether a manifest that counts and that the index does not have names the container.
    fn is_held(&self, id: &ContainerId) -> bool;

    /// Whether a retained version of another layout uses the container.
    fn is_apart(&self, facts: &ContainerFacts) -> bool;

    /// Containers with lower numbers than this may have been retired before.
    fn rebuilt(&self) -> u32;
}
