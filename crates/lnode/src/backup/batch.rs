//! Batches of entries between two large files: read, cut and fingerprinted together by one thread
//! of the pool.

use larder_format::entry::{Entry, EntryKind};
use larder_job::{Activity, Problem};
use larder_source::Found;
use larder_writer::{Chunks, Cutting};

/// The largest small file when opened (bytes). One that has grown beyond it is not read: its batch
/// would exceed memory.
const GROWN_MAX: u64 = 8 << 20;
/// The bytes of file contents that complete a batch.
const BYTES_MAX: u64 = 1 << 20;
/// The entries that complete a batch: each may hold a folder open.
const FOUND_MAX: usize = 48;
/// Entries of any kind.
const ITEMS_MAX: usize = 512;

/// The change of an entry, as users see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryChange {
    New,
    Changed,
    Unmodified,
}

#[derive(Debug)]
enum Work {
    /// Unchanged: its bytes are at this offset of the base's data stream.
    Keep { entry: Entry, data_offset: u64, fate: EntryChange },
    /// Complete, with its contents.
    Supplied { entry: Entry, contents: Vec<u8>, fate: EntryChange },
    /// To be completed, and read if it is a file.
    Read { found: Found, fate: EntryChange },
    /// A further name of an earlier file.
    Link { found: Found, fate: EntryChange },
    /// A problem with an entry.
    Problem(Problem),
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Batch {
    work: Vec<Work>,
    bytes: u64,
    found: usize,
}

/// The result for one entry of a batch.
#[derive(Debug)]
pub(super) enum Ready {
    /// Unchanged: its bytes are at this offset of the base's data stream.
    Keep { entry: Entry, data_offset: u64, fate: EntryChange },
    /// Complete; the next `chunks` chunks of the batch are its contents.
    Entry { entry: Entry, fate: EntryChange, chunks: usize },
    /// A further name of an earlier file.
    Link { found: Box<Found>, fate: EntryChange },
    /// It could not be read and is not in the version.
    Lost { problem: Problem, may_be_linked_to: bool },
    /// A problem with the entry before, or with nothing in the version.
    Problem(Problem),
}

/// A batch after its work.
#[derive(Debug)]
pub(super) struct BatchDone {
    pub(super) items: Vec<Ready>,
    pub(super) chunks: Chunks,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self { work: Vec::new(), bytes: 0, found: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX || self.found >= FOUND_MAX || self.work.len() >= ITEMS_MAX
    }

    pub(super) fn keep(&mut self, entry: Entry, data_offset: u64, fate: EntryChange) {
        self.work.push(Work::Keep { entry, data_offset, fate });
    }

    pub(super) fn supply(&mut self, entry: Entry, contents: Vec<u8>, fate: EntryChange) {
        self.bytes += contents.len() as u64;
        self.work.push(Work::Supplied { entry, contents, fate });
    }

    pub(super) fn read(&mut self, found: Found, fate: EntryChange) {
        self.bytes += found.entry.size();
        self.found += 1;
        self.work.push(Work::Read { found, fate });
    }

    pub(super) fn link(&mut self, found: Found, fate: EntryChange) {
        self.found += 1;
        self.work.push(Work::Link { found, fate });
    }

    pub(super) fn problem(&mut self, problem: Problem) {
        self.work.push(Work::Problem(problem));
    }

    /// Does the work. `chunks` has buffers for reuse.
    pub(super) fn run(self, mut chunks: Chunks, cutting: &Cutting) -> BatchDone {
        chunks.bytes.clear();
        chunks.lengths.clear();
        chunks.known.clear();
        let mut items = Vec::with_capacity(self.work.len());
        for work in self.work {
            match work {
                Work::Keep { entry, data_offset, fate } => items.push(Ready::Keep { entry, data_offset, fate }),
                Work::Supplied { entry, contents, fate } => {
                    let (from, first) = (chunks.bytes.len(), chunks.lengths.len());
                    if !contents.is_empty() {
                        chunks.bytes.extend_from_slice(&contents);
                        chunks.cut_from(from, cutting);
                    }
                    items.push(Ready::Entry { entry, fate, chunks: chunks.lengths.len() - first });
                }
                Work::Link { found, fate } => items.push(Ready::Link { found: Box::new(found), fate }),
                Work::Problem(problem) => items.push(Ready::Problem(problem)),
                Work::Read { found, fate } => read(found, fate, &mut chunks, cutting, &mut items),
            }
        }
        chunks.fingerprint(cutting);
        BatchDone { items, chunks }
    }
}

/// Completes one entry; a file's bytes are appended to `chunks` and cut.
pub(super) fn read(
    mut found: Found,
    fate: EntryChange,
    chunks: &mut Chunks,
    cutting: &Cutting,
    items: &mut Vec<Ready>,
) {
    let may_be_linked_to = found.may_be_linked_to();
    if !matches!(found.entry.kind, EntryKind::File { .. }) {
        let errors = found.complete();
        let problems: Vec<_> = errors.iter().map(|error| attribute_problem(&found, error)).collect();
        items.push(Ready::Entry { entry: found.entry, fate, chunks: 0 });
        items.extend(problems.into_iter().map(Ready::Problem));
        return;
    }
    let mut reader = match found.open() {
        Ok(reader) => reader,
        Err(error) => {
            let problem = Problem { path: found.entry.path, during: Activity::Read, message: error.to_string() };
            items.push(Ready::Lost { problem, may_be_linked_to });
            return;
        }
    };
    let promised = reader.expected().unwrap_or(u64::MAX);
    if promised > GROWN_MAX {
        let message = "grew a lot while the backup was running; back it up again".to_owned();
        let problem = Problem { path: found.entry.path, during: Activity::Read, message };
        items.push(Ready::Lost { problem, may_be_linked_to });
        return;
    }
    let mut problems: Vec<_> =
        found.complete_from(&reader).iter().map(|error| attribute_problem(&found, error)).collect();
    let from = chunks.bytes.len();
    let mut failure = None;
    loop {
        // One byte more than expected, so that growth of the file shows without another call.
        let filled = chunks.bytes.len();
        let expected = (promised as usize).saturating_sub(filled - from);
        chunks.bytes.resize(filled + expected + 1, 0);
        let result = reader.read(&mut chunks.bytes[filled..]);
        chunks.bytes.truncate(filled + result.as_ref().map_or(0, |count| *count));
        match result {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                failure = Some(error.to_string());
                break;
            }
        }
    }
    let finished = reader.finish(&mut found.entry);
    let first_chunk = chunks.lengths.len();
    if chunks.bytes.len() > from {
        chunks.cut_from(from, cutting);
    }
    let message = failure.or_else(|| finished.change.map(|change| change.to_string()));
    problems.extend(message.map(|message| Problem { path: found.entry.path.clone(), during: Activity::Read, message }));
    let count = chunks.lengths.len() - first_chunk;
    items.push(Ready::Entry { entry: found.entry, fate, chunks: count });
    items.extend(problems.into_iter().map(Ready::Problem));
}

pub(super) fn attribute_problem(found: &Found, error: &larder_source::XattrError) -> Problem {
    Problem { path: found.entry.path.clone(), during: Activity::ReadAttributes, message: error.to_string() }
}
