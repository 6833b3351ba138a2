//! Verifies copies before others are retired for them.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::names;
use larder_store::RepositoryError;

use super::copying::batches;
use super::reading::Wanted;
use super::{ChunkCopier, RewriteError};

impl ChunkCopier {
    /// Reads chunks at their stated places and computes their fingerprints again. Returns the
    /// containers in which one of them is damaged, missing or in cold storage. The index is not
    /// asked for other places.
    pub fn unreadable_among(&self, chunks: &[ChunkRef]) -> Result<BTreeSet<ContainerId>, RewriteError> {
        let mut bad = BTreeSet::new();
        for batch in batches(chunks, self.batch_bytes(), |chunk| chunk) {
            self.stop_if_asked()?;
            if self.is_readable(batch)? {
                continue;
            }
            // One bad container must not hide the others.
            let mut by_container: BTreeMap<ContainerId, Vec<ChunkRef>> = BTreeMap::new();
            for chunk in batch.iter().filter(|chunk| !bad.contains(&chunk.container)) {
                by_container.entry(chunk.container).or_default().push(*chunk);
            }
            for (container, chunks) in by_container {
                if !self.is_readable(&chunks)? {
                    bad.insert(container);
                }
            }
        }
        Ok(bad)
    }

    fn is_readable(&self, chunks: &[ChunkRef]) -> Result<bool, RewriteError> {
        match self.read_batch(chunks, Wanted::Nothing) {
            Ok(_) => Ok(true),
            Err(RewriteError::Repository(error)) if error.is_unreadable() => {
                tracing::warn!(%error, "a copy cannot be read, so no other is retired for it");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// The container that an error reports damaged.
pub fn damaged_container(error: &RepositoryError) -> Option<ContainerId> {
    match error {
        RepositoryError::Damaged { name, .. } => names::parse_container(name),
        RepositoryError::Store(error) => names::parse_container(&error.name),
        _ => None,
    }
}
