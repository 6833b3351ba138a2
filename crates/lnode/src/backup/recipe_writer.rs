//! Writes the recipe of one stream: records into segments, segments into nodes, both stored as chunks unless the base has
//! them already.

use std::collections::HashMap;

use larder_chunking::{Fingerprinter, RunMac};
use larder_dedup::{NodeCutter, Segmenter, samples_of};
use larder_format::Fingerprint;
use larder_format::ids::ContainerId;
use larder_format::recipe::{ContainerUse, Cover, NodeRef, Proof, Recipe, SegmentRef, TAIL_MAX, encode_node};
use larder_format::segment::{self, ChunkRecord};
use larder_store::RepositoryError;

use super::cutting::Cutter;
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

/// What the proofs of a large file's segments are made of.
#[derive(Debug)]
struct Proving {
    cutter: Cutter,
    /// No cut depends on more than this many bytes from its chunk's start.
    max: u32,
    empty: RunMac,
    /// Over the open segment.
    mac: RunMac,
    /// Whether the MAC has seen all of the open segment.
    is_whole: bool,
}

impl Proving {
    /// The proof of the segment that ends here.
    fn take(&mut self, records: &[ChunkRecord]) -> Option<Proof> {
        let mac = std::mem::replace(&mut self.mac, self.empty.clone());
        if !std::mem::replace(&mut self.is_whole, true) {
            return None;
        }
        let mut before_end = 0;
        let lengths = records.iter().rev().map(|record| record.chunk.size).take_while(|size| {
            let looks_ahead = before_end < self.max;
            before_end += size;
            looks_ahead
        });
        let mut tail: Vec<u32> = lengths.take(TAIL_MAX).collect();
        tail.reverse();
        Some(Proof { mac: mac.finish(), cutter: self.cutter as u8, tail })
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct RecipeWriter {
    segmenter: Segmenter,
    proving: Option<Proving>,
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
            proving: None,
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

    /// A large file begins: ends the open segment, and proves those that follow. `max` is how far cuts look.
    pub(super) fn begin_file(
        &mut self,
        cutter: Cutter,
        max: u32,
        run_mac: &RunMac,
        candidate: Option<SegmentRef>,
        sink: &mut MetaSink<'_>,
    ) -> Result<(), RepositoryError> {
        self.border(candidate, sink)?;
        let (empty, mac) = (run_mac.clone(), run_mac.clone());
        self.proving = Some(Proving { cutter, max, empty, mac, is_whole: true });
        Ok(())
    }

    /// The large file has ended.
    pub(super) fn end_file(
        &mut self,
        candidate: Option<SegmentRef>,
        sink: &mut MetaSink<'_>,
    ) -> Result<(), RepositoryError> {
        if self.proving.is_some() {
            self.border(candidate, sink)?;
            self.proving = None;
        }
        Ok(())
    }

    /// Ends the open segment here, whatever its content; `candidate` as in [`Self::push`].
    pub(super) fn border(
        &mut self,
        candidate: Option<SegmentRef>,
        sink: &mut MetaSink<'_>,
    ) -> Result<(), RepositoryError> {
        match self.segmenter.finish() {
            Some(records) => self.end_segment(&records, candidate, sink),
            None => Ok(()),
        }
    }

    /// The content of the record pushed next, if it is at hand: what proofs are made of.
    pub(super) fn saw(&mut self, content: Option<&[u8]>) {
        if let Some(proving) = &mut self.proving {
            match content {
                Some(content) => proving.mac.update(content),
                None => proving.is_whole = false,
            }
        }
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
        let proof = self.proving.as_mut().and_then(|proving| proving.take(records));
        let shared = candidate.filter(|segment| segment.chunk.fingerprint == fingerprint && segment.cover == cover);
        let segment = match shared {
            // Equal records are equal bytes, so either proof holds.
            Some(segment) => SegmentRef { proof: proof.or(segment.proof), ..segment },
            None => SegmentRef {
                chunk: sink.push(fingerprint, &bytes)?,
                bytes: records.iter().map(|record| u64::from(record.chunk.size)).sum(),
                chunks: records.len() as u32,
                samples: samples_of(records),
                uses: uses_of(records),
                cover,
                proof,
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
        self.border(candidate, sink)?;
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
