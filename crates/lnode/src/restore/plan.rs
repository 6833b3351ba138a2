//! The plan of one window of a restore: which bytes of which containers go where.
//!
//! A window is as many entries as their plan may take memory for: by default about half a million runs, which is 2 GiB of
//! scattered pages or any amount of data that lies in order. Within it every container is read once, however often its
//! chunks are used.

use std::collections::HashMap;

use larder_chunking::Fingerprinter;
use larder_format::ChunkRef;
use larder_format::entry::Entry;
use larder_format::ids::ContainerId;
use larder_reader::{ReadingOrder, RecordCursor};
use larder_source::target::TargetError;
use larder_store::RepositoryError;

use super::budget::Budget;
use super::compare_existing::{BATCH_BYTES, Existing};
use super::file_task::{FileTask, Run};

/// What a window is asked to add: a file, or the rest of one that is larger than a window may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Number of the file in the window.
    pub(super) file: u32,
    /// Its stored bytes.
    pub(super) stored: u64,
    /// Where they begin in the data stream.
    pub(super) data_offset: u64,
    /// Where among them to begin.
    pub(super) from: u64,
}

/// What was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Added {
    /// How far in the file's stored bytes the window reaches.
    pub(super) to: u64,
    /// Bytes on the way there that are right already.
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
    pub(super) files: Vec<FileTask>,
    pub(super) runs: Vec<Run>,
    pub(super) containers: Vec<ContainerId>,
    numbers: HashMap<ContainerId, u32>,
    /// Entries to be made when the files are there.
    pub(super) links: Vec<Entry>,
}

impl Window {
    pub(super) fn is_full(&self, budget: &Budget) -> bool {
        self.runs.len() >= budget.runs || self.files.len() + self.links.len() >= budget.files
    }

    /// Adds what `wanted` asks for, as far as the window has room for it. What is right in `existing` content is left out.
    pub(super) fn add_runs(
        &mut self,
        wanted: &Wanted,
        existing: Option<(&mut Existing, &Fingerprinter)>,
        budget: &Budget,
        cursor: &mut RecordCursor,
    ) -> Result<Added, PlanError> {
        let mut added = Added { to: wanted.from, kept: 0 };
        if !cursor.seek(wanted.data_offset + wanted.from)? {
            return Err(misplaced().into());
        }
        let mut existing = existing;
        let mut records = Vec::new();
        while added.to < wanted.stored && self.runs.len() < budget.runs {
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
                Some((existing, fingerprinter)) => {
                    let entry = &self.files[wanted.file as usize].entry;
                    existing.keep(fingerprinter, entry, at, &records)?
                }
                None => Vec::new(),
            };
            let mut at = at;
            for (number, record) in records.iter().enumerate() {
                match kept.get(number) {
                    Some(true) => added.kept += u64::from(record.chunk.size),
                    _ => self.add_run(wanted.file, at, record.chunk),
                }
                at += u64::from(record.chunk.size);
            }
        }
        Ok(added)
    }

    fn add_run(&mut self, file: u32, at: u64, chunk: ChunkRef) {
        let container = number_of(&mut self.containers, &mut self.numbers, chunk.container);
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
    }

    /// Takes out the runs of containers of which `is_gone` holds. What is left is planned as before.
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

    /// Takes out all runs.
    pub(super) fn take_runs(&mut self) -> Vec<Run> {
        self.containers.clear();
        self.numbers.clear();
        std::mem::take(&mut self.runs)
    }

    /// Where the first byte of a run lies in the data stream.
    pub(super) fn offset_of(&self, run: &Run) -> u64 {
        self.files[run.file as usize].data_offset + run.at
    }

    /// Plans the bytes of a run by what the recipe says of their chunks now. Where that is the same place as before, they stay there.
    pub(super) fn redirect(&mut self, run: &Run, cursor: &mut RecordCursor) -> Result<(), RepositoryError> {
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
        // All of it or nothing, so that what failed can be counted.
        chunks.into_iter().for_each(|(at, chunk)| self.add_run(run.file, at, chunk));
        Ok(())
    }

    /// Brings the runs into the order in which they are carried out: by container, then by place.
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
