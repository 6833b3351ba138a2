//! The outcomes of requests: they are answered, fail, are never answered, or reach the store much
//! later.

use object_store::Error;

use super::damage::tell;
use super::request::{Answer, Ask, Change, UnderWay};
use super::state::{State, Stored, Weather};
use crate::plan::Failure;

impl State {
    pub(super) fn chance(&mut self, of: impl Fn(&Weather) -> u64) -> bool {
        let chance = of(&self.weather);
        self.rng.below(10_000) < chance
    }

    /// Whether the actor of a request is stopped before it.
    pub(super) fn is_ambushed(&mut self, at: usize) -> bool {
        if self.ambushes.is_empty() || std::mem::replace(&mut self.under_way[at].has_waited, true) {
            return false;
        }
        let actor = self.under_way[at].actor;
        let (name, told) = (self.name(actor), self.under_way[at].ask.told());
        let ambush = self.ambushes.iter().find(|ambush| ambush.fits(&name, &told)).copied();
        let ambush = ambush.filter(|ambush| !self.suspended.is_taken(ambush));
        // An existing object is only asked for once more.
        let is_there = matches!(&self.under_way[at].ask, Ask::Create(path, _) if self.objects.contains_key(path));
        let ambush = ambush.filter(|_| !is_there);
        let Some(ambush) = ambush.filter(|ambush| self.rng.below(100) < ambush.percent) else { return false };
        let times = self.rng.within(ambush.times.0..ambush.times.1 + 1);
        self.suspended.stop(actor, &ambush, times);
        self.trace.push(format!("{name}: stands still before {told}, until {:?} x {times}", ambush.until));
        true
    }

    /// The actor of a request becomes slow.
    pub(super) fn freeze(&mut self, at: usize) {
        let actor = self.under_way[at].actor;
        // For a few requests of others, or for a number after which everything is different.
        let most = *self.rng.pick(&[20, 300, 1500]);
        let left = self.rng.within(1..most);
        self.suspended.delay(actor, left);
        let (name, ask) = (self.name(actor), self.under_way[at].ask.told());
        self.trace.push(format!("{name}: is slow for {left} requests before {ask}"));
    }

    /// One request without a waiter takes effect, or is lost.
    pub(super) fn apply_late(&mut self) {
        let echoes = self.echoes.map(|(begin, _)| begin);
        let is_late = |request: &UnderWay| {
            !request.is_awaited() && echoes.is_none_or(|begin| !request.ask.path().starts_with(begin))
        };
        let late: Vec<_> = (0..self.under_way.len()).filter(|at| is_late(&self.under_way[*at])).collect();
        let Some(at) = (!late.is_empty()).then(|| *self.rng.pick(&late)) else { return };
        let request = self.under_way.swap_remove(at);
        let told = format!("{}: {}", self.name(request.actor), request.ask.told());
        if self.rng.one_in(4) {
            self.trace.push(format!("{told}: lost"));
        } else {
            let result = self.carry_out(&request.ask, 1);
            self.trace.push(format!("{told}: late{}", if result.is_ok() { "" } else { ", without effect" }));
        }
    }

    /// Creates that were under way for longer than their objects were there.
    pub(super) fn land(&mut self) {
        for name in std::mem::take(&mut self.lands) {
            let lands = |request: &UnderWay| {
                !request.is_awaited() && matches!(&request.ask, Ask::Create(path, _) if *path == name)
            };
            let Some(at) = self.under_way.iter().position(lands) else { continue };
            let request = self.under_way.swap_remove(at);
            let result = self.carry_out(&request.ask, 1);
            self.trace.push(format!(
                "{}: {}: lands, {}",
                self.name(request.actor),
                request.ask.told(),
                outcome(&result)
            ));
        }
    }

    /// Whether a create is under way twice.
    pub(super) fn is_echoed(&mut self, ask: &Ask) -> bool {
        let Some((begin, percent)) = self.echoes else { return false };
        let is_new = matches!(ask, Ask::Create(path, _) if path.starts_with(begin) && !self.objects.contains_key(path));
        let is_first = self.under_way.iter().all(|other| other.ask.path() != ask.path());
        is_new && is_first && self.rng.below(100) < percent
    }

    pub(super) fn meet_fate(&mut self, at: usize) {
        let mut request = self.under_way.swap_remove(at);
        self.suspended.goes_on(request.actor);
        let told = format!("{}: {}", self.name(request.actor), request.ask.told());
        let answer = |request: &mut UnderWay, answer| {
            if let Some(reply) = request.reply.take() {
                // The requester may be gone by now.
                let _ = reply.send(answer);
            }
        };
        if matches!(request.ask, Ask::Linger(_)) {
            self.trace.push(told);
            answer(&mut request, Ok(Answer::Done));
            return;
        }
        let failure = *self.rng.pick(&[Failure::Status(503), Failure::Reset, Failure::Timeout, Failure::Status(500)]);
        let error = failure.error(request.ask.path());
        if self.chance(|weather| weather.fails) {
            self.trace.push(format!("{told}: fails"));
            answer(&mut request, Err(error));
            return;
        }
        let has_effect = request.ask.has_effect();
        if self.is_echoed(&request.ask) {
            self.trace.push(format!("{told}: fails, and is still under way"));
            answer(&mut request, Err(error));
            self.under_way.push(request);
            return;
        }
        if has_effect && self.chance(|weather| weather.fails_after) {
            if self.rng.one_in(2) {
                let result = self.carry_out(&request.ask, 1);
                self.trace.push(format!("{told}: fails after {}", outcome(&result)));
                answer(&mut request, Err(error));
            } else {
                // The connection broke, but a gateway has it.
                self.trace.push(format!("{told}: fails, and is still under way"));
                answer(&mut request, Err(error));
                self.under_way.push(request);
            }
            return;
        }
        if self.chance(|weather| weather.hangs) {
            if has_effect && self.rng.one_in(2) {
                let result = self.carry_out(&request.ask, 1);
                self.trace.push(format!("{told}: hangs after {}", outcome(&result)));
                self.unanswered.extend(request.reply.take());
            } else {
                self.trace.push(format!("{told}: hangs"));
                self.unanswered.extend(request.reply.take());
                if has_effect {
                    self.under_way.push(request);
                }
            }
            return;
        }
        let most = *self.rng.pick(&[3, 12, 40]);
        let page = 1 + self.rng.below(most) as usize;
        let mut result = self.carry_out(&request.ask, page);
        let name = self.name(request.actor);
        if tell(&mut self.lies, &name, &request.ask.told(), request.ask.path(), &mut result) {
            self.trace.push(format!("{told}: is answered wrongly"));
        }
        self.trace.push(format!("{told}: {}", outcome(&result)));
        answer(&mut request, result);
    }

    pub(super) fn lose(&mut self, name: &str) {
        self.objects.remove(name);
        self.note_change(Change::Deleted(name.to_owned()));
        self.trace.push(format!("the store loses {name}"));
    }

    pub(super) fn spoil(&mut self, name: &str) {
        if let Some(stored) = self.objects.get_mut(name) {
            let mut bytes = stored.bytes.to_vec();
            bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
            stored.bytes = bytes.into();
            self.spoilt.insert(name.to_owned());
            self.trace.push(format!("the store spoils {name}"));
        }
    }

    pub(super) fn note_change(&mut self, change: Change) {
        self.suspended.note(&change);
        if let Change::Deleted(name) = &change
            && self.echoes.is_some_and(|(begin, _)| name.starts_with(begin))
        {
            self.lands.push(name.clone());
        }
        self.changes.push(change);
    }

    pub(super) fn name(&self, actor: usize) -> String {
        self.names.get(actor).cloned().unwrap_or_default()
    }

    pub(super) fn carry_out(&mut self, ask: &Ask, page: usize) -> Result<Answer, Error> {
        match ask {
            Ask::Create(path, _) if self.objects.contains_key(path) && !self.overwrites => {
                Err(Error::AlreadyExists { path: path.clone(), source: "there is one".into() })
            }
            Ask::Create(path, bytes) | Ask::Put(path, bytes) => {
                let stored = Stored { bytes: bytes.clone(), created_ms: self.now_ms };
                self.objects.insert(path.clone(), stored);
                self.note_change(Change::Created(path.clone()));
                Ok(Answer::Done)
            }
            Ask::Read(path) => {
                let stored = self.objects.get(path).ok_or_else(|| missing(path))?;
                Ok(Answer::Bytes(stored.bytes.clone(), stored.created_ms))
            }
            Ask::Page(folder, after) => {
                let below = format!("{folder}/");
                let begin = after.clone().unwrap_or_default();
                let mut found = self
                    .objects
                    .range(begin.clone()..)
                    .filter(|(path, _)| (folder.is_empty() || path.starts_with(&below)) && **path > begin)
                    .map(|(path, stored)| (path.clone(), stored.bytes.len() as u64, stored.created_ms));
                let names: Vec<_> = found.by_ref().take(page).collect();
                let more = found.next().is_some();
                Ok(Answer::Page(names, more))
            }
            Ask::Linger(_) => Ok(Answer::Done),
            Ask::Delete(path) => {
                if self.objects.remove(path).is_some() {
                    self.note_change(Change::Deleted(path.clone()));
                }
                Ok(Answer::Done)
            }
        }
    }
}

pub(super) fn missing(path: &str) -> Error {
    Error::NotFound { path: path.to_owned(), source: "there is none".into() }
}

fn outcome(result: &Result<Answer, Error>) -> String {
    match result {
        Ok(Answer::Done) => "done".to_owned(),
        Ok(Answer::Bytes(bytes, _)) => format!("{} bytes", bytes.len()),
        Ok(Answer::Page(names, more)) => format!("{} names{}", names.len(), if *more { " and more" } else { "" }),
        Err(Error::NotFound { .. }) => "not found".to_owned(),
        Err(Error::AlreadyExists { .. }) => "name taken".to_owned(),
        Err(_) => "failed".to_owned(),
    }
}
