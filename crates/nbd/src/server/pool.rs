//! Requests of one connection that wait for a thread, and the threads.
//!
//! Threads are started on demand and end when they were idle for some time. One thread at a time
//! is woken or started: it does the same for the next one if requests are left. So a burst of
//! requests that are served in microseconds needs few threads.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A thread that was idle for so long ends.
const IDLE: Duration = Duration::from_secs(5);

struct State<J> {
    jobs: VecDeque<J>,
    idle: usize,
    threads: usize,
    /// A thread is about to take a job: it was woken or started.
    rousing: bool,
    closed: bool,
}

/// A queue of jobs, and the number of threads that serve it.
pub(super) struct Pool<J> {
    state: Mutex<State<J>>,
    wake: Condvar,
    ended: Condvar,
    most: usize,
}

impl<J> Pool<J> {
    /// At most `most` threads.
    pub(super) fn new(most: usize) -> Self {
        let state = State { jobs: VecDeque::new(), idle: 0, threads: 0, rousing: false, closed: false };
        Self { state: Mutex::new(state), wake: Condvar::new(), ended: Condvar::new(), most }
    }

    /// Adds a job. True: the caller must start a thread, or call [`Pool::not_started`].
    pub(super) fn push(&self, job: J) -> bool {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        self.rouse(&mut state)
    }

    fn rouse(&self, state: &mut State<J>) -> bool {
        if state.rousing || state.jobs.is_empty() {
            return false;
        }
        if state.idle > 0 {
            state.rousing = true;
            self.wake.notify_one();
            return false;
        }
        if state.threads < self.most && !state.closed {
            (state.rousing, state.threads) = (true, state.threads + 1);
            return true;
        }
        false
    }

    /// The thread that [`Pool::push`] or [`Pool::next`] asked for was not started. True: no
    /// thread is left, so the caller must serve the queue itself, by [`Pool::take`].
    pub(super) fn not_started(&self) -> bool {
        let mut state = self.state.lock();
        (state.rousing, state.threads) = (false, state.threads - 1);
        state.threads == 0
    }

    /// A job, if there is one.
    pub(super) fn take(&self) -> Option<J> {
        self.state.lock().jobs.pop_front()
    }

    /// For a thread of the pool: the next job, and whether to start one more thread first. `None`:
    /// the thread must end.
    pub(super) fn next(&self, fresh: bool) -> Option<(J, bool)> {
        let mut state = self.state.lock();
        if fresh {
            state.rousing = false;
        }
        loop {
            if let Some(job) = state.jobs.pop_front() {
                let more = self.rouse(&mut state);
                return Some((job, more));
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let late = self.wake.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            state.rousing = false;
            if late && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        self.ended.notify_all();
        None
    }

    /// Ends all threads once the queue is empty, and waits for them.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.wake.notify_all();
        while state.threads > 0 {
            self.ended.wait(&mut state);
        }
    }
}
