//! The state of a simulation: objects, requests under way, faults and their frequency.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::ambush::{Ambush, Suspended};
use super::damage::WrongAnswer;
use super::request::{Change, Reply, UnderWay};
use super::trace::Trace;
use crate::data::Rng;

/// The frequency of each fault: number of times in 10,000 requests or steps.
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
    /// Steps at which a request without a waiter reaches the store.
    pub late: u64,
    /// Requests before which an actor becomes slow: for a while its requests are executed only if
    /// there are no others.
    pub freezes: u64,
}

impl Weather {
    /// Nothing goes wrong.
    pub const FINE: Self = Self { fails: 0, fails_after: 0, hangs: 0, crashes: 0, delays: 0, late: 0, freezes: 0 };
    /// A store on a bad day.
    pub const ROUGH: Self =
        Self { fails: 150, fails_after: 100, hangs: 100, crashes: 40, delays: 150, late: 200, freezes: 300 };
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
    /// Answers with a waiter that will not come.
    pub(super) unanswered: Vec<Reply>,
    pub(super) changes: Vec<Change>,
    pub(super) suspended: Suspended,
    pub(super) ambushes: Vec<Ambush>,
    /// Requests that are answered wrongly.
    pub(super) lies: Vec<WrongAnswer>,
    pub(super) overwrites: bool,
    pub(super) killed: Vec<String>,
    /// Damaged objects: clients outside of the simulation do not see the damage.
    pub(super) spoilt: BTreeSet<String>,
    /// Creates of such names are under way twice, so often out of 100, and the second lands when
    /// the object is deleted.
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
