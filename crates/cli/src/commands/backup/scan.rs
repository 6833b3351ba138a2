//! Counts files and bytes while the backup runs, to estimate the remaining time: a second walk that
//! opens nothing.
//!
//! Only started when progress is shown. It may lag behind or see a changing tree: then only the
//! estimate is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use larder_job::Progress;
use larder_source::{Item, Walk};

/// Entries announced at once.
const BATCH: u64 = 256;

/// A walk that counts; dropping it stops it.
pub(super) struct Scan {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scan {
    /// Starts to count.
    pub(super) fn start(walk: Walk, progress: Arc<dyn Progress>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let count = {
            let stop = stop.clone();
            move || count(walk, &*progress, &stop)
        };
        // Without this thread there is only no estimate.
        let thread = std::thread::Builder::new().name("scan".to_owned()).spawn(count).ok();
        Self { stop, thread }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It panicked: the hook has reported it, and the backup is unaffected.
            let _ = thread.join();
        }
    }
}

fn count(walk: Walk, progress: &dyn Progress, stop: &AtomicBool) {
    let (mut entries, mut bytes) = (0, 0_u64);
    for item in walk {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if let Item::Found(found) = item {
            entries += 1;
            bytes = bytes.saturating_add(found.entry.size());
        }
        if entries == BATCH {
            progress.expect(entries, bytes);
            (entries, bytes) = (0, 0);
        }
    }
    progress.expect(entries, bytes);
    progress.expectation_is_complete();
}
