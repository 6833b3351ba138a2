//! The memory of all requests and replies that are in flight.
//!
//! Grants are in order of asking, so a large request is not passed for ever by small ones. One
//! connection alone gets at most a quarter, or one request. So a few clients that take no replies
//! leave memory to the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// Number of the next one who asks.
    next: u64,
    /// Number of the one who is served next.
    serving: u64,
    /// Those who wait for any reason.
    waiting: usize,
}

/// The bytes that a server may have in flight.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    state: Mutex<State>,
    freed: Condvar,
    /// Those who wait because of other connections.
    wanted: AtomicUsize,
}

/// The part of one connection.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<Budget>,
    held: AtomicUsize,
}

/// Bytes that are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Grant {
    account: Arc<Account>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { total, state: Mutex::default(), freed: Condvar::new(), wanted: AtomicUsize::new(0) })
    }

    /// Whether somebody waits for memory that others have.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn account(self: &Arc<Self>) -> Arc<Account> {
        Arc::new(Account { budget: self.clone(), held: AtomicUsize::new(0) })
    }
}

impl Account {
    fn may_hold(&self, bytes: usize) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        held == 0 || held + bytes <= self.budget.total / 4
    }

    fn granted(self: &Arc<Self>, state: &mut State, bytes: usize) -> Grant {
        state.used += bytes;
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Grant { account: self.clone(), bytes }
    }

    /// The bytes, if nobody has to wait for them.
    pub(crate) fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Grant> {
        let mut state = self.budget.state.lock();
        let free = state.next == state.serving && state.used + bytes <= self.budget.total;
        (free && self.may_hold(bytes)).then(|| self.granted(&mut state, bytes))
    }

    /// The bytes, as soon as they are there. `bytes` is at most half of the budget.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Grant {
        let budget = &self.budget;
        let mut state = budget.state.lock();
        state.waiting += 1;
        // The own part first: who waits for its own replies must not stop others.
        while !self.may_hold(bytes) {
            budget.freed.wait(&mut state);
        }
        let number = state.next;
        state.next += 1;
        if number != state.serving || state.used + bytes > budget.total {
            budget.wanted.fetch_add(1, Ordering::Relaxed);
            while number != state.serving || state.used + bytes > budget.total {
                budget.freed.wait(&mut state);
            }
            budget.wanted.fetch_sub(1, Ordering::Relaxed);
        }
        state.serving += 1;
        state.waiting -= 1;
        if state.waiting > 0 {
            budget.freed.notify_all();
        }
        self.granted(&mut state, bytes)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let budget = &self.account.budget;
        let mut state = budget.state.lock();
        state.used -= self.bytes;
        self.account.held.fetch_sub(self.bytes, Ordering::Relaxed);
        if state.waiting > 0 {
            budget.freed.notify_all();
        }
    }
}
