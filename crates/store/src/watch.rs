//! [`Watch`]: whether an attempt makes progress.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Fewer bytes of a body than these within the time for an attempt are no progress.
pub(crate) const PROGRESS: usize = 1 << 10;

/// When an attempt last got on.
#[derive(Debug)]
pub(crate) struct Watch(Mutex<State>);

#[derive(Debug)]
struct State {
    last: Instant,
    /// Bytes that came since, too few to count as progress.
    bytes: usize,
    paused: bool,
}

impl Watch {
    pub(crate) fn start() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { last: Instant::now(), bytes: 0, paused: false })))
    }

    /// Bytes have come.
    pub(crate) fn tick(&self, bytes: usize) {
        let mut state = self.0.lock();
        state.bytes = state.bytes.saturating_add(bytes);
        if state.bytes >= PROGRESS || state.paused {
            *state = State { last: Instant::now(), bytes: 0, paused: false };
        }
    }

    /// We are the ones who wait, until the next tick.
    pub(crate) fn pause(&self) {
        self.0.lock().paused = true;
    }

    pub(crate) fn quiet_since(&self) -> Instant {
        let state = self.0.lock();
        if state.paused { Instant::now() } else { state.last }
    }
}
