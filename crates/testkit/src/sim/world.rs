//! The bucket of a simulation, and the requests to it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use object_store::Error;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::ambush::{Ambush, Suspended};
use super::damage::WrongAnswer;
use super::fate::missing;
use super::request::{Answer, Ask, Change, UnderWay};
use super::state::{Hesitation, START_MS, State, Weather};
use super::trace::Trace;
use crate::data::Rng;

/// The bucket of a simulation, with the requests under way to it. Clones are the same one.
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

    /// Objects created and deleted since the last call.
    pub fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.0.lock().changes)
    }

    /// Writes a line into the trace.
    pub fn note(&self, line: impl Into<String>) {
        self.0.lock().trace.push(line.into());
    }

    /// The events so far.
    pub fn trace(&self) -> Trace {
        self.0.lock().trace.clone()
    }

    /// Makes actors slow before some requests more often than before others: by how many times in
    /// 10,000, for a request as in the trace.
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

    /// Executes one request, with an outcome by the seed. False when no request waits.
    pub(super) fn go_on(&self) -> bool {
        let mut state = self.0.lock();
        // Reads without a waiter vanish.
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

    /// A stopped actor continues, because no other does anything.
    pub(super) fn wake_all(&self) {
        self.0.lock().suspended.wake_all();
    }

    /// An actor is gone.
    pub(super) fn forget(&self, actor: usize) {
        self.0.lock().suspended.forget(actor);
    }

    /// All requests without a waiter reach the store now, or never.
    pub(super) fn settle(&self) {
        let mut state = self.0.lock();
        state.echoes = None;
        // Tasks that outlive their actors wait for no answer any more.
        state.under_way.iter_mut().for_each(|request| request.reply = None);
        while !state.under_way.is_empty() {
            state.apply_late();
        }
    }
}

/// Violations of a store's promises.
impl World {
    /// The store loses an object.
    pub fn lose(&self, name: &str) {
        self.0.lock().lose(name);
    }

    /// The bytes of an object rot.
    pub fn spoil(&self, name: &str) {
        self.0.lock().spoil(name);
    }

    /// One request more is answered wrongly.
    pub fn answer_wrongly(&self, answer: WrongAnswer) {
        self.0.lock().lies.push(answer);
    }

    /// Whether each request that was to be answered wrongly was.
    pub fn has_lied(&self) -> bool {
        self.0.lock().lies.is_empty()
    }

    /// An actor crashes before it does anything else.
    pub fn kill(&self, actor: &str) {
        self.0.lock().killed.push(actor.to_owned());
    }

    /// Percentage of creates of names with this beginning that are under way twice. The second
    /// lands when the object is deleted.
    pub fn set_echoes(&self, begin: &'static str, percent: u64) {
        self.0.lock().echoes = Some((begin, percent));
    }

    /// Whether a create replaces an existing object.
    pub fn set_overwrites(&self, overwrites: bool) {
        self.0.lock().overwrites = overwrites;
    }
}
