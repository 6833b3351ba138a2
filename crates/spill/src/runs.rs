//! Rows by their key: sorted runs in a file, one behind the other, that can be merged into one.
//!
//! A look-up reads one page of each run, from the oldest to the newest. The first keys of pages are
//! in memory. Many runs make look-ups slow, so the caller merges them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::ops::Range;

use crate::rows::{Row, RowFile, decode};

/// Bytes of a page at most, unless one row is larger.
const PAGE_BYTES: usize = 4096;
/// Pages of each run in one read of a merge.
const MERGE_PAGES: u64 = 4;

/// Rows of a page.
const fn page_rows<R: Row>() -> usize {
    if R::BYTES < PAGE_BYTES { PAGE_BYTES / R::BYTES } else { 1 }
}

/// A row that is found by its key. Rows sort by their keys first.
pub trait KeyedRow: Row + Ord {
    /// The key.
    type Key: Ord + Copy + std::fmt::Debug;

    /// The key of this row.
    fn key(&self) -> Self::Key;
}

/// See the module header.
#[derive(Debug)]
pub struct SortedRuns<R: KeyedRow> {
    rows: RowFile<R>,
    runs: Vec<Run<R>>,
    /// The last read page.
    page: Vec<u8>,
}

#[derive(Debug)]
struct Run<R: KeyedRow> {
    rows: Range<u64>,
    /// The first key of every page.
    fences: Vec<R::Key>,
}

impl<R: KeyedRow> SortedRuns<R> {
    /// Rows of a page.
    pub const PAGE_ROWS: usize = page_rows::<R>();

    /// No runs, in this file.
    pub fn new(file: File) -> Self {
        Self { rows: RowFile::new(file), runs: Vec::new(), page: Vec::new() }
    }

    /// The number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The number of keys in memory.
    pub fn in_memory(&self) -> usize {
        self.runs.iter().map(|run| run.fences.len()).sum()
    }

    /// Writes a run of rows, which are sorted and have distinct keys. An error leaves the run out.
    pub fn push(&mut self, rows: &[R]) -> io::Result<()> {
        debug_assert!(rows.is_sorted_by(|a, b| a.key() < b.key()), "a run is sorted");
        let begin = self.rows.rows();
        self.rows.append(rows.iter().copied())?;
        let fences = rows.iter().step_by(Self::PAGE_ROWS).map(KeyedRow::key).collect();
        self.runs.push(Run { rows: begin..self.rows.rows(), fences });
        Ok(())
    }

    /// The row with this key, from the oldest run that has one.
    pub fn get(&mut self, key: R::Key) -> io::Result<Option<R>> {
        for Run { rows, fences } in &self.runs {
            let Some(page) = fences.partition_point(|first| *first <= key).checked_sub(1) else { continue };
            let first = rows.start + (page * Self::PAGE_ROWS) as u64;
            self.rows.read_bytes(first..(first + Self::PAGE_ROWS as u64).min(rows.end), &mut self.page)?;
            let page = &self.page;
            let row = |number: usize| decode::<R>(&page[number * R::BYTES..]);
            let (mut from, mut to) = (0, page.len() / R::BYTES);
            while from < to {
                let middle = from + (to - from) / 2;
                match row(middle).key() < key {
                    true => from = middle + 1,
                    false => to = middle,
                }
            }
            if from * R::BYTES < page.len() {
                let found = row(from);
                if found.key() == key {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Merges all runs into one, in another file. Among rows with one key the least stays. An error
    /// leaves the earlier runs.
    pub fn merge(&mut self, into: File) -> io::Result<()> {
        let mut merged = Merge::new(&self.rows, self.runs.iter().map(|run| run.rows.clone()))?;
        let mut rows = RowFile::new(into);
        let mut fences = Vec::new();
        let mut failed = Ok(());
        let mut count = 0;
        rows.append(std::iter::from_fn(|| match merged.next() {
            Ok(row) => {
                let row = row?;
                if count % Self::PAGE_ROWS == 0 {
                    fences.push(row.key());
                }
                count += 1;
                Some(row)
            }
            Err(error) => {
                failed = Err(error);
                None
            }
        }))?;
        failed?;
        let all = 0..rows.rows();
        *self = Self { rows, runs: vec![Run { rows: all, fences }], page: std::mem::take(&mut self.page) };
        Ok(())
    }

    /// All rows of all runs, sorted. If several rows have one key, the least is among them.
    pub fn read_all(&self) -> io::Result<Vec<R>> {
        let mut merged = Merge::new(&self.rows, self.runs.iter().map(|run| run.rows.clone()))?;
        let mut all = Vec::new();
        while let Some(row) = merged.next()? {
            all.push(row);
        }
        Ok(all)
    }
}

/// A merge of runs that holds a few pages of each.
struct Merge<'a, R: KeyedRow> {
    rows: &'a RowFile<R>,
    runs: Vec<Reading<R>>,
    heap: BinaryHeap<Reverse<(R, usize)>>,
    last: Option<R::Key>,
}

/// The rest of a run.
#[derive(Debug)]
pub(crate) struct Reading<R> {
    unread: Range<u64>,
    /// Rows of one read at most.
    most: u64,
    read: std::vec::IntoIter<R>,
}

impl<R: Row> Reading<R> {
    /// These rows, some pages at a time.
    fn new(rows: Range<u64>) -> Self {
        Self::of(rows, MERGE_PAGES * page_rows::<R>() as u64)
    }

    /// These rows, at most this number at a time.
    pub(crate) fn of(rows: Range<u64>, most: u64) -> Self {
        Self { unread: rows, most, read: Vec::new().into_iter() }
    }

    /// The next row of the run.
    pub(crate) fn next(&mut self, rows: &RowFile<R>) -> io::Result<Option<R>> {
        if self.read.len() == 0 && !self.unread.is_empty() {
            let end = self.unread.end.min(self.unread.start + self.most);
            self.read = rows.read(self.unread.start..end)?.into_iter();
            self.unread.start = end;
        }
        Ok(self.read.next())
    }
}

impl<'a, R: KeyedRow> Merge<'a, R> {
    fn new(rows: &'a RowFile<R>, runs: impl Iterator<Item = Range<u64>>) -> io::Result<Self> {
        let mut runs: Vec<_> = runs.map(Reading::new).collect();
        let mut heap = BinaryHeap::with_capacity(runs.len());
        for (number, run) in runs.iter_mut().enumerate() {
            heap.extend(run.next(rows)?.map(|row| Reverse((row, number))));
        }
        Ok(Self { rows, runs, heap, last: None })
    }

    fn next(&mut self) -> io::Result<Option<R>> {
        while let Some(Reverse((row, number))) = self.heap.pop() {
            self.heap.extend(self.runs[number].next(self.rows)?.map(|row| Reverse((row, number))));
            if self.last.replace(row.key()) != Some(row.key()) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }
}
