//! Rows by their key, in any order and any number, of which a bounded part is in memory.
//!
//! New rows are collected in memory. When there are too many, they become a sorted run in
//! [`Pages`]. Several runs of about one size are merged into one. A look-up searches the runs from
//! the newest to the oldest, so the row that was added last counts. While all rows fit, there is no
//! file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::pages::Pages;
use crate::runs::KeyedRow;

/// Runs of one level that are merged.
const FAN_IN: usize = 8;
/// Rows of a run in one read of a merge.
const MERGE_ROWS: u64 = 64;

/// See the module header.
#[derive(Debug)]
pub struct KeyedPages<R: KeyedRow> {
    folder: PathBuf,
    /// Bytes of memory for pages.
    memory: usize,
    /// Rows that are collected at most.
    most: usize,
    /// Added last.
    collected: Vec<R>,
    is_sorted: bool,
    pages: Pages<R>,
    /// Oldest first.
    runs: Vec<Run>,
}

#[derive(Debug, Clone)]
struct Run {
    rows: Range<u64>,
    /// How often its rows were merged.
    level: u32,
}

impl<R: KeyedRow> KeyedPages<R> {
    /// No rows. About `memory` bytes of them are in memory at most; the file is in `folder`.
    pub fn new(folder: &Path, memory: usize) -> Self {
        // Collected rows take two thirds.
        let pages = memory / 3;
        Self {
            folder: folder.to_owned(),
            memory: pages,
            most: ((memory - pages) / size_of::<R>()).max(1),
            collected: Vec::new(),
            is_sorted: true,
            pages: Pages::new(folder, pages),
            runs: Vec::new(),
        }
    }

    /// Adds a row. [`Self::settle`] makes it findable.
    pub fn push(&mut self, row: R) -> io::Result<()> {
        if self.collected.len() >= self.most {
            self.flush()?;
        }
        self.is_sorted = false;
        if self.collected.len() == self.collected.capacity() {
            // Doubling would exceed the limit.
            let more = self.collected.len().max(64).min(self.most - self.collected.len());
            self.collected.reserve_exact(more);
        }
        self.collected.push(row);
        Ok(())
    }

    /// Makes all rows findable.
    pub fn settle(&mut self) {
        if std::mem::replace(&mut self.is_sorted, true) {
            return;
        }
        // The last of those with one key is the first of them now.
        self.collected.reverse();
        self.collected.sort_by_key(KeyedRow::key);
        self.collected.dedup_by_key(|row| row.key());
    }

    /// Finds the row with this key that was added last, among the findable ones.
    pub fn find(&mut self, key: R::Key) -> io::Result<Option<R>> {
        Ok(match self.place(key)? {
            Some(Place::Collected(at)) => Some(self.collected[at]),
            Some(Place::Row(number)) => Some(self.pages.get(number)?),
            None => None,
        })
    }

    /// Changes the row with this key that was added last, but not its key. Returns whether there is
    /// one.
    pub fn change(&mut self, key: R::Key, change: impl FnOnce(&mut R)) -> io::Result<bool> {
        match self.place(key)? {
            Some(Place::Collected(at)) => change(&mut self.collected[at]),
            Some(Place::Row(number)) => {
                let mut row = self.pages.get(number)?;
                change(&mut row);
                self.pages.set(number, &row)?;
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    fn place(&mut self, key: R::Key) -> io::Result<Option<Place>> {
        debug_assert!(self.is_sorted, "rows are found after they are settled");
        if let Ok(at) = self.collected.binary_search_by_key(&key, KeyedRow::key) {
            return Ok(Some(Place::Collected(at)));
        }
        for run in self.runs.iter().rev() {
            let Range { mut start, mut end } = run.rows.clone();
            while start < end {
                let middle = start + (end - start) / 2;
                let found = self.pages.get(middle)?.key();
                match found.cmp(&key) {
                    std::cmp::Ordering::Equal => return Ok(Some(Place::Row(middle))),
                    std::cmp::Ordering::Less => start = middle + 1,
                    std::cmp::Ordering::Greater => end = middle,
                }
            }
        }
        Ok(None)
    }

    /// Writes the collected rows as a run, and merges runs while there are many of one level.
    fn flush(&mut self) -> io::Result<()> {
        self.settle();
        let begin = self.pages.len();
        for row in &self.collected {
            self.pages.push(row)?;
        }
        if !self.collected.is_empty() {
            self.runs.push(Run { rows: begin..self.pages.len(), level: 0 });
            self.collected.clear();
        }
        while let Some(first) = self.runs.len().checked_sub(FAN_IN)
            && let level = self.runs[first].level
            && self.runs[first..].iter().all(|run| run.level == level)
        {
            let mut merge = Merge::new(&mut self.pages, &self.runs[first..])?;
            let begin = self.pages.len();
            while let Some(row) = merge.next(&mut self.pages)? {
                self.pages.push(&row)?;
            }
            self.runs.truncate(first);
            self.runs.push(Run { rows: begin..self.pages.len(), level: level + 1 });
        }
        Ok(())
    }

    /// Makes one run of all, so that look-ups are fast and [`Self::read`] has all rows in order.
    pub fn merge(&mut self) -> io::Result<()> {
        self.settle();
        if self.runs.is_empty() || (self.runs.len() == 1 && self.collected.is_empty()) {
            return Ok(());
        }
        self.flush()?;
        let mut merged = Pages::new(&self.folder, self.memory);
        let mut merge = Merge::new(&mut self.pages, &self.runs)?;
        while let Some(row) = merge.next(&mut self.pages)? {
            merged.push(&row)?;
        }
        let level = self.runs.iter().map(|run| run.level).max().unwrap_or(0);
        self.runs = vec![Run { rows: 0..merged.len(), level }];
        self.pages = merged;
        Ok(())
    }

    /// How many rows there are. After [`Self::merge`].
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.rows.end - run.rows.start).sum::<u64>() + self.collected.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The existing ones of these rows, numbered by their keys. After [`Self::merge`].
    pub fn read(&mut self, rows: Range<u64>) -> io::Result<Vec<R>> {
        debug_assert!(self.is_sorted && (self.runs.is_empty() || self.collected.is_empty()), "merged");
        if self.runs.is_empty() {
            let len = self.collected.len() as u64;
            let (start, end) = (rows.start.min(len), rows.end.min(len));
            return Ok(self.collected.get(start as usize..end as usize).unwrap_or_default().to_vec());
        }
        self.pages.read(rows)
    }

    /// Replaces the row with this number, but not its key. After [`Self::merge`].
    pub fn replace(&mut self, number: u64, row: R) -> io::Result<()> {
        if !self.runs.is_empty() {
            return self.pages.set(number, &row);
        }
        let place = usize::try_from(number).ok().and_then(|number| self.collected.get_mut(number));
        *place.ok_or(io::ErrorKind::UnexpectedEof)? = row;
        Ok(())
    }

    /// From now on, about `memory` bytes are in memory at most. What exceeds that is written.
    pub fn shrink_to(&mut self, memory: usize) -> io::Result<()> {
        self.memory = memory / 3;
        self.most = ((memory - self.memory) / size_of::<R>()).max(1);
        self.pages.shrink_to(self.memory)?;
        if self.collected.len() > self.most {
            self.flush()?;
        }
        self.collected.shrink_to(self.most);
        Ok(())
    }

    /// Whether some of it was too much for the memory.
    pub fn has_spilled(&self) -> bool {
        self.pages.has_spilled()
    }

    /// Bytes that are in memory.
    pub fn bytes_in_memory(&self) -> usize {
        self.pages.bytes_in_memory() + self.collected.capacity() * size_of::<R>()
    }
}

enum Place {
    Collected(usize),
    Row(u64),
}

/// A merge of runs. Of rows with one key it returns the one of the newest run.
struct Merge<R: KeyedRow> {
    runs: Vec<Reading<R>>,
    /// The next key of each run that is not read to its end.
    heads: BinaryHeap<Reverse<(R::Key, Reverse<usize>)>>,
    last: Option<R::Key>,
}

/// The rest of a run.
struct Reading<R> {
    unread: Range<u64>,
    read: std::vec::IntoIter<R>,
    next: Option<R>,
}

impl<R: KeyedRow> Reading<R> {
    fn advance(&mut self, pages: &mut Pages<R>) -> io::Result<Option<R::Key>> {
        if self.read.len() == 0 && !self.unread.is_empty() {
            let end = self.unread.end.min(self.unread.start + MERGE_ROWS);
            self.read = pages.read(self.unread.start..end)?.into_iter();
            self.unread.start = end;
        }
        self.next = self.read.next();
        Ok(self.next.map(|row| row.key()))
    }
}

impl<R: KeyedRow> Merge<R> {
    fn new(pages: &mut Pages<R>, runs: &[Run]) -> io::Result<Self> {
        let reading = |run: &Run| Reading { unread: run.rows.clone(), read: Vec::new().into_iter(), next: None };
        let mut runs: Vec<Reading<R>> = runs.iter().map(reading).collect();
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (number, run) in runs.iter_mut().enumerate() {
            heads.extend(run.advance(pages)?.map(|key| Reverse((key, Reverse(number)))));
        }
        Ok(Self { runs, heads, last: None })
    }

    fn next(&mut self, pages: &mut Pages<R>) -> io::Result<Option<R>> {
        while let Some(Reverse((key, Reverse(number)))) = self.heads.pop() {
            let row = self.runs[number].next;
            self.heads.extend(self.runs[number].advance(pages)?.map(|key| Reverse((key, Reverse(number)))));
            if self.last.replace(key) != Some(key) {
                return Ok(row);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{Row, RowReader, RowWriter};

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    struct Pair(u32, u64);

    impl Row for Pair {
        const BYTES: usize = 1212;

        fn encode(&self, row: &mut RowWriter<'_>) {
            row.u32(self.0);
            row.u64(self.1);
            row.bytes(&[0; 1200]);
        }

        fn decode(row: &mut RowReader<'_>) -> Self {
            Self(row.u32(), row.u64())
        }
    }

    impl KeyedRow for Pair {
        type Key = u32;

        fn key(&self) -> u32 {
            self.0
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(u32, u64),
        Change(u32, u64),
        Merge,
        Shrink(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (0u32..90, any::<u64>()).prop_map(|(key, value)| Step::Push(key, value)),
            2 => (0u32..90, any::<u64>()).prop_map(|(key, value)| Step::Change(key, value)),
            1 => Just(Step::Merge),
            1 => (0usize..200_000).prop_map(Step::Shrink),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The oracle is a map.
        #[test]
        fn what_was_added_last_is_found(steps in proptest::collection::vec(step(), 0..160), memory in 0usize..200) {
            let dir = tempfile::tempdir().expect("a folder");
            let mut rows: KeyedPages<Pair> = KeyedPages::new(dir.path(), memory);
            let mut expected: BTreeMap<u32, u64> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Push(key, value) => {
                        rows.push(Pair(key, value)).expect("written");
                        expected.insert(key, value);
                    }
                    Step::Change(key, value) => {
                        rows.settle();
                        let there = expected.get_mut(&key).map(|old| *old = value).is_some();
                        prop_assert_eq!(rows.change(key, |row| row.1 = value).expect("written"), there);
                    }
                    Step::Shrink(memory) => {
                        rows.shrink_to(memory).expect("written");
                        // Two pages stay, and one row.
                        let least = 2 * (16 << 10) + size_of::<Pair>();
                        prop_assert!(rows.bytes_in_memory() <= memory + least);
                    }
                    Step::Merge => {
                        rows.merge().expect("merged");
                        prop_assert_eq!(rows.len(), expected.len() as u64);
                    }
                }
            }
            rows.settle();
            for key in 0..90 {
                let found = rows.find(key).expect("read").map(|row| row.1);
                prop_assert_eq!(found, expected.get(&key).copied());
            }
            rows.merge().expect("merged");
            for (number, (key, value)) in (0..).zip(&mut expected) {
                *value ^= 1;
                rows.replace(number, Pair(*key, *value)).expect("written");
            }
            prop_assert!(rows.replace(expected.len() as u64, Pair(0, 0)).is_err());
            let all: Vec<_> = rows.read(0..u64::MAX).expect("read").into_iter().map(|row| (row.0, row.1)).collect();
            prop_assert_eq!(rows.read(3..5).expect("read").len(), all.len().saturating_sub(3).min(2));
            prop_assert!(all.into_iter().eq(expected));
        }
    }

    #[test]
    fn memory_is_bounded_and_a_merge_leaves_no_old_rows() {
        let dir = tempfile::tempdir().expect("a folder");
        let memory = 96 << 10;
        let mut rows: KeyedPages<Pair> = KeyedPages::new(dir.path(), memory);
        let mut most = 0;
        for number in 0..6_000u32 {
            rows.push(Pair(number.wrapping_mul(0x9e37_79b1), 0)).expect("written");
            most = most.max(rows.bytes_in_memory());
        }
        assert!(rows.has_spilled() && most <= memory, "{most}");
        rows.merge().expect("merged");
        assert_eq!((rows.len(), rows.pages.len()), (6_000, 6_000));
        assert!(rows.bytes_in_memory() <= memory);
        assert!(rows.find(0x9e37_79b1).expect("read").is_some() && rows.find(1).expect("read").is_none());
    }
}
