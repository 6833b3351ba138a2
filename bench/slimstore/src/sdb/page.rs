//! One page of a table file: InnoDB's shape (header, heap of records, directory from the end, trailer), rewritten.
//!
//! | offset      | size | field                                                                          |
//! |------------:|-----:|--------------------------------------------------------------------------------|
//! |           0 |    4 | checksum over everything behind it but the trailer                             |
//! |           4 |    4 | page number                                                                    |
//! |           8 |    8 | page numbers of the neighbours in key order (previous, next)                   |
//! |          16 |    8 | LSN of the last change                                                         |
//! |          24 |    2 | kind                                                                           |
//! |          38 |    2 | records                                                                        |
//! |          40 |    2 | top of the heap                                                                |
//! |          42 |    2 | bytes in the heap that belong to no record                                     |
//! |          44 |    2 | records the heap has ever held (heap numbers)                                  |
//! |          94 |   26 | the two sentinel records                                                       |
//! |         120 |      | heap of records: flags (1), heap number (2), next in key order (2), key (8), body |
//! | 16376 - 2 n |  2 n | directory: offsets of the n records in key order, the last record first        |
//! |       16376 |    8 | trailer: checksum and low half of the LSN again                                |
//!
//! All numbers are big-endian, as InnoDB's are. InnoDB's directory names one record in four to eight; this one names
//! every record, which dirties a few bytes more for an insertion and keeps the code short.
//!
//! Every change reports the bytes it touched to [`Touched`], from which the table learns how much of the file is no longer
//! what it was.

/// Bytes of a page, InnoDB's default.
pub(crate) const PAGE: usize = 16 << 10;
/// Where the heap begins.
const HEAP: usize = 120;
/// Where the trailer begins.
const TRAILER: usize = PAGE - 8;
/// Bytes of a record before its body.
pub(super) const RECORD_HEADER: usize = 13;
/// Bytes of a page that are not payload in a page of an attachment.
pub(super) const OVERFLOW_HEADER: usize = 46;
/// Payload of one page of an attachment.
pub(super) const OVERFLOW_PAYLOAD: usize = TRAILER - OVERFLOW_HEADER;

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows.
    Leaf = 17_855,
    /// Keys and page numbers of leaves.
    Branch = 17_854,
    /// A piece of an attachment.
    Overflow = 10,
}

/// Byte ranges of one page that were changed.
pub(super) type Touched = Vec<(usize, usize)>;

/// A leaf page, changed in place.
pub(super) struct Leaf<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) touched: &'a mut Touched,
}

/// What an insertion found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    Done,
    /// No room, even after tidying up.
    Full,
}

fn get(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

impl Leaf<'_> {
    /// Makes the page an empty leaf.
    pub(super) fn format(&mut self, number: u32) {
        start(self.bytes, number, Kind::Leaf);
        self.put(40, HEAP);
        self.bytes[94..HEAP].copy_from_slice(b"\x01\x00\x02\x00\x0dinfimum\0\x01\x00\x0b\x00\x00supremum");
        self.touched.push((0, HEAP));
    }

    pub(super) fn records(&self) -> usize {
        get(self.bytes, 38)
    }

    /// Offset of the record of this rank.
    fn record(&self, rank: usize) -> usize {
        get(self.bytes, slot(rank))
    }

    pub(super) fn key(&self, rank: usize) -> u64 {
        let at = self.record(rank) + 5;
        u64::from_be_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    /// The body of the record of this rank. Its first two bytes are its length.
    pub(super) fn body(&self, rank: usize) -> &[u8] {
        let at = self.record(rank) + RECORD_HEADER;
        &self.bytes[at..at + get(self.bytes, at)]
    }

    /// The rank of a key, or where it would go.
    pub(super) fn search(&self, key: u64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.records());
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(&key) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Adds a record; the key must be new.
    pub(super) fn insert(&mut self, key: u64, body: &[u8]) -> Inserted {
        let rank = self.search(key).unwrap_or_else(|rank| rank);
        let length = RECORD_HEADER + body.len();
        let records = self.records();
        // The heap may end within the slot that comes next: then there is less than no room.
        let needed = get(self.bytes, 40) + length;
        if slot(records) < needed {
            if slot(records) + get(self.bytes, 42) < needed {
                return Inserted::Full;
            }
            self.reorganise();
        }
        let at = get(self.bytes, 40);
        let heap_number = get(self.bytes, 44) + 1;
        self.bytes[at] = 0x10;
        self.put(at + 1, heap_number);
        self.bytes[at + 5..at + RECORD_HEADER].copy_from_slice(&key.to_be_bytes());
        self.bytes[at + RECORD_HEADER..at + length].copy_from_slice(body);
        self.touched.push((at, at + length));
        self.put(40, at + length);
        self.put(44, heap_number);
        // The directory grows downwards: the slots of all later records move by one.
        self.bytes.copy_within(slot(records) + 2..slot(rank) + 2, slot(records));
        self.touched.push((slot(records), slot(rank) + 2));
        self.put(slot(rank), at);
        self.put(38, records + 1);
        self.link(rank);
        if rank > 0 {
            self.link(rank - 1);
        }
        Inserted::Done
    }

    /// Replaces a body by another of the same length.
    pub(super) fn overwrite(&mut self, rank: usize, body: &[u8]) {
        let at = self.record(rank) + RECORD_HEADER;
        self.bytes[at..at + body.len()].copy_from_slice(body);
        self.touched.push((at, at + body.len()));
    }

    pub(super) fn remove(&mut self, rank: usize) {
        let records = self.records();
        let at = self.record(rank);
        let length = RECORD_HEADER + self.body(rank).len();
        self.bytes[at] |= 0x20;
        self.touched.push((at, at + 1));
        self.put(42, get(self.bytes, 42) + length);
        let last = slot(records - 1);
        self.bytes.copy_within(last..slot(rank), last + 2);
        self.touched.push((last, slot(rank) + 2));
        self.put(last, 0);
        self.put(38, records - 1);
        if rank > 0 {
            self.link(rank - 1);
        }
    }

    /// Takes the upper half of the records out, as (key, body).
    pub(super) fn split_off(&mut self) -> Vec<(u64, Vec<u8>)> {
        let records = self.records();
        let half = records / 2;
        let moved: Vec<_> = (half..records).map(|rank| (self.key(rank), self.body(rank).to_vec())).collect();
        for rank in (half..records).rev() {
            self.remove(rank);
        }
        moved
    }

    /// Rewrites the heap in key order without gaps.
    fn reorganise(&mut self) {
        let rows: Vec<_> = (0..self.records()).map(|rank| (self.key(rank), self.body(rank).to_vec())).collect();
        self.bytes[HEAP..TRAILER].fill(0);
        self.touched.push((HEAP, TRAILER));
        self.put(38, 0);
        self.put(40, HEAP);
        self.put(42, 0);
        self.put(44, 0);
        for (key, body) in rows {
            self.insert(key, &body);
        }
    }

    /// Writes the link from a record to the next one.
    fn link(&mut self, rank: usize) {
        let next = if rank + 1 < self.records() { self.record(rank + 1) } else { 107 };
        let at = self.record(rank) + 3;
        if get(self.bytes, at) != next {
            self.put(at, next);
            self.touched.push((at, at + 2));
        }
    }

    fn put(&mut self, at: usize, value: usize) {
        self.bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
    }
}

/// Where the directory entry of a rank lies.
fn slot(rank: usize) -> usize {
    TRAILER - 2 * (rank + 1)
}

/// Clears a page and writes what all kinds share.
pub(super) fn start(bytes: &mut [u8], number: u32, kind: Kind) {
    bytes.fill(0);
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[24..26].copy_from_slice(&(kind as u16).to_be_bytes());
}

/// Sets the page numbers of the neighbours.
pub(super) fn set_neighbours(bytes: &mut [u8], previous: u32, next: u32) {
    bytes[8..12].copy_from_slice(&previous.to_be_bytes());
    bytes[12..16].copy_from_slice(&next.to_be_bytes());
}

/// Writes LSN and checksums, as a page is sealed when it leaves memory.
pub(super) fn seal(bytes: &mut [u8], lsn: u64) {
    bytes[16..24].copy_from_slice(&lsn.to_be_bytes());
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for word in bytes[4..TRAILER].chunks(8) {
        let mut eight = [0; 8];
        eight[..word.len()].copy_from_slice(word);
        sum = (sum ^ u64::from_le_bytes(eight)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }
    let sum = ((sum >> 32) as u32).to_be_bytes();
    bytes[..4].copy_from_slice(&sum);
    bytes[TRAILER..TRAILER + 4].copy_from_slice(&sum);
    bytes[TRAILER + 4..].copy_from_slice(&(lsn as u32).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn body(length: usize, byte: u8) -> Vec<u8> {
        let mut body = vec![byte; length + 2];
        body[..2].copy_from_slice(&(length as u16 + 2).to_be_bytes());
        body
    }

    proptest! {
        /// The page against a map: inserts, overwrites, removals, tidying up and refusals.
        #[test]
        fn a_page_is_a_sorted_map(changes in prop::collection::vec((0u64..60, 0usize..900, any::<u8>()), 1..200)) {
            let mut bytes = vec![0; PAGE];
            let mut touched = Vec::new();
            let mut leaf = Leaf { bytes: &mut bytes, touched: &mut touched };
            leaf.format(7);
            let mut model = BTreeMap::new();
            for (key, length, byte) in changes {
                match leaf.search(key) {
                    Ok(rank) if length % 3 == 0 => {
                        let same = body(leaf.body(rank).len() - 2, byte);
                        leaf.overwrite(rank, &same);
                        model.insert(key, same);
                    }
                    Ok(rank) => {
                        leaf.remove(rank);
                        model.remove(&key);
                    }
                    Err(_) => {
                        let new = body(length, byte);
                        let used: usize = model.values().map(|body: &Vec<u8>| body.len() + RECORD_HEADER + 2).sum();
                        match leaf.insert(key, &new) {
                            Inserted::Done => drop(model.insert(key, new)),
                            Inserted::Full => prop_assert!(used + new.len() + RECORD_HEADER + 2 > TRAILER - HEAP),
                        }
                    }
                }
                prop_assert_eq!(leaf.records(), model.len());
                for (rank, (key, body)) in model.iter().enumerate() {
                    prop_assert_eq!(leaf.key(rank), *key);
                    prop_assert_eq!(leaf.body(rank), &body[..]);
                }
            }
        }
    }
}
