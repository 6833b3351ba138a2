//! Ends what nobody will do any more: tasks of workers that are silent for too long. Any process
//! does it, and two at once do no harm: a register is created once.
//!
//! Partitions are never ended, because any worker can do them.

use std::time::Duration;

use larder_format::fleet::{FleetPlan, Stage, TaskId};
use larder_format::ids::AttemptId;
use larder_format::lease::Pin;
use larder_job::JobContext;
use larder_store::forget_marks::OwnedVersion;
use larder_store::rules::Rule;
use larder_store::survey::Fenced;

use crate::error::FleetError;
use crate::exchange::Decided;
use crate::queue::StoreQueue;
use crate::shared::Batch;
use crate::situation::{Known, Situation};

/// Renewals of the lease of a batch that its process leaves out before another one renews it.
const RENEWALS_LEFT_OUT: u32 = 3;

/// Ends tasks of workers that are silent for longer than this. Returns the registers that it
/// created. Looks after the lease of the batch, once for each own sign of life.
pub(crate) fn supervise(
    batch: &Batch<'_>,
    known: Known<'_>,
    queue: &mut StoreQueue,
    after: Duration,
) -> Result<Vec<Decided>, FleetError> {
    let Situation::Due(due) = known.situation() else { return Ok(Vec::new()) };
    let Some(round) = due.first().map(|task| batch.plan.round_of_task(*task)) else { return Ok(Vec::new()) };
    queue.is_at(round);
    let times = queue.times()?;
    if queue.is_new(&times) {
        keep_lease(batch, times.now_ms())?;
    }
    let mut ended = Vec::new();
    for task in due {
        let (host, worker, of) = match task.stage {
            Stage::Join | Stage::Resolve | Stage::Check | Stage::Copy | Stage::Mark => continue,
            Stage::Scan | Stage::Send => {
                let claim = queue.claimed_by(&times, task)?;
                match claim {
                    // A worker is busy with another batch, or with other images of this one.
                    None if queue.is_awaited(&times, task.number, after)? => continue,
                    Some(claim) => (task.number, Some(claim.worker), Some(claim.host)),
                    // Nobody began: how long the one of an earlier round has been silent counts.
                    None if round > 0 && times.of_round() <= queue.claim_after() => continue,
                    None => (task.number, worker_before(known, task.number), None),
                }
            }
            Stage::Place => (task.number, worker_of(known, task.number), None),
            Stage::Store | Stage::Finish => {
                let host = batch.image(task.number).host;
                (host, worker_of(known, host), None)
            }
        };
        let silence = times.silence_of(worker);
        if silence <= after || worker.is_some_and(|worker| Some(worker) == batch.worker) {
            continue;
        }
        let name = &batch.host(host).name;
        let on = of.filter(|of| of != name).map(|of| format!(" on {of}")).unwrap_or_default();
        let seconds = silence.as_secs();
        let why = match worker {
            None => format!("no worker for host {name} came within {seconds} s; start `larder fleet work` there"),
            Some(_) => format!(
                "the worker of host {name}{on} gave no sign of life for {seconds} s; `larder fleet retry {}` saves \
                 its images",
                batch.id
            ),
        };
        ended.extend(end(batch, task, why)?);
    }
    Ok(ended)
}

/// The lease of the batch must be open. If its process leaves out several renewals, it is renewed
/// here, so that no pass removes what the others work with.
fn keep_lease(batch: &Batch<'_>, now_ms: u64) -> Result<(), FleetError> {
    let newest_ms = expect_open(batch)?;
    let (context, (newest, made_ms)) = (batch.context, newest_ms);
    let silence = Duration::from_millis(now_ms.saturating_sub(made_ms));
    if made_ms > 0 && silence > context.renew_every * RENEWALS_LEFT_OUT {
        tracing::info!(batch = %batch.id, "its process is silent; its lease is renewed for it");
        let renewed = context.repository.renew_for(batch.id, newest, context.clock.now_ms());
        context.executor.block_on(renewed)?;
    }
    Ok(())
}

/// Objects of a batch go only when its lease is closed or gone. So who finds it open after its own
/// registers knows that these are the first ones (`BatchAsked`). Returns the newest object of the
/// lease, and when the store made it.
pub(crate) fn expect_open(batch: &Batch<'_>) -> Result<(u32, u64), FleetError> {
    let state = batch.context.executor.block_on(batch.context.repository.lease_state(batch.id))?;
    match state.newest {
        Some(newest) if !state.is_closed => Ok(newest),
        _ => Err(FleetError::BatchOver { is_closed: state.is_closed }),
    }
}

/// Ends everything that is due.
pub(crate) fn abort(batch: &Batch<'_>, known: Known<'_>, why: &str) -> Result<Vec<Decided>, FleetError> {
    let Situation::Due(due) = known.situation() else { return Ok(Vec::new()) };
    let ended = due.into_iter().map(|task| end(batch, task, why.to_owned()));
    Ok(ended.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Ends a task. A version that exists is one, so the job of a version is fenced before
/// (`FencedBeforeNamed`).
pub(crate) fn end(batch: &Batch<'_>, task: TaskId, why: String) -> Result<Option<Decided>, FleetError> {
    if task.stage == Stage::Finish
        && batch.context.repository.keeps(Rule::FencedBeforeNamed)
        && is_committed(batch.context, &batch.plan, task.number)?
    {
        // Its worker was lost between the version and its register.
        return batch.done(task);
    }
    batch.abort(task, why)
}

/// Fences the job of an image: from now on, it commits nothing. Whether it has.
pub(crate) fn is_committed(context: &JobContext, plan: &FleetPlan, number: u32) -> Result<bool, FleetError> {
    let (repository, planned) = (&context.repository, &plan.images[number as usize]);
    let (series, job) = (repository.keys().series_key(&planned.series), planned.job);
    let version = OwnedVersion { domain: repository.keys().domain(), version: Pin { series, job } };
    match context.executor.block_on(repository.fence(version, 0))? {
        Fenced::Taken => Ok(true),
        Fenced::Aborted => Ok(false),
        Fenced::No => Err(FleetError::Taken { task: TaskId { stage: Stage::Finish, round: 0, number } }),
    }
}

/// The worker that read this host's images in the newest round before.
fn worker_before(known: Known<'_>, host: u32) -> Option<AttemptId> {
    let plan = known.plan;
    let name = |host: u32| plan.hosts.get(host as usize).map(|host| &host.name);
    let is_before = |other: &u32| name(*other) == name(host) && plan.round_of(*other) < plan.round_of(host);
    let before = (0..plan.hosts.len() as u32).filter(is_before).max_by_key(|other| plan.round_of(*other));
    before.and_then(|before| worker_of(known, before))
}

/// The worker whose session of a host counts.
fn worker_of(known: Known<'_>, host: u32) -> Option<AttemptId> {
    let send = TaskId { stage: Stage::Send, round: 0, number: host };
    let sent = known.registers.get(&send).filter(|sent| sent.record.attempt.is_some());
    sent.and_then(|sent| sent.record.worker)
}
