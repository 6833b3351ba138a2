//! One container with users in two layouts, model-checked (`OneLayout`, `LayoutsApart`).
//!
//! A job in the layout `standard` uploaded a container with two chunks and died. A job of each layout may adopt it: the version in
//! `standard` uses both chunks, the one in `lifecycle` only the first. A third job, in `standard`, is slow and builds on the first
//! version. Passes arrange, which asks versions of `lifecycle` alone, or reclaim, which asks those of `standard` alone; either moves
//! what is needed to a container of its layout and deletes the old one. The promise is that each visible version finds its chunks
//! where its own layout looks.
//!
//! Leases, fences and looks are one step each here; `protocol_model.rs` takes them apart.

use stateright::{Checker, HasDiscoveries, Model, Property};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// A job adopts only jobs whose lease has the layout that it writes.
    OneLayout,
    /// A container with users in both layouts is neither arranged nor reclaimed.
    LayoutsApart,
    /// Users are also versions that are forgotten and that a live lease names.
    NamedCount,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Layout {
    Standard,
    Lifecycle,
}

/// The versions that there may be: their layout, and the chunks that they use.
const VERSIONS: [(Layout, u8); 3] = [(Layout::Standard, 0b11), (Layout::Lifecycle, 0b01), (Layout::Standard, 0b11)];
/// The version that the third builds on.
const BASE: usize = 0;
const SLOW: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Job {
    Begins,
    /// It has a lease, and uses the container.
    Uses,
    Committed,
    Forgotten,
    /// It does without.
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    jobs: [Job; 3],
    /// The job that uploaded the container was fenced.
    is_fenced: bool,
    /// The container is there, and which of its chunks were moved, by layout.
    is_there: bool,
    moved: [u8; 2],
    /// A pass left it alone because versions of both layouts use it.
    was_shared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Job(usize),
    Forget(usize),
    Fence,
    /// A pass that moves what this layout needs.
    Pass(Layout),
}

struct Layouts {
    without: Vec<Rule>,
}

impl Layouts {
    fn holds(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    /// A job takes its next step.
    fn step(&self, state: &mut State, job: usize) {
        let (layout, _) = VERSIONS[job];
        let may_use = match job {
            SLOW => state.jobs[BASE] == Job::Committed,
            _ => !state.is_fenced && state.is_there && (layout == Layout::Standard || !self.holds(Rule::OneLayout)),
        };
        state.jobs[job] = match state.jobs[job] {
            Job::Begins if may_use => Job::Uses,
            Job::Begins => Job::Over,
            Job::Uses => Job::Committed,
            other => other,
        };
    }

    fn pass(&self, state: &mut State, layout: Layout) {
        // `UnsettledKept`, `AdoptedKept`.
        let is_adopted = (0..SLOW).any(|job| state.jobs[job] == Job::Uses);
        if !state.is_fenced || is_adopted || !state.is_there {
            return;
        }
        let is_named = state.jobs[SLOW] == Job::Uses;
        let is_retained = |version: usize| match state.jobs[version] {
            Job::Committed => true,
            Job::Forgotten => version == BASE && is_named,
            _ => false,
        };
        let users = |layout: Layout, counts_named: bool| {
            let counts = |version: &usize| state.jobs[*version] == Job::Committed || counts_named;
            let retained = (0..3).filter(|version| is_retained(*version) && VERSIONS[*version].0 == layout);
            retained.filter(counts).fold(0, |all, version| all | VERSIONS[version].1)
        };
        let other = if layout == Layout::Standard { Layout::Lifecycle } else { Layout::Standard };
        if users(other, self.holds(Rule::NamedCount)) != 0 && self.holds(Rule::LayoutsApart) {
            state.was_shared |= users(layout, true) != 0;
            return;
        }
        // Nothing is collected that a version of either layout references, but what this pass moved.
        let own = users(layout, true);
        if own == 0 && users(other, true) != 0 {
            return;
        }
        state.moved[layout as usize] = own;
        state.is_there = false;
    }
}

impl Model for Layouts {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![State { jobs: [Job::Begins; 3], is_fenced: false, is_there: true, moved: [0; 2], was_shared: false }]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        for (job, at) in state.jobs.iter().enumerate() {
            match at {
                Job::Begins | Job::Uses => acts.push(Act::Job(job)),
                Job::Committed => acts.push(Act::Forget(job)),
                _ => {}
            }
        }
        acts.extend([Act::Fence, Act::Pass(Layout::Standard), Act::Pass(Layout::Lifecycle)]);
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = last.clone();
        match act {
            Act::Job(job) => self.step(&mut state, job),
            Act::Forget(version) => state.jobs[version] = Job::Forgotten,
            Act::Fence => state.is_fenced = true,
            Act::Pass(layout) => self.pass(&mut state, layout),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![Property::always(WHOLE, |_: &Self, state: &State| {
            let mut visible = (0..3).filter(|version| state.jobs[*version] == Job::Committed);
            visible.all(|version| {
                let (layout, uses) = VERSIONS[version];
                state.is_there || uses & !state.moved[layout as usize] == 0
            })
        })];
        if self.without == [Rule::OneLayout] {
            let shared = |_: &Self, state: &State| state.was_shared && !state.is_there && state.moved != [0; 2];
            properties.push(Property::sometimes("a container of both layouts is left alone, and later moved", shared));
        }
        if self.without.is_empty() {
            let slow = |_: &Self, state: &State| state.jobs[SLOW] == Job::Committed && !state.is_there;
            properties.push(Property::sometimes("the slow version's chunks were moved", slow));
        }
        properties
    }
}

const WHOLE: &str = "every visible version finds its chunks where its layout looks";

/// One rule of the two is enough.
#[test]
fn a_container_with_users_in_two_layouts_stays() {
    for without in [vec![], vec![Rule::OneLayout], vec![Rule::LayoutsApart]] {
        let checker = Layouts { without }.checker().spawn_dfs().join();
        assert!(checker.is_done(), "some states were not explored");
        checker.assert_properties();
    }
}

#[track_caller]
fn breaks(without: Vec<Rule>) {
    let checker = Layouts { without }.checker();
    let checker = checker.finish_when(HasDiscoveries::AllOf([WHOLE].into())).spawn_bfs().join();
    assert!(checker.discovery(WHOLE).is_some(), "nothing is lost");
}

#[test]
fn adopted_in_two_layouts() {
    breaks(vec![Rule::OneLayout, Rule::LayoutsApart]);
}

#[test]
fn user_that_only_a_lease_retains_not_counted() {
    breaks(vec![Rule::OneLayout, Rule::NamedCount]);
}
