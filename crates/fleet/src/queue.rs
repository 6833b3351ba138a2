//! Who does which of the tasks that are due. Registers decide which attempt counts, so a queue may
//! give a task to several processes: that costs work alone. A queue carries ids; the plan says what
//! a task is.
//!
//! [`MemoryQueue`] is for one process that does everything. [`StoreQueue`] is for processes that
//! have nothing in common but the store. [`NatsQueue`] is for those that also have a NATS server:
//! that gives tasks away, and wakes those that wait. The store's queue finds what it loses.

mod nats;
mod store;

use std::time::Duration;

use larder_format::fleet::TaskId;

use crate::error::FleetError;
use crate::situation::Registers;
pub(crate) use nats::{HostsOf, NatsQueue};
pub use nats::{Nats, NatsOptions};
pub(crate) use store::{BEATS, Beats, Heartbeat, StoreQueue, Times};

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

/// A queue of several processes.
pub(crate) trait SharedQueue: Queue {
    /// Claims and signs of life, by which those are found that are lost.
    fn store(&mut self) -> &mut StoreQueue;

    /// Learns what is decided, and which tasks are due.
    fn look(&mut self, registers: &Registers, due: &[TaskId]);

    /// This process has decided something that others may wait for.
    fn tell(&mut self);

    /// Whether to look for those that are lost.
    fn supervises(&mut self) -> bool;

    /// Waits for this time, or until there may be something to do. A queue that wakes processes may
    /// wait longer.
    fn wait(&mut self, time: Duration) -> Result<(), FleetError>;

    /// The batch is over.
    fn end(&mut self);
}

/// The queue of one process: it does everything, in order.
#[derive(Debug, Default)]
pub struct MemoryQueue;

impl Queue for MemoryQueue {
    fn take(&mut self, due: &[TaskId]) -> Result<Option<Delivery>, FleetError> {
        Ok(due.first().map(|task| Delivery { task: *task, epoch: 0 }))
    }
}
