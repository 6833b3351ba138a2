//! What a pass sees, in the order that makes it worth something.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures::StreamExt;
use larder_format::ids::JobId;
use larder_format::lease::{JobKind, Pin};
use larder_format::manifest::{Manifest, Register};
use larder_index::IndexSnapshot;
use larder_store::Repository;
use larder_store::survey::{ListedJob, SeenLease};

use super::decide::{Before, Leases, Proposal};
use super::run::PassError;

/// Small objects that are read at once.
const CONCURRENT_READS: usize = 32;

/// Manifests that are read at once. One of a terabyte has some ten megabytes.
const MANIFESTS_AHEAD: usize = 4;

/// Who looks, and how.
pub(super) struct Survey<'a> {
    pub(super) repository: &'a Repository,
    /// The pass itself, once it has a lease.
    pub(super) own: Option<JobId>,
    pub(super) base: &'a IndexSnapshot,
    /// A job that has not renewed its lease for so long is thought dead.
    pub(super) dead_after: Duration,
    /// The time for a pass that leaves no trace by which the store could tell it.
    pub(super) now_ms: u64,
    /// Whether jobs that are thought dead are only counted as if they had been fenced.
    pub(super) is_dry: bool,
}

impl Survey<'_> {
    /// The time by the store's clock: when it made this pass's own lease, or the newest of all.
    fn store_now(&self, jobs: &BTreeMap<JobId, ListedJob>) -> u64 {
        let own = self.own.and_then(|own| jobs.get(&own));
        own.map_or(self.now_ms, |own| own.renewed_ms)
    }

    fn is_dead(&self, listed: &ListedJob, now_ms: u64) -> bool {
        let age = Duration::from_millis(now_ms.saturating_sub(listed.renewed_ms));
        age >= self.dead_after
    }

    /// Steps 2 and 3. Also gives the jobs that were fenced.
    pub(super) async fn before_leases(&self) -> Result<(Before, Vec<Pin>), PassError> {
        let repository = self.repository;
        let mut before = Before::default();
        let registers = repository.list_registers().await?;
        let mut jobs = repository.list_jobs().await?;
        let now_ms = self.store_now(&jobs);
        self.own.map(|own| jobs.remove(&own));
        // Whether each of these registers opens shows when the versions are read; one that does not stops the pass.
        before.settled = registers.keys().map(|pin| pin.job).collect();
        before.generations.clone_from(&registers);
        let open = jobs.iter().filter(|(job, _)| !before.settled.contains(job));
        let looks = open.map(|(job, listed)| self.is_settled(*job, listed, now_ms, &registers));
        let looks: Vec<_> = futures::stream::iter(looks).buffer_unordered(CONCURRENT_READS).collect().await;
        let mut fenced = Vec::new();
        for look in looks {
            match look? {
                Settled::No => continue,
                Settled::Yes(job) => before.settled.insert(job),
                Settled::Fenced(pin) => {
                    fenced.push(pin);
                    before.settled.insert(pin.job)
                }
            };
        }
        // A mark counts only if it opens: who may only create objects hides nothing.
        let marks = repository.list_marks().await?;
        let reads = marks.into_iter().map(|pin| async move {
            match repository.forgotten(pin).await {
                Ok(mark) => Ok(mark.map(|_| pin)),
                Err(error) if error.is_of_object() => {
                    tracing::warn!(%error, "not a mark; the version it pretends to be about is kept");
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        });
        let mut reads = futures::stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        while let Some(mark) = reads.next().await {
            before.marks.extend(mark?);
        }
        before.pins = repository.list_pins().await?;
        (before.indexes, before.runs) = repository.list_index().await?;
        before.containers = repository.list_containers().await?;
        Ok((before, fenced))
    }

    /// Whether nothing new can come of a job that has no register; if it is thought dead, nothing can from now on (`Fence`).
    async fn is_settled(
        &self,
        job: JobId,
        listed: &ListedJob,
        now_ms: u64,
        registers: &BTreeMap<Pin, Vec<u32>>,
    ) -> Result<Settled, PassError> {
        if listed.has_done && self.is_closed(job).await? {
            return Ok(Settled::Yes(job));
        }
        let SeenLease::Open(lease) = self.repository.see_lease(job, &listed.renewals).await? else {
            return Ok(Settled::No);
        };
        match lease.kind {
            JobKind::Backup if self.is_dead(listed, now_ms) => {
                let pin = Pin { series: self.repository.keys().series_key(&lease.series), job };
                if !self.is_dry {
                    self.repository.fence(pin, 0).await?;
                    tracing::info!(%job, host = %lease.host, "a job that is thought dead was fenced");
                }
                Ok(Settled::Fenced(pin))
            }
            // A task that lays a version out anew: its register is the generation that it would create (`OwnRegister`).
            JobKind::Task if let (Some(generation), Some(version)) = (lease.generation, lease.pins.first()) => {
                if registers.get(version).is_some_and(|generations| generations.contains(&generation)) {
                    return Ok(Settled::Yes(job));
                }
                if !self.is_dead(listed, now_ms) {
                    return Ok(Settled::No);
                }
                if !self.is_dry {
                    self.repository.fence(*version, generation).await?;
                    tracing::info!(%job, host = %lease.host, "a task that is thought dead was fenced");
                }
                Ok(Settled::Yes(job))
            }
            JobKind::Task if lease.claims.is_some_and(|number| number <= self.base.number) => Ok(Settled::Yes(job)),
            JobKind::Backup | JobKind::Read | JobKind::Task => Ok(Settled::No),
        }
    }

    /// A closing mark that does not open closes nothing.
    pub(super) async fn is_closed(&self, job: JobId) -> Result<bool, PassError> {
        match self.repository.is_closed(job).await {
            Err(error) if error.is_of_object() => Ok(false),
            closed => Ok(closed?),
        }
    }

    /// Step 4.
    pub(super) async fn leases(&self, before: &Before) -> Result<Leases, PassError> {
        let mut jobs = self.repository.list_jobs().await?;
        let now_ms = self.store_now(&jobs);
        self.own.map(|own| jobs.remove(&own));
        let open = jobs.iter().filter(|(job, _)| !before.settled.contains(job));
        let looks = open.map(|(job, listed)| async move {
            if listed.has_done && self.is_closed(*job).await? {
                return Ok(None);
            }
            let seen = self.repository.see_lease(*job, &listed.renewals).await?;
            Ok::<_, PassError>(Some((*job, seen, self.is_dead(listed, now_ms))))
        });
        let looks: Vec<_> = futures::stream::iter(looks).buffer_unordered(CONCURRENT_READS).collect().await;
        let mut leases = Leases::default();
        for look in looks {
            match look? {
                Some((job, SeenLease::Open(lease), is_dead)) => {
                    if lease.kind == JobKind::Read && is_dead {
                        leases.expired.insert(job);
                    } else {
                        leases.live.insert(job, lease);
                    }
                }
                Some((_, SeenLease::Unreadable { name, error }, _)) => {
                    return Err(PassError::UnreadableLease { name, source: error });
                }
                // Closed since, or cleaned up by another pass. It was there, so its containers are not touched this time.
                Some((_, SeenLease::Gone, _)) | None => {}
            }
        }
        leases.jobs = jobs;
        Ok(leases)
    }

    /// Step 5: reads every manifest that is retained, and strikes out what it uses.
    ///
    /// Of a version's generations those count that are no lower than the highest which was there before the leases were listed
    /// (`SupersededBeforeLeases`); of one that a live lease names, all (`NamedGenerationsRetained`). A version exists only with its
    /// generation 0.
    pub(super) async fn versions(
        &self,
        registers: &BTreeMap<Pin, Vec<u32>>,
        proposal: &mut Proposal,
    ) -> Result<u64, PassError> {
        let wanted = registers.iter().filter(|(pin, generations)| generations.contains(&0) && proposal.must_read(pin));
        let reads = wanted.map(|(pin, generations)| {
            let (of_all, before) = (proposal.is_named(pin), proposal.generations_before(pin).to_vec());
            async move { (*pin, self.containers_of(*pin, generations, of_all, &before).await) }
        });
        let reads: Vec<_> = reads.collect();
        let mut manifests_read = 0;
        let mut reads = futures::stream::iter(reads).buffered(MANIFESTS_AHEAD);
        while let Some((pin, manifests)) = reads.next().await {
            for manifest in manifests? {
                manifests_read += 1;
                if let Some(manifest) = manifest {
                    proposal.retain(pin, &manifest.containers);
                }
            }
        }
        Ok(manifests_read)
    }

    /// What the generations of a version say, from the highest down to the first that needs no other; `None` for one that was
    /// fenced.
    async fn containers_of(
        &self,
        pin: Pin,
        generations: &[u32],
        of_all: bool,
        before: &[u32],
    ) -> Result<Vec<Option<Manifest>>, PassError> {
        let mut found = Vec::new();
        for generation in generations.iter().rev() {
            match self.repository.read_register(pin, *generation).await {
                Ok(Some(Register::Committed(manifest))) => {
                    found.push(Some(manifest));
                    if !of_all && before.contains(generation) {
                        break;
                    }
                }
                Ok(Some(Register::Aborted)) => found.push(None),
                Ok(None) => return Err(PassError::Overtaken),
                Err(error) if error.is_of_object() => {
                    let name = larder_format::names::version(pin.series, pin.job, *generation);
                    return Err(PassError::UnreadableManifest { name, id: pin.job, source: error });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Which of these jobs are closed.
    pub(super) async fn closed(&self, jobs: Vec<JobId>) -> Result<HashSet<JobId>, PassError> {
        let reads = jobs.into_iter().map(|job| async move { Ok((job, self.is_closed(job).await?)) });
        let mut reads = futures::stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        let mut closed = HashSet::new();
        while let Some(read) = reads.next().await {
            let (job, is_closed) = read.map_err(|error: PassError| error)?;
            if is_closed {
                closed.insert(job);
            }
        }
        Ok(closed)
    }
}

enum Settled {
    No,
    Yes(JobId),
    Fenced(Pin),
}
