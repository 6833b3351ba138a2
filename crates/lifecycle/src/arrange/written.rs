//! The containers that arranging writes, with their sizes: in memory as far as their share allows,
//! and the rest in a file without a name. A large series may be written as a whole.

use larder_format::ids::ContainerId;
use larder_index::{IndexError, IndexPass};
use larder_rewrite::chunk_copier::ChunkCopier;
use larder_spill::{KeyedPages, KeyedRow, Row, RowReader, RowWriter};
use larder_writer::ContainerTotals;

use super::ArrangeError;
use super::container_values::{id_from, put_id, spilled};

/// Of the memory of the pass for tables, one part in this number holds them.
const WRITTEN_ONE_IN: usize = 64;

/// A container in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WrittenRow {
    id: ContainerId,
    chunks: u32,
    bytes: u64,
    object_bytes: u64,
}

impl Row for WrittenRow {
    const BYTES: usize = 41;

    fn encode(&self, row: &mut RowWriter<'_>) {
        put_id(row, &self.id);
        row.u32(self.chunks);
        row.u64(self.bytes);
        row.u64(self.object_bytes);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { id: id_from(row), chunks: row.u32(), bytes: row.u64(), object_bytes: row.u64() }
    }
}

impl KeyedRow for WrittenRow {
    type Key = ContainerId;

    fn key(&self) -> ContainerId {
        self.id
    }
}

/// Writes containers, and knows the sizes of those that the store has.
pub(super) struct Writing {
    pub(super) copier: ChunkCopier,
    rows: KeyedPages<WrittenRow>,
}

impl Writing {
    /// None was written so far.
    pub(super) fn new(pass: &IndexPass, copier: ChunkCopier) -> Self {
        Self { copier, rows: KeyedPages::new(&pass.folder, pass.memory / WRITTEN_ONE_IN) }
    }

    /// Takes the containers out of the copier's memory that the store has acknowledged.
    pub(super) fn take_stored(&mut self) -> Result<(), ArrangeError> {
        for (id, ContainerTotals { chunks, bytes, object_bytes }) in self.copier.take_stored()? {
            self.rows.push(WrittenRow { id, chunks, bytes, object_bytes }).map_err(spilled)?;
        }
        Ok(())
    }

    /// Waits until the store has acknowledged all closed containers. [`Self::size_of`] then knows
    /// them.
    pub(super) fn wait(&mut self) -> Result<(), ArrangeError> {
        self.copier.wait()?;
        self.take_stored()?;
        self.rows.settle();
        Ok(())
    }

    /// The size of a container that was written. After [`Self::wait`].
    pub(super) fn size_of(&mut self, id: &ContainerId) -> Result<Option<ContainerTotals>, IndexError> {
        let row = self.rows.find(*id).map_err(spilled)?;
        Ok(row.map(|WrittenRow { chunks, bytes, object_bytes, .. }| ContainerTotals { chunks, bytes, object_bytes }))
    }
}
