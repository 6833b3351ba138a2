//! Opened objects that are kept for the next lookup.

use std::sync::Arc;

use larder_format::ids::RunId;
use larder_store::byte_lru::ByteLru;
use parking_lot::Mutex;

use crate::io::OpenedRun;

/// Fences and filters, up to a number of bytes; the least recently used go first.
pub(super) struct OpenedRuns(Mutex<ByteLru<RunId, Arc<OpenedRun>>>);

impl std::fmt::Debug for OpenedRuns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.lock().fmt(f)
    }
}

impl OpenedRuns {
    pub(super) fn new(budget: usize) -> Self {
        Self(Mutex::new(ByteLru::new(budget)))
    }

    pub(super) fn get(&self, id: RunId) -> Option<Arc<OpenedRun>> {
        self.0.lock().get(&id)
    }

    pub(super) fn put(&self, id: RunId, run: Arc<OpenedRun>) {
        let bytes = run.bytes_held();
        self.0.lock().put(id, run, bytes);
    }
}
