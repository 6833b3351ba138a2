//! What the registers of a batch say: which tasks are decided, how, and at what cost. And who works
//! on it. Of a check or a pass that is shared, the names of its objects tell how many tasks it has
//! and has had done.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::fleet::{CLAIM_MAX, FleetPlan, FleetWorker, PLAN_MAX, Stage, TaskId};
use larder_format::ids::{AttemptId, JobId};
use larder_format::names::{self, FleetObject};
use larder_index::Executor;
use larder_store::{Repository, RepositoryError, StoreErrorKind};

use crate::board;
use crate::exchange::Decided;
use crate::situation::{Known, Registers, Situation};

/// A stage of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StageStatus {
    /// Tasks that were done.
    pub done: u64,
    /// Tasks that were aborted, and why.
    pub aborted: Vec<(TaskId, String)>,
    /// Milliseconds of all its tasks.
    pub took_ms: u64,
    /// The most memory that a process had, in bytes; 0: not known.
    pub memory: u64,
    /// Bytes of images that were read.
    pub read_bytes: u64,
    /// Bytes that were stored, before compression.
    pub stored_bytes: u64,
    /// Bytes that its tasks left for others.
    pub output_bytes: u64,
}

/// A stage of a batch, among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId {
    /// The round of the plan: 0 for the first.
    pub round: u32,
    /// The stage.
    pub stage: Stage,
    /// How often images have waited for chunks of others before: 0 to 2.
    pub waited: u8,
}

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchStatus {
    /// Its id.
    pub batch: JobId,
    /// Its plan.
    pub plan: FleetPlan,
    /// Its stages. Those without a register are left out.
    pub stages: BTreeMap<StageId, StageStatus>,
    /// The stage that is due; `None`: every task is decided.
    pub due: Option<StageId>,
    /// Tasks of that stage that are not decided.
    pub due_tasks: Vec<u32>,
    /// Claims beyond the first of a task.
    pub retries: u64,
    /// Its workers.
    pub workers: Vec<WorkerStatus>,
    /// Whether its lease is open.
    pub is_open: bool,
}

/// A process at work on a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Its host.
    pub host: String,
    /// Number of the process.
    pub process: u32,
    /// Name and version of the program.
    pub program: String,
    /// The most memory that it had, in bytes; 0: not known.
    pub memory: u64,
    /// Milliseconds since its last sign of life, before the newest one of all workers.
    pub silent_ms: u64,
    /// Tasks that it did.
    pub tasks: u64,
}

/// A check or a pass that is shared with workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedStatus {
    /// Its batch: the id of its lease.
    pub batch: JobId,
    /// [`Stage::Check`], [`Stage::Copy`] or [`Stage::Mark`].
    pub stage: Stage,
    /// Tasks that it has given away.
    pub tasks: u64,
    /// Those of them that are done, by its own process or by others.
    pub done: u64,
    /// Claims beyond the first of a task.
    pub retries: u64,
    /// The processes that take part, its own among them. It is not known what each did.
    pub workers: Vec<WorkerStatus>,
    /// Whether its lease is open.
    pub is_open: bool,
}

/// The state of a check or a pass; `None`: the batch is neither, or has given nothing away.
///
/// # Errors
/// The store does not answer.
pub fn shared_status(
    repository: &Repository,
    executor: &Executor,
    batch: JobId,
) -> Result<Option<SharedStatus>, RepositoryError> {
    executor.block_on(async {
        let (mut tasks, mut done, mut retries, mut beats) = (BTreeSet::new(), BTreeSet::new(), 0, BTreeMap::new());
        for object in repository.store().without_cache().list(&names::fleet_batch(batch)).await? {
            match names::parse_fleet(&object.name) {
                Some((_, FleetObject::Range(task))) => drop(tasks.insert(task)),
                Some((_, FleetObject::Done(task))) => drop(done.insert(task)),
                Some((_, FleetObject::Claim(_, epoch))) => retries += u64::from(epoch > 0),
                Some((_, FleetObject::Beat(worker, number))) => {
                    let last = beats.entry(worker).or_insert((0, 0));
                    *last = (*last).max((number, object.made_ms()));
                }
                Some((_, FleetObject::Plan | FleetObject::Output(..))) | None => {}
            }
        }
        let Some(stage) = tasks.first().map(|task| task.stage) else { return Ok(None) };
        let workers = workers(repository, batch, &beats, &Registers::new()).await?;
        let is_open = repository.fleet_batches().await?.open.contains(&batch);
        let done = tasks.intersection(&done).count() as u64;
        Ok(Some(SharedStatus { batch, stage, tasks: tasks.len() as u64, done, retries, workers, is_open }))
    })
}

/// The batches that have left anything, the newest first.
///
/// # Errors
/// The store does not answer.
pub fn batches(repository: &Repository, executor: &Executor) -> Result<Vec<JobId>, RepositoryError> {
    let found = executor.block_on(repository.fleet_batches())?;
    let mut batches: Vec<JobId> = found.over.into_keys().chain(found.open).collect();
    batches.sort_unstable_by(|a, b| b.cmp(a));
    Ok(batches)
}

/// The state of a batch; `None` without a plan, or if it was removed meanwhile. A register that
/// does not open counts as that of a task that was aborted.
///
/// # Errors
/// The store does not answer, or the plan does not open.
pub fn status(
    repository: &Repository,
    executor: &Executor,
    batch: JobId,
) -> Result<Option<BatchStatus>, RepositoryError> {
    executor.block_on(async {
        let (mut has_plan, mut claims, mut beats) = (false, Vec::new(), BTreeMap::new());
        for object in repository.store().without_cache().list(&names::fleet_batch(batch)).await? {
            match names::parse_fleet(&object.name) {
                Some((_, FleetObject::Plan)) => has_plan = true,
                Some((_, FleetObject::Claim(task, epoch))) => claims.push((task, epoch)),
                Some((_, FleetObject::Beat(worker, number))) => {
                    let last = beats.entry(worker).or_insert((0, 0));
                    *last = (*last).max((number, object.made_ms()));
                }
                Some((_, FleetObject::Output(..) | FleetObject::Range(_) | FleetObject::Done(_))) | None => {}
            }
        }
        if !has_plan {
            return Ok(None);
        }
        let name = names::fleet_plan(batch);
        let is_gone = |error: &RepositoryError| {
            matches!(error, RepositoryError::Store(error) if error.kind == StoreErrorKind::NotFound)
        };
        let bytes = match repository.store().get_up_to(&name, PLAN_MAX).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let damaged = |source| RepositoryError::Damaged { name, source };
        let plan = FleetPlan::decode(repository.keys(), batch, &bytes).map_err(damaged)?;
        let read = match board::unknown(repository, batch, &Registers::new()).await {
            Err(error) if is_gone(&error) => return Ok(None),
            read => read?,
        };
        let registers: Registers = read.into_iter().map(|decided| (decided.task, decided)).collect();
        let id = |task: TaskId| match task.stage {
            // The number of a scan says which attempt at its host it is of.
            Stage::Scan => StageId { round: plan.round_of_task(task), stage: task.stage, waited: 0 },
            stage => StageId { round: plan.round_of_task(task), stage, waited: task.round },
        };
        let mut stages: BTreeMap<StageId, StageStatus> = BTreeMap::new();
        for (task, Decided { record, .. }) in &registers {
            let of = stages.entry(id(*task)).or_default();
            match record.attempt {
                Some(_) => of.done += 1,
                None => of.aborted.push((*task, record.why.clone().unwrap_or_default())),
            }
            of.took_ms += record.took_ms;
            of.memory = of.memory.max(record.memory);
            of.read_bytes += record.read_bytes;
            of.stored_bytes += record.stored_bytes;
            of.output_bytes += record.outputs.iter().map(|output| output.object_bytes).sum::<u64>();
        }
        let situation = Known { plan: &plan, registers: &registers }.situation();
        let (due, due_tasks) = match &situation {
            Situation::Due(due) => (due.first().map(|task| id(*task)), due.iter().map(|task| task.number).collect()),
            Situation::Over => (None, Vec::new()),
        };
        let workers = workers(repository, batch, &beats, &registers).await?;
        let retries = claims.iter().filter(|(_, epoch)| *epoch > 0).count() as u64;
        let is_open = repository.fleet_batches().await?.open.contains(&batch);
        Ok(Some(BatchStatus { batch, plan, stages, due, due_tasks, retries, workers, is_open }))
    })
}

/// The workers by their newest signs of life, without those that cannot be read, or went
/// meanwhile.
async fn workers(
    repository: &Repository,
    batch: JobId,
    beats: &BTreeMap<AttemptId, (u32, u64)>,
    registers: &Registers,
) -> Result<Vec<WorkerStatus>, RepositoryError> {
    let newest = beats.values().map(|(_, made_ms)| *made_ms).max().unwrap_or(0);
    let mut workers = Vec::with_capacity(beats.len());
    for (worker, (number, made_ms)) in beats {
        let name = names::fleet_beat(batch, *worker, *number);
        let bytes = match repository.store().get_up_to(&name, CLAIM_MAX).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind == StoreErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let beat = FleetWorker::decode_beat(repository.keys(), batch, *worker, *number, &bytes);
        let Ok(beat) = beat else { continue };
        let tasks = registers.values().filter(|decided| decided.record.worker == Some(*worker)).count() as u64;
        let FleetWorker { host, process, program, memory, .. } = beat;
        workers.push(WorkerStatus {
            host,
            process,
            program,
            memory,
            silent_ms: newest.saturating_sub(*made_ms),
            tasks,
        });
    }
    Ok(workers)
}
