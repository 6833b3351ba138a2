//! Chunks that are not where their records say: containers given up by the G-node, and where the index leads for their chunks.
//!
//! A reader learns of such a container by not finding it (rule `LookAgain` of `docs/concurrency.md`); then it reads the newest
//! index, and from there on the records of segments that lie in such containers are led on by their fingerprints, one hop.
//! A version that lies where it says never needs the index.
//!
//! Recipes of the layout `lifecycle` name chunks and do not say where they are: the newest index is read first, and its records of
//! extents turn names into places ([`Moved::place`], `arranged`). What is not found there is looked for as above: in a newer index if
//! there is one, else by its fingerprint.
//!
//! Shared by all readers of one job. Not here: what is done about chunks that the index does not know either; their records stay
//! as they are, and whoever reads them finds nothing once more.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt, TryStreamExt};
use larder_format::ChunkRef;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::index_tables::{ChunkKey, ContainerFacts, ContainerState};
use larder_index::{Chunks, ContainerExtents, Containers, TableView};
use larder_index::{IndexError, IndexIo, IndexRuntime, IndexSnapshot, LookupOptions};
use larder_store::{Repository, RepositoryError};
use lru::LruCache;
use parking_lot::Mutex;

use super::arranged::{self, Arranged, Records};
use crate::context::{Context, Progress};

/// Of a job's memory, one part in so many for records of extents.
const EXTENTS_ONE_IN: usize = 16;
/// Tables of containers that are kept: some hundred kilobytes each.
const TABLES_KEPT: NonZeroUsize = NonZeroUsize::new(16).unwrap();
/// Tables that are read at once.
const CONCURRENT_READS: usize = 8;
/// How often the newest index is looked for again when what it names is gone: a pass has published and cleaned up meanwhile.
const ATTEMPTS: u32 = 3;

/// What it means for readers that there is no index.
const NOT_FOUND: &str = "what was moved is not found";
/// What people should know when chunks of a version of the layout `lifecycle` are not found and there is no index.
const NO_INDEX: &str = "this snapshot's chunks were arranged, and the index, which says where they are, is missing or cannot be read; \
                        `larder repair index` makes it anew";

/// See the module header.
pub(crate) struct Moved {
    repository: Repository,
    runtime: IndexRuntime,
    progress: Arc<dyn Progress>,
    arranged: Arranged,
    state: Mutex<State>,
    /// Chunks that were led on, and how often the index was asked for that.
    led: AtomicU64,
    look_ups: AtomicU64,
}

struct State {
    gone: HashSet<ContainerId>,
    /// Whether the newest index was looked for.
    has_looked: bool,
    index: Option<Arc<Index>>,
    /// How often what is known of places has changed.
    changes: u64,
    /// Whether people were told that there is no index.
    has_told: bool,
    tables: LruCache<ContainerId, Arc<Vec<ChunkRef>>>,
}

struct Index {
    number: u64,
    chunks: TableView<Chunks>,
    containers: TableView<Containers>,
    extents: TableView<ContainerExtents>,
}

impl std::fmt::Debug for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moved").field("gone", &self.state.lock().gone.len()).finish_non_exhaustive()
    }
}

impl Moved {
    pub(crate) fn new(context: &Context) -> Self {
        let state = State {
            gone: HashSet::new(),
            has_looked: false,
            index: None,
            changes: 0,
            has_told: false,
            tables: LruCache::new(TABLES_KEPT),
        };
        Self {
            repository: context.repository.clone(),
            runtime: context.runtime.clone(),
            progress: context.progress.clone(),
            arranged: Arranged::new(context.memory / EXTENTS_ONE_IN),
            state: Mutex::new(state),
            led: AtomicU64::new(0),
            look_ups: AtomicU64::new(0),
        }
    }

    /// How many chunks were led on by the index, and how often it was asked.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.led.load(Ordering::Relaxed), self.look_ups.load(Ordering::Relaxed))
    }

    /// Versions of the layout `lifecycle` that will be read name these containers.
    pub(crate) fn expect(&self, containers: impl IntoIterator<Item = ContainerId>) {
        self.arranged.expect(containers);
    }

    /// How often what is known of places has changed: who has planned with what was known plans anew.
    pub(crate) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Whether an index was read.
    pub(crate) fn has_index(&self) -> bool {
        self.state.lock().index.is_some()
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
        state.has_looked = true;
        let is_newer = newest.as_ref().map(|index| index.number) != before;
        if is_newer {
            state.index = newest;
            self.arranged.forget();
        }
        if state.index.is_none() {
            drop(state);
            if !containers.is_empty() && self.arranged.is_asked() {
                self.tell();
            }
            return Ok(false);
        }
        let mut are_new = false;
        for container in containers {
            are_new |= state.gone.insert(container);
        }
        state.changes += u64::from(are_new || is_newer);
        Ok(are_new || is_newer)
    }

    /// Sets chunks as recipes of the layout `lifecycle` name them to where they are now, as far as that is known.
    pub(crate) fn place<'a>(&self, chunks: impl IntoIterator<Item = &'a mut ChunkRef>) -> Result<(), RepositoryError> {
        let mut chunks: Vec<_> = chunks.into_iter().collect();
        if let Some(records) = self.records(chunks.iter().map(|chunk| chunk.container))? {
            chunks.iter_mut().for_each(|chunk| arranged::place(&records, chunk));
        }
        self.lead_on(chunks)
    }

    /// The containers that have anything of these ones now, by what is known.
    pub(crate) fn places(
        &self,
        containers: impl IntoIterator<Item = ContainerId>,
    ) -> Result<Vec<ContainerId>, RepositoryError> {
        let containers: Vec<_> = containers.into_iter().collect();
        let Some(records) = self.records(containers.iter().copied())? else { return Ok(containers) };
        let places = containers.iter().map(|id| match records.get(id) {
            Some(record) => arranged::places(*id, record),
            None => vec![*id],
        });
        Ok(places.flatten().collect())
    }

    /// Bytes that containers have now of those that are named; `None`: one that is as it was.
    pub(crate) fn held_by(&self, named: &[ContainerId]) -> Result<Vec<(ContainerId, Option<u64>)>, RepositoryError> {
        let records = self.records(named.iter().copied())?.unwrap_or_default();
        let mut held = Vec::new();
        for id in named {
            match records.get(id).and_then(Option::as_ref) {
                None => held.push((*id, None)),
                Some(extents) => held.extend(
                    extents
                        .0
                        .iter()
                        .map(|extent| (extent.to.map_or(*id, |(place, _)| place), Some(u64::from(extent.length)))),
                ),
            }
        }
        Ok(held)
    }

    /// Records of extents; `None`: there is no index.
    pub(crate) fn records(
        &self,
        containers: impl IntoIterator<Item = ContainerId>,
    ) -> Result<Option<Records>, RepositoryError> {
        let mut wanted: Vec<_> = containers.into_iter().filter(|id| id.kind == ContainerKind::Data).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            return Ok(None);
        }
        if !self.state.lock().has_looked {
            self.learn([])?;
        }
        for _ in 0..ATTEMPTS {
            let Some(index) = self.state.lock().index.clone() else { return Ok(None) };
            match self.runtime.block_on(self.arranged.records(&index.extents, wanted.iter().copied())) {
                Ok(records) => return Ok(Some(records)),
                // Runs that this index names may be gone because there is a newer one.
                Err(error) if error.is_damage() => {
                    if !self.learn([])? {
                        return without_index(error, NOT_FOUND).map(|()| None);
                    }
                }
                Err(error) => {
                    without_index(error, NOT_FOUND)?;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Tells people, once, that what was not found would be found with an index.
    fn tell(&self) {
        if !std::mem::replace(&mut self.state.lock().has_told, true) {
            self.progress.note(NO_INDEX);
        }
    }

    fn newest(&self) -> Result<Option<Arc<Index>>, RepositoryError> {
        let snapshot = match self.runtime.block_on(IndexSnapshot::newest(&self.repository)) {
            Ok(newest) => newest.snapshot,
            Err(error) => return without_index(error, NOT_FOUND).map(|()| None),
        };
        if snapshot.number == 0 {
            return Ok(None);
        }
        let io = IndexIo { repository: self.repository.clone(), runtime: self.runtime.clone() };
        let options = LookupOptions::default();
        Ok(Some(Arc::new(Index {
            number: snapshot.number,
            chunks: TableView::new(io.clone(), &snapshot.manifest.runs, options),
            containers: TableView::new(io.clone(), &snapshot.manifest.runs, options),
            extents: TableView::new(io, &snapshot.manifest.runs, options),
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
        self.look_ups.fetch_add(1, Ordering::Relaxed);
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
                Some(there) if there.fingerprint == chunk.fingerprint && there.size == chunk.size => {
                    **chunk = *there;
                    self.led.fetch_add(1, Ordering::Relaxed);
                }
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
