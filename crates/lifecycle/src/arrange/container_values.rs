//! A number for each of many containers, by their names: in memory as far as its share allows, and
//! the rest in a file without a name.

use std::cell::RefCell;
use std::io;

use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_index::{IndexError, IndexPass};
use larder_spill::{KeyedPages, KeyedRow, Row, RowReader, RowWriter};

/// Rows of one read.
const READ: u64 = 256;

/// A container and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ValueOf {
    id: ContainerId,
    value: u64,
}

impl Row for ValueOf {
    const BYTES: usize = 29;

    fn encode(&self, row: &mut RowWriter<'_>) {
        put_id(row, &self.id);
        row.u64(self.value);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { id: id_from(row), value: row.u64() }
    }
}

impl KeyedRow for ValueOf {
    type Key = ContainerId;

    fn key(&self) -> ContainerId {
        self.id
    }
}

/// Puts the name of a container into a row: 21 bytes.
pub(super) fn put_id(row: &mut RowWriter<'_>, id: &ContainerId) {
    row.bytes(&[u8::from(id.kind == ContainerKind::Meta)]);
    row.bytes(&id.job.0);
    row.u32(id.seq);
}

/// The name that [`put_id`] put there.
pub(super) fn id_from(row: &mut RowReader<'_>) -> ContainerId {
    let [kind] = row.bytes();
    let kind = if kind == 0 { ContainerKind::Data } else { ContainerKind::Meta };
    ContainerId { kind, job: JobId(row.bytes()), seq: row.u32() }
}

/// A temporary file failed.
pub(super) fn spilled(source: io::Error) -> IndexError {
    IndexError::Spill { doing: "use", source }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct ContainerValues {
    rows: RefCell<KeyedPages<ValueOf>>,
    count: u64,
}

impl ContainerValues {
    /// None. They take about `memory` bytes at most.
    pub(super) fn new(pass: &IndexPass, memory: usize) -> Self {
        Self { rows: RefCell::new(KeyedPages::new(&pass.folder, memory)), count: 0 }
    }

    /// Adds a container, which is not there yet.
    pub(super) fn push(&mut self, id: ContainerId, value: u64) -> Result<(), IndexError> {
        self.count += 1;
        self.rows.get_mut().push(ValueOf { id, value }).map_err(spilled)
    }

    /// Makes all of them findable.
    pub(super) fn settle(&mut self) -> Result<(), IndexError> {
        self.rows.get_mut().merge().map_err(spilled)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of a container, if it is there. After [`Self::settle`].
    pub(super) fn get(&self, id: &ContainerId) -> Result<Option<u64>, IndexError> {
        Ok(self.rows.borrow_mut().find(*id).map_err(spilled)?.map(|row| row.value))
    }

    /// Whether a container is there. After [`Self::settle`].
    pub(super) fn has(&self, id: &ContainerId) -> Result<bool, IndexError> {
        Ok(self.get(id)?.is_some())
    }

    /// All of them, in order. After [`Self::settle`]. Nothing follows an error.
    pub(super) fn ids(&self) -> impl Iterator<Item = Result<ContainerId, IndexError>> + '_ {
        let mut next = 0;
        let mut read = Vec::new().into_iter();
        std::iter::from_fn(move || {
            if read.len() == 0 {
                match self.rows.borrow_mut().read(next..next + READ) {
                    Ok(rows) => {
                        next += rows.len() as u64;
                        read = rows.into_iter();
                    }
                    Err(error) => {
                        next = u64::MAX - READ;
                        return Some(Err(spilled(error)));
                    }
                }
            }
            read.next().map(|row| Ok(row.id))
        })
    }
}
