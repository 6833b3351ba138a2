//! What the index and the block table say about a place, as rows that are sorted by place.

use larder_format::volume_map::{MapItem, Place};
use larder_spill::{Row, RowReader, RowWriter};

/// See the module header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) place: Place,
    pub(super) by: By,
}

/// Who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    /// The index: the beginning of the fingerprint of the chunk there.
    Index([u8; 20]),
    /// A block of a volume: the part of the chunk, and the beginning of its fingerprint.
    Block { volume: u32, block: u64, tag: [u8; 4], part_end: u32, is_in_run: bool },
}

impl Claim {
    /// That of a part of a block, unless the part is zeros. `is_in_run`: the table of counts counts
    /// it.
    pub(super) fn of_item(volume: u32, block: u64, item: &MapItem, is_in_run: bool) -> Option<Self> {
        let part_end = u32::from(item.skip) + u32::from(item.length);
        Some(Self { place: item.place?, by: By::Block { volume, block, tag: item.tag, part_end, is_in_run } })
    }
}

impl Row for Claim {
    const BYTES: usize = 8 + 1 + 20;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u32(self.place.container);
        row.u32(self.place.offset);
        match &self.by {
            By::Index(key) => {
                row.bytes(&[0]);
                row.bytes(key);
            }
            By::Block { volume, block, tag, part_end, is_in_run } => {
                row.bytes(&[1 + u8::from(*is_in_run)]);
                row.u32(*volume);
                row.u64(*block);
                row.bytes(tag);
                row.u32(*part_end);
            }
        }
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let place = Place { container: row.u32(), offset: row.u32() };
        let [kind] = row.bytes();
        let by = match kind {
            0 => By::Index(row.bytes()),
            kind => By::Block {
                volume: row.u32(),
                block: row.u64(),
                tag: row.bytes(),
                part_end: row.u32(),
                is_in_run: kind == 2,
            },
        };
        Self { place, by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_spill::RowSorter;

    #[test]
    fn claims_keep_their_fields_in_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |offset| Place { container: 7, offset };
        let block =
            |is_in_run| By::Block { volume: 3, block: u64::MAX - 1, tag: [1, 2, 3, 4], part_end: 131_070, is_in_run };
        let claims = [
            Claim { place: place(9), by: By::Index([5; 20]) },
            Claim { place: place(9), by: block(false) },
            Claim { place: place(9), by: block(true) },
            Claim { place: place(10), by: block(true) },
        ];
        let mut sorter = RowSorter::new(1, folder.path().into());
        for claim in claims.iter().rev() {
            sorter.push(*claim).expect("written");
        }
        let sorted: Result<Vec<_>, _> = sorter.sorted().expect("read").collect();
        assert_eq!(sorted.expect("read"), claims);
    }
}
