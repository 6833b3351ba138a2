//! Where the newest index leads for what was given up, read by a few lines of its own: what the real reader takes for granted is not
//! taken for granted here.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_format::container::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::index_tables::{ChunkKey, ContainerFacts, ContainerState};
use larder_index::{Chunks, Containers, Executor, IndexError, IndexIo, IndexSnapshot, LookupOptions, TableView};
use larder_store::container_reader::ChunkReader;
use larder_store::{Repository, RepositoryError};

use crate::reading::chunks_of;

/// Containers that were given up, and where their chunks are.
pub type GivenUp = BTreeMap<ContainerId, Vec<ContainerId>>;

/// What was given up, by the newest index.
pub async fn given_up(repository: &Repository) -> Result<GivenUp, IndexError> {
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
    Executor::Turns.run(repository, read).await
}

/// Where a chunk is, by the newest index.
async fn find(repository: &Repository, chunk: &ChunkRef) -> Result<Option<ChunkRef>, IndexError> {
    let newest = IndexSnapshot::newest(repository).await?.snapshot;
    let fingerprint = chunk.fingerprint;
    let look = move |io: IndexIo| {
        let runs = &newest.manifest.runs;
        let chunks: TableView<Chunks> = TableView::new(io.clone(), runs, LookupOptions::default());
        let containers: TableView<Containers> = TableView::new(io.clone(), runs, LookupOptions::default());
        io.runtime.block_on(async {
            let Some(place) = chunks.get(&[ChunkKey::of(&fingerprint)]).await?.pop().flatten() else { return Ok(None) };
            let facts = containers.get(&[place.container]).await?.pop().flatten();
            let Some(facts) = facts.filter(|facts| facts.state == ContainerState::Live) else { return Ok(None) };
            let index = io.repository.read_container_index(facts.id).await?;
            let there = index.chunk_refs().nth(place.chunk as usize);
            Ok(there.filter(|there| there.fingerprint == fingerprint))
        })
    };
    Executor::Turns.run(repository, look).await
}

/// How often the index is asked again, because what it said was overtaken.
const LOOKS: u32 = 8;

/// Reads chunks where they are said to be, or where they are now (`LookAgain`).
pub struct Finder<'a> {
    repository: &'a Repository,
    chunks: ChunkReader,
}

impl<'a> Finder<'a> {
    pub fn new(repository: &'a Repository) -> Self {
        Self { repository, chunks: chunks_of(repository) }
    }

    pub async fn read(&self, chunk: &ChunkRef) -> Result<Bytes, RepositoryError> {
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
