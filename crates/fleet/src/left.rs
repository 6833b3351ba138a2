//! Uploads of batches that ended early: which jobs have them, and where chunks probably are.

use std::collections::HashMap;

use larder_format::Fingerprint;
use larder_format::ids::ContainerId;
use larder_format::index_tables::ChunkKey;
use larder_format::lease::Pin;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// The jobs to adopt.
    pub(crate) jobs: Vec<Pin>,
    pub(crate) containers: Vec<ContainerId>,
    /// Number of the container, and of the chunk in it.
    pub(crate) chunks: HashMap<ChunkKey, (u32, u32)>,
}

impl Left {
    /// Where a chunk probably is: container, and number of the chunk in it.
    pub(crate) fn find(&self, fingerprint: &Fingerprint) -> Option<(ContainerId, u32)> {
        let (container, number) = self.chunks.get(&ChunkKey::of(fingerprint))?;
        Some((*self.containers.get(*container as usize)?, *number))
    }
}
