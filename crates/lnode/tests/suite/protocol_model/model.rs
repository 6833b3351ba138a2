//! The model as the checker sees it: which actions are possible in a state, and what they make of it.

use stateright::{Model, Property};

use crate::protocol_model::collector::{Collector, Entry, PassStep, Phase};
use crate::protocol_model::job::{JobState, Step, program};
use crate::protocol_model::properties;
use crate::protocol_model::rules::{Rule, Rules};
use crate::protocol_model::scenario::{Kind, Scenario};
use crate::protocol_model::sets::{CONTAINERS_PER_JOB, Containers};
use crate::protocol_model::state::{Bucket, History, Lease, Register, State};

/// The protocol under some rules, in one scenario.
#[derive(Clone)]
pub(crate) struct Protocol {
    pub(crate) scenario: Scenario,
    pub(crate) rules: Rules,
    pub(crate) programs: Vec<Vec<Step>>,
    /// Also run a quiet pass from every state and look at what it leaves.
    pub(crate) look_for_leaks: bool,
    /// Examples that must be reachable, or the scenario proves less than it seems to.
    pub(crate) witnesses: Vec<Property<Self>>,
}

/// One atomic step of somebody, and which G-nodes had read the entry it changes before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Action {
    act: Act,
    read_before_by: u8,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Act {
    /// A job takes its next step.
    Job(usize, Step),
    /// A job ends without a version.
    Retire(usize),
    /// A job sends the create of its next step and gets no answer.
    TimesOut(usize, Step),
    /// The store applies an unanswered create of a lease, late.
    LeaseLands(usize),
    /// The store applies an unanswered create of a register, late.
    CommitLands(usize),
    /// Somebody marks a version forgotten.
    Forget(usize),
    /// A G-node finds a lease expired and creates `aborted` in the job's register, if absent.
    Fence(usize),
    /// A G-node takes a step.
    Pass(usize, PassStep),
    /// Somebody deletes a container whose chunks were moved.
    DropRetired(usize),
    /// A generation cannot be read any more.
    Rot(usize),
    /// The index is lost; somebody makes a new one from containers and versions alone, and cannot read one of these.
    Rebuild(Option<usize>),
    /// The index whose number a rewriting wanted is deleted, because there are newer ones.
    OldIndexDeleted(usize),
}

impl Act {
    /// The entry of a listing that this changes.
    fn changes(self) -> Option<Entry> {
        match self {
            Act::Job(job, Step::CreateLease | Step::Close) | Act::LeaseLands(job) => Some(Entry::Lease(job)),
            Act::Pass(_, PassStep::DeleteLease(job) | PassStep::DeleteDone(job)) => Some(Entry::Lease(job)),
            Act::Job(job, Step::Commit) | Act::CommitLands(job) | Act::Fence(job) => Some(Entry::Register(job)),
            Act::Pass(_, PassStep::DeleteRegister(job)) => Some(Entry::Register(job)),
            _ => None,
        }
    }
}

impl Protocol {
    pub(crate) fn new(scenario: Scenario, rules: Rules) -> Self {
        let programs = scenario.jobs.iter().map(|plan| program(plan, rules, scenario.overwrites)).collect();
        Self { scenario, rules, programs, look_for_leaks: false, witnesses: Vec::new() }
    }

    /// Everything expired is fenced, then one pass runs from begin to end while all else stands still.
    pub(crate) fn quiet_pass(&self, state: &State) -> State {
        let mut state = state.clone();
        state.g_nodes = vec![Collector::default()];
        self.number_taken(&mut state, None);
        for job in 0..state.jobs.len() {
            if state.bucket.leases[job].open() && self.has_own_register(job) {
                self.apply(&mut state, Act::Fence(job));
            }
        }
        self.apply(&mut state, Act::Pass(0, PassStep::Begin));
        while state.g_nodes[0].phase != Phase::Idle {
            let mut steps = Vec::new();
            self.pass_steps(&state, 0, &mut steps);
            // Expired readers first, a crash never.
            let step = steps.iter().copied().find(|step| *step != PassStep::Crash).expect("a pass always ends");
            self.apply(&mut state, Act::Pass(0, step));
        }
        state
    }

    /// Whether a G-node can fence `job` by creating `aborted`.
    fn has_own_register(&self, job: usize) -> bool {
        match self.scenario.jobs[job].kind {
            Kind::Backup => true,
            Kind::Compaction => self.rules.hold(Rule::OwnRegister),
            Kind::Reader | Kind::Rewriting => false,
        }
    }

    /// What may happen next.
    fn acts(&self, state: &State, acts: &mut Vec<Act>) {
        let Scenario { forgettable, expirable, unanswered_commit, unanswered_lease, late_fences, .. } = self.scenario;
        for job in 0..state.jobs.len() {
            if let Some(step) = self.next_step(state, job) {
                acts.push(Act::Job(job, step));
                let may_time_out = match step {
                    Step::CreateLease => unanswered_lease.has(job),
                    Step::Commit => unanswered_commit.has(job),
                    _ => false,
                };
                if may_time_out && !state.jobs[job].unanswered {
                    acts.push(Act::TimesOut(job, step));
                }
                if self.may_retire(state, job) {
                    acts.push(Act::Retire(job));
                }
            }
            if state.bucket.leases_in_flight.has(job) {
                acts.push(Act::LeaseLands(job));
            }
            if state.bucket.commits_in_flight.has(job) {
                acts.push(Act::CommitLands(job));
            }
            if forgettable.has(job) && state.history.committed.has(job) && !state.history.forgotten.has(job) {
                acts.push(Act::Forget(job));
            }
            // A G-node may have listed the lease long ago, so the lease need not be open any more.
            let fences = expirable.has(job) && self.rules.hold(Rule::Fence) && self.began(state, job);
            let fences = fences && self.has_own_register(job);
            let late = state.history.removed.has(job);
            if fences && state.bucket.registers[job] == Register::Absent && (!late || late_fences) {
                acts.push(Act::Fence(job));
            }
            let is_whole = self.compacts(job).is_some() && !state.history.rotten.has(job);
            if self.scenario.rots && is_whole && state.bucket.registers[job] == Register::Manifest {
                acts.push(Act::Rot(job));
            }
            // Only a job that still means to publish can be misled.
            let waits = matches!(self.next_step(state, job), Some(Step::Commit));
            if self.scenario.jobs[job].kind == Kind::Rewriting
                && waits
                && state.bucket.registers[job] == Register::Aborted
            {
                acts.push(Act::OldIndexDeleted(job));
            }
        }
        let droppable = state.bucket.index.reclaimed.union(state.bucket.deletes_in_flight);
        let is_there = |at: &usize| {
            let forward = state.bucket.index.forwards[*at].map(|at| Containers::at(at.into()));
            !self.rules.hold(Rule::ForwardsThere) || forward.is_none_or(|at| at.within(state.bucket.containers))
        };
        let present = droppable.and(state.bucket.containers).iter();
        acts.extend(present.filter(is_there).map(Act::DropRetired));
        let deleting = !droppable.and(state.bucket.containers).is_empty();
        if self.scenario.index_lost && !state.history.rebuilt && !(deleting && self.scenario.deleted_first) {
            let unread = self.unnamed(state).iter().filter(|_| self.scenario.unreadable).map(Some);
            acts.extend(std::iter::once(None).chain(unread).map(Act::Rebuild));
        }
        // Passes write leases as well, and end like jobs.
        if self.scenario.overwrites && self.rules.hold(Rule::ProbedFirst) {
            acts.retain(|act| matches!(act, Act::Job(..)));
            return;
        }
        let mut steps = Vec::new();
        for g in 0..state.g_nodes.len() {
            self.pass_steps(state, g, &mut steps);
            acts.extend(steps.drain(..).map(|step| Act::Pass(g, step)));
        }
    }

    fn apply(&self, state: &mut State, act: Act) {
        match act {
            Act::Job(job, step) => self.take_step(state, job, step),
            Act::Retire(job) => self.reclaim(state, job),
            Act::TimesOut(job, step) => self.time_out(state, job, step),
            Act::LeaseLands(job) => {
                state.bucket.leases_in_flight.remove(job);
                state.bucket.leases[job].first = true;
            }
            Act::CommitLands(job) => {
                state.bucket.commits_in_flight.remove(job);
                if self.scenario.jobs[job].kind == Kind::Rewriting {
                    self.index_lands(state, job);
                } else if state.bucket.registers[job] == Register::Absent {
                    state.bucket.registers[job] = Register::Manifest;
                    state.history.committed.insert(job);
                }
            }
            Act::Forget(version) => {
                state.bucket.forgotten.insert(version);
                state.history.forgotten.insert(version);
            }
            Act::Fence(job) => {
                if state.bucket.registers[job] == Register::Absent {
                    state.bucket.registers[job] = Register::Aborted;
                    state.history.aborted.insert(job);
                    self.register_changed(state, job);
                }
            }
            Act::Pass(g, step) => self.take_pass_step(state, g, step),
            Act::DropRetired(container) => {
                state.bucket.containers = state.bucket.containers.minus(Containers::at(container));
            }
            Act::Rot(job) => state.history.rotten.insert(job),
            Act::Rebuild(unread) => self.rebuild(state, unread.map_or(Containers::default(), Containers::at)),
            Act::OldIndexDeleted(job) => {
                state.bucket.registers[job] = Register::Absent;
                state.history.removed.insert(job);
            }
        }
        self.tidy(state);
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            bucket: Bucket::default(),
            jobs: vec![JobState::default(); self.scenario.jobs.len()],
            g_nodes: vec![Collector::default(); self.scenario.g_nodes],
            history: History::default(),
        };
        (0..self.scenario.jobs.len()).for_each(|job| self.start(&mut state, job));
        if let Some((old, new)) = self.scenario.equal.first().filter(|_| self.scenario.is_copy) {
            self.redirect(&mut state, *old, *new);
            state.bucket.containers = state.bucket.containers.minus(Containers::at(*new));
            // The version that had it was forgotten and is gone.
            let owner = new / CONTAINERS_PER_JOB;
            (state.bucket.registers[owner], state.bucket.leases[owner]) = (Register::Absent, Lease::default());
            state.history.forgotten.insert(owner);
            state.history.removed.insert(owner);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut acts = Vec::new();
        self.acts(state, &mut acts);
        for act in acts {
            let may_read = |g: &usize| act.changes().is_some_and(|entry| self.may_read(state, *g, entry));
            let readers = (0..state.g_nodes.len()).filter(may_read).fold(0u8, |bits, g| bits | 1 << g);
            let subsets = (0..=readers).filter(|subset| subset & !readers == 0);
            actions.extend(subsets.map(|read_before_by| Action { act, read_before_by }));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        if let Some(Entry::Lease(job) | Entry::Register(job)) = action.act.changes() {
            (0..state.g_nodes.len())
                .filter(|g| action.read_before_by & (1 << g) != 0)
                .for_each(|g| self.read_entry(&mut next, g, job));
        }
        self.apply(&mut next, action.act);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}
