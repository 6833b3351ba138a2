//! A fleet batch, model-checked: two images, the job that stores for their host, and a version of another series.
//!
//! Both images ask for chunk D, which the index knows in a container of version W, and for chunk X, which is new. The first image
//! owns X, and the second one waits for it. Each has a job: a lease, looks, a commit. The job S stores and commits nothing. Tasks
//! may be repeated after a crash, which leaves outputs of an attempt that does not count. W is forgotten at any moment, S may look
//! dead and be fenced, passes collect, and a guest writes to an image that is not as frozen as its source says.
//!
//! The promise: each chunk of a committed version is in a container that exists, with the bytes of the scan. Leases and looks of
//! ordinary jobs are taken apart in `protocol_model.rs`; here a pass and a look are one step each.

use stateright::{Checker, HasDiscoveries, Model, Property};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// References only to containers of versions that the lease names: `OwnersNamed` for W.
    VersionNamed,
    /// And of jobs that it adopts: `OwnersNamed` for S.
    StoreAdopted,
    /// The looks come after the lease.
    LeaseFirst,
    /// What the index says is compared with the table of the container.
    HitConfirmed,
    /// A place is told when the store has acknowledged its container.
    PlacedWhenDurable,
    /// What another task says of a place is compared with the table of the container.
    PlaceConfirmed,
    /// Only the outputs of the attempt in the register count.
    OneWinner,
    /// The image is released when its chunks are acknowledged.
    ReleasedWhenDurable,
    /// Bytes of the second read have the fingerprints of the scan.
    SecondReadChecked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    /// The scan is done, and answers are there.
    Answered,
    Looked,
    Leased,
    /// Its own chunk was handed in.
    Pushed,
    /// All its chunks have places.
    Placed,
    Committed,
    Forgotten,
    Failed,
}

/// Where an image finds a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Nowhere,
    /// In the container of W.
    Shared,
    /// In a container of S, by its number.
    Stored(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Image {
    phase: Phase,
    names_w: bool,
    adopts_s: bool,
    d: Place,
    x: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Object {
    Absent,
    /// On its way: it arrives, or never does.
    Sent {
        wrong: bool,
    },
    There {
        wrong: bool,
    },
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    images: [Image; 2],
    w_forgotten: bool,
    /// The container of W is there.
    c_there: bool,
    /// S is fenced or closed.
    s_over: bool,
    /// Containers of S: those of the owner's two attempts, and of the waiter.
    stored: [Object; 3],
    /// The attempt of the owner at storing: 0 or 1.
    attempt: usize,
    /// The image of the owner was released, and the guest has written to it.
    released: bool,
    written: bool,
    /// Places of X that were told: by attempt, and whether its register names it.
    told: [bool; 2],
    winner: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// An image takes its next step.
    Step(usize),
    /// The process of the owner dies while it stores; the task is done again.
    Crash,
    /// The image of the owner is lost.
    Lose,
    Release,
    Write,
    /// A container of S arrives, or never will.
    Arrive(usize),
    Vanish(usize),
    ForgetW,
    Forget(usize),
    EndS,
    Pass,
}

const OWNER: usize = 0;
const WAITER: usize = 1;
/// The container of the waiter's own copies.
const OWN: usize = 2;

struct Fleet {
    without: Vec<Rule>,
    /// Whether the source of the owner freezes it as it says.
    is_frozen: bool,
}

impl Fleet {
    fn holds(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    fn step(&self, state: &mut State, number: usize) {
        let mut image = state.images[number];
        match image.phase {
            Phase::Answered if self.holds(Rule::LeaseFirst) => image.phase = Phase::Leased,
            Phase::Answered => {
                self.look(state, &mut image);
                image.phase = Phase::Looked;
            }
            Phase::Looked => {
                // Its lease came last.
                image.phase = Phase::Pushed;
                self.push(state, &mut image, number);
            }
            Phase::Leased => {
                self.look(state, &mut image);
                image.phase = Phase::Pushed;
                self.push(state, &mut image, number);
            }
            Phase::Pushed if number == OWNER => self.place_own(state, &mut image),
            Phase::Pushed => self.place_waiter(state, &mut image),
            Phase::Placed => image.phase = Phase::Committed,
            _ => {}
        }
        state.images[number] = image;
    }

    /// The looks: what may be shared.
    fn look(&self, state: &State, image: &mut Image) {
        let names_w = self.holds(Rule::VersionNamed);
        let may_share = if names_w { !state.w_forgotten } else { true };
        let is_confirmed = state.c_there || !self.holds(Rule::HitConfirmed);
        image.names_w = names_w && !state.w_forgotten;
        image.adopts_s = self.holds(Rule::StoreAdopted) && !state.s_over;
        image.d = if may_share && is_confirmed { Place::Shared } else { Place::Nowhere };
    }

    /// Hands in what is new. Without S, an image fails.
    fn push(&self, state: &mut State, image: &mut Image, number: usize) {
        if state.s_over {
            image.phase = Phase::Failed;
            return;
        }
        if number != OWNER {
            return;
        }
        let wrong = state.written;
        if wrong && self.holds(Rule::SecondReadChecked) {
            image.phase = Phase::Failed;
            return;
        }
        let at = state.attempt;
        if state.stored[at] == Object::Absent {
            state.stored[at] = Object::Sent { wrong };
        }
        image.x = Place::Stored(at);
        if !self.holds(Rule::PlacedWhenDurable) {
            state.told[at] = true;
        }
    }

    fn place_own(&self, state: &mut State, image: &mut Image) {
        let at = state.attempt;
        match state.stored[at] {
            Object::There { .. } => {
                state.told[at] = true;
                state.winner.get_or_insert(at);
                if image.d == Place::Nowhere {
                    // Stored in the same container.
                    image.d = Place::Stored(at);
                }
                image.phase = Phase::Placed;
            }
            Object::Gone => image.phase = Phase::Failed,
            Object::Absent | Object::Sent { .. } => {}
        }
    }

    /// The waiter gets the place that was told, or stores its own copy.
    fn place_waiter(&self, state: &mut State, image: &mut Image) {
        let counts = |at: &usize| match self.holds(Rule::OneWinner) {
            true => state.winner == Some(*at),
            false => true,
        };
        let told = (0..2).filter(|at| state.told[*at]).find(counts);
        let may_use = image.adopts_s || !self.holds(Rule::StoreAdopted);
        let is_there = |at: usize| matches!(state.stored[at], Object::There { .. });
        let found = told.filter(|at| may_use && (is_there(*at) || !self.holds(Rule::PlaceConfirmed)));
        let owner_is_over = state.images[OWNER].phase == Phase::Failed;
        if let Some(at) = found {
            image.x = Place::Stored(at);
        } else if (told.is_some() || owner_is_over) && !state.s_over {
            image.x = Place::Stored(OWN);
        } else if state.s_over && (told.is_some() || owner_is_over) {
            image.phase = Phase::Failed;
            return;
        } else {
            return;
        }
        if image.d == Place::Nowhere {
            image.d = Place::Stored(OWN);
        }
        if Self::refers(image, Place::Stored(OWN)) {
            match state.stored[OWN] {
                Object::Absent => {
                    state.stored[OWN] = Object::Sent { wrong: false };
                    return;
                }
                Object::There { .. } => {}
                Object::Sent { .. } => return,
                Object::Gone => {
                    image.phase = Phase::Failed;
                    return;
                }
            }
        }
        image.phase = Phase::Placed;
    }

    /// What a version or a running job refers to.
    fn refers(image: &Image, place: Place) -> bool {
        image.d == place || image.x == place
    }

    fn pass(state: &mut State) {
        let is_running = |image: &Image| image.phase > Phase::Looked && image.phase < Phase::Committed;
        let is_retained = |image: &Image| image.phase == Phase::Committed;
        let keeps_w = state.images.iter().any(|image| is_running(image) && image.names_w);
        let shares = state.images.iter().any(|image| is_retained(image) && Self::refers(image, Place::Shared));
        if state.w_forgotten && !keeps_w && !shares {
            state.c_there = false;
        }
        // `UnsettledKept`, `AdoptedKept`.
        let is_adopted = state.images.iter().any(|image| is_running(image) && image.adopts_s);
        for at in 0..3 {
            let is_used = state.images.iter().any(|image| is_retained(image) && Self::refers(image, Place::Stored(at)));
            let is_settled = state.s_over && !is_adopted;
            if is_settled && !is_used && matches!(state.stored[at], Object::There { .. }) {
                state.stored[at] = Object::Gone;
            }
        }
    }
}

impl Model for Fleet {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let image =
            Image { phase: Phase::Answered, names_w: false, adopts_s: false, d: Place::Nowhere, x: Place::Nowhere };
        vec![State {
            images: [image; 2],
            w_forgotten: false,
            c_there: true,
            s_over: false,
            stored: [Object::Absent; 3],
            attempt: 0,
            released: false,
            written: false,
            told: [false; 2],
            winner: None,
        }]
    }

    fn actions(&self, _state: &State, acts: &mut Vec<Act>) {
        acts.extend([Act::Step(OWNER), Act::Step(WAITER), Act::ForgetW, Act::EndS, Act::Pass, Act::Lose]);
        acts.extend([Act::Forget(OWNER), Act::Forget(WAITER), Act::Crash, Act::Release, Act::Write]);
        acts.extend((0..3).flat_map(|at| [Act::Arrive(at), Act::Vanish(at)]));
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = last.clone();
        let owner = state.images[OWNER].phase;
        match act {
            Act::Step(number) => self.step(&mut state, number),
            // Its uploads may still land; the task is done again from its lease on.
            Act::Crash if owner == Phase::Pushed && state.attempt == 0 => {
                state.attempt = 1;
                state.images[OWNER].phase = Phase::Answered;
                state.images[OWNER].x = Place::Nowhere;
            }
            Act::Lose if owner < Phase::Placed => state.images[OWNER].phase = Phase::Failed,
            Act::Release => {
                let is_durable = owner >= Phase::Placed;
                if is_durable || !self.holds(Rule::ReleasedWhenDurable) {
                    state.released = true;
                }
            }
            Act::Write if state.released || !self.is_frozen => state.written = true,
            Act::Arrive(at) => {
                if let Object::Sent { wrong } = state.stored[at] {
                    state.stored[at] = Object::There { wrong };
                }
            }
            Act::Vanish(at) => {
                if let Object::Sent { .. } = state.stored[at] {
                    state.stored[at] = Object::Gone;
                }
            }
            Act::ForgetW => state.w_forgotten = true,
            Act::Forget(number) if state.images[number].phase == Phase::Committed => {
                state.images[number].phase = Phase::Forgotten;
            }
            // Fenced, or closed when all is decided.
            Act::EndS => state.s_over = true,
            Act::Pass => Self::pass(&mut state),
            _ => return None,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let whole = |_: &Self, state: &State| {
            let committed = state.images.iter().filter(|image| image.phase == Phase::Committed);
            let is_right = |place: Place| match place {
                Place::Nowhere => false,
                Place::Shared => state.c_there,
                Place::Stored(at) => state.stored[at] == Object::There { wrong: false },
            };
            committed.clone().all(|image| is_right(image.d) && is_right(image.x))
        };
        let mut properties = vec![Property::always(WHOLE, whole)];
        if self.without.is_empty() {
            properties.push(Property::sometimes("the waiter uses the owner's copy", |_: &Self, state: &State| {
                let [owner, waiter] = &state.images;
                owner.phase == Phase::Committed && waiter.phase == Phase::Committed && owner.x == waiter.x
            }));
            properties.push(Property::sometimes("what W had outlives it", |_: &Self, state: &State| {
                let of_w = |image: &Image| image.phase == Phase::Committed && image.d == Place::Shared;
                state.w_forgotten && state.images.iter().any(of_w)
            }));
            properties.push(Property::sometimes(
                "the waiter stores it when the owner is lost",
                |_: &Self, state: &State| {
                    let [owner, waiter] = &state.images;
                    owner.phase == Phase::Failed && waiter.phase == Phase::Committed
                },
            ));
            properties.push(Property::sometimes("the task of the owner is repeated", |_: &Self, state: &State| {
                state.winner == Some(1) && state.images[OWNER].phase == Phase::Committed
            }));
            properties.push(Property::sometimes("a quiet pass leaves nothing behind", |_: &Self, state: &State| {
                let is_over = |image: &Image| image.phase >= Phase::Forgotten;
                let is_there = |object: &Object| matches!(object, Object::There { .. });
                state.images.iter().all(is_over) && state.s_over && !state.c_there && !state.stored.iter().any(is_there)
            }));
        }
        properties
    }
}

const WHOLE: &str = "every chunk of a committed version is there, with the bytes of the scan";

#[test]
fn a_batch_loses_nothing() {
    for is_frozen in [true, false] {
        let checker = Fleet { without: vec![], is_frozen }.checker().spawn_dfs().join();
        assert!(checker.is_done(), "some states were not explored");
        checker.assert_properties();
    }
}

/// Three rules protect from places that are not there, and two from bytes that changed. Any of them is enough.
#[test]
fn places_are_safe_if_they_are_told_late_or_confirmed() {
    let [durable, confirmed, winner] = [Rule::PlacedWhenDurable, Rule::PlaceConfirmed, Rule::OneWinner];
    for without in [
        vec![durable, confirmed],
        vec![confirmed, winner],
        vec![durable, winner],
        vec![Rule::ReleasedWhenDurable],
        vec![Rule::SecondReadChecked],
        vec![Rule::HitConfirmed],
    ] {
        let checker = Fleet { without: without.clone(), is_frozen: true }.checker().spawn_dfs().join();
        assert!(checker.is_done(), "some states were not explored");
        assert!(checker.discovery(WHOLE).is_none(), "{without:?}");
    }
}

#[track_caller]
fn breaks(without: &[Rule], is_frozen: bool) {
    let checker = Fleet { without: without.to_vec(), is_frozen }.checker();
    let checker = checker.finish_when(HasDiscoveries::AllOf([WHOLE].into())).spawn_bfs().join();
    assert!(checker.discovery(WHOLE).is_some(), "nothing is lost without {without:?}");
}

#[test]
fn container_of_a_version_that_was_not_named() {
    breaks(&[Rule::VersionNamed], true);
}

#[test]
fn container_of_a_store_job_that_was_not_adopted() {
    breaks(&[Rule::StoreAdopted], true);
}

#[test]
fn looks_before_the_lease() {
    breaks(&[Rule::LeaseFirst], true);
}

#[test]
fn place_of_an_attempt_that_lost_told_early_and_taken_as_it_is() {
    breaks(&[Rule::PlacedWhenDurable, Rule::PlaceConfirmed, Rule::OneWinner], true);
}

#[test]
fn image_released_before_its_chunks_are_durable() {
    breaks(&[Rule::ReleasedWhenDurable, Rule::SecondReadChecked], true);
}

#[test]
fn second_read_that_is_not_checked() {
    breaks(&[Rule::SecondReadChecked], false);
}
