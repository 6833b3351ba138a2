//! Changes the layout of a series: every version gets a new generation of its manifest with
//! containers of its own, in the other layout.
//!
//! Versions are converted oldest first. Each shares data with its predecessor, so the series is
//! stored only once more. Layouts have no data containers in common, so all other data is copied.
//! Each version is a job as in defragmentation (`OwnRegister`, `OwnersNamed`), which names the
//! version and its predecessor. Chunks are read and their fingerprints computed before anything
//! refers to the copies. The next pass deletes the data of the old generations. After an
//! interruption, some versions have one layout and some the other. All are whole, and converting
//! again continues.
//!
//! A version that cannot be read stays as it is, in its containers, and is reported; all others are
//! converted. Its readable parts stay readable. When it can be read again, converting again
//! includes it.
//!
//! A series of the layout `lifecycle` whose index was rebuilt is not arranged
//! ([`needing_rebuild`](crate::arrange::needing_rebuild)). Converting it to its own layout rewrites
//! the versions that name the containers that cause it. It also rewrites all after the first of
//! them, so that versions are ingested in their order.
//!
//! Memory: that of the context, for any size of a version. The places of its chunks and those of
//! its predecessor are kept in temporary files beyond that (`CopiedChunks`).

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use larder_format::compress::Compression;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::manifest::Manifest;
use larder_format::sketch::Sketch;
use larder_format::{ChunkRef, ErrorKind};
use larder_index::IndexError;
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_reader::{References, look_at};
use larder_rewrite::chunk_copier::{ChunkCopier, CopiedChunks, RewriteError};
use larder_store::RepositoryError;
use larder_store::catalog::{Catalog, Version};
use larder_store::jobs::CommitError;
use larder_store::repository::random;
use larder_writer::ContainerTotals;

use crate::arrange::disordered_on;

/// Of the context's memory, one part in this number is for the places of the predecessor's chunks.
const BEFORE_ONE_IN: usize = 8;
/// How often to look for versions that were added meanwhile.
const ROUNDS_MAX: u32 = 4;

/// The result.
#[derive(Debug, Default)]
pub struct Converted {
    /// Versions that now have the other layout.
    pub versions: u64,
    /// Versions that had it before, and are complete.
    pub were_already: u64,
    /// Versions that were forgotten, or rewritten by another task, meanwhile.
    pub overtaken: u64,
    /// Bytes that were copied, uncompressed.
    pub copied_bytes: u64,
    /// Bytes that are shared with the predecessor.
    pub shared_bytes: u64,
    /// Bytes of the containers that were written.
    pub stored_bytes: u64,
    /// Versions that still have the old layout: they were added meanwhile, or cannot be read.
    pub left: u64,
    /// Those of them that cannot be read, oldest first.
    pub unreadable: Vec<Unreadable>,
}

/// A version that stays as it is, because a part of it cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// The version.
    pub id: JobId,
    /// The error.
    pub error: RepositoryError,
}

/// A series could not be converted as a whole. Every version is whole, in one layout or the other.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// There is no version of the series.
    #[error("there is no series {series:?} with snapshots")]
    NoSuchSeries {
        /// The name that the caller gave.
        series: String,
    },
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// Copying failed.
    #[error(transparent)]
    ChunkCopier(#[from] RewriteError),
    /// The index, which tells which series cannot be arranged, cannot be read.
    #[error(transparent)]
    Index(#[from] IndexError),
}

impl ConvertError {
    /// The action that a caller can take.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchSeries { .. } => ErrorKind::Precondition,
            Self::Repository(error) => error.kind(),
            Self::ChunkCopier(error) => error.kind(),
            Self::Index(error) => error.kind(),
        }
    }
}

/// Converts all versions of a series. In `scratch` are temporary files for data beyond memory;
/// without it chunks may be stored more than once.
pub fn convert(
    context: &JobContext,
    series: &str,
    layout: Layout,
    compression: Compression,
    scratch: Option<PathBuf>,
) -> Result<Converted, ConvertError> {
    let mut converted = Converted::default();
    let mut converter = Converter { context, layout, compression, scratch, before: None, rewritten: HashSet::new() };
    let lost = match layout {
        Layout::Lifecycle => context.executor.block_on(disordered_on(&context.executor, &context.repository))?,
        Layout::Standard => BTreeMap::new(),
    };
    let lost = lost.get(&context.repository.keys().series_key(series)).cloned().unwrap_or_default();
    for round in 0..ROUNDS_MAX {
        let Catalog { mut versions, damaged, .. } =
            context.executor.block_on(context.repository.catalog_of_series(series))?;
        if versions.is_empty() && damaged.is_empty() {
            return Err(ConvertError::NoSuchSeries { series: series.to_owned() });
        }
        versions.sort_by_key(Version::id);
        damaged.into_iter().for_each(|version| converted.cannot_be_read(version.id, version.error));
        let again = converter.in_disorder(&versions, &lost)?;
        let is_done = |version: &Version| version.summary.layout == layout && !again.contains(&version.id());
        if round == 0 {
            converted.were_already = versions.iter().filter(|version| is_done(version)).count() as u64;
        }
        // An unreadable version is not tried again: that would leave another partial copy.
        versions.retain(|version| !converted.is_unreadable(version.id()));
        let todo: Vec<&Version> = versions.iter().filter(|version| !is_done(version)).collect();
        converted.left = (todo.len() + converted.unreadable.len()) as u64;
        if todo.is_empty() {
            break;
        }
        let bytes = todo.iter().map(|version| version.summary.statistics.stream_bytes).sum();
        context.progress.expect(todo.len() as u64, bytes);
        context.progress.expectation_is_complete();
        for version in &versions {
            match is_done(version) {
                true => {
                    let manifest = context.executor.block_on(context.repository.manifest(version));
                    converter.share_with(version, manifest)?;
                }
                false => {
                    converter.convert(version, &mut converted)?;
                    context.progress.done(1, version.summary.statistics.stream_bytes);
                }
            }
        }
    }
    converted.unreadable.sort_by_key(|version| version.id);
    Ok(converted)
}

impl Converted {
    fn is_unreadable(&self, id: JobId) -> bool {
        self.unreadable.iter().any(|version| version.id == id)
    }

    fn cannot_be_read(&mut self, id: JobId, error: RepositoryError) {
        if !self.is_unreadable(id) {
            tracing::warn!(%error, version = %id, "a version cannot be read and stays as it is");
            self.unreadable.push(Unreadable { id, error });
        }
    }
}

/// The chunks of the predecessor.
#[derive(Debug)]
struct Before {
    version: Version,
    containers: HashMap<ContainerId, ContainerTotals>,
    chunks: RefCell<CopiedChunks>,
}

struct Converter<'a> {
    context: &'a JobContext,
    layout: Layout,
    compression: Compression,
    scratch: Option<PathBuf>,
    before: Option<Before>,
    /// Versions that were rewritten so far.
    rewritten: HashSet<JobId>,
}

impl Converter<'_> {
    /// The first version that names any of these containers, and all after it, without those that
    /// were rewritten so far.
    fn in_disorder(&self, versions: &[Version], lost: &HashSet<ContainerId>) -> Result<HashSet<JobId>, ConvertError> {
        if lost.is_empty() {
            return Ok(HashSet::new());
        }
        for (place, version) in versions.iter().enumerate() {
            if self.rewritten.contains(&version.id()) || version.summary.layout != self.layout {
                continue;
            }
            let names_any = match self.context.executor.block_on(self.context.repository.manifest(version)) {
                Ok(manifest) => manifest.containers.iter().any(|usage| lost.contains(&usage.container)),
                // It stays as it is, and is reported in its turn.
                Err(error) if error.is_damage() => true,
                Err(error) => return Err(error.into()),
            };
            if names_any {
                let later = versions[place..].iter().map(Version::id);
                return Ok(later.filter(|id| !self.rewritten.contains(id)).collect());
            }
        }
        Ok(HashSet::new())
    }

    /// Lets the next version share chunks of this one. An unreadable one is skipped.
    fn share_with(
        &mut self,
        version: &Version,
        manifest: Result<Manifest, RepositoryError>,
    ) -> Result<(), ConvertError> {
        match manifest.and_then(|manifest| self.remember(version, &manifest)) {
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "a version cannot be read and nothing is shared with it");
                Ok(())
            }
            done => Ok(done?),
        }
    }

    fn remember(&mut self, version: &Version, manifest: &Manifest) -> Result<(), RepositoryError> {
        let of_data = manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data);
        let containers = of_data.map(|usage| (usage.container, ContainerTotals::of(usage))).collect();
        // Before the next one takes its memory.
        self.before = None;
        let mut chunks = CopiedChunks::new(self.context.memory / BEFORE_ONE_IN, self.scratch.clone());
        References::new(self.context).visit(&manifest.data, |chunk| {
            chunks.insert(*chunk);
            Ok::<_, RepositoryError>(())
        })?;
        self.before = Some(Before { version: version.clone(), containers, chunks: RefCell::new(chunks) });
        Ok(())
    }

    fn convert(&mut self, version: &Version, converted: &mut Converted) -> Result<(), ConvertError> {
        let pin = pin_of(version);
        // The number is selected before the lease, which has to name it. If it is taken by then,
        // the work is void.
        let generation = self.context.executor.block_on(self.context.repository.next_generation(pin))?;
        match self.convert_as(version, generation, converted) {
            // A pass considered this task dead, and its containers with it.
            Err(_) if self.context.executor.block_on(self.context.repository.is_fenced(pin, generation)) => {
                converted.overtaken += 1;
                Ok(())
            }
            // One that cannot be read stays as it is.
            Err(ConvertError::Repository(error) | ConvertError::ChunkCopier(RewriteError::Repository(error)))
                if error.is_damage() =>
            {
                converted.cannot_be_read(version.id(), error);
                Ok(())
            }
            done => done,
        }
    }

    fn convert_as(
        &mut self,
        version: &Version,
        generation: u32,
        converted: &mut Converted,
    ) -> Result<(), ConvertError> {
        let (context, pin) = (self.context, pin_of(version));
        let repository = &context.repository;
        let pins = std::iter::once(pin).chain(self.before.as_ref().map(|before| pin_of(&before.version))).collect();
        let lease = context.lease(JobKind::Task, &version.summary.series);
        let lease = Lease { pins, generation: Some(generation), domain: version.summary.domain, ..lease };
        let job = JobId::new(lease.written_ms, random(repository.entropy())?);
        let keeper = LeaseKeeper::open(context, job, lease)?;
        let done = self.convert_announced(version, job, generation, converted);
        // Uploads of a task are never adopted, so a failed one may be over too. It is not over
        // while its generation may still appear.
        keeper.end(done.as_ref().map_or(Ending::Ended, Clone::clone));
        done.map(drop)
    }

    /// Returns how the job ends.
    fn convert_announced(
        &mut self,
        version: &Version,
        job: JobId,
        generation: u32,
        converted: &mut Converted,
    ) -> Result<Ending, ConvertError> {
        let (context, pin) = (self.context, pin_of(version));
        let repository = &context.repository;
        let newest = context.executor.block_on(look_at(repository, version))?;
        let Some(version) = newest.filter(|newest| newest.generation == version.generation) else {
            converted.overtaken += 1;
            return Ok(Ending::Closed(Done::nothing()));
        };
        // A version that cannot be examined is not used.
        if let Some(before) = &self.before {
            let there = context.executor.block_on(look_at(repository, &before.version))?;
            if there.is_none_or(|there| there.generation != before.version.generation) {
                self.before = None;
            }
        }
        let manifest = context.executor.block_on(repository.manifest(&version))?;
        let copier = ChunkCopier::new(context, job, self.compression)?;
        let mut copier = copier.for_whole_versions(self.layout, self.scratch.clone());
        let nothing = HashMap::new();
        let stays = self.before.as_ref().map_or(&nothing, |before| &before.containers);
        if self.layout == Layout::Lifecycle {
            copier.reads_names(&manifest);
        }
        let elsewhere = |chunk: &ChunkRef| self.before.as_ref()?.chunks.borrow_mut().get(&chunk.fingerprint);
        let rewritten = copier.rewrite_sharing(&manifest, |container| !stays.contains_key(container), elsewhere)?;
        let written = copier.finish()?;
        let (copied, shared) = (rewritten.moved_bytes, rewritten.shared_bytes);
        let attempt = random(repository.entropy())?;
        let rewritten = rewritten.manifest_beside(&manifest, &written, stays, attempt);
        let mut rewritten = rewritten.ok_or_else(|| RepositoryError::Damaged {
            name: larder_format::names::version(pin.series, pin.job, version.generation),
            source: larder_format::DecodeError::Invalid {
                what: "version manifest",
                why: "its recipe uses containers that its table does not have",
            },
        })?;
        rewritten.summary.layout = self.layout;
        // No other job builds on data of the layout `lifecycle`.
        rewritten.summary.sketch = Sketch::default();
        let answered = match context.executor.block_on(repository.commit_generation(
            pin.series,
            &rewritten,
            generation,
            version.generation,
        )) {
            Ok(created) => created.all_answered,
            Err(CommitError::Fenced) => {
                converted.overtaken += 1;
                return Ok(Ending::Closed(Done::nothing()));
            }
            Err(CommitError::Repository(error)) => return Err(error.into()),
        };
        self.rewritten.insert(pin.job);
        converted.versions += 1;
        converted.copied_bytes += copied;
        converted.shared_bytes += shared;
        converted.stored_bytes += written.stored_bytes;
        let summary = rewritten.summary.clone();
        self.share_with(&Version { generation, summary, ..version }, Ok(rewritten))?;
        Ok(Ending::closed_if(answered, Done::committed_generation(pin, generation)))
    }
}

fn pin_of(version: &Version) -> Pin {
    Pin { series: version.series, job: version.id() }
}
