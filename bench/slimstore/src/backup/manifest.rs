//! Recipes on the simulated store: encoded when written, decoded when read, with Larder's own segment codec for everybody.

use larder_format::ChunkRef;
use larder_format::segment::{self, ChunkRecord, Segment, Superchunk};

/// Encodes records as a segment.
pub(super) fn encode(records: &[ChunkRecord], superchunks: &[Superchunk]) -> Vec<u8> {
    segment::encode(records, superchunks).expect("the harness makes no chunk without bytes")
}

pub(super) fn decode(bytes: &[u8]) -> Segment {
    segment::decode(bytes).expect("the harness wrote it itself")
}

/// A record of a chunk whose age does not matter.
pub(super) fn ageless(chunk: ChunkRef) -> ChunkRecord {
    ChunkRecord { chunk, born: chunk.container.job }
}
