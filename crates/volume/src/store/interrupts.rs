//! [`Interrupts`]: reasons to stop merges and rounds of collection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::VolumeError;

/// Whether there is a reason to stop merges and rounds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Interrupts(Arc<Reasons>);

#[derive(Debug, Default)]
struct Reasons {
    /// The store is not maintained any more.
    has_ended: AtomicBool,
    /// Threads that do not want to wait for a merge.
    pauses: AtomicUsize,
}

impl Interrupts {
    /// Whether merges must stop.
    pub(crate) fn are_there(&self) -> bool {
        self.has_ended() || self.0.pauses.load(Ordering::SeqCst) > 0
    }

    /// Whether the store is not maintained any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::SeqCst)
    }

    /// An error if merges must stop.
    pub(super) fn expect_none(&self) -> Result<(), VolumeError> {
        if self.are_there() { Err(VolumeError::Interrupted) } else { Ok(()) }
    }

    /// Stops merges from now on.
    pub(super) fn end(&self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
    }

    /// Stops merges as long as the value lives.
    pub(super) fn pause(&self) -> Pause {
        self.0.pauses.fetch_add(1, Ordering::SeqCst);
        Pause(self.clone())
    }
}

/// No merge goes on as long as it lives.
pub(super) struct Pause(Interrupts);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.0.pauses.fetch_sub(1, Ordering::SeqCst);
    }
}
