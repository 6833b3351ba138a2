//! The containers that tasks of a pass retired: in memory as far as its share allows. When half of
//! a large series is forgotten, these are half of its containers.

use std::path::Path;

use larder_index::IndexError;
use larder_spill::{Pages, Row, RowReader, RowWriter};
use larder_store::survey::ListedContainer;

use super::container_values::{id_from, put_id, spilled};

/// A container in a row.
#[derive(Debug, Clone, Copy)]
struct Retired(ListedContainer);

impl Row for Retired {
    const BYTES: usize = 29;

    fn encode(&self, row: &mut RowWriter<'_>) {
        put_id(row, &self.0.id);
        row.u64(self.0.bytes);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self(ListedContainer { id: id_from(row), bytes: row.u64() })
    }
}

/// See the module header.
#[derive(Debug)]
pub struct RetiredContainers {
    rows: Pages<Retired>,
    bytes: u64,
}

impl RetiredContainers {
    /// None. They take about `memory` bytes of memory at most; the file is in `folder`.
    pub fn new(folder: &Path, memory: usize) -> Self {
        Self { rows: Pages::new(folder, memory), bytes: 0 }
    }

    /// Adds a container.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, container: ListedContainer) -> Result<(), IndexError> {
        self.bytes += container.bytes;
        self.rows.push(&Retired(container)).map(drop).map_err(spilled)
    }

    /// Their number.
    pub fn len(&self) -> u64 {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of them, some at a time, as they were added. Nothing follows an error.
    pub fn batches(&mut self) -> impl Iterator<Item = Result<Vec<ListedContainer>, IndexError>> + '_ {
        let end = self.rows.len();
        let mut next = 0;
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let from = next;
            next += Pages::<Retired>::PAGE_ROWS;
            let read = self.rows.read(from..next).map_err(spilled);
            if read.is_err() {
                next = end;
            }
            Some(read.map(|rows| rows.into_iter().map(|row| row.0).collect()))
        })
    }
}
