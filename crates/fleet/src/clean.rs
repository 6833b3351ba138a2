//! Removes what batches have left for their own tasks.

use larder_index::Executor;
use larder_store::{Repository, RepositoryError};

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Batches.
    pub batches: u64,
    /// Objects of them.
    pub objects: u64,
    /// Batches that were left, because their lease is open.
    pub open: u64,
}

/// Removes the objects of batches that are over. A batch whose process died is over when a pass has
/// removed its lease.
///
/// # Errors
/// The store does not answer, or does not allow to delete.
pub fn clean(repository: &Repository, executor: &Executor) -> Result<Cleaned, RepositoryError> {
    executor.block_on(async {
        let found = repository.fleet_batches().await?;
        let mut cleaned = Cleaned { open: found.open.len() as u64, ..Cleaned::default() };
        for objects in found.over.into_values() {
            for name in objects {
                repository.store().delete(&name).await?;
                cleaned.objects += 1;
            }
            cleaned.batches += 1;
        }
        Ok(cleaned)
    })
}
