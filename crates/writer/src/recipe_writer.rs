//! Writes the recipe of one stream: records into segments, stored as chunks unless the base has
//! them already.

use larder_chunking::RunMac;
use larder_dedup::{Segmenter, samples_of};
use larder_format::content;
use larder_format::recipe::{Cover, Proof, Recipe, SegmentRef, TAIL_MAX};
use larder_format::segment::{self, ChunkRecord, Segment};
use larder_store::RepositoryError;

use crate::cutting::Cutter;
use crate::merging::{Merge, Merging};
use crate::{MetaSink, NodeWriter, uses_of};

/// The parts of the proofs of a large file's segments.
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
    merging: Option<Merging>,
}

impl Proving {
    /// The proof of the segment that ends here.
    fn take(&mut self, records: &[ChunkRecord]) -> Option<Proof> {
        let mac = std::mem::replace(&mut self.mac, self.empty.clone());
        if !std::mem::replace(&mut self.is_whole, true) {
            return None;
        }
        let tail = tail_of(records.iter().map(|record| record.chunk.size), self.max);
        Some(Proof { mac: mac.finish(), cutter: self.cutter as u8, tail })
    }
}

/// See the module header.
#[derive(Debug)]
pub struct RecipeWriter {
    segmenter: Segmenter,
    proving: Option<Proving>,
    cover: Option<Cover>,
    nodes: NodeWriter,
}

impl RecipeWriter {
    /// A writer that shares as much as it can with the base's recipe.
    pub fn new(base: Option<&Recipe>) -> Self {
        Self { segmenter: Segmenter::new(), proving: None, cover: None, nodes: NodeWriter::new(base) }
    }

    /// Whether the next record begins a segment, so that a whole segment of the base may be taken
    /// over instead.
    pub fn is_at_segment_start(&self) -> bool {
        self.segmenter.is_at_start()
    }

    /// A large file begins: ends the open segment, and proves those that follow. `max` is how far
    /// cuts look; records of `merge` are merged into superchunks.
    pub fn begin_file(
        &mut self,
        cutter: Cutter,
        max: u32,
        run_mac: &RunMac,
        merge: Option<Merge>,
        candidate: Option<SegmentRef>,
        sink: &mut MetaSink,
    ) -> Result<(), RepositoryError> {
        self.border(candidate, sink)?;
        let (empty, mac) = (run_mac.clone(), run_mac.clone());
        let merging = merge.map(|merge| Merging::new(merge, run_mac.clone()));
        self.proving = Some(Proving { cutter, max, empty, mac, is_whole: true, merging });
        Ok(())
    }

    /// The large file has ended.
    pub fn end_file(&mut self, candidate: Option<SegmentRef>, sink: &mut MetaSink) -> Result<(), RepositoryError> {
        if self.proving.is_some() {
            self.border(candidate, sink)?;
            self.proving = None;
        }
        Ok(())
    }

    /// Ends the open segment here, with any content; `candidate` as in [`Self::push`].
    pub fn border(&mut self, candidate: Option<SegmentRef>, sink: &mut MetaSink) -> Result<(), RepositoryError> {
        match self.segmenter.finish() {
            Some(records) => self.end_segment(&records, candidate, sink),
            None => Ok(()),
        }
    }

    /// The next records are those of a superchunk of the base with this MAC.
    pub fn keep_superchunk(&mut self, records: usize, mac: [u8; 16]) {
        if let Some(merging) = self.proving.as_mut().and_then(|proving| proving.merging.as_mut()) {
            merging.keep(records, mac);
        }
    }

    /// The record pushed next, and its content if that is at hand: what proofs and superchunks are
    /// made of.
    pub fn saw(&mut self, record: &ChunkRecord, content: Option<&[u8]>) {
        if let Some(proving) = &mut self.proving {
            if let Some(merging) = &mut proving.merging {
                merging.push(record, content);
            }
            match content {
                Some(content) => proving.mac.update(content),
                None => proving.is_whole = false,
            }
        }
    }

    /// Appends a record; `cover` has its position in the tree, for metadata streams. `candidate` is
    /// asked, when a segment ends, for the base's segment that the records were last found in.
    pub fn push(
        &mut self,
        record: ChunkRecord,
        cover: Option<Cover>,
        candidate: impl FnOnce() -> Result<Option<SegmentRef>, RepositoryError>,
        sink: &mut MetaSink,
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
        sink: &mut MetaSink,
    ) -> Result<(), RepositoryError> {
        let merging = self.proving.as_mut().and_then(|proving| proving.merging.as_mut());
        let superchunks = merging.map(Merging::take).unwrap_or_default();
        let proof = self.proving.as_mut().and_then(|proving| proving.take(records));
        self.store(Segment { records: records.to_vec(), superchunks }, proof, candidate, sink)
    }

    /// Appends a segment that was cut elsewhere, with the proof of its bytes. Ends the open
    /// segment. `candidate` is a segment of the base that may be similar.
    pub fn push_cut(
        &mut self,
        records: Vec<ChunkRecord>,
        proof: Option<Proof>,
        candidate: Option<SegmentRef>,
        sink: &mut MetaSink,
    ) -> Result<(), RepositoryError> {
        self.border(None, sink)?;
        self.store(Segment { records, superchunks: Vec::new() }, proof, candidate, sink)
    }

    fn store(
        &mut self,
        segment: Segment,
        proof: Option<Proof>,
        candidate: Option<SegmentRef>,
        sink: &mut MetaSink,
    ) -> Result<(), RepositoryError> {
        let Segment { records, superchunks } = &segment;
        let bytes = segment::encode(records, superchunks)?;
        let cover = self.cover.take();
        let stored = sink.store_segment(&segment, &bytes, candidate.as_ref(), |_| false)?;
        // Equal records are equal bytes, so either proof holds.
        let of_equal = candidate.filter(|_| stored.is_shared).and_then(|base| base.proof);
        let proof = proof.or(of_equal);
        let row = SegmentRef {
            chunk: stored.chunk,
            bases: stored.bases,
            content: content::of_segment(records, superchunks, cover.as_ref(), proof.as_ref()),
            bytes: records.iter().map(|record| u64::from(record.chunk.size)).sum(),
            chunks: records.len() as u32,
            samples: samples_of(records),
            uses: uses_of(records),
            cover,
            proof,
        };
        self.push_segment(row, sink)
    }

    /// Appends a whole segment, which the base has or which was just stored.
    pub fn push_segment(&mut self, segment: SegmentRef, sink: &mut MetaSink) -> Result<(), RepositoryError> {
        debug_assert!(self.segmenter.is_at_start());
        self.nodes.push(segment, sink)
    }

    /// Ends the stream.
    pub fn finish(mut self, candidate: Option<SegmentRef>, sink: &mut MetaSink) -> Result<Recipe, RepositoryError> {
        self.border(candidate, sink)?;
        self.nodes.finish(sink)
    }
}

/// Lengths of the chunks at the end of a run that cuts look ahead from: those that begin less than
/// `max` before it.
pub fn tail_of(sizes: impl DoubleEndedIterator<Item = u32>, max: u32) -> Vec<u32> {
    let mut before_end = 0_u32;
    let lengths = sizes.rev().take_while(|size| {
        let looks_ahead = before_end < max;
        before_end = before_end.saturating_add(*size);
        looks_ahead
    });
    let mut tail: Vec<u32> = lengths.take(TAIL_MAX).collect();
    tail.reverse();
    tail
}
