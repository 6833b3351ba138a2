//! Stopping merges and rounds of collection: they take minutes, and a server must end at once.
//!
//! Whatever they read for a merge passes through [`Watched`], which ends with an error when they
//! are to stop. Their files go with the values that name them, and the store is as it was.

use std::sync::Arc;

use larder_format::ids::PageRunId;

use super::interrupts::Interrupts;
use super::opened::Store;
use super::problems::DamagedRuns;
use crate::error::VolumeError;
use crate::index::{Record, RunFile, Scan, Source};

/// The records of a run, for a merge that can be stopped. Notes damage of the run.
struct Watched {
    scan: Scan,
    id: PageRunId,
    interrupts: Interrupts,
    damaged: Arc<DamagedRuns>,
}

impl Iterator for Watched {
    type Item = Result<Record, VolumeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.interrupts.expect_none() {
            return Some(Err(error));
        }
        let record = self.scan.next();
        if let Some(Err(error @ VolumeError::Damaged { .. })) = &record {
            self.damaged.note(self.id, error);
        }
        record
    }
}

impl Store {
    /// Stops a running merge or round of collection, and lets none begin. The thread that maintains
    /// the store ends. For the end of a server: nothing takes it back.
    pub fn end_maintenance(&self) {
        self.interrupts.end();
        // With the locks, so that no thread looks before this and waits after it.
        {
            let _idle = self.idle.lock();
            self.woken.notify_all();
        }
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// An error if merges and rounds must stop.
    pub(super) fn expect_no_interrupt(&self) -> Result<(), VolumeError> {
        self.interrupts.expect_none()
    }

    /// All records of a run, for work that takes long.
    pub(crate) fn watched(&self, run: &Arc<RunFile>) -> Source {
        let (interrupts, damaged) = (self.interrupts.clone(), self.damaged.clone());
        Box::new(Watched { scan: run.scan(&[]), id: run.id(), interrupts, damaged })
    }
}
