//! Where the chunks that an image asked for are: a row for each, in a file without a name.
//!
//! A row also has the beginning of the fingerprint. A place counts only for that chunk, whatever
//! some other task said of two chunks being equal.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use larder_format::Fingerprint;
use larder_format::ids::ContainerId;
use larder_spill::{Row, RowFile, RowReader, RowWriter, unnamed_in};

/// Rows that are read or written at once.
const PAGE_ROWS: u64 = 4096;

/// A place, in a container by its number in [`Places`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlaceRow {
    /// 0: none yet; else one more than the number.
    container: u32,
    offset: u32,
    chunk: [u8; 16],
}

impl Row for PlaceRow {
    const BYTES: usize = 24;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u32(self.container);
        row.u32(self.offset);
        row.bytes(&self.chunk);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { container: row.u32(), offset: row.u32(), chunk: row.bytes() }
    }
}

/// Where a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) container: ContainerId,
    /// Offset in its payload.
    pub(crate) offset: u32,
}

/// See the module header.
pub(crate) struct Places {
    rows: RowFile<PlaceRow>,
    containers: Vec<ContainerId>,
    numbers: HashMap<ContainerId, u32>,
    /// Rows that are not written yet, from this number on.
    pending: (u64, Vec<PlaceRow>),
    /// Rows that were read, from this number on.
    read: (u64, Vec<PlaceRow>),
}

impl Places {
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let rows = RowFile::new(unnamed_in(folder)?);
        let (containers, numbers) = (Vec::new(), HashMap::new());
        Ok(Self { rows, containers, numbers, pending: (0, Vec::new()), read: (0, Vec::new()) })
    }

    /// Sets the place of a chunk. Fast for rising numbers.
    pub(crate) fn set(&mut self, number: u32, fingerprint: &Fingerprint, place: Place) -> io::Result<()> {
        let container = match self.numbers.get(&place.container) {
            Some(number) => *number,
            None => {
                let number = self.containers.len() as u32 + 1;
                self.containers.push(place.container);
                self.numbers.insert(place.container, number);
                number
            }
        };
        let number = u64::from(number);
        let (first, rows) = &mut self.pending;
        if number != *first + rows.len() as u64 || rows.len() as u64 >= PAGE_ROWS {
            self.flush()?;
            self.pending.0 = number;
        }
        self.pending.1.push(PlaceRow { container, offset: place.offset, chunk: head(fingerprint) });
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let (first, rows) = &mut self.pending;
        self.read.1.clear();
        self.rows.write(*first, rows.drain(..))
    }

    /// The place of a chunk; `None` if it has none yet, or if that number is of another chunk. Fast
    /// for rising numbers.
    pub(crate) fn get(&mut self, number: u32, fingerprint: &Fingerprint) -> io::Result<Option<Place>> {
        let number = u64::from(number);
        if !self.pending.1.is_empty() {
            let row = number.checked_sub(self.pending.0).and_then(|at| self.pending.1.get(at as usize).copied());
            if let Some(row) = row {
                return Ok(self.place(row, fingerprint));
            }
            self.flush()?;
        }
        let (first, rows) = &self.read;
        if number < *first || number >= *first + rows.len() as u64 {
            self.read = (number, self.rows.read(number..number + PAGE_ROWS)?);
        }
        let row = self.read.1.get((number - self.read.0) as usize);
        Ok(row.and_then(|row| self.place(*row, fingerprint)))
    }

    /// The same for numbers in any order.
    pub(crate) fn look(&self, number: u32, fingerprint: &Fingerprint) -> io::Result<Option<Place>> {
        let number = u64::from(number);
        let pending = number.checked_sub(self.pending.0).and_then(|at| self.pending.1.get(at as usize));
        let row = match pending {
            Some(row) => *row,
            None if number < self.rows.rows() => self.rows.get(number)?,
            None => return Ok(None),
        };
        Ok(self.place(row, fingerprint))
    }

    fn place(&self, row: PlaceRow, fingerprint: &Fingerprint) -> Option<Place> {
        if row.chunk != head(fingerprint) {
            return None;
        }
        let container = *self.containers.get(row.container.checked_sub(1)? as usize)?;
        Some(Place { container, offset: row.offset })
    }
}

/// The beginning of a fingerprint.
fn head(fingerprint: &Fingerprint) -> [u8; 16] {
    let mut head = [0; 16];
    head.copy_from_slice(&fingerprint.0[..16]);
    head
}

#[cfg(test)]
mod tests {
    use larder_format::ids::{ContainerKind, JobId};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_are_those_set_last(set in prop::collection::vec((0..200_u32, 0..3_u32, any::<u32>()), 0..300)) {
            let folder = tempfile::tempdir().expect("a folder");
            let mut places = Places::new(folder.path()).expect("a file");
            let chunk = |number: u32| Fingerprint([number as u8; 32]);
            let mut expected = HashMap::new();
            for (at, (number, seq, offset)) in set.into_iter().enumerate() {
                let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq };
                let place = Place { container, offset };
                places.set(number, &chunk(number), place).expect("written");
                expected.insert(number, place);
                if at % 7 == 0 {
                    prop_assert_eq!(places.get(number, &chunk(number)).expect("read"), Some(place));
                } else {
                    prop_assert_eq!(places.look(number, &chunk(number)).expect("read"), Some(place));
                }
                // Of another chunk, nothing is known under that number.
                prop_assert_eq!(places.look(number, &chunk(number + 1)).expect("read"), None);
            }
            for number in 0..210 {
                prop_assert_eq!(places.look(number, &chunk(number)).expect("read"), expected.get(&number).copied());
                prop_assert_eq!(places.get(number, &chunk(number)).expect("read"), expected.get(&number).copied());
                prop_assert_eq!(places.get(number, &chunk(number + 1)).expect("read"), None);
            }
        }
    }
}
