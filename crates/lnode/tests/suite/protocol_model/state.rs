//! The state of the model: what lies in the bucket, where each process stands, and what history the invariants need.

use stateright::Representative;

use crate::protocol_model::collector::Collector;
use crate::protocol_model::job::JobState;
use crate::protocol_model::sets::{CONTAINERS_MAX, Containers, JOBS_MAX, Jobs};

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
    /// Deletes of containers that were retired, by an index that was lost since. The store may apply them at any time.
    pub(crate) deletes_in_flight: Containers,
    /// The newest index.
    pub(crate) index: Index,
}

/// For each container where its chunks are now, if they were moved: by fingerprint, so one hop.
pub(crate) type Forwards = [Option<u8>; CONTAINERS_MAX];

/// What the newest index says. Its number is not drawn: who does not build on the newest index cannot publish.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Index {
    pub(crate) forwards: Forwards,
    /// Containers whose chunks were moved, and which anybody may delete now.
    pub(crate) reclaimed: Containers,
    /// Containers that were there when the index was rebuilt.
    pub(crate) copies: Containers,
    /// It was rebuilt.
    pub(crate) is_rebuilt: bool,
    /// What the rebuild looked for and did not find.
    pub(crate) searched: Containers,
    /// What it could not read, and keeps.
    pub(crate) unread: Containers,
    /// Only without [`crate::protocol_model::rules::Rule::LaterReferencesInherit`]: versions that were there when a redirect was published.
    pub(crate) ingested: Jobs,
}

impl Index {
    /// Everything that `manifest` needs, with the places where its chunks are now.
    pub(crate) fn closure(&self, manifest: Containers) -> Containers {
        manifest
            .iter()
            .filter_map(|old| self.forwards[old])
            .fold(manifest, |all, new| all.union(Containers::at(new.into())))
    }
}

/// Whether all chunks of `wanted` are found in `containers`, with the help of an index.
pub(crate) fn resolves(wanted: Containers, forwards: &Forwards, containers: Containers) -> bool {
    wanted.iter().all(|old| {
        let moved = forwards[old].is_some_and(|new| Containers::at(new.into()).within(containers));
        Containers::at(old).within(containers) || moved
    })
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
    /// Compactions whose generation somebody else decided: they are over, whatever they do.
    pub(crate) taken: Jobs,
    /// Generations that cannot be read any more. What passes know of them they have from the index.
    pub(crate) rotten: Jobs,
    /// The index was lost and rebuilt.
    pub(crate) rebuilt: bool,
    /// Readers that reported something as lost.
    pub(crate) alarmed: Jobs,
    /// Without [`crate::protocol_model::rules::Rule::OwnRegister`]: compactions whose number of the index somebody took.
    pub(crate) void: Jobs,
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
}

impl Representative for State {
    /// G-nodes are alike, so their order does not matter.
    fn representative(&self) -> Self {
        let mut same = self.clone();
        same.g_nodes.sort_unstable();
        same
    }
}
