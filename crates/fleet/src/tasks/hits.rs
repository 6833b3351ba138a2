//! Chunks that the index has, by container: so the table of each is read once for many of them.
//!
//! An image takes its known chunks from all over the repository. In the order of the image, few
//! tables would still be in memory when they are needed again.

use std::io;
use std::path::PathBuf;

use larder_format::Fingerprint;
use larder_format::index_tables::ChunkPlace;
use larder_spill::{Row, RowReader, RowSorter, RowWriter, SortedRows};

use super::asked::Asked;

/// Sorted runs in a file, at most. Each takes some pages of memory when they are merged.
const RUNS_MAX: usize = 32;

/// A chunk that was asked for, and where the index has it. Rows sort by that place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hit {
    container: u32,
    chunk: u32,
    number: u32,
    size: u32,
    offset: u64,
    fingerprint: [u8; 32],
}

impl Hit {
    /// The place that the index says.
    pub(super) fn said(&self) -> ChunkPlace {
        ChunkPlace { container: self.container, chunk: self.chunk }
    }

    /// The chunk.
    pub(super) fn asked(&self) -> Asked {
        let Self { number, size, offset, fingerprint, .. } = *self;
        Asked { number, offset, size, fingerprint: Fingerprint(fingerprint) }
    }
}

impl Row for Hit {
    const BYTES: usize = 56;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u32(self.container);
        row.u32(self.chunk);
        row.u32(self.number);
        row.u32(self.size);
        row.u64(self.offset);
        row.bytes(&self.fingerprint);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let (container, chunk, number, size) = (row.u32(), row.u32(), row.u32(), row.u32());
        Self { container, chunk, number, size, offset: row.u64(), fingerprint: row.bytes() }
    }
}

/// Hits that were not looked at yet.
pub(super) struct Hits {
    budget: usize,
    folder: PathBuf,
    sorter: RowSorter<Hit>,
    count: usize,
}

impl Hits {
    /// None, within `budget` bytes of memory. More go into a file in `folder`.
    pub(super) fn new(budget: usize, folder: PathBuf) -> Self {
        Self { budget, sorter: RowSorter::new(budget, folder.clone()), folder, count: 0 }
    }

    /// Adds one. Returns whether it is time to look at them.
    pub(super) fn push(&mut self, chunk: &Asked, said: ChunkPlace) -> io::Result<bool> {
        let ChunkPlace { container, chunk: place } = said;
        let Asked { number, offset, size, fingerprint } = *chunk;
        self.count += 1;
        self.sorter.push(Hit { container, chunk: place, number, size, offset, fingerprint: fingerprint.0 })?;
        Ok(self.count >= RUNS_MAX * (self.budget / size_of::<Hit>()).max(1))
    }

    /// Takes them, by container.
    pub(super) fn take(&mut self) -> io::Result<SortedRows<Hit>> {
        self.count = 0;
        std::mem::replace(&mut self.sorter, RowSorter::new(self.budget, self.folder.clone())).sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_come_by_container_and_are_what_was_pushed() {
        let folder = tempfile::tempdir().expect("a folder");
        let asked = |number: u32| Asked {
            number,
            offset: u64::from(number) << 33,
            size: number + 7,
            fingerprint: Fingerprint([number as u8; 32]),
        };
        let said = |number: u32| ChunkPlace { container: number % 5, chunk: 1000 - number };
        for budget in [1, 3 * size_of::<Hit>(), 1 << 20] {
            let mut hits = Hits::new(budget, folder.path().to_owned());
            for round in 0..2 {
                let count = if hits.budget == 1 { RUNS_MAX as u32 } else { 90 };
                for number in 0..count {
                    let is_full = hits.push(&asked(number), said(number)).expect("written");
                    assert_eq!(is_full, budget == 1 && number + 1 == count, "{number} of round {round}");
                }
                let mut numbers: Vec<u32> = (0..count).collect();
                numbers.sort_by_key(|number| (number % 5, 1000 - number));
                let came: Vec<Hit> = hits.take().expect("read").map(|hit| hit.expect("read")).collect();
                assert_eq!(came.iter().map(|hit| hit.number).collect::<Vec<_>>(), numbers);
                for hit in came {
                    let (there, expected) = (hit.asked(), asked(hit.number));
                    assert_eq!(hit.said(), said(hit.number));
                    assert_eq!((there.offset, there.size), (expected.offset, expected.size));
                    assert_eq!(there.fingerprint, expected.fingerprint);
                }
            }
        }
    }
}
