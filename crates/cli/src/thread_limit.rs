//! Checks at the start whether the system allows the threads that a command needs.
//!
//! Libraries panic or wait for ever when a thread cannot be started (`ulimit -u`, the limit of a
//! container). Asking first makes that an error with a reason. The threads of the probe exist at
//! the same time and end at once; starting them takes less than a millisecond.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use larder_format::ErrorKind;

use crate::failure::Failure;

/// Threads beside those that compute: two for requests and two for files of a local repository. The
/// others are those for signals, progress, the count of files, the source, the lease and the log.
const OTHERS: usize = 10;

/// A larger number is a mistake.
const THREADS_MAX: usize = 1024;

/// An error when a command that computes with `threads` threads cannot have them.
pub(crate) fn check(threads: NonZeroUsize) -> Result<(), Failure> {
    if threads.get() > THREADS_MAX {
        return Err(Failure::usage(format!("--threads is at most {THREADS_MAX}")));
    }
    // Key derivation has a pool of its own, with a thread for each processor.
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let count = OTHERS.saturating_add(processors).saturating_add(threads.get().saturating_mul(2));
    start_at_once(count).map_err(|error| {
        Failure::of(ErrorKind::Resource, &error)
            .while_doing(&format!("cannot start {count} threads"))
            .advise("raise the limit on processes (`ulimit -u`, or pids of the container), or use fewer with --threads")
    })
}

/// Starts `count` threads that exist at the same time, and ends them.
fn start_at_once(count: usize) -> io::Result<()> {
    let (end, ended) = channel::<()>();
    let ended = Mutex::new(ended);
    // Until the other end is dropped. The first waits for that, and the others for the first.
    let wait = || drop(ended.lock().map(|ended| ended.recv()));
    thread::scope(|scope| {
        let started = (0..count).try_for_each(|_| thread::Builder::new().spawn_scoped(scope, wait).map(drop));
        drop(end);
        started
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_can_be_started_are_no_error() {
        assert!(start_at_once(20).is_ok());
        assert!(check(NonZeroUsize::MIN).is_ok());
    }
}
