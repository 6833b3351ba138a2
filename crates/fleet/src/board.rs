//! The registers of a batch that other processes create.

use futures::{StreamExt, TryStreamExt};
use larder_format::fleet::{TASK_MAX, TaskId, TaskRecord};
use larder_format::ids::JobId;
use larder_format::names::{self, FleetObject};
use larder_store::{Repository, RepositoryError};

use crate::exchange::Decided;
use crate::situation::Registers;

/// Registers that are read at once.
const AT_ONCE: usize = 16;

/// Reads the registers of a batch that are not known yet.
pub(crate) async fn unknown(
    repository: &Repository,
    batch: JobId,
    known: &Registers,
) -> Result<Vec<Decided>, RepositoryError> {
    let listed = repository.store().without_cache().list(&names::fleet_registers(batch)).await?;
    let tasks = listed.iter().filter_map(|object| match names::parse_fleet(&object.name) {
        Some((_, FleetObject::Done(task))) => Some(task),
        _ => None,
    });
    let unknown: Vec<TaskId> = tasks.filter(|task| !known.contains_key(task)).collect();
    let read = unknown.into_iter().map(|task| async move {
        let record = read(repository, batch, task).await?;
        Ok::<_, RepositoryError>(Decided { task, record, digests: None })
    });
    futures::stream::iter(read).buffered(AT_ONCE).try_collect().await
}

/// Reads a register.
pub(crate) async fn read(repository: &Repository, batch: JobId, task: TaskId) -> Result<TaskRecord, RepositoryError> {
    let name = names::fleet_done(batch, task);
    let bytes = repository.store().get_up_to(&name, TASK_MAX).await?;
    TaskRecord::decode(repository.keys(), batch, task, &bytes)
        .map_err(|source| RepositoryError::Damaged { name, source })
}
