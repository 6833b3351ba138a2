//! The front of the pipeline: walks the input, leaves out what is unchanged, and hands the rest on to be read and cut.
//!
//! Runs on a thread of its own. Small files are read, cut and fingerprinted by the pool in batches; large ones are read and
//! cut here, which is cheap, and fingerprinted by the pool. Everything goes through one channel in path order, each piece of
//! work as a promise that the sequencer waits for, so order never depends on the threads.

use std::io::Read;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use larder_chunking::StreamEnd;
use larder_format::entry::{Entry, EntryKind, Timestamp};
use larder_source::{Found, Item, Walk};

use super::batch::{Batch, BatchDone};
use super::compare::{Comparison, Known};
use super::cutting::{Chunks, Cutting, HEAD_BYTES};
use super::pool::PoolHandle;
use crate::context::{Cancel, Problem};

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
    /// The next chunks of a large file or stream.
    Block(Receiver<Chunks>),
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
#[derive(Debug)]
pub(super) struct Feeder {
    pub(super) pool: PoolHandle,
    pub(super) cutting: Arc<Cutting>,
    pub(super) out: Sender<Fed>,
    pub(super) cancel: Cancel,
    /// Buffers that the sequencer is done with.
    pub(super) spare: Receiver<Chunks>,
}

/// The sequencer has gone: nothing more is wanted.
struct Gone;

impl Feeder {
    /// Feeds a tree. Ends early when cancelled or when the sequencer is gone.
    pub(super) fn tree(self, walk: Walk, mut comparison: Comparison) -> Option<larder_store::RepositoryError> {
        let mut batch = Batch::new();
        for item in walk {
            if self.cancel.is_cancelled() {
                break;
            }
            let result = match item {
                Item::Found(found) => self.found(found, &mut comparison, &mut batch),
                Item::Skipped { path, reason } => {
                    tracing::debug!(path = %larder_source::PathText(&path), ?reason, "skipped");
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
        comparison.failure
    }

    fn found(&self, mut found: Found, comparison: &mut Comparison, batch: &mut Batch) -> Result<(), Gone> {
        let fate = match comparison.look_up(&found.entry) {
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
            Known::Changed => Fate::Changed,
            Known::New => Fate::New,
        };
        match found.entry.kind {
            EntryKind::File { size, .. } if size > SMALL_FILE_MAX => {
                self.send_batch(batch)?;
                self.large_file(found, fate)
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

    fn large_file(&self, mut found: Found, fate: Fate) -> Result<(), Gone> {
        let lost = |message: String, found: &Found| {
            let problem = Problem { path: found.entry.path.clone(), during: "read", message };
            self.send(Fed::Lost { problem, may_be_linked_to: found.may_be_linked_to() })
        };
        let mut reader = match found.open() {
            Ok(reader) => reader,
            Err(error) => return lost(error.to_string(), &found),
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
        self.cut_stream(&mut read, total)?;
        let finished = reader.finish(&mut found.entry);
        let message = failure.or_else(|| finished.change.map(|change| change.to_string()));
        problems.extend(message.map(|message| Problem { path: found.entry.path.clone(), during: "read", message }));
        self.send(Fed::End(Box::new(Ended { entry: found.entry, fate, problems })))
    }

    /// Reads a stream to its end (a read of 0 bytes), cuts it, and has its chunks fingerprinted.
    fn cut_stream(&self, read: &mut dyn FnMut(&mut [u8]) -> usize, total: Option<u64>) -> Result<(), Gone> {
        let mut chunks = self.spare.try_recv().unwrap_or_default();
        let mut filled = 0;
        let mut at_end = false;
        let mut chunker = None;
        loop {
            if self.cancel.is_cancelled() {
                return Err(Gone);
            }
            // What the cutter could not decide yet is less than a block: a block is larger than any chunk. Buffers keep
            // their length, or zeroing them would cost as much as cutting.
            if chunks.bytes.len() < BLOCK_BYTES.max(filled * 2) {
                chunks.bytes.resize(BLOCK_BYTES.max(filled * 2), 0);
            }
            while !at_end && filled < chunks.bytes.len() {
                let count = read(&mut chunks.bytes[filled..]);
                filled += count;
                at_end = count == 0;
            }
            let head = &chunks.bytes[..filled.min(HEAD_BYTES)];
            let chunker = *chunker.get_or_insert_with(|| self.cutting.choose(head, total));
            let end = if at_end { StreamEnd::Reached } else { StreamEnd::Open };
            chunks.lengths.clear();
            let consumed = chunker.cut_all(&chunks.bytes[..filled], end, &mut chunks.lengths);
            let mut next = self.spare.try_recv().unwrap_or_default();
            filled -= consumed;
            if next.bytes.len() < filled {
                next.bytes.resize(BLOCK_BYTES.max(filled), 0);
            }
            next.bytes[..filled].copy_from_slice(&chunks.bytes[consumed..consumed + filled]);
            if !chunks.lengths.is_empty() {
                let (done, promise) = bounded(1);
                let cutting = self.cutting.clone();
                self.send(Fed::Block(promise))?;
                self.pool.normal(move |_| {
                    chunks.fingerprint(&cutting);
                    let _ = done.send(chunks);
                });
            }
            if at_end {
                return Ok(());
            }
            chunks = next;
        }
    }

    /// Feeds one stream as a file at `path`, with `now` for its times.
    pub(super) fn stream(self, path: Vec<u8>, mut reader: Box<dyn Read + Send>, size: Option<u64>, now: Timestamp) {
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
        let result = self.cut_stream(&mut read, size);
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
