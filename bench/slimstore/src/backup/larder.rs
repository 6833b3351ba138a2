//! Larder's own duplicate detection: the real filters of `larder-dedup`, over recipes that are kept in memory.
//!
//! As a [`Detector`] it looks chunks up that are cut and named already. [`Larder::back_up`] also cuts, with what history predicts:
//! chunk by chunk with the real [`HistoryCutter`], run by run with superchunks, segment by segment with proofs. How runs and
//! segments are proved lives in the L-node between its reader and its threads, and cannot be called from here; [`Larder::prove`]
//! is the same procedure with the same parts (`RunMac`, `Chunker::confirms`) on data in memory.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use larder_chunking::{Chunker, ChunkerParams, Fingerprint, RunMac, StreamEnd};
use larder_dedup::{Cut, GroupFilter, History, HistoryCutter, OwnChunks, Skips, Tools, Tries};
use larder_format::segment::{ChunkRecord, Superchunk};

use super::base::{Base, Proof};
use super::recipe::{Across, Merging, Proving, RecipeWriter, empty_mac, tail_of};
use super::{Detector, Front, Outcome, Output, Piece, Stages};
use crate::clock::{Traffic, cpu, timed};

/// What of the history [`Larder::back_up`] uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct With {
    /// Chunks are predicted one by one (skip chunking).
    pub(crate) skipping: bool,
    /// Chunks that stay duplicate are predicted as superchunks.
    pub(crate) merging: Option<Merging>,
    /// Whole segments are predicted.
    pub(crate) proofs: bool,
}

impl With {
    /// The same with merging as Larder does it by default: at once, into short runs.
    pub(crate) const fn merging_at_once(self) -> Self {
        Self { merging: Some(Merging { after: 0, across: Across::ShortRuns }), ..self }
    }

    /// The same with merging of chunks that are `after` versions old.
    pub(crate) const fn merging_after(self, after: u32) -> Self {
        Self { merging: Some(Merging { after, across: Across::Containers }), ..self }
    }

    /// The same with merging of chunks alone that lie back to back, as the paper's superchunks do.
    pub(crate) const fn merging_together(self, after: u32) -> Self {
        Self { merging: Some(Merging { after, across: Across::Nothing }), ..self }
    }
}

/// Whether CPU time inside [`Larder::back_up`] is told apart by stage. What looking at the clock costs is taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    Whole,
    ByStage,
}

/// Bytes cut in the ordinary way before it is asked again whether a run begins here.
const STRETCH: usize = 256 << 10;

/// See the module header.
pub(crate) struct Larder {
    index_memory: usize,
    filter: Option<GroupFilter<Base>>,
    own: OwnChunks,
    recipe: RecipeWriter,
    empty: RunMac,
    traffic: Traffic,
    skips: Skips,
    proved_bytes: u64,
    /// Runs and segments that were proved, and the chunks in them.
    proved_runs: (u64, u64),
}

impl Larder {
    /// `index_memory` as `larder backup` divides it: half for the base, a quarter for the job's own chunks.
    pub(crate) fn new(index_memory: usize) -> Self {
        Self {
            index_memory,
            filter: None,
            own: OwnChunks::new(index_memory / 4),
            recipe: RecipeWriter::new(),
            empty: empty_mac(),
            traffic: Traffic::default(),
            skips: Skips::default(),
            proved_bytes: 0,
            proved_runs: (0, 0),
        }
    }

    /// What prediction of single chunks did in the newest version.
    pub(crate) fn skips(&self) -> Skips {
        self.skips
    }

    /// Bytes that runs and segments proved in the newest version.
    pub(crate) fn proved_bytes(&self) -> u64 {
        self.proved_bytes
    }

    /// Runs and segments that were proved in the newest version, and the chunks in them.
    pub(crate) fn proved_runs(&self) -> (u64, u64) {
        self.proved_runs
    }

    /// Backs a version up: cutting, naming and looking up are one. By stage the outcome's `fingerprinting` is all time that is
    /// neither a chunker's nor a look-up's: naming, MACs, and the loop around them.
    pub(crate) fn back_up(
        &mut self,
        front: &Front,
        files: &[&[u8]],
        with: With,
        detail: Detail,
        output: &mut Output,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let (before, traffic) = (output.stored_bytes(), self.traffic);
        let mut whole = Duration::ZERO;
        let spent = Spent::new(detail);
        let timed_chunker = TimedChunker { inner: &*front.chunker, spent: &spent };
        let chunker: &dyn Chunker = if detail == Detail::ByStage { &timed_chunker } else { &*front.chunker };
        let tools = Tools { chunker, fingerprinter: &front.fingerprinter };
        timed(&mut whole, || {
            output.begin_version();
            let max = chunker.params().max;
            self.start(Proving { merging: with.merging, segments: with.proofs, max }, output);
            let mut job = Job {
                tools,
                with,
                cutter: HistoryCutter::new(),
                cuts: Vec::new(),
                tries: Tries::default(),
                broken: None,
                spent: &spent,
            };
            for file in files {
                job.tries = Tries::default();
                self.file(&mut job, file, output);
            }
            self.skips = job.cutter.skips();
            self.finish(output);
        });
        let whole = whole.saturating_sub(spent.overhead());
        let chunking = spent.of(Stage::Chunking).min(whole);
        let lookup = spent.of(Stage::Lookup).min(whole - chunking);
        outcome.stages = Stages { chunking, lookup, fingerprinting: whole - chunking - lookup };
        outcome.bytes = files.iter().map(|file| file.len() as u64).sum();
        outcome.chunks = output.recipe().len() as u64;
        outcome.stored = output.stored_bytes() - before;
        outcome.traffic = self.traffic - traffic;
        outcome
    }

    fn start(&mut self, proving: Proving, output: &Output) {
        self.recipe.begin(output.version(), proving);
        self.own = OwnChunks::new(self.index_memory / 4);
        self.proved_bytes = 0;
        self.proved_runs = (0, 0);
        self.filter = (!self.recipe.base.is_empty()).then(|| {
            let base = Base::new(self.recipe.base.clone(), self.recipe.container_bytes.clone());
            GroupFilter::new(base, self.index_memory / 2)
        });
    }

    fn file(&mut self, job: &mut Job<'_>, file: &[u8], output: &mut Output) {
        let mut at = 0;
        while at < file.len() {
            let data = &file[at..];
            let (bytes, stop) = self.prove(job, data, output);
            if bytes > 0 {
                at += bytes;
                continue;
            }
            let mut cuts = std::mem::take(&mut job.cuts);
            cuts.clear();
            at += self.cut(job, data, stop.min(STRETCH), &mut cuts);
            let mut offset = 0;
            job.spent.measure(Stage::Lookup, || {
                for cut in &cuts {
                    let content = &data[offset..offset + cut.length as usize];
                    offset += content.len();
                    let piece = Piece { fingerprint: cut.fingerprint, size: cut.length };
                    self.settle(&piece, cut.known, content, output);
                }
            });
            job.cuts = cuts;
        }
    }

    /// Cuts at least `stop` bytes, with or without prediction of single chunks.
    fn cut(&mut self, job: &mut Job<'_>, data: &[u8], stop: usize, cuts: &mut Vec<Cut>) -> usize {
        let Job { tools, with, cutter, spent, .. } = job;
        if let (true, Some(filter)) = (with.skipping, &mut self.filter) {
            let mut history = TimedHistory { inner: filter, spent };
            let Ok(consumed) = cutter.cut(*tools, &mut history, data, StreamEnd::Reached, stop, cuts);
            return consumed;
        }
        let (mut lengths, mut names) = (Vec::new(), Vec::new());
        let consumed = tools.chunker.cut_until(data, StreamEnd::Reached, stop, &mut lengths);
        tools.fingerprinter.many(data, &lengths, &mut names);
        spent.measure(Stage::Lookup, || {
            for (length, fingerprint) in lengths.into_iter().zip(names) {
                let known = self.filter.as_mut().and_then(|filter| {
                    let Ok(known) = filter.find(&fingerprint, length);
                    known
                });
                cuts.push(Cut { length, fingerprint, known });
            }
        });
        consumed
    }

    /// Tries to settle a whole segment or superchunk that is expected here. Gives its bytes, or 0 and how far to go on
    /// otherwise before it is worth asking again.
    fn prove(&mut self, job: &mut Job<'_>, data: &[u8], output: &mut Output) -> (usize, usize) {
        let With { merging, proofs, .. } = job.with;
        let Some(filter) = self.filter.as_mut().filter(|_| proofs || merging.is_some()) else {
            return (0, usize::MAX);
        };
        let expected = job.spent.measure(Stage::Lookup, || {
            // Asking for what follows moves the cursor into the next segment when it is at the end of one.
            let left = coming(filter, usize::MAX).len();
            filter.position().map(|(group, _)| (group, left))
        });
        let Some((group, left)) = expected else { return (0, usize::MAX) };
        let segment = &filter.loader().segments[group as usize];
        let here = segment.chunks - left;
        if let Some(proof) = segment.proof.clone().filter(|_| here == 0 && job.tries.is_next()) {
            if job.is_proved(&proof, data, &self.empty) {
                job.tries.was_right();
                let following = coming(filter, usize::MAX).to_vec();
                filter.skip(following.len());
                job.spent.measure(Stage::Lookup, || {
                    if self.recipe.is_at_start() {
                        following.iter().for_each(|record| output.reuse(record.chunk));
                        self.recipe.share(group);
                    } else {
                        self.take(&following, data, output);
                    }
                });
                self.note(proof.bytes, following.len());
                return (proof.bytes, 0);
            }
            job.tries.was_wrong();
        }
        let superchunks = filter.loader().superchunks.get(&group).map_or(&[][..], Vec::as_slice);
        let superchunks = superchunks[superchunks.partition_point(|superchunk| superchunk.first < here)..].to_vec();
        let following = coming(filter, usize::MAX);
        let Some(first) = superchunks.first() else { return (0, bytes_of(following)) };
        if first.first > here {
            return (0, bytes_of(&following[..first.first - here]));
        }
        let equal = job.equal_runs((group, here), &superchunks, following, data, &self.empty);
        let Some(last) = equal.checked_sub(1).map(|last| &superchunks[last]) else {
            // A broken one is cut chunk by chunk, and not tried again.
            let most = superchunks.get(1).map_or(following.len(), |next| next.first - here);
            return (0, bytes_of(&following[..most]));
        };
        let records = following[..last.first + last.records - here].to_vec();
        filter.skip(records.len());
        let (mut record, mut bytes) = (0, 0);
        for superchunk in &superchunks[..equal] {
            let records = &records[record..record + superchunk.records];
            self.recipe.keep(records.len(), superchunk.mac);
            job.spent.measure(Stage::Lookup, || self.take(records, &data[bytes..], output));
            self.note(bytes_of(records), records.len());
            (record, bytes) = (record + records.len(), bytes + bytes_of(records));
        }
        (bytes, 0)
    }

    fn note(&mut self, bytes: usize, chunks: usize) {
        self.proved_bytes += bytes as u64;
        self.proved_runs.0 += 1;
        self.proved_runs.1 += chunks as u64;
    }

    /// Notes records that are proved.
    fn take(&mut self, records: &[ChunkRecord], data: &[u8], output: &mut Output) {
        let mut offset = 0;
        for record in records {
            let content = &data[offset..offset + record.chunk.size as usize];
            offset += content.len();
            output.reuse(record.chunk);
            self.recipe.push(*record, content);
        }
    }

    /// Stores a chunk unless it is known or was stored by this job, and notes its record.
    fn settle(&mut self, piece: &Piece, known: Option<ChunkRecord>, content: &[u8], output: &mut Output) {
        let record = match known {
            Some(record) => {
                output.reuse(record.chunk);
                record
            }
            None => match self.own.find(&piece.fingerprint) {
                Some(chunk) => {
                    output.reuse(chunk);
                    ChunkRecord { chunk, born: output.job() }
                }
                None => {
                    let chunk = output.store(piece);
                    self.own.insert(chunk);
                    ChunkRecord { chunk, born: output.job() }
                }
            },
        };
        self.recipe.push(record, content);
    }
}

impl Detector for Larder {
    fn begin(&mut self, output: &Output) {
        self.start(Proving::default(), output);
    }

    fn detect(&mut self, pieces: &[Piece], output: &mut Output) {
        for piece in pieces {
            let known = self.filter.as_mut().and_then(|filter| {
                let Ok(known) = filter.find(&piece.fingerprint, piece.size);
                known
            });
            self.settle(piece, known, &[], output);
        }
    }

    fn finish(&mut self, _: &mut Output) {
        self.recipe.finish();
        if let Some(filter) = self.filter.take() {
            self.traffic += filter.loader().traffic;
        }
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn resident_bytes(&self) -> usize {
        0
    }
}

/// The next records of the base's segment, at most `most`.
fn coming(filter: &mut GroupFilter<Base>, most: usize) -> &[ChunkRecord] {
    let Ok(following) = filter.following(most);
    following
}

fn bytes_of(records: &[ChunkRecord]) -> usize {
    records.iter().map(|record| record.chunk.size as usize).sum()
}

/// What one backup works with.
struct Job<'a> {
    tools: Tools<'a>,
    with: With,
    cutter: HistoryCutter,
    cuts: Vec<Cut>,
    /// Whether proofs of whole segments of this file are tried, as the program does it.
    tries: Tries,
    /// A superchunk that was tried and is broken: its segment, and its first record.
    broken: Option<(u32, usize)>,
    spent: &'a Spent,
}

impl Job<'_> {
    /// Whether `data` begins with the bytes of the proof, and they are cut as they were.
    fn is_proved(&self, proof: &Proof, data: &[u8], empty: &RunMac) -> bool {
        if proof.bytes > data.len() {
            return false;
        }
        is_equal(&data[..proof.bytes], proof.mac, empty) && self.is_cut_as_before(&proof.tail, proof.bytes, data)
    }

    /// The number of superchunks, one behind the other, that `data` begins with and that are cut as they were. The first of them begins at
    /// `place`, with `following`. Of equal ones only the last chunks may be cut otherwise.
    fn equal_runs(
        &mut self,
        place: (u32, usize),
        superchunks: &[Superchunk],
        following: &[ChunkRecord],
        data: &[u8],
        empty: &RunMac,
    ) -> usize {
        let (group, here) = place;
        let mut ends: Vec<(usize, usize)> = Vec::new();
        for superchunk in superchunks {
            let (record, at) = ends.last().copied().unwrap_or_default();
            if superchunk.first - here != record || self.broken == Some((group, superchunk.first)) {
                break;
            }
            let past_end = at + bytes_of(&following[record..record + superchunk.records]);
            if !data.get(at..past_end).is_some_and(|run| is_equal(run, superchunk.mac, empty)) {
                self.broken = Some((group, superchunk.first));
                break;
            }
            ends.push((record + superchunk.records, past_end));
        }
        let max = self.tools.chunker.params().max;
        let confirmed = |(records, bytes): &(usize, usize)| {
            self.is_cut_as_before(&tail_of(&following[..*records], max), *bytes, data)
        };
        ends.iter().rposition(confirmed).map_or(0, |last| last + 1)
    }

    fn is_cut_as_before(&self, tail: &[u32], bytes: usize, data: &[u8]) -> bool {
        let mut at = bytes - tail.iter().map(|length| *length as usize).sum::<usize>();
        tail.iter().all(|length| {
            let confirmed = self.tools.chunker.confirms(&data[at..], *length as usize);
            at += *length as usize;
            confirmed
        })
    }
}

fn is_equal(data: &[u8], expected: [u8; 16], empty: &RunMac) -> bool {
    let mut mac = empty.clone();
    mac.update(data);
    mac.finish() == expected
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Chunking,
    Lookup,
}

/// CPU time spent by stage. Behind a lock because chunkers must be shareable; nobody else takes it.
struct Spent {
    detail: Detail,
    /// What one look at the clock costs.
    look: Duration,
    /// By stage: time, and how often it was measured.
    times: Mutex<[(Duration, u32); 2]>,
}

/// Looks at the clock that tell what one costs.
const LOOKS: u32 = 1000;

impl Spent {
    fn new(detail: Detail) -> Self {
        let mut look = Duration::ZERO;
        if detail == Detail::ByStage {
            timed(&mut look, || (0..LOOKS).fold(Duration::ZERO, |_, _| std::hint::black_box(cpu())));
        }
        Self { detail, look: look / LOOKS, times: Mutex::default() }
    }

    fn measure<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        if self.detail == Detail::Whole {
            return work();
        }
        let start = cpu();
        let result = work();
        let (time, count) = &mut self.times()[stage as usize];
        *time += cpu().saturating_sub(start);
        *count += 1;
        result
    }

    fn times(&self) -> MutexGuard<'_, [(Duration, u32); 2]> {
        self.times.lock().expect("nobody panics while holding it")
    }

    /// Half of either look falls into what they measure.
    fn of(&self, stage: Stage) -> Duration {
        let (time, count) = self.times()[stage as usize];
        time.saturating_sub(self.look * count)
    }

    fn overhead(&self) -> Duration {
        self.times().iter().map(|(_, count)| self.look * *count * 2).sum()
    }
}

/// A chunker that notes the time its calls take.
struct TimedChunker<'a> {
    inner: &'a dyn Chunker,
    spent: &'a Spent,
}

impl Chunker for TimedChunker<'_> {
    fn params(&self) -> ChunkerParams {
        self.inner.params()
    }

    fn next_cut(&self, data: &[u8]) -> usize {
        self.spent.measure(Stage::Chunking, || self.inner.next_cut(data))
    }

    fn cut_until(&self, data: &[u8], end: StreamEnd, stop: usize, lengths: &mut Vec<u32>) -> usize {
        self.spent.measure(Stage::Chunking, || self.inner.cut_until(data, end, stop, lengths))
    }

    fn confirms(&self, data: &[u8], length: usize) -> bool {
        self.spent.measure(Stage::Chunking, || self.inner.confirms(data, length))
    }
}

/// A history that notes the time its calls take.
struct TimedHistory<'a> {
    inner: &'a mut GroupFilter<Base>,
    spent: &'a Spent,
}

impl History for TimedHistory<'_> {
    type Error = Infallible;

    fn expect(&mut self, most: usize, run: &mut Vec<ChunkRecord>) -> Result<(), Infallible> {
        self.spent.measure(Stage::Lookup, || History::expect(self.inner, most, run))
    }

    fn pass(&mut self, count: usize) {
        History::pass(self.inner, count);
    }

    fn find(&mut self, fingerprint: &Fingerprint, size: u32) -> Result<Option<ChunkRecord>, Infallible> {
        self.spent.measure(Stage::Lookup, || self.inner.find(fingerprint, size))
    }
}
