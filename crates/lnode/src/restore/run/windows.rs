//! The windows of a restore: one is planned while the one before is executed.
//!
//! All of it happens in the order of the windows, apart from the writing of one. When a window was
//! written, its waiting runs are looked up and written too, its overwritten files are finished, and
//! then its links are made. If that takes further containers, the next window gives back its own
//! first: they may have all the memory.

use std::thread::Builder;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::Restore;
use crate::restore::RestoreError;
use crate::restore::execute::{Execution, Missing, Prepared};
use crate::restore::fetching::{FetchTask, Fetches};
use crate::restore::file_task::Run;
use crate::restore::handing::Kept;
use crate::restore::plan::Window;

/// The result of executing a window.
type Outcome = Result<Option<Missing>, RestoreError>;

/// The thread that executes windows.
pub(super) struct Writer {
    windows: Sender<(Prepared, bool)>,
    written: Receiver<(Prepared, Outcome)>,
    is_busy: bool,
}

/// A restore with a writer, which ends with it in any case, also after a panic.
struct Writing<'r, 'a>(&'r mut Restore<'a>);

impl Drop for Writing<'_, '_> {
    fn drop(&mut self) {
        // After a failure, a window may be under way; otherwise all are written.
        self.0.execution.abandon();
        self.0.execution.handing.lock().clear();
        self.0.writer = None;
    }
}

impl Restore<'_> {
    /// Writes everything but the times of directories.
    pub(super) fn write_all(&mut self) -> Result<(), RestoreError> {
        if !self.execution.overlaps() {
            return self.write_entries();
        }
        let execution = self.execution.clone();
        std::thread::scope(|scope| {
            let (windows, to_write) = bounded(1);
            let (out, written) = bounded(1);
            let started = Builder::new().spawn_scoped(scope, move || write(&execution, &to_write, &out));
            // Without a thread, each window is executed before the next one is planned.
            self.writer = started.is_ok().then_some(Writer { windows, written, is_busy: false });
            let writing = Writing(self);
            writing.0.begin_early();
            writing.0.write_entries()
        })
    }

    /// Requests containers before the recipe is read, by the manifest alone: those that are needed
    /// in any case, if one window needs them all.
    fn begin_early(&mut self) {
        if !self.root.subpath.is_empty() || self.options.selection.is_some() {
            return;
        }
        self.reader.fetch_metadata_ahead();
        let manifest = self.reader.manifest();
        let chunks: u64 = manifest.data.nodes.iter().map(|node| node.chunks).sum();
        let statistics = &manifest.summary.statistics;
        let files = statistics.files_new + statistics.files_changed + statistics.files_unmodified + statistics.others;
        if chunks >= self.budget.runs as u64 || files >= self.budget.files as u64 || !self.target.is_empty() {
            return;
        }
        let whole = self.reader.read_whole().into_iter();
        let fetcher = &self.execution.fetcher;
        let task = |(id, bytes)| FetchTask { id, ranges: None, bytes, pieces: fetcher.pieces(bytes) };
        let tasks = whole.map(task).collect();
        let mut fetches = Fetches::new();
        fetcher.ask(&mut fetches, tasks);
        self.early = Some(fetches);
    }

    /// The part of the budget for the window that is being planned: one in this number. Another one
    /// may be under way, and the first was planned with all of it. An estimate has the same
    /// windows.
    pub(super) fn share(&self) -> usize {
        let overlaps = match self.target.options().dry_run {
            true => self.execution.would_overlap(),
            false => self.writer.is_some(),
        };
        if self.has_begun && overlaps { 2 } else { 1 }
    }

    pub(super) fn flush_if_full(&mut self) -> Result<(), RestoreError> {
        if !self.window.is_full(&self.budget, self.share()) {
            return Ok(());
        }
        let mut window = std::mem::take(&mut self.window);
        window.goes_on = self.may_go_on(&window);
        self.hand_over(window)
    }

    /// Whether the next window is likely to need the rest of the containers of this one.
    fn may_go_on(&self, window: &Window) -> bool {
        self.options.selection.is_none() && !window.is_over_existing
    }

    /// Hands the window over in the middle of its last file, which stays open for the next.
    pub(super) fn flush_but_last(&mut self) -> Result<(), RestoreError> {
        let mut window = std::mem::take(&mut self.window);
        self.window.files.extend(window.files.last().cloned());
        // Links wait for the file.
        self.window.links = std::mem::take(&mut window.links);
        window.goes_on = self.may_go_on(&window);
        self.window.is_over_existing = window.is_over_existing;
        self.hand_over(window)
    }

    /// Writes everything that is planned.
    pub(super) fn flush_all(&mut self) -> Result<(), RestoreError> {
        loop {
            let window = std::mem::take(&mut self.window);
            if window.files.is_empty() && window.links.is_empty() {
                self.complete()?;
                // Files without runs may have been cut only.
                self.finish_overwritten()?;
            } else {
                self.hand_over(window)?;
            }
            if self.links.is_empty() && self.writer.as_ref().is_none_or(|writer| !writer.is_busy) {
                return Ok(());
            }
            self.make_links()?;
        }
    }

    /// Makes the links whose files are written.
    pub(super) fn make_links(&mut self) -> Result<(), RestoreError> {
        while let Some(link) = self.links.pop_front() {
            self.link(link)?;
            self.flush_if_full()?;
        }
        Ok(())
    }

    /// Completes the window before, and begins to write this one.
    fn hand_over(&mut self, window: Window) -> Result<(), RestoreError> {
        self.has_begun = true;
        let before = std::mem::take(&mut self.kept);
        let mut prepared = self.prepare(window, Vec::new(), &before);
        if let Some((written, outcome)) = self.written() {
            self.execution.handing.lock().withdraw();
            let outcome = outcome?;
            if outcome.is_none() && written.waiting.is_empty() {
                self.finish(written, outcome)?;
            } else {
                let (window, waiting) = prepared.withdrawn();
                self.finish(written, outcome)?;
                prepared = self.prepare(window, waiting, &before.following());
            }
        }
        self.execution.handing.lock().withdraw();
        self.execution.ask_rest(&mut prepared);
        self.kept = prepared.kept.clone();
        let stops = !self.cursor.reader().chunks().moved().has_gone();
        match &mut self.writer {
            Some(writer) => {
                writer.is_busy = writer.windows.send((prepared, stops)).is_ok();
                if writer.is_busy { Ok(()) } else { Err(RestoreError::Interrupted) }
            }
            None => {
                let outcome = self.execution.run(&mut prepared, stops)?;
                self.finish(prepared, outcome)
            }
        }
    }

    /// Waits for the window before, if there is one, and completes it.
    fn complete(&mut self) -> Result<(), RestoreError> {
        match self.written() {
            Some((written, outcome)) => self.finish(written, outcome?),
            None => Ok(()),
        }
    }

    /// The window that was being written, and the result.
    fn written(&mut self) -> Option<(Prepared, Outcome)> {
        let writer = self.writer.as_mut().filter(|writer| writer.is_busy)?;
        writer.is_busy = false;
        writer.written.recv().ok()
    }

    fn prepare(&mut self, mut window: Window, mut waiting: Vec<Run>, before: &Kept) -> Prepared {
        let moved = self.cursor.reader().chunks().moved();
        waiting.extend(window.take_gone(|id| moved.is_gone(id)));
        self.execution.prepare(window, self.early.take(), waiting, before)
    }

    /// Completes a written window.
    fn finish(&mut self, written: Prepared, outcome: Option<Missing>) -> Result<(), RestoreError> {
        let (mut window, waiting) = written.withdrawn();
        let links = std::mem::take(&mut window.links);
        self.write_rest(window, waiting, outcome)?;
        self.finish_overwritten()?;
        self.links.extend(links);
        Ok(())
    }

    /// Finishes files that were written over, as far as they are complete.
    fn finish_overwritten(&self) -> Result<(), RestoreError> {
        for (path, error) in self.target.finish_overwritten()? {
            self.single(&path, Err::<(), _>(error))?;
        }
        Ok(())
    }

    /// Writes the runs of a window whose containers were not found. Chunks are looked up in the
    /// index before they count as lost.
    ///
    /// The first missing container ends the first look: then the index tells which others are gone.
    /// Their chunks wait, and are planned when the rest is written. One question to the index
    /// resolves all of them, or several questions if they exceed a window.
    fn write_rest(
        &mut self,
        mut window: Window,
        mut waiting: Vec<Run>,
        mut outcome: Option<Missing>,
    ) -> Result<(), RestoreError> {
        let chunks = self.cursor.reader().chunks().clone();
        let moved = chunks.moved();
        loop {
            if let Some(Missing { runs, containers, error, postponed }) = outcome {
                waiting.extend(postponed);
                if moved.learn(containers)? {
                    self.cursor.read_again();
                    self.resolving.read_again();
                    waiting.extend(runs);
                } else {
                    let error = self.execution.expect_damage(error)?;
                    self.execution.lose(&window, &runs, &error);
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            self.execution.handing.lock().clear();
            self.redirect(&mut window, &mut waiting)?;
            let stops = !moved.has_gone();
            let mut prepared = self.execution.prepare_alone(window);
            outcome = self.execution.run(&mut prepared, stops)?;
            window = prepared.withdrawn().0;
        }
    }

    /// Plans waiting runs by the present places of their chunks, as many as the window has room
    /// for. Runs with unknown places are lost.
    fn redirect(&mut self, window: &mut Window, waiting: &mut Vec<Run>) -> Result<(), RestoreError> {
        // The last comes first.
        waiting.sort_unstable_by_key(|run| std::cmp::Reverse((run.file, run.at)));
        self.expect(window, waiting)?;
        window.take_runs();
        while window.runs.len() < self.budget.runs
            && let Some(run) = waiting.pop()
        {
            if let Err(error) = window.redirect(&run, &mut self.resolving, &self.execution.fingerprinter) {
                let error = self.execution().expect_damage(error)?;
                self.execution().lose(window, &[run], &error);
            }
        }
        waiting.shrink_to_fit();
        Ok(())
    }

    /// Announces the segments of these runs. The last run is the first in the stream.
    fn expect(&mut self, window: &Window, runs: &[Run]) -> Result<(), RestoreError> {
        let mut segments: Vec<std::ops::Range<u32>> = Vec::new();
        for run in runs.iter().rev() {
            let offset = window.offset_of(run);
            let mut at = |offset| match self.resolving.reader().segment_at(offset) {
                Ok(found) => Ok(found.map(|(segment, _)| segment)),
                // The planning of the run will report the error.
                Err(error) if error.is_damage() => Ok(None),
                Err(error) => Err(error),
            };
            let ends = (at(offset)?, at(offset + u64::from(run.length).saturating_sub(1))?);
            let (Some(first), Some(last)) = ends else { continue };
            match segments.last_mut() {
                Some(before) if before.end >= first => before.end = before.end.max(last + 1),
                _ => segments.push(first..last + 1),
            }
        }
        self.resolving.reader().expect_these(&segments);
        Ok(())
    }
}

/// Executes windows until there are no more.
fn write(execution: &Execution<'_>, windows: &Receiver<(Prepared, bool)>, out: &Sender<(Prepared, Outcome)>) {
    for (mut prepared, stops) in windows {
        let outcome = execution.run(&mut prepared, stops);
        // Fails when the restore has ended with an error.
        let _ = out.send((prepared, outcome));
    }
}
