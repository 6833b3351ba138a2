//! Leases and the commit register: how a job announces itself, builds only on objects that stay,
//! and commits.
//!
//! The order of steps is the protocol of `docs/concurrency.md`, checked by a model in
//! `crates/lnode/tests`:
//! 1. the lease is written, naming the objects that the job builds on;
//! 2. *then* each of these is checked to be still there;
//! 3. containers are uploaded, the lease is renewed meanwhile;
//! 4. the manifest is created in the job's commit register, where an abort mark may have been
//!    first;
//! 5. the lease is closed.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use larder_format::ErrorKind;
use larder_format::ids::{DomainId, JobId, SeriesKey};
use larder_format::lease::{Done, JobKind, LEASE_MAX, Lease, Pin};
use larder_format::manifest::{MANIFEST_MAX, Manifest, Register, Summary};
use larder_format::names::{self, LeaseObject};

use crate::forget_marks::{FaultyObject, read_if_there};
use crate::repository::{CONCURRENT_READS, Repository, RepositoryError, exists, random};
use crate::rules::Rule;
use crate::{Created, StoreErrorKind};

/// How often a running job renews its lease. The job of a lease that is several times older looks
/// dead.
pub const RENEW_EVERY: Duration = Duration::from_secs(300);

/// Numbers that a renewal tries before it fails: a client may have put objects where the next ones
/// go.
const NUMBERS_TRIED: u32 = 16;

/// How often a lease that may have been removed is proved once more to be created conditionally.
const PROBES_MORE: u32 = 3;

/// A version could not be committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The job looked dead and was aborted while it ran; its writes do not count.
    #[error("this job was declared dead while it ran (was it suspended?); run the backup again")]
    Fenced,
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl CommitError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Fenced => ErrorKind::LostRace,
            Self::Repository(error) => error.kind(),
        }
    }
}

/// An open lease. Renewing and closing are the owner's business; dropping it leaves it to expire.
#[derive(Debug)]
pub struct OpenLease {
    /// The job that holds it.
    pub job: JobId,
    /// Its contents; `written_ms` is set again by each renewal.
    pub lease: Lease,
    renewal: u32,
    /// Whether every attempt to create the lease's first object was answered.
    all_answered: bool,
}

/// An unfinished job of the past, or a running one of another process.
#[derive(Debug, Clone)]
pub struct OtherJob {
    /// Its id.
    pub job: JobId,
    /// Its newest renewal that can be read.
    pub lease: Lease,
}

/// What the store has of the lease of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseState {
    /// Number of its newest object, and when the store made that; `None`: it has none.
    pub newest: Option<(u32, u64)>,
    /// Whether its job has closed it.
    pub is_closed: bool,
}

impl LeaseState {
    /// Whether the job goes on, as far as its lease says.
    pub fn is_open(&self) -> bool {
        self.newest.is_some() && !self.is_closed
    }
}

/// The objects of one job in a listing.
#[derive(Debug, Default)]
struct AnnouncedJob {
    renewals: Vec<u32>,
    has_done: bool,
}

/// The contents of its objects.
#[derive(Debug)]
struct Looked {
    job: JobId,
    lease: Option<Lease>,
    is_closed: bool,
    faulty: Vec<FaultyObject>,
}

impl Repository {
    /// Writes the lease of a job that starts now.
    pub async fn open_lease(&self, job: JobId, lease: Lease) -> Result<OpenLease, RepositoryError> {
        let mut open = OpenLease { job, lease, renewal: 0, all_answered: true };
        self.write_renewal(&mut open).await?;
        Ok(open)
    }

    /// Renews a lease; `now_ms` is the writer's clock, for people.
    pub async fn renew_lease(&self, open: &mut OpenLease, now_ms: u64) -> Result<(), RepositoryError> {
        open.lease.written_ms = now_ms;
        self.write_renewal(open).await
    }

    async fn write_renewal(&self, open: &mut OpenLease) -> Result<(), RepositoryError> {
        let last = open.renewal.saturating_add(NUMBERS_TRIED);
        loop {
            let bytes = open.lease.encode(&self.keys, open.job, open.renewal, random(self.entropy())?)?;
            let (name, bytes) = (names::lease(open.job, open.renewal), Bytes::from(bytes));
            let created = self.store.create(&name, bytes.clone()).await;
            let is_taken = created.as_ref().is_err_and(|error| error.kind == StoreErrorKind::AlreadyExists);
            // Adoption looks at number 0, and no other object may replace it.
            if is_taken && open.renewal > 0 && open.renewal < last {
                open.renewal += 1;
                continue;
            }
            if open.renewal == 0 {
                open.all_answered = created?.all_answered;
                // Readers write nothing that a second create could replace.
                if open.lease.kind != JobKind::Read && self.keeps(Rule::ProbedFirst) {
                    self.probe_lease(open, &name, &bytes).await?;
                }
            } else {
                created?;
            }
            open.renewal = open.renewal.saturating_add(1);
            return Ok(());
        }
    }

    /// Creates the first lease once more: the store must refuse it. A pass may find the job
    /// settled, because it was aborted or the number that it claims is taken. It may then remove
    /// the lease in between. Then the second create rebuilds it, and is followed by a third. Such a
    /// job commits nothing: its register or its number is taken.
    async fn probe_lease(&self, open: &mut OpenLease, name: &str, bytes: &Bytes) -> Result<(), RepositoryError> {
        let mut removed = 0;
        loop {
            match self.store.create_again(name, bytes.clone()).await {
                Ok(refused) => {
                    open.all_answered &= refused.all_answered;
                    return Ok(());
                }
                Err(error) if error.kind == StoreErrorKind::Unconditional && removed < PROBES_MORE => {
                    open.all_answered = false;
                    removed += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Looks at the lease of a job. Never answered from a cache.
    pub async fn lease_state(&self, job: JobId) -> Result<LeaseState, RepositoryError> {
        let mut state = LeaseState::default();
        for object in self.store.without_cache().list(&names::leases_of(job)).await? {
            match names::parse_lease(&object.name) {
                Some((_, LeaseObject::Renewal(number))) => {
                    state.newest = state.newest.max(Some((number, object.made_ms())));
                }
                Some((_, LeaseObject::Done)) => state.is_closed = true,
                None => {}
            }
        }
        Ok(state)
    }

    /// Renews the lease of a job whose process is silent, because others still need what it names.
    /// `newest` is its newest object; `now_ms` is the writer's clock, for people.
    pub async fn renew_for(&self, job: JobId, newest: u32, now_ms: u64) -> Result<(), RepositoryError> {
        let Some(lease) = self.read_lease(job, newest).await? else { return Ok(()) };
        let lease = Lease { ended: None, ..lease };
        let mut open = OpenLease { job, lease, renewal: newest.saturating_add(1), all_answered: true };
        self.renew_lease(&mut open, now_ms).await
    }

    /// Says in one more renewal that the process of a job ends without a commit. Its uploads stay
    /// adoptable, and a pass need not wait until the job looks dead.
    pub async fn end_lease(&self, open: &mut OpenLease, now_ms: u64) -> Result<(), RepositoryError> {
        open.lease.ended = Some(true);
        self.renew_lease(open, now_ms).await
    }

    /// Closes a lease: the job is over, and `done` says how it ended. The caller knows that every
    /// attempt at its commit was answered. If a create of the lease itself was not answered, the
    /// lease stays open. It may land once more after a clean-up. Then only the remaining objects of
    /// the job would show that it ended (rule `CloseOnlyAnswered` of `docs/concurrency.md`).
    pub async fn close_lease(&self, open: &OpenLease, done: Done) -> Result<(), RepositoryError> {
        if !open.all_answered && self.keeps(Rule::CloseOnlyAnswered) {
            tracing::info!(job = %open.job, "an attempt to announce the job got no answer; its lease is left to expire");
            return Ok(());
        }
        let bytes = done.encode(&self.keys, open.lease.domain, open.job, random(self.entropy())?)?;
        self.store.create(&names::lease_done(open.job), bytes.into()).await?;
        Ok(())
    }

    /// Ends a task without a register whose attempts at the index were all answered. It closes the
    /// lease and removes its objects below `jobs/`, the lease first. Not for jobs that others may
    /// adopt: adopters look at the objects that this removes.
    pub async fn end_task(&self, open: &OpenLease) -> Result<(), RepositoryError> {
        self.close_lease(open, Done::task_over()).await?;
        if open.all_answered {
            for renewal in 0..open.renewal {
                self.store.delete(&names::lease(open.job, renewal)).await?;
            }
            self.store.delete(&names::lease_done(open.job)).await?;
        }
        Ok(())
    }

    /// Whether a version is still there to be built on or read: committed, readable and not
    /// forgotten. Never answered from a cache, which may still have deleted objects.
    pub async fn is_retained(&self, pin: Pin) -> Result<bool, RepositoryError> {
        Ok(self.if_retained(pin, async { Ok(()) }, |()| async { Ok(()) }).await?.is_some())
    }

    /// What `beside` gives, if the version is still there. It is asked beside the register, after
    /// the marks. It gets what `early` gives, which is asked beside the first look at the mark.
    pub async fn if_retained<E, T, B: Future<Output = Result<T, RepositoryError>>>(
        &self,
        pin: Pin,
        early: impl Future<Output = Result<E, RepositoryError>>,
        beside: impl FnOnce(E) -> B,
    ) -> Result<Option<T>, RepositoryError> {
        if !self.keeps(Rule::BaseChecked) {
            return beside(early.await?).await.map(Some);
        }
        if !self.keeps(Rule::MarkThenRegister) {
            let is_there = matches!(self.register(pin).await?, Some(Register::Committed(())));
            let is_there = is_there && self.forgotten(pin).await?.is_none();
            return if is_there { beside(early.await?).await.map(Some) } else { Ok(None) };
        }
        // One wrong "it is not there" must not hide the mark (`AskedTwice`). Both looks come before
        // the register (`MarkThenRegister`), one after the other: a gateway may answer equal
        // requests of one moment together.
        let (is_marked, early) = futures::join!(self.may_be_marked(pin), early);
        if is_marked? || (self.keeps(Rule::AskedTwice) && self.may_be_marked(pin).await?) {
            return Ok(None);
        }
        let beside = beside(early?);
        let (register, beside) = futures::join!(self.register(pin), beside);
        match register {
            Ok(Some(Register::Committed(()))) => beside.map(Some),
            Ok(_) => Ok(None),
            // Nothing can be built on an unreadable object; `check` reports it.
            Err(error) if error.is_of_object() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a version has a mark, or an object in its place that cannot be read. That one may
    /// have been whole when a pass read it. So nothing is built on its subject, which only costs
    /// space.
    async fn may_be_marked(&self, pin: Pin) -> Result<bool, RepositoryError> {
        match self.forgotten(pin).await {
            Ok(mark) => Ok(mark.is_some()),
            Err(error) if error.is_of_object() || error.is_foreign() => {
                tracing::warn!(%error, "a mark cannot be read; the version it may be about is not built on");
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a dead job's containers may still be adopted. It has neither committed nor been
    /// fenced, and has not closed its lease. Its lease still exists, which is asked last because a
    /// clean-up removes it first (`docs/concurrency.md`).
    ///
    /// Any object under the name of its register or closing mark rules it out, also one that does
    /// not open: a pass may have read it while it was whole.
    pub async fn is_adoptable(&self, pin: Pin) -> Result<bool, RepositoryError> {
        let store = self.store.without_cache();
        let is_leased = async || {
            Ok::<_, RepositoryError>(
                !self.keeps(Rule::AdoptedLeased) || exists(&store, &names::lease(pin.job, 0)).await?,
            )
        };
        if !self.keeps(Rule::LeaseReadLast) && !is_leased().await? {
            return Ok(false);
        }
        // One wrong "not found" must not make a settled job look open (`AskedTwice`).
        for _ in 0..if self.keeps(Rule::AskedTwice) { 2 } else { 1 } {
            let is_closed = self.keeps(Rule::ClosedNotAdopted) && exists(&store, &names::lease_done(pin.job)).await?;
            if is_closed || self.is_decided(&store, pin).await? {
                return Ok(false);
            }
        }
        Ok(!self.keeps(Rule::LeaseReadLast) || is_leased().await?)
    }

    /// Whether a job's register is taken: it was aborted (`AdoptedChecked`) or has committed
    /// (`CommittedNotAdopted`).
    async fn is_decided(&self, store: &crate::Store, pin: Pin) -> Result<bool, RepositoryError> {
        if self.keeps(Rule::AdoptedChecked) && self.keeps(Rule::CommittedNotAdopted) {
            return Ok(exists(store, &names::version(pin.series, pin.job, 0)).await?);
        }
        Ok(match self.register(pin).await? {
            None => false,
            Some(Register::Aborted) => self.keeps(Rule::AdoptedChecked),
            Some(Register::Committed(())) => self.keeps(Rule::CommittedNotAdopted),
        })
    }

    async fn register(&self, pin: Pin) -> Result<Option<Register<()>>, RepositoryError> {
        let name = names::version(pin.series, pin.job, 0);
        let Some(bytes) = read_if_there(&self.store.without_cache(), &name, MANIFEST_MAX).await? else {
            return Ok(None);
        };
        let register =
            Manifest::decode(&self.keys, pin.series, pin.job, 0, &bytes).map_err(RepositoryError::damaged(name))?;
        Ok(Some(match register {
            Register::Committed(_) => Register::Committed(()),
            Register::Aborted => Register::Aborted,
        }))
    }

    /// Leases that no closing mark ends, of jobs that have not committed: running or dead.
    /// Unreadable ones are left out; an unreadable closing mark ends nothing.
    pub async fn unfinished_jobs(&self) -> Result<Vec<OtherJob>, RepositoryError> {
        // The listings may be of any time: an adopted job is asked for again, by its names
        // (`AdoptedChecked`, `CommittedNotAdopted`).
        let versions = async { Ok(self.store.list(names::VERSIONS).await?) };
        let (mut jobs, versions) = futures::try_join!(self.announced_jobs(), versions)?;
        // Nearly all jobs there ever were have committed. Nothing of theirs needs to be read.
        for object in versions {
            if let Some((_, job, _)) = names::parse_version(&object.name) {
                jobs.remove(&job);
            }
        }
        let reads = jobs.into_iter().map(|(job, announced)| self.look_at_job(job, announced));
        let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
        let mut unfinished = Vec::new();
        while let Some(looked) = reads.next().await {
            let Looked { job, lease, is_closed, faulty } = looked?;
            for object in faulty {
                tracing::warn!(object = %object.name, error = %object.error, "not what its name says; it is ignored");
            }
            unfinished.extend(lease.filter(|_| !is_closed).map(|lease| OtherJob { job, lease }));
        }
        Ok(unfinished)
    }

    /// Leases and closing marks that do not open, by name: for `check`. Of each job the renewals
    /// are read from the highest down to the first that opens.
    pub async fn faulty_leases(&self) -> Result<Vec<FaultyObject>, RepositoryError> {
        let jobs = self.announced_jobs().await?;
        let reads = jobs.into_iter().map(|(job, announced)| self.look_at_job(job, announced));
        let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
        let mut found = Vec::new();
        while let Some(looked) = reads.next().await {
            found.extend(looked?.faulty);
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    async fn announced_jobs(&self) -> Result<BTreeMap<JobId, AnnouncedJob>, RepositoryError> {
        let mut jobs: BTreeMap<JobId, AnnouncedJob> = BTreeMap::new();
        for object in self.store.list(names::JOBS).await? {
            match names::parse_lease(&object.name) {
                Some((job, LeaseObject::Done)) => jobs.entry(job).or_default().has_done = true,
                Some((job, LeaseObject::Renewal(number))) => jobs.entry(job).or_default().renewals.push(number),
                None => {}
            }
        }
        Ok(jobs)
    }

    async fn look_at_job(&self, job: JobId, mut announced: AnnouncedJob) -> Result<Looked, RepositoryError> {
        let mut looked = Looked { job, lease: None, is_closed: false, faulty: Vec::new() };
        if announced.has_done {
            match self.read_done(&self.store, job).await {
                // Gone since the listing: the job was cleaned up, and so it was closed.
                // `None` also if the mark was planted by another machine.
                Ok(done) => looked.is_closed = done.is_some(),
                Err(error) if error.is_foreign() => return Ok(looked),
                Err(error) if error.is_of_object() => {
                    looked.faulty.push(FaultyObject { name: names::lease_done(job), job, error });
                }
                Err(error) => return Err(error),
            }
        }
        announced.renewals.sort_unstable();
        while let Some(renewal) = announced.renewals.pop() {
            let name = names::lease(job, renewal);
            match self.read_lease(job, renewal).await {
                Ok(Some(lease)) => {
                    if renewal > 0 && !self.is_of_owner(job, lease.domain).await? {
                        continue;
                    }
                    looked.lease = Some(lease);
                    break;
                }
                Ok(None) => {}
                // A job of another machine.
                Err(error) if error.is_foreign() => {}
                Err(error) if error.is_of_object() => looked.faulty.push(FaultyObject { name, job, error }),
                Err(error) => return Err(error),
            }
        }
        Ok(looked)
    }

    async fn read_lease(&self, job: JobId, renewal: u32) -> Result<Option<Lease>, RepositoryError> {
        let name = names::lease(job, renewal);
        let Some(bytes) = read_if_there(&self.store, &name, LEASE_MAX).await? else { return Ok(None) };
        Lease::decode(&self.keys, job, renewal, &bytes).map(Some).map_err(RepositoryError::damaged(name))
    }

    /// Whether an object under the name of a job counts, which was sealed in this domain.
    /// It must be that of the first lease object, which the job created before
    /// anybody knew its name. Otherwise, a machine could end the jobs of others.
    ///
    /// No key that may only back up is of the default domain, so what is sealed in it counts.
    pub(crate) async fn is_of_owner(&self, job: JobId, domain: DomainId) -> Result<bool, RepositoryError> {
        if domain.is_default() {
            return Ok(true);
        }
        let name = names::lease(job, 0);
        let bytes = read_if_there(&self.store.without_cache(), &name, LEASE_MAX).await?;
        let lease = bytes.and_then(|bytes| Lease::decode(&self.keys, job, 0, &bytes).ok());
        // Without it, nothing says whose the job was.
        let is_owner = lease.is_some_and(|lease| lease.domain == domain);
        if !is_owner {
            tracing::warn!(%job, "an object of another domain has the name of this job; it is ignored");
        }
        Ok(is_owner)
    }

    /// Commits a version: creates its register, or finds that the job was fenced. The lease may be
    /// closed after it only when every attempt was answered.
    pub async fn commit(&self, series: SeriesKey, manifest: &Manifest) -> Result<Created, CommitError> {
        self.commit_generation(series, manifest, 0, 0).await
    }

    /// Commits a later generation of a version's manifest: the same content in other containers. It
    /// was rewritten from the generation `from`.
    /// Another task's generation under that number, or the mark that fenced this task, is
    /// [`CommitError::Fenced`].
    pub async fn commit_generation(
        &self,
        series: SeriesKey,
        manifest: &Manifest,
        generation: u32,
        from: u32,
    ) -> Result<Created, CommitError> {
        let salt = random(self.entropy())?;
        let bytes = manifest.encode(&self.keys, series, generation, salt).map_err(RepositoryError::from)?;
        match self.store.create(&names::version(series, manifest.summary.id, generation), bytes.into()).await {
            Ok(created) => {
                let Summary { id: job, attempt, .. } = manifest.summary;
                self.own_generations.add(Pin { series, job }, generation, attempt, from);
                Ok(created)
            }
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => Err(CommitError::Fenced),
            Err(error) => Err(RepositoryError::from(error).into()),
        }
    }
}
