//! The plan of one window of a restore: which bytes of which containers go where.
//!
//! A window is as many entries as their plan takes memory for: about a million runs, which is 4 GiB of scattered pages or
//! any amount of data that lies in order. Within it every container is read once, however often its chunks are used.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};

use larder_format::entry::Entry;
use larder_format::ids::ContainerId;
use larder_source::target::FileWriter;
use larder_store::RepositoryError;
use parking_lot::Mutex;

use crate::version::RecordCursor;

/// Runs after which a window is carried out: 32 bytes each.
const RUNS_MAX: usize = 1 << 20;
/// Files after which a window is carried out: about 400 bytes each.
const FILES_MAX: usize = 1 << 16;

/// Bytes of a container's payload that belong into a file, back to back in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// Number of the container in the window.
    pub(super) container: u32,
    /// Where they begin in the payload.
    pub(super) offset: u32,
    /// How many.
    pub(super) length: u32,
    /// Number of the file in the window.
    pub(super) file: u32,
    /// Where they begin in the file's stored bytes.
    pub(super) at: u64,
}

/// How far a file has come.
#[derive(Debug)]
pub(super) enum Progressing {
    /// Nothing was written yet.
    Waiting,
    /// It is being written.
    Writing(std::sync::Arc<FileWriter>),
    /// It needs nothing (more).
    Settled,
}

/// A file of the window.
#[derive(Debug)]
pub(super) struct FileTask {
    pub(super) entry: Entry,
    pub(super) stored: u64,
    /// Stored bytes not dealt with yet; whoever brings it to 0 finishes the file.
    pub(super) remaining: AtomicU64,
    pub(super) state: Mutex<Progressing>,
    pub(super) failed: AtomicBool,
}

impl FileTask {
    pub(super) fn new(entry: Entry, state: Progressing) -> Self {
        let stored = entry.stored_bytes();
        Self {
            entry,
            stored,
            remaining: AtomicU64::new(stored),
            state: Mutex::new(state),
            failed: AtomicBool::new(false),
        }
    }
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub(super) files: Vec<FileTask>,
    pub(super) runs: Vec<Run>,
    pub(super) containers: Vec<ContainerId>,
    numbers: HashMap<ContainerId, u32>,
    /// Entries to be made when the files are there.
    pub(super) links: Vec<Entry>,
}

impl Window {
    pub(super) fn is_full(&self) -> bool {
        self.runs.len() >= RUNS_MAX || self.files.len() + self.links.len() >= FILES_MAX
    }

    /// Adds a file whose stored bytes begin at `data_offset` of the data stream.
    ///
    /// A file larger than a window may be comes in several calls: `from` is where in its stored bytes to go on, and the
    /// result how far this window reaches.
    pub(super) fn add_runs(
        &mut self,
        file: u32,
        stored: u64,
        data_offset: u64,
        from: u64,
        cursor: &mut RecordCursor,
    ) -> Result<u64, RepositoryError> {
        let mut at = from;
        if !cursor.seek(data_offset + from)? {
            return Err(misplaced());
        }
        while at < stored && self.runs.len() < RUNS_MAX {
            let Some(record) = cursor.next()? else { return Err(misplaced()) };
            let chunk = record.chunk;
            let next = at + u64::from(chunk.size);
            if next > stored {
                return Err(misplaced());
            }
            let container = *self.numbers.entry(chunk.container).or_insert_with(|| {
                self.containers.push(chunk.container);
                self.containers.len() as u32 - 1
            });
            match self.runs.last_mut() {
                Some(run)
                    if run.file == file
                        && run.container == container
                        && run.offset + run.length == chunk.offset
                        && run.at + u64::from(run.length) == at =>
                {
                    run.length += chunk.size;
                }
                _ => self.runs.push(Run { container, offset: chunk.offset, length: chunk.size, file, at }),
            }
            at = next;
        }
        Ok(at)
    }

    /// Brings the runs into the order in which they are carried out: by container in order of first use, then by place.
    pub(super) fn sort(&mut self) {
        self.runs.sort_unstable_by_key(|run| (run.container, run.offset, run.file, run.at));
    }
}

/// The entry says the file is there, the recipe has something else.
fn misplaced() -> RepositoryError {
    RepositoryError::Damaged {
        name: "the version's recipe".to_owned(),
        source: larder_format::DecodeError::Invalid {
            what: "recipe",
            why: "a file's contents do not lie where its entry says",
        },
    }
}
