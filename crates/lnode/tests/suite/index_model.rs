//! Publishing the index beside makers that sleep, indexes that vanish or rot, and answers that are wrong, model-checked.
//!
//! One chunk, which each pass moves to a container of its own, or leaves. A pass looks at marks and indexes, decides, creates
//! `index/<n>`, looks, creates `indexed/<n>` with the name of its attempt, looks again, and only then deletes what the chunk left and
//! what no index knows. Its deletes are applied at any later time, or never. A maker may sleep before each request, and die there. Once
//! in a run something is wrong: an index object vanishes, it cannot be read any more, or one request is answered wrongly.
//!
//! The promise is that the chunk outlives every delete that is under way, and that the newest index leads to it. Each rule below is
//! taken away once, and the checker finds what is lost.

use stateright::{Checker, HasDiscoveries, Model, Property};

/// A rule of `docs/concurrency.md` ("How a pass publishes").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
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

/// Numbers of indexes, from 1 on.
const NUMBERS: usize = 6;
/// Attempts, and the containers they write. Number 0 is the first container, of which no index says anything.
const ATTEMPTS: u8 = 5;

/// A set of containers.
type Containers = u8;

fn bit(container: u8) -> Containers {
    1 << container
}

/// What an index says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Index {
    attempt: u8,
    /// Where the chunk is, or may be when the index was rebuilt.
    at: Containers,
    is_rebuilt: bool,
    is_rotten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Mark {
    Attempt(u8),
    Void,
}

/// The next request of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum At {
    #[default]
    Idle,
    /// List the indexes.
    Indexes,
    /// Read the highest index that is left.
    Read,
    /// Ask for the index that the highest mark names.
    ByName,
    /// Create the void mark of the index that cannot be read, and read it.
    Void,
    VoidAgain,
    /// Create the mark of the index to build on, and read it.
    MarkBase,
    MarkBaseAgain,
    /// List containers, and decide.
    Decide,
    /// The same again, for a rebuild.
    DecideAgain,
    Create,
    Mark,
    MarkAgain,
    /// List the marks, then the indexes.
    LookAtMarks,
    LookAfterMark,
}

/// One pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Pass {
    at: At,
    /// Numbers of marks and indexes that it saw and has not passed over; what the marks say.
    marked: u8,
    marks: [Option<Mark>; NUMBERS + 1],
    indexes: u8,
    /// The index that it builds on, by number; nothing when it rebuilds.
    base: u8,
    base_index: Option<Index>,
    is_rebuilding: bool,
    number: u8,
    attempt: u8,
    new: Option<Index>,
    doomed: Containers,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    indexes: [Option<Index>; NUMBERS + 1],
    marks: [Option<Mark>; NUMBERS + 1],
    containers: Containers,
    /// Deletes under way: of containers, of indexes, of marks.
    doomed: Containers,
    stale_indexes: u8,
    stale_marks: u8,
    passes: [Pass; 2],
    next_attempt: u8,
    /// Attempts whose pass said that it is over, and the number that each claims.
    closed: u8,
    claims: [u8; ATTEMPTS as usize + 1],
    has_lied: bool,
    /// An index vanished, or cannot be read any more.
    is_damaged: bool,
    /// For the examples that must be reachable.
    was_void: bool,
    was_rebuilt: bool,
}

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// A listing lacks one number, or one container.
    Lacks(u8),
    LacksAll,
    /// "Not found", or bytes that do not open.
    Unreadable,
    NotApplied,
    Exists,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
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

struct Publishing {
    without: Option<Rule>,
    /// Whether indexes vanish and rot.
    damages: bool,
    /// Whether the store lies.
    lies: bool,
    attempts: u8,
    numbers: u8,
}

fn numbers(set: u8) -> impl DoubleEndedIterator<Item = u8> {
    (1..=NUMBERS as u8).filter(move |number| set & bit(*number) != 0)
}

fn present<T>(objects: &[Option<T>]) -> u8 {
    objects
        .iter()
        .enumerate()
        .filter(|(_, object)| object.is_some())
        .fold(0, |all, (number, _)| all | bit(number as u8))
}

fn show(lie: Option<Lie>, all: u8) -> u8 {
    match lie {
        Some(Lie::Lacks(one)) => all & !bit(one),
        Some(Lie::LacksAll) => 0,
        _ => all,
    }
}

/// Forgets what nobody asks for any more, so that equal futures are equal states.
fn tidy(state: &mut State) {
    state.doomed &= state.containers;
    state.stale_indexes &= present(&state.indexes);
    state.stale_marks &= present(&state.marks);
    for attempt in 0..=ATTEMPTS {
        if state.containers & bit(attempt) == 0 && attempt < state.next_attempt {
            (state.closed, state.claims[attempt as usize]) = (state.closed & !bit(attempt), 0);
        }
    }
    for pass in state.passes.iter_mut().filter(|pass| pass.at >= At::Decide) {
        (pass.marked, pass.marks, pass.indexes) = (0, [None; NUMBERS + 1], 0);
        if pass.at > At::Decide {
            pass.base_index = None;
        }
    }
    // Which node it is makes no difference.
    state.passes.sort_unstable();
}

impl State {
    /// The highest index that no mark calls void.
    fn newest(&self) -> Option<(u8, Index)> {
        let counts = |number: &u8| self.marks[*number as usize] != Some(Mark::Void);
        let newest = numbers(present(&self.indexes)).rfind(counts)?;
        self.indexes[newest as usize].map(|index| (newest, index))
    }

    /// Whether the newest index is what the highest mark names, or newer.
    fn is_told(&self) -> bool {
        let named = numbers(present(&self.marks)).rfind(|number| self.marks[*number as usize] != Some(Mark::Void));
        match (named, self.newest()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(named), Some((newest, index))) => {
                newest > named || (newest == named && self.marks[named as usize] == Some(Mark::Attempt(index.attempt)))
            }
        }
    }

    /// Whether there is a higher index than `number` that is not void.
    fn is_overtaken(&self, number: u8, seen: u8) -> bool {
        numbers(seen).any(|other| other > number && self.marks[other as usize] != Some(Mark::Void))
    }
}

impl Publishing {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn lies_to(&self, state: &State, pass: &Pass) -> Vec<Lie> {
        let listing = |all: u8| -> Vec<Lie> {
            let one = (0..8).filter(|number| all & bit(*number) != 0).map(Lie::Lacks);
            one.chain((all.count_ones() > 1).then_some(Lie::LacksAll)).collect()
        };
        let create = |is_there: bool| match is_there {
            true => vec![Lie::NotApplied],
            false => vec![Lie::NotApplied, Lie::Exists],
        };
        match pass.at {
            At::Idle | At::LookAtMarks => listing(present(&state.marks)),
            At::Indexes | At::LookAfterMark => listing(present(&state.indexes)),
            At::Read | At::ByName => vec![Lie::Unreadable],
            At::Void => create(state.marks[pass.base as usize].is_some()),
            At::MarkBase => create(state.marks[pass.base as usize].is_some()),
            At::Decide | At::DecideAgain => listing(state.containers),
            At::Create => create(state.indexes[pass.number as usize].is_some()),
            At::Mark => create(state.marks[pass.number as usize].is_some()),
            At::VoidAgain | At::MarkBaseAgain | At::MarkAgain => vec![Lie::Unreadable],
        }
    }

    /// Creates a mark, or reads it, and says what it is then, as far as the pass can tell.
    fn mark(state: &mut State, number: u8, mark: Mark, is_read: bool, lie: Option<Lie>) -> Option<Mark> {
        let place = &mut state.marks[number as usize];
        match lie {
            Some(Lie::NotApplied) => Some(mark),
            Some(Lie::Unreadable) => None,
            // It reads the mark, and there is none.
            Some(_) => *place,
            None if is_read => *place,
            None => Some(*place.get_or_insert(mark)),
        }
    }

    fn step(&self, state: &mut State, node: usize, moves: bool, lie: Option<Lie>) {
        let mut pass = state.passes[node];
        match pass.at {
            At::Idle => {
                let marked = show(lie, present(&state.marks));
                let mut marks = state.marks;
                (0..=NUMBERS).filter(|number| marked & bit(*number as u8) == 0).for_each(|number| marks[number] = None);
                pass = Pass { at: At::Indexes, marked, marks, ..Pass::default() };
            }
            At::Indexes => {
                pass.indexes = show(lie, present(&state.indexes));
                pass.number = numbers(pass.indexes | pass.marked).next_back().unwrap_or(0) + 1;
                self.look_further(&mut pass);
            }
            At::Read => {
                let found = state.indexes[pass.base as usize].filter(|_| lie.is_none());
                let mark = pass.marks[pass.base as usize];
                match (found.filter(|index| !index.is_rotten), mark) {
                    (Some(index), Some(Mark::Attempt(attempt))) if attempt != index.attempt => self.lost(&mut pass),
                    (Some(index), mark) => {
                        pass.base_index = Some(index);
                        let is_marked = mark.is_some() || !self.keeps(Rule::BaseMarked);
                        pass.at = if is_marked { At::Decide } else { At::MarkBase };
                    }
                    // It is gone: there is a newer one, and it begins again. Or it does not open.
                    (None, _) if state.indexes[pass.base as usize].is_none() => pass = Pass::default(),
                    (None, None) if self.keeps(Rule::VoidOrMarked) => pass.at = At::Void,
                    (None, None) => {
                        pass.indexes &= !bit(pass.base);
                        self.look_further(&mut pass);
                    }
                    (None, Some(_)) => self.lost(&mut pass),
                }
            }
            At::ByName => {
                let mark = pass.marks[pass.base as usize];
                match state.indexes[pass.base as usize].filter(|index| lie.is_none() && !index.is_rotten) {
                    Some(index) if mark == Some(Mark::Attempt(index.attempt)) => {
                        pass.base_index = Some(index);
                        pass.at = At::Decide;
                    }
                    _ => self.lost(&mut pass),
                }
            }
            At::Void | At::VoidAgain => {
                let is_read = pass.at == At::VoidAgain;
                match Self::mark(state, pass.base, Mark::Void, is_read, lie) {
                    Some(Mark::Void) if !is_read && self.keeps(Rule::MarkReadBack) => pass.at = At::VoidAgain,
                    Some(Mark::Void) => {
                        state.was_void = true;
                        if self.keeps(Rule::VoidBeginsAgain) {
                            pass = Pass::default();
                        } else {
                            pass.indexes &= !bit(pass.base);
                            pass.marks[pass.base as usize] = Some(Mark::Void);
                            self.look_further(&mut pass);
                        }
                    }
                    Some(Mark::Attempt(_)) => self.lost(&mut pass),
                    None => pass = Pass::default(),
                }
            }
            At::MarkBase | At::MarkBaseAgain => {
                let is_read = pass.at == At::MarkBaseAgain;
                let attempt = pass.base_index.map_or(0, |index| index.attempt);
                match Self::mark(state, pass.base, Mark::Attempt(attempt), is_read, lie) {
                    Some(Mark::Attempt(named)) if named == attempt => {
                        let again = !is_read && self.keeps(Rule::MarkReadBack);
                        pass.at = if again { At::MarkBaseAgain } else { At::Decide };
                    }
                    _ => pass = Pass::default(),
                }
            }
            At::Decide => self.decide(state, &mut pass, moves, lie),
            At::DecideAgain => {
                if let Some(new) = pass.new.as_mut() {
                    new.at |= show(lie, state.containers);
                }
                pass.at = At::Create;
            }
            At::Create => {
                let place = &mut state.indexes[pass.number as usize];
                let marks = self.keeps(Rule::MarkedBeforeRemoval);
                let next = if marks { At::Mark } else { At::LookAtMarks };
                match lie {
                    None if place.is_none() => (*place, pass.at) = (pass.new, next),
                    Some(Lie::NotApplied) => pass.at = next,
                    _ if !self.keeps(Rule::TakenLoses) && pass.number < self.numbers => pass.number += 1,
                    _ => pass = self.over(state, &pass),
                }
            }
            At::Mark | At::MarkAgain => {
                let is_read = pass.at == At::MarkAgain;
                match Self::mark(state, pass.number, Mark::Attempt(pass.attempt), is_read, lie) {
                    Some(Mark::Attempt(attempt)) if attempt == pass.attempt => {
                        if !is_read && self.keeps(Rule::MarkReadBack) {
                            pass.at = At::MarkAgain;
                        } else if self.keeps(Rule::HighestAfterMark) {
                            let twice = self.keeps(Rule::LookedTwice);
                            pass.at = if twice { At::LookAtMarks } else { At::LookAfterMark };
                        } else {
                            pass = self.carry_out(state, &pass);
                        }
                    }
                    _ => pass = self.over(state, &pass),
                }
            }
            At::LookAtMarks => {
                let seen = show(lie, present(&state.marks));
                match state.is_overtaken(pass.number, seen) {
                    true => pass = self.over(state, &pass),
                    false => pass.at = At::LookAfterMark,
                }
            }
            At::LookAfterMark => {
                let seen = show(lie, present(&state.indexes));
                pass = match state.is_overtaken(pass.number, seen) {
                    true => self.over(state, &pass),
                    false => self.carry_out(state, &pass),
                };
            }
        }
        state.passes[node] = pass;
    }

    /// The highest index that is left is looked at next.
    fn look_further(&self, pass: &mut Pass) {
        let is_void = |number: &u8| pass.marks[*number as usize] == Some(Mark::Void);
        let newest = numbers(pass.indexes).rfind(|number| !is_void(number)).unwrap_or(0);
        let named = numbers(pass.marked).rfind(|number| !is_void(number)).unwrap_or(0);
        if named > newest && self.keeps(Rule::LossTold) {
            pass.base = named;
            pass.at = At::ByName;
        } else {
            pass.base = newest;
            pass.at = if newest == 0 { At::Decide } else { At::Read };
        }
    }

    /// The index was lost, or is damaged: it is rebuilt.
    fn lost(&self, pass: &mut Pass) {
        (pass.is_rebuilding, pass.base, pass.base_index) = (true, 0, None);
        pass.at = At::Decide;
    }

    fn decide(&self, state: &mut State, pass: &mut Pass, moves: bool, lie: Option<Lie>) {
        if state.next_attempt > self.attempts || pass.number > self.numbers {
            *pass = Pass::default();
            return;
        }
        pass.attempt = state.next_attempt;
        state.next_attempt += 1;
        state.claims[pass.attempt as usize] = pass.number;
        let listed = show(lie, state.containers);
        let own = bit(pass.attempt);
        if pass.is_rebuilding {
            let first = if self.keeps(Rule::RebuiltKeepsCopies) { u8::MAX } else { listed & listed.wrapping_neg() };
            let at = listed & first;
            pass.new = Some(Index { attempt: pass.attempt, at, is_rebuilt: true, is_rotten: false });
            state.was_rebuilt = true;
            let again = self.keeps(Rule::ListedTwice) && self.keeps(Rule::RebuiltKeepsCopies);
            pass.at = if again { At::DecideAgain } else { At::Create };
            return;
        }
        let empty = Index { attempt: 0, at: bit(0), is_rebuilt: false, is_rotten: false };
        let base = pass.base_index.unwrap_or(empty);
        // Nobody moves what the rebuilt index found in several places.
        let new = if moves && !base.is_rebuilt { own } else { base.at };
        if new == own {
            state.containers |= own;
        }
        // What others wrote and no index has, when they are over.
        let is_over = |attempt: u8| {
            state.closed & bit(attempt) != 0 || (attempt > 0 && state.claims[attempt as usize] <= pass.base)
        };
        let over = (0..=self.attempts).filter(|attempt| is_over(*attempt)).fold(0, |all, attempt| all | bit(attempt));
        let unknown = listed & !base.at & (over | bit(0));
        let given_up = if new == own { base.at } else { 0 };
        pass.doomed = (unknown | given_up) & !new;
        pass.new = Some(Index { attempt: pass.attempt, at: new, is_rebuilt: base.is_rebuilt, is_rotten: false });
        pass.at = At::Create;
    }

    /// The pass is over, and has deleted nothing.
    fn over(&self, state: &mut State, pass: &Pass) -> Pass {
        state.closed |= bit(pass.attempt);
        Pass::default()
    }

    /// Its deletes are sent: of containers, of older indexes, of their marks.
    fn carry_out(&self, state: &mut State, pass: &Pass) -> Pass {
        state.doomed |= pass.doomed;
        let below = (1..pass.base).fold(0, |all, number| all | bit(number));
        state.stale_indexes |= below;
        state.stale_marks |= below;
        self.over(state, pass)
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
