//! The bucket, and the requests on their way to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use object_store::{Error, ObjectStore};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::ambush::{Ambush, Suspended};
use super::damage::WrongAnswer;
use super::fate::missing;
use super::run::{Life, Machine};
use super::store::SimStore;
use super::trace::Trace;
use crate::data::Rng;

/// How often what goes wrong: so many times in 10,000 requests or steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weather {
    /// A request fails and has no effect.
    pub fails: u64,
    /// A create or delete takes effect and is reported as failed.
    pub fails_after: u64,
    /// A request is never answered. It takes effect at once, later or never.
    pub hangs: u64,
    /// Steps at which an actor crashes.
    pub crashes: u64,
    /// Steps at which time passes although there are requests that could be answered.
    pub delays: u64,
    /// Steps at which a request that nobody waits for any more reaches the store.
    pub late: u64,
    /// Requests before which an actor becomes slow: for a while nothing of it is carried out unless there is nothing else.
    pub freezes: u64,
}

impl Weather {
    /// Nothing goes wrong.
    pub const FINE: Self = Self { fails: 0, fails_after: 0, hangs: 0, crashes: 0, delays: 0, late: 0, freezes: 0 };
    /// A store on a bad day.
    pub const ROUGH: Self =
        Self { fails: 150, fails_after: 100, hangs: 100, crashes: 40, delays: 150, late: 200, freezes: 300 };
}

/// An object that was created or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is there now.
    Created(String),
    /// It is gone now.
    Deleted(String),
}

/// What is asked of the bucket.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Create(String, Bytes),
    Put(String, Bytes),
    Read(String),
    /// The next names of a listing, after one.
    Page(String, Option<String>),
    Delete(String),
    /// Nothing: a process is suspended.
    Linger(u64),
}

impl Ask {
    pub(super) fn has_effect(&self) -> bool {
        matches!(self, Self::Create(..) | Self::Put(..) | Self::Delete(_))
    }

    pub(super) fn told(&self) -> String {
        match self {
            Self::Create(path, _) => format!("create {path}"),
            Self::Put(path, _) => format!("put {path}"),
            Self::Read(path) => format!("read {path}"),
            Self::Page(folder, Some(after)) => format!("list {folder} after {after}"),
            Self::Page(folder, None) => format!("list {folder}"),
            Self::Delete(path) => format!("delete {path}"),
            Self::Linger(_) => "goes on".to_owned(),
        }
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::Create(path, _)
            | Self::Put(path, _)
            | Self::Read(path)
            | Self::Page(path, _)
            | Self::Delete(path) => path,
            Self::Linger(_) => "",
        }
    }
}

/// What the bucket answers.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    /// An object, and when it was created.
    Bytes(Bytes, u64),
    /// Names, sizes, and when they were created; and whether there are more.
    Page(Vec<(String, u64, u64)>, bool),
}

pub(super) type Reply = oneshot::Sender<Result<Answer, Error>>;

#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) actor: usize,
    pub(super) ask: Ask,
    /// `None` when no answer will come.
    pub(super) reply: Option<Reply>,
    /// Whether its actor was stopped before it already.
    pub(super) has_waited: bool,
}

impl UnderWay {
    /// Whether anybody waits for the answer.
    pub(super) fn is_awaited(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| !reply.is_closed())
    }
}

/// When simulations begin, by the clock of the store: milliseconds since the epoch.
pub(super) const START_MS: u64 = 1_900_000_000_000;

/// An object.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) bytes: Bytes,
    pub(super) created_ms: u64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) objects: BTreeMap<String, Stored>,
    /// The store's clock.
    pub(super) now_ms: u64,
    pub(super) under_way: Vec<UnderWay>,
    /// Answers that somebody waits for and that will not come.
    pub(super) unanswered: Vec<Reply>,
    pub(super) changes: Vec<Change>,
    pub(super) suspended: Suspended,
    pub(super) ambushes: Vec<Ambush>,
    /// Requests that are answered wrongly.
    pub(super) lies: Vec<WrongAnswer>,
    pub(super) overwrites: bool,
    pub(super) killed: Vec<String>,
    /// What rotted: who is no part of the simulation does not see it.
    pub(super) spoilt: BTreeSet<String>,
    /// Creates of such names are under way twice, so often out of 100, and the second lands when the object is deleted.
    pub(super) echoes: Option<(&'static str, u64)>,
    pub(super) lands: Vec<String>,
    pub(super) hesitates: Option<Hesitation>,
    pub(super) rng: Rng,
    pub(super) weather: Weather,
    pub(super) trace: Trace,
    pub(super) names: Vec<String>,
}

/// How much slower actors are before some requests.
pub(super) struct Hesitation(pub(super) Box<dyn Fn(&str) -> u64 + Send>);

impl std::fmt::Debug for Hesitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hesitation").finish_non_exhaustive()
    }
}

/// The bucket of a simulation, and what is under way to it. Clones are the same one.
#[derive(Debug, Clone)]
pub struct World(pub(super) Arc<Mutex<State>>);

impl World {
    pub(super) fn new(seed: u64, weather: Weather) -> Self {
        Self(Arc::new(Mutex::new(State {
            objects: BTreeMap::new(),
            now_ms: START_MS,
            under_way: Vec::new(),
            unanswered: Vec::new(),
            changes: Vec::new(),
            suspended: Suspended::default(),
            ambushes: Vec::new(),
            lies: Vec::new(),
            overwrites: false,
            killed: Vec::new(),
            spoilt: BTreeSet::new(),
            echoes: None,
            lands: Vec::new(),
            hesitates: None,
            rng: Rng::new(seed),
            weather,
            trace: Trace::default(),
            names: Vec::new(),
        })))
    }

    /// A client that is not part of the simulation: answered at once, never failed, and not in the trace.
    pub fn plain(&self) -> Arc<dyn ObjectStore> {
        Arc::new(SimStore { world: self.clone(), actor: None })
    }

    /// The client of an actor.
    pub(super) fn client(&self, actor: usize) -> Arc<dyn ObjectStore> {
        Arc::new(SimStore { world: self.clone(), actor: Some(actor) })
    }

    /// The life of somebody who is not part of the simulation.
    pub fn outside(&self, seed: u64) -> Life {
        Life { store: self.plain(), machine: Machine { world: self.clone(), actor: None }, number: 0, seed }
    }

    /// The names of all objects, in order.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().objects.keys().cloned().collect()
    }

    /// Those that begin like this.
    pub fn names_below(&self, begin: &str) -> Vec<String> {
        let state = self.0.lock();
        let from = state.objects.range(begin.to_owned()..);
        from.map(|(name, _)| name).take_while(|name| name.starts_with(begin)).cloned().collect()
    }

    /// Whether an object is there.
    pub fn has(&self, name: &str) -> bool {
        self.0.lock().objects.contains_key(name)
    }

    /// Whether a request to delete an object is under way: it may take effect at any later step.
    pub fn is_being_deleted(&self, name: &str) -> bool {
        let deletes = |request: &UnderWay| matches!(&request.ask, Ask::Delete(path) if path == name);
        self.0.lock().under_way.iter().any(deletes)
    }

    /// An object's bytes.
    pub fn get(&self, name: &str) -> Option<Bytes> {
        self.0.lock().objects.get(name).map(|stored| stored.bytes.clone())
    }

    /// What was created and deleted since this was last asked.
    pub fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.0.lock().changes)
    }

    /// Writes a line into the trace.
    pub fn note(&self, line: impl Into<String>) {
        self.0.lock().trace.push(line.into());
    }

    /// What happened so far.
    pub fn trace(&self) -> Trace {
        self.0.lock().trace.clone()
    }

    /// Actors are slow before some requests more often than before others: says by how many times in 10,000, of a request as the trace
    /// tells it.
    pub fn set_hesitation(&self, hesitates: impl Fn(&str) -> u64 + Send + 'static) {
        self.0.lock().hesitates = Some(Hesitation(Box::new(hesitates)));
    }

    /// Where actors are stopped on purpose.
    pub fn set_ambushes(&self, ambushes: Vec<Ambush>) {
        self.0.lock().ambushes = ambushes;
    }

    /// Another weather from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.0.lock().weather = weather;
    }

    pub(super) fn ask(&self, actor: usize, ask: Ask) -> oneshot::Receiver<Result<Answer, Error>> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.0.lock();
        if let Ask::Linger(requests) = ask {
            state.suspended.delay(actor, requests.max(1));
        }
        state.under_way.push(UnderWay { actor, ask, reply: Some(reply), has_waited: false });
        answer
    }

    pub(super) fn answer_now(&self, ask: &Ask) -> Result<Answer, Error> {
        let mut state = self.0.lock();
        let answer = state.carry_out(ask, usize::MAX);
        let is_spoilt = |name: &String| state.spoilt.contains(name);
        match (ask, answer) {
            (Ask::Read(path), Ok(_)) if is_spoilt(path) => Err(missing(path)),
            (Ask::Page(..), Ok(Answer::Page(mut names, more))) => {
                names.retain(|(name, ..)| !is_spoilt(name));
                Ok(Answer::Page(names, more))
            }
            (_, answer) => answer,
        }
    }

    /// Carries out one request, in whatever way the dice say. False when nobody waits for anything.
    pub(super) fn go_on(&self) -> bool {
        let mut state = self.0.lock();
        // What reads, and nobody waits for, is no more.
        state.under_way.retain(|request| request.is_awaited() || request.ask.has_effect());
        state.unanswered.retain(|reply| !reply.is_closed());
        if state.chance(|weather| weather.late) {
            state.apply_late();
        }
        state.land();
        let awaited: Vec<_> = (0..state.under_way.len()).filter(|at| state.under_way[*at].is_awaited()).collect();
        if awaited.is_empty() {
            return false;
        }
        state.suspended.count();
        let is_slow = |at: &usize| state.suspended.is_slow(state.under_way[*at].actor);
        let quick: Vec<_> = awaited.iter().copied().filter(|at| !is_slow(at)).collect();
        // Who was stopped on purpose lets time pass.
        let is_still = |at: &usize| is_slow(at) && state.suspended.is_still(state.under_way[*at].actor);
        let awaited: Vec<_> = awaited.iter().copied().filter(|at| !is_still(at)).collect();
        if awaited.is_empty() {
            return false;
        }
        let mut at = if quick.is_empty() { *state.rng.pick(&awaited) } else { *state.rng.pick(&quick) };
        let hesitates = state.hesitates.as_ref().map_or(0, |hesitates| hesitates.0(&state.under_way[at].ask.told()));
        if quick.len() > 1 && state.chance(|weather| weather.freezes + hesitates) {
            // Stopped just before this request, which is where it matters.
            state.freeze(at);
            at = *state.rng.pick(&quick);
        }
        if state.is_ambushed(at) {
            return true;
        }
        state.meet_fate(at);
        true
    }

    /// Whether an actor stands still.
    pub(super) fn is_still(&self, actor: usize) -> bool {
        self.0.lock().suspended.is_still(actor)
    }

    /// Whoever stands still goes on, because nobody else does anything.
    pub(super) fn wake_all(&self) {
        self.0.lock().suspended.wake_all();
    }

    /// An actor is gone.
    pub(super) fn forget(&self, actor: usize) {
        self.0.lock().suspended.forget(actor);
    }

    /// All requests that nobody waits for reach the store now, or never.
    pub(super) fn settle(&self) {
        let mut state = self.0.lock();
        state.echoes = None;
        while !state.under_way.is_empty() {
            state.apply_late();
        }
    }
}
