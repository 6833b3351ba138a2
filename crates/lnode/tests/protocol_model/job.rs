//! The steps of a job: each reads or creates one object.

use crate::model::Protocol;
use crate::rules::{Rule, Rules};
use crate::scenario::{Kind, Plan, Start};
use crate::sets::{Containers, Jobs};
use crate::state::{Register, State};

/// One step of a job's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Create `jobs/<job>/0`, which names base and adopted jobs.
    CreateLease,
    /// Look at one object of a job it named. `last` ends the look at that job: it is used now, or never.
    Look { at: usize, what: Look, last: bool },
    /// Create `data/<job>/<n>`.
    Upload(usize),
    /// Create the commit register.
    Commit,
    /// Create `jobs/<job>/done`.
    Close,
}

/// What a job looks at before it relies on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Base: `forgotten/<series>/<base>` must be absent.
    Mark,
    /// Base: the register must hold a manifest, whose containers may be referenced from now on.
    Manifest,
    /// Adopted: the register must be undecided.
    Undecided,
    /// Adopted, without [`Rule::CommittedNotAdopted`]: the register must not hold `aborted`.
    NotAborted,
    /// Adopted: `jobs/<adopted>/done` must be absent.
    NotDone,
    /// Adopted: `jobs/<adopted>/0` must exist.
    Leased,
}

/// How a backup ended, as the job knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    #[default]
    Open,
    Committed,
    /// The register held `aborted`.
    Fenced,
    /// It will not try to commit: nothing had changed, or its source cannot be read.
    GaveUp,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct JobState {
    /// Index of its next step.
    pub(crate) next: u8,
    /// Containers of others that it will reference.
    pub(crate) taken: Containers,
    pub(crate) outcome: Outcome,
    /// A create of its lease or of its register has no answer yet, and the job did not find that attempt applied.
    pub(crate) unanswered: bool,
}

/// The program of a job under `rules`.
pub(crate) fn program(plan: &Plan, rules: Rules) -> Vec<Step> {
    let mut looks = Vec::new();
    if let Some(base) = plan.base {
        let mut whats = vec![Look::Mark, Look::Manifest];
        if !rules.hold(Rule::MarkThenRegister) {
            whats.reverse();
        }
        if !rules.hold(Rule::BaseChecked) {
            whats = vec![Look::Manifest];
        }
        push_looks(&mut looks, base, &whats);
    }
    for adopted in plan.adopts.iter() {
        let mut whats = vec![
            if rules.hold(Rule::CommittedNotAdopted) { Look::Undecided } else { Look::NotAborted },
            Look::NotDone,
            Look::Leased,
        ];
        if !rules.hold(Rule::LeaseReadLast) {
            whats.rotate_right(1);
        }
        whats.retain(|what| match what {
            Look::NotDone => rules.hold(Rule::ClosedNotAdopted),
            Look::Leased => rules.hold(Rule::AdoptedLeased),
            _ => rules.hold(Rule::AdoptedChecked),
        });
        push_looks(&mut looks, adopted, &whats);
    }

    let mut steps = vec![Step::CreateLease];
    if rules.hold(Rule::LeaseFirst) {
        steps.append(&mut looks);
    } else {
        looks.append(&mut steps);
        steps = looks;
    }
    if plan.kind == Kind::Reader {
        steps.push(Step::Close);
        return steps;
    }
    steps.extend((0..plan.used + plan.left_over).map(Step::Upload));
    let commit_at = if rules.hold(Rule::DurableFirst) { steps.len() } else { steps.len() - 1 };
    steps.insert(commit_at, Step::Commit);
    let close_at = if rules.hold(Rule::CloseLast) { steps.len() } else { commit_at };
    steps.insert(close_at, Step::Close);
    steps
}

fn push_looks(steps: &mut Vec<Step>, at: usize, whats: &[Look]) {
    for (n, what) in whats.iter().enumerate() {
        steps.push(Step::Look { at, what: *what, last: n + 1 == whats.len() });
    }
}

impl Protocol {
    /// The next step of `job`, if it has one that it would take now.
    pub(crate) fn next_step(&self, state: &State, job: usize) -> Option<Step> {
        let step = *self.programs[job].get(state.jobs[job].next as usize)?;
        // A job names only what it once saw, so it begins no sooner than that exists.
        let plan = &self.scenario.jobs[job];
        let begins = state.jobs[job].next == 0;
        let base_seen = plan.base.is_none_or(|base| state.history.committed.has(base));
        let adopted_seen = plan.adopts.iter().all(|adopted| self.began(state, adopted));
        (!begins || base_seen && adopted_seen).then_some(step)
    }

    /// Whether the lease of `job` existed at some time.
    pub(crate) fn began(&self, state: &State, job: usize) -> bool {
        let lease_at = self.programs[job].iter().position(|step| *step == Step::CreateLease);
        state.bucket.leases[job].first || lease_at.is_some_and(|at| state.jobs[job].next as usize > at)
    }

    /// Whether `job` has made its looks and may still commit, or read: what it took must exist.
    pub(crate) fn relies(&self, state: &State, job: usize) -> bool {
        let undecided = state.jobs[job].outcome == Outcome::Open && state.bucket.registers[job] == Register::Absent;
        let ended = state.jobs[job].next as usize == self.programs[job].len();
        undecided && !ended && !state.history.expired_readers.has(job)
    }

    /// Everything the manifest of `job` references if it commits now.
    pub(crate) fn references(&self, state: &State, job: usize) -> Containers {
        let own = (0..self.scenario.jobs[job].used).map(|n| Containers::one(job, n));
        own.fold(state.jobs[job].taken, Containers::union)
    }

    /// `job` takes its next step and learns the answer.
    pub(crate) fn take_step(&self, state: &mut State, job: usize, step: Step) {
        state.jobs[job].next += 1;
        match step {
            Step::CreateLease => {
                // Finding the lease there already means that the unanswered attempt was applied: it is answered now.
                if state.bucket.leases[job].first {
                    state.jobs[job].unanswered = false;
                }
                state.bucket.leases[job].first = true;
            }
            Step::Look { at, what, last } => self.look(state, job, at, what, last),
            Step::Upload(n) => {
                state.bucket.containers = state.bucket.containers.union(Containers::one(job, n));
            }
            Step::Commit => self.commit(state, job),
            Step::Close => {
                let settled = !state.jobs[job].unanswered || !self.rules.hold(Rule::CloseOnlyAnswered);
                state.bucket.leases[job].done |= settled;
            }
        }
    }

    /// The create of the next step is sent and no answer comes; the job will try again.
    pub(crate) fn time_out(&self, state: &mut State, job: usize, step: Step) {
        state.jobs[job].unanswered = true;
        match step {
            Step::CreateLease => state.bucket.leases_in_flight.insert(job),
            Step::Commit => {
                state.history.manifests[job] = self.references(state, job);
                state.bucket.commits_in_flight.insert(job);
            }
            _ => unreachable!("only creates of leases and registers are modelled as unanswered"),
        }
    }

    /// Whether `job` may decide now to end without a version.
    pub(crate) fn may_give_up(&self, state: &State, job: usize) -> bool {
        let next = self.programs[job].get(state.jobs[job].next as usize);
        self.scenario.gives_up.has(job) && matches!(next, Some(Step::Commit)) && !state.jobs[job].unanswered
    }

    /// `job` ends without a version; only closing its lease is left to do.
    pub(crate) fn give_up(&self, state: &mut State, job: usize) {
        state.jobs[job].outcome = Outcome::GaveUp;
        state.jobs[job].taken = Containers::default();
        state.jobs[job].next += 1;
    }

    fn look(&self, state: &mut State, job: usize, at: usize, what: Look, last: bool) {
        let good = match what {
            Look::Mark => !state.bucket.forgotten.has(at),
            Look::Manifest if !self.rules.hold(Rule::LooksPastCache) => state.history.committed.has(at),
            Look::Manifest => state.bucket.registers[at] == Register::Manifest,
            Look::Undecided => state.bucket.registers[at] == Register::Absent,
            Look::NotAborted => state.bucket.registers[at] != Register::Aborted,
            Look::NotDone => !state.bucket.leases[at].done,
            Look::Leased => state.bucket.leases[at].first,
        };
        if !good {
            // It goes on without this one.
            let program = &self.programs[job];
            let about_it = |next: u8| matches!(program[next as usize], Step::Look { at: other, .. } if other == at);
            while about_it(state.jobs[job].next) {
                state.jobs[job].next += 1;
            }
            return;
        }
        if !last {
            return;
        }
        let taken = if self.scenario.jobs[job].adopts.has(at) {
            let mut owners = Jobs::of(&[at]);
            if !self.rules.hold(Rule::OwnersNamed) {
                owners = owners.union(self.scenario.jobs[at].adopts);
            }
            Containers::of_jobs(owners).and(state.bucket.containers)
        } else {
            state.manifest(at)
        };
        state.jobs[job].taken = state.jobs[job].taken.union(taken);
    }

    fn commit(&self, state: &mut State, job: usize) {
        let found = state.bucket.registers[job];
        let free = found == Register::Absent || !self.rules.hold(Rule::CreateIfAbsent);
        if free {
            state.history.manifests[job] = self.references(state, job);
            state.bucket.registers[job] = Register::Manifest;
            state.history.committed.insert(job);
        } else if found == Register::Manifest {
            // Read back: the attempt id in it is that of the attempt without an answer.
            state.jobs[job].unanswered = false;
        }
        state.jobs[job].taken = Containers::default();
        state.jobs[job].outcome =
            if state.bucket.registers[job] == Register::Manifest { Outcome::Committed } else { Outcome::Fenced };
    }

    /// Puts `job` where the scenario wants it to begin.
    pub(crate) fn start(&self, state: &mut State, job: usize) {
        let stop_before = match self.scenario.jobs[job].start {
            Start::Nothing => return,
            Start::Uploaded => Step::Commit,
            Start::Closed => Step::Close,
        };
        while let Some(step) = self.programs[job].get(state.jobs[job].next as usize).copied() {
            if step == stop_before && stop_before == Step::Commit {
                return;
            }
            self.take_step(state, job, step);
        }
        state.bucket.leases[job].first = false;
    }
}
