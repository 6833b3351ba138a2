//! The front of the pipeline: walks the input, leaves out unchanged entries, and passes the rest on
//! to be read and cut.
//!
//! Runs on its own thread. The pool reads, cuts and fingerprints small files in batches. Large
//! files are read here and compared with the predictions from the base. They are cut here where
//! they differ, which is cheap, and the pool fingerprints those chunks. Everything passes through
//! one channel in path order, each piece of work as a promise that the sequencer awaits. So the
//! order never depends on the threads.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use larder_chunking::StreamEnd;
use larder_dedup::Tools;
use larder_format::entry::{Entry, EntryKind, Timestamp};
use larder_job::{Activity, Cancel, JobContext, Problem, Progress};
use larder_source::{Elsewhere, FileReader, Found, Item, PathText, SkipReason};
use larder_store::RepositoryError;
use larder_writer::{Chunks, Cutter, Cutting, HEAD_BYTES, PoolHandle};

use super::BackupError;
use super::batch::{Batch, BatchDone, EntryChange, attribute_problem};
use super::prediction::{PROVED_MIN, Predicted, Predictor};
use super::proof_prefetch::{ProofPrefetch, Proofs};
use super::read_budget::ReadBudget;
use super::read_window::{ReadWindow, Supply};
use super::stream_supply::{StreamReader, StreamSupply};
use super::taken_over::{Step, Untouched};
use super::unchanged_files::{Comparison, Known};

/// Files up to this size are read whole by the pool (bytes).
pub(super) const SMALL_FILE_MAX: u64 = 256 << 10;

/// The items for the sequencer, in path order.
#[derive(Debug)]
pub(super) enum FeedItem {
    /// Entries that the pool has completed.
    Batch(Receiver<BatchDone>),
    /// A large file or stream begins that has its own segments, cut like this.
    Begin(Cutter),
    /// The next chunks of a large file or stream.
    Block(Receiver<Chunks>),
    /// The next bytes of a large file or stream equal those at this offset of the base's data
    /// stream, in this number of chunks.
    Repeat { offset: u64, bytes: u64, chunks: u32 },
    /// The next bytes of an image were not read: they are those at this offset of the base's data
    /// stream.
    TakeOver { offset: u64, bytes: u64 },
    /// This number of predicted chunks is absent.
    Mispredicted(u64),
    /// The large file or stream is complete.
    End(Box<Ended>),
    /// A large file could not be opened: it is not in the version.
    Lost { problem: Problem, may_be_linked_to: bool },
    /// Supplied entries cannot be read any more: no version can be created from them.
    SourceFailed(RepositoryError),
    /// The stream failed: no version can be created from it.
    InputFailed { path: Vec<u8>, source: std::io::Error },
}

/// The end of a large file.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) entry: Entry,
    pub(super) fate: EntryChange,
    pub(super) problems: Vec<Problem>,
}

/// See the module header.
pub(super) struct Feeder {
    pub(super) pool: PoolHandle,
    pub(super) cutting: Arc<Cutting>,
    pub(super) out: Sender<FeedItem>,
    pub(super) cancel: Cancel,
    /// Predicts repetitions in large files; `None` without a base.
    pub(super) predictor: Option<Predictor>,
    /// How large files are read.
    pub(super) read: ReadBudget,
    /// Buffers that the sequencer has finished with.
    pub(super) spare: Receiver<Chunks>,
    /// Receives reports of entries that were left out without a request.
    pub(super) remarks: Option<Arc<dyn Progress>>,
}

/// The feeder at work: on its own thread, or finished before the sequencer starts.
#[derive(Debug)]
pub(super) enum Feeding<T> {
    /// It runs beside the sequencer.
    Beside(JoinHandle<T>),
    /// In turns with everything else, it has fed all items.
    Done(T),
}

impl<T: Send + 'static> Feeding<T> {
    pub(super) fn begin(context: &JobContext, feed: impl FnOnce() -> T + Send + 'static) -> Result<Self, BackupError> {
        if context.executor.is_in_turns() {
            return Ok(Self::Done(feed()));
        }
        let thread = std::thread::Builder::new().name("feed".to_owned()).spawn(feed);
        thread.map(Self::Beside).map_err(|_| BackupError::NoThreads)
    }

    /// Waits for its end.
    pub(super) fn end(self) -> Result<T, BackupError> {
        match self {
            Self::Beside(thread) => thread.join().map_err(|_| BackupError::WorkerDied),
            Self::Done(outcome) => Ok(outcome),
        }
    }
}

/// The sequencer has ended: no more items are wanted.
pub(super) struct Gone;

impl Feeder {
    /// Feeds a tree. Ends early when cancelled or when the sequencer has ended.
    pub(super) fn tree(
        mut self,
        walk: impl Iterator<Item = Item>,
        mut comparison: Comparison,
    ) -> Option<RepositoryError> {
        let mut batch = Batch::new();
        let mut sockets = (0_u64, Vec::new());
        for item in walk {
            if self.cancel.is_cancelled() {
                break;
            }
            let result = match item {
                Item::Found(found) => self.found(found, &mut comparison, &mut batch),
                Item::Skipped { path, reason } => {
                    tracing::debug!(path = %PathText(&path), ?reason, "skipped");
                    if reason == SkipReason::Socket {
                        sockets.0 += 1;
                        if sockets.0 == 1 {
                            sockets.1 = path;
                        }
                    }
                    Ok(())
                }
                Item::Problem(problem) => {
                    let message = problem.error.to_string();
                    batch.problem(Problem { path: problem.path, during: Activity::Walk, message });
                    Ok(())
                }
            };
            if result.is_err() {
                break;
            }
        }
        let _ = self.send_batch(&mut batch);
        if let (Some(remarks), (count @ 1.., first)) = (&self.remarks, &sockets) {
            let which = if *count == 1 { "a socket was".to_owned() } else { format!("{count} sockets were") };
            remarks.note(&format!("{which} left out, as sockets have no contents: /{}", PathText(first)));
        }
        comparison.failure
    }

    fn found(&mut self, mut found: Found, comparison: &mut Comparison, batch: &mut Batch) -> Result<(), Gone> {
        let (fate, known) = match comparison.look_up(&found.entry, || found.may_have_other_clock()) {
            Known::Same(known) => {
                let known = *known;
                let bytes = known.entry.stored_bytes();
                self.pass(Some(&known.data_range()), bytes);
                found.entry.xattrs = known.entry.xattrs;
                if let EntryKind::File { .. } = found.entry.kind {
                    // Same size and times: the holes are those of the base.
                    found.entry.kind = known.entry.kind;
                }
                if let EntryKind::HardLink { .. } = found.entry.kind {
                    batch.link(found, EntryChange::Unmodified);
                } else {
                    batch.keep(found.entry, known.data_offset, EntryChange::Unmodified);
                }
                return self.send_batch_if_full(batch);
            }
            Known::Changed(range) => (EntryChange::Changed, Some(range)),
            Known::New => (EntryChange::New, None),
        };
        match found.entry.kind {
            EntryKind::File { size, .. } if size > SMALL_FILE_MAX => {
                self.send_batch(batch)?;
                self.large_file(found, fate, known.as_ref())
            }
            EntryKind::HardLink { .. } => {
                batch.link(found, fate);
                self.send_batch_if_full(batch)
            }
            _ => {
                self.pass(known.as_ref(), found.entry.stored_bytes());
                batch.read(found, fate);
                self.send_batch_if_full(batch)
            }
        }
    }

    /// Tells the predictor of a file that it does not predict.
    pub(super) fn pass(&mut self, known: Option<&Range<u64>>, bytes: u64) {
        if let Some(predictor) = &mut self.predictor {
            predictor.pass(known, bytes);
        }
    }

    pub(super) fn send(&self, fed: FeedItem) -> Result<(), Gone> {
        self.out.send(fed).map_err(|_| Gone)
    }

    pub(super) fn send_batch_if_full(&self, batch: &mut Batch) -> Result<(), Gone> {
        if batch.is_full() { self.send_batch(batch) } else { Ok(()) }
    }

    pub(super) fn send_batch(&self, batch: &mut Batch) -> Result<(), Gone> {
        if batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::replace(batch, Batch::new());
        let (done, promise) = bounded(1);
        let cutting = self.cutting.clone();
        let buffers = self.spare.try_recv().unwrap_or_default();
        // The channel bounds the number of open promises, so it comes first.
        self.send(FeedItem::Batch(promise))?;
        self.pool.normal(move |_| {
            let _ = done.send(batch.run(buffers, &cutting));
        });
        Ok(())
    }

    fn large_file(&mut self, mut found: Found, fate: EntryChange, known: Option<&Range<u64>>) -> Result<(), Gone> {
        let mut reader = match found.open() {
            Ok(reader) => reader,
            Err(error) => {
                let problem =
                    Problem { path: found.entry.path.clone(), during: Activity::Read, message: error.to_string() };
                return self.send(FeedItem::Lost { problem, may_be_linked_to: found.may_be_linked_to() });
            }
        };
        let mut problems: Vec<_> =
            found.complete_from(&reader).iter().map(|error| attribute_problem(&found, error)).collect();
        reader.drop_behind();
        let total = reader.expected();
        let elsewhere = reader.elsewhere();
        let mut supply = FileSupply { reader: &mut reader, failure: None };
        self.cut_stream(&mut supply, elsewhere, total, known, None)?;
        let failure = supply.failure;
        let finished = reader.finish(&mut found.entry);
        let message = failure.or_else(|| finished.change.map(|change| change.to_string()));
        problems.extend(message.map(|message| Problem {
            path: found.entry.path.clone(),
            during: Activity::Read,
            message,
        }));
        self.send(FeedItem::End(Box::new(Ended { entry: found.entry, fate, problems })))
    }

    /// Reads a stream to its end (a read of 0 bytes), cuts it, and has its chunks fingerprinted.
    /// Right predictions of the base are reused, and proved ahead of this thread if the stream can
    /// be read `elsewhere`. `known` is the place of its predecessor in the base. What is
    /// `untouched` since then is not read.
    pub(super) fn cut_stream(
        &mut self,
        supply: &mut dyn Supply,
        elsewhere: Option<Elsewhere>,
        total: Option<u64>,
        known: Option<&Range<u64>>,
        mut untouched: Option<Untouched>,
    ) -> Result<(), Gone> {
        let mut incoming = ReadWindow::new(self.spare.try_recv().unwrap_or_default(), supply, self.read);
        let cutting = self.cutting.clone();
        let head = incoming.fill(HEAD_BYTES);
        let cutter = cutting.choose(&head[..head.len().min(HEAD_BYTES)], total);
        let chunker = cutting.chunker(cutter);
        let max = chunker.params().max as usize;
        // To see whether a prediction is right costs a read of the bytes that are not to be read.
        let is_predicted = untouched.is_none() && total.is_none_or(|total| total >= PROVED_MIN);
        let mut base = self.predictor.take();
        let mut predictor = base.as_mut().filter(|_| is_predicted);
        if total.is_none_or(|total| total >= PROVED_MIN) {
            self.send(FeedItem::Begin(cutter))?;
        }
        if let Some(predictor) = &mut predictor {
            predictor.begin(known);
        }
        // Proofs ahead hold segments of their own.
        let may_prove_ahead = predictor.is_some() && self.read.window.is_none();
        let mut ahead = elsewhere.filter(|_| may_prove_ahead).map(|file| {
            let ahead = ProofPrefetch { file, cutter, cutting: cutting.clone(), pool: self.pool.clone() };
            Proofs::new(ahead, max)
        });
        loop {
            if self.cancel.is_cancelled() {
                return Err(Gone);
            }
            let at = incoming.at;
            let step = untouched.as_mut().map(|untouched| untouched.step(at, max as u64));
            if let Some(Step::TakeOver { offset, bytes }) = step {
                incoming.leave_out(bytes as usize);
                self.send(FeedItem::TakeOver { offset, bytes })?;
                continue;
            }
            let mut proved = ahead.as_mut().zip(predictor.as_mut()).and_then(|(ahead, base)| ahead.at(at, base));
            if let (Some(proved), Some(ahead)) = (&mut proved, &mut ahead) {
                if proved.holds {
                    if let Some(predictor) = &mut predictor {
                        predictor.was_right();
                    }
                    incoming.leave_out(proved.predicted.bytes as usize);
                    ahead.give_back(std::mem::take(&mut proved.buffer));
                    self.repeat(&proved.predicted)?;
                    continue;
                }
                ahead.give_back(incoming.adopt(std::mem::take(&mut proved.buffer), proved.filled));
            }
            if incoming.is_over() {
                break;
            }
            let mut stop = usize::MAX;
            let mut changed = None;
            let mut expected = 0;
            if let Some(predictor) = &mut predictor {
                let is_read = proved.is_some();
                let predicted = proved.map(|proved| proved.predicted);
                let predicted = predicted.or_else(|| predictor.predict(at, cutter));
                if let Some(predicted) = predicted.filter(|next| incoming.may_hold(next.bytes as usize + max)) {
                    let is_next = predicted.is_tried && !is_read;
                    let mac = is_next.then(|| incoming.mac(predictor.mac(), predicted.bytes as usize, max)).flatten();
                    if mac.is_some_and(|mac| predicted.is_proved(mac, incoming.data(), chunker)) {
                        incoming.pass(predicted.bytes as usize);
                        predictor.was_right();
                        self.repeat(&predicted)?;
                        continue;
                    }
                    if predicted.is_tried {
                        predictor.was_wrong();
                    }
                    expected = u64::from(predicted.chunks);
                    changed = predictor.changed(&predicted, chunker).map(|changed| (changed, predictor.mac()));
                }
                predictor.look_around();
                stop = predictor.next_start(at).map_or(usize::MAX, |next| (next - at) as usize);
            }
            let mut must_cut = false;
            if let Some(Step::Cut { stop: next, must_cut: must }) = step {
                (stop, must_cut) = (usize::try_from(next - at).unwrap_or(usize::MAX), must);
            }
            // Nothing behind the place where prediction continues: that may be under way elsewhere.
            incoming.fill(self.read.block.max(max).min(stop.saturating_add(max)));
            let (mut moved, mut has_all_runs) = (0, false);
            let chunks =
                incoming.cut(self.spare.try_recv().unwrap_or_default(), max, |data, end, pieces| match &changed {
                    Some((changed, empty)) => {
                        let tools = Tools { chunker, fingerprinter: &cutting.fingerprinter };
                        let part = changed.cut(data, end, tools, empty, pieces);
                        (moved, has_all_runs) = (part.moved, part.has_all_runs);
                        part.bytes
                    }
                    None if must_cut && stop <= data.len() => {
                        chunker.cut_all(&data[..stop], StreamEnd::Reached, &mut pieces.lengths)
                    }
                    None => chunker.cut_until(data, end, stop, &mut pieces.lengths),
                });
            if let Some(predictor) = predictor.as_mut().filter(|_| has_all_runs) {
                predictor.was_right();
            }
            if let Some(predictor) = predictor.as_mut().filter(|_| moved != 0) {
                predictor.moved(moved, incoming.at);
                if let Some(ahead) = &mut ahead {
                    ahead.forget();
                }
            }
            let came: usize = chunks.known.iter().map(|run| run.chunks.len()).sum();
            // A chunk that the segment has once may have occurred several times.
            let wrong = expected.saturating_sub(came as u64);
            if wrong > 0 {
                self.send(FeedItem::Mispredicted(wrong))?;
            }
            let (done, promise) = bounded(1);
            let cutting = self.cutting.clone();
            self.send(FeedItem::Block(promise))?;
            self.pool.normal(move |_| {
                let mut chunks = chunks;
                chunks.fingerprint(&cutting);
                let _ = done.send(chunks);
            });
        }
        if let Some(predictor) = &mut base {
            match is_predicted && known.is_none() {
                true => predictor.end(incoming.at),
                false => predictor.pass(known, incoming.at),
            }
        }
        self.predictor = base;
        Ok(())
    }

    /// The next bytes equal those of a segment of the base.
    fn repeat(&self, predicted: &Predicted) -> Result<(), Gone> {
        self.send(FeedItem::Repeat { offset: predicted.offset, bytes: predicted.bytes, chunks: predicted.chunks })
    }

    /// Feeds one stream as a file at `path`, with `now` for its times; `known` is its place in the
    /// base. Only an image has `untouched` parts.
    pub(super) fn stream(
        mut self,
        path: Vec<u8>,
        reader: StreamReader,
        now: Timestamp,
        known: Option<&Range<u64>>,
        untouched: Option<Untouched>,
    ) {
        let size = reader.size();
        let mut supply = StreamSupply::new(reader);
        let result = self.cut_stream(&mut supply, None, size, known, untouched);
        let StreamSupply { reader, total, failure } = supply;
        if let Some(source) = failure.or_else(|| reader.finish().err()) {
            let _ = self.send(FeedItem::InputFailed { path, source });
            return;
        }
        if result.is_ok() {
            let entry = Entry {
                path,
                kind: reader.kind(total),
                mode: 0o600,
                uid: rustix::process::getuid().as_raw(),
                gid: rustix::process::getgid().as_raw(),
                user: None,
                group: None,
                mtime: now,
                ctime: now,
                atime: None,
                inode: 0,
                xattrs: Vec::new(),
            };
            let _ = self.send(FeedItem::End(Box::new(Ended { entry, fate: EntryChange::New, problems: Vec::new() })));
        }
    }
}

/// A file. A failure ends it.
struct FileSupply<'a> {
    reader: &'a mut FileReader,
    failure: Option<String>,
}

impl Supply for FileSupply<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        match self.reader.read(buffer) {
            Ok(count) => count,
            Err(error) => {
                self.failure = Some(error.to_string());
                0
            }
        }
    }

    fn pass(&mut self, bytes: u64) {
        self.reader.pass(bytes);
    }
}
