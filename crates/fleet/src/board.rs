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

/// Reads the registers of a batch that are not known yet. One that cannot be read says that its
/// task was aborted.
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
        match read(repository, batch, task).await {
            Ok(record) => Ok(Decided::by_others(task, record)),
            // Every process reads the same, so all of them see a task that was aborted.
            Err(error) if error.is_of_object() || error.is_foreign() => {
                tracing::warn!(%task, %error, "a register cannot be read; its task counts as aborted");
                Ok(Decided::unreadable(task, &error, repository.keys().domain()))
            }
            Err(error) => Err(error),
        }
    });
    futures::stream::iter(read).buffered(AT_ONCE).try_collect().await
}

/// Reads a register.
pub(crate) async fn read(repository: &Repository, batch: JobId, task: TaskId) -> Result<TaskRecord, RepositoryError> {
    let name = names::fleet_done(batch, task);
    let decode = |bytes: &[u8]| TaskRecord::decode(repository.keys(), batch, task, bytes);
    let bytes = repository.store().get_sound(&name, TASK_MAX, |bytes| decode(bytes).is_ok()).await?;
    decode(&bytes).map_err(|source| RepositoryError::Damaged { name, source })
}
