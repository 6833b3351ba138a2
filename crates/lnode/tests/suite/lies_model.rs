//! One wrong answer of the store, to any one request of a pass or a job, model-checked (`AskedTwice`).
//!
//! The store answers every request truly but one. A listing lacks an entry, or shows nothing. "Not found" is said of what is there. A
//! create or delete is answered as done and never applied. "Exists" is said where nothing is. Whatever is asked, and whenever, no
//! container goes that a version needs, and no version that was reported as saved lacks one.
//!
//! A pass is drawn request by request, as a job is; `protocol_model.rs` draws listings that change while they are read, and several
//! passes at once. No version is in an index here, because nothing is easier to lose than what no index knows. Below, each way of
//! asking twice is taken away once, and the checker finds what is lost.

mod job;
mod pass;
mod state;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::lies_model::job::Step;
use crate::lies_model::state::{At, Lie, Set, State};

/// A rule of `docs/concurrency.md` ("When the store answers wrongly").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Whether a job was fenced is read back: its register holds something.
    FenceReadBack,
    /// The leases of step 4 are listed twice, and what either shows counts.
    LeasesListedTwice,
    /// A lease that was listed and is not found is asked for again.
    LeaseAskedAgain,
    /// A job that closed its lease since the settled jobs were listed keeps what it names for this pass.
    ClosedSinceRetained,
    /// A register that the first listing showed and the second lacks is asked for by name.
    RegistersJoined,
    /// The register of a settled job that no listing shows is asked for by name.
    RegisterAsked,
    /// A closing mark that says `committed` without a register stops the pass.
    CommittedAccounted,
    /// Containers that no index had go only when they are old enough.
    OldEnough,
    /// The mark is removed only when the register is seen to be gone.
    RegisterGoneBeforeMark,
    /// A job asks twice for what must be absent, before it asks for what must be there.
    LooksTwice,
    /// Both looks at the mark of a base come before the look at its register.
    MarksThenRegister,
    /// The lease is created twice, and must exist the second time.
    ProbedFirst,
    /// A job lists what it uploaded before it commits.
    UploadsListed,
    /// A job reads its register back before it reports its version as saved.
    CommitReadBack,
}

/// What a job makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A version.
    Backup,
    /// The next generation of the version that is its base.
    Compaction,
}

/// How far a job has come when the scenario begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Nothing,
    /// Lease and container are there.
    Uploaded,
    /// It committed and closed its lease.
    Closed,
}

/// One job of a scenario.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) start: Start,
    pub(crate) base: Option<usize>,
    pub(crate) adopts: Option<usize>,
}

impl Plan {
    const BACKUP: Self = Self { kind: Kind::Backup, start: Start::Nothing, base: None, adopts: None };
    const UPLOADED: Self = Self { start: Start::Uploaded, ..Self::BACKUP };
    const VERSION: Self = Self { start: Start::Closed, ..Self::BACKUP };

    const fn on(self, base: usize) -> Self {
        Self { base: Some(base), ..self }
    }

    const fn adopting(self, job: usize) -> Self {
        Self { adopts: Some(job), ..self }
    }

    const fn compaction(version: usize) -> Self {
        Self { kind: Kind::Compaction, base: Some(version), ..Self::BACKUP }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Job(usize, Step, Option<Lie>),
    /// The pass sends its next request, and takes the lease that it looks at for expired, or not.
    Pass(bool, Option<Lie>),
    /// The pass dies.
    Crash,
    Forget(usize),
    /// A job ends by itself, and says so in its lease.
    End(usize),
    /// Everything that is there gets older than the minimum age.
    Age,
    /// A register is lost. It takes the place of the lie.
    Lose(usize),
}

/// The model of one scenario.
#[derive(Clone)]
pub(crate) struct Lies {
    pub(crate) without: Option<Rule>,
    pub(crate) jobs: Vec<Plan>,
    pub(crate) programs: Vec<Vec<Step>>,
    /// Versions that may be forgotten.
    forgettable: Set,
    /// Whether everything is old from the start.
    is_old: bool,
    /// Whether a register may be lost instead of a lie.
    loses: bool,
    /// Whether jobs may end by themselves.
    ends: bool,
}

impl Lies {
    fn new(without: Option<Rule>, jobs: &[Plan], forgettable: &[usize]) -> Self {
        let jobs = jobs.to_vec();
        let forgettable = Set::of(forgettable);
        let mut model =
            Self { without, jobs, programs: Vec::new(), forgettable, is_old: true, loses: false, ends: false };
        model.programs = (0..model.jobs.len()).map(|job| model.program(job)).collect();
        model
    }

    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// A version, and a job on it.
    fn base(without: Option<Rule>) -> Self {
        Self::new(without, &[Plan::VERSION, Plan::BACKUP.on(0)], &[0])
    }

    /// An unfinished job, and one that adopts it.
    fn adoption(without: Option<Rule>) -> Self {
        Self::new(without, &[Plan::UPLOADED, Plan::BACKUP.adopting(0)], &[])
    }

    /// A version, and a task that makes its next generation.
    fn compaction(without: Option<Rule>) -> Self {
        Self::new(without, &[Plan::VERSION, Plan::compaction(0)], &[])
    }

    /// A version, a task that makes its next generation, and a job on it.
    fn compacted_base(without: Option<Rule>) -> Self {
        Self::new(without, &[Plan::VERSION, Plan::compaction(0), Plan::BACKUP.on(0)], &[0])
    }

    /// A version, an unfinished job on it, and a job on it that adopts that.
    fn adoption_on_a_base(without: Option<Rule>) -> Self {
        Self::new(without, &[Plan::VERSION, Plan::UPLOADED.on(0), Plan::BACKUP.on(0).adopting(1)], &[0])
    }

    /// A job alone, which may end by itself, or whose register is lost; nothing is old at the beginning.
    fn young(without: Option<Rule>) -> Self {
        Self { is_old: false, loses: true, ends: true, ..Self::new(without, &[Plan::BACKUP], &[]) }
    }

    /// What visible versions need.
    fn needed(&self, state: &State) -> Set {
        let visible = state.manifests.minus(state.marks).iter().filter(|job| self.jobs[*job].kind == Kind::Backup);
        visible.fold(Set::default(), |all, version| all.or(state.references[self.newest(state, version)]))
    }
}

impl Model for Lies {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let mut state = State { old: if self.is_old { Set(!0) } else { Set::default() }, ..State::default() };
        for (job, plan) in self.jobs.iter().enumerate() {
            let stop_before = match plan.start {
                Start::Nothing => continue,
                Start::Uploaded => Some(Step::Commit),
                Start::Closed => None,
            };
            while let Some(step) = self.next_step(&state, job).filter(|step| Some(*step) != stop_before) {
                self.job_step(&mut state, job, step, None);
            }
        }
        vec![state]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        let lies = |lies: Vec<Lie>| {
            let lies = if state.has_lied { Vec::new() } else { lies };
            std::iter::once(None).chain(lies.into_iter().map(Some))
        };
        for job in 0..self.jobs.len() {
            if let Some(step) = self.next_step(state, job) {
                acts.extend(lies(self.job_lies(state, job, step)).map(|lie| Act::Job(job, step, lie)));
                if self.ends && state.leases.has(job) && step == Step::Commit {
                    acts.push(Act::End(job));
                }
            }
            if self.forgettable.has(job) && state.manifests.has(job) && !state.marks.has(job) {
                acts.push(Act::Forget(job));
            }
            if self.loses && !state.has_lied && state.manifests.has(job) {
                acts.push(Act::Lose(job));
            }
        }
        acts.extend(lies(self.pass_lies(state, false)).map(|lie| Act::Pass(false, lie)));
        if self.may_expire(state) {
            acts.extend(lies(self.pass_lies(state, true)).map(|lie| Act::Pass(true, lie)));
        }
        if state.pass.at != At::Idle {
            acts.push(Act::Crash);
        }
        if !state.containers.minus(state.old).is_empty() {
            acts.push(Act::Age);
        }
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = last.clone();
        match act {
            Act::Job(job, step, lie) => {
                state.has_lied |= lie.is_some();
                self.job_step(&mut state, job, step, lie);
            }
            Act::Pass(is_dead, lie) => {
                state.has_lied |= lie.is_some();
                self.pass_step(&mut state, is_dead, lie);
            }
            Act::Crash => state.pass = state::Pass::default(),
            Act::Forget(version) => {
                state.marks.insert(version);
                state.forgotten.insert(version);
            }
            Act::End(job) => {
                state.ended.insert(job);
                state.jobs[job].is_over = true;
                state.jobs[job].at = self.programs[job].len() as u8;
            }
            Act::Age => state.old = state.old.or(state.containers),
            Act::Lose(job) => {
                state.has_lied = true;
                state.manifests.remove(job);
                state.lost.insert(job);
                if state.dones.has(job) {
                    state.lost_closed.insert(job);
                }
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(WHOLE, |model: &Self, state: &State| {
                model.needed(state).minus(state.containers).is_empty()
            }),
            Property::always(SAVED, |_: &Self, state: &State| {
                let mut saved = state.jobs.iter().enumerate().filter(|(_, job)| job.is_saved);
                let is_there = |job: usize| state.manifests.or(state.forgotten).or(state.lost).has(job);
                saved.all(|(job, _)| is_there(job))
            }),
            Property::always(GONE, |_: &Self, state: &State| {
                state.manifests.minus(state.marks).and(state.forgotten).is_empty()
            }),
            Property::always(KEPT, |_: &Self, state: &State| {
                let young = state.lost.minus(state.old);
                young.or(state.lost_closed).minus(state.containers).is_empty()
            }),
        ];
        if self.without.is_none() {
            properties.push(Property::sometimes("the store has lied", |_: &Self, state: &State| state.has_lied));
            properties.push(Property::sometimes("something goes", |_: &Self, state: &State| {
                !state.old.and(state.aborted.or(state.forgotten)).minus(state.containers).is_empty()
            }));
        }
        if self.without.is_none() && self.ends {
            properties
                .push(Property::sometimes("what a job left that ended goes at any age", |_: &Self, state: &State| {
                    !state.ended.minus(state.old).minus(state.containers).is_empty()
                }));
        }
        properties
    }
}

const WHOLE: &str = "every visible version is whole";
const SAVED: &str = "a version that was reported as saved is there until it is forgotten";
const GONE: &str = "a version that was forgotten never comes back";
const KEPT: &str = "what a version had whose register was lost stays while it is young, or its job is closed";

fn holds(model: Lies) {
    assert!(model.without.is_none());
    let checker = model.checker().spawn_dfs().join();
    assert!(checker.is_done(), "some states were not explored");
    checker.assert_properties();
}

/// Without the rule something is lost.
#[track_caller]
fn breaks(model: Lies, property: &'static str) {
    let rule = model.without;
    let checker = model.checker().finish_when(HasDiscoveries::AllOf([property].into())).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "{rule:?} prevents nothing");
}

#[test]
fn one_lie_to_a_job_on_a_version_or_to_a_pass_beside_it_loses_nothing() {
    holds(Lies::base(None));
}

#[test]
fn one_lie_about_an_adoption_loses_nothing() {
    holds(Lies::adoption(None));
}

#[test]
fn one_lie_about_a_generation_loses_nothing() {
    holds(Lies::compaction(None));
}

#[test]
fn one_lie_about_a_job_and_its_adopter_on_one_version_loses_nothing() {
    holds(Lies::adoption_on_a_base(None));
}

#[test]
#[ignore = "four million states; meant for --release"]
fn one_lie_about_a_generation_and_a_job_on_its_version_loses_nothing() {
    holds(Lies::compacted_base(None));
}

#[test]
fn a_lost_register_or_a_lie_beside_it_loses_no_containers_while_they_are_young() {
    holds(Lies::young(None));
}

#[test]
fn fence_that_is_not_read_back() {
    breaks(Lies::base(Some(Rule::FenceReadBack)), WHOLE);
    breaks(Lies::compaction(Some(Rule::FenceReadBack)), WHOLE);
}

#[test]
fn leases_listed_once() {
    breaks(Lies::base(Some(Rule::LeasesListedTwice)), WHOLE);
    breaks(Lies::adoption(Some(Rule::LeasesListedTwice)), WHOLE);
}

#[test]
fn listed_lease_that_is_asked_for_once() {
    breaks(Lies::base(Some(Rule::LeaseAskedAgain)), WHOLE);
}

#[test]
fn job_that_closed_since_the_settled_ones_were_listed_not_retained() {
    breaks(Lies::base(Some(Rule::ClosedSinceRetained)), WHOLE);
    breaks(Lies::adoption(Some(Rule::ClosedSinceRetained)), WHOLE);
}

#[test]
fn register_that_one_of_two_listings_lacks_not_asked_for() {
    breaks(Lies::compaction(Some(Rule::RegistersJoined)), WHOLE);
}

#[test]
fn register_of_a_settled_job_that_no_listing_shows_not_asked_for() {
    breaks(Lies::base(Some(Rule::RegisterAsked)), WHOLE);
    breaks(Lies::adoption_on_a_base(Some(Rule::RegisterAsked)), WHOLE);
}

#[test]
fn committed_job_without_register_taken_for_garbage() {
    let model = Lies { is_old: true, ..Lies::young(Some(Rule::CommittedAccounted)) };
    breaks(model, KEPT);
}

#[test]
fn young_containers_collected() {
    breaks(Lies::young(Some(Rule::OldEnough)), KEPT);
}

#[test]
fn mark_removed_before_the_register_is_seen_gone() {
    breaks(Lies::base(Some(Rule::RegisterGoneBeforeMark)), GONE);
}

#[test]
fn absence_asked_for_once() {
    breaks(Lies::base(Some(Rule::LooksTwice)), WHOLE);
    breaks(Lies::adoption(Some(Rule::LooksTwice)), WHOLE);
}

#[test]
fn second_look_at_the_mark_after_the_register() {
    breaks(Lies::base(Some(Rule::MarksThenRegister)), WHOLE);
}

#[test]
fn lease_that_was_never_applied() {
    breaks(Lies::base(Some(Rule::ProbedFirst)), WHOLE);
}

#[test]
fn upload_that_was_never_applied() {
    breaks(Lies::base(Some(Rule::UploadsListed)), WHOLE);
}

#[test]
fn commit_that_was_never_applied() {
    breaks(Lies::base(Some(Rule::CommitReadBack)), SAVED);
}
