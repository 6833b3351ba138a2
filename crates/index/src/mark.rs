//! The mark that a repository has had an index.
//!
//! An index knows what no container and no version says: which containers were given up, so that their deletes may be under way, and
//! where their chunks went. So to have lost it is not to have had none, and passes must be able to tell (`RebuiltFirst`,
//! `docs/concurrency.md`). The mark is created before the first index, by whoever publishes that, and nobody ever removes it. That it
//! is there is all it says: whoever may create objects can plant it, which makes a pass begin with a rebuild, and cannot take it away.

use larder_format::names;
use larder_store::repository::random;
use larder_store::{Repository, RepositoryError, StoreErrorKind};

/// What [`mark_as_indexed`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marked {
    /// There was no mark.
    Now,
    /// Somebody was there before.
    Before,
}

/// Whether the repository has, or had, an index, or somebody was about to publish the first one. Asks the store, never a cache.
pub async fn has_been_indexed(repository: &Repository) -> Result<bool, RepositoryError> {
    match repository.store().without_cache().size(names::INDEXED).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Creates the mark, if absent, and waits until it is there.
pub(crate) async fn mark_as_indexed(repository: &Repository) -> Result<Marked, RepositoryError> {
    // At random, so that a create without an answer can be told from that of somebody else.
    let bytes: [u8; 16] = random(repository.entropy())?;
    match repository.store().create(names::INDEXED, bytes.to_vec().into()).await {
        Ok(_) => Ok(Marked::Now),
        Err(error) if error.kind == StoreErrorKind::AlreadyExists => Ok(Marked::Before),
        Err(error) => Err(error.into()),
    }
}
