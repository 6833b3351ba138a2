//! Gathers the segments of one stream into nodes, stored as chunks unless a version that is built on has them already.

use std::collections::HashMap;

use larder_chunking::Fingerprinter;
use larder_dedup::NodeCutter;
use larder_format::ids::ContainerId;
use larder_format::recipe::{ContainerUse, Cover, NodeRef, Recipe, SegmentRef, encode_node};
use larder_format::segment::ChunkRecord;
use larder_format::{ChunkRef, Fingerprint};
use larder_store::RepositoryError;

use crate::container_totals::Usage;
use crate::packer::Packer;

/// Compares what a version that is built on seems to have with what is stored.
pub trait CompareStored {
    /// Whether `chunk` is stored with just these bytes. An error when the store does not answer; damage is a "no".
    fn is_stored(&self, chunk: &ChunkRef, bytes: &[u8]) -> Result<bool, RepositoryError>;
}

/// Where segments and nodes go, and what is counted on the way.
pub struct MetaSink<'a> {
    /// Stores segments and nodes, in metadata containers.
    pub packer: &'a mut Packer,
    /// Names them, with the key of the repository.
    pub fingerprinter: &'a Fingerprinter,
    /// Counts what the version uses of each container.
    pub usage: &'a mut Usage,
    /// Uncompressed bytes of segments and nodes that were new.
    pub added_bytes: &'a mut u64,
    /// Compares what a version that is built on seems to have.
    pub comparison: Option<&'a dyn CompareStored>,
}

impl MetaSink<'_> {
    /// Stores a chunk that nobody has.
    pub fn push(&mut self, fingerprint: Fingerprint, bytes: &[u8]) -> Result<ChunkRef, RepositoryError> {
        *self.added_bytes += bytes.len() as u64;
        self.packer.push(fingerprint, bytes)
    }

    /// Whether a chunk that has the fingerprint of `bytes` may be used in their place.
    pub(crate) fn may_share(&self, chunk: &ChunkRef, bytes: &[u8]) -> Result<bool, RepositoryError> {
        self.comparison.map_or(Ok(true), |comparison| comparison.is_stored(chunk, bytes))
    }

    fn count(&mut self, container: ContainerId, chunks: u64, bytes: u64) {
        let used = self.usage.entry(container).or_default();
        *used = (used.0 + chunks, used.1 + bytes);
    }
}

/// See the module header.
#[derive(Debug)]
pub struct NodeWriter {
    segments: Vec<SegmentRef>,
    cutter: NodeCutter,
    nodes: Vec<NodeRef>,
    known: HashMap<Fingerprint, NodeRef>,
}

impl NodeWriter {
    /// A writer that shares what it can with the recipe of a version that is built on.
    pub fn new(base: Option<&Recipe>) -> Self {
        let known = base.map_or_else(HashMap::new, |recipe| {
            recipe.nodes.iter().map(|node| (node.chunk.fingerprint, node.clone())).collect()
        });
        Self { segments: Vec::new(), cutter: NodeCutter::new(), nodes: Vec::new(), known }
    }

    /// Appends a segment that is stored.
    pub fn push(&mut self, segment: SegmentRef, sink: &mut MetaSink<'_>) -> Result<(), RepositoryError> {
        for used in &segment.uses {
            sink.count(used.container, u64::from(used.chunks), used.bytes);
        }
        sink.count(segment.chunk.container, 1, u64::from(segment.chunk.size));
        let ends = self.cutter.ends_behind(&segment.chunk.fingerprint);
        self.segments.push(segment);
        if ends { self.end_node(sink) } else { Ok(()) }
    }

    fn end_node(&mut self, sink: &mut MetaSink<'_>) -> Result<(), RepositoryError> {
        let segments = std::mem::take(&mut self.segments);
        let Some(first) = segments.first() else { return Ok(()) };
        let bytes = encode_node(&segments)?;
        let fingerprint = sink.fingerprinter.one(&bytes);
        let known = self.known.get(&fingerprint);
        let node = match known {
            Some(node) if sink.may_share(&node.chunk, &bytes)? => node.clone(),
            _ => {
                let data = segments.iter().filter_map(|segment| segment.cover.as_ref()).map(|cover| cover.data_bytes);
                let cover = first.cover.as_ref().map(|cover| Cover {
                    first_path: cover.first_path.clone(),
                    data_bytes: data.fold(0, u64::saturating_add),
                });
                NodeRef {
                    chunk: sink.push(fingerprint, &bytes)?,
                    bytes: segments.iter().map(|segment| segment.bytes).sum(),
                    chunks: segments.iter().map(|segment| u64::from(segment.chunks)).sum(),
                    segments: segments.len() as u32,
                    cover,
                }
            }
        };
        sink.count(node.chunk.container, 1, u64::from(node.chunk.size));
        self.nodes.push(node);
        Ok(())
    }

    /// Ends the stream.
    pub fn finish(mut self, sink: &mut MetaSink<'_>) -> Result<Recipe, RepositoryError> {
        self.end_node(sink)?;
        Ok(Recipe { nodes: self.nodes })
    }
}

/// Containers that records lie in, in the order in which they first come, with how much lies there.
pub fn uses_of(records: &[ChunkRecord]) -> Vec<ContainerUse> {
    let mut uses: Vec<ContainerUse> = Vec::new();
    for record in records {
        let bytes = u64::from(record.chunk.size);
        // Newest first: records of one container come together.
        match uses.iter_mut().rev().find(|used| used.container == record.chunk.container) {
            Some(used) => (used.chunks, used.bytes) = (used.chunks + 1, used.bytes + bytes),
            None => uses.push(ContainerUse { container: record.chunk.container, chunks: 1, bytes }),
        }
    }
    uses
}
