//! The chunk tables of containers that an image may share: what a hint says is compared with them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_store::{RepositoryError, StoreErrorKind};
use larder_writer::ContainerTotals;

use crate::error::FleetError;
use crate::shared::Batch;

/// Bytes that a table takes, roughly.
const TABLE_BYTES: usize = 128 << 10;

/// Chunks by rising offset, and what the container holds; `None`: it cannot be used.
type Table = Option<Arc<(Vec<ChunkRef>, ContainerTotals)>>;

/// See the module header.
pub(crate) struct Tables<'a> {
    batch: &'a Batch<'a>,
    most: usize,
    known: HashMap<ContainerId, Table>,
    /// The one that was read first, first.
    order: VecDeque<ContainerId>,
}

impl<'a> Tables<'a> {
    pub(crate) fn new(batch: &'a Batch<'a>) -> Self {
        let most = (batch.budget().tables / 2 / TABLE_BYTES).max(4);
        Self { batch, most, known: HashMap::new(), order: VecDeque::new() }
    }

    fn table(&mut self, id: ContainerId) -> Result<Table, FleetError> {
        if let Some(table) = self.known.get(&id) {
            return Ok(table.clone());
        }
        let context = self.batch.context;
        let table = match context.executor.block_on(context.repository.read_container_index(id)) {
            Ok(index) => {
                let totals = ContainerTotals::of_index(&index);
                Some(Arc::new((index.chunk_refs().collect(), totals)))
            }
            Err(error) if is_unusable(&error) => {
                tracing::info!(container = %id, %error, "its chunks are stored again");
                None
            }
            Err(error) => return Err(error.into()),
        };
        while self.order.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(id);
        self.known.insert(id, table.clone());
        Ok(table)
    }

    /// The chunk with this number in a container, and what the container holds.
    pub(crate) fn chunk(
        &mut self,
        id: ContainerId,
        number: u32,
    ) -> Result<Option<(ChunkRef, ContainerTotals)>, FleetError> {
        let Some(table) = self.table(id)? else { return Ok(None) };
        let (chunks, totals) = &*table;
        Ok(chunks.get(number as usize).map(|chunk| (*chunk, *totals)))
    }

    /// The chunk at this offset of a container's payload, and what the container holds.
    pub(crate) fn chunk_at(
        &mut self,
        id: ContainerId,
        offset: u32,
    ) -> Result<Option<(ChunkRef, ContainerTotals)>, FleetError> {
        let Some(table) = self.table(id)? else { return Ok(None) };
        let (chunks, totals) = &*table;
        let at = chunks.binary_search_by_key(&offset, |chunk| chunk.offset);
        Ok(at.ok().and_then(|at| chunks.get(at).map(|chunk| (*chunk, *totals))))
    }
}

/// Whether an error says that the container is gone, damaged, in cold storage, or of another
/// domain.
pub(super) fn is_unusable(error: &RepositoryError) -> bool {
    let is_gone = matches!(error, RepositoryError::Store(error) if error.kind == StoreErrorKind::NotFound);
    is_gone || error.is_unreadable() || error.is_foreign()
}
