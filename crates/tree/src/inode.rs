//! Inode numbers. They are computed from places, so there is no table of inodes.
//!
//! | bits (high to low) | 15 | 24 | 13 | 12 |
//! |---|---|---|---|---|
//! | meaning | slot: a snapshot at one path of the mount | metadata segment | record in it | entry in the block |
//!
//! Slot 0 has the folders above snapshots, numbered as they are first seen (`folders`). A snapshot
//! that appears at several paths has several slots, because a folder may have only one parent.

/// Bits of the entry, the record and the segment.
const ENTRY: u32 = 12;
const RECORD: u32 = 13;
const SEGMENT: u32 = 24;
/// Bits below the slot.
const BELOW: u32 = ENTRY + RECORD + SEGMENT;
/// Slots, 0 included.
pub(crate) const SLOTS: usize = 1 << (u64::BITS - BELOW);
/// The root of the mount.
pub const ROOT: u64 = 1;

/// The place of an entry in the metadata stream of its version. The order is that of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    pub(crate) segment: u32,
    pub(crate) record: u32,
    pub(crate) entry: u32,
}

impl Position {
    /// As a number that keeps the order. `None`: the format allows it, but a number has no room.
    pub(crate) fn number(self) -> Option<u64> {
        let fits = self.segment >> SEGMENT == 0 && self.record >> RECORD == 0 && self.entry >> ENTRY == 0;
        let number =
            u64::from(self.segment) << (RECORD + ENTRY) | u64::from(self.record) << ENTRY | u64::from(self.entry);
        fits.then_some(number)
    }

    /// The position with a number.
    pub(crate) fn of(number: u64) -> Self {
        let part = |shift: u32, bits: u32| (number >> shift) as u32 & ((1 << bits) - 1);
        Self { segment: part(RECORD + ENTRY, SEGMENT), record: part(ENTRY, RECORD), entry: part(0, ENTRY) }
    }
}

/// The meaning of an inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inode {
    /// A folder above snapshots, or the root of one.
    Named(u64),
    /// An entry of the snapshot in a slot.
    Entry { slot: u16, position: Position },
}

impl Inode {
    /// Reads an inode number.
    pub(crate) fn of(number: u64) -> Self {
        let below = number & ((1 << BELOW) - 1);
        match (number >> BELOW) as u16 {
            0 => Self::Named(below),
            slot => Self::Entry { slot, position: Position::of(below) },
        }
    }
}

/// The inode number of an entry.
pub(crate) fn of_entry(slot: u16, position: Position) -> Option<u64> {
    Some(u64::from(slot) << BELOW | position.number()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions() {
        let last = Position { segment: (1 << 24) - 1, record: 8191, entry: 4095 };
        for position in
            [Position { segment: 0, record: 0, entry: 1 }, Position { segment: 7, record: 8000, entry: 3639 }, last]
        {
            for slot in [1, (SLOTS - 1) as u16] {
                let number = of_entry(slot, position).expect("it fits");
                assert_eq!(Inode::of(number), Inode::Entry { slot, position });
            }
        }
        assert_eq!(Inode::of(ROOT), Inode::Named(ROOT));
        for outside in
            [Position { segment: 1 << 24, ..last }, Position { record: 8192, ..last }, Position { entry: 4096, ..last }]
        {
            assert_eq!(outside.number(), None);
        }
    }

    #[test]
    fn numbers_are_in_the_order_of_positions() {
        let at = |segment, record, entry| Position { segment, record, entry };
        let ordered = [at(0, 0, 1), at(0, 1, 0), at(0, 8191, 4095), at(1, 0, 0)].map(Position::number);
        assert!(ordered.is_sorted());
    }
}
