//! What the registers of a batch say: which tasks are decided, how, and at what cost.

use std::collections::BTreeMap;

use larder_format::fleet::{FleetPlan, PLAN_MAX, Stage, TASK_MAX, TaskId, TaskRecord};
use larder_format::ids::JobId;
use larder_format::names::{self, FleetObject};
use larder_index::Executor;
use larder_store::{Repository, RepositoryError};

/// A stage of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StageStatus {
    /// Tasks that were done.
    pub done: u64,
    /// Tasks that were aborted: number, and why.
    pub aborted: Vec<(u32, String)>,
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

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchStatus {
    /// Its id.
    pub batch: JobId,
    /// Its plan.
    pub plan: FleetPlan,
    /// Its stages, by round. Those without a register are left out.
    pub stages: BTreeMap<(Stage, u8), StageStatus>,
    /// Whether its lease is open.
    pub is_open: bool,
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

/// The state of a batch; `None` without a plan.
///
/// # Errors
/// The store does not answer, or an object of the batch does not open.
pub fn status(
    repository: &Repository,
    executor: &Executor,
    batch: JobId,
) -> Result<Option<BatchStatus>, RepositoryError> {
    executor.block_on(async {
        let (mut has_plan, mut tasks) = (false, Vec::new());
        for object in repository.store().list(&names::fleet_batch(batch)).await? {
            match names::parse_fleet(&object.name) {
                Some((_, FleetObject::Plan)) => has_plan = true,
                Some((_, FleetObject::Done(task))) => tasks.push(task),
                Some((_, FleetObject::Output(..))) | None => {}
            }
        }
        if !has_plan {
            return Ok(None);
        }
        let name = names::fleet_plan(batch);
        let bytes = repository.store().get_up_to(&name, PLAN_MAX).await?;
        let damaged = |source| RepositoryError::Damaged { name, source };
        let plan = FleetPlan::decode(repository.keys(), batch, &bytes).map_err(damaged)?;
        let mut stages: BTreeMap<(Stage, u8), StageStatus> = BTreeMap::new();
        for task in tasks {
            let record = read(repository, batch, task).await?;
            let of = stages.entry((task.stage, task.round)).or_default();
            match record.attempt {
                Some(_) => of.done += 1,
                None => of.aborted.push((task.number, record.why.unwrap_or_default())),
            }
            of.took_ms += record.took_ms;
            of.memory = of.memory.max(record.memory);
            of.read_bytes += record.read_bytes;
            of.stored_bytes += record.stored_bytes;
            of.output_bytes += record.outputs.iter().map(|output| output.object_bytes).sum::<u64>();
        }
        let is_open = repository.fleet_batches().await?.open.contains(&batch);
        Ok(Some(BatchStatus { batch, plan, stages, is_open }))
    })
}

async fn read(repository: &Repository, batch: JobId, task: TaskId) -> Result<TaskRecord, RepositoryError> {
    let name = names::fleet_done(batch, task);
    let bytes = repository.store().get_up_to(&name, TASK_MAX).await?;
    TaskRecord::decode(repository.keys(), batch, task, &bytes)
        .map_err(|source| RepositoryError::Damaged { name, source })
}
