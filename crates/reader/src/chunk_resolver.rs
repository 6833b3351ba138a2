//! Chunks that are not where their records say: their containers were retired by the G-node, and
//! the index redirects readers.
//!
//! A reader learns of such a container by not finding it (rule `LookAgain` of
//! `docs/concurrency.md`). Then it reads the newest index. From there on, records of such
//! containers are redirected by their fingerprints, in one hop. A version whose chunks are where it
//! says never needs the index.
//!
//! Recipes of the layout `lifecycle` name chunks without their places. The newest index is read
//! first, and its records of extents turn names into places ([`Moved::place`], `extent_map`).
//! Chunks that are not there are looked up as above: in a newer index if there is one, else by
//! fingerprint.
//!
//! Many chunks are looked up at once ([`Moved::resolve`]): sorted by fingerprint, in one join with
//! the table of chunks. Then each container's table is read once. So the cost follows the tables
//! and not the number of segments.
//!
//! Shared by all readers of one job. Not here: the choice of chunks that are looked up together
//! (`resolved`), and the treatment of chunks that the index does not know. Their records stay as
//! they are, and reading them fails again.

mod by_layout;
mod survey;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use larder_format::container::ContainerIndex;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::index_tables::{ChunkKey, ContainerState};
use larder_format::{ChunkRef, Fingerprint};
use larder_index::{Chunks, ContainerExtents, Containers, TableView};
use larder_index::{Executor, IndexError, IndexIo, IndexSnapshot, LookupOptions};
use larder_job::{JobContext, Progress};
use larder_store::{Repository, RepositoryError};
use parking_lot::Mutex;

use crate::extent_map::{self, Arranged, Records};

pub(crate) use by_layout::{ChunkResolver, ExtentPlaces, RecordedPlaces, objects_and_names, of_version};
pub use by_layout::{ReadingOrder, objects_of};

/// The part of a job's memory for records of extents: one in this number.
const EXTENTS_ONE_IN: usize = 16;
/// The part of a job's memory for chunks that are looked up together: one in this number.
const SOUGHT_ONE_IN: usize = 8;
/// Bytes for each of them: during the look-up, and for its result.
const SOUGHT_BYTES: usize = size_of::<Sought>() + 12;
/// The least number of them.
const SOUGHT_MIN: usize = 1 << 8;
/// Keys in one part of the join: a key takes more memory there than here.
const KEYS_AT_ONCE: usize = 1 << 14;
/// Tables of containers that are read at once: some hundred kilobytes each.
const CONCURRENT_READS: usize = 8;
/// How often the newest index is read again when its objects are gone: a pass has published and
/// cleaned up meanwhile.
const ATTEMPTS: u32 = 3;

/// The consequence for readers when there is no index.
const NOT_FOUND: &str = "what was moved is not found";
/// The note for people when chunks of a `lifecycle` version are not found and there is no index.
const NO_INDEX: &str = "this snapshot's chunks were arranged, and the index, which says where they are, is missing or cannot be read; \
                        `larder repair index` rebuilds it";

/// See the module header.
pub struct Moved {
    repository: Repository,
    runtime: Executor,
    progress: Arc<dyn Progress>,
    arranged: Arranged,
    /// Chunks that may be looked up together.
    sought_max: usize,
    state: Mutex<State>,
    /// Redirected chunks, and the number of questions to the index for them.
    redirected: AtomicU64,
    look_ups: AtomicU64,
}

struct State {
    gone: HashSet<ContainerId>,
    /// Whether the newest index was requested.
    has_looked: bool,
    index: Option<Arc<Index>>,
    /// How often the known places have changed.
    changes: u64,
    /// The note for people, shown once, when chunks are not found and there is no index.
    note: Option<&'static str>,
    /// Containers that are named by the versions being read.
    named: HashSet<ContainerId>,
    /// The index that was asked which of them are gone, and their number at that time.
    surveyed: Option<(u64, usize)>,
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
    pub(crate) fn new(context: &JobContext) -> Self {
        let state = State {
            gone: HashSet::new(),
            has_looked: false,
            index: None,
            changes: 0,
            note: None,
            named: HashSet::new(),
            surveyed: None,
        };
        Self {
            repository: context.repository.clone(),
            runtime: context.executor.clone(),
            progress: context.progress.clone(),
            arranged: Arranged::new(context.memory / EXTENTS_ONE_IN),
            sought_max: (context.memory / SOUGHT_ONE_IN / SOUGHT_BYTES).max(SOUGHT_MIN),
            state: Mutex::new(state),
            redirected: AtomicU64::new(0),
            look_ups: AtomicU64::new(0),
        }
    }

    /// The numbers of redirected chunks and of questions to the index.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.redirected.load(Ordering::Relaxed), self.look_ups.load(Ordering::Relaxed))
    }

    /// Versions of the layout `lifecycle` that will be read name these containers.
    pub fn expect(&self, containers: impl IntoIterator<Item = ContainerId>) {
        if self.arranged.expect(containers) {
            self.state.lock().note = Some(NO_INDEX);
        }
    }

    /// A version that names these containers is read: once the first is missing, the index is asked
    /// about all of them.
    pub(crate) fn expect_named(&self, containers: impl IntoIterator<Item = ContainerId>) {
        let data = containers.into_iter().filter(|id| id.kind == ContainerKind::Data);
        self.state.lock().named.extend(data);
    }

    /// The bound of chunks that are looked up together, for the sake of memory.
    pub(crate) fn sought_max(&self) -> usize {
        self.sought_max
    }

    /// How often the known places have changed. A plan from earlier places must be made again.
    pub(crate) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Whether an index was read.
    pub fn has_index(&self) -> bool {
        self.state.lock().index.is_some()
    }

    /// Whether any container was not found before.
    pub fn has_gone(&self) -> bool {
        !self.state.lock().gone.is_empty()
    }

    /// Whether a container was not found before.
    pub fn is_gone(&self, container: &ContainerId) -> bool {
        self.state.lock().gone.contains(container)
    }

    /// Records that containers were not found. Returns whether the segments that name them should
    /// be read again. They should when there is an index that may redirect, and that was not asked
    /// about all of them before.
    pub fn learn(&self, containers: impl IntoIterator<Item = ContainerId>) -> Result<bool, RepositoryError> {
        // The iterator may ask for known places.
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
            let note = if containers.is_empty() { None } else { state.note.take() };
            drop(state);
            note.into_iter().for_each(|note| self.progress.note(note));
            return Ok(false);
        }
        let has_missing = !containers.is_empty();
        let mut are_new = false;
        for container in containers {
            are_new |= state.gone.insert(container);
        }
        state.changes += u64::from(are_new || is_newer);
        drop(state);
        if has_missing {
            self.survey();
        }
        Ok(are_new || is_newer)
    }

    /// Sets chunks of `lifecycle` recipes to their present places, as far as known.
    pub fn place<'a>(&self, chunks: impl IntoIterator<Item = &'a mut ChunkRef>) -> Result<(), RepositoryError> {
        let mut chunks: Vec<_> = chunks.into_iter().collect();
        self.arrange(chunks.iter_mut().map(|chunk| &mut **chunk))?;
        self.redirect(chunks)
    }

    /// The same by the records of extents alone.
    pub(crate) fn arrange<'a>(
        &self,
        chunks: impl IntoIterator<Item = &'a mut ChunkRef>,
    ) -> Result<(), RepositoryError> {
        let mut chunks: Vec<_> = chunks.into_iter().collect();
        if let Some(records) = self.records(chunks.iter().map(|chunk| chunk.container))? {
            chunks.iter_mut().for_each(|chunk| extent_map::place(&records, chunk));
        }
        Ok(())
    }

    /// The containers that hold chunks of these ones now, as far as known.
    pub(crate) fn places(
        &self,
        containers: impl IntoIterator<Item = ContainerId>,
    ) -> Result<Vec<ContainerId>, RepositoryError> {
        let containers: Vec<_> = containers.into_iter().collect();
        let Some(records) = self.records(containers.iter().copied())? else { return Ok(containers) };
        let places = containers.iter().map(|id| match records.get(id) {
            Some(record) => extent_map::places(*id, record),
            None => vec![*id],
        });
        Ok(places.flatten().collect())
    }

    /// Bytes that containers hold now of the named ones; `None` marks an unchanged container.
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

    fn newest(&self) -> Result<Option<Arc<Index>>, RepositoryError> {
        let snapshot = match self.runtime.block_on(IndexSnapshot::newest(&self.repository)) {
            Ok(newest) => newest.snapshot,
            Err(error) => return without_index(error, NOT_FOUND).map(|()| None),
        };
        if snapshot.number == 0 {
            return Ok(None);
        }
        let io = IndexIo { repository: self.repository.clone(), executor: self.runtime.clone() };
        let options = LookupOptions::default();
        Ok(Some(Arc::new(Index {
            number: snapshot.number,
            chunks: TableView::new(io.clone(), &snapshot.manifest.runs, options),
            containers: TableView::new(io.clone(), &snapshot.manifest.runs, options),
            extents: TableView::new(io, &snapshot.manifest.runs, options),
        })))
    }

    /// Redirects chunks of containers that were not found. Chunks that the index does not know stay
    /// as they are.
    pub fn redirect<'a>(&self, chunks: impl IntoIterator<Item = &'a mut ChunkRef>) -> Result<(), RepositoryError> {
        let mut chunks: Vec<_> = {
            let state = self.state.lock();
            chunks.into_iter().filter(|chunk| state.gone.contains(&chunk.container)).collect()
        };
        let mut sought: Vec<Sought> = Vec::new();
        for (number, chunks) in chunks.chunks_mut(self.sought_max).enumerate() {
            sought.clear();
            sought.extend(
                chunks.iter().enumerate().map(|(place, chunk)| Sought::new(chunk, number as u32, place as u32)),
            );
            let containers = self.resolve(&mut sought)?;
            for found in &sought {
                if let Some((container, offset)) = found.place(&containers) {
                    let chunk = &mut *chunks[found.at as usize];
                    (chunk.container, chunk.offset) = (container, offset);
                }
            }
        }
        Ok(())
    }

    /// Finds the present places of chunks, all in one join, and returns the chunks in another
    /// order. Places name containers by numbers in the result.
    pub fn resolve(&self, sought: &mut [Sought]) -> Result<Found, RepositoryError> {
        if sought.is_empty() {
            return Ok(Found::default());
        }
        for _ in 0..ATTEMPTS {
            let Some(index) = self.state.lock().index.clone() else { return Ok(Found::default()) };
            let (found, damage) = match self.runtime.block_on(self.look_up(&index, sought)) {
                Ok((found, None)) => return Ok(found),
                Ok((found, Some(damage))) => (found, damage),
                Err(error) => (Found::default(), error),
            };
            // Runs or containers that this index names may be gone because there is a newer one.
            if !damage.is_damage() || !self.learn([])? {
                return without_index(damage, NOT_FOUND).map(|()| found);
            }
        }
        Ok(Found::default())
    }

    /// See [`Self::resolve`]. Damage to the index or to a container costs only the chunks of the
    /// damaged part; the first damage is returned.
    async fn look_up(&self, index: &Index, sought: &mut [Sought]) -> Result<(Found, Option<IndexError>), IndexError> {
        self.look_ups.fetch_add(1, Ordering::Relaxed);
        let mut damage = None;
        let mut unless_damaged = |error: IndexError| match error.is_damage() {
            true => {
                damage.get_or_insert(error);
                Ok(())
            }
            false => Err(error),
        };
        sought.sort_unstable_by_key(|chunk| chunk.fingerprint.0);
        for part in sought.chunks_mut(KEYS_AT_ONCE) {
            let keys: Vec<_> = part.iter().map(|chunk| ChunkKey::of(&chunk.fingerprint)).collect();
            let places = match index.chunks.get(&keys).await {
                Ok(places) => places,
                Err(error) => unless_damaged(error).map(|()| vec![None; part.len()])?,
            };
            for (chunk, place) in part.iter_mut().zip(places) {
                (chunk.container, chunk.number) = place.map_or((NOWHERE, 0), |place| (place.container, place.chunk));
            }
        }
        sought.sort_unstable_by_key(|chunk| (chunk.container, chunk.number));
        let known = sought.partition_point(|chunk| chunk.container != NOWHERE);
        let mut groups: Vec<&mut [Sought]> = sought[..known].chunk_by_mut(|a, b| a.container == b.container).collect();
        let numbers: Vec<u32> = groups.iter().map(|group| group[0].container).collect();
        let mut found = Found::default();
        for (number, facts) in numbers.iter().zip(index.containers.get(&numbers).await?) {
            // A retired container holds nothing any more, whatever an entry says.
            if let Some(facts) = facts.filter(|facts| facts.state == ContainerState::Live) {
                found.0.insert(*number, facts.id);
            }
        }
        let tables = numbers.iter().map(|number| found.0.get(number).copied()).map(|id| async move {
            match id {
                Some(id) => self.repository.read_container_index(id).await.map(Some),
                None => Ok(None),
            }
        });
        // In order, and none is kept after it was used.
        let mut tables = futures::stream::iter(tables).buffered(CONCURRENT_READS);
        for group in &mut groups {
            let table = match tables.next().await {
                Some(Ok(table)) => table,
                Some(Err(error)) => unless_damaged(error.into()).map(|()| None)?,
                None => None,
            };
            self.redirected.fetch_add(place(group, table.as_ref()), Ordering::Relaxed);
        }
        drop(tables);
        Ok((found, damage))
    }
}

/// "Not in the index": the record stays as it is.
const NOWHERE: u32 = u32::MAX;

/// A chunk to look up.
#[derive(Debug, Clone, Copy)]
pub struct Sought {
    fingerprint: Fingerprint,
    size: u32,
    /// The caller's first number for the chunk.
    pub(crate) group: u32,
    /// The caller's second number.
    pub at: u32,
    /// Number of its container in the index, or [`NOWHERE`].
    container: u32,
    /// Its number in the container; once found there, its offset.
    number: u32,
}

impl Sought {
    /// A chunk that is not where its record says. `group` and `at` are for the caller.
    pub fn new(chunk: &ChunkRef, group: u32, at: u32) -> Self {
        Self { fingerprint: chunk.fingerprint, size: chunk.size, group, at, container: NOWHERE, number: 0 }
    }

    /// Its place: container and offset; `None` if unknown.
    pub fn place(&self, found: &Found) -> Option<(ContainerId, u32)> {
        Some((*found.0.get(&self.container)?, self.number))
    }
}

/// Containers in which chunks were found, by their numbers in the index.
#[derive(Debug, Default)]
pub struct Found(HashMap<u32, ContainerId>);

/// Sets chunks of one container, in the order of their numbers there, to their offsets. Chunks that
/// differ from the container's table get no place. Returns the number of right ones.
fn place(chunks: &mut [Sought], table: Option<&ContainerIndex>) -> u64 {
    let mut there = table.into_iter().flat_map(|table| table.chunk_refs()).zip(0u32..).peekable();
    let mut right = 0;
    for chunk in chunks {
        while there.next_if(|(_, number)| *number < chunk.number).is_some() {}
        match there.peek() {
            // A wrong index must not make a reader take other bytes for the chunk's.
            Some((one, number))
                if *number == chunk.number && one.fingerprint == chunk.fingerprint && one.size == chunk.size =>
            {
                chunk.number = one.offset;
                right += 1;
            }
            _ => {
                if table.is_some() {
                    tracing::warn!(container = chunk.container, "the index names a chunk that is another");
                }
                chunk.container = NOWHERE;
            }
        }
    }
    right
}

/// An unreadable index counts as none, with a consequence; an unreachable store is an error.
pub fn without_index(error: IndexError, consequence: &'static str) -> Result<(), RepositoryError> {
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
