//! Digests of content: a tree over records, segments, nodes and streams that names what a version
//! holds, and not where.
//!
//! Every generation of a version has the same digests, whatever containers it uses. The two
//! digests at the top are the roots in the summary ([`ContentRoots`]). Each lower one is in a row
//! that readers have anyway: a segment's in its node, a node's in the manifest. So a reader checks
//! what it read against the row above, and needs no other object for that.
//!
//! Each digest is BLAKE3 in the mode `derive_key`. Numbers are little-endian.
//!
//! | digest | context | input |
//! |---|---|---|
//! | segment | `Larder format 2: content of a segment` | per record fingerprint 32, size u32; then count of superchunks u32, per superchunk first u32, records u32, MAC 16; then cover; then 0, or 1 and the proof: MAC 16, cutter 1, count 1, per length u32 |
//! | node | `Larder format 2: content of a node` | per segment digest 32, bytes u64, chunks u32 |
//! | stream | `Larder format 2: content of a stream` | per node digest 32, bytes u64, chunks u64, segments u32, cover |
//!
//! A cover is 0, or 1, data bytes u64, u32 length and bytes of the first path. The count of
//! records is in the digest of the node. Not covered are places, `born`, uses, samples and the
//! container table: they differ between generations, or are hints.

use crate::ids::ContentDigest;
use crate::recipe::{Cover, NodeRef, Proof, Recipe, SegmentRef};
use crate::segment::{ChunkRecord, Segment, Superchunk};
use crate::wire::{DecodeError, Put};

const SEGMENT: &str = "Larder format 2: content of a segment";
const NODE: &str = "Larder format 2: content of a node";
const STREAM: &str = "Larder format 2: content of a stream";

/// The digests of both streams of a version: 64 bytes in the summary, first the data stream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentRoots {
    /// The digest of the data stream.
    pub data: ContentDigest,
    /// The digest of the metadata stream.
    pub metadata: ContentDigest,
}

impl ContentRoots {
    /// The roots of two recipes, by their rows.
    pub fn of(data: &Recipe, metadata: &Recipe) -> Self {
        Self { data: of_stream(&data.nodes), metadata: of_stream(&metadata.nodes) }
    }
}

impl<C> minicbor::Encode<C> for ContentRoots {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(&[self.data.0, self.metadata.0].concat())?.ok()
    }
}

impl<'b, C> minicbor::Decode<'b, C> for ContentRoots {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        match d.bytes()?.as_chunks::<32>() {
            ([data, metadata], []) => Ok(Self { data: ContentDigest(*data), metadata: ContentDigest(*metadata) }),
            _ => Err(minicbor::decode::Error::message("wrong length of content roots")),
        }
    }
}

fn digest(context: &str, input: &[u8]) -> ContentDigest {
    ContentDigest(blake3::derive_key(context, input))
}

fn put_cover(cover: Option<&Cover>, out: &mut Vec<u8>) {
    out.put_u8(u8::from(cover.is_some()));
    if let Some(cover) = cover {
        out.put_u64(cover.data_bytes);
        out.put_u32(cover.first_path.len() as u32);
        out.extend_from_slice(&cover.first_path);
    }
}

/// The digest of a segment: its chunks by name, and what later backups conclude from it.
pub fn of_segment(
    records: &[ChunkRecord],
    superchunks: &[Superchunk],
    cover: Option<&Cover>,
    proof: Option<&Proof>,
) -> ContentDigest {
    let mut input = Vec::with_capacity(records.len() * 36 + 128);
    for record in records {
        input.extend_from_slice(&record.chunk.fingerprint.0);
        input.put_u32(record.chunk.size);
    }
    input.put_u32(superchunks.len() as u32);
    for superchunk in superchunks {
        input.put_u32(superchunk.first as u32);
        input.put_u32(superchunk.records as u32);
        input.extend_from_slice(&superchunk.mac);
    }
    put_cover(cover, &mut input);
    input.put_u8(u8::from(proof.is_some()));
    if let Some(proof) = proof {
        input.extend_from_slice(&proof.mac);
        input.put_u8(proof.cutter);
        input.put_u8(proof.tail.len() as u8);
        proof.tail.iter().for_each(|length| input.put_u32(*length));
    }
    digest(SEGMENT, &input)
}

/// The digest of a node, by its rows.
pub fn of_node(segments: &[SegmentRef]) -> ContentDigest {
    let mut input = Vec::with_capacity(segments.len() * 44);
    for segment in segments {
        input.extend_from_slice(&segment.content.0);
        input.put_u64(segment.bytes);
        input.put_u32(segment.chunks);
    }
    digest(NODE, &input)
}

/// The digest of a stream, by the rows of its recipe.
pub fn of_stream(nodes: &[NodeRef]) -> ContentDigest {
    let mut input = Vec::with_capacity(nodes.len() * 128);
    for node in nodes {
        input.extend_from_slice(&node.content.0);
        input.put_u64(node.bytes);
        input.put_u64(node.chunks);
        input.put_u32(node.segments);
        put_cover(node.cover.as_ref(), &mut input);
    }
    digest(STREAM, &input)
}

/// The cover of a node with these segments.
pub fn cover_of(segments: &[SegmentRef]) -> Option<Cover> {
    let covers = || segments.iter().filter_map(|segment| segment.cover.as_ref());
    let first_path = segments.first()?.cover.as_ref()?.first_path.clone();
    let data_bytes = covers().map(|cover| cover.data_bytes).fold(0, u64::saturating_add);
    Some(Cover { first_path, data_bytes })
}

/// Whether a node that was read is the one that its row in the manifest describes.
pub fn check_node(row: &NodeRef, segments: &[SegmentRef]) -> Result<(), DecodeError> {
    let bytes = segments.iter().map(|segment| segment.bytes).fold(0, u64::saturating_add);
    let chunks = segments.iter().map(|segment| u64::from(segment.chunks)).fold(0, u64::saturating_add);
    let sums = (segments.len(), bytes, chunks);
    if sums != (row.segments as usize, row.bytes, row.chunks) || cover_of(segments) != row.cover {
        return Err(DecodeError::invalid("recipe node", "it is not what its manifest says of it"));
    }
    if of_node(segments) != row.content {
        return Err(DecodeError::invalid("recipe node", "it has another content than its manifest says"));
    }
    Ok(())
}

/// Whether a segment that was read is the one that its row in the node describes.
pub fn check_segment(row: &SegmentRef, segment: &Segment) -> Result<(), DecodeError> {
    let bytes: u64 = segment.records.iter().map(|record| u64::from(record.chunk.size)).sum();
    if (segment.records.len(), bytes) != (row.chunks as usize, row.bytes) {
        return Err(DecodeError::invalid("segment", "it is not what its node says of it"));
    }
    let Segment { records, superchunks } = segment;
    if of_segment(records, superchunks, row.cover.as_ref(), row.proof.as_ref()) != row.content {
        return Err(DecodeError::invalid("segment", "it has another content than its node says"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
