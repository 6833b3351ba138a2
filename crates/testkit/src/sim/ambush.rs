//! Where actors are stopped on purpose: just before one of their requests, until their knowledge is
//! outdated.
//!
//! The dice of [`Weather`](super::Weather) suspend an actor anywhere. Some losses need it to be
//! suspended at one request, while one other thing happens: a seed in ten thousand does that by
//! itself.

use std::collections::BTreeMap;

use super::request::Change;

/// The event that wakes a stopped actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// An object was created whose name begins like this.
    Created(&'static str),
    /// An object was deleted whose name begins like this.
    Deleted(&'static str),
}

impl Wake {
    fn fits(self, change: &Change) -> bool {
        match (self, change) {
            (Self::Created(begin), Change::Created(name)) | (Self::Deleted(begin), Change::Deleted(name)) => {
                name.starts_with(begin)
            }
            _ => false,
        }
    }
}

/// Which actors are stopped before which requests, one at a time, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ambush {
    /// How the names of the actors begin.
    pub actor: &'static str,
    /// How the request begins, as the trace tells it.
    pub before: &'static str,
    /// How it ends.
    pub ending: &'static str,
    /// A text that the request contains.
    pub with: &'static str,
    /// A text that the request must not contain; empty: none.
    pub not: &'static str,
    /// How often out of 100.
    pub percent: u64,
    /// The event that it waits for.
    pub until: Wake,
    /// How often that has to happen, at least and at most.
    pub times: (u64, u64),
    /// After this number of requests of others it continues anyway.
    pub most: u64,
}

impl Ambush {
    /// Whether a request of an actor is meant.
    pub(super) fn fits(&self, actor: &str, request: &str) -> bool {
        let is_meant = request.contains(self.with) && (self.not.is_empty() || !request.contains(self.not));
        is_meant && actor.starts_with(self.actor) && request.starts_with(self.before) && request.ends_with(self.ending)
    }
}

/// An actor that does not go on.
#[derive(Debug, Clone, Copy)]
struct Slow {
    /// For this number of requests of others.
    left: u64,
    /// Or until this has happened so often.
    until: Option<(Wake, u64)>,
}

/// The stopped actor.
#[derive(Debug, Default)]
pub(super) struct Suspended {
    slow: BTreeMap<usize, Slow>,
    /// The whole process stands still, also its timers. After it is woken, it still waits until its
    /// request is executed.
    still: BTreeMap<usize, Ambush>,
}

impl Suspended {
    /// Requests of an actor wait for a number of requests of others. Its timers go on.
    pub(super) fn delay(&mut self, actor: usize, requests: u64) {
        self.slow.insert(actor, Slow { left: requests, until: None });
    }

    /// An actor stands still.
    pub(super) fn stop(&mut self, actor: usize, ambush: &Ambush, times: u64) {
        self.slow.insert(actor, Slow { left: ambush.most, until: Some((ambush.until, times)) });
        self.still.insert(actor, *ambush);
    }

    /// Whether an actor is stopped there: the others have to cause the event that it waits for.
    pub(super) fn is_taken(&self, ambush: &Ambush) -> bool {
        self.still.values().any(|other| other == ambush)
    }

    /// Whether requests of an actor wait.
    pub(super) fn is_slow(&self, actor: usize) -> bool {
        self.slow.contains_key(&actor)
    }

    /// Whether an actor stands still.
    pub(super) fn is_still(&self, actor: usize) -> bool {
        self.still.contains_key(&actor)
    }

    /// One more request was made.
    pub(super) fn count(&mut self) {
        self.slow.retain(|_, slow| {
            slow.left -= 1;
            slow.left > 0
        });
    }

    /// Something changed.
    pub(super) fn note(&mut self, change: &Change) {
        self.slow.retain(|_, slow| {
            let Some((wake, times)) = &mut slow.until else { return true };
            *times -= u64::from(wake.fits(change));
            *times > 0
        });
    }

    /// An actor's request was executed, or the actor is gone.
    pub(super) fn goes_on(&mut self, actor: usize) {
        self.still.remove(&actor);
    }

    /// An actor is gone.
    pub(super) fn forget(&mut self, actor: usize) {
        self.slow.remove(&actor);
        self.still.remove(&actor);
    }

    /// No other actor does anything.
    pub(super) fn wake_all(&mut self) {
        self.slow.clear();
    }
}
