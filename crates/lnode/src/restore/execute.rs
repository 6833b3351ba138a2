//! Executes a window: containers are fetched ahead, opened frame by frame, and written to all their
//! places.

pub(super) mod file_fates;
mod keeping;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;

use crossbeam_channel::{Receiver, unbounded};
use larder_chunking::{Fingerprint, Fingerprinter};
use larder_format::DecodeError;
use larder_format::compress::Decompressor;
use larder_format::entry::Entry;
use larder_format::ids::ContainerId;
use larder_job::JobContext;
use larder_reader::{FetchCounters, Reading, ReadingOrder, is_missing, read_plan};
use larder_source::target::{FileDecision, FileWriter, PutDecision, Target, TargetError};
use larder_store::RepositoryError;
use larder_store::container_reader::OpenContainer;
use parking_lot::Mutex;

use super::fetching::{FetchTask, Fetched, Fetcher, Fetches, read};
use super::file_task::{FileState, FileTask, Run, chained, places};
use super::handing::{Handing, Kept, NextWindow, last_used};
use super::plan::Window;
use super::{PlannedFetches, RestoreError};

/// Counters that threads share.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) files_restored: AtomicU64,
    pub(super) files_up_to_date: AtomicU64,
    pub(super) files_kept: AtomicU64,
    pub(super) bytes_restored: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) damaged: AtomicU64,
    /// Files that need containers in cold storage.
    pub(super) cold_files: AtomicU64,
    /// Containers in cold storage that were asked for.
    pub(super) cold: Mutex<BTreeSet<ContainerId>>,
    /// Containers that a run would read.
    pub(super) needed: Mutex<BTreeSet<ContainerId>>,
    pub(super) planned: Mutex<PlannedFetches>,
}

pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// The state that the threads of a restore share.
#[derive(Clone)]
pub(super) struct Execution<'a> {
    pub(super) context: &'a JobContext,
    pub(super) fingerprinter: Arc<Fingerprinter>,
    pub(super) target: &'a Target,
    pub(super) counters: Arc<Counters>,
    /// Distinguishes damage from a version that was forgotten.
    pub(super) reading: &'a Reading,
    pub(super) fetcher: Arc<Fetcher>,
    /// The sizes of containers: they tell sparse use and the memory needed.
    pub(super) sizes: Arc<read_plan::Sizes>,
    /// The order of reading containers.
    pub(super) order: ReadingOrder,
    /// Counts reads.
    pub(super) fetched: Arc<FetchCounters>,
    /// Whether a dry run counts the fetches of a run.
    pub(super) estimates: bool,
    /// Whether a dry run names the containers of a run.
    pub(super) plans: bool,
    /// Containers on the way from the window that is being written to the next one.
    pub(super) handing: Arc<Mutex<Handing>>,
    /// The restore has failed elsewhere.
    pub(super) is_abandoned: Arc<AtomicBool>,
}

/// Containers that were not found.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) runs: Vec<Run>,
    pub(super) containers: Vec<ContainerId>,
    /// The first such error.
    pub(super) error: RepositoryError,
    /// Runs of containers that were not requested any more.
    pub(super) postponed: Vec<Run>,
}

impl Missing {
    fn new(error: RepositoryError) -> Self {
        Self { runs: Vec::new(), containers: Vec::new(), error, postponed: Vec::new() }
    }
}

/// A window with its containers in the order of execution. They are being fetched.
pub(super) struct Prepared {
    pub(super) window: Window,
    /// The runs of each container.
    spans: Vec<Range<usize>>,
    fetches: Fetches,
    /// The containers that it requests.
    tasks: Vec<FetchTask>,
    /// Those that the window before keeps for it.
    reserved: Vec<FetchTask>,
    /// Those that it keeps for the next one.
    pub(super) kept: Arc<Kept>,
    /// Runs of containers that are gone. They are planned when the rest is written.
    pub(super) waiting: Vec<Run>,
}

impl Prepared {
    /// The window and its waiting runs, without its containers.
    pub(super) fn withdrawn(self) -> (Window, Vec<Run>) {
        (self.window, self.waiting)
    }
}

impl Execution<'_> {
    /// Whether windows are executed while the next one is planned.
    pub(super) fn overlaps(&self) -> bool {
        self.would_overlap() && !self.target.options().dry_run
    }

    /// The same for the run that a dry run stands for.
    pub(super) fn would_overlap(&self) -> bool {
        self.fetcher.is_ahead() && !self.context.executor.is_in_turns()
    }

    /// Puts a window into the order of execution, and begins to fetch its containers. `early`: the
    /// requests for it so far. `before`: what the window before keeps for it.
    pub(super) fn prepare(
        &self,
        mut window: Window,
        early: Option<Fetches>,
        waiting: Vec<Run>,
        before: &Kept,
    ) -> Prepared {
        let last_used = last_used(&window);
        let mut prepared = self.prepared(&mut window, early, waiting);
        if !self.context.executor.is_in_turns() {
            let kept = self.keep(&window, &prepared.spans, &mut prepared.tasks, &last_used, before);
            prepared.kept = Arc::new(kept);
            (prepared.reserved, prepared.tasks) =
                std::mem::take(&mut prepared.tasks).into_iter().partition(|task| before.has(&task.id));
        }
        prepared.window = window;
        if self.estimates && self.would_overlap() && prepared.tasks.iter().any(|task| before.may_hand(task)) {
            self.counters.planned.lock().is_about = true;
        }
        if let Some(next) = NextWindow::of(&self.fetcher, &prepared.fetches, &prepared.tasks, &prepared.reserved) {
            self.handing.lock().announce(next);
        }
        self.ask(&mut prepared);
        prepared
    }

    /// The same for a window that is executed at once, before others.
    pub(super) fn prepare_alone(&self, mut window: Window) -> Prepared {
        let mut prepared = self.prepared(&mut window, None, Vec::new());
        prepared.window = window;
        self.ask(&mut prepared);
        prepared
    }

    fn prepared(&self, window: &mut Window, early: Option<Fetches>, waiting: Vec<Run>) -> Prepared {
        window.sort(self.order);
        let spans = spans(window);
        let tasks = self.tasks(window, &spans);
        let fetches = early.unwrap_or_else(Fetches::new);
        let (window, reserved, kept) = Default::default();
        Prepared { window, spans, fetches, tasks, reserved, kept, waiting }
    }

    fn ask(&self, prepared: &mut Prepared) {
        if !self.target.options().dry_run && !self.context.executor.is_in_turns() {
            self.fetcher.ask(&mut prepared.fetches, prepared.tasks.clone());
        }
    }

    /// The window is executed next, and the one before is written. Requests containers that it kept
    /// but could not hand on.
    pub(super) fn ask_rest(&self, prepared: &mut Prepared) {
        if !self.target.options().dry_run && !prepared.reserved.is_empty() {
            let fetches = &prepared.fetches;
            let rest = prepared.reserved.iter().filter(|task| !fetches.has(&task.id)).cloned().collect();
            self.fetcher.ask(&mut prepared.fetches, rest);
        }
    }

    /// Restores the files of a window. Returns the runs whose containers were not found, with the
    /// first of these errors. They are still open, because their chunks may have been moved.
    /// `stops`: the first of them ends further requests. Others are then gone as well, and their
    /// chunks may be in containers that are read anyway.
    pub(super) fn run(&self, prepared: &mut Prepared, stops: bool) -> Result<Option<Missing>, RestoreError> {
        if self.target.options().dry_run {
            return self.pretend(prepared).map(|()| None);
        }
        if self.context.executor.is_in_turns() {
            return self.run_in_turns(prepared, stops);
        }
        prepared.fetches.end();
        let prepared = &*prepared;
        let (fatal, missing) = (Mutex::new(None), Mutex::new(None));
        std::thread::scope(|scope| {
            let work = || self.work(prepared, &prepared.fetches.arriving, &missing, stops, &fatal);
            let started = (0..self.context.threads.get()).map(|_| Builder::new().spawn_scoped(scope, work).is_ok());
            // A thread that cannot be started leaves fewer. Without any, this one works.
            if started.filter(|is_started| *is_started).count() == 0 {
                work();
            }
        });
        self.outcome(prepared, fatal, missing)
    }

    /// The same, one container after the other.
    fn run_in_turns(&self, prepared: &Prepared, stops: bool) -> Result<Option<Missing>, RestoreError> {
        let (fatal, missing) = (Mutex::new(None), Mutex::new(None));
        for FetchTask { id, ranges, .. } in prepared.tasks.clone() {
            if prepared.fetches.is_stopped() {
                break;
            }
            prepared.fetches.note(id);
            let container = self.context.executor.block_on(read(&self.context.repository, id, ranges));
            let (out, fetches) = unbounded();
            let (memory, turn, is_handed, is_whole) = (None, None, false, false);
            let _ = out.send(Fetched { id, container, memory, turn, is_handed, is_whole });
            drop(out);
            self.work(prepared, &fetches, &missing, stops, &fatal);
        }
        self.outcome(prepared, fatal, missing)
    }

    fn outcome(
        &self,
        prepared: &Prepared,
        fatal: Mutex<Option<RestoreError>>,
        missing: Mutex<Option<Missing>>,
    ) -> Result<Option<Missing>, RestoreError> {
        if self.is_stopped() {
            return Err(RestoreError::Interrupted);
        }
        match fatal.into_inner() {
            Some(error) => Err(error),
            None => Ok(missing.into_inner().map(|missing: Missing| {
                let Window { runs, containers, .. } = &prepared.window;
                let left = |run: &&Run| !prepared.fetches.has(&containers[run.container as usize]);
                Missing { postponed: runs.iter().filter(left).copied().collect(), ..missing }
            })),
        }
    }

    /// Ends the execution of windows: the restore has failed elsewhere.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.context.cancel.is_cancelled() || self.is_abandoned.load(Ordering::Relaxed)
    }

    /// A dry run: chunks that are not right yet would be fetched and written.
    fn pretend(&self, prepared: &Prepared) -> Result<(), RestoreError> {
        let window = &prepared.window;
        if self.estimates {
            self.count_fetches(&prepared.tasks)?;
        }
        if self.plans {
            self.counters.needed.lock().extend(window.containers.iter().copied());
        }
        for run in &window.runs {
            self.would_write(&window.files[run.file as usize], u64::from(run.length))?;
        }
        Ok(())
    }

    /// `bytes` of the file would be fetched and written. The count needs no fetch.
    pub(super) fn would_write(&self, task: &FileTask, bytes: u64) -> Result<(), RestoreError> {
        let begun = self.writer(task);
        let result = begun.and_then(|writer| writer.map_or(Ok(()), |writer| writer.would_write(bytes)));
        self.only_fatal(task, result)?;
        self.settle(task, bytes)
    }

    /// The ranges to read of the window's containers, in their order, and the memory of each.
    fn tasks(&self, window: &Window, spans: &[Range<usize>]) -> Vec<FetchTask> {
        let task = |(number, id): (usize, &ContainerId)| {
            let runs = &window.runs[spans[number].clone()];
            let wanted = runs.iter().map(|run| run.offset..run.offset.saturating_add(run.length)).collect();
            let part = read_plan::choose(wanted, self.sizes.measure(id));
            let in_pieces = part.ranges.is_none() && self.sizes.knows(id) && !self.context.executor.is_in_turns();
            let pieces = if in_pieces { self.fetcher.pieces(part.bytes) } else { 1 };
            FetchTask { id: *id, ranges: part.ranges, bytes: part.bytes, pieces }
        };
        window.containers.iter().enumerate().map(task).collect()
    }

    fn work(
        &self,
        prepared: &Prepared,
        fetches: &Receiver<Fetched>,
        missing: &Mutex<Option<Missing>>,
        stops: bool,
        fatal: &Mutex<Option<RestoreError>>,
    ) {
        let window = &prepared.window;
        let mut opener = Opener::default();
        for fetched in fetches {
            if fatal.lock().is_some() || self.is_stopped() {
                // Nothing else is fetched for this window.
                prepared.fetches.stop();
                return;
            }
            // The window may have lost the runs of a container that was requested early.
            let Some(number) = window.number(&fetched.id) else { continue };
            let runs = &window.runs[prepared.spans[number as usize].clone()];
            let done = match fetched.container {
                Ok(ref container) => {
                    if !fetched.is_handed {
                        self.fetched.read(fetched.id, container);
                    }
                    self.container(window, runs, container, &mut opener).map(|unverified| {
                        let is_right = unverified.is_empty();
                        // Another copy may be right (`WrongIsAbsent`).
                        for (run, error) in unverified {
                            let mut missing = missing.lock();
                            let missing = missing.get_or_insert_with(|| Missing::new(error));
                            missing.runs.push(run);
                            missing.containers.push(fetched.id);
                        }
                        if is_right {
                            let is_kept = prepared.kept.has(&fetched.id);
                            self.handing.lock().written(fetched, is_kept);
                        }
                    })
                }
                Err(error) if is_missing(&error) => {
                    if stops {
                        prepared.fetches.stop();
                    }
                    let mut missing = missing.lock();
                    let missing = missing.get_or_insert_with(|| Missing::new(error));
                    missing.runs.extend_from_slice(runs);
                    missing.containers.push(fetched.id);
                    Ok(())
                }
                Err(error) if error.is_cold() => {
                    self.leave_cold(window, runs, fetched.id);
                    Ok(())
                }
                Err(error) => self.expect_damage(error).map(|error| self.lose(window, runs, &error)),
            };
            if let Err(error) = done {
                fatal.lock().get_or_insert(error);
                prepared.fetches.stop();
                return;
            }
        }
    }

    /// Writes the runs of a container. Returns those whose bytes are not what their records name.
    fn container(
        &self,
        window: &Window,
        runs: &[Run],
        container: &OpenContainer,
        opener: &mut Opener,
    ) -> Result<Vec<(Run, RepositoryError)>, RestoreError> {
        self.fetched.used(runs.iter().map(|run| u64::from(run.length)).sum());
        opener.frame = None;
        opener.starts.clear();
        opener.starts.extend(container.index.chunk_refs().map(|chunk| chunk.offset));
        let mut unverified = Vec::new();
        for run in runs {
            if self.is_stopped() {
                break;
            }
            let task = &window.files[run.file as usize];
            match self.verified(run, container, opener) {
                Ok(()) => {
                    self.write(task, run.at, &opener.run)?;
                    self.settle(task, u64::from(run.length))?;
                }
                Err(error) => unverified.push((*run, error)),
            }
        }
        Ok(unverified)
    }

    /// Reads the bytes of a run, and compares their chunks with the records.
    fn verified(&self, run: &Run, container: &OpenContainer, opener: &mut Opener) -> Result<(), RepositoryError> {
        let id = container.index.id;
        let damaged = |why| RepositoryError::Damaged {
            name: larder_format::names::container(id),
            source: DecodeError::Invalid { what: "chunk record", why },
        };
        let end = run.offset.saturating_add(run.length);
        opener.run.clear();
        for frame in container.index.frames_of(&(run.offset..end)) {
            if opener.frame != Some(frame.number) {
                opener.frame = None;
                container.open_frame(
                    &self.context.repository,
                    frame,
                    &mut opener.scratch,
                    &mut opener.raw,
                    &mut opener.decompressor,
                )?;
                opener.frame = Some(frame.number);
            }
            let part = frame.payload_range();
            let (from, to) = (run.offset.max(part.start), end.min(part.end));
            opener.run.extend_from_slice(&opener.raw[(from - part.start) as usize..(to - part.start) as usize]);
        }
        let first = opener.starts.binary_search(&run.offset);
        let behind = match opener.starts.binary_search(&end) {
            Ok(behind) => Some(behind),
            Err(behind) if end == container.index.payload_len => Some(behind),
            Err(_) => None,
        };
        let (Ok(first), Some(behind)) = (first, behind) else {
            return Err(damaged("the container has other chunks there"));
        };
        if opener.run.len() != run.length as usize {
            return Err(damaged("it lies outside of its container"));
        }
        opener.lengths.clear();
        opener.lengths.extend(container.index.chunks[first..behind].iter().map(|chunk| chunk.size));
        opener.fingerprints.clear();
        self.fingerprinter.many(&opener.run, &opener.lengths, &mut opener.fingerprints);
        let names = opener.fingerprints.iter().fold([0; 16], |names, next| chained(&self.fingerprinter, names, next));
        if names == run.names { Ok(()) } else { Err(damaged("the bytes there have another fingerprint")) }
    }

    /// Writes stored bytes of a file. Errors that concern only this file are reported; others end
    /// the restore.
    fn write(&self, task: &FileTask, at: u64, bytes: &[u8]) -> Result<(), RestoreError> {
        if task.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let result = if at == 0 && bytes.len() as u64 == task.stored {
            self.put_whole(task, bytes)
        } else {
            self.write_part(task, at, bytes)
        };
        self.only_fatal(task, result)
    }

    fn put_whole(&self, task: &FileTask, bytes: &[u8]) -> Result<(), TargetError> {
        let mut state = task.state.lock();
        if let FileState::Waiting = &*state {
            *state = FileState::Settled;
            drop(state);
            match self.target.put_file(&task.entry, bytes)? {
                PutDecision::Written => self.restored(task),
                PutDecision::UpToDate => add(&self.counters.files_up_to_date, 1),
                PutDecision::Kept(_) => add(&self.counters.files_kept, 1),
            }
            return Ok(());
        }
        drop(state);
        self.write_part(task, 0, bytes)
    }

    fn write_part(&self, task: &FileTask, at: u64, bytes: &[u8]) -> Result<(), TargetError> {
        let Some(writer) = self.writer(task)? else { return Ok(()) };
        let mut rest = bytes;
        for (offset, length) in places(&task.entry, at, bytes.len() as u64) {
            let (part, after) = rest.split_at((length as usize).min(rest.len()));
            writer.write_at(offset, part)?;
            rest = after;
        }
        Ok(())
    }

    /// Begins the file if it is not begun yet. `None`: no part of it is wanted.
    fn writer(&self, task: &FileTask) -> Result<Option<Arc<FileWriter>>, TargetError> {
        let mut state = task.state.lock();
        if let FileState::Waiting = &*state {
            *state = self.begin(&task.entry)?;
        }
        Ok(match &*state {
            FileState::Writing(writer) => Some(writer.clone()),
            FileState::Waiting | FileState::Settled => None,
        })
    }

    /// Begins a file that is written in pieces.
    pub(super) fn begin(&self, entry: &Entry) -> Result<FileState, TargetError> {
        Ok(match self.target.begin_file(entry)? {
            FileDecision::Write(writer) => FileState::Writing(Arc::new(writer)),
            FileDecision::UpToDate => {
                add(&self.counters.files_up_to_date, 1);
                FileState::Settled
            }
            FileDecision::Kept(_) => {
                add(&self.counters.files_kept, 1);
                FileState::Settled
            }
        })
    }
}

/// A thread's opener of frames, and its open frame.
#[derive(Debug, Default)]
struct Opener {
    frame: Option<u32>,
    scratch: Vec<u8>,
    raw: Vec<u8>,
    /// The bytes of a run.
    run: Vec<u8>,
    /// Where the chunks of the container begin.
    starts: Vec<u32>,
    lengths: Vec<u32>,
    fingerprints: Vec<Fingerprint>,
    decompressor: Decompressor,
}

/// The runs of each container.
fn spans(window: &Window) -> Vec<Range<usize>> {
    let mut spans = vec![0..0; window.containers.len()];
    let mut from = 0;
    for runs in window.runs.chunk_by(|a, b| a.container == b.container) {
        spans[runs[0].container as usize] = from..from + runs.len();
        from += runs.len();
    }
    spans
}
