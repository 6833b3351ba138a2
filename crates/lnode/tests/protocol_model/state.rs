//! The state of the model: what lies in the bucket, where each process stands, and what history the invariants need.

use stateright::Representative;

use crate::collector::Collector;
use crate::job::JobState;
use crate::sets::{Containers, JOBS_MAX, Jobs};

/// The commit register `versions/<series>/<job>/0`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Register {
    #[default]
    Absent,
    Aborted,
    /// The job's manifest; [`History::manifests`] has what it references, because content outlives its key in memory.
    Manifest,
}

/// The lease of one job. Renewals are not drawn: they change when a lease is *thought* expired, which the model leaves
/// open anyway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    /// `jobs/<job>/0` exists.
    pub(crate) first: bool,
    /// `jobs/<job>/done` exists.
    pub(crate) done: bool,
}

impl Lease {
    pub(crate) fn open(self) -> bool {
        self.first && !self.done
    }

    pub(crate) fn absent(self) -> bool {
        !self.first && !self.done
    }
}

/// The bucket. Creating, reading and deleting one object is atomic; listing several is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bucket {
    pub(crate) containers: Containers,
    pub(crate) leases: [Lease; JOBS_MAX],
    pub(crate) registers: [Register; JOBS_MAX],
    /// `forgotten/<series>/<job>`
    pub(crate) forgotten: Jobs,
    /// Unanswered creates of `jobs/<job>/0` that the store may still apply.
    pub(crate) leases_in_flight: Jobs,
    /// Unanswered creates of commit registers that the store may still apply.
    pub(crate) commits_in_flight: Jobs,
}

/// What happened so far, kept for the invariants only; no process reads it, except [`History::manifests`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct History {
    /// What the manifest of each job references, from its first attempt to commit.
    pub(crate) manifests: [Containers; JOBS_MAX],
    /// Jobs whose manifest was in their register at some time.
    pub(crate) committed: Jobs,
    /// Jobs whose register was `aborted` at some time.
    pub(crate) aborted: Jobs,
    /// Jobs whose register was removed at some time.
    pub(crate) removed: Jobs,
    /// Jobs whose version was marked forgotten at some time.
    pub(crate) forgotten: Jobs,
    /// Readers whose lease a G-node took for expired.
    pub(crate) expired_readers: Jobs,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) bucket: Bucket,
    pub(crate) jobs: Vec<JobState>,
    pub(crate) g_nodes: Vec<Collector>,
    pub(crate) history: History,
}

impl State {
    /// What the manifest of `job` references.
    pub(crate) fn manifest(&self, job: usize) -> Containers {
        self.history.manifests[job]
    }

    /// A version is visible when its manifest is in its register and no mark forgets it.
    pub(crate) fn visible(&self, job: usize) -> bool {
        self.bucket.registers[job] == Register::Manifest && !self.bucket.forgotten.has(job)
    }

    /// What all visible versions reference.
    pub(crate) fn referenced(&self) -> Containers {
        (0..self.jobs.len())
            .filter(|job| self.visible(*job))
            .fold(Containers::default(), |all, job| all.union(self.manifest(job)))
    }
}

impl Representative for State {
    /// G-nodes are alike, so their order does not matter.
    fn representative(&self) -> Self {
        let mut same = self.clone();
        same.g_nodes.sort_unstable();
        same
    }
}
