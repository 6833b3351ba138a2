//! One pass from its lease to its end.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::{Doomed, IndexManifest, PassStatistics, Queued, Reason};
use larder_format::lease::{JobKind, Lease, Pin};
use larder_format::names;
use larder_index::{Draft, Executor, IndexError, IndexSnapshot, PassRuns, Published, publish};
use larder_store::jobs::{OpenLease, RENEW_EVERY};
use larder_store::repository::random;
use larder_store::{Repository, RepositoryError, StoreError};

use super::carry_out::carry_out;
use super::decide::{Decision, IndexNeeds, Proposal};
use super::ledger::{Ledger, Written, run_ids};
use super::report::{Done, Kept, Outcome, PassReport, Plan};
use super::scope::Listing;
use super::survey::Survey;
use super::tables::{IndexWork, MEMORY_DEFAULT, index_pass};
use crate::ingest::{Ingested, Sketches, follow};

/// What a pass needs of the world.
#[derive(Clone)]
pub struct Surroundings {
    /// The opened repository.
    pub repository: Repository,
    /// Milliseconds since the epoch. For people; nothing safe depends on it.
    pub now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Whether it should come to an end. Asked often.
    pub stop: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Name of this host.
    pub host: String,
    /// Name and version of the program.
    pub program: String,
    /// Number of this process.
    pub process: u32,
    /// Where tables are read and written.
    pub executor: Executor,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("repository", &self.repository).finish_non_exhaustive()
    }
}

/// How a pass is made.
#[derive(Debug, Clone)]
pub struct PassOptions {
    /// A job that has not renewed its lease for so long is thought dead: it is fenced off, and what it uploaded is collected.
    /// Nothing safe depends on it; a job that was only slow has to begin again.
    pub dead_after: Duration,
    /// Only look.
    pub dry_run: bool,
    /// After so many milliseconds no more is begun. Counted from the start of the pass.
    pub max_duration: Option<Duration>,
    /// Bytes of memory for the tables of the index.
    pub memory: usize,
    /// Which containers it lists.
    pub listing: Listing,
}

/// A day: a machine that sleeps over night goes on in the morning where it was.
const DEAD_AFTER: Duration = RENEW_EVERY.saturating_mul(288);

impl Default for PassOptions {
    fn default() -> Self {
        Self {
            dead_after: DEAD_AFTER,
            dry_run: false,
            max_duration: None,
            memory: MEMORY_DEFAULT,
            listing: Listing::default(),
        }
    }
}

/// A pass that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// A version cannot be read: what it references is not known, so nothing may be deleted.
    #[error("nothing may be deleted while {name} cannot be read, because what it needs is not known")]
    UnreadableManifest {
        /// Its manifest.
        name: String,
        /// Its id.
        id: JobId,
        /// What is wrong with it.
        source: RepositoryError,
    },
    /// The manifest of a version is gone, and nobody forgot the version.
    #[error("nothing may be deleted while {name} is missing: nobody has forgotten that snapshot")]
    LostManifest {
        /// Its manifest.
        name: String,
        /// Its id.
        id: JobId,
    },
    /// A job announced itself and what it needs cannot be read.
    #[error("nothing may be deleted while {name} cannot be read: a job may be running that needs what is not known")]
    UnreadableLease {
        /// Its lease.
        name: String,
        /// What is wrong with it.
        source: RepositoryError,
    },
    /// A manifest went away while the versions were read.
    #[error("another pass deleted while this one looked; it did nothing")]
    Overtaken,
    /// It was asked to stop before it had decided.
    #[error("the pass was interrupted before it had decided anything")]
    Interrupted,
    /// The index holds something that this pass does not know how to keep.
    #[error("the index has tables that this program does not know how to keep; nothing was deleted")]
    UnknownTables,
    /// The index cannot be read, or its next number not be had.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl From<StoreError> for PassError {
    fn from(error: StoreError) -> Self {
        Self::Repository(error.into())
    }
}

/// Makes a pass.
pub async fn run(surroundings: &Surroundings, options: &PassOptions) -> Result<PassReport, PassError> {
    let started_ms = (surroundings.now_ms)();
    let repository = surroundings.repository.through(surroundings.repository.store().without_cache());
    // Step 1: the number comes before everything else (`PublishFirst`).
    let newest = IndexSnapshot::newest(&repository).await?;
    let number = newest.next_number()?;
    let base = newest.base()?;
    let mut pass = Pass { surroundings, options, repository, base, number, started_ms, job: None, leave_lease: false };
    if options.dry_run {
        let (report, ..) = pass.decide().await?;
        return Ok(report);
    }
    let job = JobId::new(started_ms, random(pass.repository.entropy())?);
    let lease = Lease {
        kind: JobKind::Task,
        series: String::new(),
        pins: Vec::new(),
        adopts: Vec::new(),
        host: surroundings.host.clone(),
        process: surroundings.process,
        written_ms: started_ms,
        renew_seconds: u32::try_from(RENEW_EVERY.as_secs()).unwrap_or(u32::MAX),
        claims: Some(number),
        generation: None,
    };
    let repository = pass.repository.clone();
    let mut open = repository.open_lease(job, lease).await?;
    pass.job = Some(job);
    let result = renewing(&repository, &mut open, &*surroundings.now_ms, pass.collect()).await;
    if !pass.leave_lease {
        match repository.end_task(&open).await {
            Err(error) if result.is_ok() => return Err(error.into()),
            Err(error) => tracing::debug!(%error, "the lease of the pass was left behind"),
            Ok(()) => {}
        }
    }
    result
}

/// Renews the lease while the work is done.
pub(crate) async fn renewing<T>(
    repository: &Repository,
    open: &mut OpenLease,
    now_ms: &(dyn Fn() -> u64 + Send + Sync),
    work: impl Future<Output = T>,
) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            result = &mut work => return result,
            () = tokio::time::sleep(RENEW_EVERY) => {
                if let Err(error) = repository.renew_lease(open, now_ms()).await {
                    tracing::warn!(%error, "the lease could not be renewed");
                }
            }
        }
    }
}

struct Pass<'a> {
    surroundings: &'a Surroundings,
    options: &'a PassOptions,
    repository: Repository,
    base: IndexSnapshot,
    number: u64,
    started_ms: u64,
    job: Option<JobId>,
    /// Whether the index may still come to be created: until that is settled the lease says what it belongs to.
    leave_lease: bool,
}

impl Pass<'_> {
    fn work(&self) -> IndexWork<'_> {
        IndexWork { executor: self.surroundings.executor, repository: &self.repository, memory: self.options.memory }
    }

    fn should_stop(&self) -> bool {
        let elapsed = Duration::from_millis((self.surroundings.now_ms)().saturating_sub(self.started_ms));
        (self.surroundings.stop)() || self.options.max_duration.is_some_and(|most| elapsed >= most)
    }

    /// Steps 2 to 6 without the publication: what may go.
    async fn decide(&self) -> Result<(PassReport, Decision, Ledger), PassError> {
        let stop = || if self.should_stop() { Err(PassError::Interrupted) } else { Ok(()) };
        let manifest = &self.base.manifest;
        let survey = Survey {
            repository: &self.repository,
            own: self.job,
            base: &self.base,
            number: self.number,
            listing: self.options.listing,
            dead_after: self.options.dead_after,
            now_ms: (self.surroundings.now_ms)(),
            is_dry: self.options.dry_run,
        };
        stop()?;
        let (before, fenced) = survey.before_leases().await?;
        stop()?;
        let leases = survey.leases(&before).await?;
        let registers = self.repository.list_registers().await?;
        let mut proposal = Proposal::new(before, leases);
        stop()?;
        let mut ledger = Ledger::load(self.work(), &self.base).await?;
        let manifests_read = survey.versions(&registers, &mut ledger, &mut proposal).await?;
        let closed = survey.closed(proposal.closing()).await?;
        let kept = proposal.kept().map(|(version, by, lease)| kept(version, by, lease)).collect();
        let live_jobs = proposal.live() as u64;
        let superseded = manifest.queue.iter().filter(|queued| queued.reason == Reason::Superseded);
        let superseded = superseded.filter_map(|queued| match queued.what {
            Doomed::Run(id) => Some(id),
            _ => None,
        });
        let needs =
            IndexNeeds { base: self.base.number, runs: run_ids(manifest).collect(), superseded: superseded.collect() };
        let mut decision = proposal.decide(&registers, &closed, &needs, |container| ledger.has_record(container));
        if decision.is_empty() && !ledger.has_new() {
            decision.clear();
        }
        let report = PassReport {
            outcome: Outcome::Planned,
            plan: Plan {
                versions_ingested: ledger.ingested(),
                new_containers: ledger.new_containers(manifest),
                ..Plan::of(&decision, fenced)
            },
            done: Done::default(),
            is_unfinished: false,
            kept,
            live_jobs,
            manifests_read,
        };
        Ok((report, decision, ledger))
    }

    async fn collect(&mut self) -> Result<PassReport, PassError> {
        let (mut report, decision, ledger) = self.decide().await?;
        if decision.is_empty() && !ledger.has_new() {
            report.outcome = Outcome::Nothing;
            return Ok(report);
        }
        if self.should_stop() {
            return Err(PassError::Interrupted);
        }
        let job = self.job.unwrap_or(self.base.manifest.head.pass);
        let mut written = ledger.write(self.work(), job, &self.base.manifest).await?;
        let (ids, sketches) =
            (std::mem::replace(&mut written.ids, PassRuns::new(job)), std::mem::take(&mut written.sketches));
        let manifest = self.next_manifest(&decision, &report.plan, written);
        let first_new = self.base.manifest.head.next_container;
        let WithChunks { mut manifest, left_over, .. } =
            with_chunks(self.work(), ids, manifest, first_new, sketches).await?;
        // Readers of the index before may want them for a while: the next pass that publishes deletes them.
        let used: HashSet<RunId> = run_ids(&manifest).collect();
        let gone = run_ids(&self.base.manifest).filter(|id| !used.contains(id));
        let superseded = |id| Queued { what: Doomed::Run(id), reason: Reason::Superseded, decided: self.number };
        manifest.queue.extend(gone.map(superseded));
        self.leave_lease = true;
        match publish(&self.repository, self.number, manifest).await? {
            Published::Won { all_answered, .. } => {
                self.leave_lease = !all_answered;
                report.outcome = Outcome::Published(self.number);
            }
            Published::Lost | Published::Overtaken { .. } => {
                self.leave_lease = false;
                report.outcome = Outcome::Lost;
                return Ok(report);
            }
        }
        discard(&self.repository, left_over).await?;
        let stop = || self.should_stop();
        let end = carry_out(&self.repository, decision, &stop, &mut report.done).await?;
        report.is_unfinished = end == ControlFlow::Break(());
        Ok(report)
    }

    /// The index as it is, with the decision as its queue. What the queue of the index before left undone was decided afresh.
    fn next_manifest(&self, decision: &Decision, plan: &Plan, written: Written) -> IndexManifest {
        let mut manifest = (*self.base.manifest).clone();
        manifest.head.pass = self.job.unwrap_or(manifest.head.pass);
        manifest.head.time_ms = (self.surroundings.now_ms)();
        manifest.head.host.clone_from(&self.surroundings.host);
        manifest.head.program.clone_from(&self.surroundings.program);
        manifest.head.statistics = PassStatistics {
            chunks: manifest.head.statistics.chunks,
            containers: written.containers,
            versions_ingested: written.ingested,
            containers_queued: plan.data_containers + plan.meta_containers,
            bytes_queued: plan.container_bytes.0,
            ..PassStatistics::default()
        };
        manifest.head.next_version = written.next_version;
        manifest.head.next_container = written.next_container;
        manifest.head.next_age = written.next_age;
        (manifest.versions, manifest.runs) = (written.versions, written.runs);
        let containers = decision.containers.iter().map(|container| Doomed::Container(container.id));
        let jobs = decision.removals.values().flat_map(|removal| &removal.registers);
        let jobs = jobs.map(|(Pin { series, job }, _)| Doomed::Job { series: *series, job: *job });
        let generations = decision.superseded.iter().map(|(pin, generation)| Doomed::Generation {
            series: pin.series,
            job: pin.job,
            generation: *generation,
        });
        let runs = decision.runs.iter().map(|(id, _)| Doomed::Run(*id));
        let indexes = decision.indexes.iter().map(|number| Doomed::Index(*number));
        let reason = |what: &Doomed| match what {
            Doomed::Container(_) | Doomed::Job { .. } | Doomed::Run(_) => Reason::Collected,
            Doomed::Generation { .. } | Doomed::Index(_) => Reason::Superseded,
        };
        let queued = |what| Queued { reason: reason(&what), what, decided: self.number };
        manifest.queue = containers.chain(jobs).chain(generations).chain(runs).chain(indexes).map(queued).collect();
        manifest
    }
}

/// An index with its tables of chunks.
pub(crate) struct WithChunks {
    pub(crate) manifest: IndexManifest,
    pub(crate) ingested: Ingested,
    /// Runs that are not part of it any more.
    pub(crate) left_over: Vec<RunId>,
}

/// The index with the chunks of containers that have numbers from `first_new` on.
pub(crate) async fn with_chunks(
    work: IndexWork<'_>,
    ids: PassRuns,
    manifest: IndexManifest,
    first_new: u32,
    sketches: Sketches,
) -> Result<WithChunks, PassError> {
    let memory = work.memory;
    let chunks = move |io| {
        let pass = index_pass(io, ids, memory);
        let drafted = IndexSnapshot { number: manifest.head.number, manifest: Arc::new(manifest) };
        let mut draft = Draft::new(&pass, &drafted);
        let ingested = follow(&pass, &mut draft, first_new, &sketches)?;
        let left_over = draft.intermediate();
        Ok(WithChunks { manifest: draft.manifest, ingested, left_over })
    };
    work.run(chunks).await
}

/// Deletes runs that were written and merged in one pass. They are in no index.
pub(crate) async fn discard(repository: &Repository, runs: Vec<RunId>) -> Result<(), StoreError> {
    for id in runs {
        repository.store().delete(&names::run(id)).await?;
    }
    Ok(())
}

fn kept(version: Pin, by: JobId, lease: &Lease) -> Kept {
    Kept { version, by, kind: lease.kind, host: lease.host.clone() }
}
