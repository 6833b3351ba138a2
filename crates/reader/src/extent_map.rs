//! The places of chunks of `lifecycle` versions: the index's records of extents, applied to chunks
//! as recipes name them (`docs/lifecycle.md`).
//!
//! `chunk_resolver` asks here for every segment that is read. The first question reads the records
//! of all containers that a version names, so that no container is requested where it is not any
//! more.
//!
//! Invariants
//! * Records are kept by container, within the given bytes; records without room are read again by
//!   key. Nothing is kept by chunk.
//! * Kept records are of one index; a change of the index forgets them all.
//!
//! Not here: the choice of the index, and the treatment of chunks without a record
//! (`chunk_resolver`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use larder_format::ChunkRef;
use larder_format::extents::{Extent, Extents};
use larder_format::ids::{ContainerId, ContainerKind};
use larder_index::{ContainerExtents, IndexError, TableView};
use larder_store::byte_lru::ByteLru;
use parking_lot::Mutex;

/// Records that are requested at once.
const BATCH: usize = 1024;
/// Bytes of memory for a kept container, beside its extents.
const RECORD_BYTES: usize = 96;

/// The knowledge of a container; `None`: it is where and as it was.
type Record = Option<Arc<Extents>>;
/// The records of some containers.
pub(super) type Records = HashMap<ContainerId, Record>;

/// See the module header.
pub(super) struct Arranged {
    budget: usize,
    state: Mutex<State>,
}

struct State {
    /// All containers of coming questions.
    expected: HashSet<ContainerId>,
    /// Those of them whose records were not read yet.
    waiting: Vec<ContainerId>,
    kept: ByteLru<ContainerId, Record>,
}

impl Arranged {
    /// Keeps records in about `budget` bytes.
    pub(super) fn new(budget: usize) -> Self {
        let state = State { expected: HashSet::new(), waiting: Vec::new(), kept: ByteLru::new(budget) };
        Self { budget, state: Mutex::new(state) }
    }

    /// Announces questions about these containers too. Returns whether they are the first.
    pub(super) fn expect(&self, containers: impl IntoIterator<Item = ContainerId>) -> bool {
        let State { expected, waiting, .. } = &mut *self.state.lock();
        let were_none = expected.is_empty();
        let data = containers.into_iter().filter(|id| id.kind == ContainerKind::Data);
        waiting.extend(data.filter(|id| expected.insert(*id)));
        were_none && !expected.is_empty()
    }

    /// Switches to another index.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        state.kept = ByteLru::new(self.budget);
        state.waiting = state.expected.iter().copied().collect();
    }

    /// The records of containers, from memory or from the table.
    pub(super) async fn records(
        &self,
        table: &TableView<ContainerExtents>,
        containers: impl IntoIterator<Item = ContainerId>,
    ) -> Result<Records, IndexError> {
        self.read_expected(table).await?;
        let mut records = Records::new();
        let mut wanted = Vec::new();
        {
            let mut state = self.state.lock();
            for id in containers.into_iter().filter(|id| id.kind == ContainerKind::Data) {
                if records.contains_key(&id) {
                    continue;
                }
                let kept = state.kept.get(&id);
                if kept.is_none() {
                    wanted.push(id);
                }
                records.insert(id, kept.flatten());
            }
        }
        for batch in wanted.chunks(BATCH) {
            self.read(table, batch, &mut records).await?;
        }
        Ok(records)
    }

    /// Reads the records of all coming questions, as far as there is room.
    async fn read_expected(&self, table: &TableView<ContainerExtents>) -> Result<(), IndexError> {
        let mut waiting = std::mem::take(&mut self.state.lock().waiting);
        waiting.sort_unstable();
        let mut bytes = 0;
        for batch in waiting.chunks(BATCH) {
            let mut records = Records::new();
            self.read(table, batch, &mut records).await?;
            bytes += records.values().map(bytes_of).sum::<usize>();
            if bytes >= self.budget {
                break;
            }
        }
        Ok(())
    }

    async fn read(
        &self,
        table: &TableView<ContainerExtents>,
        containers: &[ContainerId],
        records: &mut Records,
    ) -> Result<(), IndexError> {
        let found = table.get(containers).await?;
        let mut state = self.state.lock();
        for (id, record) in containers.iter().zip(found) {
            let record = record.map(Arc::new);
            state.kept.put(*id, record.clone(), bytes_of(&record));
            records.insert(*id, record);
        }
        Ok(())
    }
}

fn bytes_of(record: &Record) -> usize {
    RECORD_BYTES + record.as_ref().map_or(0, |extents| extents.0.len() * size_of::<Extent>())
}

/// Sets a chunk to its present place. A chunk that no record moves stays as it is named.
pub(super) fn place(records: &Records, chunk: &mut ChunkRef) {
    if let Some(Some(extents)) = records.get(&chunk.container)
        && let Some(place) = extents.place(chunk.container, chunk.offset, chunk.size)
    {
        (chunk.container, chunk.offset) = place;
    }
}

/// The containers that hold chunks of a container now.
pub(super) fn places(id: ContainerId, record: &Record) -> Vec<ContainerId> {
    let Some(extents) = record else { return vec![id] };
    let mut places: Vec<_> = extents.0.iter().map(|extent| extent.to.map_or(id, |(place, _)| place)).collect();
    places.sort_unstable();
    places.dedup();
    places
}
