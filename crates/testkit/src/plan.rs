//! The plan of a fault store: which operations meet which fault, and the record of what happened.
//!
//! A test holds a [`Faults`] handle and gives it rules; the store asks it about each operation.
//! Operations are numbered from 0 in the order in which they arrive, which a test on one task
//! determines. Chances are drawn from a seed and the number of the operation, so the same run meets
//! the same faults.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};
use parking_lot::Mutex;

use crate::data::Rng;

/// The name under which made-up errors appear.
const STORE: &str = "FaultStore";

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// A put that creates an object or fails.
    Put,
    /// A put that may replace an object.
    Overwrite,
    /// A get of a whole object or a range.
    Get,
    /// A look at an object's size.
    Head,
    /// A listing, counted once however long.
    List,
    /// A deletion of one object.
    Delete,
}

/// One operation that reached the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// Its number, from 0.
    pub index: u64,
    /// Its kind.
    pub kind: OpKind,
    /// The whole path in the store; the prefix of a listing.
    pub path: String,
    /// Bytes sent with it.
    pub bytes: u64,
    /// The fault it met, if any.
    pub fault: Option<Fault>,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The server answers with this HTTP status.
    Status(u16),
    /// The same with a store's own code, such as `SlowDown`.
    Code(u16, &'static str),
    /// The connection breaks.
    Reset,
    /// The client's own time limit passes.
    Timeout,
    /// No connection comes about.
    Connect,
    /// The disk is full (ENOSPC).
    NoSpace,
    /// The file system is read-only (EROFS).
    ReadOnly,
    /// A system call is not permitted (EACCES).
    Denied,
    /// A failure that must not be retried, as in a process that has been stopped.
    Stopped,
}

impl Failure {
    /// The error as a real client of a real store would report it.
    pub fn error(self, path: &str) -> Error {
        let http = |kind, io: io::ErrorKind| Error::Generic {
            store: STORE,
            source: Box::new(HttpError::new(kind, io::Error::from(io))),
        };
        let errno = |errno| Error::Generic { store: STORE, source: Box::new(io::Error::from_raw_os_error(errno)) };
        match self {
            Self::Status(status) => answered(status, "", path),
            Self::Code(status, code) => answered(status, code, path),
            Self::Reset => http(HttpErrorKind::Interrupted, io::ErrorKind::ConnectionReset),
            Self::Timeout => http(HttpErrorKind::Timeout, io::ErrorKind::TimedOut),
            Self::Connect => http(HttpErrorKind::Connect, io::ErrorKind::ConnectionRefused),
            Self::NoSpace => errno(28),
            Self::ReadOnly => errno(30),
            Self::Denied => errno(13),
            Self::Stopped => Error::Generic { store: STORE, source: "stopped for good".into() },
        }
    }
}

/// The text that `object_store` makes of an HTTP status; its own error type cannot be built from
/// outside.
fn answered(status: u16, code: &str, path: &str) -> Error {
    let body = if code.is_empty() { String::new() } else { format!("<Error><Code>{code}</Code></Error>") };
    let source = format!("Server returned non-2xx status code: {status} Made Up: {body}").into();
    let path = path.to_owned();
    match status {
        404 => Error::NotFound { path, source },
        409 => Error::AlreadyExists { path, source },
        412 => Error::Precondition { path, source },
        403 => Error::PermissionDenied { path, source },
        401 => Error::Unauthenticated { path, source },
        _ => Error::Generic { store: STORE, source },
    }
}

/// The fault of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It fails and has no effect.
    FailBefore(Failure),
    /// It takes effect and is reported as failed: the outcome is unknown to the caller.
    FailAfter(Failure),
    /// It takes this much longer, on tokio's clock.
    Delay(Duration),
    /// It waits until this many operations on paths with this part have arrived, itself included,
    /// on tokio's clock. If that takes very long, it fails like [`Failure::Stopped`].
    Until(&'static str, usize),
    /// It is never answered, and has no effect.
    Hang,
    /// It takes effect and is never answered.
    HangAfter,
    /// A body ends after this many bytes without an error; a listing breaks off with one after this
    /// many names.
    Short(usize),
    /// A body arrives with this bit flipped (modulo its length).
    FlipBit(u64),
    /// A listing lacks this many of the objects created last.
    Stale(usize),
}

/// Which operations a rule is for. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct When {
    kind: Option<OpKind>,
    path: Option<String>,
    from: u64,
    /// Of 1,000 operations, how many, and the seed that chooses them.
    chance: Option<(u64, u64)>,
}

impl When {
    /// Every operation.
    pub fn any() -> Self {
        Self::default()
    }

    /// Operations of one kind.
    pub fn kind(kind: OpKind) -> Self {
        Self { kind: Some(kind), ..Self::default() }
    }

    /// Only those whose path contains this.
    #[must_use]
    pub fn path(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    /// Only those numbered `index` or later.
    #[must_use]
    pub fn from(mut self, index: u64) -> Self {
        self.from = index;
        self
    }

    /// Only this number of 1,000, chosen by the seed.
    #[must_use]
    pub fn chance(mut self, per_mille: u64, seed: u64) -> Self {
        self.chance = Some((per_mille, seed));
        self
    }

    fn holds(&self, index: u64, kind: OpKind, path: &str) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
            && self.path.as_ref().is_none_or(|part| path.contains(part.as_str()))
            && index >= self.from
            && self
                .chance
                .is_none_or(|(per_mille, seed)| Rng::new(seed ^ index.rotate_left(32)).below(1000) < per_mille)
    }
}

/// How often a rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// To this number of its first operations.
    First(u32),
    /// To all of them.
    Always,
}

/// The outcome of the operation at which the store stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It has no effect: the process died before it sent it.
    Before,
    /// It takes effect: the process died before it heard so.
    After,
}

#[derive(Debug)]
struct Rule {
    when: When,
    fault: Fault,
    left: Option<u32>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    stop: Option<(u64, Stop)>,
    space: Option<u64>,
    read_only: bool,
    log: Vec<Op>,
    /// Paths in the order of their creation.
    created: Vec<String>,
}

/// The handle with which a test makes a [`crate::FaultStore`] fail, and sees its requests. Clones
/// share all of it.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<State>>);

impl Faults {
    /// Adds a rule. Of the rules that are for an operation, the first added one applies.
    pub fn add(&self, when: When, fault: Fault, times: Times) {
        let left = match times {
            Times::First(count) => Some(count),
            Times::Always => None,
        };
        self.0.lock().rules.push(Rule { when, fault, left });
    }

    /// Removes all rules and limits and lifts the stop; the log stays.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        let (log, created) = (std::mem::take(&mut state.log), std::mem::take(&mut state.created));
        *state = State { log, created, ..State::default() };
    }

    /// Fails every operation from the one numbered `index` on, for good. [`Stop`] says whether that
    /// one takes effect.
    pub fn stop_at(&self, index: u64, stop: Stop) {
        self.0.lock().stop = Some((index, stop));
    }

    /// Refuses puts with ENOSPC once this number of further bytes has been put.
    pub fn space(&self, bytes: u64) {
        self.0.lock().space = Some(bytes);
    }

    /// Refuses puts and deletions with EROFS, or no longer does.
    pub fn read_only(&self, read_only: bool) {
        self.0.lock().read_only = read_only;
    }

    /// How many operations there have been.
    pub fn count(&self) -> u64 {
        self.0.lock().log.len() as u64
    }

    /// All operations so far.
    pub fn log(&self) -> Vec<Op> {
        self.0.lock().log.clone()
    }

    /// Whether this many operations on paths with this part have arrived.
    pub(crate) fn have_arrived(&self, part: &str, count: usize) -> bool {
        self.0.lock().log.iter().filter(|op| op.path.contains(part)).count() >= count
    }

    /// How many operations of each kind there have been.
    pub fn counts(&self) -> HashMap<OpKind, u64> {
        let mut counts = HashMap::new();
        for op in &self.0.lock().log {
            *counts.entry(op.kind).or_default() += 1;
        }
        counts
    }

    /// Whether the store has stopped for good.
    pub fn stopped(&self) -> bool {
        let state = self.0.lock();
        state.stop.is_some_and(|(index, _)| state.log.len() as u64 > index)
    }

    /// Numbers an operation, records it and says which fault it meets.
    pub(crate) fn meet(&self, kind: OpKind, path: &str, bytes: u64) -> Option<Fault> {
        let mut state = self.0.lock();
        let index = state.log.len() as u64;
        let fault = state.decide(index, kind, path, bytes);
        state.log.push(Op { index, kind, path: path.to_owned(), bytes, fault: fault.clone() });
        fault
    }

    pub(crate) fn was_created(&self, path: &str) {
        self.0.lock().created.push(path.to_owned());
    }

    pub(crate) fn created_last(&self, count: usize) -> Vec<String> {
        self.0.lock().created.iter().rev().take(count).cloned().collect()
    }
}

impl State {
    fn decide(&mut self, index: u64, kind: OpKind, path: &str, bytes: u64) -> Option<Fault> {
        match self.stop {
            Some((at, Stop::After)) if index == at => return Some(Fault::FailAfter(Failure::Stopped)),
            Some((at, _)) if index >= at => return Some(Fault::FailBefore(Failure::Stopped)),
            _ => {}
        }
        if self.read_only && matches!(kind, OpKind::Put | OpKind::Overwrite | OpKind::Delete) {
            return Some(Fault::FailBefore(Failure::ReadOnly));
        }
        let rule = self.rules.iter_mut().find(|rule| rule.left != Some(0) && rule.when.holds(index, kind, path));
        if let Some(rule) = rule {
            rule.left = rule.left.map(|left| left - 1);
            return Some(rule.fault.clone());
        }
        match (&mut self.space, kind) {
            (Some(space), OpKind::Put | OpKind::Overwrite) if *space < bytes => {
                return Some(Fault::FailBefore(Failure::NoSpace));
            }
            (Some(space), OpKind::Put | OpKind::Overwrite) => *space -= bytes,
            _ => {}
        }
        None
    }
}
