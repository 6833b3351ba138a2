//! A process at work on a batch: it holds sessions of hosts, and does tasks that it gets from its
//! queue.
//!
//! Everything that it decides follows from the registers that it knows. Outputs of other processes
//! are hints, as in `docs/fleet.md`.

use std::collections::{BTreeMap, HashSet};

use larder_format::fleet::{Stage, TaskId};
use larder_store::rules::Rule;

use crate::error::FleetError;
use crate::exchange::Decided;
use crate::queue::{Delivery, Queue};
use crate::report::Sources;
use crate::session::{Ended, Session};
use crate::shared::Batch;
use crate::situation::{Known, ROUNDS, Registers, Situation};
use crate::supervise;
use crate::tasks::{self, LastRound};

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something.
    Done,
    /// Nothing: others do what is due.
    Idle,
    /// Every task is decided.
    Over,
}

/// Bytes of a question in what a host sent, roughly.
const QUESTION_BYTES: u64 = 28;

/// See the module header.
pub(crate) struct Member<'b> {
    batch: &'b Batch<'b>,
    sources: &'b mut dyn Sources,
    pub(crate) registers: Registers,
    pub(crate) sessions: BTreeMap<u32, Session<'b>>,
    /// The round of the plan for which the index was looked up.
    knows_index: Option<u32>,
    /// The stage that was due last.
    stage: Option<(Stage, u8)>,
    /// Hosts whose images this process may read. `None`: all.
    pub(crate) reads: Option<HashSet<u32>>,
}

impl<'b> Member<'b> {
    pub(crate) fn new(batch: &'b Batch<'b>, sources: &'b mut dyn Sources) -> Self {
        let (registers, sessions) = (Registers::new(), BTreeMap::new());
        Self { batch, sources, registers, sessions, knows_index: None, stage: None, reads: None }
    }

    pub(crate) fn known(&self) -> Known<'_> {
        Known { plan: &self.batch.plan, registers: &self.registers }
    }

    /// A register is known from now on.
    pub(crate) fn note(&mut self, decided: Decided) {
        if decided.task.stage == Stage::Send
            && let Some(store) = decided.record.store
        {
            self.batch.stores.lock().insert(decided.task.number, store);
        }
        self.registers.insert(decided.task, decided);
    }

    /// Does something of what is due.
    pub(crate) fn step<Q: Queue + ?Sized>(&mut self, queue: &mut Q) -> Result<Step, FleetError> {
        self.batch.expect_not_cancelled()?;
        let due = match self.known().situation() {
            Situation::Over => return Ok(Step::Over),
            Situation::Due(due) => due,
        };
        let Some(TaskId { stage, round, .. }) = due.first().copied() else { return Ok(Step::Over) };
        let Some(of) = due.first().map(|task| self.batch.plan.round_of_task(*task)) else { return Ok(Step::Over) };
        for session in self.sessions.values_mut().filter(|session| session.of_round() < of) {
            session.rest(self.sources);
        }
        if stage > Stage::Send && self.knows_index != Some(of) {
            // Passes go on meanwhile, so the index is looked up when it is asked.
            self.batch.look_up_index()?;
            if of + 1 == self.batch.plan.rounds() {
                self.batch.context.progress.expectation_is_complete();
            }
            self.knows_index = Some(of);
        }
        if self.stage.replace((stage, round)) != Some((stage, round))
            && let Some(before_stage) = self.batch.options.before_stage
        {
            before_stage();
        }
        let is_own = |task: &TaskId| self.sessions.contains_key(&task.number);
        match stage {
            Stage::Scan | Stage::Send => {
                let reads = |task: &TaskId| self.reads.as_ref().is_none_or(|reads| reads.contains(&task.number));
                let due: Vec<TaskId> = due.into_iter().filter(|task| reads(task) && !is_own(task)).collect();
                let Some(Delivery { task, epoch }) = queue.take(&due)? else { return Ok(Step::Idle) };
                self.begin(task.number, epoch).map(|()| Step::Done)
            }
            Stage::Join | Stage::Resolve => {
                let Some(Delivery { task, .. }) = queue.take(&due)? else { return Ok(Step::Idle) };
                let decided = self.partition(task);
                self.take_in(decided.map(|decided| vec![decided])).map(|()| Step::Done)
            }
            // Of no batch.
            Stage::Check | Stage::Copy | Stage::Mark => Ok(Step::Idle),
            Stage::Place => {
                let Some(task) = due.iter().find(|task| is_own(task)) else { return Ok(Step::Idle) };
                let known = Known { plan: &self.batch.plan, registers: &self.registers };
                let session = self.sessions.get_mut(&task.number).ok_or(FleetError::NoPlace)?;
                let decided = session.place(round, known);
                self.take_in(decided.map(|decided| vec![decided])).map(|()| Step::Done)
            }
            Stage::Store | Stage::Finish => {
                let host_of = |task: &TaskId| self.batch.image(task.number).host;
                let host = due.iter().map(host_of).find(|host| self.sessions.contains_key(host));
                let Some(host) = host else { return Ok(Step::Idle) };
                if stage == Stage::Finish && self.batch.worker.is_some() && self.batch.keeps(Rule::BatchAsked) {
                    supervise::expect_open(self.batch)?;
                }
                let known = Known { plan: &self.batch.plan, registers: &self.registers };
                let session = self.sessions.get_mut(&host).ok_or(FleetError::NoPlace)?;
                let decided = match stage {
                    Stage::Store => session.store(&due, known, self.sources),
                    _ => {
                        session.leave_those_gone(known, ROUNDS, self.sources);
                        session.finish(&due, self.sources)
                    }
                };
                self.take_in(decided).map(|()| Step::Done)
            }
        }
    }

    /// Ends sessions of hosts whose questions another process sent: its attempt counts.
    pub(crate) fn end_sessions_of_others(&mut self) {
        let is_of_other = |host: &u32| {
            let send = self.registers.get(&TaskId { stage: Stage::Send, round: 0, number: *host });
            send.is_some_and(|send| send.record.worker != self.batch.worker)
        };
        let others: Vec<u32> = self.sessions.keys().copied().filter(is_of_other).collect();
        for host in others {
            if let Some(session) = self.sessions.remove(&host) {
                session.end(false, self.sources);
            }
        }
    }

    /// Ends all sessions. `is_over`: every task of the batch is decided.
    pub(crate) fn end(mut self, is_over: bool) -> Vec<Ended> {
        let sessions = std::mem::take(&mut self.sessions).into_values();
        sessions.map(|session| session.end(is_over, self.sources)).collect()
    }

    fn begin(&mut self, host: u32, epoch: u8) -> Result<(), FleetError> {
        let mut session = Session::new(self.batch, host, epoch);
        match session.begin(self.sources) {
            Ok(decided) => {
                self.note(decided);
                self.sessions.insert(host, session);
                Ok(())
            }
            // Another process was faster: its session counts.
            Err(FleetError::Taken { .. }) if self.batch.worker.is_some() => {
                session.end(false, self.sources);
                Ok(())
            }
            // Its images are reported at the end.
            Err(error) => {
                self.sessions.insert(host, session);
                Err(error)
            }
        }
    }

    /// The present round cannot go on in this process, which does everything: its images leave the
    /// batch. What was stored of them can be adopted by the next batch. Returns whether there is a
    /// later round.
    pub(crate) fn end_round_early(&mut self, error: &FleetError) -> Result<bool, FleetError> {
        let (batch, first) = (self.batch, self.first_due());
        let Some(first) = first else { return Ok(false) };
        let of = batch.plan.round_of_task(first);
        if of + 1 >= batch.plan.rounds() {
            return Ok(false);
        }
        let stage = if first.stage == Stage::Send { Stage::Scan } else { first.stage };
        for host in (0..batch.plan.hosts.len() as u32).filter(|host| batch.plan.round_of(*host) == of) {
            self.sessions.entry(host).or_insert_with(|| Session::new(batch, host, 0)).end_early(stage, error);
        }
        while let Some(task) = self.first_due().filter(|task| batch.plan.round_of_task(*task) == of) {
            let is_saved =
                task.stage == Stage::Finish && self.sessions.values().any(|session| session.has_saved(task.number));
            let decided = match is_saved {
                true => batch.done(task)?,
                false => batch.abort(task, error.to_string())?,
            };
            self.note(decided.ok_or(FleetError::Taken { task })?);
        }
        Ok(true)
    }

    fn first_due(&self) -> Option<TaskId> {
        match self.known().situation() {
            Situation::Due(due) => due.first().copied(),
            Situation::Over => None,
        }
    }

    fn partition(&self, task: TaskId) -> Result<Decided, FleetError> {
        let TaskId { stage, round, number } = task;
        let known = self.known();
        let of = self.batch.plan.round_of_task(task);
        let partitions = u64::from(self.batch.plan.partitions.max(1));
        let before = affordable(known.placed_before(of), self.batch.options.memory);
        let sent = known.sent_in(of).flat_map(|sent| &sent.record.outputs);
        let chunks = sent.map(|output| output.object_bytes).sum::<u64>() / QUESTION_BYTES / partitions;
        let located = |error| self.batch.located(error, task, chunks);
        if stage == Stage::Join {
            let senders: Vec<&Decided> = known.sent_in(of).collect();
            return tasks::join(self.batch, number, &senders, &before).map_err(located);
        }
        let from = if round == 0 { Stage::Join } else { Stage::Resolve };
        let waiting = TaskId { stage: from, round: round.saturating_sub(1), number };
        let waiting = self.registers.get(&waiting).ok_or(FleetError::NoPlace)?;
        let placed: Vec<&Decided> = known.placed_in(of, round).chain(before).collect();
        let last = if round + 1 == ROUNDS { LastRound::Yes } else { LastRound::No };
        tasks::resolve(self.batch, round, number, waiting, &placed, &known.gone(round), last).map_err(located)
    }

    /// Registers that this process created. One that another process created first is read later.
    fn take_in(&mut self, decided: Result<Vec<Decided>, FleetError>) -> Result<(), FleetError> {
        match decided {
            Ok(decided) => decided.into_iter().for_each(|decided| self.note(decided)),
            Err(FleetError::Taken { .. }) if self.batch.worker.is_some() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The first of these tasks, as far as all their outputs can be read at once with this memory, in
/// bytes. The others would save space only.
fn affordable(tasks: Vec<&Decided>, memory: usize) -> Vec<&Decided> {
    let mut left = memory as u64;
    let fits = |task: &&Decided| {
        let largest = task.record.outputs.iter().map(|output| output.object_bytes).max().unwrap_or(0);
        let rest = left.checked_sub(largest);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    tasks.into_iter().take_while(fits).collect()
}

impl Batch<'_> {
    fn keeps(&self, rule: Rule) -> bool {
        self.context.repository.keeps(rule)
    }

    pub(crate) fn expect_not_cancelled(&self) -> Result<(), FleetError> {
        match self.context.cancel.is_cancelled() {
            true => Err(larder_lnode::BackupError::Interrupted.into()),
            false => Ok(()),
        }
    }
}
