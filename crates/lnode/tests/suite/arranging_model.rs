//! What arranging may do to a series of the layout `lifecycle` beside jobs, forgetting and a lost index, model-checked.
//!
//! One container, A, with two stretches of chunks. Version 1 stored both, version 2 uses the first alone, and a job that is slow builds on
//! version 1 and comes to name both again. Passes arrange or do not, move what a record leads to or leave it, and publish one after
//! the other; deletes of what they retired are applied at any later time, or never. The index may be lost, and rebuilt from what
//! there is. The promise is that of every version that is visible both stretches that it names are where the index says, or, where
//! there is none, that somebody finds them in some container.
//!
//! Protocol steps that `protocol_model.rs` takes apart are one here: a pass sees marks, leases and versions at one moment, and what it
//! publishes then is another. Each rule below is taken away once, and the checker finds what is lost.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Checker, HasDiscoveries, Model, Property};

/// A rule of `docs/concurrency.md` ("What tasks that move chunks must obey") as arranging keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// `RedirectBeforeRemoval`: what is retired goes when the index is published that says where it went.
    RecordBeforeRemoval,
    /// `PublishFirst`: of two passes that saw the same index one wins, and the other does nothing.
    OneWinner,
    /// `NamedVersionsRetained`
    NamedRetained,
    /// `LaterReferencesInherit`, until the version is arranged: whatever has stretches of a container that it names is kept for it.
    KeptUntilArranged,
    /// `LaterReferencesInherit`, when it is: stretches that it uses again are opened.
    Reopened,
    /// A series is left alone while a manifest counts that is not in the index.
    UnsettledLeft,
    /// `OneHop`: a record is rewritten when what has its stretches is retired in its turn.
    OneHop,
    /// `RebuiltKeepsCopies`: an index rebuilt keeps what has copies of a container that is there, because that may be about to go.
    RebuiltKeepsCopies,
    /// And its series is not arranged.
    RebuiltLeft,
    /// Who collects chunk by chunk asks versions of this layout too, when the index was rebuilt.
    CollectorAsksAll,
    /// Without an index passes delete nothing that tasks wrote.
    LostDeletesNothing,
    /// A pass that finds no index where there has been one rebuilds it before it does anything else.
    RebuiltFirst,
}

/// Versions that there may be, and what each names of A.
const USES: [u8; 4] = [0, 0b11, 0b01, 0b11];
/// The version of the slow job.
const LATE: u8 = 3;

fn bit(version: u8) -> u8 {
    1 << version
}

/// A container: A, or one that the n-th arranging wrote.
type Container = u8;
const A: Container = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Extent {
    /// The last version that uses it; `None`: the newest that was arranged.
    last: Option<u8>,
    at: Container,
}

/// What a container that arranging wrote is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Life {
    last: Option<u8>,
    /// Versions that are not arranged yet and may need it.
    kept_for: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Index {
    taken: u8,
    arranged: u8,
    /// Of each stretch of A; without a record both are in A.
    record: Option<[Option<Extent>; 2]>,
    written: BTreeMap<Container, Life>,
    /// In an index that was rebuilt: what has copies of A's chunks.
    forwards: BTreeSet<Container>,
    is_rebuilt: bool,
    /// A pass without an index found A gone, so what tasks wrote is needed, and nobody knows for what.
    is_missing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Job {
    Begins,
    Leased,
    Looked,
    Over,
}

/// What a pass saw.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Seen {
    number: u8,
    base: Option<Index>,
    marked: u8,
    named: u8,
    committed: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    number: u8,
    index: Option<Index>,
    was_lost: bool,
    /// Containers that are there, with their stretches.
    objects: BTreeMap<Container, u8>,
    next: Container,
    /// Deletes that may be applied.
    doomed: BTreeSet<Container>,
    committed: u8,
    marked: u8,
    job: Job,
    passes: [Option<Seen>; 2],
}

impl State {
    fn visible(&self) -> u8 {
        self.committed & !self.marked
    }

    /// Versions that a live lease names.
    fn named(&self) -> u8 {
        if matches!(self.job, Job::Leased | Job::Looked) { bit(1) } else { 0 }
    }

    fn has(&self, container: Container, stretch: usize) -> bool {
        self.objects.get(&container).is_some_and(|stretches| stretches & (1 << stretch) != 0)
    }

    /// Whether a delete may still be applied to something that is there.
    fn is_deleting(&self) -> bool {
        self.doomed.iter().any(|doomed| self.objects.contains_key(doomed))
    }

    fn is_found(&self, stretch: usize) -> bool {
        let Some(index) = self.index.as_ref().filter(|index| !index.is_missing) else {
            // A rebuild looks into all there are.
            return self.objects.keys().any(|container| self.has(*container, stretch));
        };
        match &index.record {
            Some(record) => record[stretch].is_some_and(|extent| self.has(extent.at, stretch)),
            None => self.has(A, stretch) || index.forwards.iter().any(|copy| self.has(*copy, stretch)),
        }
    }

    fn is_whole(&self) -> bool {
        let mut versions = (1..=LATE).filter(|version| self.visible() & bit(*version) != 0);
        versions
            .all(|version| (0..2).all(|stretch| USES[version as usize] & (1 << stretch) == 0 || self.is_found(stretch)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    /// The slow job takes its next step.
    Job,
    Retire,
    Forget(u8),
    Look(usize),
    Publish(usize, Wish),
    /// A delete is applied.
    Delete(Container),
    Lose,
    Rebuild,
}

/// What a pass is told to do, or comes to before it is told to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wish {
    Collect,
    /// Records alone: holes are few.
    Arrange,
    /// And everything is moved.
    Move,
    /// What nobody needs is collected chunk by chunk.
    CollectChunks,
}

struct Arranging {
    without: Option<Rule>,
    /// Whether the index may be lost.
    may_lose: bool,
    /// Whether there is something by which a pass can tell that there has been an index. Else it is only safe without one when
    /// nothing is under way.
    is_marked: bool,
    /// Containers that arranging may write, and indexes that may be published.
    most: u8,
}

impl Arranging {
    fn holds(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Whether a pass may begin.
    fn may_look(&self, state: &State) -> bool {
        match (&state.index, self.is_marked) {
            (Some(_), _) => true,
            // Else it begins with a rebuild.
            (None, true) => !self.holds(Rule::RebuiltFirst),
            (None, false) => !state.is_deleting(),
        }
    }

    fn publish(&self, state: &mut State, seen: Seen, wish: Wish) {
        if self.holds(Rule::OneWinner) && state.number != seen.number {
            return;
        }
        let named = if self.holds(Rule::NamedRetained) { seen.named } else { 0 };
        // What only a lease retains has no row.
        let counting = seen.committed & !seen.marked;
        let retained = counting | (seen.committed & named);
        let is_lost = seen.base.is_none();
        let mut index = seen.base.unwrap_or_default();
        index.is_missing |= is_lost && !state.objects.contains_key(&A);
        index.taken &= counting;
        let new = counting & !index.taken;
        index.taken |= new;
        if self.holds(Rule::KeptUntilArranged) {
            index.written.values_mut().for_each(|life| life.kept_for |= new);
        }
        let is_settled = retained & !index.taken == 0 || !self.holds(Rule::UnsettledLeft);
        let is_ours = !index.is_missing && (!index.is_rebuilt || !self.holds(Rule::RebuiltLeft));
        if matches!(wish, Wish::Arrange | Wish::Move) && is_settled && is_ours && index.taken != 0 && !is_lost {
            self.arrange(state, &mut index, retained, wish);
        }
        if wish == Wish::CollectChunks && index.is_rebuilt && !self.holds(Rule::CollectorAsksAll) {
            state.doomed.append(&mut index.forwards);
        }
        if !((is_lost || index.is_missing) && self.holds(Rule::LostDeletesNothing)) {
            Self::collect(state, &mut index, retained);
        }
        state.index = Some(index);
        state.number += 1;
    }

    fn arrange(&self, state: &mut State, index: &mut Index, retained: u8, wish: Wish) {
        let new = index.taken & !index.arranged;
        let newest = 7 - index.taken.leading_zeros() as u8;
        let uses = |version: u8, stretch: usize| USES[version as usize] & (1 << stretch) != 0;
        let mut record = index.record.unwrap_or([Some(Extent { last: None, at: A }); 2]);
        for (stretch, place) in record.iter_mut().enumerate() {
            let Some(extent) = place else { continue };
            let users = |of: u8| (1..=LATE).rev().find(|version| of & bit(*version) != 0 && uses(*version, stretch));
            extent.last = match (extent.last, uses(newest, stretch)) {
                (None, true) => None,
                (None, false) => Some(users(index.taken | index.arranged).unwrap_or(0)),
                (Some(_), _) if self.holds(Rule::Reopened) && users(new) == Some(newest) => None,
                (Some(last), _) if self.holds(Rule::Reopened) => Some(last.max(users(new).unwrap_or(0))),
                (last, _) => last,
            };
            if retained & within(extent.last) == 0 {
                *place = None;
            }
        }
        if wish == Wish::Move && state.next <= self.most {
            // Stretches of different volumes lie apart.
            let mut volumes: BTreeMap<Option<u8>, Container> = BTreeMap::new();
            for (stretch, extent) in record.iter_mut().enumerate() {
                let Some(extent) = extent else { continue };
                // What cannot be read is not moved.
                if !state.has(extent.at, stretch) {
                    continue;
                }
                let to = *volumes.entry(extent.last).or_insert_with(|| {
                    state.next += 1;
                    state.next - 1
                });
                *state.objects.entry(to).or_default() |= 1 << stretch;
                if extent.at == A || self.holds(Rule::OneHop) {
                    extent.at = to;
                }
                index.written.entry(to).or_default();
            }
        }
        let is_kept = |container: &Container| record.iter().flatten().any(|extent| extent.at == *container);
        let moved = index.written.keys().filter(|container| wish == Wish::Move && !is_kept(container));
        state.doomed.extend(moved);
        if self.without == Some(Rule::OneHop) {
            // The old place is retired all the same.
            let newest = index.written.keys().next_back().copied();
            let old = index.written.keys().filter(|container| wish == Wish::Move && Some(**container) != newest);
            state.doomed.extend(old);
        }
        index.written.retain(|container, _| is_kept(container));
        for (container, life) in &mut index.written {
            let of_it = record.iter().flatten().filter(|extent| extent.at == *container);
            let last = of_it.map(|extent| extent.last.unwrap_or(u8::MAX)).max();
            *life = Life { last: last.filter(|last| *last < u8::MAX), kept_for: 0 };
        }
        if !is_kept(&A) {
            state.doomed.insert(A);
        }
        (index.record, index.arranged) = (Some(record), index.taken);
        // Whoever arranges knows where everything is.
        index.forwards.clear();
    }

    /// What no retained version needs goes.
    fn collect(state: &mut State, index: &mut Index, retained: u8) {
        let is_needed = |life: &Life| retained & (within(life.last) | life.kept_for) != 0;
        index.written.retain(|_, life| is_needed(life));
        let forwards = if retained == 0 { BTreeSet::new() } else { std::mem::take(&mut index.forwards) };
        index.forwards = forwards;
        for container in state.objects.keys().filter(|container| **container != A) {
            if !index.written.contains_key(container) && !index.forwards.contains(container) {
                state.doomed.insert(*container);
            }
        }
        if retained == 0 {
            state.doomed.insert(A);
        }
    }

    /// An index of what is visible and what is there.
    fn rebuild(&self, state: &mut State) {
        let mut index = Index { taken: state.visible(), is_rebuilt: true, ..Index::default() };
        let keeps = self.holds(Rule::RebuiltKeepsCopies) || !state.objects.contains_key(&A);
        index.forwards = state.objects.keys().copied().filter(|container| keeps && *container != A).collect();
        state.index = Some(index);
        state.number += 1;
    }
}

/// The versions that a category may be needed by.
fn within(last: Option<u8>) -> u8 {
    (1..=last.unwrap_or(LATE).min(LATE)).fold(0, |all, version| all | bit(version))
}

impl Model for Arranging {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            number: 0,
            index: Some(Index::default()),
            was_lost: false,
            objects: BTreeMap::from([(A, 0b11)]),
            next: 1,
            doomed: BTreeSet::new(),
            committed: bit(1) | bit(2),
            marked: 0,
            job: Job::Begins,
            passes: [None, None],
        }]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        if state.job != Job::Over {
            acts.extend([Act::Job, Act::Retire]);
        }
        acts.extend((1..=LATE).filter(|version| state.visible() & bit(*version) != 0).map(Act::Forget));
        for (node, pass) in state.passes.iter().enumerate() {
            match pass {
                None if state.number < self.most && self.may_look(state) => acts.push(Act::Look(node)),
                None => {}
                Some(seen) => {
                    let is_rebuilt = seen.base.as_ref().is_some_and(|base| base.is_rebuilt);
                    let by_chunk = is_rebuilt.then_some(Wish::CollectChunks);
                    let wishes = [Wish::Collect, Wish::Arrange, Wish::Move].into_iter().chain(by_chunk);
                    acts.extend(wishes.map(|wish| Act::Publish(node, wish)));
                }
            }
        }
        acts.extend(
            state.doomed.iter().filter(|doomed| state.objects.contains_key(doomed)).map(|doomed| Act::Delete(*doomed)),
        );
        if self.may_lose && !state.was_lost {
            acts.push(Act::Lose);
        }
        if self.may_lose && state.was_lost && state.number < self.most {
            acts.push(Act::Rebuild);
        }
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = last.clone();
        match act {
            Act::Job => {
                state.job = match state.job {
                    Job::Begins => Job::Leased,
                    // The base is forgotten: it does without, and is of no interest any more.
                    Job::Leased if state.marked & bit(1) != 0 => Job::Over,
                    Job::Leased => Job::Looked,
                    Job::Looked | Job::Over => {
                        state.committed |= bit(LATE);
                        Job::Over
                    }
                };
            }
            Act::Retire => state.job = Job::Over,
            Act::Forget(version) => state.marked |= bit(version),
            Act::Look(node) => {
                let (number, base) = (state.number, state.index.clone());
                let (marked, named, committed) = (state.marked, state.named(), state.committed);
                state.passes[node] = Some(Seen { number, base, marked, named, committed });
            }
            Act::Publish(node, wish) => {
                let seen = state.passes[node].take()?;
                if self.holds(Rule::RecordBeforeRemoval) {
                    self.publish(&mut state, seen, wish);
                } else {
                    // It deletes, and dies before it publishes.
                    let (index, number) = (state.index.clone(), state.number);
                    self.publish(&mut state, seen, wish);
                    (state.index, state.number) = (index, number);
                }
            }
            Act::Delete(container) => {
                state.objects.remove(&container);
                state.doomed.remove(&container);
            }
            Act::Lose => (state.index, state.was_lost) = (None, true),
            Act::Rebuild => self.rebuild(&mut state),
        }
        // Which node it is makes no difference.
        state.passes.sort();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![Property::always(WHOLE, |_: &Self, state: &State| state.is_whole())];
        if self.without.is_none() {
            let late = |_: &Self, state: &State| state.visible() == bit(LATE) && !state.objects.contains_key(&A);
            properties.push(Property::sometimes("the late version alone is left, and A is gone", late));
            let twice = |_: &Self, state: &State| state.objects.keys().next() > Some(&1) && state.visible() != 0;
            properties.push(Property::sometimes("what was moved was moved again", twice));
            let kept = |_: &Self, state: &State| {
                let index = state.index.as_ref();
                index.is_some_and(|index| index.written.values().any(|life| life.kept_for != 0))
            };
            properties.push(Property::sometimes("something is kept for a version that is not arranged", kept));
        }
        if self.without.is_none() && self.may_lose {
            let rebuilt = |_: &Self, state: &State| {
                state.index.as_ref().is_some_and(|index| index.is_rebuilt) && !state.objects.contains_key(&A)
            };
            properties.push(Property::sometimes("an index was rebuilt, and A is gone", rebuilt));
        }
        properties
    }
}

const WHOLE: &str = "every visible version is whole";

#[test]
fn nothing_is_lost() {
    for (may_lose, is_marked) in [(false, true), (true, true), (true, false)] {
        let model = Arranging { without: None, may_lose, is_marked, most: if may_lose { 3 } else { 4 } };
        let checker = model.checker().spawn_dfs().join();
        assert!(checker.is_done(), "some states were not explored");
        checker.assert_properties();
    }
}

/// Without a rule something is lost.
#[track_caller]
fn breaks(rule: Rule, may_lose: bool) {
    let is_marked = rule != Rule::LostDeletesNothing;
    let model = Arranging { without: Some(rule), may_lose, is_marked, most: 5 };
    let checker = model.checker().finish_when(HasDiscoveries::AllOf([WHOLE].into())).spawn_bfs().join();
    assert!(checker.discovery(WHOLE).is_some(), "{rule:?} prevents nothing");
}

#[test]
fn deletes_before_the_record_is_published() {
    breaks(Rule::RecordBeforeRemoval, false);
}

#[test]
fn two_passes_that_saw_one_index() {
    breaks(Rule::OneWinner, false);
}

#[test]
fn named_version_not_retained() {
    breaks(Rule::NamedRetained, false);
}

#[test]
fn late_reference_not_kept_until_it_is_arranged() {
    breaks(Rule::KeptUntilArranged, false);
}

#[test]
fn late_reference_not_opened_again() {
    breaks(Rule::Reopened, false);
}

#[test]
fn series_arranged_while_a_manifest_counts_that_is_not_in_the_index() {
    breaks(Rule::UnsettledLeft, false);
}

#[test]
fn record_that_leads_to_what_was_retired() {
    breaks(Rule::OneHop, false);
}

#[test]
fn rebuilt_index_that_gives_copies_up() {
    breaks(Rule::RebuiltKeepsCopies, true);
}

#[test]
fn rebuilt_index_that_arranges() {
    breaks(Rule::RebuiltLeft, true);
}

#[test]
fn collection_chunk_by_chunk_that_asks_one_layout() {
    breaks(Rule::CollectorAsksAll, true);
}

#[test]
fn pass_without_an_index_that_deletes_what_tasks_wrote() {
    breaks(Rule::LostDeletesNothing, true);
}

#[test]
fn pass_that_begins_without_the_index_that_was_lost() {
    breaks(Rule::RebuiltFirst, true);
}
