//! What work in the background failed at. It is told once to the log, and [`Store::stats`] shows it
//! until the work succeeds again.
//!
//! [`Store::stats`]: super::Store::stats

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use larder_format::ids::PageRunId;
use parking_lot::Mutex;

use crate::error::VolumeError;
use crate::index::{RunFile, run_path};

/// The problems that there are now, by the work or the file that they concern.
#[derive(Debug, Default)]
pub(crate) struct Problems(Mutex<BTreeMap<String, String>>);

impl Problems {
    /// Work failed. The log gets it unless it is the same as before.
    pub(crate) fn note(&self, what: &str, why: &str) {
        let mut known = self.0.lock();
        if known.get(what).is_none_or(|known| known != why) {
            tracing::error!("{what}: {why}");
            known.insert(what.to_owned(), why.to_owned());
        }
    }

    /// The work succeeded.
    pub(crate) fn end(&self, what: &str) {
        if let Some(why) = self.0.lock().remove(what) {
            tracing::info!("{what}: no longer: {why}");
        }
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<String> {
        self.0.lock().iter().map(|(what, why)| format!("{what}: {why}")).collect()
    }
}

/// Runs with a damaged page. They are not merged, and merges of other runs go around them.
#[derive(Default)]
pub(crate) struct DamagedRuns {
    runs: Mutex<BTreeSet<[u8; 16]>>,
    problems: Arc<Problems>,
}

impl DamagedRuns {
    pub(crate) fn new(problems: Arc<Problems>) -> Self {
        Self { runs: Mutex::default(), problems }
    }

    pub(crate) fn note(&self, run: PageRunId, error: &VolumeError) {
        if self.runs.lock().insert(run.0) {
            self.problems.note(&run_path(run), &format!("{error}; the run is not merged"));
        }
    }

    pub(crate) fn has(&self, run: PageRunId) -> bool {
        self.runs.lock().contains(&run.0)
    }

    pub(crate) fn count(&self) -> usize {
        self.runs.lock().len()
    }

    /// Forgets runs that are gone.
    pub(crate) fn retain<'a>(&self, runs: impl Iterator<Item = &'a Arc<RunFile>>) {
        let left: BTreeSet<[u8; 16]> = runs.map(|run| run.id().0).collect();
        self.runs.lock().retain(|run| {
            let stays = left.contains(run);
            if !stays {
                self.problems.end(&run_path(PageRunId(*run)));
            }
            stays
        });
    }
}

/// Does work of a thread that must not end. A panic becomes an error with its message.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, VolumeError>) -> Result<T, VolumeError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(VolumeError::Bug(text_of(&*panic))))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}
