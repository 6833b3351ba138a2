//! The result of a pass.

use larder_format::ids::{ByteCount, ContainerId, JobId};
use larder_format::lease::{JobKind, Pin};
use larder_lifecycle::arrange::Arranged;

use super::cost::Requests;
use super::plan::Plan;
use super::prove::{Unproved, WhyUnproved};
use super::task::TaskReport;
use crate::reclaim::ReclaimReport;

/// Uploads that no snapshot needs, of a backup without an end: it runs, or its process was killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenUploads {
    /// The backup.
    pub job: JobId,
    /// Where it runs, or ran.
    pub host: String,
    /// Containers that it uploaded so far.
    pub containers: u64,
    /// Their bytes.
    pub bytes: ByteCount,
    /// When it last renewed its lease, milliseconds since the epoch by the store's clock.
    pub renewed_ms: u64,
}

/// Space that is not needed and not freed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingSpace {
    /// Containers of interrupted, failed or aborted jobs that no index ever had.
    pub containers: u64,
    /// Their bytes.
    pub bytes: ByteCount,
    /// When all of it is old enough, milliseconds since the epoch by the store's clock; `u64::MAX`:
    /// the store does not tell ages.
    pub until_ms: u64,
}

impl WaitingSpace {
    pub(super) fn add(&mut self, bytes: u64, until_ms: u64) {
        self.containers += 1;
        self.bytes.0 += bytes;
        self.until_ms = self.until_ms.max(until_ms);
    }
}

/// A forgotten version that stays for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The version.
    pub version: Pin,
    /// A job that builds on it or reads it.
    pub by: JobId,
    /// The kind of that job.
    pub kind: JobKind,
    /// Where it runs.
    pub host: String,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It only looked.
    Planned,
    /// There was nothing to do, and so nothing was published.
    Nothing,
    /// It published this index, and executed it.
    Published(u64),
    /// Another pass was faster. It did nothing.
    Lost,
    /// It was told to stop, or its time was over, before it published anything. It did nothing.
    Stopped,
}

/// The deletions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Containers.
    pub containers: u64,
    /// Their bytes.
    pub container_bytes: ByteCount,
    /// Objects of jobs and of the index.
    pub entries: u64,
}

/// An object that a pass meant to delete and could not; the next pass tries again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undeleted {
    /// Its name.
    pub name: String,
    /// The answer of the store.
    pub why: String,
}

/// A pass that came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The plan.
    pub plan: Plan,
    /// The deletions that it made.
    pub done: Done,
    /// The deletions that failed.
    pub undeleted: Vec<Undeleted>,
    /// Whether it stopped before it finished the plan; the next pass continues.
    pub is_unfinished: bool,
    /// Forgotten versions that others still need.
    pub kept: Vec<Kept>,
    /// Jobs that run beside it.
    pub live_jobs: u64,
    /// Manifests that it read.
    pub manifests_read: u64,
    /// The containers that it retired, and its writes for that.
    pub reclaimed: ReclaimReport,
    /// The arranging that it did.
    pub arranged: Arranged,
    /// Containers that versions need and that are gone, without an index that says where their
    /// chunks went. Then containers that no version names are kept: `repair index` may find the
    /// chunks there.
    pub missing_containers: u64,
    /// Generations that do not supersede lower ones, because they are not proved.
    pub unproved: Vec<Unproved>,
    /// The space that waits for its minimum age.
    pub waiting: WaitingSpace,
    /// Uploads of backups that run or were killed.
    pub open_uploads: Vec<OpenUploads>,
    /// New containers that cannot be read: their chunks are not in the index, and are neither
    /// shared nor retired.
    pub unlisted: Vec<ContainerId>,
    /// New containers in cold storage, of which the same holds.
    pub cold_unlisted: u64,
    /// Bytes of its table of containers, in memory and in temporary files, about.
    pub table_bytes: u64,
    /// The number of the index that was rebuilt first because it was lost.
    pub rebuilt: Option<u64>,
    /// Of a dry run, the requests that it took. Executing the plan takes about as many again,
    /// beside those of [`Requests::of`].
    pub planning: Requests,
}

impl PassReport {
    /// Adds the results of tasks.
    pub(super) fn add_tasks(&mut self, tasks: Vec<TaskReport>) {
        for task in tasks {
            match task {
                TaskReport::Reclaim(report) => self.reclaimed = report,
                TaskReport::Arrange(report) => self.arranged = report,
            }
        }
    }

    /// This pass and another right after it, as one.
    pub fn followed_by(mut self, next: Self) -> Self {
        let (plan, done) = (&mut self.plan, &mut self.done);
        plan.data_containers += next.plan.data_containers;
        plan.meta_containers += next.plan.meta_containers;
        plan.container_bytes = ByteCount(plan.container_bytes.0 + next.plan.container_bytes.0);
        plan.versions += next.plan.versions;
        plan.entries += next.plan.entries;
        plan.index_objects += next.plan.index_objects;
        plan.versions_ingested += next.plan.versions_ingested;
        plan.new_containers += next.plan.new_containers;
        plan.fenced.extend(next.plan.fenced);
        done.containers += next.done.containers;
        done.container_bytes = ByteCount(done.container_bytes.0 + next.done.container_bytes.0);
        done.entries += next.done.entries;
        self.manifests_read += next.manifests_read;
        plan.reclaimed.add(next.plan.reclaimed);
        self.reclaimed.add(next.reclaimed);
        self.arranged.add(next.arranged);
        self.unlisted.extend(next.unlisted);
        self.cold_unlisted = self.cold_unlisted.max(next.cold_unlisted);
        self.table_bytes = self.table_bytes.max(next.table_bytes);
        self.rebuilt = self.rebuilt.or(next.rebuilt);
        if matches!(next.outcome, Outcome::Published(_)) {
            self.outcome = next.outcome;
        }
        // Work that the second one lost or did not reach is left, whatever the first one did.
        self.is_unfinished = next.is_unfinished || next.outcome == Outcome::Lost;
        if next.outcome == Outcome::Stopped {
            return self;
        }
        if next.outcome != Outcome::Lost {
            // It repeated the deletions that failed in the first one.
            self.undeleted = next.undeleted;
        }
        if next.outcome != Outcome::Lost {
            (self.kept, self.live_jobs, self.missing_containers) = (next.kept, next.live_jobs, next.missing_containers);
            (self.waiting, self.open_uploads) = (next.waiting, next.open_uploads);
            self.unproved = next.unproved;
        }
        self
    }

    /// Whether it found damage: needed objects that are gone or unreadable.
    pub fn found_damage(&self) -> bool {
        let unreadable = [&self.unlisted, &self.reclaimed.unreadable, &self.arranged.unreadable];
        let damaged_series = self.arranged.damaged_series + self.plan.arranging.damaged_series;
        let is_readable = unreadable.iter().all(|containers| containers.is_empty());
        let is_refuted = |unproved: &Unproved| matches!(unproved.why, WhyUnproved::Refuted { .. });
        let is_genuine = !self.unproved.iter().any(is_refuted);
        self.missing_containers > 0 || damaged_series > 0 || !is_readable || !is_genuine
    }

    /// The same pass, overtaken by another one: its observations prove nothing. Jobs that it fenced
    /// stay fenced.
    pub(super) fn lost(self) -> Self {
        let plan = Plan { fenced: self.plan.fenced, ..Plan::default() };
        let (manifests_read, table_bytes, rebuilt) = (self.manifests_read, self.table_bytes, self.rebuilt);
        Self { outcome: Outcome::Lost, plan, manifests_read, table_bytes, rebuilt, ..Self::without_pass() }
    }

    /// A pass that was told to stop, or had no time left, before it published anything.
    pub fn stopped() -> Self {
        Self { outcome: Outcome::Stopped, is_unfinished: true, ..Self::without_pass() }
    }

    /// The report when no pass was wanted.
    pub fn without_pass() -> Self {
        Self {
            outcome: Outcome::Nothing,
            plan: Plan::default(),
            done: Done::default(),
            undeleted: Vec::new(),
            is_unfinished: false,
            kept: Vec::new(),
            live_jobs: 0,
            manifests_read: 0,
            reclaimed: ReclaimReport::default(),
            arranged: Arranged::default(),
            missing_containers: 0,
            unproved: Vec::new(),
            waiting: WaitingSpace::default(),
            open_uploads: Vec::new(),
            unlisted: Vec::new(),
            cold_unlisted: 0,
            table_bytes: 0,
            rebuilt: None,
            planning: Requests::default(),
        }
    }
}
