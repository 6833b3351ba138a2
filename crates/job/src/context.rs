//! The needs of every job and every pass: a repository, an executor, a clock, cancellation,
//! progress, an identity.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_index::Executor;
use larder_state::Machine;
use larder_store::Repository;

use crate::activity::{Activity, ItemFate};

/// Reads the time. A parameter, so that tests can set it.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> u64;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the system for the time")]
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}

/// Asks a running job to stop at the next good place. Clones share the request.
#[derive(Clone, Default)]
pub struct Cancel(Arc<CancelState>);

#[derive(Default)]
struct CancelState {
    is_cancelled: AtomicBool,
    deadline: Option<Deadline>,
}

/// The latest time at which a job stops.
struct Deadline {
    /// Stops the job as well, and is asked first.
    outer: Cancel,
    clock: Arc<dyn Clock>,
    /// Milliseconds since the epoch.
    at_ms: u64,
}

impl Cancel {
    /// A new request that also holds when this one does, and from `at_ms` on (milliseconds since
    /// the epoch by `clock`).
    pub fn with_deadline(&self, clock: Arc<dyn Clock>, at_ms: u64) -> Self {
        let deadline = Some(Deadline { outer: self.clone(), clock, at_ms });
        Self(Arc::new(CancelState { is_cancelled: AtomicBool::new(false), deadline }))
    }

    /// Asks the job to stop, and all jobs whose request was derived from this one.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the job shall stop: by a request, or because its time is over.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Relaxed)
            || self
                .0
                .deadline
                .as_ref()
                .is_some_and(|Deadline { outer, clock, at_ms }| outer.is_cancelled() || clock.now_ms() >= *at_ms)
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cancel").field(&self.0.is_cancelled).finish()
    }
}

/// A problem with one path that does not end the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path in the version, or an object's name; empty when it is about neither.
    pub path: Vec<u8>,
    /// The activity that met the problem.
    pub during: Activity,
    /// One line that describes the problem.
    pub message: String,
}

/// Watches a job. Called from several threads, often: implementations only count.
pub trait Progress: Send + Sync {
    /// More files and bytes are to be done.
    fn expect(&self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// All work has been announced: from now on the remaining time can be estimated.
    fn expectation_is_complete(&self) {}

    /// More files and bytes are done.
    fn done(&self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// All work is done but for uploads that the store has not acknowledged.
    fn only_uploads_are_left(&self) {}

    /// The job works on this path.
    fn current(&self, path: &[u8]) {
        let _ = path;
    }

    /// An entry was finished, for `-v`.
    fn item(&self, path: &[u8], fate: ItemFate, bytes: u64) {
        let _ = (path, fate, bytes);
    }

    /// Something about the whole job that a person should know and that is no error.
    fn note(&self, text: &str) {
        let _ = text;
    }

    /// The same, and programs should know it as well.
    fn aside(&self, text: &str) {
        self.note(text);
    }

    /// Something went wrong with one path.
    fn problem(&self, problem: &Problem) {
        let _ = problem;
    }
}

/// Ignores all reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}

/// The process that does a job. Leases and indexes tell it to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the host.
    pub host: String,
    /// Name and version of the program.
    pub program: String,
    /// Number of the process.
    pub process: u32,
}

/// The needs of a job or a pass beside its own options.
#[derive(Clone)]
pub struct JobContext {
    /// The opened repository.
    pub repository: Repository,
    /// Runs and awaits work. Jobs of L-nodes block on it, so they must not run where it polls.
    /// Passes are async and spawn their work on tables there.
    pub executor: Executor,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Threads for CPU work.
    pub threads: NonZeroUsize,
    /// Bytes of memory for the caches of a job that reads, for containers read ahead, and for the
    /// plan of a restore. The buffers of its threads come on top. A backup has its own option.
    pub memory: usize,
    /// How often a job renews its lease.
    pub renew_every: Duration,
    /// Stops the job.
    pub cancel: Cancel,
    /// Watches the job.
    pub progress: Arc<dyn Progress>,
    /// The process that does it.
    pub identity: Identity,
    /// What this machine knows by itself.
    pub machine: Machine,
}

impl JobContext {
    /// The same job, on another executor.
    pub fn on(&self, executor: &Executor) -> Self {
        Self { executor: executor.clone(), ..self.clone() }
    }

    /// The same job, over another view of its repository.
    pub fn through(&self, repository: &Repository) -> Self {
        Self { repository: repository.clone(), ..self.clone() }
    }

    /// The same job without cancellation, for a part of it that must complete.
    pub fn uninterrupted(&self) -> Self {
        Self { cancel: Cancel::default(), ..self.clone() }
    }

    /// The same job, which stops when `max_duration` has passed since it began.
    pub fn limited_to(&self, max_duration: Option<Duration>, started_ms: u64) -> Self {
        let Some(most) = max_duration else { return self.clone() };
        // A part of a millisecond counts as a whole one.
        let most_ms = u64::try_from(most.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let cancel = self.cancel.with_deadline(self.clock.clone(), started_ms.saturating_add(most_ms));
        Self { cancel, ..self.clone() }
    }
}

impl std::fmt::Debug for JobContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobContext").field("repository", &self.repository).field("threads", &self.threads).finish()
    }
}
