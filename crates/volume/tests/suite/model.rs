//! The protocol of commits and manifests as a model: one block, written again and again, with a
//! crash at any point, or an earlier log that is put back. Each rule of docs/volume.md that exists
//! so far is removed once, and the model finds what it prevents.

use stateright::{Checker, Model, Property};

/// Writes and crashes that are tried.
const WRITES: u8 = 3;
const CRASHES: u8 = 2;

/// Rules that can be removed.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// A flush is acknowledged after its frames were synced.
    frames_synced: bool,
    /// A flush is acknowledged after its record was synced.
    record_synced: bool,
    /// The next record is written after the one before was synced.
    one_at_a_time: bool,
    /// The last record counts only if its frames open.
    last_verified: bool,
    /// A manifest is linked after its runs were synced.
    runs_synced: bool,
    /// Slots are used again after the folder of the manifest was synced.
    folder_synced: bool,
    /// A manifest's log begins behind the last record that its runs have.
    log_from_exact: bool,
    /// Recovery syncs and publishes what it found before it serves.
    published_before_service: bool,
    /// The anchor notes a record after it was synced.
    noted_when_durable: bool,
    /// A log that ends before the anchor is damage.
    anchor_asked: bool,
}

const ALL: Rules = Rules {
    frames_synced: true,
    record_synced: true,
    one_at_a_time: true,
    last_verified: true,
    runs_synced: true,
    folder_synced: true,
    log_from_exact: true,
    published_before_service: true,
    noted_when_durable: true,
    anchor_asked: true,
};

/// Something on the disk that may not be durable yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stored<T> {
    what: T,
    durable: bool,
}

fn stored<T>(what: T) -> Stored<T> {
    Stored { what, durable: false }
}

/// The steps of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Publication {
    None,
    RunWritten { value: u8, log_from: u8 },
    Linked { log_from: u8 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// Frames by the value that they hold.
    frames: Vec<Stored<u8>>,
    /// Sequence number and value.
    records: Vec<Stored<(u8, u8)>>,
    /// Records that the anchor notes; the last one counts.
    anchors: Vec<Stored<u8>>,
    /// Runs by the value that they hold.
    runs: Vec<Stored<u8>>,
    /// Value of its run, and first record that is not in it.
    manifests: Vec<Stored<(u8, u8)>>,
    publication: Publication,
    /// The process runs and serves.
    serves: bool,
    /// What it reads.
    value: u8,
    next_value: u8,
    next_seq: u8,
    /// What was acknowledged to be durable, or served after a crash.
    promised: u8,
    crashes: u8,
    /// A log was put back; nothing happens any more.
    is_over: bool,
    lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Commit,
    SyncFrames,
    SyncLog,
    Acknowledge,
    WriteRun,
    SyncRuns,
    Link,
    SyncFolder,
    FreeSlots,
    SyncAnchor,
    /// Bits: which of the things that are not durable survive.
    Crash(u16),
    /// Nothing else survives, and the log is put back to its state after this record.
    PutBack(u8),
    Serve,
}

struct Protocol(Rules);

fn sync<T>(things: &mut [Stored<T>]) {
    things.iter_mut().for_each(|thing| thing.durable = true);
}

fn are_synced<T>(things: &[Stored<T>]) -> bool {
    things.iter().all(|thing| thing.durable)
}

/// Keeps what is durable, and of the rest what `bits` say.
fn survive<T>(things: &mut Vec<Stored<T>>, bits: &mut u16) {
    things.retain(|thing| {
        if thing.durable {
            return true;
        }
        let survives = *bits & 1 == 1;
        *bits >>= 1;
        survives
    });
}

impl State {
    fn pending(&self) -> u32 {
        let count = |flags: &mut dyn Iterator<Item = bool>| flags.filter(|durable| !durable).count() as u32;
        count(&mut self.frames.iter().map(|thing| thing.durable))
            + count(&mut self.records.iter().map(|thing| thing.durable))
            + count(&mut self.anchors.iter().map(|thing| thing.durable))
            + count(&mut self.runs.iter().map(|thing| thing.durable))
            + count(&mut self.manifests.iter().map(|thing| thing.durable))
    }

    fn has_frame(&self, value: u8) -> bool {
        value == 0 || self.frames.iter().any(|frame| frame.what == value)
    }

    /// What a start finds. `true`: it is damage, and nothing is served.
    fn recover(&mut self, rules: Rules, promised: u8) -> bool {
        let (mut value, from) = self.manifests.last().map_or((0, 1), |manifest| manifest.what);
        let has_run = value == 0 || self.runs.iter().any(|run| run.what == value);
        let mut found = Vec::new();
        let mut seq = from;
        while let Some(record) = self.records.iter().find(|record| record.what.0 == seq) {
            found.push(record.what);
            seq += 1;
        }
        let anchored = self.anchors.iter().map(|anchor| anchor.what).max().unwrap_or(0);
        if rules.anchor_asked && anchored >= seq {
            return true;
        }
        let is_noted = found.last().is_some_and(|(last, _)| *last <= anchored);
        if rules.last_verified && !is_noted && found.last().is_some_and(|(_, value)| !self.has_frame(*value)) {
            found.pop();
        }
        if let Some((_, last)) = found.last() {
            value = *last;
        }
        // The block's newest version counts, but all records' frames must exist.
        let whole = found.iter().all(|(_, value)| self.has_frame(*value));
        self.lost |= !has_run || !whole || !self.has_frame(value) || value < promised;
        (self.value, self.next_seq) = (value, seq);
        self.publication = Publication::None;
        false
    }

    fn log_from(&self, rules: Rules) -> u8 {
        if rules.log_from_exact { self.next_seq } else { self.next_seq + 1 }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            frames: Vec::new(),
            records: Vec::new(),
            anchors: Vec::new(),
            runs: Vec::new(),
            manifests: Vec::new(),
            publication: Publication::None,
            serves: true,
            value: 0,
            next_value: 1,
            next_seq: 1,
            promised: 0,
            crashes: 0,
            is_over: false,
            lost: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let rules = self.0;
        if state.is_over {
            return;
        }
        let is_free = state.publication == Publication::None;
        let all_synced = are_synced(&state.frames) && are_synced(&state.records) && are_synced(&state.anchors);
        if state.serves && is_free && state.next_value <= WRITES && (all_synced || !rules.one_at_a_time) {
            actions.push(Action::Commit);
        }
        if !are_synced(&state.frames) {
            actions.push(Action::SyncFrames);
        }
        if !are_synced(&state.records) {
            actions.push(Action::SyncLog);
        }
        if !are_synced(&state.anchors) {
            actions.push(Action::SyncAnchor);
        }
        let is_due =
            (are_synced(&state.frames) || !rules.frames_synced) && (are_synced(&state.records) || !rules.record_synced);
        let is_due = is_due && are_synced(&state.anchors);
        if state.serves && is_due && state.promised < state.value {
            actions.push(Action::Acknowledge);
        }
        // A publication begins between commits. After a crash it comes before everything else.
        if is_free && (all_synced || !state.serves) && state.manifests.len() < 4 {
            actions.push(Action::WriteRun);
        }
        if !are_synced(&state.runs) {
            actions.push(Action::SyncRuns);
        }
        let may_link = are_synced(&state.runs) && are_synced(&state.frames) || !rules.runs_synced;
        if matches!(state.publication, Publication::RunWritten { .. }) && may_link {
            actions.push(Action::Link);
        }
        if !are_synced(&state.manifests) {
            actions.push(Action::SyncFolder);
        }
        if matches!(state.publication, Publication::Linked { .. })
            && (are_synced(&state.manifests) || !rules.folder_synced)
        {
            actions.push(Action::FreeSlots);
        }
        if !state.serves && is_free && !rules.published_before_service {
            actions.push(Action::Serve);
        }
        if state.crashes < CRASHES && state.pending() <= 8 {
            actions.extend((0..1 << state.pending()).map(Action::Crash));
            let durable = state.records.iter().filter(|record| record.durable);
            actions.extend(durable.map(|record| Action::PutBack(record.what.0 - 1)));
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let rules = self.0;
        let mut state = before.clone();
        match action {
            Action::Commit => {
                state.frames.push(stored(state.next_value));
                state.records.push(stored((state.next_seq, state.next_value)));
                let noted = if rules.noted_when_durable { state.next_seq - 1 } else { state.next_seq };
                state.anchors.push(stored(noted));
                state.value = state.next_value;
                state.next_value += 1;
                state.next_seq += 1;
            }
            Action::SyncFrames => sync(&mut state.frames),
            Action::SyncLog => sync(&mut state.records),
            Action::SyncAnchor => sync(&mut state.anchors),
            Action::Acknowledge => state.promised = state.value,
            Action::WriteRun => {
                state.runs.push(stored(state.value));
                state.publication = Publication::RunWritten { value: state.value, log_from: state.log_from(rules) };
            }
            Action::SyncRuns => sync(&mut state.runs),
            Action::Link => {
                let Publication::RunWritten { value, log_from } = state.publication else { return None };
                state.manifests.push(stored((value, log_from)));
                state.publication = Publication::Linked { log_from };
            }
            Action::SyncFolder => sync(&mut state.manifests),
            Action::FreeSlots => {
                let Publication::Linked { log_from } = state.publication else { return None };
                state.records.retain(|record| record.what.0 >= log_from);
                state.publication = Publication::None;
                if !state.serves {
                    state.serves = true;
                    state.promised = state.promised.max(state.value);
                }
            }
            Action::Crash(mut bits) => {
                survive(&mut state.frames, &mut bits);
                survive(&mut state.records, &mut bits);
                survive(&mut state.anchors, &mut bits);
                survive(&mut state.runs, &mut bits);
                survive(&mut state.manifests, &mut bits);
                state.crashes += 1;
                state.serves = false;
                let promised = state.promised;
                // A crash is no damage.
                state.lost |= state.recover(rules, promised);
            }
            Action::PutBack(last) => {
                let keep = |things: &mut Vec<Stored<u8>>| things.retain(|thing| thing.durable);
                keep(&mut state.frames);
                keep(&mut state.anchors);
                keep(&mut state.runs);
                state.manifests.retain(|manifest| manifest.durable);
                state.records.retain(|record| record.durable && record.what.0 <= last);
                // The last acknowledged record alone cannot be told from one that was never written.
                let is_gone = |(seq, value): (u8, u8)| seq > last && value <= before.promised;
                let gone = before.records.iter().filter(|record| record.durable && is_gone(record.what)).count();
                let promised = if gone <= 1 { 0 } else { state.promised };
                state.serves = false;
                state.recover(rules, promised);
                // Only what this start says is looked at.
                state.is_over = true;
            }
            Action::Serve => {
                state.serves = true;
                state.promised = state.promised.max(state.value);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing promised is lost", |_, state: &State| !state.lost),
            Property::sometimes("a promise is kept over two crashes", |_, state: &State| {
                state.crashes == CRASHES && state.serves && state.promised == WRITES
            }),
        ]
    }
}

fn finds_a_loss(rules: Rules) -> bool {
    let checker = Protocol(rules).checker().threads(2).spawn_bfs().join();
    checker.discovery("nothing promised is lost").is_some()
}

#[test]
fn with_all_rules_nothing_is_lost() {
    let checker = Protocol(ALL).checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
}

#[test]
fn without_any_one_rule_something_is_lost() {
    let without = [
        ("frames_synced", Rules { frames_synced: false, ..ALL }),
        ("record_synced", Rules { record_synced: false, ..ALL }),
        ("one_at_a_time", Rules { one_at_a_time: false, ..ALL }),
        ("last_verified", Rules { last_verified: false, ..ALL }),
        ("runs_synced", Rules { runs_synced: false, ..ALL }),
        ("folder_synced", Rules { folder_synced: false, ..ALL }),
        ("log_from_exact", Rules { log_from_exact: false, ..ALL }),
        ("published_before_service", Rules { published_before_service: false, ..ALL }),
        ("noted_when_durable", Rules { noted_when_durable: false, ..ALL }),
        ("anchor_asked", Rules { anchor_asked: false, ..ALL }),
    ];
    for (name, rules) in without {
        assert!(finds_a_loss(rules), "{name}");
    }
}
