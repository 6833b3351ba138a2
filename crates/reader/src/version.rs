//! Reading one version: its entries in order, single entries by path, contents of files in order.
//!
//! Readers of contents announce themselves first ([`Reading`]). Listings do not, and their results
//! are hints.

use std::sync::Arc;

use larder_format::entry::Entry;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::manifest::Manifest;
use larder_format::recipe::Recipe;
use larder_job::JobContext;
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::chunk_reader::ChunkReader;

use crate::chunk_resolver::ReadingOrder;
use crate::container_cache::read_plan::is_read_whole;
use crate::container_cache::{FetchCounters, FetchOptions, FetchReport};
use crate::container_sizes::Sizes;
use crate::entries::{Entries, EntriesBelow, PlacedEntry};
use crate::read_lease::{ReadError, Reading, or_lower};
use crate::recipe_reader::{CONTAINERS_ONE_IN, MetaChunks, RecipeReader, RecordCursor};
use crate::resolved::Resolved;
use crate::versions_ahead::{ReadManifest, fetch_metadata};

/// An opened version.
#[derive(Debug)]
pub struct VersionReader {
    pub(crate) context: JobContext,
    pub(crate) manifest: Manifest,
    pub(crate) data: Arc<Recipe>,
    pub(crate) metadata: Arc<Recipe>,
    pub(crate) chunks: MetaChunks,
    pub(crate) resolved: Arc<Resolved>,
    pub(crate) options: FetchOptions,
    pub(crate) counters: Arc<FetchCounters>,
}

impl VersionReader {
    /// Reads the manifest, for looking: nothing is announced.
    pub fn open(context: &JobContext, version: &Version) -> Result<Self, RepositoryError> {
        let repository = &context.repository;
        let manifest = context.executor.block_on(async {
            let read = repository.manifest(version).await.map(Some);
            or_lower(repository, version, read).await
        })?;
        let chunks = match &manifest {
            Some(manifest) => MetaChunks::of_version(context, manifest),
            None => MetaChunks::new(context),
        };
        Self::opened(context, version, Ok(manifest), &chunks)
    }

    /// The same with a manifest that was read ahead. Shares the caches of `chunks`.
    pub fn opened(
        context: &JobContext,
        version: &Version,
        manifest: ReadManifest,
        chunks: &MetaChunks,
    ) -> Result<Self, RepositoryError> {
        match manifest? {
            Some(manifest) => Ok(Self::knowing(context, manifest, chunks)),
            // It was read, or there is an error.
            None => Err(RepositoryError::Damaged {
                name: larder_format::names::version(version.series, version.id(), version.generation),
                source: larder_format::DecodeError::Truncated { what: "version manifest" },
            }),
        }
    }

    /// Announces that the version is being read, and opens it.
    pub fn announce(context: &JobContext, version: &Version) -> Result<(Self, Reading), ReadError> {
        let (reading, manifest) = Reading::begin(context, version)?;
        Ok((Self::new(context, manifest), reading))
    }

    /// A reader of a manifest that is known already. Nothing is announced.
    pub fn new(context: &JobContext, manifest: Manifest) -> Self {
        let chunks = MetaChunks::of_version(context, &manifest);
        Self::knowing(context, manifest, &chunks)
    }

    /// A reader that shares caches and known places with others.
    pub fn knowing(context: &JobContext, manifest: Manifest, chunks: &MetaChunks) -> Self {
        let (data, metadata) = (Arc::new(manifest.data.clone()), Arc::new(manifest.metadata.clone()));
        let chunks = chunks.for_reading(&manifest);
        chunks.moved().expect_named(manifest.containers.iter().map(|usage| usage.container));
        Self {
            context: context.clone(),
            manifest,
            data,
            metadata,
            chunks,
            resolved: Arc::default(),
            options: FetchOptions::default(),
            counters: Arc::default(),
        }
    }

    /// The same reader, with these options for fetching contents.
    #[must_use]
    pub fn fetching(self, options: FetchOptions) -> Self {
        Self { options, ..self }
    }

    /// Counts of the contents fetched so far.
    pub fn fetched(&self) -> FetchReport {
        let (redirected, look_ups) = self.chunks.moved().counts();
        FetchReport { redirected, look_ups, ..self.counters.report() }
    }

    /// Counters that the readers of this version share.
    pub fn counters(&self) -> &Arc<FetchCounters> {
        &self.counters
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Sizes of the containers that the version names, and of those that hold its moved chunks.
    pub fn sizes(&self) -> Sizes {
        self.chunks.sizes(&self.manifest)
    }

    /// Begins to fetch the metadata containers, side by side, as far as there is room. A reader of
    /// everything would wait for one after the other.
    pub fn fetch_metadata_ahead(&self) {
        fetch_metadata(&self.context, &self.chunks, &self.manifest.containers);
    }

    /// Data containers that a reader of everything reads whole, by the manifest alone. Each with
    /// its bytes.
    pub fn read_whole(&self) -> Vec<(ContainerId, u64)> {
        let data = self.manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data);
        let whole = data.filter(|usage| self.chunks.holds_chunks(&usage.container) && is_read_whole(usage));
        whole.map(|usage| (usage.container, usage.object_bytes)).collect()
    }

    /// The best order of reading for containers used in stream order.
    pub fn reading_order(&self) -> ReadingOrder {
        self.chunks.reading_order()
    }

    /// All entries in path order. Ends after the first error: later entries have no known place.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry, RepositoryError>> + '_ {
        self.entries_below(b"")
    }

    /// The entry at `path` and all below it, in path order; an empty path means all.
    pub fn entries_below(&self, path: &[u8]) -> impl Iterator<Item = Result<Entry, RepositoryError>> + '_ {
        self.placed_below(path).map(|placed| placed.map(|placed| placed.entry))
    }

    /// As [`Self::entries_below`], with the place of each content in the data stream.
    pub fn placed_below(&self, path: &[u8]) -> EntriesBelow {
        EntriesBelow::new(Entries::new(self.metadata.clone(), self.chunks.clone()), path)
    }

    /// The entry at exactly `path`.
    pub fn entry(&self, path: &[u8]) -> Result<Option<Entry>, RepositoryError> {
        Ok(self.placed(path)?.map(|placed| placed.entry))
    }

    /// As [`Self::entry`], with the place of its content in the data stream.
    pub fn placed(&self, path: &[u8]) -> Result<Option<PlacedEntry>, RepositoryError> {
        let first = self.placed_below(path).next().transpose()?;
        Ok(first.filter(|placed| placed.entry.path == path))
    }

    /// The records of the data stream, in order. Chunks that were moved are resolved.
    pub fn data_cursor(&self) -> RecordCursor {
        RecordCursor::new(self.data_recipe())
    }

    /// Records of containers that are known to be gone stay as they are.
    pub fn unresolved_cursor(&self) -> RecordCursor {
        RecordCursor::new(self.data_recipe().resolving(None))
    }

    /// The recipe of the data stream. Chunks that were moved are resolved.
    pub fn data_recipe(&self) -> RecipeReader {
        RecipeReader::new(self.data.clone(), self.chunks.clone()).resolving(Some(self.resolved.clone()))
    }

    /// Whether any chunk that the version uses may be in one of these containers, as far as known.
    pub fn lies_in(&self, is_one: impl Fn(&ContainerId) -> bool) -> Result<bool, RepositoryError> {
        self.chunks.lie_in(self.manifest.containers.iter().map(|usage| usage.container), is_one)
    }

    /// The data stream as its recipe names it: for questions about chunks and not about places.
    pub(crate) fn data_names(&self) -> RecipeReader {
        RecipeReader::new(self.data.clone(), self.chunks.as_named()).resolving(None)
    }

    /// The recipe of the metadata stream.
    pub fn metadata_recipe(&self) -> RecipeReader {
        RecipeReader::new(self.metadata.clone(), self.chunks.clone())
    }

    /// Whether a reader of everything may fetch metadata more than once: the caches do not hold all
    /// of it.
    pub fn may_fetch_metadata_again(&self) -> bool {
        let metadata = self.manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Meta);
        let (mut containers, mut bytes) = (0_u64, 0_u64);
        for usage in metadata {
            containers += 1;
            bytes = bytes.saturating_add(usage.object_bytes);
        }
        let cache = (self.context.memory / CONTAINERS_ONE_IN) as u64;
        bytes > cache || ChunkReader::tables_bytes(containers, bytes) > cache / ChunkReader::TABLES_ONE_IN as u64
    }

    /// The range of the data stream for the entry at `path` and all below it. Damage to metadata
    /// makes it larger than it is.
    pub fn data_range(&self, path: &[u8]) -> Result<std::ops::Range<u64>, RepositoryError> {
        let all = 0..u64::MAX;
        if path.is_empty() {
            return Ok(all);
        }
        let start = match self.placed_below(path).next().transpose() {
            Ok(first) => first.map_or(0, |first| first.data_offset),
            Err(error) if error.is_damage() => return Ok(all),
            Err(error) => return Err(error),
        };
        match Entries::new(self.metadata.clone(), self.chunks.clone()).end_of(path) {
            Ok(end) => Ok(start..end),
            Err(error) if error.is_damage() => Ok(start..u64::MAX),
            Err(error) => Err(error),
        }
    }
}
