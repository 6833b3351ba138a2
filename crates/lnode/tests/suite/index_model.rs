//! Publishing the index beside makers that sleep, indexes that vanish or rot, and answers that are wrong, model-checked.
//!
//! One chunk, which each pass moves to a container of its own, or leaves. A pass looks at marks and indexes, decides, creates
//! `index/<n>`, looks, creates `indexed/<n>` with the name of its attempt, looks again, and only then deletes what the chunk left and
//! what no index knows. Its deletes are applied at any later time, or never. A maker may sleep before each request, and die there. Once
//! in a run something is wrong: an index object vanishes, it cannot be read any more, or one request is answered wrongly.
//!
//! The promise is that the chunk outlives every delete that is under way, and that the newest index leads to it. Each rule below is
//! taken away once, and the checker finds what is lost.

mod pass;
mod state;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::index_model::state::{ATTEMPTS, At, Lie, NUMBERS, Pass, State, bit, numbers, present, tidy};

/// A rule of `docs/concurrency.md` ("How a pass publishes").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// What a pass wrote is seen in the store before its index is created.
    WrittenSeen,
    /// A pass deletes only after `indexed/<n>` names the attempt of its index.
    MarkedBeforeRemoval,
    /// An index that cannot be read and has no mark is passed over only after its mark was won as void.
    VoidOrMarked,
    /// Whoever won a void mark begins again: its listing of marks is from before.
    VoidBeginsAgain,
    /// A mark whose index is not there says that the index was lost: it is rebuilt before anything is decided.
    LossTold,
    /// A pass that builds on an index sees first that its mark names it.
    BaseMarked,
    /// It looks at marks and at indexes.
    LookedTwice,
    /// A mark that was created is read before it counts.
    MarkReadBack,
    /// After it won the mark, a pass looks again whether there is a higher index.
    HighestAfterMark,
    /// A pass whose number is taken has lost. It does not try the next one.
    TakenLoses,
    /// A rebuild keeps whatever has the chunk.
    RebuiltKeepsCopies,
    /// A rebuild lists the containers twice.
    ListedTwice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// A pass sends its next request. It means to move the chunk, or not.
    Pass(usize, bool, Option<Lie>),
    Dies(usize),
    DeleteContainer(u8),
    DeleteIndex(u8),
    DeleteMark(u8),
    /// An index vanishes, or rots.
    Vanish(u8),
    Rot(u8),
}

pub(crate) struct Publishing {
    pub(crate) without: Option<Rule>,
    /// Whether indexes vanish and rot.
    damages: bool,
    /// Whether the store lies.
    pub(crate) lies: bool,
    pub(crate) attempts: u8,
    pub(crate) numbers: u8,
}

impl Publishing {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}

impl Model for Publishing {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            indexes: [None; NUMBERS + 1],
            marks: [None; NUMBERS + 1],
            containers: bit(0),
            doomed: 0,
            stale_indexes: 0,
            stale_marks: 0,
            passes: [Pass::default(); 2],
            next_attempt: 1,
            closed: 0,
            claims: [0; ATTEMPTS as usize + 1],
            has_lied: false,
            is_damaged: false,
            was_void: false,
            was_rebuilt: false,
            woke: 0,
        }]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        for (node, pass) in state.passes.iter().enumerate() {
            if pass.at == At::Idle && state.next_attempt > self.attempts {
                continue;
            }
            let lies = if self.lies && !state.has_lied { self.lies_to(state, pass) } else { Vec::new() };
            let moves: &[bool] = if pass.at == At::Decide && !pass.is_rebuilding { &[true, false] } else { &[true] };
            for lie in std::iter::once(None).chain(lies.into_iter().map(Some)) {
                acts.extend(moves.iter().map(|moves| Act::Pass(node, *moves, lie)));
            }
            if pass.at > At::Decide {
                acts.push(Act::Dies(node));
            }
        }
        let doomed = state.doomed & state.containers;
        acts.extend((0..8).filter(|container| doomed & bit(*container) != 0).map(Act::DeleteContainer));
        acts.extend(numbers(state.stale_indexes & present(&state.indexes)).map(Act::DeleteIndex));
        acts.extend(numbers(state.stale_marks & present(&state.marks)).map(Act::DeleteMark));
        if self.damages && !state.is_damaged {
            acts.extend(numbers(present(&state.indexes)).flat_map(|number| [Act::Vanish(number), Act::Rot(number)]));
        }
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = last.clone();
        match act {
            Act::Pass(node, moves, lie) => {
                state.has_lied |= lie.is_some();
                self.step(&mut state, node, moves, lie);
            }
            Act::Dies(node) => state.passes[node] = Pass::default(),
            Act::DeleteContainer(container) => state.containers &= !bit(container),
            Act::DeleteIndex(number) => state.indexes[number as usize] = None,
            Act::DeleteMark(number) => state.marks[number as usize] = None,
            Act::Vanish(number) => {
                state.indexes[number as usize] = None;
                state.is_damaged = true;
            }
            Act::Rot(number) => {
                state.indexes[number as usize].as_mut()?.is_rotten = true;
                state.is_damaged = true;
            }
        }
        tidy(&mut state);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(KEPT, |_: &Self, state: &State| state.containers & !state.doomed != 0),
            Property::always(FOUND, |_: &Self, state: &State| match state.newest() {
                Some((_, index)) if state.is_told() && !index.is_rotten => {
                    index.at & state.containers & !state.doomed != 0
                }
                _ => true,
            }),
        ];
        if self.without.is_none() {
            let moved = |_: &Self, state: &State| state.containers & 0b111 == 0;
            properties.push(Property::sometimes("the chunk moved more than twice", moved));
            let void = |_: &Self, state: &State| state.was_void;
            properties.push(Property::sometimes("an index is void", void));
            let rebuilt = |_: &Self, state: &State| state.was_rebuilt;
            properties.push(Property::sometimes("an index is rebuilt", rebuilt));
        }
        if self.without.is_none() && !self.lies {
            let unmarked = |_: &Self, state: &State| state.woke & 0b001 != 0;
            properties.push(Property::sometimes("an index is gone when its maker marks it", unmarked));
            let unread = |_: &Self, state: &State| state.woke & 0b010 != 0;
            properties.push(Property::sometimes("an index is gone when its maker reads the mark", unread));
            let marked = |_: &Self, state: &State| state.woke & 0b100 != 0;
            properties.push(Property::sometimes("an index is gone when its maker looks again", marked));
        }
        properties
    }
}

const KEPT: &str = "the chunk outlives all deletes that are under way";
const FOUND: &str = "the newest index leads to the chunk";

fn holds(model: Publishing) {
    let checker = model.checker().spawn_dfs().join();
    assert!(checker.is_done(), "some states were not explored");
    checker.assert_properties();
}

fn damaged(without: Option<Rule>) -> Publishing {
    Publishing { without, damages: true, lies: false, attempts: 3, numbers: 4 }
}

fn lied_to(without: Option<Rule>) -> Publishing {
    Publishing { without, damages: false, lies: true, attempts: 3, numbers: 4 }
}

fn both(without: Option<Rule>) -> Publishing {
    Publishing { lies: true, ..damaged(without) }
}

/// Without the rule the chunk is lost, or not found.
#[track_caller]
fn breaks(model: Publishing) {
    let rule = model.without;
    let either = HasDiscoveries::AnyOf([KEPT, FOUND].into());
    let checker = model.checker().finish_when(either).spawn_bfs().join();
    assert!(!checker.discoveries().is_empty(), "{rule:?} prevents nothing");
}

#[test]
fn an_index_may_vanish_or_rot_at_any_moment() {
    holds(damaged(None));
}

#[test]
fn one_request_about_the_index_may_be_answered_wrongly() {
    holds(lied_to(None));
}

#[test]
fn one_wrong_answer_beside_a_lost_index() {
    holds(both(None));
}

#[test]
fn container_that_was_never_written() {
    breaks(lied_to(Some(Rule::WrittenSeen)));
}

#[test]
fn deletes_before_the_mark() {
    breaks(damaged(Some(Rule::MarkedBeforeRemoval)));
}

#[test]
fn unreadable_index_passed_over() {
    breaks(damaged(Some(Rule::VoidOrMarked)));
}

#[test]
fn void_that_goes_on_with_old_marks() {
    breaks(both(Some(Rule::VoidBeginsAgain)));
}

#[test]
fn loss_that_is_not_told() {
    breaks(damaged(Some(Rule::LossTold)));
}

#[test]
fn base_that_is_not_marked() {
    breaks(damaged(Some(Rule::BaseMarked)));
}

#[test]
fn mark_that_is_not_read_back() {
    breaks(both(Some(Rule::MarkReadBack)));
}

#[test]
fn mark_of_a_number_that_was_used_long_ago() {
    breaks(damaged(Some(Rule::HighestAfterMark)));
}

#[test]
fn one_look_after_the_mark() {
    breaks(both(Some(Rule::LookedTwice)));
}

#[test]
fn next_number_where_one_was_taken() {
    breaks(damaged(Some(Rule::TakenLoses)));
}

#[test]
fn rebuilt_index_that_gives_copies_up() {
    breaks(damaged(Some(Rule::RebuiltKeepsCopies)));
}

#[test]
fn rebuild_that_lists_once() {
    breaks(both(Some(Rule::ListedTwice)));
}
