//! Workers of a fleet batch, model-checked: claims, registers and fences of one host with one image.
//!
//! Two workers want to do the host. A claim keeps them apart only while its worker gives signs of
//! life, and any silence may come at any moment: both may be at work. Who creates the register of
//! the questions goes on, the other ends. Anybody may take the worker for lost, and ends its tasks.
//! Any worker may die, or stand still and go on later: also when the batch is over, and its registers are removed.
//!
//! The promises: one process at most stores and commits for the image; an image that is named as not
//! saved has no version, and one that is named as saved has one.

use stateright::{Checker, HasDiscoveries, Model, Property};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// A register is created once, and what it says counts.
    OneWinner,
    /// Only the worker that the register of the questions names goes on.
    SessionNamed,
    /// The version is fenced before a register says that there is none.
    FencedBeforeNamed,
    /// The lease of the batch is asked for between the registers and the version.
    BatchAsked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Idle,
    Claimed,
    Scanned,
    /// Its questions are sent, as far as it knows.
    Sent,
    Stored,
    /// The batch was open.
    Asked,
    Committed,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Register {
    Absent,
    Done(usize),
    Aborted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    workers: [Phase; 2],
    /// Who holds the claim of the highest epoch.
    claimed_by: Option<usize>,
    epochs: u8,
    send: Register,
    store: Register,
    version: Register,
    finish: Register,
    /// The lease is closed, and the image was named as saved, or as not.
    named: Option<bool>,
    /// Who stored chunks for the image.
    stored_by: [bool; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Step(usize),
    Die(usize),
    /// The claim is taken over from a worker that may well live.
    TakeOver(usize),
    /// Somebody takes the host for lost, in the stage that is due.
    End,
    /// All is decided: the process that planned reports, and closes the lease.
    Close,
    /// Registers are removed, as the lease is closed.
    Clean,
}

struct Workers {
    without: Vec<Rule>,
}

impl Workers {
    fn holds(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    /// Creates a register. Says whether the creator believes that its own counts.
    fn create(&self, register: &mut Register, new: Register) -> bool {
        if *register == Register::Absent {
            *register = new;
            return true;
        }
        if self.holds(Rule::OneWinner) {
            return false;
        }
        *register = new;
        true
    }

    fn step(&self, state: &mut State, me: usize) {
        let phase = state.workers[me];
        let next = match phase {
            Phase::Idle if state.claimed_by.is_none() => {
                state.claimed_by = Some(me);
                Phase::Claimed
            }
            Phase::Claimed => Phase::Scanned,
            Phase::Scanned => match self.create(&mut state.send, Register::Done(me)) {
                true => Phase::Sent,
                false if self.holds(Rule::SessionNamed) => Phase::Ended,
                false => Phase::Sent,
            },
            Phase::Sent => {
                // When the batch is over, it only costs space.
                state.stored_by[me] |= state.named.is_none();
                match self.create(&mut state.store, Register::Done(me)) {
                    true => Phase::Stored,
                    false => Phase::Ended,
                }
            }
            // The version is one name, and its creation always conditional: that is the protocol of backups.
            Phase::Stored if state.named.is_none() || !self.holds(Rule::BatchAsked) => Phase::Asked,
            Phase::Asked if state.version == Register::Absent => {
                state.version = Register::Done(me);
                Phase::Committed
            }
            Phase::Stored | Phase::Asked => Phase::Ended,
            Phase::Committed => {
                self.create(&mut state.finish, Register::Done(me));
                Phase::Ended
            }
            phase => phase,
        };
        state.workers[me] = next;
    }

    fn end(&self, state: &mut State) {
        if state.send == Register::Absent {
            state.send = Register::Aborted;
        } else if state.send != Register::Aborted && state.store == Register::Absent {
            state.store = Register::Aborted;
        } else if matches!(state.store, Register::Done(_)) && state.finish == Register::Absent {
            if self.holds(Rule::FencedBeforeNamed) && state.version == Register::Absent {
                state.version = Register::Aborted;
            }
            let is_saved = self.holds(Rule::FencedBeforeNamed) && matches!(state.version, Register::Done(_));
            state.finish = if is_saved { Register::Done(2) } else { Register::Aborted };
        }
    }
}

impl Model for Workers {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            workers: [Phase::Idle; 2],
            claimed_by: None,
            epochs: 0,
            send: Register::Absent,
            store: Register::Absent,
            version: Register::Absent,
            finish: Register::Absent,
            named: None,
            stored_by: [false; 2],
        }]
    }

    fn actions(&self, _state: &State, acts: &mut Vec<Act>) {
        acts.extend([Act::End, Act::Close, Act::Clean]);
        acts.extend((0..2).flat_map(|worker| [Act::Step(worker), Act::Die(worker), Act::TakeOver(worker)]));
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = last.clone();
        match act {
            Act::Step(worker) => self.step(&mut state, worker),
            Act::Die(worker) if state.workers[worker] != Phase::Idle => state.workers[worker] = Phase::Ended,
            Act::TakeOver(worker)
                if state.epochs < 2
                    && state.claimed_by.is_some_and(|other| other != worker)
                    && state.workers[worker] == Phase::Idle
                    && state.send == Register::Absent =>
            {
                state.epochs += 1;
                state.claimed_by = Some(worker);
                state.workers[worker] = Phase::Claimed;
            }
            Act::End if state.named.is_none() => self.end(&mut state),
            Act::Close if state.named.is_none() => {
                let is_lost = [state.send, state.store].contains(&Register::Aborted);
                state.named = match state.finish {
                    _ if is_lost => Some(false),
                    Register::Absent => None,
                    finish => Some(finish != Register::Aborted),
                };
            }
            Act::Clean if state.named.is_some() => {
                (state.send, state.store, state.finish) = (Register::Absent, Register::Absent, Register::Absent);
                state.claimed_by = None;
            }
            _ => return None,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ONE_STORES, |_: &Self, state: &State| state.stored_by != [true; 2]),
            Property::always(TRUE, |_: &Self, state: &State| {
                let is_named_as_lost = [state.send, state.store, state.finish].contains(&Register::Aborted);
                let has_version = matches!(state.version, Register::Done(_));
                if let Some(is_saved) = state.named {
                    return is_saved == has_version;
                }
                let is_named_as_saved = matches!(state.finish, Register::Done(_));
                !(is_named_as_lost && has_version) && (!is_named_as_saved || has_version)
            }),
        ];
        if self.without.is_empty() {
            properties.push(Property::sometimes("the one that took over saves", |_: &Self, state: &State| {
                state.epochs > 0 && matches!((state.claimed_by, state.finish), (Some(a), Register::Done(b)) if a == b)
            }));
            properties.push(Property::sometimes(
                "the one that was taken over from saves",
                |_: &Self, state: &State| {
                    state.epochs > 0
                        && matches!((state.claimed_by, state.finish), (Some(a), Register::Done(b)) if a != b)
                },
            ));
            properties
                .push(Property::sometimes("a version without its register is found", |_: &Self, state: &State| {
                    state.finish == Register::Done(2)
                }));
        }
        properties
    }
}

const ONE_STORES: &str = "one process at most stores for an image";
const TRUE: &str = "what is named as saved has a version, and what is not has none";

#[test]
fn workers_name_what_is_so() {
    let checker = Workers { without: vec![] }.checker().spawn_dfs().join();
    assert!(checker.is_done(), "some states were not explored");
    checker.assert_properties();
}

#[track_caller]
fn breaks(without: Rule, property: &'static str) {
    let checker = Workers { without: vec![without] }.checker();
    let checker = checker.finish_when(HasDiscoveries::AllOf([property].into())).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "nothing is wrong without {without:?}");
}

#[test]
fn a_register_that_is_replaced_is_no_fence() {
    breaks(Rule::OneWinner, ONE_STORES);
}

#[test]
fn a_worker_that_goes_on_although_another_one_was_faster() {
    breaks(Rule::SessionNamed, ONE_STORES);
}

#[test]
fn a_worker_that_goes_on_when_the_registers_of_its_batch_are_removed() {
    breaks(Rule::BatchAsked, TRUE);
}

#[test]
fn an_image_is_named_as_not_saved_without_a_fence() {
    breaks(Rule::FencedBeforeNamed, TRUE);
}
