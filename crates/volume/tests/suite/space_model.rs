//! Merges and collection as a model: two blocks that may name one chunk, in its old container or in
//! the new one, with a crash at any point. Each rule is removed once, and the model finds a block
//! whose chunk is gone. `model.rs` has the rules of commits and manifests.

use stateright::{Checker, Model, Property};

/// Writes, merges and crashes that are tried.
const WRITES: u8 = 3;
const MERGES: u8 = 3;
const CRASHES: u8 = 2;

/// What a block names: no chunk, the chunk in the old container, the chunk in the new one.
const NOTHING: u8 = 0;
const OLD: u8 = 1;
const NEW: u8 = 2;

/// Rules that can be removed.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// A commit uses answers of the index that it got itself, under the committer's lock.
    answers_within_commit: bool,
    /// The −1 of a merge are in the manifest with its runs.
    counts_with_runs: bool,
    /// Victims are marked as closing before the publication after which names are counted.
    closing_before_flush: bool,
    /// A move is published with the memory tables flushed, and a log that begins behind them.
    flush_with_move: bool,
    /// Runs that commits published during a round are rewritten too.
    newer_runs_rewritten: bool,
    /// Files go when the manifest that retires them is durable.
    delete_after_durable: bool,
}

const ALL: Rules = Rules {
    answers_within_commit: true,
    counts_with_runs: true,
    closing_before_flush: true,
    flush_with_move: true,
    newer_runs_rewritten: true,
    delete_after_durable: true,
};

/// A run of the block table: what it says of each block.
type Run = [Option<u8>; 2];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Manifest {
    runs: Vec<Run>,
    /// Sum of the counts of the old place.
    count: i8,
    log_from: usize,
    retired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Round {
    Idle,
    /// Names were flushed before the mark, which a rule forbids.
    FlushedOnly,
    Closed,
    Copied {
        moves: bool,
    },
    Rewritten {
        moves: bool,
        runs: usize,
    },
    Linked,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    manifest: Manifest,
    /// The next one, not durable yet.
    linked: Option<Manifest>,
    log: Vec<(usize, u8)>,
    memory: Run,
    has_old: bool,
    has_new: bool,
    closing: bool,
    /// An answer of the index that a commit will use.
    asked: Option<(usize, u8)>,
    /// The −1 of a merge are published, its runs are not.
    half_merged: bool,
    round: Round,
    writes: u8,
    merges: u8,
    crashes: u8,
    lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Write(usize),
    Ask(usize),
    Answered,
    Discard(usize),
    /// A part of a block is written, and its new mapping keeps what the old one names.
    Splice(usize),
    Flush,
    Merge,
    MergeCounts,
    MergeRuns,
    SyncFolder,
    FlushOnly,
    Mark,
    Close,
    Copy,
    Rewrite,
    Link,
    Delete,
    /// Whether a manifest that is not durable survives.
    Crash(bool),
}

/// All runs as one, and how many names of the old place died.
fn merged(runs: &[Run]) -> (Run, i8) {
    let mut merged = [None; 2];
    for run in runs {
        for (block, value) in run.iter().enumerate() {
            merged[block] = value.or(merged[block]);
        }
    }
    (merged, names(runs) - names(&[merged]))
}

fn names(runs: &[Run]) -> i8 {
    runs.iter().flatten().filter(|value| **value == Some(OLD)).count() as i8
}

fn moved(run: Run) -> Run {
    run.map(|value| if value == Some(OLD) { Some(NEW) } else { value })
}

impl State {
    fn current(&self) -> &Manifest {
        self.linked.as_ref().unwrap_or(&self.manifest)
    }

    fn look_up(&self) -> u8 {
        if self.closing || self.current().retired { NEW } else { OLD }
    }

    fn commit(&mut self, block: usize, value: u8) {
        self.has_new |= value == NEW;
        self.log.push((block, value));
        self.memory[block] = Some(value);
    }

    /// The memory tables become a run.
    fn flush_into(&mut self, manifest: &mut Manifest) {
        if self.memory != [None; 2] {
            manifest.runs.push(self.memory);
            manifest.count += names(&[self.memory]);
        }
        manifest.log_from = self.log.len();
        self.memory = [None; 2];
    }

    fn flush(&mut self) {
        let mut next = self.current().clone();
        self.flush_into(&mut next);
        self.linked = Some(next);
    }

    fn seen(&self, block: usize) -> Option<u8> {
        self.memory[block].or(merged(&self.current().runs).0[block])
    }

    /// Whether every block has its chunk.
    fn look(&mut self) {
        for block in 0..2 {
            match self.seen(block) {
                Some(OLD) => self.lost |= !self.has_old,
                Some(NEW) => self.lost |= !self.has_new,
                _ => {}
            }
        }
    }
}

struct Space(Rules);

impl Model for Space {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let manifest = Manifest { runs: vec![[Some(OLD), None]], count: 1, log_from: 0, retired: false };
        vec![State {
            manifest,
            linked: None,
            log: Vec::new(),
            memory: [None; 2],
            has_old: true,
            has_new: false,
            closing: false,
            asked: None,
            half_merged: false,
            round: Round::Idle,
            writes: 0,
            merges: 0,
            crashes: 0,
            lost: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let rules = self.0;
        if state.writes < WRITES {
            for block in 0..2 {
                actions.push(Action::Discard(block));
                actions.push(Action::Splice(block));
                actions.push(if rules.answers_within_commit { Action::Write(block) } else { Action::Ask(block) });
            }
        }
        if state.asked.is_some() {
            actions.push(Action::Answered);
        }
        if state.crashes < CRASHES {
            actions.push(Action::Crash(true));
            if state.linked.is_some() {
                actions.push(Action::Crash(false));
            }
        }
        if state.linked.is_some() {
            actions.push(Action::SyncFolder);
        }
        if state.round == Round::Linked && (state.linked.is_none() || !rules.delete_after_durable) {
            actions.push(Action::Delete);
        }
        // One publication at a time.
        if state.linked.is_some() {
            return;
        }
        if state.memory != [None; 2] {
            actions.push(Action::Flush);
        }
        match state.round {
            Round::Idle => {
                if state.half_merged {
                    actions.push(Action::MergeRuns);
                } else if state.manifest.runs.len() > 1 && state.merges < MERGES {
                    actions.push(if rules.counts_with_runs { Action::Merge } else { Action::MergeCounts });
                }
                if !state.manifest.retired && !state.half_merged {
                    actions.push(if rules.closing_before_flush { Action::Close } else { Action::FlushOnly });
                }
            }
            Round::FlushedOnly => actions.push(Action::Mark),
            Round::Closed => actions.push(Action::Copy),
            Round::Copied { .. } => actions.push(Action::Rewrite),
            Round::Rewritten { .. } => actions.push(Action::Link),
            Round::Linked => {}
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let rules = self.0;
        let mut state = before.clone();
        match action {
            Action::Write(block) => {
                let value = state.look_up();
                state.commit(block, value);
                state.writes += 1;
            }
            Action::Ask(block) => {
                state.asked = Some((block, state.look_up()));
                state.writes += 1;
            }
            Action::Answered => {
                let (block, value) = state.asked.take()?;
                state.commit(block, value);
            }
            Action::Discard(block) => {
                state.commit(block, NOTHING);
                state.writes += 1;
            }
            Action::Splice(block) => {
                let value = state.seen(block)?;
                state.commit(block, value);
                state.writes += 1;
            }
            Action::Flush => state.flush(),
            Action::Merge | Action::MergeCounts | Action::MergeRuns => {
                let (run, dead) = merged(&state.manifest.runs);
                let mut next = state.manifest.clone();
                if action != Action::MergeRuns {
                    next.count -= dead;
                    state.merges += 1;
                }
                if action != Action::MergeCounts {
                    next.runs = vec![run];
                }
                state.half_merged = action == Action::MergeCounts;
                state.linked = Some(next);
            }
            Action::SyncFolder => state.manifest = state.linked.take()?,
            Action::FlushOnly => {
                state.flush();
                state.round = Round::FlushedOnly;
            }
            Action::Mark => {
                state.closing = true;
                state.round = Round::Closed;
            }
            Action::Close => {
                state.closing = true;
                state.flush();
                state.round = Round::Closed;
            }
            Action::Copy => {
                let moves = state.manifest.count > 0;
                state.has_new |= moves;
                state.round = Round::Copied { moves };
            }
            Action::Rewrite => {
                let Round::Copied { moves } = state.round else { return None };
                state.round = Round::Rewritten { moves, runs: state.manifest.runs.len() };
            }
            Action::Link => {
                let Round::Rewritten { moves, runs } = state.round else { return None };
                let mut next = state.manifest.clone();
                if moves {
                    let rewritten = if rules.newer_runs_rewritten { next.runs.len() } else { runs };
                    next.runs[..rewritten].iter_mut().for_each(|run| *run = moved(*run));
                    next.count = names(&next.runs);
                }
                if rules.flush_with_move {
                    if moves {
                        state.memory = moved(state.memory);
                    }
                    state.flush_into(&mut next);
                }
                next.retired = true;
                state.closing = false;
                state.linked = Some(next);
                state.round = Round::Linked;
            }
            Action::Delete => {
                state.has_old = false;
                state.round = Round::Idle;
            }
            Action::Crash(survives) => {
                let linked = state.linked.take();
                if let Some(linked) = linked.filter(|_| survives) {
                    state.manifest = linked;
                }
                state.memory = [None; 2];
                for (block, value) in state.log[state.manifest.log_from..].iter().copied() {
                    state.memory[block] = Some(value);
                }
                state.has_old &= !state.manifest.retired;
                (state.closing, state.half_merged, state.round) = (false, false, Round::Idle);
                state.asked = None;
                state.crashes += 1;
            }
        }
        state.look();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no chunk of a block is gone", |_, state: &State| !state.lost),
            Property::always("counts are those of the runs", |space: &Self, state: &State| {
                !space.0.counts_with_runs || names(&state.current().runs) == state.current().count
            }),
            Property::sometimes("the old container goes, and a block has the chunk", |_, state: &State| {
                !state.has_old && merged(&state.manifest.runs).0.contains(&Some(NEW)) && state.crashes == CRASHES
            }),
        ]
    }
}

#[test]
fn with_all_rules_no_chunk_is_lost_and_counts_are_exact() {
    let checker = Space(ALL).checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
}

#[test]
fn without_any_one_rule_a_chunk_is_lost() {
    let without = [
        ("answers_within_commit", Rules { answers_within_commit: false, ..ALL }),
        ("counts_with_runs", Rules { counts_with_runs: false, ..ALL }),
        ("closing_before_flush", Rules { closing_before_flush: false, ..ALL }),
        ("flush_with_move", Rules { flush_with_move: false, ..ALL }),
        ("newer_runs_rewritten", Rules { newer_runs_rewritten: false, ..ALL }),
        ("delete_after_durable", Rules { delete_after_durable: false, ..ALL }),
    ];
    for (name, rules) in without {
        let checker = Space(rules).checker().threads(2).spawn_bfs().join();
        assert!(checker.discovery("no chunk of a block is gone").is_some(), "{name}");
    }
}
