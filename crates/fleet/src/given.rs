//! Tasks that a process gives away beside its own work: ranges of checks, copies of passes. Workers
//! find them, and create their registers.

use std::collections::BTreeSet;
use std::time::Duration;

use larder_format::fleet::{
    CHECK_RULES, COPY_MAX, COPY_RULES, CheckRange, CopyTask, MARK_MAX, MARK_RULES, MarkTask, RANGE_MAX, Stage,
    TaskHead, TaskId,
};
use larder_format::ids::{AttemptId, JobId};
use larder_format::keys::Keys;
use larder_format::names::{self, FleetObject};
use larder_format::{DecodeError, EncodeError};
use larder_job::JobContext;
use larder_store::{RepositoryError, Store, StoreErrorKind};

use crate::error::FleetError;

/// Tasks that cannot be read, after which a worker leaves.
const UNREADABLE_MAX: usize = 16;

/// A task of one kind.
pub(crate) trait GivenTask: Sized {
    /// The stage of its id.
    const STAGE: Stage;
    /// The most bytes of its object.
    const BYTES_MAX: u64;
    /// The rules that this program follows.
    const RULES: u32;
    /// A task in messages, and the work that it is of.
    const NAMES: (&str, &str);

    fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Who gives it away, and how.
    fn head(&self) -> &TaskHead;
}

impl GivenTask for CheckRange {
    const STAGE: Stage = Stage::Check;
    const BYTES_MAX: u64 = RANGE_MAX;
    const RULES: u32 = CHECK_RULES;
    const NAMES: (&str, &str) = ("a range", "this check");

    fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode(keys, batch, task, bytes)
    }

    fn head(&self) -> &TaskHead {
        &self.head
    }
}

impl GivenTask for CopyTask {
    const STAGE: Stage = Stage::Copy;
    const BYTES_MAX: u64 = COPY_MAX;
    const RULES: u32 = COPY_RULES;
    const NAMES: (&str, &str) = ("a task", "this pass");

    fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode(keys, batch, task, bytes)
    }

    fn head(&self) -> &TaskHead {
        &self.head
    }
}

impl GivenTask for MarkTask {
    const STAGE: Stage = Stage::Mark;
    const BYTES_MAX: u64 = MARK_MAX;
    const RULES: u32 = MARK_RULES;
    const NAMES: (&str, &str) = ("a task", "this pass");

    fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode(keys, batch, task, bytes)
    }

    fn head(&self) -> &TaskHead {
        &self.head
    }
}

/// The head of a task of this process, whose workers may be silent for this long.
pub(crate) fn head(context: &JobContext, rules: u32, asks: AttemptId, claim_after: Duration) -> TaskHead {
    let claim_seconds = u32::try_from(claim_after.as_secs()).unwrap_or(u32::MAX);
    TaskHead { rules, claim_seconds, asks, program: context.identity.program.clone() }
}

/// Tasks without a register.
pub(crate) fn due<T: GivenTask>(context: &JobContext, batch: JobId) -> Result<BTreeSet<TaskId>, FleetError> {
    let store = context.repository.store();
    let list = async |store: &Store, prefix: String| {
        let listed = store.list(&prefix).await?;
        let tasks = listed.iter().filter_map(|object| match names::parse_fleet(&object.name) {
            Some((_, FleetObject::Range(task) | FleetObject::Done(task))) => Some(task),
            _ => None,
        });
        Ok::<_, RepositoryError>(tasks.filter(|task| task.stage == T::STAGE).collect::<BTreeSet<TaskId>>())
    };
    let due = context.executor.block_on(async {
        let mut due = list(store, names::fleet_ranges(batch)).await?;
        if !due.is_empty() {
            let decided = list(store, names::fleet_registers(batch)).await?;
            due.retain(|task| !decided.contains(task));
        }
        Ok::<_, RepositoryError>(due)
    });
    Ok(due?)
}

/// The first task without a register that this process can read. Others go to `unreadable`: anybody
/// may create an object with such a name.
pub(crate) fn first<T: GivenTask>(
    context: &JobContext,
    batch: JobId,
    unreadable: &mut BTreeSet<TaskId>,
) -> Result<Option<T>, FleetError> {
    let mut refused = None;
    for task in due::<T>(context, batch)?.into_iter().take(UNREADABLE_MAX) {
        match read(context, batch, task) {
            Err(error @ FleetError::NotForUs { .. }) => {
                unreadable.insert(task);
                refused = Some(error);
            }
            read => return read,
        }
    }
    refused.map_or(Ok(None), Err)
}

/// A task. `None`: the work is over, and its process has deleted it.
pub(crate) fn read<T: GivenTask>(context: &JobContext, batch: JobId, task: TaskId) -> Result<Option<T>, FleetError> {
    let (repository, name) = (&context.repository, names::fleet_range(batch, task));
    let (what, work) = T::NAMES;
    let not_for_us = |why: String| FleetError::NotForUs { batch, why };
    let bytes = match context.executor.block_on(repository.store().get_up_to(&name, T::BYTES_MAX)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let read = T::decode(repository.keys(), batch, task, &bytes).map_err(|error| {
        let why = format!("{what} of {work} cannot be read with this key or by this program ({error})");
        not_for_us(format!("{why}; use a key of its domain and the same version of larder on all hosts"))
    })?;
    match read.head() {
        TaskHead { rules, .. } if *rules == T::RULES => Ok(Some(read)),
        TaskHead { program, .. } => Err(not_for_us(format!(
            "{program} makes {work}, whose workers follow other rules; use the same version of larder on all hosts"
        ))),
    }
}

/// Creates the register of a task. Another process may have been faster.
pub(crate) fn register(
    context: &JobContext,
    batch: JobId,
    task: TaskId,
    result: Result<Vec<u8>, EncodeError>,
) -> Result<(), FleetError> {
    let bytes = result.map_err(RepositoryError::from)?;
    let name = names::fleet_done(batch, task);
    match context.executor.block_on(context.repository.store().create(&name, bytes.into())) {
        Ok(_) => Ok(()),
        Err(error) if error.kind == StoreErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.into()),
    }
}
