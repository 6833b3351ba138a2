//! The observations of a pass, in the order that makes them safe.

mod settled;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use larder_format::ids::{JobId, RunId};
use larder_format::lease::{Done, JobKind, Pin};
use larder_format::manifest::{Manifest, Register};
use larder_index::{Current, IndexSnapshot};
use larder_store::rules::Rule;
use larder_store::survey::{ListedContainer, ListedJob, SeenLease};
use larder_store::{Repository, RepositoryError};
use parking_lot::Mutex;

use super::decide::{Before, Leases, Proposal, Retained, Supersedes};
use super::delete_candidates::ContainerListing;
use super::listing_scope::{Listing, Scope, Seen};
use super::plan::AbortedJob;
use super::prove::{Forwards, Known, Prover, Unproved, WhyUnproved};
use super::report::WaitingSpace;
use crate::error::PassError;
use crate::known_versions::{Contents, KnownVersions};
use crate::spilled::spilled;
use settled::Settled;

/// Small objects that are read at once.
const CONCURRENT_READS: usize = 32;

/// Manifests that are read at once. One of a terabyte has some ten megabytes.
const MANIFESTS_AHEAD: usize = 4;

/// The context of the observations.
pub(super) struct Survey<'a> {
    pub(super) repository: &'a Repository,
    /// The pass itself, once it has a lease.
    pub(super) own: Option<JobId>,
    pub(super) base: &'a IndexSnapshot,
    /// The indexes and runs that existed when the base was looked for. That was first, so newer
    /// ones are ignored.
    pub(super) index: &'a (Vec<u64>, Vec<(RunId, u64)>),
    /// The number that the next index has.
    pub(super) number: u64,
    pub(super) listing: Listing,
    /// Bytes of memory for listed containers.
    pub(super) memory: usize,
    /// A job that has not renewed its lease for this long is considered dead.
    pub(super) dead_after: Duration,
    /// Containers that no index ever had are not deleted before this age.
    pub(super) min_age: Duration,
    /// The time for a pass that leaves no trace to which the store could give a time.
    pub(super) now_ms: u64,
    /// Whether a signed generation counts as proved.
    pub(super) trusts_signed: bool,
    /// Whether jobs that are considered dead are only counted as if they had been fenced.
    pub(super) is_dry: bool,
}

/// Jobs as step 2 saw them.
pub(super) struct SeenJobs {
    jobs: BTreeMap<JobId, ListedJob>,
    /// The time by the store's clock, milliseconds since the epoch.
    now_ms: u64,
    /// Those that were fenced, or would be.
    pub(super) fenced: Vec<AbortedJob>,
    /// Those that ended and whose uploads wait until this time.
    ended: BTreeMap<JobId, u64>,
    /// Registers that the job's own lease or closing mark names.
    pub(super) settled: HashSet<Pin>,
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

    /// Step 2: registers, leases, marks and pins. A job that looks dead is fenced.
    pub(super) async fn jobs_and_marks(&self) -> Result<(Before, SeenJobs), PassError> {
        let repository = self.repository;
        let mut before = Before::default();
        // Registers before leases: the job of a register that is listed had its lease before, so
        // that a lease which is not listed was removed. Marks and pins are listed beside: of them,
        // all that counts is that they come before step 4 (`MarksBeforeLeases`).
        let registers_and_jobs = async {
            let registers = repository.list_registers().await?;
            Ok((registers, repository.list_jobs().await?))
        };
        let ((registers, mut jobs), marks, pins) =
            futures::try_join!(registers_and_jobs, self.marks(), repository.list_pins())?;
        self.expect_own(&jobs)?;
        let now_ms = self.store_now(&jobs);
        self.own.map(|own| jobs.remove(&own));
        // Whether each of these registers opens is checked when the versions are read; one that
        // does not stops the pass. Later generations alone say nothing: anybody can take their
        // names, and no version is read for them.
        let has_first = |generations: &[u32]| generations.first() == Some(&0);
        let committed = registers.iter().filter(|(_, generations)| has_first(generations));
        let registered: HashSet<JobId> = committed.map(|(pin, _)| pin.job).collect();
        // Somebody else may take the id of a running job for a version in another series. So a
        // register counts only in the series that the job's lease names, if there is a lease.
        before.settled = registered.iter().filter(|job| !jobs.contains_key(*job)).copied().collect();
        // One look at each is enough.
        let rows = self.base.manifest.versions.iter().filter(|row| row.is_settled);
        let rows = rows.map(|row| Pin { series: row.series, job: row.job });
        let known = rows.filter(|pin| registers.get(pin).is_some_and(|generations| has_first(generations)));
        before.settled.extend(known.map(|pin| pin.job));
        let open = jobs.iter().filter(|(job, _)| !before.settled.contains(job));
        let looks = open.map(|(job, listed)| {
            let has_register = registered.contains(job);
            self.is_settled(*job, listed, has_register, &registers, now_ms)
        });
        let looks: Vec<_> = futures::stream::iter(looks).buffer_unordered(CONCURRENT_READS).collect().await;
        let (mut fenced, mut committed, mut ended) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut settled = HashSet::new();
        for look in looks {
            match look? {
                Settled::No => {}
                Settled::Ended(job, until_ms) => drop(ended.insert(job, until_ms)),
                Settled::Yes(job) => drop(before.settled.insert(job)),
                Settled::Registered(register) => {
                    settled.insert(register);
                    before.settled.insert(register.job);
                }
                Settled::Closed(job, done) => {
                    settled.extend(done.series.map(|series| Pin { series, job }));
                    before.dones.insert(job, done);
                    before.settled.insert(job);
                }
                Settled::Fenced(aborted) => {
                    fenced.push(aborted);
                    before.settled.insert(aborted.job);
                }
                // It committed since the registers were listed.
                Settled::Committed(job, version, generation) => {
                    committed.push((version, generation));
                    before.settled.insert(job);
                }
            }
        }
        before.registers = registers;
        for (version, generation) in committed {
            let generations = before.registers.entry(version).or_default();
            generations.push(generation);
            generations.sort_unstable();
            generations.dedup();
        }
        (before.marks, before.pins) = (marks, pins);
        (before.indexes, before.runs) = self.index.clone();
        Ok((before, SeenJobs { jobs, now_ms, fenced, ended, settled }))
    }

    /// The marks that open: a client that may only create objects hides nothing.
    async fn marks(&self) -> Result<BTreeSet<Pin>, RepositoryError> {
        let repository = self.repository;
        let reads = repository.list_marks().await?.into_iter().map(|pin| async move {
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
        let mut marks = BTreeSet::new();
        while let Some(mark) = reads.next().await {
            marks.extend(mark?);
        }
        Ok(marks)
    }

    /// Step 3: containers, all or those that no index may know.
    pub(super) async fn containers(&self, before: &mut Before, seen: &SeenJobs) -> Result<(), PassError> {
        let (repository, now_ms) = (self.repository, seen.now_ms);
        let (registers, marks) = (&before.registers, &before.marks);
        let base = &self.base.manifest;
        let scope = Seen { base, number: self.number, jobs: &seen.jobs, registers, marks };
        let scope = Scope::of(self.listing, &scope);
        let mut listing = ContainerListing::new(&std::env::temp_dir(), self.memory);
        let (mut waiting, mut failed) = (WaitingSpace::default(), Ok(()));
        let mut note = |container: ListedContainer, made_ms: u64| {
            if let Some(until_ms) = seen.ended.get(&container.id.job) {
                waiting.add(container.bytes, *until_ms);
            }
            if failed.is_ok() {
                failed = listing.push(container, self.waits_until(made_ms, now_ms));
            }
        };
        if scope.is_whole {
            let all = repository.list_all_containers_timed(note);
            let (superseded, left) = (repository.superseded_settings(), repository.left_by_fleet());
            let (mut without_meaning, left, ()) = futures::try_join!(superseded, left, all)?;
            without_meaning.extend(left);
            before.without_meaning = without_meaning;
        } else {
            self.containers_of(&scope, &mut note).await?;
        }
        failed?;
        (before.containers, before.waiting) = (listing, waiting);
        (before.unknown, before.is_listed_whole) = (scope.jobs, scope.is_whole);
        Ok(())
    }

    /// The containers of jobs that may have some which the index does not know.
    async fn containers_of(
        &self,
        scope: &Scope,
        note: &mut (impl FnMut(ListedContainer, u64) + Send),
    ) -> Result<(), PassError> {
        let note = Mutex::new(note);
        let listings = scope.jobs.iter().map(|job| {
            let note = &note;
            async move {
                let note = |container: ListedContainer, made_ms: u64| (*note.lock())(container, made_ms);
                self.repository.list_containers_of_timed(*job, note).await
            }
        });
        let mut listings = futures::stream::iter(listings).buffered(CONCURRENT_READS);
        while let Some(listed) = listings.next().await {
            listed?;
        }
        Ok(())
    }

    /// Until when an object of this age waits; `None`: it is old enough (`OldEnough`). Without a
    /// time from the store it is kept.
    pub(super) fn waits_until(&self, made_ms: u64, now_ms: u64) -> Option<u64> {
        let min_age_ms = u64::try_from(self.min_age.as_millis()).unwrap_or(u64::MAX);
        let until_ms = if made_ms == 0 { u64::MAX } else { made_ms.saturating_add(min_age_ms) };
        let is_old = min_age_ms == 0 || until_ms <= now_ms;
        (!is_old && self.repository.keeps(Rule::OldEnough)).then_some(until_ms)
    }

    /// A listing of the jobs that lacks the pass itself may lack anything.
    fn expect_own(&self, jobs: &BTreeMap<JobId, ListedJob>) -> Result<(), PassError> {
        let is_there = self.own.is_none_or(|own| jobs.contains_key(&own));
        if is_there || !self.repository.keeps(Rule::AskedTwice) { Ok(()) } else { Err(PassError::Overtaken) }
    }

    /// Step 4.
    pub(super) async fn leases(&self, before: &Before) -> Result<Leases, PassError> {
        let mut jobs = self.repository.list_jobs_twice().await?;
        self.expect_own(&jobs)?;
        let now_ms = self.store_now(&jobs);
        self.own.map(|own| jobs.remove(&own));
        let open = jobs.iter().filter(|(job, _)| !before.settled.contains(job));
        let looks = open.map(|(job, listed)| async move {
            if let Some(done) = self.done(*job, listed).await? {
                return Ok((*job, SeenJob::Closed(done)));
            }
            let mut seen = self.repository.see_lease(*job, &listed.renewals).await?;
            if matches!(seen, SeenLease::Gone) && self.repository.keeps(Rule::AskedTwice) {
                // The versions that it names are not known otherwise.
                seen = self.repository.see_lease(*job, &listed.renewals).await?;
            }
            Ok::<_, PassError>((*job, SeenJob::Lease(seen, self.is_dead(listed, now_ms))))
        });
        let looks: Vec<_> = futures::stream::iter(looks).buffer_unordered(CONCURRENT_READS).collect().await;
        let mut leases = Leases::default();
        for look in looks {
            match look? {
                (job, SeenJob::Closed(done)) => drop(leases.dones.insert(job, done)),
                (job, SeenJob::Lease(SeenLease::Open(lease), is_dead)) => {
                    let is_harmless = lease.kind == JobKind::Read || (lease.kind == JobKind::Task && !lease.is_signed);
                    if is_harmless && is_dead {
                        leases.expired.insert(job);
                    } else {
                        leases.live.insert(job, lease);
                    }
                }
                (_, SeenJob::Lease(SeenLease::Unreadable { name, error }, _)) => {
                    return Err(PassError::UnreadableLease { name, source: error });
                }
                // Closed since, or cleaned up by another pass. It was there, so its containers are
                // not touched this time.
                (_, SeenJob::Lease(SeenLease::Gone, _)) => {}
            }
        }
        leases.jobs = jobs;
        Ok(leases)
    }

    /// Step 5: reads every retained manifest that the index does not know. Containers that retained
    /// versions use are no longer candidates for deletion.
    pub(super) async fn versions(
        &self,
        registers: &BTreeMap<Pin, Vec<u32>>,
        mut prover: Prover<'_>,
        known_versions: &mut KnownVersions,
        proposal: &mut Proposal,
    ) -> Result<Versions, PassError> {
        if let Some((Pin { series, job }, generation)) = known_versions.lost(registers, |pin| proposal.is_marked(pin)) {
            // Unless another pass published and removed it meanwhile.
            if Current::look(self.repository).await?.snapshot.number != self.base.number {
                return Err(PassError::Overtaken);
            }
            let name = larder_format::names::version(series, job, generation);
            return Err(PassError::LostManifest { name, id: job });
        }
        let mut plans = Vec::new();
        for (pin, generations) in registers {
            if !proposal.must_read(pin, generations) {
                continue;
            }
            let (newest, is_alone) = (generations.last().copied().unwrap_or(0), generations.len() == 1);
            // If a lease names a version, more than its newest generation counts.
            let is_known = known_versions.knows(pin, newest) && !proposal.is_marked(pin);
            let is_proved = known_versions.proved(pin) == newest || self.takes_unproved();
            if is_known && is_proved && (is_alone || !proposal.is_named(pin)) {
                known_versions.retain(*pin);
                proposal.retain(*pin);
                proposal.supersede(*pin, newest);
            } else {
                plans.push((*pin, proposal.generations(pin, generations), known_versions.proved(pin)));
            }
        }
        // Without an index, or with a rebuilt one, retired containers of older generations are
        // unknown. A job that read such a generation may still need them. If they are missing,
        // their chunks are in containers that no version names.
        let knows_all = self.base.number > 0 && self.base.manifest.head.rebuilt.is_none();
        let mut seen = Versions::default();
        let reads = plans.into_iter().map(|(pin, generations, proved)| self.generations(pin, generations, proved));
        let mut reads = futures::stream::iter(reads).buffered(MANIFESTS_AHEAD);
        while let Some(read) = reads.next().await {
            let Generations { pin, mut committed, aborted, read } = read?;
            seen.manifests_read += read;
            let is_marked = proposal.is_marked(&pin);
            if !is_marked {
                seen.unproved.extend(self.prove(pin, &mut committed, &mut prover, known_versions).await?);
            }
            let holding = committed.iter().position(|read| read.is_proved).filter(|_| !is_marked);
            if let Some(holding) = holding {
                proposal.supersede(pin, committed[holding].generation_that_supersedes());
            }
            for (at, Generation { generation, contents, is_refuted, .. }) in committed.iter().enumerate() {
                // They are ordered from the newest down.
                let holds = holding == Some(at) || (!knows_all && !is_refuted);
                let why = if holds { Retained::Holds } else { Retained::Named };
                // Retired containers are kept for no version. Their forward targets are kept all
                // the same.
                let mut there = Vec::new();
                for usage in &contents.containers {
                    let container = usage.container;
                    if !known_versions.is_retired(&container)? {
                        there.push((container, known_versions.has_record(&container)?));
                    }
                }
                proposal.retain_generation(pin, *generation, why, &there)?;
            }
            if !self.repository.keeps(Rule::AbortedGenerationStays) {
                proposal.drop_aborted(pin, &aborted);
            }
            // Manifests of several generations, and those that only a lease retains, are read again
            // next time. What the index knows of them stays known, with its proof.
            let is_alone = committed.len() == 1;
            let is_only = holding.is_some_and(|holding| committed[holding].supersedes == Supersedes::Older);
            for (at, Generation { generation, contents, is_refuted, .. }) in committed.into_iter().enumerate() {
                let holds = holding == Some(at);
                if holds && (is_alone || is_only || known_versions.knows(&pin, generation)) {
                    known_versions.ingest(pin, generation, generation > 0, contents)?;
                } else if is_refuted {
                    known_versions.hold_aside(&contents);
                } else {
                    known_versions.hold(pin, generation, &contents);
                }
            }
        }
        let mut dropped = known_versions.prune(&|container| proposal.is_free(container))?;
        while let Some(batch) = dropped.batch().map_err(spilled)? {
            proposal.doom(batch)?;
        }
        for container in known_versions.used()? {
            let (_, container) = container?;
            proposal.keep(container)?;
        }
        Ok(seen)
    }

    /// Those generations of a version that are retained, from the newest down. `proved`: the
    /// highest one that the index knows as proved.
    async fn generations(
        &self,
        pin: Pin,
        wanted: Vec<(u32, Supersedes)>,
        proved: u32,
    ) -> Result<Generations, PassError> {
        let mut found = Generations { pin, committed: Vec::new(), aborted: Vec::new(), read: 0 };
        for (generation, supersedes) in wanted {
            let register = match self.repository.read_register(pin, generation).await {
                Ok(Some(register)) => register,
                Ok(None) => return Err(PassError::Overtaken),
                Err(error) if error.is_of_object() => {
                    let name = larder_format::names::version(pin.series, pin.job, generation);
                    return Err(PassError::UnreadableManifest { name, id: pin.job, source: error });
                }
                Err(error) => return Err(error.into()),
            };
            found.read += 1;
            let Register::Committed(manifest) = register else {
                found.aborted.push(generation);
                continue;
            };
            let is_proved = generation == 0
                || generation == proved
                || self.is_own(pin, generation, manifest.summary.attempt, proved)
                || self.takes_unproved();
            let ends = is_proved && supersedes == Supersedes::Older;
            // Those above it are compared with it.
            let is_whole = !is_proved || !found.committed.is_empty();
            found.committed.push(Generation::of(generation, supersedes, is_proved, is_whole, manifest));
            if ends {
                break;
            }
        }
        Ok(found)
    }

    /// Whether no generation needs a proof.
    fn takes_unproved(&self) -> bool {
        self.trusts_signed || !self.repository.keeps(Rule::ProvedBeforeRetired)
    }

    /// Whether this process rewrote a generation from one that is proved.
    fn is_own(&self, pin: Pin, generation: u32, attempt: [u8; 16], proved: u32) -> bool {
        let from = self.repository.rewritten_from(pin, generation, attempt);
        from.is_some_and(|from| from == 0 || from == proved)
    }

    /// Proves the newest generations of a version, unless they are (`ProvedBeforeRetired`). Returns
    /// those that remain unproved. Older ones that a proved one supersedes are left out.
    async fn prove(
        &self,
        version: Pin,
        committed: &mut Vec<Generation>,
        prover: &mut Prover<'_>,
        known_versions: &KnownVersions,
    ) -> Result<Vec<Unproved>, PassError> {
        let mut unproved = Vec::new();
        // Without one, its job was aborted: there is no version.
        let Some(truth) = committed.iter().position(|read| read.is_proved) else { return Ok(unproved) };
        for at in 0..truth {
            let (above, below) = committed.split_at_mut(truth);
            let Generation { generation, manifest, is_proved, is_refuted, .. } = &mut above[at];
            let Some(candidate) = manifest.take() else { continue };
            let Some(truth) = below[0].manifest.clone() else { continue };
            let forwards = forwards_of(&candidate, known_versions)?;
            let Some(why) = prover.prove(&candidate, Known { truth, forwards }).await? else {
                *is_proved = true;
                if above[at].supersedes == Supersedes::Older {
                    committed.truncate(at + 1);
                }
                break;
            };
            *is_refuted = matches!(why, WhyUnproved::Refuted { .. });
            let generation = *generation;
            let name = larder_format::names::version(version.series, version.job, generation);
            tracing::warn!(%name, ?why, "this generation of a manifest is not proved; the lower one stays");
            unproved.push(Unproved { version, generation, why });
        }
        Ok(unproved)
    }

    /// The observations that are made after the leases instead of before them, where tests disable
    /// a rule.
    pub(super) async fn look_late(&self, before: &mut Before) -> Result<(), PassError> {
        let keeps = |rule| self.repository.keeps(rule);
        let [settled, marks, containers, superseded] = [
            Rule::SettledBeforeLeases,
            Rule::MarksBeforeLeases,
            Rule::ContainersBeforeLeases,
            Rule::SupersededBeforeLeases,
        ]
        .map(keeps);
        if settled && marks && containers && superseded {
            return Ok(());
        }
        let (mut late, seen) = self.jobs_and_marks().await?;
        self.containers(&mut late, &seen).await?;
        if !settled {
            before.settled = late.settled;
        }
        if !marks {
            before.marks = late.marks;
        }
        if !containers {
            before.containers = std::mem::take(&mut late.containers);
            (before.unknown, before.is_listed_whole) = (late.unknown, late.is_listed_whole);
        }
        if !superseded {
            before.registers = late.registers;
        }
        Ok(())
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

/// The state of a job that was not settled before.
enum SeenJob {
    Closed(Done),
    /// And whether it looks dead.
    Lease(SeenLease, bool),
}

/// The result of reading the versions.
#[derive(Debug, Default)]
pub(super) struct Versions {
    pub(super) manifests_read: u64,
    /// Generations that are not proved.
    pub(super) unproved: Vec<Unproved>,
}

/// The retired containers that a manifest names, with those that hold their chunks now.
fn forwards_of(manifest: &Manifest, known_versions: &KnownVersions) -> Result<Forwards, PassError> {
    let mut forwards = Forwards::default();
    for usage in &manifest.containers {
        if known_versions.is_retired(&usage.container)? {
            forwards.insert(usage.container, known_versions.forwards_of(&usage.container)?);
        }
    }
    Ok(forwards)
}

/// The generations of a version that were read, from the newest down.
struct Generations {
    pin: Pin,
    committed: Vec<Generation>,
    aborted: Vec<u32>,
    /// How many manifests and marks were read.
    read: u64,
}

/// One of them.
struct Generation {
    generation: u32,
    supersedes: Supersedes,
    is_proved: bool,
    is_refuted: bool,
    contents: Contents,
    /// The whole of it, if it is not proved or is what another is compared with.
    manifest: Option<Arc<Manifest>>,
}

impl Generation {
    fn of(generation: u32, supersedes: Supersedes, is_proved: bool, is_whole: bool, manifest: Manifest) -> Self {
        let whole = is_whole.then(|| Arc::new(manifest.clone()));
        let contents = Contents::from(manifest);
        Self { generation, supersedes, is_proved, is_refuted: false, contents, manifest: whole }
    }

    /// The number below which generations are superseded, if this one holds.
    fn generation_that_supersedes(&self) -> u32 {
        if self.supersedes == Supersedes::Older { self.generation } else { 0 }
    }
}
