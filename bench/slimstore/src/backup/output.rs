//! Where new chunks would go, and the recipe of the version at hand. Only places are kept, no bytes.

use larder_format::ChunkRef;
use larder_format::ids::{ContainerId, ContainerKind, JobId};

use super::Piece;

/// Payload of a container: the size of the paper's rivals.
pub(crate) const CONTAINER_BYTES: u32 = 4 << 20;

/// See the module header.
pub(crate) struct Output {
    container_bytes: u32,
    version: u32,
    seq: u32,
    fill: u32,
    stored: u64,
    recipe: Vec<ChunkRef>,
    /// Everything that was ever stored, container by container.
    catalogue: Vec<ChunkRef>,
}

impl Output {
    pub(crate) fn new(container_bytes: u32) -> Self {
        Self { container_bytes, version: 0, seq: 0, fill: 0, stored: 0, recipe: Vec::new(), catalogue: Vec::new() }
    }

    /// A job begins a container of its own; its recipe is empty.
    pub(crate) fn begin_version(&mut self) {
        self.version += 1;
        self.seq = 0;
        self.fill = 0;
        self.recipe.clear();
    }

    /// Payload of a container (bytes).
    pub(crate) fn container_bytes(&self) -> u32 {
        self.container_bytes
    }

    /// Number of the version, from 1.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// The job that is running.
    pub(crate) fn job(&self) -> JobId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&self.version.to_be_bytes());
        JobId(id)
    }

    /// Stores a new chunk and appends it to the recipe.
    pub(crate) fn store(&mut self, piece: &Piece) -> ChunkRef {
        if self.fill + piece.size > self.container_bytes {
            self.seq += 1;
            self.fill = 0;
        }
        let container = ContainerId { kind: ContainerKind::Data, job: self.job(), seq: self.seq };
        let chunk = ChunkRef { fingerprint: piece.fingerprint, container, offset: self.fill, size: piece.size };
        self.fill += piece.size;
        self.stored += u64::from(piece.size);
        self.recipe.push(chunk);
        self.catalogue.push(chunk);
        chunk
    }

    /// Appends a chunk that is stored already.
    pub(crate) fn reuse(&mut self, chunk: ChunkRef) {
        self.recipe.push(chunk);
    }

    /// The recipe so far.
    pub(crate) fn recipe(&self) -> &[ChunkRef] {
        &self.recipe
    }

    /// All chunks of all versions, in the order in which they were stored.
    pub(crate) fn catalogue(&self) -> &[ChunkRef] {
        &self.catalogue
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.stored
    }
}
