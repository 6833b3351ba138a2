//! A lease that is opened, renewed while its job runs, and closed when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_format::ids::JobId;
use larder_format::lease::{Done, JobKind, Lease};
use larder_index::{Executor, Task};
use larder_store::jobs::OpenLease;
use larder_store::{Repository, RepositoryError};
use tokio::sync::oneshot;

use crate::context::{Clock, JobContext};

impl JobContext {
    /// The lease of a task that begins now and that counts when this index is its own.
    pub fn lease_of_task(&self, index: u64) -> Lease {
        Lease { claims: Some(index), ..self.lease(JobKind::Task, "") }
    }

    /// The lease of a job that begins now. It names no objects yet.
    pub fn lease(&self, kind: JobKind, series: &str) -> Lease {
        Lease {
            kind,
            series: series.to_owned(),
            pins: Vec::new(),
            adopts: Vec::new(),
            host: self.identity.host.clone(),
            process: self.identity.process,
            written_ms: self.clock.now_ms(),
            renew_seconds: u32::try_from(self.renew_every.as_secs()).unwrap_or(u32::MAX).max(1),
            claims: None,
            generation: None,
            layout: None,
            ended: None,
            domain: self.repository.keys().domain(),
            is_signed: self.repository.keys().can_sign(),
        }
    }
}

/// The longest wait of an ending process for its last write of the lease.
const SAY_ENDED: Duration = Duration::from_secs(3);

/// Renewals that fail in a row before a job that reads stops to rely on its lease. With the usual
/// interval that is an hour, and passes wait much longer.
const FAILURES_MAX: u32 = 12;

/// How a job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It creates nothing any more, and every attempt to create was answered.
    Closed(Done),
    /// The same for a task that left nothing to adopt or to find: its lease is removed.
    Removed,
    /// The process ends without a commit: only creates under way may still land. Its uploads may be
    /// adopted.
    Ended,
    /// An attempt to create may still be under way, or the uploads wait for the next job: the lease
    /// is left to expire.
    Open,
}

impl Ending {
    /// Closed if every attempt was answered.
    pub fn closed_if(is_answered: bool, done: Done) -> Self {
        if is_answered { Self::Closed(done) } else { Self::Open }
    }
}

/// Keeps the lease of a job: in the background of a job with threads ([`Self::open`]), or around a
/// future ([`Self::hold`]). Without [`Self::end`], a drop ends the renewals, and the lease expires.
pub struct LeaseKeeper {
    executor: Executor,
    repository: Repository,
    /// Tells the background to stop.
    stop: oneshot::Sender<()>,
    /// Returns the lease.
    kept: Task<KeptLease>,
    is_lost: Arc<AtomicBool>,
}

impl std::fmt::Debug for LeaseKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseKeeper").field("repository", &self.repository).finish_non_exhaustive()
    }
}

impl LeaseKeeper {
    /// Writes the lease of a job that starts now, and renews it in the background at its own
    /// interval.
    ///
    /// # Errors
    /// The lease cannot be written.
    pub fn open(context: &JobContext, job: JobId, lease: Lease) -> Result<Self, RepositoryError> {
        let (repository, executor) = (context.repository.clone(), context.executor.clone());
        let mut kept = executor.block_on(KeptLease::open(context, job, lease))?;
        let is_lost = kept.is_lost.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let kept = executor.spawn(async move {
            // A renewal under way must not delay the end of the job. Abandoning it does no harm.
            tokio::select! {
                biased;
                _ = stopped => {}
                () = kept.renew_during(std::future::pending()) => {}
            }
            kept
        });
        Ok(Self { executor, repository, stop, kept, is_lost })
    }

    /// Whether the lease of a job that reads does not count any more: many renewals failed, or a
    /// pass took the job for dead and removed it. Other jobs learn this when they commit.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// The job is over.
    pub fn end(mut self, ending: Ending) {
        let _ = self.stop.send(());
        let closed = self.executor.block_on(async {
            match self.kept.finished().await {
                Some(kept) => kept.end(ending).await,
                // Cancelled together with its runtime.
                None => Ok(()),
            }
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "the lease could not be closed; it will expire");
        }
    }

    /// Holds a lease while `work` is done, in the task that polls it. `work` does not proceed
    /// during a renewal, so that all of it happens in one order. `work` also says how the lease
    /// ends.
    ///
    /// # Errors
    /// Those of `work`; else the lease cannot be written or closed.
    pub async fn hold<T, E: From<RepositoryError>>(
        context: &JobContext,
        job: JobId,
        lease: Lease,
        work: impl Future<Output = (Result<T, E>, Ending)>,
    ) -> Result<T, E> {
        let mut kept = KeptLease::open(context, job, lease).await?;
        let (result, ending) = kept.renew_during(work).await;
        match kept.end(ending).await {
            Err(error) if result.is_ok() => return Err(error.into()),
            Err(error) => {
                tracing::debug!(%error, "the lease of a task that failed could not be closed; it will expire")
            }
            Ok(()) => {}
        }
        result
    }
}

/// An open lease, and the means to renew and close it.
struct KeptLease {
    repository: Repository,
    clock: Arc<dyn Clock>,
    every: Duration,
    open: OpenLease,
    /// Renewals that failed in a row.
    failures: u32,
    is_lost: Arc<AtomicBool>,
}

impl KeptLease {
    async fn open(context: &JobContext, job: JobId, lease: Lease) -> Result<Self, RepositoryError> {
        let every = Duration::from_secs(u64::from(lease.renew_seconds).max(1));
        let open = context.repository.open_lease(job, lease).await?;
        let (repository, clock) = (context.repository.clone(), context.clock.clone());
        Ok(Self { repository, clock, every, open, failures: 0, is_lost: Arc::default() })
    }

    /// Renews the lease until `work` is done. A failed renewal does no harm: the next is soon, and
    /// expiry takes several failures.
    async fn renew_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = tokio::time::sleep(self.every) => {
                    let renewed = self.repository.renew_lease(&mut self.open, self.clock.now_ms()).await;
                    self.note(renewed).await;
                }
            }
        }
    }

    async fn note(&mut self, renewed: Result<(), RepositoryError>) {
        let is_reader = self.open.lease.kind == JobKind::Read;
        let is_lost = match renewed {
            // A pass that took the job for dead has removed the first object too.
            Ok(()) => {
                self.failures = 0;
                is_reader && self.is_removed().await
            }
            Err(error) => {
                tracing::warn!(%error, "the lease could not be renewed");
                self.failures = self.failures.saturating_add(1);
                is_reader && self.failures >= FAILURES_MAX
            }
        };
        if is_lost {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the first object of the lease is gone, asked twice.
    async fn is_removed(&self) -> bool {
        let is_gone = async || matches!(self.repository.has_lease(self.open.job).await, Ok(false));
        is_gone().await && is_gone().await
    }

    async fn end(mut self, ending: Ending) -> Result<(), RepositoryError> {
        match ending {
            Ending::Closed(done) => self.repository.close_lease(&self.open, done).await,
            Ending::Removed => self.repository.end_task(&self.open).await,
            Ending::Ended => {
                // The process is about to end, and the store may be the cause.
                let ended = self.repository.end_lease(&mut self.open, self.clock.now_ms());
                tokio::time::timeout(SAY_ENDED, ended).await.unwrap_or(Ok(()))
            }
            Ending::Open => Ok(()),
        }
    }
}
