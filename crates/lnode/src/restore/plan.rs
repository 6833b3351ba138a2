//! The plan of one window of a restore: the bytes of containers, and their places in files.
//!
//! The memory for the plan bounds the entries of a window: by default some 360,000 runs. That is
//! 1.4 GiB of scattered pages, or any amount of data stored in order. Later windows have half of
//! that, because they are planned while another one is executed. Within a window every container is
//! read once, however often its chunks are used.

use std::collections::HashMap;
use std::sync::Arc;

use larder_chunking::Fingerprinter;
use larder_format::ChunkRef;
use larder_format::entry::Entry;
use larder_format::ids::ContainerId;
use larder_reader::{ReadingOrder, RecordCursor};
use larder_source::target::TargetError;
use larder_store::RepositoryError;

use super::budget::Budget;
use super::compare_existing::{BATCH_BYTES, Existing};
use super::file_task::{FileTask, Run, chained};

/// Bytes of a run at which the next chunk begins another one. A run is verified as a whole before
/// any of it is written.
const RUN_MAX: u32 = 1 << 20;

/// A file to add to a window, or the rest of a file that exceeds a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Number of the file in the window.
    pub(super) file: u32,
    /// The number of its stored bytes.
    pub(super) stored: u64,
    /// Their beginning in the data stream.
    pub(super) data_offset: u64,
    /// The first of them to add.
    pub(super) from: u64,
}

/// The added part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Added {
    /// The end of the window in the file's stored bytes.
    pub(super) to: u64,
    /// Bytes before it that are right already.
    pub(super) kept: u64,
}

/// A file could not be planned.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    /// The repository failed, or is damaged.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The target failed.
    #[error(transparent)]
    Target(#[from] TargetError),
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub(super) files: Vec<Arc<FileTask>>,
    pub(super) runs: Vec<Run>,
    pub(super) containers: Vec<ContainerId>,
    numbers: HashMap<ContainerId, u32>,
    /// Entries to create after the files.
    pub(super) links: Vec<Link>,
    /// Another window follows, and most likely needs the rest of the containers.
    pub(super) goes_on: bool,
    /// Some of its files were there before.
    pub(super) is_over_existing: bool,
}

/// A hard link that is to be made.
#[derive(Debug)]
pub(super) struct Link {
    /// Both of its names are those of the target.
    pub(super) entry: Entry,
    /// The path of its first name in the version. A name of the target may be another file there.
    pub(super) first: Vec<u8>,
}

impl Window {
    /// `share`: the part of the budget for it, one in this number.
    pub(super) fn is_full(&self, budget: &Budget, share: usize) -> bool {
        self.runs.len() >= budget.runs / share || self.files.len() + self.links.len() >= budget.files / share
    }

    /// The number of a container, if the window needs it.
    pub(super) fn number(&self, container: &ContainerId) -> Option<u32> {
        self.numbers.get(container).copied()
    }

    /// Adds the `wanted` part of a file, as far as the window has room. Chunks that are right in
    /// `existing` content are left out.
    pub(super) fn add_runs(
        &mut self,
        wanted: &Wanted,
        existing: Option<&mut Existing>,
        fingerprinter: &Fingerprinter,
        runs_max: usize,
        cursor: &mut RecordCursor,
    ) -> Result<Added, PlanError> {
        let mut added = Added { to: wanted.from, kept: 0 };
        if !cursor.seek(wanted.data_offset + wanted.from)? {
            return Err(misplaced().into());
        }
        let mut existing = existing;
        let mut records = Vec::new();
        while added.to < wanted.stored && self.runs.len() < runs_max {
            let at = added.to;
            records.clear();
            let batch = if existing.is_some() { BATCH_BYTES } else { 1 };
            while added.to < wanted.stored && added.to - at < batch {
                let Some(record) = cursor.next_record()? else { return Err(misplaced().into()) };
                added.to += u64::from(record.chunk.size);
                if added.to > wanted.stored {
                    return Err(misplaced().into());
                }
                records.push(record);
            }
            let kept = match &mut existing {
                Some(existing) => {
                    let entry = &self.files[wanted.file as usize].entry;
                    existing.keep(fingerprinter, entry, at, &records)?
                }
                None => Vec::new(),
            };
            let mut at = at;
            for (number, record) in records.iter().enumerate() {
                match kept.get(number) {
                    Some(true) => added.kept += u64::from(record.chunk.size),
                    _ => self.add_run(wanted.file, at, record.chunk, fingerprinter),
                }
                at += u64::from(record.chunk.size);
            }
        }
        Ok(added)
    }

    fn add_run(&mut self, file: u32, at: u64, chunk: ChunkRef, fingerprinter: &Fingerprinter) {
        let container = number_of(&mut self.containers, &mut self.numbers, chunk.container);
        match self.runs.last_mut() {
            Some(run)
                if run.file == file
                    && run.container == container
                    && run.offset + run.length == chunk.offset
                    && run.at + u64::from(run.length) == at
                    && run.length < RUN_MAX =>
            {
                run.length += chunk.size;
                run.names = chained(fingerprinter, run.names, &chunk.fingerprint);
            }
            _ => {
                let names = chained(fingerprinter, [0; 16], &chunk.fingerprint);
                self.runs.push(Run { container, offset: chunk.offset, length: chunk.size, file, at, names });
            }
        }
    }

    /// Removes and returns the runs of containers that match `is_gone`. The others stay planned.
    pub(super) fn take_gone(&mut self, is_gone: impl Fn(&ContainerId) -> bool) -> Vec<Run> {
        let gone: Vec<bool> = self.containers.iter().map(is_gone).collect();
        if !gone.contains(&true) {
            return Vec::new();
        }
        let containers = self.containers.clone();
        let (taken, left): (Vec<Run>, Vec<Run>) =
            self.take_runs().into_iter().partition(|run| gone[run.container as usize]);
        self.runs = left;
        for run in &mut self.runs {
            run.container = number_of(&mut self.containers, &mut self.numbers, containers[run.container as usize]);
        }
        taken
    }

    /// Removes and returns all runs.
    pub(super) fn take_runs(&mut self) -> Vec<Run> {
        self.containers.clear();
        self.numbers.clear();
        std::mem::take(&mut self.runs)
    }

    /// The offset of a run's first byte in the data stream.
    pub(super) fn offset_of(&self, run: &Run) -> u64 {
        self.files[run.file as usize].data_offset + run.at
    }

    /// Plans the bytes of a run by the present places of their chunks in the recipe. Unchanged
    /// places stay.
    pub(super) fn redirect(
        &mut self,
        run: &Run,
        cursor: &mut RecordCursor,
        fingerprinter: &Fingerprinter,
    ) -> Result<(), RepositoryError> {
        if !cursor.seek(self.offset_of(run))? {
            return Err(misplaced());
        }
        let mut chunks = Vec::new();
        let (mut at, end) = (run.at, run.at + u64::from(run.length));
        while at < end {
            let Some(record) = cursor.next_record()? else { return Err(misplaced()) };
            chunks.push((at, record.chunk));
            at += u64::from(record.chunk.size);
        }
        // All of it or nothing, so that failed bytes can be counted.
        chunks.into_iter().for_each(|(at, chunk)| self.add_run(run.file, at, chunk, fingerprinter));
        Ok(())
    }

    /// Sorts the runs into the order of execution: by container, then by place.
    pub(super) fn sort(&mut self, order: ReadingOrder) {
        let used = self.containers.clone();
        order(&mut self.containers);
        if self.containers != used {
            let before = std::mem::take(&mut self.numbers);
            self.numbers = self.containers.iter().zip(0..).map(|(id, number)| (*id, number)).collect();
            let mut numbers = vec![0; self.containers.len()];
            for (id, number) in before {
                numbers[number as usize] = self.numbers[&id];
            }
            self.runs.iter_mut().for_each(|run| run.container = numbers[run.container as usize]);
        }
        self.runs.sort_unstable_by_key(|run| (run.container, run.offset, run.file, run.at));
    }
}

/// The number of a container in a window.
fn number_of(containers: &mut Vec<ContainerId>, numbers: &mut HashMap<ContainerId, u32>, id: ContainerId) -> u32 {
    *numbers.entry(id).or_insert_with(|| {
        containers.push(id);
        containers.len() as u32 - 1
    })
}

/// The entry states a file there, but the recipe has other data.
fn misplaced() -> RepositoryError {
    RepositoryError::Damaged {
        name: "the version's recipe".to_owned(),
        source: larder_format::DecodeError::Invalid {
            what: "recipe",
            why: "a file's contents do not lie where its entry says",
        },
    }
}
