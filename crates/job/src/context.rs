//! What every job of an L-node needs: the repository, a runtime for requests, a clock, a way to stop, a way to be watched.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_index::IndexRuntime;
use larder_store::Repository;

/// Reads the time. A parameter, so that tests can set it.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> u64;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}

/// Asks a running job to stop at the next good place. Clones share the wish.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Something that one path suffered while the job went on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path in the version, or an object's name; empty when it is about neither.
    pub path: Vec<u8>,
    /// What was being done: "walk", "read", "restore", "check", ...
    pub during: &'static str,
    /// One line: what happened.
    pub message: String,
}

/// Watches a job. Called from several threads, often: implementations only count.
pub trait Progress: Send + Sync {
    /// So many more files and bytes are known to have to be done.
    fn expect(&self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// All there is to do has been announced: from now on the time left can be told.
    fn expectation_is_complete(&self) {}

    /// So many more files and bytes are done.
    fn done(&self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// This path is being worked on.
    fn current(&self, path: &[u8]) {
        let _ = path;
    }

    /// An entry was finished, for `-v`: what became of it ("new", "changed", "unmodified", "restored", ...).
    fn item(&self, path: &[u8], fate: &'static str, bytes: u64) {
        let _ = (path, fate, bytes);
    }

    /// Something about the whole job that a person should know and that is no error.
    fn note(&self, text: &str) {
        let _ = text;
    }

    /// Something went wrong with one path.
    fn problem(&self, problem: &Problem) {
        let _ = problem;
    }
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}

/// Everything a job needs beside its own options.
#[derive(Clone)]
pub struct JobContext {
    /// The opened repository.
    pub repository: Repository,
    /// Runs requests to the store. Jobs must not be run where it polls. What uses threads of its own (backups, restores, reading ahead)
    /// takes the handle of a multi-thread runtime; laying out again and walking recipes can also be done in turns.
    pub runtime: IndexRuntime,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Threads for CPU work.
    pub threads: NonZeroUsize,
    /// Bytes of memory for what a job that reads keeps at hand: caches, containers read ahead, the plan of a restore. With
    /// the buffers of its threads it takes somewhat more. A backup is told by its options.
    pub memory: usize,
    /// How often a job renews its lease.
    pub renew_every: Duration,
    /// Stops the job.
    pub cancel: Cancel,
    /// Watches the job.
    pub progress: Arc<dyn Progress>,
    /// Name of this host, for leases.
    pub host: String,
}

impl JobContext {
    /// The same, waiting with this.
    pub fn on(&self, runtime: &IndexRuntime) -> Self {
        Self { runtime: runtime.clone(), ..self.clone() }
    }
}

impl std::fmt::Debug for JobContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobContext").field("repository", &self.repository).field("threads", &self.threads).finish()
    }
}
