//! The registers of tasks of passes, and what is left of a pass at its end.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use larder_format::fleet::{Stage, TaskId};
use larder_format::ids::JobId;
use larder_format::names::{self, FleetObject};
use larder_format::{DecodeError, EncodeError};
use larder_job::JobContext;
use larder_store::RepositoryError;

/// Objects that are read or deleted at once.
const AT_ONCE: usize = 16;

/// A result of a worker, or why it does not count.
pub(super) type Told<R> = Result<R, String>;

/// The results of those of these tasks that have a register, or why one does not count.
pub(super) fn told<R>(
    context: &JobContext,
    (pass, stage): (JobId, Stage),
    open: &BTreeMap<TaskId, usize>,
    bytes_max: u64,
    decode: impl Fn(TaskId, &[u8]) -> Result<R, DecodeError>,
) -> Result<Vec<(usize, Told<R>)>, RepositoryError> {
    let (store, decode) = (context.repository.store(), &decode);
    context.executor.block_on(async {
        let prefix = format!("{}{stage}/", names::fleet_registers(pass));
        let listed = store.list(&prefix).await?;
        let there = listed.iter().filter_map(|object| match names::parse_fleet(&object.name) {
            Some((_, FleetObject::Done(task))) => Some((task, *open.get(&task)?)),
            _ => None,
        });
        let read = there.collect::<BTreeMap<_, _>>().into_iter().map(|(task, at)| async move {
            let read = store.get_up_to(&names::fleet_done(pass, task), bytes_max).await;
            match read.map_err(RepositoryError::from) {
                Ok(bytes) => Ok((at, decode(task, &bytes).map_err(|error| error.to_string()))),
                // Anybody may create an object with this name.
                Err(error) if error.is_of_object() || error.is_damage() => Ok((at, Err(error.to_string()))),
                Err(error) => Err(error),
            }
        });
        futures::stream::iter(read).buffered(AT_ONCE).try_collect().await
    })
}

/// Creates the register of a task that nobody else needs to do.
pub(super) fn close(context: &JobContext, pass: JobId, task: TaskId, register: Result<Vec<u8>, EncodeError>) {
    let store = context.repository.store();
    let created = register
        .map_err(RepositoryError::from)
        .and_then(|bytes| Ok(context.executor.block_on(store.create(&names::fleet_done(pass, task), bytes.into()))?));
    // Another worker was only slow, or the repository is full.
    if let Err(error) = created {
        tracing::debug!(%error, "a task has no register of this process");
    }
}

/// Deletes those objects of a pass that `is_left` accepts: tasks before claims, so that nobody
/// begins one that was claimed. What cannot be deleted is left to `fleet clean` and to passes.
pub(super) fn tidy(context: &JobContext, pass: JobId, is_left: impl Fn(&FleetObject) -> bool) {
    let store = context.repository.store();
    let deleted = context.executor.block_on(async {
        let mut left = store.list(&names::fleet_batch(pass)).await?;
        let object = |name: &str| names::parse_fleet(name).map(|(_, object)| object);
        left.retain(|found| object(&found.name).is_none_or(|object| is_left(&object)));
        let is_task = |name: &str| matches!(object(name), Some(FleetObject::Range(_)));
        let (tasks, others): (Vec<_>, Vec<_>) = left.iter().partition(|object| is_task(&object.name));
        for objects in [tasks, others] {
            let delete = objects.iter().map(|object| store.delete(&object.name));
            futures::stream::iter(delete).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        }
        Ok::<_, larder_store::StoreError>(())
    });
    if let Err(error) = deleted {
        tracing::debug!(%error, "objects of a pass are left to later ones");
    }
}
