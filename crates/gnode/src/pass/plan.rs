//! The deletions of a pass, in numbers.

use larder_format::ids::{ByteCount, JobId};
use larder_lifecycle::arrange::ArrangePlan;

use super::task::TaskPlan;
use crate::reclaim::{ReclaimPlan, ReclaimReport};

/// The deletions of the pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Data containers.
    pub data_containers: u64,
    /// Metadata containers.
    pub meta_containers: u64,
    /// Bytes of all containers.
    pub container_bytes: ByteCount,
    /// Forgotten versions that are then removed completely.
    pub versions: u64,
    /// Objects of jobs: leases, registers, marks, pins; and replaced settings.
    pub entries: u64,
    /// Objects of the index that are not used any more.
    pub index_objects: u64,
    /// Versions that the index does not know yet.
    pub versions_ingested: u64,
    /// Containers that it does not know yet, whose tables are read.
    pub new_containers: u64,
    /// Jobs that were aborted, or would be.
    pub fenced: Vec<AbortedJob>,
    /// Containers that versions name, and that are retired because the index redirects readers to
    /// other copies of their chunks.
    pub reclaimed: ReclaimPlan,
    /// The arranging, as far as a dry run knows. For any other pass,
    /// [`PassReport::arranged`](super::PassReport::arranged) has the result.
    pub arranging: ArrangePlan,
}

impl Plan {
    /// Adds the plans of tasks.
    pub(super) fn add_tasks(&mut self, tasks: Vec<TaskPlan>) {
        for task in tasks {
            match task {
                TaskPlan::Reclaim(plan) => self.reclaimed = plan,
                TaskPlan::Arrange(plan) => self.arranging = plan,
            }
        }
    }

    /// Notes the plans of tasks that ran.
    pub(super) fn note_done(&mut self, reclaimed: &ReclaimReport) {
        self.reclaimed = reclaimed.plan;
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.deletions() == 0 && self.versions_ingested == 0 && self.arranging.is_empty()
    }

    /// Objects to be deleted.
    pub fn deletions(&self) -> u64 {
        self.data_containers
            + self.meta_containers
            + self.reclaimed.containers
            + self.arranging.containers
            + self.entries
            + self.index_objects
    }
}

/// A job that a pass aborts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedJob {
    /// Its id.
    pub job: JobId,
    /// Whether its lease says that its process ended. If not, it had no heartbeat for too long.
    pub has_ended: bool,
}
