//! Chunks that were restored for one version and that others need too.
//!
//! A version may reference containers of others, if its task names those in its lease and then
//! finds the containers there. A backup does the same with its bases (`docs/concurrency.md`). So a
//! loss that fifty versions share is stored once and not fifty times.

use std::collections::{BTreeSet, HashMap};

use larder_format::ids::{ContainerId, SeriesKey};
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::manifest::Manifest;
use larder_format::{ChunkRef, Fingerprint};
use larder_job::JobContext;
use larder_reader::pin_of;
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_writer::{ContainerTotals, holdings};

/// Versions that one lease names beside its own. Chunks of further ones are stored again.
const SHARED_WITH_MAX: usize = 64;

/// The versions with which a version shares chunks: all of the layout `standard`, or its series
/// alone.
pub(super) type Sharers = Option<SeriesKey>;

/// The sharers of a version.
pub(super) fn sharers(version: &Version) -> Sharers {
    (version.summary.layout == Layout::Lifecycle).then_some(version.series)
}

/// The chunks that this repair has restored so far.
#[derive(Debug, Default)]
pub(super) struct PutBack {
    owners: Vec<Version>,
    chunks: HashMap<(Sharers, Fingerprint), (ChunkRef, usize)>,
}

impl PutBack {
    /// A version has these chunks now, in its own containers.
    pub(super) fn add(&mut self, version: &Version, chunks: impl IntoIterator<Item = ChunkRef>) {
        let owner = self.owners.len();
        self.owners.push(version.clone());
        for chunk in chunks {
            self.chunks.entry((sharers(version), chunk.fingerprint)).or_insert((chunk, owner));
        }
    }

    /// Whether a version has a chunk; its owner is then added.
    pub(super) fn owner(&self, version: &Version, fingerprint: &Fingerprint, owners: &mut BTreeSet<usize>) {
        if let Some((_, owner)) = self.chunks.get(&(sharers(version), *fingerprint))
            && owners.len() < SHARED_WITH_MAX
        {
            owners.insert(*owner);
        }
    }

    /// Names of versions, for a lease.
    pub(super) fn pins(&self, owners: &BTreeSet<usize>) -> Vec<Pin> {
        owners.iter().map(|owner| pin_of(&self.owners[*owner])).collect()
    }

    /// Their containers that may be referenced. Must be asked after the lease: containers that
    /// exist then stay.
    pub(super) fn look(
        &self,
        context: &JobContext,
        of: &Version,
        owners: &BTreeSet<usize>,
    ) -> Result<Shared<'_>, RepositoryError> {
        let mut shared = Shared { chunks: &self.chunks, sharers: sharers(of), held: HashMap::new() };
        for owner in owners {
            let version = &self.owners[*owner];
            let manifest = context.executor.block_on(newest_manifest(context, version))?;
            shared.held.extend(manifest.iter().flat_map(|manifest| holdings(&manifest.containers)));
        }
        Ok(shared)
    }
}

/// The manifest of a version's newest generation; `None`: it was forgotten, or cannot be read.
pub(super) async fn newest_manifest(
    context: &JobContext,
    version: &Version,
) -> Result<Option<Manifest>, RepositoryError> {
    let repository = &context.repository;
    if !repository.is_retained(pin_of(version)).await? {
        return Ok(None);
    }
    let Some(newest) = repository.buildable_generation(version).await? else { return Ok(None) };
    match repository.manifest(&newest).await {
        Ok(manifest) => Ok(Some(manifest)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The containers that may be referenced.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    chunks: &'a HashMap<(Sharers, Fingerprint), (ChunkRef, usize)>,
    sharers: Sharers,
    /// Containers of the announced versions.
    pub(super) held: HashMap<ContainerId, ContainerTotals>,
}

impl Shared<'_> {
    /// The place of a chunk in an announced version.
    pub(super) fn find(&self, chunk: &ChunkRef) -> Option<ChunkRef> {
        let (found, _) = self.chunks.get(&(self.sharers, chunk.fingerprint))?;
        (self.held.contains_key(&found.container) && found.size == chunk.size).then_some(*found)
    }
}
