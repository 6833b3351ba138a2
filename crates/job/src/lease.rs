//! A lease that is kept: opened, renewed while its job runs, and closed when it ends.

use std::sync::Arc;
use std::time::Duration;

use larder_format::ids::JobId;
use larder_format::lease::{Done, JobKind, Lease};
use larder_index::{Executor, Task};
use larder_store::jobs::{OpenLease, RENEW_EVERY};
use larder_store::{Repository, RepositoryError};
use tokio::sync::oneshot;

use crate::context::{Clock, JobContext};

impl JobContext {
    /// The lease of a task that begins now and counts when the index of this number is its own.
    pub fn lease_of_task(&self, index: u64) -> Lease {
        Lease { claims: Some(index), ..self.lease(JobKind::Task, "") }
    }

    /// The lease of a job that begins now. It names nothing yet.
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
        }
    }
}

/// How long a process that ends waits for the store to take the word of it.
const SAY_ENDED: Duration = Duration::from_secs(3);

/// How a job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It creates nothing any more, and every attempt to create was answered.
    Closed(Done),
    /// Its process ends without a commit: nothing is created any more but what is under way. Its uploads may be adopted.
    Ended,
    /// An attempt to create may still be under way, or its uploads wait for the next job: the lease is left to expire.
    Open,
}

impl Ending {
    /// Closed if every attempt was answered.
    pub fn closed_if(is_answered: bool, done: Done) -> Self {
        if is_answered { Self::Closed(done) } else { Self::Open }
    }
}

/// Renews a lease in the background. Dropped without [`LeaseKeeper::end`] it is renewed no more, and expires.
pub struct LeaseKeeper {
    runtime: Executor,
    repository: Repository,
    clock: Arc<dyn Clock>,
    /// Tells the keeper to stop.
    stop: oneshot::Sender<()>,
    /// Gives the lease back.
    kept: Task<OpenLease>,
}

impl std::fmt::Debug for LeaseKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseKeeper").field("repository", &self.repository).finish_non_exhaustive()
    }
}

impl LeaseKeeper {
    /// Writes the lease of a job that starts now, and renews it as often as it says.
    pub fn open(context: &JobContext, job: JobId, lease: Lease) -> Result<Self, RepositoryError> {
        let (repository, runtime) = (context.repository.clone(), context.executor.clone());
        let every = Duration::from_secs(u64::from(lease.renew_seconds).max(1));
        let open = runtime.block_on(repository.open_lease(job, lease))?;
        let (stop, stopped) = oneshot::channel();
        let kept = runtime.spawn(renew(repository.clone(), context.clock.clone(), every, open, stopped));
        Ok(Self { runtime, repository, clock: context.clock.clone(), stop, kept })
    }

    /// The job is over.
    pub fn end(mut self, ending: Ending) {
        let _ = self.stop.send(());
        let closed = self.runtime.block_on(async {
            match self.kept.finished().await {
                Some(mut lease) => match ending {
                    Ending::Closed(done) => self.repository.close_lease(&lease, done).await,
                    Ending::Ended => {
                        // Somebody waits for the end, and the store may be what failed.
                        let ended = self.repository.end_lease(&mut lease, self.clock.now_ms());
                        tokio::time::timeout(SAY_ENDED, ended).await.unwrap_or(Ok(()))
                    }
                    Ending::Open => Ok(()),
                },
                // Cancelled together with its runtime.
                None => Ok(()),
            }
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "the lease could not be closed; it will expire");
        }
    }
}

async fn renew(
    repository: Repository,
    clock: std::sync::Arc<dyn Clock>,
    every: Duration,
    mut lease: OpenLease,
    mut stopped: oneshot::Receiver<()>,
) -> OpenLease {
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => return lease,
            () = tokio::time::sleep(every) => {}
        }
        // Waiting for the store must not keep the end of the job waiting. A renewal that fails or is abandoned is nobody's
        // concern: the next is soon, and expiry takes several of them.
        tokio::select! {
            biased;
            _ = &mut stopped => return lease,
            renewed = repository.renew_lease(&mut lease, clock.now_ms()) => if let Err(error) = renewed {
                tracing::warn!(%error, "the lease could not be renewed");
            }
        }
    }
}

/// Renews a lease every [`RENEW_EVERY`] while `work` is done. `work` does not proceed during a renewal. A renewal that fails is logged;
/// the next one tries again.
pub async fn renewing<T>(
    repository: &Repository,
    open: &mut OpenLease,
    clock: &dyn Clock,
    work: impl Future<Output = T>,
) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            result = &mut work => return result,
            () = tokio::time::sleep(RENEW_EVERY) => {
                if let Err(error) = repository.renew_lease(open, clock.now_ms()).await {
                    tracing::warn!(%error, "the lease could not be renewed");
                }
            }
        }
    }
}
