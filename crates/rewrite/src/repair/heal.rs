//! Restores chunks of damaged data containers from files that still have them.
//!
//! 1. A check finds the damaged and missing containers, and the versions that need them.
//! 2. The names (keyed fingerprints) of their lost chunks are read from the versions' recipes,
//!    which are whole.
//! 3. The source is read and cut as a backup would. Every chunk with one of these fingerprints is
//!    stored, as an upload of a separate job that never commits. The upload keeps them sealed while
//!    this repair runs.
//! 4. Each version gets a new generation of its manifest, over copies in its own containers or in
//!    those of versions healed before. This works like defragmenting (`docs/concurrency.md`). The
//!    copy is read back and checked against its fingerprint before anything refers to it. The
//!    generation appears whole or not at all, and the older one is unchanged until then.
//!
//! The readable chunks of a version in a damaged container are copied out of it too. So nothing
//! needs that container any more, and a pass deletes it. A chunk that the source does not have
//! stays at its recorded place.
//!
//! Equal names are equal bytes, so the source may consist of any files. Memory: 100 bytes for each
//! lost chunk, and for each chunk of one version in a damaged container.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use larder_format::compress::Compression;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::manifest::Manifest;
use larder_format::{ChunkRef, Fingerprint, names};
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_lnode::backup::{GoOn, collect};
use larder_reader::{MetaChunks, VersionReader, look, pin_of};
use larder_source::Walk;
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::jobs::CommitError;
use larder_store::repository::random;
use larder_writer::{Cutting, Destination, Packer, Pool, StopUploads, Uploads};

use super::sharing::{PutBack, newest_manifest};
use super::{RepairError, SHARED_ID};
use crate::check::{BadContainer, CheckOptions, CheckReport, Examined, ReadData, examine};
use crate::chunk_copier::{ChunkCopier, Placing, RewriteError};

/// Options of healing.
#[derive(Debug, Clone)]
pub struct HealOptions {
    /// Content to read, to find damage.
    pub read_data: ReadData,
    /// Only these versions; empty = all.
    pub versions: Vec<JobId>,
    /// Write nothing: only report the chunks that could be healed.
    pub dry_run: bool,
    /// How chunks are compressed.
    pub compression: Compression,
}

/// The outcome for one damaged version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealOutcome {
    /// It has a new generation, over the found chunks.
    Healed,
    /// It would get one.
    Planned,
    /// The source has none of its lost chunks.
    NotFound,
    /// It was forgotten or rewritten meanwhile.
    Overtaken,
    /// It cannot be read, or its losses are outside of data containers: the reason.
    Beyond(String),
}

/// A damaged version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealedVersion {
    /// Its id.
    pub id: JobId,
    /// Its series; empty when its manifest cannot be read.
    pub series: String,
    /// Distinct chunks that it lost.
    pub lost: u64,
    /// The number of them that were found.
    pub found: u64,
    /// Whether it lost metadata too, which is not restored.
    pub lost_metadata: bool,
    /// Its outcome.
    pub outcome: HealOutcome,
}

impl HealedVersion {
    /// Whether it is whole again, or would be.
    pub fn is_whole(&self) -> bool {
        matches!(self.outcome, HealOutcome::Healed | HealOutcome::Planned)
            && self.found == self.lost
            && !self.lost_metadata
    }
}

/// The results of healing.
#[derive(Debug, Clone, Default)]
pub struct HealReport {
    /// The results of the check.
    pub check: CheckReport,
    /// Distinct chunks that versions lost.
    pub lost: u64,
    /// The number of them that the source has.
    pub found: u64,
    /// Their bytes.
    pub found_bytes: u64,
    /// Versions that were damaged, the newest first.
    pub versions: Vec<HealedVersion>,
}

/// Restores the lost chunks that the files of `source` still have.
pub fn heal(context: &JobContext, source: Walk, options: &HealOptions) -> Result<HealReport, RepairError> {
    let store = context.repository.store().without_cache();
    let context = &JobContext { repository: context.repository.through(store), ..context.clone() };
    let wanted = CheckOptions { read_data: options.read_data, versions: options.versions.clone(), estimate: false };
    let Examined { report, bad, readable, chunks: known } = examine(context, &wanted)?;
    let shared = context.executor.block_on(context.repository.catalog())?.shared_ids();
    let mut suffering: BTreeMap<JobId, String> = BTreeMap::new();
    for version in report.damages.iter().flat_map(|damage| &damage.affected) {
        suffering.entry(version.id).or_insert_with(|| version.series.clone());
    }
    let in_metadata = report.damages.iter().filter(|damage| damage.object.starts_with(names::META));
    let without_metadata: BTreeSet<_> =
        in_metadata.flat_map(|damage| &damage.affected).map(|version| version.id).collect();
    let put_back = PutBack::default();
    let mut healing = Healing { context, options, bad: &bad, known, chunks: HashMap::new(), put_back };
    let mut versions = Vec::new();
    let mut healable = Vec::new();
    // The newest first, because it has chunks in the fewest containers.
    for (id, series) in suffering.into_iter().rev() {
        let lost_metadata = without_metadata.contains(&id);
        let mut healed = HealedVersion { id, series, lost: 0, found: 0, lost_metadata, outcome: HealOutcome::NotFound };
        match readable.iter().find(|version| version.id() == id) {
            None => healed.outcome = HealOutcome::Beyond("its manifest cannot be read".into()),
            Some(_) if shared.contains(&id) => healed.outcome = HealOutcome::Beyond(SHARED_ID.into()),
            Some(version) => match healing.want(version)? {
                Wanting::Chunks => healable.push((version.clone(), versions.len())),
                Wanting::Forgotten => healed.outcome = HealOutcome::Overtaken,
                Wanting::Metadata(why) => {
                    healed.outcome = HealOutcome::Beyond(format!("it lost metadata: {why}"));
                }
            },
        }
        versions.push(healed);
    }
    let mut report = HealReport { check: report, lost: healing.chunks.len() as u64, versions, ..HealReport::default() };
    if healable.is_empty() || healing.chunks.is_empty() {
        return Ok(report);
    }
    let keeper = if options.dry_run { None } else { Some(Keeper::open(context, &healable)?) };
    let result = healing.run(source, keeper.as_ref().map(|keeper| keeper.job), &healable, &mut report);
    if let Some(keeper) = keeper {
        // It never commits, so it is over in any case, and its uploads are garbage from here on.
        // After an error uploads may be under way.
        keeper.lease.end(if result.is_ok() { Ending::Closed(Done::nothing()) } else { Ending::Ended });
    }
    result.map(|()| report)
}

/// The job that keeps found chunks while the repair runs.
struct Keeper {
    job: JobId,
    lease: LeaseKeeper,
}

impl Keeper {
    fn open(context: &JobContext, healable: &[(Version, usize)]) -> Result<Self, RepairError> {
        let series = healable.first().map_or("", |(version, _)| &*version.summary.series);
        // A backup without a commit: its uploads stay until it ends, and do not count after an
        // interruption. A backup of the series that adopts them finds chunks that it may need.
        let lease = context.lease(JobKind::Backup, series);
        let job = JobId::new(lease.written_ms, random(context.repository.entropy())?);
        Ok(Self { job, lease: LeaseKeeper::open(context, job, lease)? })
    }
}

/// The losses of a version.
enum Wanting {
    /// Chunks of its data stream, which are requested from now on.
    Chunks,
    /// Metadata too: the reason why it is unreadable.
    Metadata(String),
    /// It does not exist any more.
    Forgotten,
}

struct Healing<'a> {
    context: &'a JobContext,
    options: &'a HealOptions,
    bad: &'a BTreeMap<ContainerId, BadContainer>,
    /// The present places of chunks.
    known: MetaChunks,
    /// Lost chunks, and the places of those that were found.
    chunks: HashMap<Fingerprint, Option<ChunkRef>>,
    put_back: PutBack,
}

impl Healing<'_> {
    fn is_lost(&self, chunk: &ChunkRef) -> bool {
        self.bad.get(&chunk.container).is_some_and(|bad| bad.covers(chunk))
    }

    /// Requests the losses of a version, if only chunks of its data are lost.
    fn want(&mut self, version: &Version) -> Result<Wanting, RepairError> {
        let Some(manifest) = self.context.executor.block_on(look(&self.context.repository, version))? else {
            return Ok(Wanting::Forgotten);
        };
        let reader = VersionReader::knowing(self.context, manifest, &self.known);
        let mut wanted = Vec::new();
        let read =
            each_in_bad(&reader, self.bad, |chunk| wanted.extend(self.is_lost(chunk).then_some(chunk.fingerprint)));
        match read {
            Ok(()) => {}
            Err(error) if error.is_damage() => return Ok(Wanting::Metadata(error.to_string())),
            Err(error) => return Err(error.into()),
        }
        self.chunks.extend(wanted.into_iter().map(|fingerprint| (fingerprint, None)));
        // A version with unreadable entries does not become whole by its contents, but no worse
        // either.
        Ok(Wanting::Chunks)
    }

    fn run(
        &mut self,
        source: Walk,
        job: Option<JobId>,
        healable: &[(Version, usize)],
        report: &mut HealReport,
    ) -> Result<(), RepairError> {
        self.find(source, job)?;
        report.found = self.chunks.values().flatten().count() as u64;
        report.found_bytes = self.chunks.values().flatten().map(|chunk| u64::from(chunk.size)).sum();
        for (version, place) in healable {
            if self.context.cancel.is_cancelled() {
                return Err(RepairError::Interrupted);
            }
            self.version(version, &mut report.versions[*place])?;
        }
        Ok(())
    }

    /// Reads the source and keeps the requested chunks.
    fn find(&mut self, source: Walk, job: Option<JobId>) -> Result<(), RepairError> {
        let context = self.context;
        let repository = &context.repository;
        let cutting = Cutting::new(repository.config(), repository.keys()).ok_or(RepairError::WorkerDied)?;
        let uploads = Uploads::new(repository.clone(), context.executor.clone(), context.cancel.clone());
        let _stop = StopUploads(uploads.clone());
        let pool = Pool::new(context, self.options.compression).map_err(|_| RepairError::NoThreads)?;
        let destination = match job {
            Some(_) => {
                Destination::Store { pool: pool.handle().ok_or(RepairError::WorkerDied)?, uploads: uploads.clone() }
            }
            None => Destination::Nowhere,
        };
        let mut packer = Packer::new(destination, ContainerKind::Data, job.unwrap_or(JobId([0; 16])));
        let mut missing = self.chunks.len();
        let chunks = &mut self.chunks;
        collect(context, source, &cutting, &pool, &mut |fingerprint, bytes| {
            if let Some(place @ None) = chunks.get_mut(fingerprint) {
                *place = Some(packer.push(*fingerprint, bytes)?);
                missing -= 1;
            }
            Ok(if missing == 0 { GoOn::No } else { GoOn::Yes })
        })?;
        packer.close()?;
        if uploads.wait_unless_cancelled()? { Ok(()) } else { Err(RepairError::Interrupted) }
    }

    /// Heals one version.
    fn version(&mut self, version: &Version, healed: &mut HealedVersion) -> Result<(), RepairError> {
        let Some(manifest) = self.context.executor.block_on(look(&self.context.repository, version))? else {
            healed.outcome = HealOutcome::Overtaken;
            return Ok(());
        };
        let hurt = self.hurt(manifest)?;
        let mut owners = BTreeSet::new();
        for (fingerprint, place) in &hurt {
            if self.is_lost(place) {
                healed.lost += 1;
                healed.found += u64::from(matches!(self.chunks.get(fingerprint), Some(Some(_))));
            }
            self.put_back.owner(version, fingerprint, &mut owners);
        }
        if healed.found == 0 {
            return Ok(());
        }
        if self.options.dry_run {
            healed.outcome = HealOutcome::Planned;
            return Ok(());
        }
        let (repository, pin) = (&self.context.repository, pin_of(version));
        // The number is chosen before the lease, which has to name it. If it is taken by then, the
        // work is lost.
        let generation = self.context.executor.block_on(repository.next_generation(pin))?;
        healed.outcome = match self.announce(version, &hurt, &owners, generation) {
            // A pass took this task for dead, and deleted its containers.
            Ok(HealOutcome::Beyond(_)) | Err(_)
                if self.context.executor.block_on(repository.is_fenced(pin, generation)) =>
            {
                HealOutcome::Overtaken
            }
            Ok(outcome) => outcome,
            // Damage that only a full read would have found: the version is unchanged.
            Err(RepairError::Repository(error)) if error.is_damage() => HealOutcome::Beyond(error.to_string()),
            Err(error) => return Err(error),
        };
        if healed.outcome == HealOutcome::Healed {
            self.look_again(version, healed)?;
        }
        Ok(())
    }

    /// The chunks of a version in damaged containers, by fingerprint, with their places. Its recipe
    /// may name other containers, which a pass retired. Of several copies, a lost one counts.
    fn hurt(&self, manifest: Manifest) -> Result<HashMap<Fingerprint, ChunkRef>, RepositoryError> {
        let reader = VersionReader::knowing(self.context, manifest, &self.known);
        let mut hurt = HashMap::new();
        each_in_bad(&reader, self.bad, |chunk| {
            let place = hurt.entry(chunk.fingerprint).or_insert(*chunk);
            if self.is_lost(chunk) {
                *place = *chunk;
            }
        })?;
        Ok(hurt)
    }

    /// Nobody must delete the source because of a wrong count: what the healed version still lacks
    /// was not put back.
    fn look_again(&self, version: &Version, healed: &mut HealedVersion) -> Result<(), RepairError> {
        let Some(manifest) = self.context.executor.block_on(newest_manifest(self.context, version))? else {
            healed.outcome = HealOutcome::Overtaken;
            return Ok(());
        };
        let left = self.hurt(manifest)?.values().filter(|chunk| self.is_lost(chunk)).count() as u64;
        healed.found = healed.found.min(healed.lost.saturating_sub(left));
        Ok(())
    }

    /// Announces and creates the new generation of a version.
    fn announce(
        &mut self,
        version: &Version,
        hurt: &HashMap<Fingerprint, ChunkRef>,
        owners: &BTreeSet<usize>,
        generation: u32,
    ) -> Result<HealOutcome, RepairError> {
        let context = self.context;
        let pin = pin_of(version);
        let lease = Lease {
            pins: [vec![pin], self.put_back.pins(owners)].concat(),
            generation: Some(generation),
            domain: version.summary.domain,
            ..context.lease(JobKind::Task, &version.summary.series)
        };
        let job = JobId::new(lease.written_ms, random(context.repository.entropy())?);
        let keeper = LeaseKeeper::open(context, job, lease)?;
        let task = Task { job, pin, generation };
        let result = self.announced(version, hurt, owners, &task);
        keeper.end(match &result {
            Ok((HealOutcome::Healed, true)) => Ending::Closed(Done::committed_generation(pin, generation)),
            Ok((_, true)) => Ending::Closed(Done::nothing()),
            Err(_) => Ending::Ended,
            _ => Ending::Open,
        });
        result.map(|(outcome, _)| outcome)
    }

    /// Named containers with chunks in a damaged one.
    fn suffering(&self, manifest: &Manifest) -> Result<HashSet<ContainerId>, RepositoryError> {
        let chunks = self.known.for_reading(manifest);
        let mut suffering = HashSet::new();
        for id in manifest.containers.iter().map(|usage| usage.container) {
            if id.kind == ContainerKind::Data && chunks.lie_in([id].into_iter(), |id| self.bad.contains_key(id))? {
                suffering.insert(id);
            }
        }
        Ok(suffering)
    }

    /// The outcome, and whether the task will create no further objects.
    fn announced(
        &mut self,
        version: &Version,
        hurt: &HashMap<Fingerprint, ChunkRef>,
        owners: &BTreeSet<usize>,
        task: &Task,
    ) -> Result<(HealOutcome, bool), RepairError> {
        let context = self.context;
        let repository = &context.repository;
        let newest = context.executor.block_on(async {
            if !repository.is_retained(task.pin).await? {
                return Ok(None);
            }
            repository.buildable_generation(version).await
        })?;
        // A version that was rewritten since the check is healed by the next repair.
        let Some(newest) = newest.filter(|newest| newest.generation == version.generation) else {
            return Ok((HealOutcome::Overtaken, true));
        };
        let old = context.executor.block_on(repository.manifest(&newest))?;
        let shared = self.put_back.look(context, version, owners)?;
        let suffering = self.suffering(&old)?;
        let mut copier = ChunkCopier::new(context, task.job, self.options.compression)?;
        let rewritten = copier.rewrite_to(
            &old,
            |container| suffering.contains(container),
            |chunk| {
                let Some(place) = hurt.get(&chunk.fingerprint) else { return Placing::Stay };
                let is_lost = self.is_lost(place);
                match (shared.find(chunk), self.chunks.get(&chunk.fingerprint)) {
                    (Some(there), _) => Placing::At(there),
                    (None, Some(Some(kept))) if is_lost => Placing::Copy(*kept),
                    (None, _) if is_lost => Placing::Stay,
                    (None, _) => Placing::Copy(*chunk),
                }
            },
            None,
        );
        let rewritten = match rewritten {
            Ok(rewritten) => rewritten,
            Err(RewriteError::Repository(error)) if error.is_damage() => {
                return Ok((HealOutcome::Beyond(error.to_string()), true));
            }
            Err(error) => return Err(error.into()),
        };
        let written = copier.finish()?;
        let moved: Vec<_> = rewritten.moves.iter().map(|moved| moved.to).collect();
        let attempt = random(repository.entropy())?;
        let Some(new) = rewritten.manifest_beside(&old, &written, &shared.held, attempt) else {
            let why = "its recipe uses containers that its table does not have".to_owned();
            return Ok((HealOutcome::Beyond(why), true));
        };
        match context.executor.block_on(repository.commit_generation(
            task.pin.series,
            &new,
            task.generation,
            newest.generation,
        )) {
            Ok(created) => {
                self.put_back.add(version, moved);
                Ok((HealOutcome::Healed, created.all_answered))
            }
            Err(CommitError::Fenced) => Ok((HealOutcome::Overtaken, true)),
            Err(CommitError::Repository(error)) => Err(error.into()),
        }
    }
}

/// The parameters of one version's new generation.
struct Task {
    job: JobId,
    pin: Pin,
    generation: u32,
}

/// Passes every chunk of a version's data stream that is in a damaged container. An error when
/// recipes are unreadable.
fn each_in_bad(
    reader: &VersionReader,
    bad: &BTreeMap<ContainerId, BadContainer>,
    mut show: impl FnMut(&ChunkRef),
) -> Result<(), RepositoryError> {
    let mut recipe = reader.data_recipe();
    for number in 0..recipe.segments() {
        let Some((segment, _)) = recipe.segment_ref(number)? else { break };
        if !recipe.lies_in(&segment, |id| bad.contains_key(id))? {
            continue;
        }
        let records = recipe.segment(number)?;
        records
            .iter()
            .filter(|record| bad.contains_key(&record.chunk.container))
            .for_each(|record| show(&record.chunk));
    }
    Ok(())
}
