//! One restore from start to end: walks the entries, creates those without contents, and writes the
//! rest window by window.

mod links;
mod windows;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_chunking::Fingerprinter;
use larder_format::entry::{Entry, EntryKind};
use larder_format::manifest::Manifest;
use larder_job::{ItemFate, JobContext};
use larder_reader::{EntriesBelow, PlacedEntry, Reading, RecordCursor, StandIns, VersionReader, is_missing};
use larder_source::PathText;
use larder_source::target::{DirDecision, KeptReason, NodeDecision, PutDecision, Target, TargetCause, TargetError};
use larder_store::RepositoryError;
use larder_store::catalog::Version;

use super::budget::Budget;
use super::compare_existing::Existing;
use super::execute::file_fates::{expect_damage, is_fatal, with_causes};
use super::execute::{Execution, add};
use super::fetching::{Fetcher, Fetches};
use super::file_task::{FileState, FileTask};
use super::handing::Kept;
use super::plan::{Link, PlanError, Wanted, Window};
use super::{RestoreError, RestoreOptions, RestoreReport};
use windows::Writer;

/// Restores a version, or a part of it, into a target.
///
/// Damage and errors of single files are reported to the context's progress and counted; the rest
/// is restored. Running it again continues where it stopped, also after a power cut. With `sync`,
/// files reported as done survive a power cut.
pub fn restore(
    context: &JobContext,
    version: &Version,
    target: &Target,
    options: &RestoreOptions,
) -> Result<RestoreReport, RestoreError> {
    let (reading, manifest) = Reading::begin(context, version)?;
    restore_begun(context, reading, manifest, target, options)
}

/// The same for a version that was announced and found present. Ends the reading in any case.
pub fn restore_begun(
    context: &JobContext,
    reading: Reading,
    manifest: Manifest,
    target: &Target,
    options: &RestoreOptions,
) -> Result<RestoreReport, RestoreError> {
    let result = restore_reading(context, &reading, manifest, target, options);
    reading.end();
    result
}

/// The same, and the reading goes on: for a restore that is repeated until all of its data could be
/// read.
pub fn restore_reading(
    context: &JobContext,
    reading: &Reading,
    manifest: Manifest,
    target: &Target,
    options: &RestoreOptions,
) -> Result<RestoreReport, RestoreError> {
    let reader = VersionReader::new(context, manifest).fetching(options.fetch.clone());
    let result = Restore::new(context, reader, reading, target, options).and_then(Restore::run);
    if result.is_err() {
        // Overwritten files are whole, but only their owners can read them until they are finished.
        // An error to report exists already.
        let _ = target.finish_overwritten();
    }
    match result {
        Err(RestoreError::Repository(error)) if is_missing(&error) => {
            reading.expect_there().map_err(RestoreError::from).and(Err(error.into()))
        }
        result => result,
    }
}

pub(super) struct Restore<'a> {
    pub(super) context: &'a JobContext,
    pub(super) target: &'a Target,
    pub(super) options: &'a RestoreOptions,
    pub(super) reader: VersionReader,
    /// Plans by the places of chunks while no container is gone.
    cursor: RecordCursor,
    /// Tells the places of chunks whose containers are gone.
    resolving: RecordCursor,
    pub(super) root: Root,
    execution: Execution<'a>,
    budget: Budget,
    /// The window that is being planned.
    window: Window,
    /// Containers that were requested before it is planned.
    early: Option<Fetches>,
    /// What the newest prepared window keeps for the next one.
    kept: Arc<Kept>,
    /// A window was handed over.
    has_begun: bool,
    /// Executes windows, one at a time.
    writer: Option<Writer>,
    /// Links whose files are written.
    links: VecDeque<Link>,
    stand_ins: StandIns,
    /// The newest created folder outside of other created ones: nothing was below it before.
    made: Option<Vec<u8>>,
    /// The newest entry's path, in the version.
    last_path: Vec<u8>,
    /// Some entries are not known, because metadata is damaged.
    pub(super) has_gaps: bool,
    /// Directories above the next entry that are not created yet.
    waiting_dirs: Vec<Entry>,
    others: u64,
}

/// The mapping of paths of the version to paths of the target.
#[derive(Debug)]
pub(super) struct Root {
    /// The restored path; empty = everything.
    pub(super) subpath: Vec<u8>,
    /// Bytes to remove from the front of every path.
    strip: usize,
}

impl Root {
    /// Whether the target is the restored entry itself, and not the folder that receives it.
    pub(super) fn is_directory(&self) -> bool {
        self.subpath.is_empty() || self.strip > self.subpath.len()
    }

    pub(super) fn path(&self, path: &[u8]) -> Option<Vec<u8>> {
        path.get(self.strip..).filter(|rest| !rest.is_empty()).map(<[u8]>::to_vec)
    }
}

impl<'a> Restore<'a> {
    fn new(
        context: &'a JobContext,
        reader: VersionReader,
        reading: &'a Reading,
        target: &'a Target,
        options: &'a RestoreOptions,
    ) -> Result<Self, RestoreError> {
        let subpath = options.subpath.clone().unwrap_or_default();
        let inside = subpath.len() + 1;
        // Everything is restored without a look at its first entry.
        let of_subpath = if subpath.is_empty() { Ok(None) } else { reader.entry(&subpath) };
        let strip = match of_subpath {
            Ok(_) if subpath.is_empty() => 0,
            Ok(Some(Entry { kind: EntryKind::Directory, .. })) => inside,
            Ok(Some(_)) => subpath.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1),
            Ok(None) => return Err(RestoreError::NoSuchPath { path: subpath }),
            // Entries below it may be known all the same. Its own absence is reported on the way.
            Err(error) => {
                expect_damage(reading, error)?;
                inside
            }
        };
        let root = Root { subpath, strip };
        let budget = Budget::of(context.memory, options.fetch.cache_memory);
        let execution = Execution {
            context,
            fingerprinter: Arc::new(Fingerprinter::new(context.repository.keys().fingerprint())),
            target,
            counters: Arc::default(),
            reading,
            fetcher: Arc::new(Fetcher::new(context, budget.containers, options.fetch.prefetch)),
            sizes: Arc::new(reader.sizes()),
            order: reader.reading_order(),
            fetched: reader.counters().clone(),
            estimates: options.estimate,
            plans: options.plan,
            handing: Arc::default(),
            is_abandoned: Arc::default(),
        };
        Ok(Self {
            context,
            target,
            options,
            cursor: reader.unresolved_cursor(),
            resolving: reader.data_cursor(),
            reader,
            root,
            execution,
            budget,
            window: Window::default(),
            early: None,
            kept: Arc::default(),
            has_begun: false,
            writer: None,
            links: VecDeque::new(),
            stand_ins: StandIns::new(context),
            made: None,
            last_path: Vec::new(),
            has_gaps: false,
            waiting_dirs: Vec::new(),
            others: 0,
        })
    }

    fn run(mut self) -> Result<RestoreReport, RestoreError> {
        let statistics = &self.reader.manifest().summary.statistics;
        if self.root.subpath.is_empty() && self.options.selection.is_none() {
            let files = statistics.files_new + statistics.files_changed + statistics.files_unmodified;
            self.context.progress.expect(files, statistics.stream_bytes);
            self.context.progress.expectation_is_complete();
        } else if self.options.selection.is_none()
            && let Ok(range) = self.reader.data_range(&self.root.subpath)
        {
            // The number of files would cost a separate walk.
            self.context.progress.expect(0, range.end.saturating_sub(range.start));
            self.context.progress.expectation_is_complete();
        }
        self.write_all()?;
        let delete_refused = self.options.delete.then(|| self.delete_refusal()).flatten();
        let deleted = if self.options.delete && delete_refused.is_none() { self.delete()? } else { 0 };
        self.target.finish_dirs_with(self.context.threads)?;
        if self.options.sync {
            // Before the comparison, which may take long.
            self.target.sync()?;
        }
        let is_cold = get_count(&self.execution.counters.cold_files) > 0;
        let mismatches = if self.options.verify && !is_cold { self.verify()? } else { 0 };
        let counters = &self.execution.counters;
        let get = get_count;
        let mut planned = *counters.planned.lock();
        planned.is_about |= self.options.estimate && self.reader.may_fetch_metadata_again();
        Ok(RestoreReport {
            files_restored: get(&counters.files_restored),
            files_up_to_date: get(&counters.files_up_to_date),
            files_kept: get(&counters.files_kept),
            others: self.others,
            bytes_restored: get(&counters.bytes_restored),
            deleted,
            delete_refused,
            errors: get(&counters.errors),
            damaged: get(&counters.damaged),
            mismatches,
            cold_files: get(&counters.cold_files),
            cold: std::mem::take(&mut *counters.cold.lock()),
            needed: std::mem::take(&mut *counters.needed.lock()),
            fetched: self.reader.fetched(),
            planned,
        })
    }

    pub(super) fn execution(&self) -> &Execution<'a> {
        &self.execution
    }

    /// Walks the entries, and writes everything but the times of directories.
    fn write_entries(&mut self) -> Result<(), RestoreError> {
        let mut entries = self.reader.placed_below(&self.root.subpath);
        while let Some(placed) = entries.next() {
            if self.context.cancel.is_cancelled() {
                return Err(RestoreError::Interrupted);
            }
            match placed {
                Ok(placed) => self.entry(placed)?,
                Err(error) => self.gap(error, &mut entries)?,
            }
            self.flush_if_full()?;
            self.make_links()?;
        }
        self.flush_all()
    }

    /// Entries are missing because metadata is damaged: reports them, as far as they can be known,
    /// and continues behind them.
    fn gap(&mut self, error: RepositoryError, entries: &mut EntriesBelow) -> Result<(), RestoreError> {
        let error = self.execution().expect_damage(error)?;
        self.has_gaps = true;
        let until = match entries.recover()? {
            Some(next) => format!("before {}", PathText(&next)),
            None => "to the end".to_owned(),
        };
        let message = format!("what follows it, {until}, is not known and cannot be restored: {error}");
        self.execution().damage(&self.last_path, &message);
        Ok(())
    }

    pub(super) fn wants(&self, entry: &Entry) -> bool {
        let is_directory = entry.kind == EntryKind::Directory;
        self.options.selection.as_ref().is_none_or(|selection| selection.wants(&entry.path, is_directory))
    }

    fn entry(&mut self, placed: PlacedEntry) -> Result<(), RestoreError> {
        let wanted = self.wants(&placed.entry);
        let PlacedEntry { mut entry, data_offset } = placed;
        self.last_path.clone_from(&entry.path);
        let Some(path) = self.root.path(&entry.path) else { return Ok(()) };
        entry.path = path;
        // Directories that are not above this entry contained nothing wanted.
        self.waiting_dirs.retain(|dir| is_below(&entry.path, &dir.path));
        if !wanted {
            if entry.kind == EntryKind::Directory {
                self.waiting_dirs.push(entry);
            }
            return Ok(());
        }
        for dir in std::mem::take(&mut self.waiting_dirs) {
            self.directory(&dir)?;
        }
        match &mut entry.kind {
            EntryKind::Directory => self.directory(&entry),
            EntryKind::File { .. } => self.file(entry, data_offset),
            EntryKind::HardLink { target } => {
                let first = std::mem::take(target);
                match self.place_of_first(&first) {
                    Some(place) => {
                        *target = place;
                        self.window.links.push(Link { entry, first });
                        Ok(())
                    }
                    None => {
                        self.stand_ins.insert(first.clone(), self.last_path.clone());
                        self.contents_of_link(Link { entry, first })
                    }
                }
            }
            _ => {
                let result = self.target.make_node(&entry);
                if let Some(decision) = self.single(&entry.path, result)? {
                    match decision {
                        NodeDecision::Made | NodeDecision::UpToDate => self.others += 1,
                        // Nothing is there, and nothing was kept.
                        NodeDecision::Kept(KeptReason::Omitted) => {}
                        NodeDecision::Kept(_) => add(&self.execution.counters.files_kept, 1),
                    }
                }
                Ok(())
            }
        }
    }

    fn directory(&mut self, entry: &Entry) -> Result<(), RestoreError> {
        let result = self.target.make_dir(entry);
        if let Some(decision) = self.single(&entry.path, result)? {
            match decision {
                DirDecision::Kept(_) => add(&self.execution.counters.files_kept, 1),
                DirDecision::Existing => self.others += 1,
                DirDecision::Made => {
                    self.others += 1;
                    if !self.is_new(&entry.path) {
                        self.made = Some(entry.path.clone());
                    }
                }
            }
        }
        Ok(())
    }

    /// Reports an error of one path and returns `None`; other errors end the restore.
    fn single<T>(&self, path: &[u8], result: Result<T, TargetError>) -> Result<Option<T>, RestoreError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_fatal(&error) => Err(error.into()),
            Err(error) if error.cause() == TargetCause::Damaged => {
                self.execution().damage(path, &with_causes(&error));
                Ok(None)
            }
            Err(error) => {
                self.execution().problem(path, &with_causes(&error));
                Ok(None)
            }
        }
    }

    /// Whether the path cannot have existed before.
    fn is_new(&self, path: &[u8]) -> bool {
        self.made.as_ref().is_some_and(|made| is_below(path, made))
    }

    fn file(&mut self, entry: Entry, data_offset: u64) -> Result<(), RestoreError> {
        let mut state = FileState::Waiting;
        let mut existing = None;
        // Trusting the existing content, or comparing with it, saves reading containers, so it
        // comes first.
        if !self.is_new(&entry.path) && self.target.existing_content(&entry).is_some() {
            self.window.is_over_existing = true;
            match self.single(&entry.path, self.execution().begin(&entry))? {
                Some(FileState::Settled) => {
                    self.context.progress.done(1, entry.stored_bytes());
                    return Ok(());
                }
                Some(begun) => state = begun,
                None => return Ok(()),
            }
        }
        if let FileState::Writing(writer) = &state {
            existing = Existing::of(writer);
        }
        let task = FileTask::new(entry, data_offset, state);
        let stored = task.stored;
        if stored == 0 {
            return self.empty_file(&task);
        }
        if self.target.options().dry_run && existing.is_none() && !self.options.estimate && !self.options.plan {
            return self.execution().would_write(&task, stored);
        }
        self.window.files.push(Arc::new(task));
        let mut from = 0;
        while from < stored {
            let file = self.window.files.len() as u32 - 1;
            let wanted = Wanted { file, stored, data_offset, from };
            let (existing, fingerprinter) = (existing.as_mut(), &self.execution.fingerprinter);
            let runs_max = self.budget.runs / self.share();
            match self.window.add_runs(&wanted, existing, fingerprinter, runs_max, &mut self.cursor) {
                Ok(added) => {
                    from = added.to;
                    if let Some(task) = self.window.files.last().filter(|_| added.kept > 0) {
                        add(&task.kept, added.kept);
                        self.execution().settle(&self.window.files[file as usize], added.kept)?;
                    }
                }
                Err(PlanError::Repository(error)) => {
                    let execution = self.execution();
                    let error = execution.expect_damage(error)?;
                    execution.lose_file(&self.window.files[file as usize], &error.to_string());
                    return Ok(());
                }
                Err(PlanError::Target(error)) => {
                    self.execution().only_fatal(&self.window.files[file as usize], Err(error))?;
                    return Ok(());
                }
            }
            if self.context.cancel.is_cancelled() {
                return Err(RestoreError::Interrupted);
            }
            if from < stored && self.window.is_full(&self.budget, self.share()) {
                self.flush_but_last()?;
            }
        }
        // A file that is right as a whole needs no place in the window.
        let file = self.window.files.len() as u32 - 1;
        if self.window.runs.last().is_none_or(|run| run.file != file) {
            self.window.files.pop();
        }
        Ok(())
    }

    fn empty_file(&self, task: &FileTask) -> Result<(), RestoreError> {
        let state = std::mem::replace(&mut *task.state.lock(), FileState::Settled);
        let result = match state {
            FileState::Writing(writer) => writer.finish(&task.entry).map(|()| match writer.is_touched() {
                true => PutDecision::Written,
                false => PutDecision::UpToDate,
            }),
            _ => self.target.put_file(&task.entry, &[]),
        };
        match self.single(&task.entry.path, result)? {
            Some(PutDecision::Written) => {
                add(&self.execution.counters.files_restored, 1);
                self.context.progress.item(&task.entry.path, ItemFate::Restored, 0);
            }
            Some(PutDecision::UpToDate) => add(&self.execution.counters.files_up_to_date, 1),
            Some(PutDecision::Kept(_)) => add(&self.execution.counters.files_kept, 1),
            None => {}
        }
        self.context.progress.done(1, 0);
        Ok(())
    }
}

fn get_count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Whether `path` is below `dir`; everything is below the empty path.
pub(super) fn is_below(path: &[u8], dir: &[u8]) -> bool {
    dir.is_empty() || (path.len() > dir.len() && path[dir.len()] == b'/' && path.starts_with(dir))
}
