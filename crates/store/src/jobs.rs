//! Leases and the commit register: how a job announces itself, builds only on what stays, and commits.
//!
//! The order of steps is the protocol of `docs/concurrency.md`, checked by a model in `crates/lnode/tests`:
//! 1. the lease is written, naming what the job builds on;
//! 2. *then* each of these is checked to be still there;
//! 3. containers are uploaded, the lease is renewed meanwhile;
//! 4. the manifest is created in the job's commit register, where an abort mark may have been first;
//! 5. the lease is closed.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use larder_format::ids::{JobId, SeriesKey};
use larder_format::lease::{Lease, Pin, encode_done};
use larder_format::manifest::{Manifest, Register};
use larder_format::names::{self, LeaseObject};

use crate::StoreErrorKind;
use crate::repository::{Repository, RepositoryError, exists, random};

/// How often a running job renews its lease. A lease that is several times older is taken for dead.
pub const RENEW_EVERY: Duration = Duration::from_secs(300);

/// A version could not be committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The job was taken for dead and fenced off while it ran; nothing it wrote counts.
    #[error("this job was declared dead while it ran (was it suspended?); run the backup again")]
    Fenced,
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

/// An open lease. Renewing and closing are the owner's business; dropping it leaves it to expire.
#[derive(Debug)]
pub struct OpenLease {
    /// The job that holds it.
    pub job: JobId,
    /// What it says; `written_ms` is set anew by each renewal.
    pub lease: Lease,
    renewal: u32,
}

/// An unfinished job of the past, or a running one of somebody else.
#[derive(Debug, Clone)]
pub struct OtherJob {
    /// Its id.
    pub job: JobId,
    /// Its newest readable renewal.
    pub lease: Lease,
}

impl Repository {
    /// Writes the lease of a job that starts now.
    pub async fn open_lease(&self, job: JobId, lease: Lease) -> Result<OpenLease, RepositoryError> {
        let mut open = OpenLease { job, lease, renewal: 0 };
        self.write_renewal(&mut open).await?;
        Ok(open)
    }

    /// Renews a lease; `now_ms` is the writer's clock, for people.
    pub async fn renew_lease(&self, open: &mut OpenLease, now_ms: u64) -> Result<(), RepositoryError> {
        open.lease.written_ms = now_ms;
        self.write_renewal(open).await
    }

    async fn write_renewal(&self, open: &mut OpenLease) -> Result<(), RepositoryError> {
        let bytes = open.lease.encode(&self.keys, open.job, open.renewal, random(self.entropy())?);
        self.store.create(&names::lease(open.job, open.renewal), bytes.into()).await?;
        open.renewal += 1;
        Ok(())
    }

    /// Closes a lease: the job is over, whether it committed or not, and no create of it is under way.
    pub async fn close_lease(&self, open: &OpenLease) -> Result<(), RepositoryError> {
        let bytes = encode_done(&self.keys, open.job, random(self.entropy())?);
        self.store.create(&names::lease_done(open.job), bytes.into()).await?;
        Ok(())
    }

    /// Whether a version is still there to be built on or read: committed, readable and not forgotten. Never answered from a
    /// cache, which may remember what was deleted.
    pub async fn is_retained(&self, pin: Pin) -> Result<bool, RepositoryError> {
        if exists(&self.store.without_cache(), &names::forgotten(pin.series, pin.job)).await? {
            return Ok(false);
        }
        match self.register(pin).await {
            Ok(register) => Ok(matches!(register, Some(Register::Committed(())))),
            // Nothing can be built on what cannot be read; `check` reports it.
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a dead job's containers may still be taken over: it has neither committed nor been fenced off, has not closed
    /// its lease, and, asked last because a clean-up removes it first, its lease is still there (`docs/concurrency.md`).
    pub async fn is_adoptable(&self, pin: Pin) -> Result<bool, RepositoryError> {
        let store = self.store.without_cache();
        Ok(!exists(&store, &names::version(pin.series, pin.job, 0)).await?
            && !exists(&store, &names::lease_done(pin.job)).await?
            && exists(&store, &names::lease(pin.job, 0)).await?)
    }

    async fn register(&self, pin: Pin) -> Result<Option<Register<()>>, RepositoryError> {
        let name = names::version(pin.series, pin.job, 0);
        let bytes = match self.store.without_cache().get(&name).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let register =
            Manifest::decode(&self.keys, pin.series, pin.job, 0, &bytes).map_err(RepositoryError::damaged(name))?;
        Ok(Some(match register {
            Register::Committed(_) => Register::Committed(()),
            Register::Aborted => Register::Aborted,
        }))
    }

    /// Leases that no closing mark ends, of jobs that have not committed: running or dead. Unreadable ones are left out.
    pub async fn unfinished_jobs(&self) -> Result<Vec<OtherJob>, RepositoryError> {
        let mut newest: BTreeMap<JobId, u32> = BTreeMap::new();
        let mut done = HashSet::new();
        for object in self.store.list(names::JOBS).await? {
            match names::parse_lease(&object.name) {
                Some((job, LeaseObject::Done)) => drop(done.insert(job)),
                Some((job, LeaseObject::Renewal(number))) => {
                    let entry = newest.entry(job).or_insert(number);
                    *entry = (*entry).max(number);
                }
                None => {}
            }
        }
        newest.retain(|job, _| !done.contains(job));
        let mut jobs = Vec::new();
        for (job, renewal) in newest {
            let bytes = match self.store.get(&names::lease(job, renewal)).await {
                Ok(bytes) => bytes,
                Err(error) if error.kind == StoreErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            match Lease::decode(&self.keys, job, renewal, &bytes) {
                Ok(lease) => jobs.push(OtherJob { job, lease }),
                Err(error) => tracing::warn!(%job, %error, "a lease cannot be read"),
            }
        }
        Ok(jobs)
    }

    /// Commits a version: creates its register, or finds that the job was fenced off.
    pub async fn commit(&self, series: SeriesKey, manifest: &Manifest) -> Result<(), CommitError> {
        let bytes = manifest.encode(&self.keys, series, 0, random(self.entropy())?);
        match self.store.create(&names::version(series, manifest.summary.id, 0), bytes.into()).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => Err(CommitError::Fenced),
            Err(error) => Err(RepositoryError::from(error).into()),
        }
    }
}
