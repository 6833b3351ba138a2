//! What all connections of a server share.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::budget::Budget;
use super::limits::Limits;
use super::spares::Spares;
use crate::export::{Export, Exports};
use crate::wire::Wire;

/// State of a server.
pub(super) struct Shared {
    pub(super) exports: Arc<dyn Exports>,
    pub(super) limits: Limits,
    pub(super) budget: Arc<Budget>,
    pub(super) spares: Arc<Spares>,
    /// Threads that serve requests, of all connections.
    pub(super) workers: AtomicUsize,
    stopping: AtomicBool,
    live: Mutex<Live>,
    ended: Condvar,
}

#[derive(Default)]
struct Live {
    next: u64,
    wires: HashMap<u64, Arc<Wire>>,
    /// Exports that were ever served, each once.
    served: Vec<Weak<dyn Export>>,
}

impl Shared {
    pub(super) fn new(exports: Arc<dyn Exports>, limits: Limits) -> Arc<Self> {
        let limits = limits.sane();
        Arc::new(Self {
            exports,
            budget: Budget::new(limits.memory),
            spares: Arc::new(Spares::new(limits.memory / 8)),
            limits,
            workers: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            live: Mutex::default(),
            ended: Condvar::new(),
        })
    }

    /// Time after which a read or write without progress asks whether to go on.
    pub(super) fn tick(&self) -> Duration {
        let shortest = self.limits.stalled.min(self.limits.stalled_under_pressure);
        (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Whether the server is shutting down.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// An error if a client that makes no progress is to be dropped.
    pub(super) fn stalled(&self, since: Duration) -> io::Result<()> {
        let pressure = self.is_stopping() || self.budget.is_wanted();
        let limit = if pressure { self.limits.stalled_under_pressure } else { self.limits.stalled };
        if since >= limit {
            return Err(io::Error::new(ErrorKind::TimedOut, "the client makes no progress"));
        }
        Ok(())
    }

    /// Registers a connection. `None` if there are too many, or the server is shutting down.
    pub(super) fn enter(self: &Arc<Self>, wire: &Arc<Wire>) -> Option<Entered> {
        let mut live = self.live.lock();
        if self.is_stopping() || live.wires.len() >= self.limits.connections {
            return None;
        }
        let number = live.next;
        live.next += 1;
        live.wires.insert(number, wire.clone());
        Some(Entered { shared: self.clone(), number })
    }

    /// Connections at the moment.
    pub(super) fn connections(&self) -> usize {
        self.live.lock().wires.len()
    }

    /// Remembers an export that a client uses.
    pub(super) fn serves(&self, export: &Arc<dyn Export>) {
        let mut live = self.live.lock();
        live.served.retain(|known| known.strong_count() > 0);
        if !live.served.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(export))) {
            live.served.push(Arc::downgrade(export));
        }
    }

    /// Lets no new connection in, ends reading on all, and waits until they have ended.
    pub(super) fn stop(&self) {
        let mut live = self.live.lock();
        self.stopping.store(true, Ordering::SeqCst);
        for wire in live.wires.values() {
            wire.stop_reading();
        }
        while !live.wires.is_empty() {
            self.ended.wait(&mut live);
        }
    }

    /// Exports that were served since the last call and still exist.
    pub(super) fn take_served(&self) -> Vec<Arc<dyn Export>> {
        self.live.lock().served.drain(..).filter_map(|export| export.upgrade()).collect()
    }
}

/// A registered connection.
pub(super) struct Entered {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shared.live.lock().wires.remove(&self.number);
        self.shared.ended.notify_all();
    }
}
