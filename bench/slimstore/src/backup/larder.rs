//! Larder's own duplicate detection: the real filters of `larder-dedup`, over recipes that are kept in memory.
//!
//! What the adapter stands in for is the store: segments lie encoded in metadata containers; loading one reads its whole container
//! unless it is among the last [`CACHE_BYTES`] read, and decodes it. Everything else (cursor, sampled index, segments shared with
//! the base, the job's own chunks, cutting with history) is the code that `larder backup` runs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_chunking::{Chunker, ChunkerParams, Fingerprint, Fingerprinter, StreamEnd};
use larder_dedup::{Group, GroupFilter, History, HistoryCutter, LoadGroup, OwnChunks, SampledIndex, Segmenter};
use larder_dedup::{Skips, Tools, sample, samples_of};
use larder_format::segment::ChunkRecord;
use lru::LruCache;

use super::{CACHE_BYTES, Detector, Front, Outcome, Output, Piece, Stages, manifest};
use crate::SEED;
use crate::clock::{Traffic, timed};

/// Encoded bytes of a metadata container.
const META_CONTAINER: usize = 8 << 20;

/// A segment on the simulated store.
#[derive(Debug, Clone)]
struct Stored {
    bytes: Arc<[u8]>,
    container: u32,
    chunks: usize,
    samples: Vec<u64>,
}

/// The base version's recipe, and the cache of what was read of it.
#[derive(Debug)]
struct Base {
    segments: Arc<Vec<Stored>>,
    container_bytes: Arc<HashMap<u32, usize>>,
    cache: LruCache<u32, usize>,
    cached_bytes: usize,
    traffic: Traffic,
}

impl Base {
    fn read(&mut self, container: u32) {
        if self.cache.get(&container).is_some() {
            return;
        }
        let bytes = self.container_bytes[&container];
        self.traffic.add(bytes);
        self.cache.put(container, bytes);
        self.cached_bytes += bytes;
        while self.cached_bytes > CACHE_BYTES && self.cache.len() > 1 {
            let Some((_, bytes)) = self.cache.pop_lru() else { break };
            self.cached_bytes -= bytes;
        }
    }
}

impl LoadGroup for Base {
    type Error = Infallible;

    fn groups(&self) -> u32 {
        self.segments.len() as u32
    }

    fn load(&mut self, group: u32) -> Result<Group, Infallible> {
        let segments = self.segments.clone();
        let segment = &segments[group as usize];
        self.read(segment.container);
        Ok(Arc::new(manifest::decode(&segment.bytes)))
    }

    /// As the L-node does it: all chunks when they fit, else the samples that the recipe's nodes keep. The nodes' own few
    /// kilobytes are not counted.
    fn fill(&mut self, index: &mut SampledIndex) -> Result<(), Infallible> {
        let exact = self.segments.iter().map(|segment| segment.chunks).sum::<usize>() <= index.capacity();
        for (number, segment) in self.segments.clone().iter().enumerate() {
            let number = number as u32;
            if exact {
                let records = self.load(number)?;
                records.iter().for_each(|record| index.insert(sample(&record.chunk.fingerprint), number));
            } else {
                segment.samples.iter().for_each(|sample| index.insert(*sample, number));
            }
        }
        Ok(())
    }
}

/// Whether CPU time inside [`Larder::back_up`] is told apart by stage. Looking at the clock costs a few percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skipping {
    Whole,
    ByStage,
}

/// See the module header.
pub(crate) struct Larder {
    index_memory: usize,
    filter: Option<GroupFilter<Base>>,
    own: OwnChunks,
    segmenter: Segmenter,
    fingerprinter: Fingerprinter,
    base: Arc<Vec<Stored>>,
    /// The base's segments by name: one that is written again is shared.
    base_names: HashMap<Fingerprint, usize>,
    written: Vec<Stored>,
    written_names: HashMap<Fingerprint, usize>,
    container_bytes: HashMap<u32, usize>,
    container: u32,
    traffic: Traffic,
    skips: Skips,
}

impl Larder {
    /// `index_memory` as `larder backup` divides it: half for the base, a quarter for the job's own chunks.
    pub(crate) fn new(index_memory: usize) -> Self {
        Self {
            index_memory,
            filter: None,
            own: OwnChunks::new(index_memory / 4),
            segmenter: Segmenter::new(),
            fingerprinter: Fingerprinter::new(&SEED),
            base: Arc::default(),
            base_names: HashMap::new(),
            written: Vec::new(),
            written_names: HashMap::new(),
            container_bytes: HashMap::new(),
            container: 0,
            traffic: Traffic::default(),
            skips: Skips::default(),
        }
    }

    /// What prediction did so far.
    pub(crate) fn skips(&self) -> Skips {
        self.skips
    }

    /// Backs a version up with history: cutting, naming and looking up are one.
    pub(crate) fn back_up(&mut self, front: &Front, files: &[&[u8]], output: &mut Output) -> Outcome {
        self.back_up_timed(front, files, output, Skipping::Whole)
    }

    /// The same; by stage the outcome's `fingerprinting` holds everything that is neither a chunker's call nor a look-up.
    pub(crate) fn back_up_timed(
        &mut self,
        front: &Front,
        files: &[&[u8]],
        output: &mut Output,
        detail: Skipping,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let (before, traffic) = (output.stored_bytes(), self.traffic);
        let mut whole = Duration::ZERO;
        let mut known = Duration::ZERO;
        let chunker = TimedChunker { inner: &*front.chunker, spent: std::sync::Mutex::default() };
        timed(&mut whole, || {
            output.begin_version();
            self.begin();
            let mut cutter = HistoryCutter::new();
            let mut cuts = Vec::new();
            for file in files {
                cuts.clear();
                if let Some(filter) = &mut self.filter {
                    let chunker: &dyn Chunker = if detail == Skipping::ByStage { &chunker } else { &*front.chunker };
                    let tools = Tools { chunker, fingerprinter: &front.fingerprinter };
                    let Ok(_) = if detail == Skipping::ByStage {
                        let mut history = TimedHistory { inner: filter, spent: &mut known };
                        cutter.cut(tools, &mut history, file, StreamEnd::Reached, &mut cuts)
                    } else {
                        cutter.cut(tools, filter, file, StreamEnd::Reached, &mut cuts)
                    };
                    let start = Instant::now();
                    for cut in &cuts {
                        let piece = Piece { fingerprint: cut.fingerprint, size: cut.length };
                        self.settle(&piece, cut.known, output);
                    }
                    known += start.elapsed();
                } else {
                    let mut stages = Stages::default();
                    let pieces = front.run(file, &mut stages);
                    chunker.add(stages.chunking);
                    let start = Instant::now();
                    pieces.iter().for_each(|piece| self.settle(piece, None, output));
                    known += start.elapsed();
                }
            }
            self.skips = add(self.skips, cutter.skips());
            self.finish(output);
        });
        let chunking = chunker.spent().min(whole);
        let lookup = known.min(whole - chunking);
        outcome.stages = Stages { chunking, lookup, fingerprinting: whole - chunking - lookup };
        outcome.bytes = files.iter().map(|file| file.len() as u64).sum();
        outcome.chunks = output.recipe().len() as u64;
        outcome.stored = output.stored_bytes() - before;
        outcome.traffic = self.traffic - traffic;
        outcome
    }

    /// Stores a chunk unless it is known or was stored by this job, and notes its record.
    fn settle(&mut self, piece: &Piece, known: Option<ChunkRecord>, output: &mut Output) {
        let record = match known {
            Some(record) => {
                output.reuse(record.chunk);
                record
            }
            None => match self.own.find(&piece.fingerprint) {
                Some(chunk) => {
                    output.reuse(*chunk);
                    ChunkRecord { chunk: *chunk, born: output.job() }
                }
                None => {
                    let chunk = output.store(piece);
                    self.own.insert(chunk);
                    ChunkRecord { chunk, born: output.job() }
                }
            },
        };
        if let Some(records) = self.segmenter.push(record) {
            self.end_segment(&records);
        }
    }

    /// Shares the segment with the base, or writes it.
    fn end_segment(&mut self, records: &[ChunkRecord]) {
        let bytes = manifest::encode(records);
        let name = self.fingerprinter.one(&bytes);
        if let Some(shared) = self.base_names.get(&name) {
            self.written_names.insert(name, self.written.len());
            self.written.push(self.base[*shared].clone());
            return;
        }
        let fill = self.container_bytes.entry(self.container).or_default();
        if *fill + bytes.len() > META_CONTAINER {
            self.container += 1;
        }
        *self.container_bytes.entry(self.container).or_default() += bytes.len();
        self.written_names.insert(name, self.written.len());
        let samples = samples_of(records);
        self.written.push(Stored { bytes: bytes.into(), container: self.container, chunks: records.len(), samples });
    }
}

impl Detector for Larder {
    fn begin(&mut self) {
        // A job's metadata lies in containers of its own.
        self.container += 1;
        self.own = OwnChunks::new(self.index_memory / 4);
        self.filter = (!self.base.is_empty()).then(|| {
            let base = Base {
                segments: self.base.clone(),
                container_bytes: Arc::new(self.container_bytes.clone()),
                cache: LruCache::unbounded(),
                cached_bytes: 0,
                traffic: Traffic::default(),
            };
            GroupFilter::new(base, self.index_memory / 2)
        });
    }

    fn detect(&mut self, pieces: &[Piece], output: &mut Output) {
        for piece in pieces {
            let known = match &mut self.filter {
                Some(filter) => {
                    let Ok(known) = filter.find(&piece.fingerprint, piece.size);
                    known
                }
                None => None,
            };
            self.settle(piece, known, output);
        }
    }

    fn finish(&mut self, _: &mut Output) {
        if let Some(records) = self.segmenter.finish() {
            self.end_segment(&records);
        }
        if let Some(filter) = self.filter.take() {
            let read = filter.loader().traffic;
            self.traffic.requests += read.requests;
            self.traffic.bytes += read.bytes;
        }
        self.base = Arc::new(std::mem::take(&mut self.written));
        self.base_names = std::mem::take(&mut self.written_names);
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn resident_bytes(&self) -> usize {
        0
    }
}

fn add(a: Skips, b: Skips) -> Skips {
    Skips {
        hits: a.hits + b.hits,
        misses: a.misses + b.misses,
        skipped_bytes: a.skipped_bytes + b.skipped_bytes,
        scanned_bytes: a.scanned_bytes + b.scanned_bytes,
    }
}

/// A chunker that notes the time its calls take.
struct TimedChunker<'a> {
    inner: &'a dyn Chunker,
    spent: std::sync::Mutex<Duration>,
}

impl TimedChunker<'_> {
    fn add(&self, time: Duration) {
        *self.spent.lock().expect("nobody panics while holding it") += time;
    }

    fn spent(&self) -> Duration {
        *self.spent.lock().expect("nobody panics while holding it")
    }
}

impl Chunker for TimedChunker<'_> {
    fn params(&self) -> ChunkerParams {
        self.inner.params()
    }

    fn next_cut(&self, data: &[u8]) -> usize {
        let start = Instant::now();
        let cut = self.inner.next_cut(data);
        self.add(start.elapsed());
        cut
    }

    fn confirms(&self, data: &[u8], length: usize) -> bool {
        let start = Instant::now();
        let confirmed = self.inner.confirms(data, length);
        self.add(start.elapsed());
        confirmed
    }
}

/// A history that notes the time its calls take.
struct TimedHistory<'a> {
    inner: &'a mut GroupFilter<Base>,
    spent: &'a mut Duration,
}

impl History for TimedHistory<'_> {
    type Error = Infallible;

    fn expect(&mut self, most: usize, run: &mut Vec<ChunkRecord>) -> Result<(), Infallible> {
        let start = Instant::now();
        let result = History::expect(self.inner, most, run);
        *self.spent += start.elapsed();
        result
    }

    fn pass(&mut self, count: usize) {
        History::pass(self.inner, count);
    }

    fn find(&mut self, fingerprint: &Fingerprint, size: u32) -> Result<Option<ChunkRecord>, Infallible> {
        let start = Instant::now();
        let result = self.inner.find(fingerprint, size);
        *self.spent += start.elapsed();
        result
    }
}
