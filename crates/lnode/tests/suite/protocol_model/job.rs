//! The steps of a job: each reads or creates one object.

use crate::protocol_model::model::Protocol;
use crate::protocol_model::rules::{Rule, Rules};
use crate::protocol_model::scenario::{Kind, Plan, Start};
use crate::protocol_model::sets::{Containers, Jobs};
use crate::protocol_model::state::{Forwards, Register, State, resolves};

/// One step of a job's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Create `jobs/<job>/0`, which names base and adopted jobs.
    CreateLease,
    /// Create it once more, where the store overwrites: that must fail.
    Probe,
    /// Look at one object of a job it named. `last` ends the look at that job: it is used now, or never.
    Look { at: usize, what: Look, last: bool },
    /// Create `data/<job>/<n>`.
    Upload(usize),
    /// Create the commit register.
    Commit,
    /// Create `jobs/<job>/done`.
    Close,
    /// Read the newest index.
    ReadIndex,
    /// Read the containers.
    Read,
}

/// What a job looks at before it relies on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Base: `forgotten/<series>/<base>` must be absent.
    Mark,
    /// Base: the register must hold a manifest; the containers of its newest generation may be referenced from now on.
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
    /// What the index said that a reader read.
    pub(crate) forwards: Forwards,
}

/// The program of a job under `rules`.
pub(crate) fn program(plan: &Plan, rules: Rules, overwrites: bool) -> Vec<Step> {
    let mut looks = Vec::new();
    for base in plan.base.into_iter().chain(plan.shares) {
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
    if overwrites && rules.hold(Rule::ProbedFirst) && plan.start == Start::Nothing {
        steps.push(Step::Probe);
    }
    if rules.hold(Rule::LeaseFirst) {
        steps.append(&mut looks);
    } else {
        looks.append(&mut steps);
        steps = looks;
    }
    if plan.kind == Kind::Reader {
        if plan.resolves {
            steps.extend([Step::ReadIndex, Step::Read]);
        }
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
        let base_seen = plan.base.iter().chain(&plan.shares).all(|base| state.history.committed.has(*base));
        let adopted_seen = plan.adopts.iter().all(|adopted| self.began(state, adopted));
        // And a generation has the number after those there are, of which an `aborted` one is one.
        let older_seen = plan.base.filter(|_| self.compacts(job).is_some()).is_none_or(|version| {
            let decided = state.history.committed.union(state.history.aborted);
            let older = self.generations(version).filter(|older| *older < job);
            older.filter(|older| self.scenario.one_generation != Some((*older, job))).all(|older| decided.has(older))
        });
        (!begins || base_seen && adopted_seen && older_seen).then_some(step)
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
        let over = state.history.expired_readers.union(state.history.taken).has(job);
        // Its generation was there, and was replaced: created once more it means nothing.
        let was_replaced = self.compacts(job).is_some() && state.history.removed.has(job);
        undecided && !ended && !over && !was_replaced
    }

    /// Everything the manifest of `job` references if it commits now.
    pub(crate) fn references(&self, state: &State, job: usize) -> Containers {
        let own = (0..self.scenario.jobs[job].used).map(|n| Containers::one(job, n));
        let taken = state.jobs[job].taken.minus(self.scenario.jobs[job].replaces);
        own.fold(taken, Containers::union)
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
            // It overwrote its own lease, says so, and ends.
            Step::Probe => self.retire_now(state, job),
            Step::Look { at, what, last } => self.look(state, job, at, what, last),
            // What it writes again is gone already: there is nothing left to do.
            Step::Upload(_) if self.is_rewriting(job) && !self.old(job).within(state.bucket.containers) => {
                state.jobs[job].outcome = Outcome::GaveUp;
                state.jobs[job].next = self.programs[job].len() as u8 - 1;
            }
            Step::Upload(n) => {
                if self.is_rewriting(job) && !self.rules.hold(Rule::RedirectBeforeRemoval) {
                    state.bucket.index.reclaimed = state.bucket.index.reclaimed.union(self.old(job));
                }
                state.bucket.containers = state.bucket.containers.union(Containers::one(job, n));
            }
            Step::Commit => self.commit(state, job),
            Step::Close => {
                let settled = !state.jobs[job].unanswered || !self.rules.hold(Rule::CloseOnlyAnswered);
                state.bucket.leases[job].done |= settled;
            }
            Step::ReadIndex => state.jobs[job].forwards = state.bucket.index.forwards,
            Step::Read => {
                let (bucket, reader) = (&state.bucket, &state.jobs[job]);
                let again = self.rules.hold(Rule::LookAgain)
                    && resolves(reader.taken, &bucket.index.forwards, bucket.containers);
                if !again && !resolves(reader.taken, &reader.forwards, bucket.containers) {
                    state.history.alarmed.insert(job);
                }
                // Only the outcome of the reading matters from here on.
                state.jobs[job].forwards = Forwards::default();
            }
        }
    }

    fn is_rewriting(&self, job: usize) -> bool {
        self.scenario.jobs[job].kind == Kind::Rewriting
    }

    fn old(&self, job: usize) -> Containers {
        self.scenario.jobs[job].replaces
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
    pub(crate) fn may_retire(&self, state: &State, job: usize) -> bool {
        let next = self.programs[job].get(state.jobs[job].next as usize);
        let answered = !state.jobs[job].unanswered || !self.rules.hold(Rule::CloseOnlyAnswered);
        self.scenario.retires.has(job) && matches!(next, Some(Step::Commit)) && answered
    }

    /// `job` ends without a version; only closing its lease is left to do.
    pub(crate) fn reclaim(&self, state: &mut State, job: usize) {
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
            if self.compacts(job).is_some() {
                self.give_in(state, job);
            }
            return;
        }
        let is_rotten = last && what == Look::Manifest && state.history.rotten.has(self.newest_generation(state, at));
        if is_rotten && self.rules.hold(Rule::NewestOrNothing) {
            return;
        }
        if !last {
            return;
        }
        let shares = self.scenario.jobs[job].shares == Some(at);
        let taken = if self.scenario.jobs[job].adopts.has(at) {
            let mut owners = Jobs::of(&[at]);
            if !self.rules.hold(Rule::OwnersNamed) {
                owners = owners.union(self.scenario.jobs[at].adopts);
            }
            Containers::of_jobs(owners).and(state.bucket.containers)
        } else if is_rotten {
            // The highest that can be read.
            state.manifest(at)
        } else if self.rules.hold(Rule::GenerationAfterLease) {
            state.manifest(self.newest_generation(state, at))
        } else {
            state.manifest(at)
        };
        let taken = if shares { taken.and(Containers::one(at, 0)) } else { taken };
        if shares && taken.is_empty() {
            // The other version has left it, and what was to be led there stays where it is.
            self.give_in(state, job);
        }
        state.jobs[job].taken = state.jobs[job].taken.union(taken);
    }

    /// `job` ends, and leaves its lease.
    fn retire_now(&self, state: &mut State, job: usize) {
        state.jobs[job].outcome = Outcome::GaveUp;
        state.jobs[job].next = self.programs[job].len() as u8;
    }

    /// There is nothing to rewrite.
    fn give_in(&self, state: &mut State, job: usize) {
        state.jobs[job].outcome = Outcome::GaveUp;
        state.jobs[job].next = self.programs[job].len() as u8 - 1;
    }

    fn commit(&self, state: &mut State, job: usize) {
        let found = state.bucket.registers[job];
        let free = found == Register::Absent || !self.rules.hold(Rule::CreateIfAbsent) || self.scenario.overwrites;
        if self.is_rewriting(job) {
            self.publish_rewriting(state, job);
        } else if free {
            state.history.manifests[job] = self.references(state, job);
            state.bucket.registers[job] = Register::Manifest;
            state.history.committed.insert(job);
            self.register_changed(state, job);
        } else if found == Register::Manifest {
            // Read back: the attempt id in it is that of the attempt without an answer.
            state.jobs[job].unanswered = false;
        }
        state.jobs[job].taken = Containers::default();
        state.jobs[job].outcome =
            if state.bucket.registers[job] == Register::Manifest { Outcome::Committed } else { Outcome::Fenced };
    }

    /// Creates the index that makes a rewriting count, if its number is not taken.
    fn publish_rewriting(&self, state: &mut State, job: usize) {
        let old = self.old(job).iter().next().expect("a rewriting has something to write again");
        let new = Containers::one(job, 0).iter().next().expect("one container");
        if state.bucket.registers[job] != Register::Absent {
            return;
        }
        // The number is free, but only because the index of that number was deleted: there are higher ones.
        if state.history.removed.has(job) {
            if self.rules.hold(Rule::HighestAfterWin) {
                state.bucket.registers[job] = Register::Aborted;
            } else {
                state.bucket.index.reclaimed = state.bucket.index.reclaimed.union(self.old(job));
            }
            return;
        }
        state.bucket.registers[job] = Register::Manifest;
        state.history.committed.insert(job);
        self.redirect(state, old, new);
        self.published(state, Some(job));
    }

    /// An unanswered create of an index is applied. Where the number was taken and deleted, there are higher ones, and nobody
    /// looks at it.
    pub(crate) fn index_lands(&self, state: &mut State, job: usize) {
        if !state.history.removed.has(job) {
            self.publish_rewriting(state, job);
        }
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
