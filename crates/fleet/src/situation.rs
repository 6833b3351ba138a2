//! What is to be done next in a batch, by its plan and registers alone.
//!
//! The tasks of a stage begin when every register of the stage before is decided. A round of the
//! plan begins when the one before is over. Registers never change, so a later question has the
//! same answer, or one of a later stage. Two processes that ask at once need not agree: a register
//! is created once, by any process that believes it to be due.

use std::collections::{BTreeMap, HashSet};

use larder_format::fleet::{FleetPlan, Stage, TaskId, TaskRecord};
use larder_format::ids::AttemptId;

use crate::exchange::Decided;

/// How often images may wait for chunks of others. Beside these rounds of waiting, a plan has
/// rounds of its own: images that are frozen together.
pub(crate) const ROUNDS: u8 = 2;

/// The decided tasks of a batch.
pub(crate) type Registers = BTreeMap<TaskId, Decided>;

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Situation {
    /// These tasks of one stage are not decided. All before are.
    Due(Vec<TaskId>),
    /// Every task is decided.
    Over,
}

/// A plan with its registers.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) plan: &'a FleetPlan,
    pub(crate) registers: &'a Registers,
}

impl<'a> Known<'a> {
    fn record(&self, stage: Stage, round: u8, number: u32) -> Option<&'a TaskRecord> {
        self.registers.get(&TaskId { stage, round, number }).map(|decided| &decided.record)
    }

    /// The decided tasks of a stage that were not aborted.
    pub(crate) fn of(&self, stage: Stage, round: u8) -> impl Iterator<Item = &'a Decided> + use<'a> {
        let range = TaskId { stage, round, number: 0 }..=TaskId { stage, round, number: u32::MAX };
        self.registers.range(range).map(|(_, decided)| decided).filter(|decided| decided.record.attempt.is_some())
    }

    /// Images that were scanned, by the registers of their hosts.
    pub(crate) fn scanned(&self) -> Vec<u32> {
        let of_host =
            |image: &u32, host: u32| self.plan.images.get(*image as usize).is_some_and(|planned| planned.host == host);
        let all = self.of(Stage::Send, 0).flat_map(|decided| {
            let (host, live) = (decided.task.number, decided.record.live.as_deref().unwrap_or_default());
            live.iter().copied().filter(move |image| of_host(image, host))
        });
        let mut scanned: Vec<u32> = all.collect();
        scanned.sort_unstable();
        scanned
    }

    /// Images that were scanned, and whose chunks were stored in all rounds up to this one.
    pub(crate) fn live(&self, round: u8) -> Vec<u32> {
        let left = |image: &u32| {
            let mut stores = (0..=round).filter_map(|round| self.record(Stage::Store, round, *image));
            stores.any(|record| record.attempt.is_none())
        };
        self.scanned().into_iter().filter(|image| !left(image)).collect()
    }

    /// Images that are not in the batch any more, after this round.
    pub(crate) fn gone(&self, round: u8) -> HashSet<u32> {
        let live: HashSet<u32> = self.live(round).into_iter().collect();
        (0..self.plan.images.len() as u32).filter(|image| !live.contains(image)).collect()
    }

    /// Images that wait for chunks of others after this round.
    fn waiting(&self, round: u8) -> Vec<u32> {
        let waits = |image: &u32| self.record(Stage::Store, round, *image).is_some_and(|of| of.waits == Some(true));
        self.live(round).into_iter().filter(waits).collect()
    }

    /// Hosts of these images.
    fn hosts(&self, images: &[u32]) -> Vec<u32> {
        let mut hosts: Vec<u32> = images.iter().map(|image| self.plan.images[*image as usize].host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// The tasks among these that are not decided; `None` if all are.
    fn due(&self, stage: Stage, round: u8, numbers: impl IntoIterator<Item = u32>) -> Option<Situation> {
        let tasks = numbers.into_iter().map(|number| TaskId { stage, round, number });
        let due: Vec<TaskId> = tasks.filter(|task| !self.registers.contains_key(task)).collect();
        (!due.is_empty()).then_some(Situation::Due(due))
    }

    /// See the module header.
    pub(crate) fn situation(&self) -> Situation {
        (0..self.plan.rounds()).find_map(|of| self.undecided(of)).unwrap_or(Situation::Over)
    }

    /// The tasks of a round of the plan that are due. Those of one stage begin when every task of
    /// the stage before is decided, whatever became of it.
    fn undecided(&self, of: u32) -> Option<Situation> {
        let in_round = |images: Vec<u32>| -> Vec<u32> {
            images.into_iter().filter(|image| self.round_of_image(*image) == of).collect()
        };
        let hosts = (0..self.plan.hosts.len() as u32).filter(|host| self.plan.round_of(*host) == of);
        if let Some(due) = self.due(Stage::Send, 0, hosts) {
            return Some(due);
        }
        let scanned = in_round(self.scanned());
        if scanned.is_empty() {
            return None;
        }
        let partitions = of * self.plan.partitions..(of + 1) * self.plan.partitions;
        let first = self.due(Stage::Join, 0, partitions.clone()).or_else(|| self.due(Stage::Store, 0, scanned));
        if first.is_some() {
            return first;
        }
        let mut last = 0;
        for round in 0..ROUNDS {
            let waiting = in_round(self.waiting(round));
            // Later rounds learn from the places what this one stored.
            if !waiting.is_empty() || (round == 0 && of + 1 < self.plan.rounds()) {
                let due = self.due(Stage::Place, round, self.hosts(&in_round(self.live(round))));
                if due.is_some() {
                    return due;
                }
            }
            if waiting.is_empty() {
                break;
            }
            let resolve = self.due(Stage::Resolve, round, partitions.clone());
            let due = resolve.or_else(|| self.due(Stage::Store, round + 1, waiting));
            if due.is_some() {
                return due;
            }
            last = round + 1;
        }
        self.due(Stage::Finish, 0, in_round(self.live(last)))
    }

    fn round_of_image(&self, image: u32) -> u32 {
        self.plan.images.get(image as usize).map_or(0, |image| self.plan.round_of(image.host))
    }

    /// The tasks to end, so that nobody waits for a worker that has the images of this host.
    pub(crate) fn left_by(&self, host: u32, worker: Option<AttemptId>) -> Vec<TaskId> {
        let sent = self.record(Stage::Send, 0, host).filter(|sent| sent.attempt.is_some() && sent.worker == worker);
        if sent.is_none() {
            return Vec::new();
        }
        let is_open = |task: &TaskId| !self.registers.contains_key(task);
        let of_host = |image: &u32| self.plan.images.get(*image as usize).is_some_and(|image| image.host == host);
        let images = self.live(ROUNDS).into_iter().filter(of_host);
        let tasks = images.map(|number| {
            let waits = |round: u8| self.record(Stage::Store, round, number).is_none_or(|of| of.waits == Some(true));
            match (0..=ROUNDS).find(|round| is_open(&TaskId { stage: Stage::Store, round: *round, number })) {
                Some(round) if round == 0 || waits(round - 1) => TaskId { stage: Stage::Store, round, number },
                _ => TaskId { stage: Stage::Finish, round: 0, number },
            }
        });
        let places = (0..ROUNDS).map(|round| TaskId { stage: Stage::Place, round, number: host });
        tasks.chain(places).filter(is_open).collect()
    }

    /// What earlier rounds of the plan say of the places of their chunks, the newest first.
    pub(crate) fn placed_before(&self, of: u32) -> Vec<&'a Decided> {
        let all = (0..ROUNDS).flat_map(|round| self.of(Stage::Place, round));
        let mut placed: Vec<_> = all.filter(|decided| self.plan.round_of_task(decided.task) < of).collect();
        placed.sort_by_key(|decided| std::cmp::Reverse(self.plan.round_of_task(decided.task)));
        placed
    }

    /// What the hosts of a round say of the places of their chunks.
    pub(crate) fn placed_in(&self, of: u32, round: u8) -> impl Iterator<Item = &'a Decided> + use<'a> {
        let plan = self.plan;
        self.of(Stage::Place, round).filter(move |decided| plan.round_of_task(decided.task) == of)
    }

    /// The questions of the hosts of a round.
    pub(crate) fn sent_in(&self, of: u32) -> impl Iterator<Item = &'a Decided> + use<'a> {
        let plan = self.plan;
        self.of(Stage::Send, 0).filter(move |decided| plan.round_of_task(decided.task) == of)
    }

    /// What the partitions of a round say, at a stage.
    pub(crate) fn answered_in(&self, of: u32, stage: Stage, round: u8) -> impl Iterator<Item = &'a Decided> + use<'a> {
        let plan = self.plan;
        self.of(stage, round).filter(move |decided| plan.round_of_task(decided.task) == of)
    }
}

#[cfg(test)]
mod tests;
