//! What a pass is given: a repository, a clock, whether to stop, where to read tables.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use larder_format::lease::{JobKind, Lease};
use larder_index::Executor;
use larder_job::{Cancel, Clock, JobContext, NoProgress};
use larder_store::Repository;
use larder_store::jobs::RENEW_EVERY;

/// Bytes of memory for checking and copying chunks, beside the buffers of the threads.
const COPY_MEMORY: usize = 64 << 20;

/// What a pass needs of the world.
#[derive(Clone)]
pub struct Surroundings {
    /// The opened repository.
    pub repository: Repository,
    /// Milliseconds since the epoch. For people; nothing safe depends on it.
    pub now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Whether it should come to an end. Asked often.
    pub stop: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Name of this host.
    pub host: String,
    /// Name and version of the program.
    pub program: String,
    /// Number of this process.
    pub process: u32,
    /// Where tables are read and written.
    pub executor: Executor,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("repository", &self.repository).finish_non_exhaustive()
    }
}

impl Surroundings {
    /// The lease of a task that begins now and counts when the index of this number is its own.
    pub(crate) fn lease(&self, number: u64) -> Lease {
        Lease {
            kind: JobKind::Task,
            series: String::new(),
            pins: Vec::new(),
            adopts: Vec::new(),
            host: self.host.clone(),
            process: self.process,
            written_ms: (self.now_ms)(),
            renew_seconds: u32::try_from(RENEW_EVERY.as_secs()).unwrap_or(u32::MAX),
            claims: Some(number),
            generation: None,
            layout: None,
            ended: None,
        }
    }

    /// What reading and writing contents takes. It waits with threads; whoever works in turns gives it something else to wait with
    /// ([`JobContext::on`]).
    pub(crate) fn context(&self, repository: &Repository, threads: NonZeroUsize) -> JobContext {
        JobContext {
            repository: repository.clone(),
            runtime: tokio::runtime::Handle::current().into(),
            clock: Arc::new(NowMs(self.now_ms.clone())),
            threads,
            memory: COPY_MEMORY,
            renew_every: RENEW_EVERY,
            cancel: Cancel::default(),
            progress: Arc::new(NoProgress),
            host: self.host.clone(),
        }
    }
}

/// Whether a pass that began then has to come to an end.
pub(crate) fn stop(
    surroundings: &Surroundings,
    most: Option<Duration>,
    started_ms: u64,
) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let (now_ms, asked) = (surroundings.now_ms.clone(), surroundings.stop.clone());
    Arc::new(move || asked() || is_late(now_ms(), started_ms, most))
}

/// Whether so much time has passed.
pub(crate) fn is_late(now_ms: u64, started_ms: u64, most: Option<Duration>) -> bool {
    most.is_some_and(|most| Duration::from_millis(now_ms.saturating_sub(started_ms)) >= most)
}

/// The clock of the surroundings.
struct NowMs(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock for NowMs {
    fn now_ms(&self) -> u64 {
        (self.0)()
    }
}
