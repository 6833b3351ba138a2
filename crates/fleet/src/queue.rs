//! Who does which of the tasks that are due. Registers decide which attempt counts, so a queue may
//! give a task to several processes: that costs work alone. A queue carries ids; the plan says what
//! a task is.
//!
//! [`MemoryQueue`] is for one process that does everything. [`StoreQueue`] is for processes that
//! have nothing in common but the store.

mod store;

use larder_format::fleet::TaskId;

use crate::error::FleetError;
pub(crate) use store::StoreQueue;

/// A task that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The task.
    pub task: TaskId,
    /// How often it was taken before: 0 for the first time.
    pub epoch: u8,
}

/// A queue of tasks.
pub trait Queue {
    /// Takes one of these tasks; `None`: others do all of them.
    ///
    /// # Errors
    /// The queue does not answer.
    fn take(&mut self, due: &[TaskId]) -> Result<Option<Delivery>, FleetError>;
}

/// The queue of one process: it does everything, in order.
#[derive(Debug, Default)]
pub struct MemoryQueue;

impl Queue for MemoryQueue {
    fn take(&mut self, due: &[TaskId]) -> Result<Option<Delivery>, FleetError> {
        Ok(due.first().map(|task| Delivery { task: *task, epoch: 0 }))
    }
}
