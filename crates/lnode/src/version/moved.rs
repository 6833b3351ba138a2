//! Chunks that are not where their records say: containers given up by the G-node, and where the index leads for their chunks.
//!
//! A reader learns of such a container by not finding it (rule `LookAgain` of `docs/concurrency.md`); then it reads the newest
//! index, and from there on the records of segments that lie in such containers are led on by their fingerprints, one hop.
//! A version that lies where it says never needs the index.
//!
//! Shared by all readers of one job. Not here: what is done about chunks that the index does not know either; their records stay
//! as they are, and whoever reads them finds nothing once more.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::index_tables::{ChunkKey, ContainerFacts, ContainerState};
use larder_index::{Chunks, Containers, TableView};
use larder_index::{IndexError, IndexIo, IndexSnapshot, LookupOptions};
use larder_store::{Repository, RepositoryError};
use lru::LruCache;
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// Tables of containers that are kept: some hundred kilobytes each.
const TABLES_KEPT: NonZeroUsize = NonZeroUsize::new(16).unwrap();
/// Tables that are read at once.
const CONCURRENT_READS: usize = 8;
/// How often the newest index is looked for again when what it names is gone: a pass has published and cleaned up meanwhile.
const ATTEMPTS: u32 = 3;

/// What it means for readers that there is no index.
const NOT_FOUND: &str = "what was moved is not found";

/// See the module header.
pub(crate) struct Moved {
    repository: Repository,
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    gone: HashSet<ContainerId>,
    index: Option<Arc<Index>>,
    tables: LruCache<ContainerId, Arc<Vec<ChunkRef>>>,
}

struct Index {
    number: u64,
    chunks: TableView<Chunks>,
    containers: TableView<Containers>,
}

impl std::fmt::Debug for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moved").field("gone", &self.state.lock().gone.len()).finish_non_exhaustive()
    }
}

impl Moved {
    pub(crate) fn new(repository: Repository, runtime: Handle) -> Self {
        let state = State { gone: HashSet::new(), index: None, tables: LruCache::new(TABLES_KEPT) };
        Self { repository, runtime, state: Mutex::new(state) }
    }

    /// Whether a container was not found before.
    pub(crate) fn is_gone(&self, container: &ContainerId) -> bool {
        self.state.lock().gone.contains(container)
    }

    /// Containers were not found. Says whether it is worth reading the segments again that name them: whether there is an index
    /// that may lead on, and that was not asked for all of them before.
    pub(crate) fn learn(&self, containers: impl IntoIterator<Item = ContainerId>) -> Result<bool, RepositoryError> {
        // Whoever chooses them may ask for what is known so far.
        let containers: Vec<_> = containers.into_iter().collect();
        let before = self.state.lock().index.as_ref().map(|index| index.number);
        let newest = self.newest()?;
        let mut state = self.state.lock();
        let is_newer = newest.as_ref().map(|index| index.number) != before;
        if is_newer {
            state.index = newest;
        }
        if state.index.is_none() {
            return Ok(false);
        }
        let mut are_new = false;
        for container in containers {
            are_new |= state.gone.insert(container);
        }
        Ok(are_new || is_newer)
    }

    fn newest(&self) -> Result<Option<Arc<Index>>, RepositoryError> {
        let snapshot = match self.runtime.block_on(IndexSnapshot::newest(&self.repository)) {
            Ok(newest) => newest.snapshot,
            Err(error) => return without_index(error, NOT_FOUND).map(|()| None),
        };
        if snapshot.number == 0 {
            return Ok(None);
        }
        let io = IndexIo { repository: self.repository.clone(), runtime: (&self.runtime).into() };
        let options = LookupOptions::default();
        Ok(Some(Arc::new(Index {
            number: snapshot.number,
            chunks: TableView::new(io.clone(), &snapshot.manifest.runs, options),
            containers: TableView::new(io, &snapshot.manifest.runs, options),
        })))
    }

    /// Leads chunks on that lie in containers which were not found. Those that the index does not know stay as they are.
    pub(crate) fn lead_on<'a>(
        &self,
        chunks: impl IntoIterator<Item = &'a mut ChunkRef>,
    ) -> Result<(), RepositoryError> {
        let mut chunks: Vec<_> = {
            let state = self.state.lock();
            chunks.into_iter().filter(|chunk| state.gone.contains(&chunk.container)).collect()
        };
        if chunks.is_empty() {
            return Ok(());
        }
        for _ in 0..ATTEMPTS {
            let Some(index) = self.state.lock().index.clone() else { return Ok(()) };
            match self.runtime.block_on(self.look_up(&index, &mut chunks)) {
                Ok(()) => return Ok(()),
                // Runs or containers that this index names may be gone because there is a newer one.
                Err(error) if error.is_damage() => {
                    if !self.learn([])? {
                        return without_index(error, NOT_FOUND);
                    }
                }
                Err(error) => return without_index(error, NOT_FOUND),
            }
        }
        Ok(())
    }

    async fn look_up(&self, index: &Index, chunks: &mut [&mut ChunkRef]) -> Result<(), IndexError> {
        let keys: Vec<_> = chunks.iter().map(|chunk| ChunkKey::of(&chunk.fingerprint)).collect();
        let found = index.chunks.get(&keys).await?;
        let mut numbers: Vec<u32> = found.iter().flatten().map(|place| place.container).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let facts = index.containers.get(&numbers).await?;
        // What was given up holds nothing any more, whatever an entry says.
        let live = |facts: ContainerFacts| (facts.state == ContainerState::Live).then_some(facts.id);
        let tables = numbers.iter().zip(facts).filter_map(|(number, facts)| Some((*number, live(facts?)?)));
        let tables = tables.map(|(number, id)| async move { Ok::<_, IndexError>((number, self.table(id).await?)) });
        let tables: HashMap<_, _> = futures::stream::iter(tables).buffered(CONCURRENT_READS).try_collect().await?;
        for (chunk, found) in chunks.iter_mut().zip(found) {
            let Some(found) = found else { continue };
            let Some(table) = tables.get(&found.container) else { continue };
            // An index that is wrong about a place must not make a reader take other bytes for the chunk's.
            match table.get(found.chunk as usize) {
                Some(there) if there.fingerprint == chunk.fingerprint && there.size == chunk.size => **chunk = *there,
                _ => tracing::warn!(container = found.container, "the index leads to a chunk that is another"),
            }
        }
        Ok(())
    }

    /// The chunks of a container, in order.
    async fn table(&self, id: ContainerId) -> Result<Arc<Vec<ChunkRef>>, IndexError> {
        if let Some(table) = self.state.lock().tables.get(&id) {
            return Ok(table.clone());
        }
        let table: Vec<_> = self.repository.read_container_index(id).await?.chunk_refs().collect();
        let table = Arc::new(table);
        self.state.lock().tables.put(id, table.clone());
        Ok(table)
    }
}

/// An index that cannot be read is as none, which has a consequence; a store that cannot be reached is an error.
pub(crate) fn without_index(error: IndexError, consequence: &'static str) -> Result<(), RepositoryError> {
    match error {
        IndexError::Repository(error) | IndexError::NewestUnreadable { source: error } if !error.is_damage() => {
            Err(error)
        }
        error => {
            tracing::warn!(%error, "the index cannot be read: {consequence}");
            Ok(())
        }
    }
}
