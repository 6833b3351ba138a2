//! Writes the recipe of one version, as the L-node's recipe writer does: segments that the base has are shared, runs that have
//! stayed duplicate become superchunks, and segments get a proof.

use std::collections::HashMap;
use std::sync::Arc;

use larder_bench_common::names::NameMap;
use larder_chunking::{Fingerprinter, RunMac, RunMacKey};
use larder_dedup::{Segmenter, samples_of};
use larder_format::Fingerprint;
use larder_format::segment::{ChunkRecord, Superchunk};

use super::base::{Proof, Stored};
use super::manifest;
use crate::SEED;

/// Encoded bytes of a metadata container.
const META_CONTAINER: usize = 8 << 20;
/// A run with fewer records is no superchunk.
const RUN_RECORDS_MIN: usize = 4;
/// The same as the program merges by default (`larder-writer`). A run ends behind one record in [`SHORT_ONE_IN`], and has this
/// many records at most.
const SHORT_RECORDS_MIN: usize = 2;
const SHORT_RECORDS_MAX: usize = 4;
const SHORT_ONE_IN: u8 = 16;

/// How chunks are merged into superchunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merging {
    /// Chunks of this age are merged, in versions.
    pub(crate) after: u32,
    pub(crate) across: Across,
}

/// What ends a superchunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Across {
    /// The records lie back to back in one container and were born together; at most 1 MiB.
    Nothing,
    /// Any records in a row; at most 128 KiB.
    Containers,
    /// As Larder does it by default: the same, but four records at most. Runs of the base stay as they are.
    ShortRuns,
}

impl Across {
    fn bytes_max(self) -> u64 {
        match self {
            Self::Nothing => 1 << 20,
            Self::Containers | Self::ShortRuns => 128 << 10,
        }
    }
}

/// A number of the versions a chunk's record says it was born in.
pub(super) fn version_of(record: &ChunkRecord) -> u32 {
    let id = record.born.0;
    u32::from_be_bytes([id[0], id[1], id[2], id[3]])
}

/// The MAC of nothing.
pub(super) fn empty_mac() -> RunMac {
    let mut key = [0; 16];
    key.copy_from_slice(&SEED[..16]);
    RunMac::new(&RunMacKey(key))
}

/// Lengths of the chunks that begin less than `max` before the end of a run.
pub(super) fn tail_of(records: &[ChunkRecord], max: u32) -> Vec<u32> {
    let mut before_end = 0;
    let sizes = records.iter().rev().map(|record| record.chunk.size).take_while(|size| {
        let looks_ahead = before_end < max;
        before_end += size;
        looks_ahead
    });
    let mut tail: Vec<u32> = sizes.collect();
    tail.reverse();
    tail
}

/// Proofs to be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Proving {
    pub(super) merging: Option<Merging>,
    /// Whole segments get a proof.
    pub(super) segments: bool,
    /// No cut depends on more than this many bytes from its chunk's start.
    pub(super) max: u32,
}

/// See the module header.
pub(super) struct RecipeWriter {
    segmenter: Segmenter,
    fingerprinter: Fingerprinter,
    pub(super) base: Arc<Vec<Stored>>,
    /// The base's segments by name: one that is written again is shared.
    base_names: NameMap<Fingerprint, usize>,
    written: Vec<Stored>,
    written_names: NameMap<Fingerprint, usize>,
    pub(super) container_bytes: HashMap<u32, usize>,
    container: u32,
    version: u32,
    proving: Proving,
    empty: RunMac,
    segment_mac: RunMac,
    run: Option<Run>,
    runs: Vec<Superchunk>,
    next: usize,
    /// A superchunk of the base whose records come next, and how many of them have not come yet.
    kept: Option<(Superchunk, usize)>,
}

struct Run {
    first: usize,
    records: usize,
    bytes: u64,
    last: ChunkRecord,
    mac: RunMac,
}

impl RecipeWriter {
    pub(super) fn new() -> Self {
        Self {
            segmenter: Segmenter::new(),
            fingerprinter: Fingerprinter::new(&SEED),
            base: Arc::default(),
            base_names: NameMap::default(),
            written: Vec::new(),
            written_names: NameMap::default(),
            container_bytes: HashMap::new(),
            container: 0,
            version: 0,
            proving: Proving::default(),
            empty: empty_mac(),
            segment_mac: empty_mac(),
            run: None,
            runs: Vec::new(),
            next: 0,
            kept: None,
        }
    }

    /// A job begins a metadata container of its own.
    pub(super) fn begin(&mut self, version: u32, proving: Proving) {
        self.container += 1;
        self.version = version;
        self.proving = proving;
    }

    pub(super) fn is_at_start(&self) -> bool {
        self.segmenter.is_at_start()
    }

    /// Appends a record; with its content it may become part of a superchunk.
    pub(super) fn push(&mut self, record: ChunkRecord, content: &[u8]) {
        if self.proving.segments {
            self.segment_mac.update(content);
        }
        if let Some(merging) = self.proving.merging {
            self.merge(&record, content, merging);
        }
        if let Some(records) = self.segmenter.push(record) {
            self.end_segment(&records);
        }
    }

    /// The next records are those of a superchunk with this MAC. By default Larder keeps it; the other ways merge again.
    pub(super) fn keep(&mut self, records: usize, mac: [u8; 16]) {
        if self.proving.merging.is_some_and(|merging| merging.across == Across::ShortRuns) {
            self.end_run();
            self.kept = Some((Superchunk { first: self.next, records, mac }, records));
        }
    }

    /// Takes a whole segment of the base over.
    pub(super) fn share(&mut self, number: u32) {
        self.written.push(self.base[number as usize].clone());
    }

    /// The job ends: what it wrote is the next one's base.
    pub(super) fn finish(&mut self) {
        if let Some(records) = self.segmenter.finish() {
            self.end_segment(&records);
        }
        self.base = Arc::new(std::mem::take(&mut self.written));
        self.base_names = std::mem::take(&mut self.written_names);
    }

    fn merge(&mut self, record: &ChunkRecord, content: &[u8], Merging { after, across }: Merging) {
        let number = self.next;
        self.next += 1;
        if let Some((superchunk, left)) = &mut self.kept {
            *left -= 1;
            if *left == 0 {
                self.runs.push(*superchunk);
                self.kept = None;
            }
            return;
        }
        if version_of(record) + after > self.version {
            return self.end_run();
        }
        let bytes = content.len() as u64;
        let goes_on = |run: &Run| {
            let follows = across != Across::Nothing || run.last.continues(record);
            follows && run.bytes + bytes <= across.bytes_max()
        };
        if !self.run.as_ref().is_some_and(goes_on) {
            self.end_run();
        }
        let new = || Run { first: number, records: 0, bytes: 0, last: *record, mac: self.empty.clone() };
        let run = self.run.get_or_insert_with(new);
        run.records += 1;
        run.bytes += bytes;
        run.last = *record;
        run.mac.update(content);
        let is_at_border =
            run.records == SHORT_RECORDS_MAX || record.chunk.fingerprint.0[31].is_multiple_of(SHORT_ONE_IN);
        if across == Across::ShortRuns && is_at_border {
            self.end_run();
        }
    }

    fn end_run(&mut self) {
        let is_short = self.proving.merging.is_some_and(|merging| merging.across == Across::ShortRuns);
        let records_min = if is_short { SHORT_RECORDS_MIN } else { RUN_RECORDS_MIN };
        if let Some(run) = self.run.take().filter(|run| run.records >= records_min) {
            self.runs.push(Superchunk { first: run.first, records: run.records, mac: run.mac.finish() });
        }
    }

    fn end_segment(&mut self, records: &[ChunkRecord]) {
        self.end_run();
        (self.next, self.kept) = (0, None);
        let superchunks = std::mem::take(&mut self.runs);
        let bytes = manifest::encode(records, &superchunks);
        let name = self.fingerprinter.one(&bytes);
        let mac = std::mem::replace(&mut self.segment_mac, self.empty.clone());
        let number = self.written.len();
        self.written_names.insert(name, number);
        if let Some(shared) = self.base_names.get(&name) {
            self.written.push(self.base[*shared].clone());
            return;
        }
        let fill = self.container_bytes.entry(self.container).or_default();
        if *fill + bytes.len() > META_CONTAINER {
            self.container += 1;
        }
        *self.container_bytes.entry(self.container).or_default() += bytes.len();
        let proof = self.proving.segments.then(|| Proof {
            bytes: records.iter().map(|record| record.chunk.size as usize).sum(),
            mac: mac.finish(),
            tail: tail_of(records, self.proving.max),
        });
        let samples = samples_of(records);
        self.written.push(Stored {
            bytes: bytes.into(),
            container: self.container,
            chunks: records.len(),
            samples,
            proof,
        });
    }
}
