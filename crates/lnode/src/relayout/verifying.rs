//! Reading copies before others are given up for them.

use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::names;
use larder_store::RepositoryError;

use super::{Relayout, RelayoutError};

impl Relayout {
    /// Reads chunks where they are said to be and computes their fingerprints again. Gives a container in which one of them is not
    /// what it should be, or is not there; `None` when all of them are. The index is not asked where a chunk may be instead.
    pub fn unreadable_among(&self, chunks: &[ChunkRef]) -> Result<Option<ContainerId>, RelayoutError> {
        let mut rest = chunks;
        while !rest.is_empty() {
            self.stop_if_asked()?;
            let mut bytes = 0usize;
            let fits = |chunk: &&ChunkRef| {
                bytes += chunk.size as usize;
                bytes <= self.batch_bytes()
            };
            let (batch, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            rest = later;
            match self.read_batch(batch) {
                Ok(_) => {}
                Err(RelayoutError::Repository(error)) if error.is_damage() => {
                    tracing::warn!(%error, "a copy cannot be read, so no other is given up for it");
                    // Whichever it was, the first is of the same batch, and is not relied on either.
                    return Ok(damaged_container(&error).or_else(|| batch.first().map(|chunk| chunk.container)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// The container that an error is about.
pub fn damaged_container(error: &RepositoryError) -> Option<ContainerId> {
    match error {
        RepositoryError::Damaged { name, .. } => names::parse_container(name),
        RepositoryError::Store(error) => names::parse_container(&error.name),
        _ => None,
    }
}
