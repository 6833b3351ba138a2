//! How tasks come to those who do them. A queue may deliver a task more than once: registers decide
//! which attempt counts. What a task is stands in the plan, so a queue carries ids alone.

use std::collections::VecDeque;

use larder_format::fleet::TaskId;

/// A task that was taken, and is not answered yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The task.
    pub task: TaskId,
}

/// A queue of tasks.
pub trait Queue {
    /// Offers a task to those who take.
    fn offer(&mut self, task: TaskId);

    /// Takes a task; `None` if there is none at the moment.
    fn take(&mut self) -> Option<Delivery>;

    /// The task is decided.
    fn done(&mut self, delivery: Delivery);

    /// The attempt failed, and will not be repeated here.
    fn failed(&mut self, delivery: Delivery);
}

/// The queue of one process: first in, first out.
#[derive(Debug, Default)]
pub struct MemoryQueue {
    offered: VecDeque<TaskId>,
}

impl Queue for MemoryQueue {
    fn offer(&mut self, task: TaskId) {
        self.offered.push_back(task);
    }

    fn take(&mut self) -> Option<Delivery> {
        self.offered.pop_front().map(|task| Delivery { task })
    }

    fn done(&mut self, _delivery: Delivery) {}

    fn failed(&mut self, _delivery: Delivery) {}
}
