//! Recipes on the simulated store: encoded when written, decoded when read, with Larder's own segment codec for everybody.

use larder_format::ChunkRef;
use larder_format::segment::{self, ChunkRecord};

/// Encodes chunks as a segment.
pub(super) fn encode(records: &[ChunkRecord]) -> Vec<u8> {
    segment::encode(records).expect("the harness makes no chunk without bytes")
}

pub(super) fn decode(bytes: &[u8]) -> Vec<ChunkRecord> {
    segment::decode(bytes).expect("the harness wrote it itself")
}

/// A record of a chunk whose age does not matter.
pub(super) fn ageless(chunk: ChunkRef) -> ChunkRecord {
    ChunkRecord { chunk, born: chunk.container.job }
}
