//! One pass from its lease to its end.

use std::collections::HashSet;
use std::ops::ControlFlow;

use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::{Doomed, IndexManifest, PassStatistics, Queued, Reason};
use larder_format::lease::{Done, Pin};
use larder_index::{Current, Draft, IndexPass, IndexSnapshot, PassRuns, Published, Turn, publish};
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_lifecycle::arrange::{arrange, plan as plan_arranging};
use larder_store::Repository;
use larder_store::repository::random;
use larder_store::rules::Rule;

use super::cost::Requests;
use super::decide::Decision;
use super::delete::carry_out;
use super::lost_index::{Beginning, begin};
use super::options::PassOptions;
use super::plan::Decided;
use super::report::{Outcome, PassReport, Plan};
use crate::error::{PassError, stop_if_asked};
use crate::known_versions::{Written, run_ids};
use crate::reclaim::{Exact, ReclaimError, Work, plan, reclaim};
use crate::tables::{IndexWork, Limits, WithChunks, beside_tails, discard, index_pass, remembering, with_chunks};

/// Makes a pass.
pub async fn run(context: &JobContext, options: &PassOptions) -> Result<PassReport, PassError> {
    // A pass decides by what listings lack: one that lacks what cannot be examined is no listing.
    let strict = context.repository.through(context.repository.store().listing_strictly());
    let context = &context.through(&strict).limited_to(options.max_duration, context.clock.now_ms());
    let before = strict.store().stats();
    let repository = remembering(&strict, options.memory);
    let repository = repository.through(repository.store().without_cache());
    // Step 1: the number comes before everything else (`PublishFirst`).
    let Beginning { mut current, rebuilt } = begin(context, options, &repository).await?;
    let turn = current.turn()?;
    let index = (std::mem::take(&mut current.numbers), std::mem::take(&mut current.runs));
    let marks = std::mem::take(&mut current.marks);
    let base = current.base()?;
    let mut pass = Pass {
        context,
        options,
        repository,
        base,
        index,
        marks,
        number: turn.number,
        turn,
        job: None,
        leave_lease: false,
        may_leave_containers: false,
    };
    if options.dry_run {
        let looked = pass.look().await;
        let report = pass.or_overtaken(looked).await?;
        let planning = Requests::between(&before, &strict.store().stats());
        return Ok(PassReport { planning, ..report });
    }
    let report = announced(&mut pass).await?;
    Ok(PassReport { rebuilt, ..report })
}

/// Makes a pass as a job with a lease.
async fn announced(pass: &mut Pass<'_>) -> Result<PassReport, PassError> {
    let context = pass.context;
    let lease = context.lease_of_task(pass.number);
    let job = JobId::new(lease.written_ms, random(pass.repository.entropy())?);
    pass.job = Some(job);
    let context = context.through(&pass.repository);
    let work = async {
        let result = pass.collect().await;
        let result = pass.or_overtaken(result).await;
        let result = pass.unless_overtaken(result).await;
        let ending = match (pass.leave_lease, pass.may_leave_containers) {
            (true, _) => Ending::Open,
            // Containers that it wrote and that no index has are found by its lease.
            (false, true) => Ending::Closed(Done::task_over()),
            (false, false) => Ending::Removed,
        };
        (result, ending)
    };
    LeaseKeeper::hold(&context, job, lease, work).await
}

/// A pass that is under way.
pub(super) struct Pass<'a> {
    /// It asks to stop when the time of the pass is over.
    pub(super) context: &'a JobContext,
    pub(super) options: &'a PassOptions,
    pub(super) repository: Repository,
    pub(super) base: IndexSnapshot,
    /// What was listed with it.
    pub(super) index: (Vec<u64>, Vec<(RunId, u64)>),
    /// Numbers of the marks of indexes.
    pub(super) marks: Vec<u64>,
    pub(super) number: u64,
    /// The same number, with what was known when it was taken.
    turn: Turn,
    pub(super) job: Option<JobId>,
    /// Whether the index may still come to be created: until that is settled the lease says what it belongs to.
    leave_lease: bool,
    /// Whether it may have written containers that no index has.
    may_leave_containers: bool,
}

impl Pass<'_> {
    pub(super) fn index_work(&self) -> IndexWork<'_> {
        let memory = beside_tails(self.options.memory);
        let limits = Limits { memory, threads: self.options.threads };
        IndexWork { executor: &self.context.executor, repository: &self.repository, limits }
    }

    /// What would be done.
    async fn look(&self) -> Result<PassReport, PassError> {
        let Decided { mut report, work, arranging, .. } = self.decide().await?;
        if let Some(work) = work {
            report.plan.reclaimed = self.planned(move |pass, draft| plan(pass, draft, &work)).await?;
        }
        if let Some(work) = arranging {
            report.plan.arranging = self.planned(move |pass, draft| Ok(plan_arranging(pass, draft, &work)?)).await?;
        }
        Ok(report)
    }

    /// The runs of its index are gone when two other passes published meanwhile: then it was only too slow.
    async fn or_overtaken<T>(&self, result: Result<T, PassError>) -> Result<T, PassError> {
        match result {
            Err(PassError::Index(error)) if error.is_damage() => match self.is_overtaken().await {
                Ok(true) => Err(PassError::Overtaken),
                _ => Err(error.into()),
            },
            result => result,
        }
    }

    /// Damage that a pass saw and that published nothing may be what a faster one deleted.
    async fn unless_overtaken(&self, result: Result<PassReport, PassError>) -> Result<PassReport, PassError> {
        match result {
            Ok(report) if report.outcome == Outcome::Nothing && report.found_damage() => {
                Ok(if self.is_overtaken().await? { report.lost() } else { report })
            }
            result => result,
        }
    }

    /// Whether there is a newer index than the one that it is based on.
    pub(super) async fn is_overtaken(&self) -> Result<bool, PassError> {
        Ok(Current::look(&self.repository).await?.snapshot.number > self.base.number)
    }

    /// What would be done, as far as the index knows: chunks of new versions are in it only when a pass has taken them in.
    async fn planned<T: Send + 'static>(
        &self,
        plan: impl FnOnce(&IndexPass, &Draft<'_>) -> Result<T, ReclaimError> + Send + 'static,
    ) -> Result<T, PassError> {
        let (base, limits) = (self.base.clone(), self.index_work().limits);
        let planned = move |io| {
            // It writes nothing, so its runs need no name.
            let pass = index_pass(io, PassRuns::new(JobId([0; 16])), limits);
            plan(&pass, &Draft::new(&pass, &base))
        };
        self.index_work().run(planned).await
    }

    async fn collect(&mut self) -> Result<PassReport, PassError> {
        let Decided { mut report, mut decision, has_news, ledger, work, arranging, searched } = self.decide().await?;
        let has_unlisted = self.base.manifest.head.unlisted.is_some();
        if !has_news && work.is_none() && arranging.is_none() && !has_unlisted {
            report.outcome = Outcome::Nothing;
            return Ok(report);
        }
        stop_if_asked(&self.context.cancel)?;
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
            let reclaimed = work.map(|work| reclaim(pass, draft, &work)).transpose()?.unwrap_or_default();
            Ok((arranged, reclaimed))
        };
        let WithChunks { mut manifest, ingested, left_over, then: (arranged, reclaimed) } =
            with_chunks(self.index_work(), ids, manifest, first_new, sketches, tasks).await?;
        let has_listed = ingested.containers > 0;
        report.unlisted = ingested.unreadable.into_iter().map(|(container, _)| container).collect();
        let has_begun_in_vain = reclaimed.was_stopped || !reclaimed.unreadable.is_empty() || arranged.may_have_left();
        self.may_leave_containers = has_begun_in_vain || reclaimed.written + arranged.written > 0;
        let before: HashSet<RunId> = run_ids(&self.base.manifest).collect();
        if !has_news && !has_listed && reclaimed.containers.is_empty() && arranged.is_nothing() {
            let own = run_ids(&manifest).filter(|id| !before.contains(id));
            discard(&self.repository, own.chain(left_over).collect()).await?;
            report.outcome = Outcome::Nothing;
            (report.reclaimed, report.arranged) = (reclaimed, arranged);
            return Ok(report);
        }
        report.plan = Plan { reclaimed: reclaimed.plan, ..report.plan.with(&decision) };
        let is_searched = reclaimed.plan.is_exact && !reclaimed.was_stopped;
        manifest.head.missing = Some(report.missing_containers).filter(|missing| *missing > 0);
        manifest.head.searched = searched;
        let exact = self.options.reclaim.as_ref().map_or(Exact::Never, |options| options.exact);
        search.note(exact, is_searched.then_some(reclaimed.remains), &mut manifest.head);
        let moved = reclaimed.containers.iter().chain(&arranged.containers);
        let moved = moved.map(|container| Doomed::Container(container.id));
        manifest.queue.extend(moved.map(|what| Queued { what, reason: Reason::Moved, decided: self.number }));
        manifest.head.statistics.containers_queued += reclaimed.containers.len() as u64 + arranged.reclaimed;
        manifest.head.statistics.bytes_queued += reclaimed.plan.container_bytes.0 + arranged.retired_bytes.0;
        // To retire is to delete, from the moment on when the index is published (`RedirectBeforeRemoval`).
        decision.containers.extend(reclaimed.containers.iter().chain(&arranged.containers));
        report.is_unfinished = reclaimed.was_stopped || arranged.was_stopped;
        (report.reclaimed, report.arranged) = (reclaimed, arranged);
        // Readers of the index before may want them for a while: the next pass that publishes deletes them.
        let used: HashSet<RunId> = run_ids(&manifest).collect();
        let gone = before.into_iter().filter(|id| !used.contains(id));
        let superseded = |id| Queued { what: Doomed::Run(id), reason: Reason::Superseded, decided: self.number };
        let mut gone: Vec<_> = gone.collect();
        gone.sort_unstable();
        manifest.queue.extend(gone.into_iter().map(superseded));
        self.leave_lease = true;
        if !self.repository.keeps(Rule::RedirectBeforeRemoval) {
            for container in &report.reclaimed.containers {
                self.repository.store().delete(&larder_format::names::container(container.id)).await?;
            }
        }
        match publish(&self.repository, &self.turn, manifest).await? {
            Published::Won { all_answered, .. } => {
                self.leave_lease = !all_answered;
                self.may_leave_containers = has_begun_in_vain;
                report.outcome = Outcome::Published(self.number);
            }
            Published::Lost | Published::Overtaken { .. } => {
                self.leave_lease = false;
                if self.repository.keeps(Rule::PublishFirst) {
                    return Ok(report.lost());
                }
                report.outcome = Outcome::Lost;
            }
        }
        discard(&self.repository, left_over).await?;
        let end = carry_out(&self.repository, decision, &self.context.cancel, &mut report).await?;
        report.is_unfinished |= end == ControlFlow::Break(());
        Ok(report)
    }

    /// The index as it is, with the decision as its queue. What the queue of the index before left undone was decided afresh.
    fn next_manifest(&self, decision: &Decision, plan: &Plan, written: Written) -> IndexManifest {
        let mut manifest = (*self.base.manifest).clone();
        manifest.head.pass = self.job.unwrap_or(manifest.head.pass);
        manifest.head.time_ms = self.context.clock.now_ms();
        manifest.head.host.clone_from(&self.context.identity.host);
        manifest.head.program.clone_from(&self.context.identity.program);
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
