//! The threads that commit and maintain a store beside its requests.
//!
//! An error or a panic of theirs is noted, and they go on. They end when their caller says so. The
//! one that commits ends last, so that a merge that still runs never holds up what was written.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::opened::{State, Store};
use super::problems::caught;
use crate::error::VolumeError;

/// The name of failures of commits in the background.
pub(crate) const COMMITS: &str = "commits";
const ANCHOR: &str = "anchor";
const MAINTENANCE: &str = "maintenance";

/// A thread that maintains the store.
struct Maintainer<'a>(&'a Store);

impl<'a> Maintainer<'a> {
    fn begin(store: &'a Store) -> Self {
        store.maintainers.fetch_add(1, Ordering::SeqCst);
        Self(store)
    }
}

impl Drop for Maintainer<'_> {
    fn drop(&mut self) {
        self.0.maintainers.fetch_sub(1, Ordering::SeqCst);
        let _state = self.0.state.lock();
        self.0.changed.notify_all();
    }
}

impl Store {
    /// Maintains the store again and again until `stop` says so, or [`Store::end_maintenance`].
    pub fn maintain_in_background(&self, every: Duration, stop: &dyn Fn() -> bool) {
        let _thread = Maintainer::begin(self);
        let ends = || stop() || self.interrupts.has_ended();
        while !ends() {
            match caught(|| self.maintain()) {
                Ok(collected) => {
                    self.problems.end(MAINTENANCE);
                    if collected.rounds > 0 {
                        tracing::info!("collected {} containers, {} bytes", collected.containers, collected.freed);
                    }
                }
                // Somebody closes the store.
                Err(VolumeError::Interrupted) => {}
                Err(error) => self.problems.note(MAINTENANCE, &error.to_string()),
            }
            let mut idle = self.idle.lock();
            if !ends() {
                self.woken.wait_for(&mut idle, every);
            }
        }
    }

    /// Commits in the background: when enough writes wait, and after `idle`. When `stop` says so
    /// and no thread maintains the store any more, it commits what waits, and ends.
    pub fn commit_in_background(&self, idle: Duration, stop: &dyn Fn() -> bool) {
        loop {
            let ends = stop() && self.maintainers.load(Ordering::SeqCst) == 0;
            let (is_due, is_idle) = {
                let mut state = self.state.lock();
                let is_enough = |state: &State| state.active.bytes >= self.options.commit_at;
                let waits = !ends && !is_enough(&state);
                let has_waited = waits && self.changed.wait_for(&mut state, idle).timed_out();
                (!state.active.blocks.is_empty(), has_waited)
            };
            if is_idle && !is_due {
                match caught(|| self.anchor_log()) {
                    Ok(()) => self.problems.end(ANCHOR),
                    Err(error) => self.problems.note(ANCHOR, &error.to_string()),
                }
            }
            let committed = if is_due { caught(|| self.commit_on(&mut self.committer.lock())?.any()) } else { Ok(()) };
            match &committed {
                _ if !is_due => {}
                Ok(()) => self.problems.end(COMMITS),
                Err(error) => self.problems.note(COMMITS, &error.to_string()),
            }
            if ends {
                return;
            }
            if committed.is_err() {
                let mut waiting = self.idle.lock();
                self.woken.wait_for(&mut waiting, idle);
            }
        }
    }
}

impl Store {
    /// Notes the last record of the log as durable, so that its loss is seen too. Does nothing
    /// while somebody commits: the next record notes it.
    pub fn anchor_log(&self) -> Result<(), VolumeError> {
        let Some(committer) = self.committer.try_lock() else { return Ok(()) };
        // A manifest notes all records that it covers. In a stopped store it is open what is
        // durable.
        if committer.manifest.log_from == committer.log.seq || self.stopped().is_some() {
            return Ok(());
        }
        committer.log.anchor.note_synced(committer.log.seq - 1)
    }
}
