//! How the files of a restore end: written, lost, or left for later. Each is counted and reported
//! once.

use std::sync::atomic::Ordering;

use larder_format::ids::ContainerId;
use larder_job::{Activity, ItemFate, Problem};
use larder_reader::{Reading, is_missing};
use larder_source::target::{TargetCause, TargetError};
use larder_store::RepositoryError;

use super::{Execution, add};
use crate::restore::RestoreError;
use crate::restore::file_task::{FileState, FileTask, Run};
use crate::restore::plan::Window;

impl Execution<'_> {
    /// Counts `bytes` of the file as done; the last of them finish it.
    pub(in crate::restore) fn settle(&self, task: &FileTask, bytes: u64) -> Result<(), RestoreError> {
        self.context.progress.done(0, bytes);
        if task.remaining.fetch_sub(bytes, Ordering::AcqRel) != bytes {
            return Ok(());
        }
        self.context.progress.current(&task.entry.path);
        self.context.progress.done(1, 0);
        if task.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let state = std::mem::replace(&mut *task.state.lock(), FileState::Settled);
        if let FileState::Writing(writer) = state {
            let result = writer.finish(&task.entry);
            match &result {
                Ok(()) if writer.has_changed() => self.restored(task),
                Ok(()) => add(&self.counters.files_up_to_date, 1),
                Err(_) => {}
            }
            return self.only_fatal(task, result);
        }
        Ok(())
    }

    pub(in crate::restore) fn restored(&self, task: &FileTask) {
        add(&self.counters.files_restored, 1);
        add(&self.counters.bytes_restored, task.stored - task.kept.load(Ordering::Relaxed));
        self.context.progress.item(&task.entry.path, ItemFate::Restored, task.stored);
    }

    /// See [`expect_damage`].
    pub(in crate::restore) fn expect_damage(&self, error: RepositoryError) -> Result<RepositoryError, RestoreError> {
        expect_damage(self.reading, error)
    }

    /// Abandons the files of these runs.
    pub(in crate::restore) fn lose(&self, window: &Window, runs: &[Run], error: &RepositoryError) {
        for run in runs {
            let task = &window.files[run.file as usize];
            self.lose_file(task, &error.to_string());
            // Cannot fail: a failed file is not finished.
            let _ = self.settle(task, u64::from(run.length));
        }
    }

    /// Abandons the files of these runs for now: their container is in cold storage.
    pub(in crate::restore) fn leave_cold(&self, window: &Window, runs: &[Run], container: ContainerId) {
        self.counters.cold.lock().insert(container);
        for run in runs {
            let task = &window.files[run.file as usize];
            if !task.failed.swap(true, Ordering::Relaxed) {
                add(&self.counters.cold_files, 1);
                self.context.progress.item(&task.entry.path, ItemFate::Cold, task.stored);
            }
            // Cannot fail: a failed file is not finished.
            let _ = self.settle(task, u64::from(run.length));
        }
    }

    /// Abandons a file, once.
    pub(in crate::restore) fn fail(&self, task: &FileTask, message: &str) {
        if !task.failed.swap(true, Ordering::Relaxed) {
            self.problem(&task.entry.path, message);
        }
    }

    /// Abandons a file because of damage, once.
    pub(in crate::restore) fn lose_file(&self, task: &FileTask, message: &str) {
        if !task.failed.swap(true, Ordering::Relaxed) {
            self.damage(&task.entry.path, message);
        }
    }

    /// Reports a path that the repository has lost.
    pub(in crate::restore) fn damage(&self, path: &[u8], message: &str) {
        add(&self.counters.damaged, 1);
        self.report(path, Activity::Fetch, message);
    }

    pub(in crate::restore) fn problem(&self, path: &[u8], message: &str) {
        self.report(path, Activity::Restore, message);
    }

    fn report(&self, path: &[u8], during: Activity, message: &str) {
        add(&self.counters.errors, 1);
        let problem = Problem { path: path.to_vec(), during, message: message.to_owned() };
        self.context.progress.problem(&problem);
    }

    pub(in crate::restore) fn only_fatal(
        &self,
        task: &FileTask,
        result: Result<(), TargetError>,
    ) -> Result<(), RestoreError> {
        match result {
            Ok(()) => Ok(()),
            Err(error) if is_fatal(&error) => Err(error.into()),
            Err(error) if error.cause() == TargetCause::Damaged => {
                self.lose_file(task, &with_causes(&error));
                Ok(())
            }
            Err(error) => {
                self.fail(task, &with_causes(&error));
                Ok(())
            }
        }
    }
}

/// Passes damage on. Any other error ends the restore, and so does a version that is gone as a
/// whole.
pub(in crate::restore) fn expect_damage(
    reading: &Reading,
    error: RepositoryError,
) -> Result<RepositoryError, RestoreError> {
    if !error.is_damage() {
        return Err(error.into());
    }
    if is_missing(&error) {
        reading.expect_there()?;
    }
    Ok(error)
}

/// Whether the restore cannot continue: no space, or the whole target fails.
pub(in crate::restore) fn is_fatal(error: &TargetError) -> bool {
    matches!(error.cause(), TargetCause::Full | TargetCause::Unusable)
}

/// An error with its causes on one line.
pub(in crate::restore) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
