//! Writes the recipe of one stream: records into segments, segments into nodes, both stored as chunks unless the base has
//! them already.

use std::collections::HashMap;

use larder_chunking::Fingerprinter;
use larder_dedup::{NodeCutter, Segmenter, samples_of};
use larder_format::Fingerprint;
use larder_format::ids::ContainerId;
use larder_format::recipe::{ContainerUse, Cover, NodeRef, Recipe, SegmentRef, encode_node};
use larder_format::segment::{self, ChunkRecord};
use larder_store::RepositoryError;

use super::packer::Packer;

/// How much a version uses of each container.
pub(super) type Usage = HashMap<ContainerId, (u64, u64)>;

/// Where segments and nodes go, and what is counted on the way.
pub(super) struct MetaSink<'a> {
    pub(super) packer: &'a mut Packer,
    pub(super) fingerprinter: &'a Fingerprinter,
    pub(super) usage: &'a mut Usage,
    /// Uncompressed bytes of segments and nodes that were new.
    pub(super) added_bytes: &'a mut u64,
}

impl MetaSink<'_> {
    /// Stores a chunk that nobody has.
    pub(super) fn push(
        &mut self,
        fingerprint: Fingerprint,
        bytes: &[u8],
    ) -> Result<larder_format::ChunkRef, RepositoryError> {
        *self.added_bytes += bytes.len() as u64;
        self.packer.push(fingerprint, bytes)
    }

    fn count(&mut self, container: ContainerId, chunks: u64, bytes: u64) {
        let used = self.usage.entry(container).or_default();
        *used = (used.0 + chunks, used.1 + bytes);
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct RecipeWriter {
    segmenter: Segmenter,
    cover: Option<Cover>,
    segments: Vec<SegmentRef>,
    cutter: NodeCutter,
    nodes: Vec<NodeRef>,
    base_nodes: HashMap<Fingerprint, NodeRef>,
}

impl RecipeWriter {
    /// A writer that shares what it can with the base's recipe.
    pub(super) fn new(base: Option<&Recipe>) -> Self {
        let base_nodes = base.map_or_else(HashMap::new, |recipe| {
            recipe.nodes.iter().map(|node| (node.chunk.fingerprint, node.clone())).collect()
        });
        Self {
            segmenter: Segmenter::new(),
            cover: None,
            segments: Vec::new(),
            cutter: NodeCutter::new(),
            nodes: Vec::new(),
            base_nodes,
        }
    }

    /// Whether the next record begins a segment, so that a whole segment of the base may be taken over instead.
    pub(super) fn is_at_segment_start(&self) -> bool {
        self.segmenter.is_at_start()
    }

    /// Appends a record; `cover` says where in the tree it lies, for metadata streams. `candidate` is asked, when a segment
    /// ends, for the base's segment that the records were last found in.
    pub(super) fn push(
        &mut self,
        record: ChunkRecord,
        cover: Option<Cover>,
        candidate: impl FnOnce() -> Result<Option<SegmentRef>, RepositoryError>,
        sink: &mut MetaSink<'_>,
    ) -> Result<(), RepositoryError> {
        if let Some(cover) = cover {
            match &mut self.cover {
                Some(whole) => whole.data_bytes = whole.data_bytes.saturating_add(cover.data_bytes),
                None => self.cover = Some(cover),
            }
        }
        match self.segmenter.push(record) {
            Some(records) => {
                let candidate = candidate()?;
                self.end_segment(&records, candidate, sink)
            }
            None => Ok(()),
        }
    }

    fn end_segment(
        &mut self,
        records: &[ChunkRecord],
        candidate: Option<SegmentRef>,
        sink: &mut MetaSink<'_>,
    ) -> Result<(), RepositoryError> {
        let bytes = segment::encode(records)?;
        let fingerprint = sink.fingerprinter.one(&bytes);
        let cover = self.cover.take();
        let shared = candidate.filter(|segment| segment.chunk.fingerprint == fingerprint && segment.cover == cover);
        let segment = match shared {
            Some(segment) => segment,
            None => SegmentRef {
                chunk: sink.push(fingerprint, &bytes)?,
                bytes: records.iter().map(|record| u64::from(record.chunk.size)).sum(),
                chunks: records.len() as u32,
                samples: samples_of(records),
                uses: uses_of(records),
                cover,
            },
        };
        self.push_segment(segment, sink)
    }

    /// Appends a whole segment, which the base has or which was just stored.
    pub(super) fn push_segment(&mut self, segment: SegmentRef, sink: &mut MetaSink<'_>) -> Result<(), RepositoryError> {
        debug_assert!(self.segmenter.is_at_start());
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
        let node = match self.base_nodes.get(&fingerprint) {
            Some(node) => node.clone(),
            None => {
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
    pub(super) fn finish(
        mut self,
        candidate: Option<SegmentRef>,
        sink: &mut MetaSink<'_>,
    ) -> Result<Recipe, RepositoryError> {
        if let Some(records) = self.segmenter.finish() {
            self.end_segment(&records, candidate, sink)?;
        }
        self.end_node(sink)?;
        Ok(Recipe { nodes: self.nodes })
    }
}

fn uses_of(records: &[ChunkRecord]) -> Vec<ContainerUse> {
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
