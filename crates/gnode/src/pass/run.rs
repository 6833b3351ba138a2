//! One pass from its lease to its end.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::{Doomed, IndexManifest, PassStatistics, Queued, Reason};
use larder_format::lease::{JobKind, Lease, Pin};
use larder_format::names;
use larder_index::{Draft, Executor, IndexError, IndexPass, IndexSnapshot, PassRuns, Published, publish};
use larder_lnode::relayout::RelayoutError;
use larder_lnode::{Cancel, Clock, Context, NoProgress};
use larder_store::jobs::{OpenLease, RENEW_EVERY};
use larder_store::repository::random;
use larder_store::{Repository, RepositoryError, StoreError};

use super::carry_out::carry_out;
use super::cost::Requests;
use super::decide::{Decision, IndexNeeds, Proposal};
use super::ledger::{Ledger, Written, run_ids};
use super::lost::{Beginning, begin, is_late};
use super::report::{Done, Kept, Outcome, PassReport, Plan};
use super::scope::Listing;
use super::search::Search;
use super::survey::Survey;
use super::tables::{IndexWork, MEMORY_DEFAULT, THREADS_MAX, index_pass};
use crate::arranging::{self, ArrangeOptions, Arranged, arrange};
use crate::giving_up::{Exact, GiveUpError, GiveUpOptions, GiveUpPlan, GivenUp, Rights, Work, give_up, plan};
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

impl Surroundings {
    /// The lease of a task that begins now and counts when the index of this number is its own.
    pub(crate) fn lease(&self, number: u64) -> Lease {
        Lease {
            kind: JobKind::Task,
            series: String::new(),
            pins: Vec::new(),
            adopts: Vec::new(),
            host: self.host.clone(),
            process: self.process,
            written_ms: (self.now_ms)(),
            renew_seconds: u32::try_from(RENEW_EVERY.as_secs()).unwrap_or(u32::MAX),
            claims: Some(number),
            generation: None,
        }
    }

    /// What reading and writing contents takes. It waits with threads; whoever works in turns gives it something else to wait with
    /// ([`Context::on`]).
    pub(crate) fn context(&self, repository: &Repository, threads: NonZeroUsize) -> Context {
        Context {
            repository: repository.clone(),
            runtime: tokio::runtime::Handle::current().into(),
            clock: Arc::new(NowMs(self.now_ms.clone())),
            threads,
            memory: COPY_MEMORY,
            renew_every: RENEW_EVERY,
            cancel: Cancel::default(),
            progress: Arc::new(NoProgress),
            host: self.host.clone(),
        }
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
    /// Bytes of memory for the tables of the index, at least [`MEMORY_MIN`](super::MEMORY_MIN).
    pub memory: usize,
    /// Which containers it lists.
    pub listing: Listing,
    /// What is given up although versions name it; `None`: nothing.
    pub give_up: Option<GiveUpOptions>,
    /// How series of the layout `lifecycle` are arranged; `None`: they are not, and fall behind.
    pub arrange: Option<ArrangeOptions>,
    /// Threads for checking and copying what is given up.
    pub threads: NonZeroUsize,
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
            give_up: Some(GiveUpOptions::default()),
            arrange: Some(ArrangeOptions::default()),
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).min(THREADS_MAX),
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
    /// There is no index and there has been one, so that what nobody needs is not known. A pass that is not dry makes it anew first.
    #[error("the index is gone, so nobody can say what a pass would do")]
    LostIndex,
    /// The index holds something that this pass does not know how to keep.
    #[error("the index has tables that this program does not know how to keep; nothing was deleted")]
    UnknownTables,
    /// No thread could be started for compressing.
    #[error("no thread could be started; is there a limit on threads or memory?")]
    NoThreads,
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

impl From<GiveUpError> for PassError {
    fn from(error: GiveUpError) -> Self {
        match error {
            GiveUpError::Index(error) => error.into(),
            GiveUpError::Relayout(RelayoutError::Repository(error)) => error.into(),
            GiveUpError::Relayout(RelayoutError::Interrupted) => Self::Interrupted,
            GiveUpError::Relayout(RelayoutError::NoThreads) => Self::NoThreads,
        }
    }
}

/// The repository, remembering runs and tables of containers that were read, within a part of the memory that a pass has for tables. They
/// never change: to remember them says nothing old about what may. For all that is done in one go: when newest versions are laid out
/// anew before and after a pass, all of that reads the same runs.
pub fn remembering(repository: &Repository, memory: usize) -> Repository {
    repository.through(repository.store().remembering_tails(memory / TAILS_ONE_IN))
}

/// Makes a pass.
pub async fn run(surroundings: &Surroundings, options: &PassOptions) -> Result<PassReport, PassError> {
    let started_ms = (surroundings.now_ms)();
    let before = surroundings.repository.store().stats();
    let repository = remembering(&surroundings.repository, options.memory);
    let repository = repository.through(repository.store().without_cache());
    // Step 1: the number comes before everything else (`PublishFirst`).
    let Beginning { mut newest, rebuilt } = begin(surroundings, options, &repository, started_ms).await?;
    let number = newest.next_number()?;
    let index = (std::mem::take(&mut newest.numbers), std::mem::take(&mut newest.runs));
    let base = newest.base()?;
    let mut pass = Pass {
        surroundings,
        options,
        repository,
        base,
        index,
        number,
        started_ms,
        job: None,
        leave_lease: false,
        may_leave_containers: false,
    };
    if options.dry_run {
        let looked = pass.look().await;
        let report = pass.or_overtaken(looked).await?;
        let planning = Requests::between(&before, &surroundings.repository.store().stats());
        return Ok(PassReport { planning, ..report });
    }
    let report = announced(&mut pass).await?;
    Ok(PassReport { rebuilt, ..report })
}

/// Makes a pass as a job with a lease.
async fn announced(pass: &mut Pass<'_>) -> Result<PassReport, PassError> {
    let surroundings = pass.surroundings;
    let lease = surroundings.lease(pass.number);
    let job = JobId::new(lease.written_ms, random(pass.repository.entropy())?);
    let repository = pass.repository.clone();
    let mut open = repository.open_lease(job, lease).await?;
    pass.job = Some(job);
    let result = renewing(&repository, &mut open, &*surroundings.now_ms, pass.collect()).await;
    let result = pass.or_overtaken(result).await;
    if !pass.leave_lease {
        // Containers that it wrote and that no index has are found by its lease.
        let ended = match pass.may_leave_containers {
            true => repository.close_lease(&open).await,
            false => repository.end_task(&open).await,
        };
        match ended {
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

/// Bytes of memory for checking and copying chunks, beside the buffers of the threads.
const COPY_MEMORY: usize = 64 << 20;

/// Of the memory for tables, one part in so many, beside it, for ends of runs and containers that are read again and again.
const TAILS_ONE_IN: usize = 8;

/// Whether a pass that began then has to come to an end.
pub(super) fn stop(
    surroundings: &Surroundings,
    most: Option<Duration>,
    started_ms: u64,
) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let (now_ms, asked) = (surroundings.now_ms.clone(), surroundings.stop.clone());
    Arc::new(move || asked() || is_late(now_ms(), started_ms, most))
}

/// The clock of the surroundings.
struct NowMs(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock for NowMs {
    fn now_ms(&self) -> u64 {
        (self.0)()
    }
}

/// What steps 2 to 6 gave.
struct Decided {
    report: PassReport,
    decision: Decision,
    /// Whether the decision, or what the ledger took in, is worth an index.
    has_news: bool,
    ledger: Ledger,
    work: Option<Work>,
    arranging: Option<arranging::Work>,
}

struct Pass<'a> {
    surroundings: &'a Surroundings,
    options: &'a PassOptions,
    repository: Repository,
    base: IndexSnapshot,
    /// What was listed with it.
    index: (Vec<u64>, Vec<(RunId, u64)>),
    number: u64,
    started_ms: u64,
    job: Option<JobId>,
    /// Whether the index may still come to be created: until that is settled the lease says what it belongs to.
    leave_lease: bool,
    /// Whether it may have written containers that no index has.
    may_leave_containers: bool,
}

impl Pass<'_> {
    fn index_work(&self) -> IndexWork<'_> {
        IndexWork { executor: self.surroundings.executor, repository: &self.repository, memory: self.options.memory }
    }

    fn should_stop(&self) -> bool {
        let now_ms = (self.surroundings.now_ms)();
        (self.surroundings.stop)() || is_late(now_ms, self.started_ms, self.options.max_duration)
    }

    /// Steps 2 to 6 without the publication: what may go.
    async fn decide(&self) -> Result<Decided, PassError> {
        let stop = || if self.should_stop() { Err(PassError::Interrupted) } else { Ok(()) };
        let manifest = &self.base.manifest;
        let survey = Survey {
            repository: &self.repository,
            own: self.job,
            base: &self.base,
            index: &self.index,
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
        let mut ledger = Ledger::load(self.index_work(), &self.base).await?;
        let manifests_read = survey.versions(&registers, &mut ledger, &mut proposal).await?;
        let closed = survey.closed(proposal.closing()).await?;
        let kept = proposal.kept().map(|(version, by, lease)| kept(version, by, lease)).collect();
        let live_jobs = proposal.live() as u64;
        let superseded = manifest.queue.iter().filter(|queued| queued.reason == Reason::Superseded);
        let superseded = superseded.filter_map(|queued| match queued.what {
            Doomed::Run(id) => Some(id),
            _ => None,
        });
        let missing = manifest.head.missing.unwrap_or(0);
        let needs = IndexNeeds {
            base: self.base.number,
            runs: run_ids(manifest).collect(),
            superseded: superseded.collect(),
            missing,
            has_searched: manifest.head.rebuilt.is_some(),
        };
        // Versions that go without ever having been in an index.
        let indexed: HashSet<Pin> =
            manifest.versions.iter().map(|version| Pin { series: version.series, job: version.job }).collect();
        ledger.note_dropped(proposal.going(&closed).filter(|pin| !indexed.contains(pin)).count() as u64);
        let work = self.work(&ledger, &proposal);
        let arranging = self.arranging(&ledger, &proposal).await?;
        let missing_containers = proposal.missing(missing);
        if missing_containers > 0 {
            tracing::warn!(
                missing_containers,
                "containers that snapshots need are gone; `repair index` may find their chunks"
            );
        }
        let decision = proposal.decide(&registers, &closed, &needs, |container| ledger.has_record(container));
        let has_news = !decision.is_empty() || ledger.has_new();
        // What goes along with an index is not worth one.
        let plan = Plan {
            fenced,
            versions_ingested: ledger.ingested(),
            new_containers: ledger.new_containers(manifest),
            ..Plan::default()
        };
        let plan = if has_news { plan.with(&decision) } else { plan };
        let report = PassReport {
            outcome: Outcome::Planned,
            plan,
            done: Done::default(),
            is_unfinished: false,
            kept,
            live_jobs,
            manifests_read,
            given_up: GivenUp::default(),
            arranged: Arranged::default(),
            missing_containers,
            table_bytes: ledger.table_bytes(),
            rebuilt: None,
            planning: Requests::default(),
        };
        if report.table_bytes > self.options.memory as u64 {
            let (bytes, memory) = (report.table_bytes, self.options.memory);
            tracing::warn!(bytes, memory, "the table of containers takes more memory than all other tables may");
        }
        Ok(Decided { report, decision, has_news, ledger, work, arranging })
    }

    /// What would be done.
    async fn look(&self) -> Result<PassReport, PassError> {
        let Decided { mut report, work, .. } = self.decide().await?;
        if let Some(work) = work {
            report.plan.given_up = self.plan_giving_up(work).await?;
        }
        Ok(report)
    }

    /// The runs of its index are gone when two other passes published meanwhile: then it was only too slow.
    async fn or_overtaken<T>(&self, result: Result<T, PassError>) -> Result<T, PassError> {
        match result {
            Err(PassError::Index(error)) if error.is_damage() => match IndexSnapshot::newest(&self.repository).await {
                Ok(newest) if newest.highest > self.base.number => Err(PassError::Overtaken),
                _ => Err(error.into()),
            },
            result => result,
        }
    }

    /// What is to be known for giving containers up, if that is wanted.
    fn work(&self, ledger: &Ledger, proposal: &Proposal) -> Option<Work> {
        let options = self.options.give_up.clone()?;
        let rights = self.rights(ledger, proposal);
        let is_exact = self.search(ledger).is_wanted(options.exact);
        Some(Work {
            options,
            context: self.surroundings.context(&self.repository, self.options.threads),
            job: self.job.unwrap_or(self.base.manifest.head.pass),
            rights,
            walks: is_exact.then(|| ledger.walked(self.base.manifest.head.rebuilt.is_some())),
            next_number: 0,
            stop: self.stop(),
        })
    }

    fn search(&self, ledger: &Ledger) -> Search {
        let head = &self.base.manifest.head;
        Search {
            dropped: head.dropped.unwrap_or(0) + ledger.dropped(),
            left: head.left,
            versions: ledger.len(),
            next_version: ledger.next_version(),
        }
    }

    /// What is to be known for arranging, if there is anything to arrange.
    async fn arranging(&self, ledger: &Ledger, proposal: &Proposal) -> Result<Option<arranging::Work>, PassError> {
        let Some(options) = self.options.arrange.clone() else { return Ok(None) };
        let mut series = ledger.unarranged(options.all);
        for unarranged in &mut series {
            unarranged.holes_percent = match options.holes_percent {
                Some(percent) => percent,
                None => f64::from(self.repository.settings(unarranged.series).await?.holes_percent),
            };
            unarranged.every = match options.every {
                Some(versions) => versions,
                None => u32::from(self.repository.settings(unarranged.series).await?.arrange_every),
            };
        }
        // Where nothing may be left over, there may be something of whatever went.
        series.retain(|unarranged| unarranged.is_due() || unarranged.holes_percent <= 0.0);
        if series.is_empty() {
            return Ok(None);
        }
        Ok(Some(arranging::Work {
            options,
            context: self.surroundings.context(&self.repository, self.options.threads),
            job: self.job.unwrap_or(self.base.manifest.head.pass),
            rights: self.rights(ledger, proposal),
            series,
            stop: self.stop(),
        }))
    }

    fn rights(&self, ledger: &Ledger, proposal: &Proposal) -> Rights {
        let mut rights = ledger.rights(&proposal.bases());
        proposal.fill(&mut rights);
        rights.rebuilt = self.base.manifest.head.rebuilt.unwrap_or(0);
        rights
    }

    /// [`Self::should_stop`], for whoever outlives the pass.
    fn stop(&self) -> Arc<dyn Fn() -> bool + Send + Sync> {
        stop(self.surroundings, self.options.max_duration, self.started_ms)
    }

    /// What would be given up, as far as the index knows: chunks of new versions are in it only when a pass has taken them in.
    async fn plan_giving_up(&self, work: Work) -> Result<GiveUpPlan, PassError> {
        let (base, memory) = (self.base.clone(), self.options.memory);
        let planned = move |io| {
            // It writes nothing, so its runs need no name.
            let pass = index_pass(io, PassRuns::new(JobId([0; 16])), memory);
            plan(&pass, &Draft::new(&pass, &base), &work)
        };
        self.index_work().run(planned).await
    }

    async fn collect(&mut self) -> Result<PassReport, PassError> {
        let Decided { mut report, mut decision, has_news, ledger, work, arranging } = self.decide().await?;
        if !has_news && work.is_none() && arranging.is_none() {
            report.outcome = Outcome::Nothing;
            return Ok(report);
        }
        if self.should_stop() {
            return Err(PassError::Interrupted);
        }
        let job = self.job.unwrap_or(self.base.manifest.head.pass);
        let search = self.search(&ledger);
        let mut written = ledger.write(self.index_work(), job, &self.base.manifest).await?;
        let (ids, sketches) =
            (std::mem::replace(&mut written.ids, PassRuns::new(job)), std::mem::take(&mut written.sketches));
        let manifest = self.next_manifest(&decision, &report.plan, written);
        let first_new = self.base.manifest.head.next_container;
        self.may_leave_containers = work.is_some() || arranging.is_some();
        let tasks = move |pass: &IndexPass, draft: &mut Draft<'_>| {
            let arranged = arranging.map(|work| arrange(pass, draft, &work)).transpose()?.unwrap_or_default();
            let work = work.map(|work| Work { next_number: arranged.next_number, ..work });
            let given_up = work.map(|work| give_up(pass, draft, &work)).transpose()?.unwrap_or_default();
            Ok((arranged, given_up))
        };
        let WithChunks { mut manifest, left_over, then: (arranged, given_up), .. } =
            with_chunks(self.index_work(), ids, manifest, first_new, sketches, tasks).await?;
        let has_begun_in_vain = given_up.was_stopped || !given_up.unreadable.is_empty() || arranged.may_have_left();
        self.may_leave_containers = has_begun_in_vain || given_up.written + arranged.written > 0;
        let before: HashSet<RunId> = run_ids(&self.base.manifest).collect();
        if !has_news && given_up.containers.is_empty() && arranged.is_nothing() {
            let own = run_ids(&manifest).filter(|id| !before.contains(id));
            discard(&self.repository, own.chain(left_over).collect()).await?;
            report.outcome = Outcome::Nothing;
            (report.given_up, report.arranged) = (given_up, arranged);
            return Ok(report);
        }
        report.plan = Plan { given_up: given_up.plan, ..report.plan.with(&decision) };
        let is_searched = given_up.plan.is_exact && !given_up.was_stopped;
        manifest.head.missing = Some(report.missing_containers).filter(|missing| *missing > 0);
        let exact = self.options.give_up.as_ref().map_or(Exact::Never, |options| options.exact);
        search.note(exact, is_searched.then_some(given_up.remains), &mut manifest.head);
        let moved = given_up.containers.iter().chain(&arranged.containers);
        let moved = moved.map(|container| Doomed::Container(container.id));
        manifest.queue.extend(moved.map(|what| Queued { what, reason: Reason::Moved, decided: self.number }));
        manifest.head.statistics.containers_queued += given_up.containers.len() as u64 + arranged.given_up;
        manifest.head.statistics.bytes_queued += given_up.plan.container_bytes.0 + arranged.given_up_bytes.0;
        // To give up is to delete, from the moment on when the index is published (`RedirectBeforeRemoval`).
        decision.containers.extend(given_up.containers.iter().chain(&arranged.containers));
        report.is_unfinished = given_up.was_stopped || arranged.was_stopped;
        (report.given_up, report.arranged) = (given_up, arranged);
        // Readers of the index before may want them for a while: the next pass that publishes deletes them.
        let used: HashSet<RunId> = run_ids(&manifest).collect();
        let gone = before.into_iter().filter(|id| !used.contains(id));
        let superseded = |id| Queued { what: Doomed::Run(id), reason: Reason::Superseded, decided: self.number };
        let mut gone: Vec<_> = gone.collect();
        gone.sort_unstable();
        manifest.queue.extend(gone.into_iter().map(superseded));
        self.leave_lease = true;
        match publish(&self.repository, self.number, manifest).await? {
            Published::Won { all_answered, .. } => {
                self.leave_lease = !all_answered;
                self.may_leave_containers = has_begun_in_vain;
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
        report.is_unfinished |= end == ControlFlow::Break(());
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
pub(crate) struct WithChunks<T> {
    pub(crate) manifest: IndexManifest,
    pub(crate) ingested: Ingested,
    /// Runs that are not part of it any more.
    pub(crate) left_over: Vec<RunId>,
    /// What was done with it then.
    pub(crate) then: T,
}

/// The index with the chunks of containers that have numbers from `first_new` on, and what `then` makes of it.
pub(crate) async fn with_chunks<T: Send + 'static>(
    index: IndexWork<'_>,
    ids: PassRuns,
    manifest: IndexManifest,
    first_new: u32,
    sketches: Sketches,
    then: impl FnOnce(&IndexPass, &mut Draft<'_>) -> Result<T, GiveUpError> + Send + 'static,
) -> Result<WithChunks<T>, PassError> {
    let memory = index.memory;
    let chunks = move |io| {
        let pass = index_pass(io, ids, memory);
        let drafted = IndexSnapshot { number: manifest.head.number, manifest: Arc::new(manifest) };
        let mut draft = Draft::new(&pass, &drafted);
        let ingested = follow(&pass, &mut draft, first_new, &sketches)?;
        let then = then(&pass, &mut draft)?;
        let left_over = draft.intermediate();
        Ok::<_, GiveUpError>(WithChunks { manifest: draft.manifest, ingested, left_over, then })
    };
    index.run(chunks).await
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
