//! Rebuilds the index from containers and versions alone.
//!
//! For an index that is damaged or lost. Of the old one only the counters are used, so that no
//! number is used again. Nothing is deleted. It is published like the index of a pass, so if a
//! rebuild and a pass run at once, one wins.
//!
//! Only an index knows which containers were retired, and a delete may be under way for as long as
//! a store likes. So a rebuilt index marks all containers that it found: they may never become
//! redirect targets (`RebuiltKeepsCopies`, `IndexHead::rebuilt`), and no copy is retired here. The
//! new places of chunks whose containers are gone are found again (`repair::moved`). That includes
//! chunks that only a running job needs, as its lease says (`RebuildAsksLeases`).
//!
//! A version or container that cannot be read is reported and left out: passes stop at such a
//! version until it is repaired or forgotten.

mod container_names;
mod moved;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;

use futures::StreamExt;
use larder_format::ids::{ContainerId, JobId};
use larder_format::index_manifest::{ContainerList, IndexManifest, LIST_MAX, PassStatistics};
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::manifest::{ContainerUsage, Manifest, Register, Summary};
use larder_format::names;
use larder_index::{Current, Draft, IndexError, IndexPass, IndexSnapshot, PassRuns, Published, State, Turn, publish};
use larder_job::{Cancel, Ending, JobContext, LeaseKeeper};
use larder_store::generations::NOT_A_GENERATION;
use larder_store::repository::random;
use larder_store::rules::Rule;
use larder_store::survey::SeenLease;
use larder_store::{Repository, RepositoryError};

use crate::error::{PassError, stop_if_asked};
use crate::index_check::{IndexCheck, index_check};
use crate::known_versions::{Contents, KnownVersions};
use crate::retries::until_won;
use crate::tables::{IndexWork, Limits, MEMORY_DEFAULT, copying, index_pass};
use crate::tables::{WithChunks, discard, with_chunks};

/// Manifests that are read at once.
const MANIFESTS_AHEAD: usize = 4;

/// Of the memory, one part in this number holds names of containers.
const NAMES_ONE_IN: usize = 16;

/// Leases that are read at once.
const LEASES_AHEAD: usize = 32;

/// A rebuilt index.
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// Its number; `None` when another task published at the same time, and nothing was done.
    pub number: Option<u64>,
    /// Versions in it.
    pub versions: u64,
    /// Containers in it.
    pub containers: u64,
    /// Chunks in those, copies included.
    pub chunks: u64,
    /// Different chunks.
    pub different_chunks: u64,
    /// Containers that versions name, that are gone, and whose chunks were all found elsewhere.
    pub reclaimed: u64,
    /// Containers in it that no version names and that hold chunks of retired containers.
    pub unnamed: u64,
    /// Chunks that versions need and that were not found.
    pub lost_chunks: u64,
    /// Versions that could not be read.
    pub unreadable_versions: Vec<(JobId, RepositoryError)>,
    /// Containers that could not be read, or that versions need and that are gone.
    pub unreadable_containers: Vec<(ContainerId, RepositoryError)>,
}

/// How a rebuild ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuildEnded {
    /// The index is there, and has everything.
    Done,
    /// The index is there. Something could not be read, or chunks are lost.
    Damage,
    /// Passes were faster every time. Nothing was changed.
    Lost,
}

impl Rebuilt {
    /// How the rebuild ended.
    pub fn ended(&self) -> RebuildEnded {
        let is_whole =
            self.lost_chunks == 0 && self.unreadable_versions.is_empty() && self.unreadable_containers.is_empty();
        match (self.number, is_whole) {
            (None, _) => RebuildEnded::Lost,
            (Some(_), true) => RebuildEnded::Done,
            (Some(_), false) => RebuildEnded::Damage,
        }
    }
}

/// Rebuilds the index and publishes it. If a pass is faster, it starts again, a few times.
///
/// # Errors
///
/// The repository or the index failed, or the rebuild was interrupted. Nothing was published then.
pub async fn rebuild_until_won(context: &JobContext) -> Result<Rebuilt, PassError> {
    let is_lost = |result: &Result<Rebuilt, _>| matches!(result, Ok(rebuilt) if rebuilt.number.is_none());
    until_won(async || rebuild(context).await, is_lost).await
}

/// Rebuilds the index and publishes it.
pub async fn rebuild(context: &JobContext) -> Result<Rebuilt, PassError> {
    rebuild_within(context, MEMORY_DEFAULT).await
}

/// The same with this much memory for tables.
pub(crate) async fn rebuild_within(context: &JobContext, memory: usize) -> Result<Rebuilt, PassError> {
    let repository = context.repository.through(context.repository.store().without_cache());
    // The number comes before everything else (`PublishFirst`).
    let current = Current::settle(&repository).await?;
    let claimed = match current.state {
        State::Whole if current.snapshot.number > 0 => 0,
        // A pass that began before the loss may still publish the number that it claims.
        _ => highest_claim(&repository).await?,
    };
    let turn = current.turn_of_rebuild(claimed)?;
    let number = turn.number;
    let lease = context.lease_of_task(number);
    let job = JobId::new(lease.written_ms, random(repository.entropy())?);
    let context = &context.through(&repository);
    let work = async {
        let mut may_appear = false;
        let rebuilt = rebuild_announced(context, memory, current.snapshot, &turn, job, &mut may_appear).await;
        // While its index may still be created, the lease names that number.
        (rebuilt, if may_appear { Ending::Open } else { Ending::Removed })
    };
    LeaseKeeper::hold(context, job, lease, work).await
}

/// The highest number that a pass which announced itself, and did not close its lease, would
/// publish.
async fn highest_claim(repository: &Repository) -> Result<u64, RepositoryError> {
    let jobs = repository.list_jobs().await?;
    let open = jobs.iter().filter(|(_, listed)| !listed.has_done);
    let reads = open.map(|(job, listed)| repository.see_lease(*job, &listed.renewals));
    let mut reads = futures::stream::iter(reads).buffer_unordered(LEASES_AHEAD);
    let mut highest = 0;
    while let Some(seen) = reads.next().await {
        // A number that no operator claims is not taken for one: it may be the last there is.
        if let SeenLease::Open(lease) = seen?
            && lease.is_signed
        {
            highest = highest.max(lease.claims.unwrap_or(0));
        }
    }
    Ok(highest)
}

async fn rebuild_announced(
    context: &JobContext,
    memory: usize,
    old: IndexSnapshot,
    turn: &Turn,
    job: JobId,
    may_appear: &mut bool,
) -> Result<Rebuilt, PassError> {
    let repository = &context.repository;
    let mut rebuilt = Rebuilt::default();
    let work = IndexWork { executor: &context.executor, repository, limits: Limits::of_memory(memory) };
    let base = without_tables(&old.manifest);
    let mut known_versions = KnownVersions::load(work, &base).await?;
    let named = ingest_versions(repository, &mut known_versions, &context.cancel, &mut rebuilt).await?;
    known_versions.prune(&|_| true)?;
    for (layout, containers) in named {
        known_versions.ingest_named(&containers, layout)?.ok_or(PassError::UnknownTables)?;
    }
    stop_if_asked(&context.cancel)?;
    // After the versions, or uploads of a new one would look as if they were gone.
    let search = moved::look(repository, &mut known_versions, memory / NAMES_ONE_IN).await?;
    let search = Arc::new(search);
    let is_complete = search.is_complete() && rebuilt.unreadable_versions.is_empty();
    let unread = search.unread()?;
    stop_if_asked(&context.cancel)?;
    let mut written = known_versions.write(work, job, context.clock.now_ms(), &base.manifest).await?;
    let mut manifest = (*base.manifest).clone();
    manifest.head.pass = job;
    manifest.head.time_ms = context.clock.now_ms();
    manifest.head.host.clone_from(&context.identity.host);
    manifest.head.program.clone_from(&context.identity.program);
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
    let reading = copying(context, NonZeroUsize::MIN);
    let searched = search.clone();
    let find = move |pass: &IndexPass, draft: &mut Draft<'_>| moved::find(pass, draft, &searched, &reading);
    let WithChunks { mut manifest, ingested, left_over, then: found } =
        with_chunks(work, ids, manifest, first_new, sketches, find).await?;
    rebuilt.reclaimed = found.reclaimed.len();
    (rebuilt.unnamed, rebuilt.lost_chunks) = (found.unnamed, found.lost_chunks);
    manifest.head.missing = Some(found.missing).filter(|missing| *missing > 0);
    let unreadable: HashSet<ContainerId> = ingested.unreadable.iter().map(|(id, _)| *id).collect();
    // Its tables were read, so the listings and the look at its name were wrong.
    for gone in search.gone() {
        let gone = gone?;
        if !gone.is_arranged() && !unreadable.contains(&gone.id) {
            return Err(PassError::WrongListing { name: names::container(gone.id) });
        }
    }
    // Only a complete search may say that the rest is lost for good (`MissingStops`).
    let mut is_complete = is_complete && found.is_complete;
    for id in &unreadable {
        is_complete = is_complete && search.number_of_gone(id)?.is_some();
    }
    let lost = search.gone().filter(|gone| !matches!(gone, Ok(gone) if found.reclaimed.contains(gone.number)));
    // More than it can name are as good as one more.
    let lost = lost.take(LIST_MAX + 1).map(|gone| gone.map(|gone| gone.id));
    let lost: Vec<ContainerId> = lost.collect::<Result<_, _>>()?;
    manifest.head.searched = ContainerList::of(lost).filter(|_| is_complete);
    manifest.head.unread = unread;
    rebuilt.containers = ingested.containers;
    rebuilt.chunks = ingested.chunks;
    rebuilt.different_chunks = ingested.new_chunks;
    let is_lost = |id: &ContainerId| match search.number_of_gone(id)? {
        Some(number) => Ok::<_, IndexError>(!found.reclaimed.contains(number)),
        None => Ok(true),
    };
    for (id, error) in ingested.unreadable {
        if is_lost(&id)? {
            rebuilt.unreadable_containers.push((id, error));
        }
    }
    stop_if_asked(&context.cancel)?;
    *may_appear = true;
    match publish(repository, turn, manifest).await? {
        Published::Won { all_answered, .. } => {
            *may_appear = !all_answered;
            rebuilt.number = Some(turn.number);
            discard(repository, left_over).await?;
        }
        Published::Lost | Published::Overtaken { .. } => *may_appear = false,
    }
    Ok(rebuilt)
}

/// An empty index that continues the counters of another one.
fn without_tables(old: &IndexManifest) -> IndexSnapshot {
    let mut manifest = (*IndexSnapshot::empty().manifest).clone();
    manifest.head.next_version = old.head.next_version;
    manifest.head.next_container = old.head.next_container;
    manifest.head.next_age = old.head.next_age;
    IndexSnapshot { number: 0, manifest: Arc::new(manifest) }
}

/// The containers of a generation that only a lease retains.
type Named = (Layout, Vec<ContainerUsage>);

/// The versions that open leases name: those that their jobs build on or read, forgotten or not
/// (`RebuildAsksLeases`).
async fn named_versions(repository: &Repository) -> Result<BTreeSet<Pin>, RepositoryError> {
    if !repository.keeps(Rule::RebuildAsksLeases) {
        return Ok(BTreeSet::new());
    }
    let jobs = repository.list_jobs().await?;
    let open = jobs.iter().filter(|(_, listed)| !listed.has_done);
    let reads = open.map(|(job, listed)| repository.see_lease(*job, &listed.renewals));
    let mut reads = futures::stream::iter(reads).buffer_unordered(LEASES_AHEAD);
    let mut named = BTreeSet::new();
    while let Some(seen) = reads.next().await {
        // Passes stop at one that does not open.
        if let SeenLease::Open(lease) = seen? {
            named.extend(lease.pins);
        }
    }
    Ok(named)
}

/// Whether a manifest is a later generation of a version's first. Where that cannot be read, any
/// stands in for it. `first` is the summary of generation 0, once it was read.
async fn is_of_version(
    repository: &Repository,
    version: Pin,
    later: &Manifest,
    first: &mut Option<Option<Summary>>,
) -> Result<bool, RepositoryError> {
    if first.is_none() {
        *first = Some(match repository.read_register(version, 0).await {
            Ok(Some(Register::Committed(manifest))) => Some(manifest.summary),
            Ok(Some(Register::Aborted) | None) => None,
            Err(error) if error.is_of_object() => None,
            Err(error) => return Err(error),
        });
    }
    Ok(first.iter().flatten().all(|first| later.summary.is_generation_of(first)))
}

/// Ingests the newest manifest of every version that is not forgotten, in the order of their jobs.
/// Returns the other manifests that count: all generations of versions that leases name.
async fn ingest_versions(
    repository: &Repository,
    known_versions: &mut KnownVersions,
    cancel: &Cancel,
    rebuilt: &mut Rebuilt,
) -> Result<Vec<Named>, PassError> {
    let named = named_versions(repository).await?;
    // Marks before versions. A version that is removed between the listings is then missing, never
    // restored.
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
    let mut made_ms = BTreeMap::new();
    let registers = repository.list_registers_timed(|version, time_ms| made_ms.extend([(version, time_ms)])).await?;
    known_versions.note_made(made_ms);
    let mut wanted: Vec<_> = registers
        .into_iter()
        .filter(|(pin, generations)| (!marks.contains(pin) || named.contains(pin)) && generations.first() == Some(&0))
        .collect();
    wanted.sort_by_key(|(pin, _)| pin.job);
    let reads = wanted.into_iter().map(|(pin, generations)| {
        let is_named = named.contains(&pin);
        async move {
            let (mut unreadable, mut committed, mut first) = (None, Vec::new(), None);
            for generation in generations.into_iter().rev() {
                match repository.read_register(pin, generation).await {
                    Ok(Some(Register::Committed(manifest))) => {
                        if generation > 0 && !is_of_version(repository, pin, &manifest, &mut first).await? {
                            let name = names::version(pin.series, pin.job, generation);
                            let source = NOT_A_GENERATION;
                            unreadable = unreadable.or(Some(RepositoryError::Damaged { name, source }));
                            continue;
                        }
                        committed.push((generation, Contents::from(manifest)));
                        // Of others the newest counts alone.
                        if !is_named {
                            break;
                        }
                    }
                    Ok(Some(Register::Aborted) | None) => {}
                    Err(error) if error.is_of_object() => unreadable = unreadable.or(Some(error)),
                    Err(error) => return Err(error),
                }
            }
            Ok((pin, committed, unreadable))
        }
    });
    let mut reads = futures::stream::iter(reads).buffered(MANIFESTS_AHEAD);
    let mut held = Vec::new();
    while let Some(read) = reads.next().await {
        stop_if_asked(cancel)?;
        let (pin, committed, unreadable) = read?;
        for (at, (generation, contents)) in committed.into_iter().enumerate() {
            if at == 0 && !marks.contains(&pin) {
                known_versions.ingest(pin, generation, false, contents)?;
                rebuilt.versions += 1;
            } else {
                known_versions.hold(pin, generation, &contents);
                held.push((contents.layout, contents.containers));
            }
        }
        rebuilt.unreadable_versions.extend(unreadable.map(|error| (pin.job, error)));
    }
    Ok(held)
}

/// Compares the newest index with containers and versions.
pub async fn compare(context: &JobContext) -> Result<(u64, IndexCheck), PassError> {
    let repository = context.repository.through(context.repository.store().without_cache());
    let index = Current::look(&repository).await?.base()?;
    let limits = Limits::of_memory(MEMORY_DEFAULT);
    let work = IndexWork { executor: &context.executor, repository: &repository, limits };
    let compared = move |io| {
        // It writes nothing, so its runs need no name.
        let pass: IndexPass = index_pass(io, PassRuns::new(JobId([0; 16])), limits);
        Ok::<_, IndexError>((index.number, index_check(&pass, &index)?))
    };
    work.run(compared).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_ends_as_lost_or_with_damage_or_well() {
        let ended = |rebuilt: Rebuilt| rebuilt.ended();
        assert_eq!(ended(Rebuilt::default()), RebuildEnded::Lost);
        let published = || Rebuilt { number: Some(3), ..Rebuilt::default() };
        assert_eq!(ended(published()), RebuildEnded::Done);
        assert_eq!(ended(Rebuilt { lost_chunks: 1, ..published() }), RebuildEnded::Damage);
        let unreadable_versions = vec![(JobId([1; 16]), RepositoryError::NoKeys)];
        assert_eq!(ended(Rebuilt { unreadable_versions, ..published() }), RebuildEnded::Damage);
        assert_eq!(ended(Rebuilt { lost_chunks: 1, ..Rebuilt::default() }), RebuildEnded::Lost);
    }
}
