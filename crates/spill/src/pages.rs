//! Rows by their number, of which a bounded part is in memory: pages of rows that can be changed,
//! and a file without a name for those that exceed the memory.
//!
//! While all pages fit, there is no file. A page in the file ends with a checksum of its bytes and
//! its number, so a page that reads back changed is an error.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::rows::{Row, decode, encode};
use crate::unnamed::unnamed;

/// Bytes of a page, with its checksum.
const PAGE_BYTES: usize = 16 << 10;
/// Bytes of the checksum.
const CHECK_BYTES: usize = size_of::<u64>();
/// Pages that are in memory at least.
const PAGES_MIN: usize = 2;

/// See the module header.
#[derive(Debug)]
pub struct Pages<R> {
    folder: PathBuf,
    file: Option<File>,
    rows: u64,
    /// Pages in memory at most.
    most: usize,
    slots: Vec<Slot>,
    /// The slots of the pages that are in memory.
    places: HashMap<u64, usize>,
    /// The slot that was used last.
    last: usize,
    /// The slot that may be the next to be written and used for another page.
    hand: usize,
    row: Vec<u8>,
    rows_are: PhantomData<R>,
}

/// A page in memory.
#[derive(Debug)]
struct Slot {
    page: u64,
    bytes: Box<[u8]>,
    is_changed: bool,
    was_used: bool,
}

impl<R: Row> Pages<R> {
    /// Rows of a page.
    pub const PAGE_ROWS: u64 = ((PAGE_BYTES - CHECK_BYTES) / R::BYTES) as u64;

    /// No rows. About `memory` bytes of them are in memory at most; the file is in `folder`.
    pub fn new(folder: &Path, memory: usize) -> Self {
        const { assert!(Self::PAGE_ROWS > 0, "a row fits into a page") };
        Self {
            folder: folder.to_owned(),
            file: None,
            rows: 0,
            most: (memory / PAGE_BYTES).max(PAGES_MIN),
            slots: Vec::new(),
            places: HashMap::new(),
            last: 0,
            hand: 0,
            row: Vec::new(),
            rows_are: PhantomData,
        }
    }

    /// The number of rows.
    pub fn len(&self) -> u64 {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes that are in memory.
    pub fn bytes_in_memory(&self) -> usize {
        self.slots.len() * PAGE_BYTES
    }

    /// Whether some of it was too much for the memory.
    pub fn has_spilled(&self) -> bool {
        self.file.is_some()
    }

    /// From now on, about `memory` bytes are in memory at most. What exceeds that is written.
    pub fn shrink_to(&mut self, memory: usize) -> io::Result<()> {
        self.most = (memory / PAGE_BYTES).max(PAGES_MIN);
        while self.slots.len() > self.most {
            let last = self.slots.len() - 1;
            if self.slots[last].is_changed && self.slots[last].page != u64::MAX {
                self.write(last)?;
            }
            self.places.remove(&self.slots[last].page);
            self.slots.truncate(last);
        }
        self.slots.shrink_to_fit();
        (self.last, self.hand) = (0, 0);
        Ok(())
    }

    /// Appends a row and returns its number.
    pub fn push(&mut self, row: &R) -> io::Result<u64> {
        let number = self.rows;
        let (page, at) = (number / Self::PAGE_ROWS, number % Self::PAGE_ROWS);
        let slot = if at == 0 { self.new_page(page)? } else { self.slot(page)? };
        self.put(slot, at, row);
        self.rows += 1;
        Ok(number)
    }

    /// Reads a row. An error if the number does not exist.
    pub fn get(&mut self, number: u64) -> io::Result<R> {
        let (page, at) = self.locate(number)?;
        let slot = self.slot(page)?;
        let begin = at as usize * R::BYTES;
        Ok(decode(&self.slots[slot].bytes[begin..begin + R::BYTES]))
    }

    /// Replaces a row. An error if the number does not exist.
    pub fn set(&mut self, number: u64, row: &R) -> io::Result<()> {
        let (page, at) = self.locate(number)?;
        let slot = self.slot(page)?;
        self.put(slot, at, row);
        Ok(())
    }

    /// Reads the existing ones of these rows.
    pub fn read(&mut self, rows: Range<u64>) -> io::Result<Vec<R>> {
        let end = rows.end.min(self.rows);
        let mut read = Vec::with_capacity(end.saturating_sub(rows.start) as usize);
        let mut next = rows.start;
        while next < end {
            let (page, at) = (next / Self::PAGE_ROWS, next % Self::PAGE_ROWS);
            let count = (Self::PAGE_ROWS - at).min(end - next);
            let slot = self.slot(page)?;
            let bytes = &self.slots[slot].bytes[at as usize * R::BYTES..(at + count) as usize * R::BYTES];
            read.extend(bytes.chunks_exact(R::BYTES).map(decode::<R>));
            next += count;
        }
        Ok(read)
    }

    fn locate(&self, number: u64) -> io::Result<(u64, u64)> {
        if number >= self.rows {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok((number / Self::PAGE_ROWS, number % Self::PAGE_ROWS))
    }

    fn put(&mut self, slot: usize, at: u64, row: &R) {
        self.row.clear();
        encode(row, &mut self.row);
        let begin = at as usize * R::BYTES;
        let slot = &mut self.slots[slot];
        slot.bytes[begin..begin + R::BYTES].copy_from_slice(&self.row);
        slot.is_changed = true;
    }

    /// The slot of a page that exists.
    fn slot(&mut self, page: u64) -> io::Result<usize> {
        if self.slots.get(self.last).is_some_and(|slot| slot.page == page) {
            return Ok(self.last);
        }
        if let Some(slot) = self.places.get(&page) {
            self.slots[*slot].was_used = true;
            self.last = *slot;
            return Ok(*slot);
        }
        let slot = self.free_slot()?;
        // A page that is not in memory was written.
        let file = self.file.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
        let bytes = &mut self.slots[slot].bytes;
        file.read_exact_at(bytes, page * PAGE_BYTES as u64)?;
        let (data, check) = bytes.split_at(PAGE_BYTES - CHECK_BYTES);
        if check != checksum(page, data) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a temporary file has changed since it was written",
            ));
        }
        self.take(slot, page);
        Ok(slot)
    }

    /// A slot for a page that does not exist yet.
    fn new_page(&mut self, page: u64) -> io::Result<usize> {
        let slot = self.free_slot()?;
        self.slots[slot].bytes.fill(0);
        self.take(slot, page);
        // It is in no file.
        self.slots[slot].is_changed = true;
        Ok(slot)
    }

    fn take(&mut self, slot: usize, page: u64) {
        (self.slots[slot].page, self.slots[slot].was_used) = (page, true);
        self.places.insert(page, slot);
        self.last = slot;
    }

    /// A slot without a page. A page that was not used for long is written if it has changed.
    fn free_slot(&mut self) -> io::Result<usize> {
        if self.slots.len() < self.most {
            let bytes = vec![0; PAGE_BYTES].into_boxed_slice();
            self.slots.push(Slot { page: u64::MAX, bytes, is_changed: false, was_used: false });
            return Ok(self.slots.len() - 1);
        }
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            if !std::mem::replace(&mut self.slots[self.hand].was_used, false) {
                break;
            }
        }
        if self.slots[self.hand].is_changed {
            self.write(self.hand)?;
        }
        let slot = &mut self.slots[self.hand];
        self.places.remove(&slot.page);
        slot.page = u64::MAX;
        Ok(self.hand)
    }

    fn write(&mut self, slot: usize) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(unnamed(&self.folder)?),
        };
        let Slot { page, bytes, is_changed, .. } = &mut self.slots[slot];
        let (data, check) = bytes.split_at_mut(PAGE_BYTES - CHECK_BYTES);
        check.copy_from_slice(&checksum(*page, data));
        file.write_all_at(bytes, *page * PAGE_BYTES as u64)?;
        *is_changed = false;
        Ok(())
    }
}

/// A checksum that this process alone needs.
fn checksum(page: u64, data: &[u8]) -> [u8; CHECK_BYTES] {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(page);
    hasher.write(data);
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{RowReader, RowWriter};

    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Wide(u64);

    impl Row for Wide {
        // Few rows to a page, so that a few rows are many pages.
        const BYTES: usize = 5000;

        fn encode(&self, row: &mut RowWriter<'_>) {
            row.u64(self.0);
            row.bytes(&[self.0 as u8; 4992]);
        }

        fn decode(row: &mut RowReader<'_>) -> Self {
            Self(row.u64())
        }
    }

    proptest! {
        /// The oracle is a vector.
        #[test]
        fn rows_are_as_they_were_written(
            steps in proptest::collection::vec((0u8..5, any::<u16>(), any::<u64>()), 0..120),
            mut memory in 0usize..5,
        ) {
            let dir = tempfile::tempdir().expect("a folder");
            let mut pages: Pages<Wide> = Pages::new(dir.path(), memory * PAGE_BYTES);
            let mut expected: Vec<u64> = Vec::new();
            for (step, place, value) in steps {
                let place = u64::from(place) % (expected.len() as u64).max(1);
                match step {
                    0 | 1 => {
                        prop_assert_eq!(pages.push(&Wide(value)).expect("written"), expected.len() as u64);
                        expected.push(value);
                    }
                    4 => {
                        memory = memory.min(usize::try_from(value % 5).expect("small"));
                        pages.shrink_to(memory * PAGE_BYTES).expect("written");
                    }
                    2 if !expected.is_empty() => {
                        pages.set(place, &Wide(value)).expect("written");
                        expected[place as usize] = value;
                    }
                    _ if !expected.is_empty() => {
                        prop_assert_eq!(pages.get(place).expect("read"), Wide(expected[place as usize]));
                    }
                    _ => prop_assert!(pages.get(0).is_err() && pages.set(0, &Wide(0)).is_err()),
                }
                prop_assert!(pages.bytes_in_memory() <= memory.max(PAGES_MIN) * PAGE_BYTES);
            }
            let all: Vec<u64> = pages.read(0..u64::MAX).expect("read").into_iter().map(|row| row.0).collect();
            prop_assert_eq!(&all, &expected);
            let part = pages.read(2..5).expect("read").len();
            prop_assert_eq!(part, expected.len().saturating_sub(2).min(3));
            let fits = expected.len().div_ceil(3) <= memory.max(PAGES_MIN);
            prop_assert!(fits || pages.has_spilled());
            prop_assert!(!pages.has_spilled() || expected.len().div_ceil(3) > PAGES_MIN);
        }
    }

    #[test]
    fn a_page_that_has_changed_in_the_file_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut pages: Pages<Wide> = Pages::new(dir.path(), 0);
        (0..30).for_each(|row| assert_eq!(pages.push(&Wide(row)).expect("written"), row));
        assert_eq!(pages.get(0).expect("read"), Wide(0));
        [29, 20, 17, 13].into_iter().for_each(|row| assert_eq!(pages.get(row).expect("read"), Wide(row)));
        let file = pages.file.as_ref().expect("too much for the memory");
        file.write_all_at(&[1], 3).expect("written");
        assert_eq!(pages.get(0).expect_err("damaged").kind(), io::ErrorKind::InvalidData);
        // A whole page in the place of another one, too.
        let file = pages.file.as_ref().expect("too much for the memory");
        let mut other = vec![0; PAGE_BYTES];
        file.read_exact_at(&mut other, 2 * PAGE_BYTES as u64).expect("read");
        file.write_all_at(&other, PAGE_BYTES as u64).expect("written");
        assert_eq!(pages.get(4).expect_err("damaged").kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn no_file_can_be_made_is_an_error_and_rows_in_memory_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("file");
        std::fs::write(&folder, "").expect("written");
        let mut pages: Pages<Wide> = Pages::new(&folder, 0);
        (0..6).for_each(|row| assert_eq!(pages.push(&Wide(row)).expect("in memory"), row));
        assert!(pages.push(&Wide(6)).is_err());
        assert_eq!(pages.len(), 6);
        assert!((0..6).all(|row| pages.get(row).expect("in memory") == Wide(row)));
    }
}
