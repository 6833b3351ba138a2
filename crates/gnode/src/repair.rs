//! The index made anew, from containers and versions alone.
//!
//! For an index that is damaged or lost. Nothing of the old one is used but its counters, so that no number is used again; nothing
//! is deleted; and it is published as a pass publishes, so of a rebuild and a pass that run at once one wins.
//!
//! That something was given up is known to an index alone, and a delete may be under way for as long as a store likes. So a rebuilt
//! index says of all containers it found that nothing may ever be led to them (`RebuiltKeepsCopies`, `IndexHead::rebuilt`), and no
//! copy is given up here. Where the chunks of containers went that are gone is found out again (`repair::moved`).
//!
//! A version or container that cannot be read is told and left out: passes stop at such a version until it is repaired or forgotten.

mod moved;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use futures::StreamExt;
use larder_format::ids::{ContainerId, JobId};
use larder_format::index_manifest::{IndexManifest, PassStatistics};
use larder_format::manifest::Register;
use larder_index::{Draft, IndexError, IndexPass, IndexSnapshot, PassRuns, Published, publish};
use larder_store::repository::random;
use larder_store::survey::SeenLease;
use larder_store::{Repository, RepositoryError};

use crate::agreement::{Agreement, agreement};
use crate::pass::ledger::Ledger;
use crate::pass::run::renewing;
use crate::pass::tables::{IndexWork, Limits, MEMORY_DEFAULT, index_pass};
use crate::pass::tables::{WithChunks, discard, with_chunks};
use crate::pass::{PassError, Surroundings};

/// Manifests that are read at once.
const MANIFESTS_AHEAD: usize = 4;

/// Leases that are read at once.
const LEASES_AHEAD: usize = 32;

/// A rebuilt index.
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// Its number; `None` when somebody else published at the same time, and nothing was done.
    pub number: Option<u64>,
    /// Versions in it.
    pub versions: u64,
    /// Containers in it.
    pub containers: u64,
    /// Chunks in those, copies included.
    pub chunks: u64,
    /// Different chunks.
    pub different_chunks: u64,
    /// Containers that versions name, that are gone, and of which everything was found elsewhere.
    pub given_up: u64,
    /// Containers in it that no version names and that hold what was given up.
    pub unnamed: u64,
    /// Chunks that versions need and that are nowhere.
    pub lost_chunks: u64,
    /// Versions that could not be read.
    pub unreadable_versions: Vec<(JobId, RepositoryError)>,
    /// Containers that could not be read, or that versions need and that are gone.
    pub unreadable_containers: Vec<(ContainerId, RepositoryError)>,
}

/// Makes the index anew and publishes it.
pub async fn rebuild(surroundings: &Surroundings) -> Result<Rebuilt, PassError> {
    rebuild_within(surroundings, MEMORY_DEFAULT).await
}

/// The same with so much memory for tables.
pub(crate) async fn rebuild_within(surroundings: &Surroundings, memory: usize) -> Result<Rebuilt, PassError> {
    let repository = surroundings.repository.through(surroundings.repository.store().without_cache());
    // The number comes before everything else (`PublishFirst`).
    let mut newest = IndexSnapshot::newest(&repository).await?;
    if newest.highest == 0 {
        // What was lost may have had a high number, and a pass that began before may still publish the one after it.
        newest.highest = highest_claim(&repository).await?;
    }
    let number = newest.next_number()?;
    let lease = surroundings.lease(number);
    let job = JobId::new(lease.written_ms, random(repository.entropy())?);
    let mut open = repository.open_lease(job, lease).await?;
    let mut may_appear = false;
    let work = rebuild_announced(surroundings, &repository, memory, newest.snapshot, number, job, &mut may_appear);
    let rebuilt = renewing(&repository, &mut open, &*surroundings.now_ms, work).await;
    // As long as the index may still come to be created, the lease says what it belongs to.
    if !may_appear {
        match repository.end_task(&open).await {
            Err(error) if rebuilt.is_ok() => return Err(error.into()),
            Err(error) => tracing::debug!(%error, "the lease of the rebuild was left behind"),
            Ok(()) => {}
        }
    }
    rebuilt
}

/// The highest number that a pass which announced itself, and did not close its lease, would publish.
async fn highest_claim(repository: &Repository) -> Result<u64, RepositoryError> {
    let jobs = repository.list_jobs().await?;
    let open = jobs.iter().filter(|(_, listed)| !listed.has_done);
    let reads = open.map(|(job, listed)| repository.see_lease(*job, &listed.renewals));
    let mut reads = futures::stream::iter(reads).buffer_unordered(LEASES_AHEAD);
    let mut highest = 0;
    while let Some(seen) = reads.next().await {
        if let SeenLease::Open(lease) = seen? {
            highest = highest.max(lease.claims.unwrap_or(0));
        }
    }
    Ok(highest)
}

async fn rebuild_announced(
    surroundings: &Surroundings,
    repository: &Repository,
    memory: usize,
    old: IndexSnapshot,
    number: u64,
    job: JobId,
    may_appear: &mut bool,
) -> Result<Rebuilt, PassError> {
    let mut rebuilt = Rebuilt::default();
    let work = IndexWork { executor: surroundings.executor, repository, limits: Limits::of_memory(memory) };
    let stop = || if (surroundings.stop)() { Err(PassError::Interrupted) } else { Ok(()) };
    let base = without_tables(&old.manifest);
    let mut ledger = Ledger::load(work, &base).await?;
    ingest_versions(repository, &mut ledger, &stop, &mut rebuilt).await?;
    ledger.prune(&|_| true);
    stop()?;
    // After the versions, or what a new one uploaded would look as if it were gone.
    let search = moved::look(repository, &mut ledger).await?;
    stop()?;
    let mut written = ledger.write(work, job, &base.manifest).await?;
    let mut manifest = (*base.manifest).clone();
    manifest.head.pass = job;
    manifest.head.time_ms = (surroundings.now_ms)();
    manifest.head.host.clone_from(&surroundings.host);
    manifest.head.program.clone_from(&surroundings.program);
    manifest.head.statistics = PassStatistics {
        containers: written.containers,
        versions_ingested: written.ingested,
        ..PassStatistics::default()
    };
    manifest.head.next_version = written.next_version;
    manifest.head.next_container = written.next_container;
    manifest.head.next_age = written.next_age;
    manifest.head.rebuilt = Some(written.next_container);
    (manifest.versions, manifest.runs) = (written.versions, written.runs);
    let (ids, sketches) = (written.ids, std::mem::take(&mut written.sketches));
    let first_new = base.manifest.head.next_container;
    let context = surroundings.context(repository, NonZeroUsize::MIN);
    let find = move |pass: &IndexPass, draft: &mut Draft<'_>| moved::find(pass, draft, &search, &context);
    let WithChunks { mut manifest, ingested, left_over, then: found } =
        with_chunks(work, ids, manifest, first_new, sketches, find).await?;
    rebuilt.given_up = found.given_up.len() as u64;
    (rebuilt.unnamed, rebuilt.lost_chunks) = (found.unnamed, found.lost_chunks);
    manifest.head.missing = Some(found.missing).filter(|missing| *missing > 0);
    rebuilt.containers = ingested.containers;
    rebuilt.chunks = ingested.chunks;
    rebuilt.different_chunks = ingested.new_chunks;
    rebuilt.unreadable_containers = ingested.unreadable;
    rebuilt.unreadable_containers.retain(|(id, _)| !found.given_up.contains(id));
    stop()?;
    *may_appear = true;
    match publish(repository, number, manifest).await? {
        Published::Won { all_answered, .. } => {
            *may_appear = !all_answered;
            rebuilt.number = Some(number);
            discard(repository, left_over).await?;
        }
        Published::Lost | Published::Overtaken { .. } => *may_appear = false,
    }
    Ok(rebuilt)
}

/// An index that knows nothing, and goes on counting where another one stopped.
fn without_tables(old: &IndexManifest) -> IndexSnapshot {
    let mut manifest = (*IndexSnapshot::empty().manifest).clone();
    manifest.head.next_version = old.head.next_version;
    manifest.head.next_container = old.head.next_container;
    manifest.head.next_age = old.head.next_age;
    IndexSnapshot { number: 0, manifest: std::sync::Arc::new(manifest) }
}

/// Takes in the newest manifest of every version that is not forgotten, in the order of their jobs.
async fn ingest_versions(
    repository: &Repository,
    ledger: &mut Ledger,
    stop: &impl Fn() -> Result<(), PassError>,
    rebuilt: &mut Rebuilt,
) -> Result<(), PassError> {
    // Marks before versions: a version that is removed between the listings is then missing, never back from the dead.
    let mut marks = BTreeSet::new();
    for pin in repository.list_marks().await? {
        match repository.forgotten(pin).await {
            Ok(mark) => marks.extend(mark.map(|_| pin)),
            Err(error) if error.is_of_object() => {
                tracing::warn!(%error, "not a mark; the version it pretends to be about counts")
            }
            Err(error) => return Err(error.into()),
        }
    }
    let registers = repository.list_registers().await?;
    let mut wanted: Vec<_> = registers
        .into_iter()
        .filter(|(pin, generations)| !marks.contains(pin) && generations.first() == Some(&0))
        .collect();
    wanted.sort_by_key(|(pin, _)| pin.job);
    let reads = wanted.into_iter().map(|(pin, generations)| async move {
        let mut unreadable = None;
        for generation in generations.into_iter().rev() {
            match repository.read_register(pin, generation).await {
                Ok(Some(Register::Committed(manifest))) => {
                    return Ok((pin, Some((generation, manifest.into())), unreadable));
                }
                Ok(Some(Register::Aborted) | None) => {}
                Err(error) if error.is_of_object() => unreadable = unreadable.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Ok((pin, None, unreadable))
    });
    let mut reads = futures::stream::iter(reads).buffered(MANIFESTS_AHEAD);
    while let Some(read) = reads.next().await {
        stop()?;
        let (pin, manifest, unreadable) = read?;
        if let Some((generation, contents)) = manifest {
            ledger.ingest(pin, generation, contents);
            rebuilt.versions += 1;
        }
        rebuilt.unreadable_versions.extend(unreadable.map(|error| (pin.job, error)));
    }
    Ok(())
}

/// Compares the newest index with containers and versions.
pub async fn compare(surroundings: &Surroundings) -> Result<(u64, Agreement), PassError> {
    let repository = surroundings.repository.through(surroundings.repository.store().without_cache());
    let index = IndexSnapshot::newest(&repository).await?.base()?;
    let limits = Limits::of_memory(MEMORY_DEFAULT);
    let work = IndexWork { executor: surroundings.executor, repository: &repository, limits };
    let compared = move |io| {
        // It writes nothing, so its runs need no name.
        let pass: IndexPass = index_pass(io, PassRuns::new(JobId([0; 16])), limits);
        Ok::<_, IndexError>((index.number, agreement(&pass, &index)?))
    };
    work.run(compared).await
}
