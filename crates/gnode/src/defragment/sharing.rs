//! The possible redirect targets of a job that has announced itself. They are containers in the
//! newest generations of the versions that its lease names, and its own copies.

use std::collections::{HashMap, HashSet};

use larder_format::ChunkRef;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::index_tables::ChunkKey;
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_index::{Containers, Current, IndexError, IndexIo, LookupOptions, TableView};
use larder_job::JobContext;
use larder_reader::look_at;
use larder_rewrite::chunk_copier::Move;
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_writer::ContainerTotals;

use super::choice::{Leave, Why};
use super::duplicates::{Duplicates, is_retired};

/// Bytes that a copied chunk takes: its entry, with the free part of tables, and until then its old
/// place.
const CHUNK_BYTES: usize = 160 + size_of::<Move>();

/// Of the memory, one part in this number looks up containers.
const LOOKUPS_ONE_IN: usize = 8;

/// See the module header.
#[derive(Debug)]
pub(super) struct Sharing {
    containers: HashMap<ContainerId, ContainerTotals>,
    reclaimed: HashSet<ContainerId>,
}

impl Sharing {
    /// Examines the other versions, and whether a container was retired since the index of the
    /// plan. The version itself was examined before.
    pub(super) fn announced(
        context: &JobContext,
        own: &Manifest,
        others: &[Version],
        duplicates: &Duplicates,
    ) -> Result<Self, RepositoryError> {
        let mut sharing = Self { containers: HashMap::new(), reclaimed: HashSet::new() };
        sharing.add(own);
        for other in others {
            // A version that cannot be examined is not used.
            let Some(newest) = context.executor.block_on(look_at(&context.repository, other))? else { continue };
            match context.executor.block_on(context.repository.manifest(&newest)) {
                Ok(manifest) => sharing.add(&manifest),
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, "a version cannot be read and nothing is shared with it");
                }
                Err(error) => return Err(error),
            }
        }
        match context.executor.block_on(retired_since(context, duplicates)) {
            Ok(reclaimed) => sharing.reclaimed = reclaimed,
            Err(IndexError::Repository(error) | IndexError::NewestUnreadable { source: error })
                if !error.is_damage() =>
            {
                return Err(error);
            }
            Err(error) => {
                tracing::warn!(%error, "the index cannot be read; nothing is shared on its word");
                sharing.reclaimed = duplicates.numbers().iter().map(|(_, container)| *container).collect();
            }
        }
        Ok(sharing)
    }

    fn add(&mut self, manifest: &Manifest) {
        let of_data = manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data);
        self.containers.extend(of_data.map(|usage| (usage.container, ContainerTotals::of(usage))));
    }

    /// Whether chunks may be redirected to a container.
    pub(super) fn holds(&self, container: &ContainerId) -> bool {
        self.containers.contains_key(container) && !self.reclaimed.contains(container)
    }

    /// Whether a container may still be left: the copies for which it is left must be there, and
    /// need no copying.
    pub(super) fn may_leave(&self, leave: &Leave) -> bool {
        leave.why != Why::Duplicate || leave.shared.iter().all(|(container, _)| self.holds(container))
    }

    /// The chunks of the containers of these versions.
    pub(super) fn containers(&self) -> &HashMap<ContainerId, ContainerTotals> {
        &self.containers
    }
}

/// The redirect targets of a plan that an index newer than the plan's has retired or no longer
/// knows.
async fn retired_since(context: &JobContext, duplicates: &Duplicates) -> Result<HashSet<ContainerId>, IndexError> {
    let mut reclaimed = HashSet::new();
    if duplicates.numbers().is_empty() {
        return Ok(reclaimed);
    }
    let index = Current::look(&context.repository).await?.base()?;
    if index.number == duplicates.index {
        return Ok(reclaimed);
    }
    let io = IndexIo { repository: context.repository.clone(), executor: context.executor.clone() };
    let options = LookupOptions::streaming(context.memory / LOOKUPS_ONE_IN);
    let table: TableView<Containers> = TableView::new(io, &index.manifest.runs, options);
    let numbers: Vec<u32> = duplicates.numbers().iter().map(|(number, _)| *number).collect();
    for ((_, id), facts) in duplicates.numbers().iter().zip(table.get(&numbers).await?) {
        if facts.is_none_or(|facts| facts.id != *id || is_retired(&facts)) {
            reclaimed.insert(*id);
        }
    }
    Ok(reclaimed)
}

/// Copies for versions that were rewritten in one run. Bounded: the next pass finds the rest.
#[derive(Debug)]
pub(super) struct Copied {
    most: usize,
    places: HashMap<ChunkKey, ChunkRef>,
    owners: Vec<(Version, HashSet<ContainerId>)>,
}

impl Copied {
    pub(super) fn new(memory: usize) -> Self {
        Self { most: memory / 4 / CHUNK_BYTES, places: HashMap::new(), owners: Vec::new() }
    }

    /// The number of copied chunks that it can still remember.
    pub(super) fn room(&self) -> usize {
        self.most.saturating_sub(self.places.len())
    }

    /// Remembers chunks that were copied for a version and that its newest generation has now.
    pub(super) fn remember(&mut self, version: &Version, moves: &[Move]) {
        let moves = &moves[..self.room().min(moves.len())];
        self.places.extend(moves.iter().map(|moved| (ChunkKey::of(&moved.to.fingerprint), moved.to)));
        self.owners.push((version.clone(), moves.iter().map(|moved| moved.from).collect()));
    }

    /// Versions other than this one that have copies of the contents of these containers, or of
    /// others with the same chunks if it `gathers`.
    pub(super) fn owners_of(
        &self,
        containers: &[ContainerUsage],
        version: &Version,
        gathers: bool,
    ) -> impl Iterator<Item = Version> {
        let has_some = |from: &HashSet<ContainerId>| containers.iter().any(|usage| from.contains(&usage.container));
        let is_other = |owner: &Version| owner.id() != version.id();
        let owners = self.owners.iter().filter(move |(owner, from)| is_other(owner) && (gathers || has_some(from)));
        owners.map(|(owner, _)| owner.clone())
    }

    /// Where a chunk was copied to.
    pub(super) fn elsewhere(&self, chunk: &ChunkRef) -> Option<ChunkRef> {
        self.places.get(&ChunkKey::of(&chunk.fingerprint)).copied()
    }
}
