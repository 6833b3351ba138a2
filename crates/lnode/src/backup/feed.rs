//! The front of the pipeline: walks the input, leaves out what is unchanged, and hands the rest on to be read and cut.
//!
//! Runs on a thread of its own. Small files are read, cut and fingerprinted by the pool in batches; large ones are read and
//! compared with what the base predicts here, and cut where they differ, which is cheap; the pool fingerprints those chunks. Everything goes through one channel in path order, each piece of
//! work as a promise that the sequencer waits for, so order never depends on the threads.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use larder_dedup::Tools;
use larder_format::entry::{Entry, EntryKind, Timestamp};
use larder_source::{Found, Item, PathText, SkipReason};

use super::batch::{Batch, BatchDone};
use super::compare::{Comparison, Known};
use super::cutting::{Chunks, Cutter, Cutting, HEAD_BYTES};
use super::incoming::Incoming;
use super::prediction::{PROVED_MIN, Predictor};
use crate::context::{Cancel, Problem, Progress};
use crate::writing::PoolHandle;

/// Files up to this size are read whole by the pool (bytes).
pub(super) const SMALL_FILE_MAX: u64 = 256 << 10;
/// Large files are read in blocks of this size (bytes): enough chunks for the fingerprint lanes, small enough for the cache.
const BLOCK_BYTES: usize = 2 << 20;

/// What became of an entry, as users see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    New,
    Changed,
    Unmodified,
}

/// What flows to the sequencer, in path order.
#[derive(Debug)]
pub(super) enum Fed {
    /// Entries that the pool has seen to.
    Batch(Receiver<BatchDone>),
    /// A large file or stream begins whose segments are to be its own, cut like this.
    Begin(Cutter),
    /// The next chunks of a large file or stream.
    Block(Receiver<Chunks>),
    /// The next bytes of a large file or stream are those at this offset of the base's data stream.
    Repeat { offset: u64, bytes: u64 },
    /// So many times the base predicted something else than what comes next.
    Mispredicted(u64),
    /// The large file or stream is complete.
    End(Box<Ended>),
    /// A large file could not be opened: it is not in the version.
    Lost { problem: Problem, may_be_linked_to: bool },
    /// The stream failed: no version can be made of it.
    InputFailed { path: Vec<u8>, source: std::io::Error },
}

/// The end of a large file.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) entry: Entry,
    pub(super) fate: Fate,
    pub(super) problems: Vec<Problem>,
}

/// See the module header.
pub(super) struct Feeder {
    pub(super) pool: PoolHandle,
    pub(super) cutting: Arc<Cutting>,
    pub(super) out: Sender<Fed>,
    pub(super) cancel: Cancel,
    /// Knows what large files may repeat; `None` without a base.
    pub(super) predictor: Option<Predictor>,
    /// Buffers that the sequencer is done with.
    pub(super) spare: Receiver<Chunks>,
    /// Whom to tell what was left out unasked.
    pub(super) remarks: Option<Arc<dyn Progress>>,
}

/// The sequencer has gone: nothing more is wanted.
struct Gone;

impl Feeder {
    /// Feeds a tree. Ends early when cancelled or when the sequencer is gone.
    pub(super) fn tree(
        mut self,
        walk: impl Iterator<Item = Item>,
        mut comparison: Comparison,
    ) -> Option<larder_store::RepositoryError> {
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
                    batch.problem(Problem { path: problem.path, during: "walk", message });
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
        let (fate, known) = match comparison.look_up(&found.entry) {
            Known::Same(known) => {
                let known = *known;
                found.entry.xattrs = known.entry.xattrs;
                if let EntryKind::File { .. } = found.entry.kind {
                    // Same size and times: the holes are those the base saw.
                    found.entry.kind = known.entry.kind;
                }
                if let EntryKind::HardLink { .. } = found.entry.kind {
                    batch.link(found, Fate::Unmodified);
                } else {
                    batch.keep(found.entry, known.data_offset);
                }
                return self.send_batch_if_full(batch);
            }
            Known::Changed(range) => (Fate::Changed, Some(range)),
            Known::New => (Fate::New, None),
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
                batch.read(found, fate);
                self.send_batch_if_full(batch)
            }
        }
    }

    fn send(&self, fed: Fed) -> Result<(), Gone> {
        self.out.send(fed).map_err(|_| Gone)
    }

    fn send_batch_if_full(&self, batch: &mut Batch) -> Result<(), Gone> {
        if batch.is_full() { self.send_batch(batch) } else { Ok(()) }
    }

    fn send_batch(&self, batch: &mut Batch) -> Result<(), Gone> {
        if batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::replace(batch, Batch::new());
        let (done, promise) = bounded(1);
        let cutting = self.cutting.clone();
        let buffers = self.spare.try_recv().unwrap_or_default();
        // The channel bounds how many promises are out, so it is asked first.
        self.send(Fed::Batch(promise))?;
        self.pool.normal(move |_| {
            let _ = done.send(batch.run(buffers, &cutting));
        });
        Ok(())
    }

    fn large_file(&mut self, mut found: Found, fate: Fate, known: Option<&Range<u64>>) -> Result<(), Gone> {
        let mut reader = match found.open() {
            Ok(reader) => reader,
            Err(error) => {
                let problem = Problem { path: found.entry.path.clone(), during: "read", message: error.to_string() };
                return self.send(Fed::Lost { problem, may_be_linked_to: found.may_be_linked_to() });
            }
        };
        let mut problems: Vec<_> =
            found.complete_from(&reader).iter().map(|error| attribute_problem(&found, error)).collect();
        let total = reader.expected();
        let mut failure = None;
        let mut read = |buffer: &mut [u8]| match reader.read(buffer) {
            Ok(count) => count,
            Err(error) => {
                failure = Some(error.to_string());
                0
            }
        };
        self.cut_stream(&mut read, total, known)?;
        let finished = reader.finish(&mut found.entry);
        let message = failure.or_else(|| finished.change.map(|change| change.to_string()));
        problems.extend(message.map(|message| Problem { path: found.entry.path.clone(), during: "read", message }));
        self.send(Fed::End(Box::new(Ended { entry: found.entry, fate, problems })))
    }

    /// Reads a stream to its end (a read of 0 bytes), cuts it, and has its chunks fingerprinted; what the base predicts rightly is
    /// taken over. `known` is where the base has its predecessor.
    fn cut_stream(
        &mut self,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
        total: Option<u64>,
        known: Option<&Range<u64>>,
    ) -> Result<(), Gone> {
        let mut incoming = Incoming::new(self.spare.try_recv().unwrap_or_default(), read);
        let cutting = self.cutting.clone();
        let head = incoming.fill(HEAD_BYTES);
        let cutter = cutting.choose(&head[..head.len().min(HEAD_BYTES)], total);
        let chunker = cutting.chunker(cutter);
        let max = chunker.params().max as usize;
        let mut predictor = self.predictor.take().filter(|_| total.is_none_or(|total| total >= PROVED_MIN));
        if total.is_none_or(|total| total >= PROVED_MIN) {
            self.send(Fed::Begin(cutter))?;
        }
        if let Some(predictor) = &mut predictor {
            predictor.begin(known);
        }
        while !incoming.is_over() {
            if self.cancel.is_cancelled() {
                return Err(Gone);
            }
            let at = incoming.at;
            let mut stop = usize::MAX;
            let mut changed = None;
            if let Some(predictor) = &mut predictor {
                if let Some(predicted) = predictor.predict(at, cutter) {
                    let mac = incoming.mac(predictor.mac(), predicted.bytes as usize, max);
                    if mac.is_some_and(|mac| predicted.is_proved(mac, incoming.data(), chunker)) {
                        incoming.pass(predicted.bytes as usize);
                        self.send(Fed::Repeat { offset: predicted.offset, bytes: predicted.bytes })?;
                        continue;
                    }
                    self.send(Fed::Mispredicted(1))?;
                    changed = predictor.changed(&predicted, chunker).map(|changed| (changed, predictor.mac()));
                }
                predictor.look_around();
                stop = predictor.next_start(at).map_or(usize::MAX, |next| (next - at) as usize);
            }
            incoming.fill(BLOCK_BYTES.max(max));
            let mut wrong = 0;
            let chunks = incoming.cut(self.spare.try_recv().unwrap_or_default(), |data, end, pieces| match &changed {
                Some((changed, empty)) => {
                    let broken =
                        changed.cut(data, end, Tools { chunker, fingerprinter: &cutting.fingerprinter }, empty, pieces);
                    wrong = broken.wrong;
                    broken.consumed
                }
                None => chunker.cut_until(data, end, stop, &mut pieces.lengths),
            });
            if wrong > 0 {
                self.send(Fed::Mispredicted(wrong))?;
            }
            let (done, promise) = bounded(1);
            let cutting = self.cutting.clone();
            self.send(Fed::Block(promise))?;
            self.pool.normal(move |_| {
                let mut chunks = chunks;
                chunks.fingerprint(&cutting);
                let _ = done.send(chunks);
            });
        }
        self.predictor = predictor;
        Ok(())
    }

    /// Feeds one stream as a file at `path`, with `now` for its times; `known` is where the base has it.
    pub(super) fn stream(
        mut self,
        path: Vec<u8>,
        mut reader: Box<dyn Read + Send>,
        size: Option<u64>,
        now: Timestamp,
        known: Option<&Range<u64>>,
    ) {
        let mut total = 0u64;
        let mut failure = None;
        let mut read = |buffer: &mut [u8]| loop {
            match reader.read(buffer) {
                Ok(count) => {
                    total += count as u64;
                    return count;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    failure = Some(error);
                    return 0;
                }
            }
        };
        let result = self.cut_stream(&mut read, size, known);
        if let Some(source) = failure {
            let _ = self.send(Fed::InputFailed { path, source });
            return;
        }
        if result.is_ok() {
            let entry = Entry {
                path,
                kind: EntryKind::File { size: total, extents: None },
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
            let _ = self.send(Fed::End(Box::new(Ended { entry, fate: Fate::New, problems: Vec::new() })));
        }
    }
}

pub(super) fn attribute_problem(found: &Found, error: &larder_source::XattrError) -> Problem {
    Problem { path: found.entry.path.clone(), during: "read attributes of", message: error.to_string() }
}
