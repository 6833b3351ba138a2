//! One pass, from the index that it is based on to its last deletion: steps 1 to 7 of "What a
//! collecting pass does" (`docs/concurrency.md`). Each step is a call into the module with its
//! details.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::ContainerList;
use larder_format::lease::Done;
use larder_format::names;
use larder_index::{Draft, IndexPass, IndexSnapshot, PassRuns, Published, Turn, publish};
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_lifecycle::arrange::RetiredContainers;
use larder_state::SeenIndex;
use larder_store::cold_containers::ColdContainers;
use larder_store::repository::random;
use larder_store::rules::Rule;

use super::confirm_containers::{ask_for_forwards, ask_for_missing};
use super::cost::Requests;
use super::decide::{Decision, IndexNeeds, Proposal};
use super::delete::delete;
use super::lost_index::{Beginning, begin};
use super::next_manifest::{Publisher, next_manifest, queue_retired, queue_superseded_runs};
use super::options::PassOptions;
use super::overtaken::{is_overtaken, unless_overtaken};
use super::plan::Plan;
use super::prove::Prover;
use super::report::{Outcome, PassReport};
use super::roll_back;
use super::survey::{Survey, Versions};
use super::task::{MaintenanceTask, run_all};
use super::tasks::TaskInput;
use crate::error::{PassError, stop_if_asked};
use crate::known_versions::{KnownVersions, run_ids};
use crate::reclaim::{ReclaimError, Search};
use crate::roll_back::seen_as;
use crate::tables::{
    IndexWork, Limits, WithChunks, copying, discard, for_tables, index_pass, remembering, with_chunks,
};

/// Of the memory for tables, one part in this number keeps the listing while tasks run.
const LISTING_KEPT_ONE_IN: usize = 32;
/// And one part in this number keeps containers in cold storage, once a task has met one.
const COLD_ONE_IN: usize = 64;

/// Makes a pass.
///
/// # Errors
/// The pass failed. It published nothing, or the next pass finishes its deletions.
pub async fn run(context: &JobContext, options: &PassOptions) -> Result<PassReport, PassError> {
    // A pass decides by the absence of objects in listings, so a listing must not skip entries that
    // cannot be examined.
    let strict = context.repository.through(context.repository.store().listing_strictly());
    let context = context.through(&strict).limited_to(options.max_duration, context.clock.now_ms());
    let before = strict.store().stats();
    let remembering = remembering(&strict, options.memory);
    let repository = remembering.through(remembering.store().without_cache());
    let caching = remembering.through(remembering.store().caching_runs());

    // Step 1: the index that counts, rebuilt if it was lost. The number comes before everything
    // else (`PublishFirst`). What this machine remembers comes before that: another process of it
    // may publish meanwhile.
    let seen = context.machine.seen();
    let Beginning { mut current, rebuilt } = begin(&context, options, &seen, &repository).await?;
    let turn = current.turn()?;
    let index = (std::mem::take(&mut current.numbers), std::mem::take(&mut current.runs));
    let marks = std::mem::take(&mut current.marks);
    let base = current.base()?;
    let repository = if has_all_runs(&base, &index.1) { caching } else { repository };
    let context = context.through(&repository);
    roll_back::expect_index(&context, options, &seen, &base, rebuilt.is_some())?;
    let memory = for_tables(options.memory, &base.manifest)?;
    let mut pass =
        Pass { context: &context, options, memory, base, index, marks, turn, job: None, ending: Ending::Removed };

    // Steps 2 to 7. A dry run leaves no trace; any other pass has a lease from here on.
    if options.dry_run {
        let planned = pass.plan().await;
        let report = unless_overtaken(&repository, &pass.base, planned).await?;
        let planning = Requests::between(&before, &strict.store().stats());
        return Ok(PassReport { planning, ..report });
    }
    let lease = context.lease_of_task(pass.turn.number);
    let job = JobId::new(lease.written_ms, random(repository.entropy())?);
    let work = async {
        pass.job = Some(job);
        let made = pass.make().await;
        (unless_overtaken(&repository, &pass.base, made).await, pass.ending)
    };
    let report = LeaseKeeper::hold(&context, job, lease, work).await?;
    Ok(PassReport { rebuilt, ..report })
}

/// Whether a listing has all runs of an index in their sizes. Then their contents may come from the
/// cache, which does not know what is missing.
fn has_all_runs(index: &IndexSnapshot, listed: &[(RunId, u64)]) -> bool {
    let listed: HashSet<(RunId, u64)> = listed.iter().copied().collect();
    index.manifest.runs.iter().all(|run| listed.contains(&(run.id, run.object_bytes)))
}

/// A pass whose base is known.
struct Pass<'a> {
    /// Asks to stop when the time of the pass is over.
    context: &'a JobContext,
    options: &'a PassOptions,
    /// Bytes of memory for tables.
    memory: usize,
    base: IndexSnapshot,
    /// The numbers of indexes and the runs that were listed with it.
    index: (Vec<u64>, Vec<(RunId, u64)>),
    /// Numbers of the marks of indexes.
    marks: Vec<u64>,
    /// The number that it publishes under.
    turn: Turn,
    /// Its id, once it has a lease.
    job: Option<JobId>,
    /// How its lease ends, as far as it has come.
    ending: Ending,
}

/// The decisions of steps 2 to 6.
struct Decided {
    report: PassReport,
    decision: Decision,
    /// Whether the decision, or the ingested versions, are worth an index.
    has_news: bool,
    known_versions: KnownVersions,
    tasks: Vec<Box<dyn MaintenanceTask>>,
    search: Search,
    /// Containers that a rebuild searched for, and that are still missing.
    searched: Option<ContainerList>,
}

impl Pass<'_> {
    /// Steps 2 to 6 without the publication: the deletions, and the work of tasks.
    async fn decide(&self) -> Result<Decided, PassError> {
        let (repository, cancel, options) = (&self.context.repository, &self.context.cancel, self.options);
        let survey = Survey {
            repository,
            own: self.job,
            base: &self.base,
            index: &self.index,
            number: self.turn.number,
            listing: options.listing,
            memory: self.index_work().limits.memory / 4,
            dead_after: options.dead_after,
            min_age: options.min_age,
            now_ms: self.context.clock.now_ms(),
            trusts_signed: options.trust_signed,
            is_dry: options.dry_run,
        };

        // Step 2: versions, marks and leases. Jobs that look dead are fenced.
        stop_if_asked(cancel)?;
        let (mut before, seen) = survey.jobs_and_marks().await?;

        // Step 3: containers.
        survey.containers(&mut before, &seen).await?;

        // Step 4: leases.
        stop_if_asked(cancel)?;
        let mut leases = survey.leases(&before).await?;
        survey.look_late(&mut before).await?;

        // Step 5: versions, and every manifest that is retained. Missing objects are asked for by
        // name.
        let mut made_ms = BTreeMap::new();
        let registers = match repository.keeps(Rule::LeasesBeforeVersions) {
            true => survey.registers(&before, &leases, &mut made_ms).await?,
            false => before.registers.clone(),
        };
        leases.break_rules(repository);
        let mut proposal = Proposal::new(before, leases)?;
        stop_if_asked(cancel)?;
        let mut known_versions = KnownVersions::load(self.index_work(), &self.base).await?;
        known_versions.note_made(made_ms);
        known_versions.note_settled(seen.settled);
        proposal.note_recorded(|container| known_versions.has_record(container))?;
        let prover = Prover::new(copying(self.context, options.threads), self.index_work(), options.prove_max);
        let Versions { manifests_read, unproved } =
            survey.versions(&registers, prover, &mut known_versions, &mut proposal).await?;
        roll_back::expect_versions(self.context, options, |version| {
            registers.get(version).is_some_and(|generations| generations.first() == Some(&0))
                || proposal.is_marked(version)
        })
        .await?;
        ask_for_forwards(repository, &known_versions, &mut proposal).await?;
        ask_for_missing(repository, &proposal).await?;

        // Step 6: the decision.
        let waiting = survey.spare(&mut proposal, &registers).await?;
        let closed = match repository.keeps(Rule::RemoveOnlyClosed) {
            true => survey.closed(proposal.closing()).await?,
            false => proposal.closing().into_iter().collect(),
        };
        let needs = IndexNeeds::of(&self.base, repository);
        known_versions.note_dropped(proposal.dropped(&closed, &self.base.manifest.versions));
        let head = &self.base.manifest.head;
        let search = known_versions.search(head);
        let tasks = TaskInput {
            context: self.context,
            options,
            job: self.planning_job(),
            head,
            known_versions: &known_versions,
            proposal: &proposal,
            search,
            turn: self.turn.number,
            cold: Arc::new(ColdContainers::new(&std::env::temp_dir(), self.memory / COLD_ONE_IN)),
        };
        let tasks = tasks.list().await?;
        let missing_containers = proposal.missing(needs.missing);
        if missing_containers > 0 {
            // A later pass may have retired them; its index has the new places of their chunks.
            if is_overtaken(repository, &self.base).await? {
                return Err(PassError::Overtaken);
            }
            tracing::warn!(
                missing_containers,
                "containers that snapshots need are gone; `repair index` may find their chunks"
            );
        }
        let searched = proposal.searched(&needs.searched);
        let (kept, live_jobs, open_uploads) = (proposal.kept(), proposal.live() as u64, proposal.open_uploads()?);
        let mut decision =
            proposal.decide(&registers, &closed, &needs, |container| known_versions.has_record(container))?;
        decision.index_marks = self.marks.iter().copied().filter(|number| *number < self.base.number).collect();

        let has_news = !decision.is_empty() || known_versions.has_new();
        let plan = Plan {
            fenced: seen.fenced,
            versions_ingested: known_versions.ingested(),
            new_containers: known_versions.new_containers(&self.base.manifest),
            ..Plan::default()
        };
        let report = PassReport {
            outcome: Outcome::Planned,
            // Deletions that only go along with an index are not worth one.
            plan: if has_news { decision.add_to(plan) } else { plan },
            kept,
            live_jobs,
            manifests_read,
            unproved,
            missing_containers,
            waiting,
            open_uploads,
            table_bytes: known_versions.table_bytes(),
            ..PassReport::without_pass()
        };
        Ok(Decided { report, decision, has_news, known_versions, tasks, search, searched })
    }

    /// A dry run: the plan, as far as the index knows. It has chunks of new versions only when a
    /// pass has ingested them.
    async fn plan(&self) -> Result<PassReport, PassError> {
        let Decided { mut report, tasks, .. } = self.decide().await?;
        let (base, limits) = (self.base.clone(), self.index_work().limits);
        let plans = self.index_work().run(move |io| {
            // It writes nothing, so its runs need no name.
            let pass = index_pass(io, PassRuns::new(JobId([0; 16])), limits);
            let draft = Draft::new(&pass, &base);
            tasks.iter().map(|task| task.plan(&pass, &draft)).collect::<Result<Vec<_>, ReclaimError>>()
        });
        report.plan.add_tasks(plans.await?);
        Ok(report)
    }

    /// Steps 2 to 7, as a job with a lease.
    async fn make(&mut self) -> Result<PassReport, PassError> {
        let repository = &self.context.repository;
        let number = self.turn.number;

        // Steps 2 to 6, up to the decision.
        let Decided { mut report, mut decision, has_news, known_versions, tasks, search, searched } =
            self.decide().await?;
        if !has_news && tasks.is_empty() && self.base.manifest.head.unlisted.is_none() {
            report.outcome = Outcome::Nothing;
            return Ok(report);
        }
        stop_if_asked(&self.context.cancel)?;

        // Step 6: the next index is written, with new versions and containers. Tasks run in its
        // draft. Meanwhile, most of the listing is in a file, and they have the other memory.
        let listed = decision.containers.shrink_to(self.memory / LISTING_KEPT_ONE_IN)?;
        let job = self.job.ok_or(PassError::Unannounced)?;
        let time_ms = self.context.clock.now_ms();
        let mut written =
            known_versions.write(self.index_work_beside(listed), job, time_ms, &self.base.manifest).await?;
        let ids = std::mem::replace(&mut written.ids, PassRuns::new(job));
        let sketches = std::mem::take(&mut written.sketches);
        let publisher = Publisher { job, identity: &self.context.identity, time_ms, number };
        let mut manifest = next_manifest(&self.base.manifest, &publisher, &mut decision, &report.plan, written)?;
        search.keep(&mut manifest.head);
        manifest.head.missing = Some(report.missing_containers).filter(|missing| *missing > 0);
        manifest.head.searched = searched;
        self.ending = ending(!tasks.is_empty());
        let first_new = self.base.manifest.head.next_container;
        let tasks = move |pass: &IndexPass, draft: &mut Draft<'_>| run_all(&tasks, pass, draft);
        let WithChunks { mut manifest, ingested, left_over, then: mut done } =
            with_chunks(self.index_work_beside(listed), ids, manifest, first_new, sketches, tasks).await?;
        self.ending = ending(done.may_have_left || done.has_written);
        report.add_tasks(done.reports);
        report.unlisted = ingested.unreadable.into_iter().map(|(container, _)| container).collect();
        report.cold_unlisted = ingested.cold.len() as u64;
        if !has_news && ingested.containers == 0 && !done.is_news {
            let before: HashSet<RunId> = run_ids(&self.base.manifest).collect();
            let own = run_ids(&manifest).filter(|id| !before.contains(id));
            discard(repository, own.chain(left_over).collect()).await?;
            report.outcome = Outcome::Nothing;
            return Ok(report);
        }
        report.plan = decision.add_to(report.plan);
        report.plan.note_done(&report.reclaimed);
        report.is_unfinished = done.was_stopped;
        for retired in &mut done.retired {
            queue_retired(&mut manifest, retired, number)?;
        }
        queue_superseded_runs(&mut manifest, &self.base.manifest, number);

        // Step 6: the decision is published. While its index may still be created, the lease names
        // that number.
        let unpublished = std::mem::replace(&mut self.ending, Ending::Open);
        if !repository.keeps(Rule::RedirectBeforeRemoval) {
            for batch in done.retired.iter_mut().flat_map(RetiredContainers::batches) {
                for container in batch? {
                    repository.store().delete(&names::container(container.id)).await?;
                }
            }
        }
        match publish(repository, &self.turn, manifest).await? {
            Published::Won { all_answered, snapshot } => {
                self.context.machine.note_index(SeenIndex { is_own: true, ..seen_as(&snapshot) });
                self.ending = if all_answered { ending(done.may_have_left) } else { Ending::Open };
                report.outcome = Outcome::Published(number);
            }
            Published::Lost | Published::Overtaken { .. } => {
                self.ending = unpublished;
                if repository.keeps(Rule::PublishFirst) {
                    return Ok(report.lost());
                }
                report.outcome = Outcome::Lost;
            }
        }

        // Step 7: deletions. Retired containers may be deleted once the index is published
        // (`RedirectBeforeRemoval`).
        let gone = decision.removals.values().flat_map(|removal| &removal.marks);
        self.context.machine.forget_versions(gone.copied());
        discard(repository, left_over).await?;
        for batch in done.retired.iter_mut().flat_map(RetiredContainers::batches) {
            decision.containers.extend(batch?)?;
        }
        let end = delete(repository, decision, &self.context.cancel, &mut report).await?;
        report.is_unfinished |= end == ControlFlow::Break(());
        Ok(report)
    }

    /// The job that plans are made for. Without a lease nothing is written, and its id is of no
    /// consequence.
    fn planning_job(&self) -> JobId {
        self.job.unwrap_or(self.base.manifest.head.pass)
    }

    fn index_work(&self) -> IndexWork<'_> {
        self.index_work_beside(0)
    }

    /// Work on tables while this number of bytes is in memory beside it.
    fn index_work_beside(&self, held: usize) -> IndexWork<'_> {
        let limits = Limits { memory: self.memory - held.min(self.memory), threads: self.options.threads };
        IndexWork { executor: &self.context.executor, repository: &self.context.repository, limits }
    }
}

/// The end of a pass whose index is settled. Its containers that no index has are found by its
/// lease.
fn ending(may_leave_containers: bool) -> Ending {
    if may_leave_containers { Ending::Closed(Done::task_over()) } else { Ending::Removed }
}
