//! Where the newest index leads for what was retired, and for names of the layout `lifecycle`, read by a few lines of its own: what the real reader takes for granted is not
//! taken for granted here.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use larder_format::DecodeError;
use larder_format::container::ChunkRef;
use larder_format::extents::Extents;
use larder_format::ids::ContainerId;
use larder_format::index_tables::{ChunkKey, ContainerFacts, ContainerState};
use larder_format::layout::Layout;
use larder_format::manifest::Manifest;
use larder_index::{
    Chunks, ContainerExtents, Containers, Executor, IndexError, IndexIo, IndexSnapshot, LookupOptions, TableView,
};
use larder_store::chunk_reader::ChunkReader;
use larder_store::{Repository, RepositoryError};

use crate::reading::chunks_of;

/// Containers that were retired, and where their chunks are.
pub type ReclaimReport = BTreeMap<ContainerId, Vec<ContainerId>>;

/// What was retired, by the newest index.
pub async fn reclaimed(repository: &Repository) -> Result<ReclaimReport, IndexError> {
    let newest = IndexSnapshot::newest(repository).await?.snapshot;
    let read = move |io: IndexIo| {
        let table: TableView<Containers> = TableView::new(io, &newest.manifest.runs, LookupOptions::default());
        let mut records: BTreeMap<u32, ContainerFacts> = BTreeMap::new();
        for record in table.scan(0..=u64::MAX, 1 << 20) {
            let (number, facts) = record?;
            records.extend(facts.map(|facts| (number, facts)));
        }
        let gone = records.values().filter(|facts| facts.state == ContainerState::Gone);
        let led = gone.map(|gone| {
            // What leads to nothing is lost: as if it were still where it was.
            let id = |number: &u32| records.get(number).map_or(gone.id, |facts| facts.id);
            (gone.id, gone.forwards.iter().map(id).collect())
        });
        Ok(led.collect())
    };
    Executor::stepped().run(repository, read).await
}

/// Whether the newest index was ever rebuilt: then it keeps all copies of what is needed (`RebuiltKeepsCopies`).
pub async fn is_rebuilt(repository: &Repository) -> Result<bool, IndexError> {
    Ok(IndexSnapshot::newest(repository).await?.snapshot.manifest.head.rebuilt.is_some())
}

/// Names of the layout `lifecycle`: containers with the extents of what was in them.
pub type Names = BTreeMap<ContainerId, Extents>;

/// Where names lead, by the newest index.
pub async fn names(repository: &Repository) -> Result<Names, IndexError> {
    let newest = IndexSnapshot::newest(repository).await?.snapshot;
    let read = move |io: IndexIo| {
        let runs = &newest.manifest.runs;
        let table: TableView<ContainerExtents> = TableView::new(io, runs, LookupOptions::default());
        let mut names = Names::new();
        for record in table.scan(0..=u64::MAX, 1 << 20) {
            let (container, extents) = record?;
            names.extend(extents.map(|extents| (container, extents)));
        }
        Ok(names)
    };
    Executor::stepped().run(repository, read).await
}

/// The containers that have categories of a retained version, by the newest index. Such a version need not have use for all of it: what
/// adopters and late references leave out in between goes with the last version that uses it.
pub async fn of_categories(repository: &Repository) -> Result<BTreeSet<ContainerId>, IndexError> {
    let newest = IndexSnapshot::newest(repository).await?.snapshot;
    let names = names(repository).await?;
    let read = move |io: IndexIo| {
        let runs = &newest.manifest.runs;
        let table: TableView<Containers> = TableView::new(io, runs, LookupOptions::default());
        let mut kept = BTreeSet::new();
        for record in table.scan(0..=u64::MAX, 1 << 20) {
            let (_, Some(facts)) = record? else { continue };
            let (Some(extents), Some(user)) = (names.get(&facts.id), facts.users.first()) else { continue };
            let first = user.lifespans.first().map_or(0, |lifespan| lifespan.first);
            for extent in &extents.0 {
                let category = first..=extent.last.unwrap_or(u32::MAX);
                let mut versions = newest.manifest.versions.iter();
                if versions.any(|version| version.series == user.series && category.contains(&version.number)) {
                    kept.insert(extent.to.map_or(facts.id, |(container, _)| container));
                }
            }
        }
        Ok(kept)
    };
    Executor::stepped().run(repository, read).await
}

/// Where a name leads; `None`: nowhere, because nobody needed it.
pub fn place(names: &Names, chunk: &ChunkRef) -> Option<ChunkRef> {
    let Some(extents) = names.get(&chunk.container) else { return Some(*chunk) };
    let (container, offset) = extents.place(chunk.container, chunk.offset, chunk.size)?;
    Some(ChunkRef { container, offset, ..*chunk })
}

/// Where a chunk is, by the newest index.
async fn find(repository: &Repository, chunk: &ChunkRef) -> Result<Option<ChunkRef>, IndexError> {
    let newest = IndexSnapshot::newest(repository).await?.snapshot;
    let fingerprint = chunk.fingerprint;
    let look = move |io: IndexIo| {
        let runs = &newest.manifest.runs;
        let chunks: TableView<Chunks> = TableView::new(io.clone(), runs, LookupOptions::default());
        let containers: TableView<Containers> = TableView::new(io.clone(), runs, LookupOptions::default());
        io.executor.block_on(async {
            let Some(place) = chunks.get(&[ChunkKey::of(&fingerprint)]).await?.pop().flatten() else { return Ok(None) };
            let facts = containers.get(&[place.container]).await?.pop().flatten();
            let Some(facts) = facts.filter(|facts| facts.state == ContainerState::Live) else { return Ok(None) };
            let index = io.repository.read_container_index(facts.id).await?;
            let there = index.chunk_refs().nth(place.chunk as usize);
            Ok(there.filter(|there| there.fingerprint == fingerprint))
        })
    };
    Executor::stepped().run(repository, look).await
}

/// How often the index is asked again, because what it said was overtaken.
const LOOKS: u32 = 8;

/// What is in each container that was ever looked into.
#[derive(Debug, Default)]
pub struct Copies(RefCell<BTreeMap<ContainerId, Rc<Vec<ChunkRef>>>>);

/// Reads chunks where they are said to be, or where they are now (`LookAgain`).
pub struct Finder<'a> {
    repository: &'a Repository,
    chunks: ChunkReader,
    /// Of a version of the layout `lifecycle`: where names lead, once that was asked.
    names: Option<Names>,
    layout: Layout,
    copies: Option<&'a Copies>,
}

impl<'a> Finder<'a> {
    pub fn new(repository: &'a Repository, manifest: &Manifest, copies: Option<&'a Copies>) -> Self {
        Self { repository, chunks: chunks_of(repository), names: None, layout: manifest.summary.layout, copies }
    }

    /// Reads a chunk where it is said to be. A rebuilt index, or one older than the one that is lost, may lead to a copy whose delete was under way: then the chunk is in
    /// another container, where the next rebuild finds it, and that is enough here.
    pub async fn read(&mut self, chunk: &ChunkRef) -> Result<Bytes, RepositoryError> {
        let read = match self.layout {
            Layout::Standard => self.read_led(chunk).await,
            Layout::Lifecycle => self.read_named(chunk).await,
        };
        match read {
            Err(error) if error.is_damage() && self.copies.is_some() => self.search(chunk).await?.ok_or(error),
            read => read,
        }
    }

    /// Looks into every container.
    async fn search(&self, chunk: &ChunkRef) -> Result<Option<Bytes>, RepositoryError> {
        let Some(copies) = self.copies else { return Ok(None) };
        for object in self.repository.store().list(larder_format::names::DATA).await? {
            let Some(id) = larder_format::names::parse_container(&object.name) else { continue };
            let known = copies.0.borrow().get(&id).cloned();
            let chunks = match known {
                Some(chunks) => chunks,
                None => {
                    let index = self.repository.read_container_index(id).await?;
                    let chunks: Rc<Vec<ChunkRef>> = Rc::new(index.chunk_refs().collect());
                    copies.0.borrow_mut().insert(id, chunks.clone());
                    chunks
                }
            };
            if let Some(copy) = chunks.iter().find(|copy| copy.fingerprint == chunk.fingerprint) {
                return self.chunks.read(copy).await.map(Some);
            }
        }
        Ok(None)
    }

    /// A name is never taken for a place, although the bytes may still be there.
    async fn read_named(&mut self, chunk: &ChunkRef) -> Result<Bytes, RepositoryError> {
        let mut missing = None;
        for _ in 0..LOOKS {
            if self.names.is_none() {
                self.names = match names(self.repository).await {
                    Ok(names) => Some(names),
                    // Its runs went with an index that was overtaken.
                    Err(error) if error.is_damage() => continue,
                    Err(IndexError::Repository(error)) => return Err(error),
                    Err(error) => panic!("{error}"),
                };
            }
            let place = self.names.as_ref().and_then(|names| place(names, chunk));
            let read = match place {
                Some(place) => self.chunks.read(&place).await,
                None => Err(lost(chunk)),
            };
            // A rebuilt index knows no extents: what was arranged before is found by its fingerprint.
            let read = match (read, place) {
                (Err(error), Some(place)) if error.is_damage() && place == *chunk => {
                    self.read_led(chunk).await.map_err(|_| error)
                }
                (read, _) => read,
            };
            match read {
                Err(error) if error.is_damage() => (self.names, missing) = (None, Some(error)),
                read => return read,
            }
        }
        Err(missing.unwrap_or_else(|| lost(chunk)))
    }

    async fn read_led(&self, chunk: &ChunkRef) -> Result<Bytes, RepositoryError> {
        let missing = match self.chunks.read(chunk).await {
            Err(error) if error.is_damage() => error,
            read => return read,
        };
        for _ in 0..LOOKS {
            match find(self.repository, chunk).await {
                Ok(Some(place)) => match self.chunks.read(&place).await {
                    Err(error) if error.is_damage() => {}
                    read => return read,
                },
                Ok(None) => {}
                Err(error) if error.is_damage() => {}
                Err(IndexError::Repository(error)) => return Err(error),
                Err(_) => return Err(missing),
            }
        }
        Err(missing)
    }
}

fn lost(chunk: &ChunkRef) -> RepositoryError {
    let source = DecodeError::Invalid { what: "chunk record", why: "it is in no extent of its container" };
    RepositoryError::Damaged { name: larder_format::names::container(chunk.container), source }
}
