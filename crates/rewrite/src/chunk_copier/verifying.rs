//! Verifies copies before others are retired for them.

use std::collections::BTreeMap;

use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::names;
use larder_store::RepositoryError;

use super::copying::batches;
use super::{ChunkCopier, RewriteError};

/// Why a container cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// It is damaged or missing.
    Damaged,
    /// It is in cold storage.
    Cold,
}

impl ChunkCopier {
    /// Reads chunks at their stated places and computes their fingerprints again. Returns the
    /// containers in which one of them is damaged, missing or in cold storage, with the reason. The
    /// index is not asked for other places.
    pub fn unreadable_among(&self, chunks: &[ChunkRef]) -> Result<BTreeMap<ContainerId, Unreadable>, RewriteError> {
        let mut bad = BTreeMap::new();
        for batch in batches(chunks, self.batch_bytes(), |chunk| chunk) {
            self.stop_if_asked()?;
            if self.why_unreadable(batch)?.is_none() {
                continue;
            }
            // One bad container must not hide the others.
            let mut by_container: BTreeMap<ContainerId, Vec<ChunkRef>> = BTreeMap::new();
            for chunk in batch.iter().filter(|chunk| !bad.contains_key(&chunk.container)) {
                by_container.entry(chunk.container).or_default().push(*chunk);
            }
            for (container, chunks) in by_container {
                if let Some(why) = self.why_unreadable(&chunks)? {
                    bad.insert(container, why);
                }
            }
        }
        Ok(bad)
    }

    /// `None`: they can be read.
    fn why_unreadable(&self, chunks: &[ChunkRef]) -> Result<Option<Unreadable>, RewriteError> {
        match self.reader().verify(chunks) {
            Ok(()) => Ok(None),
            Err(RewriteError::Repository(error)) if error.is_cold() => Ok(Some(Unreadable::Cold)),
            Err(RewriteError::Repository(error)) if error.is_damage() => {
                tracing::warn!(%error, "a copy cannot be read, so no other is retired for it");
                Ok(Some(Unreadable::Damaged))
            }
            Err(error) => Err(error),
        }
    }
}

/// The container that an error reports damaged or cold.
pub fn damaged_container(error: &RepositoryError) -> Option<ContainerId> {
    match error {
        RepositoryError::Damaged { name, .. } => names::parse_container(name),
        RepositoryError::Store(error) => names::parse_container(&error.name),
        _ => None,
    }
}
