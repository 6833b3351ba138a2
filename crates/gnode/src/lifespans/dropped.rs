//! Containers that lost their records, as far as the pass goes on with them: some are deleted,
//! others have records in a further table. There are as many as a forgotten half of a repository
//! has, so they are in pages.

use std::io;
use std::path::Path;

use larder_format::ids::ContainerId;
use larder_spill::{Pages, RowReader, RowWriter};
use larder_store::survey::ListedContainer;

use crate::spilled::{ID_BYTES, id_from, put_id};

/// Containers in one read.
const BATCH: u64 = 4096;

#[derive(Debug, Clone, Copy)]
struct Row(ListedContainer);

impl larder_spill::Row for Row {
    const BYTES: usize = ID_BYTES + size_of::<u64>();

    fn encode(&self, row: &mut RowWriter<'_>) {
        put_id(row, &self.0.id);
        row.u64(self.0.bytes);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let id: ContainerId = id_from(row);
        Self(ListedContainer { id, bytes: row.u64() })
    }
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct Dropped {
    rows: Pages<Row>,
    read: u64,
}

impl Dropped {
    /// None. They take about `memory` bytes of memory at most; the file is in `folder`.
    pub(super) fn new(folder: &Path, memory: usize) -> Self {
        Self { rows: Pages::new(folder, memory), read: 0 }
    }

    pub(super) fn push(&mut self, container: ListedContainer) -> io::Result<()> {
        self.rows.push(&Row(container)).map(drop)
    }

    /// The next ones; `None` when all were read.
    pub(crate) fn batch(&mut self) -> io::Result<Option<Vec<ListedContainer>>> {
        let rows = self.rows.read(self.read..self.read + BATCH)?;
        self.read += rows.len() as u64;
        Ok(Some(rows.into_iter().map(|row| row.0).collect()).filter(|rows: &Vec<_>| !rows.is_empty()))
    }

    /// Bytes that are in memory.
    #[cfg(test)]
    pub(super) fn bytes_in_memory(&self) -> usize {
        self.rows.bytes_in_memory()
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn all(mut self) -> Vec<ListedContainer> {
        std::iter::from_fn(|| self.batch().expect("read")).flatten().collect()
    }
}
