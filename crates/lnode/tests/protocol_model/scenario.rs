//! What may happen in one run of the checker: which jobs there are, what they want, and what may go wrong.

use crate::sets::Jobs;

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Uploads containers and commits a version.
    Backup,
    /// Restore or check: reads the version named as its base, commits nothing.
    Reader,
}

/// How far a job has come when the scenario begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Nothing of it exists.
    Nothing,
    /// Its lease and all its containers exist; it may be dead, or slow and about to commit.
    Uploaded,
    /// It committed and closed its lease, of which only `done` is left.
    Closed,
}

/// One job of a scenario. Stopping for good needs no action: every prefix of its steps is explored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) start: Start,
    /// The version it names as base, or reads.
    pub(crate) base: Option<usize>,
    /// The jobs whose containers it wants to reuse. Ascending order of checks.
    pub(crate) adopts: Jobs,
    /// Containers it uploads and references.
    pub(crate) used: usize,
    /// Containers it uploads after those and does not reference (their file changed while it was read).
    pub(crate) left_over: usize,
}

impl Plan {
    /// A backup without base that uploads one container.
    pub(crate) const BACKUP: Self =
        Self { kind: Kind::Backup, start: Start::Nothing, base: None, adopts: Jobs(0), used: 1, left_over: 0 };

    /// A version that lies in the repository from the start.
    pub(crate) const VERSION: Self = Self { start: Start::Closed, ..Self::BACKUP };

    /// A restore or check of `version`.
    pub(crate) const fn reader(version: usize) -> Self {
        Self { kind: Kind::Reader, base: Some(version), used: 0, ..Self::BACKUP }
    }

    /// The same job with a base.
    pub(crate) const fn on(self, base: usize) -> Self {
        Self { base: Some(base), ..self }
    }

    /// The same job, adopting others.
    pub(crate) fn adopting(self, jobs: &[usize]) -> Self {
        Self { adopts: Jobs::of(jobs), ..self }
    }
}

/// The bounds of one exploration.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) jobs: Vec<Plan>,
    /// How many G-nodes run. Each starts pass after pass and may stop at any step.
    pub(crate) g_nodes: usize,
    /// Versions a user may forget, once they were committed.
    pub(crate) forgettable: Jobs,
    /// Jobs whose lease some G-node may find expired, at any moment.
    pub(crate) expirable: Jobs,
    /// Jobs whose first create of the register may stay without an answer, and be applied at any later moment.
    pub(crate) unanswered_commit: Jobs,
    /// Jobs whose first create of `jobs/<job>/0` may do the same.
    pub(crate) unanswered_lease: Jobs,
    /// G-nodes also fence on leases they listed long ago, after the register was removed.
    pub(crate) late_fences: bool,
}

impl Scenario {
    /// Every backup may be found expired, every version forgotten, every create is answered.
    pub(crate) fn new(jobs: &[Plan], g_nodes: usize) -> Self {
        let backups: Vec<_> = (0..jobs.len()).filter(|job| jobs[*job].kind == Kind::Backup).collect();
        Self {
            jobs: jobs.to_vec(),
            g_nodes,
            forgettable: Jobs::of(&backups),
            expirable: Jobs::of(&backups),
            unanswered_commit: Jobs::default(),
            unanswered_lease: Jobs::default(),
            late_fences: false,
        }
    }
}
