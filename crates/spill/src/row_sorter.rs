//! Sorting more rows than fit into memory: sorted runs in a file, merged while they are read.
//!
//! Equal rows all stay. While rows are read, each run takes some pages of memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::vec::IntoIter;

use crate::rows::{Row, RowFile};
use crate::runs::Reading;
use crate::unnamed::unnamed;

/// Takes rows in any order.
#[derive(Debug)]
pub struct RowSorter<R> {
    held: Vec<R>,
    held_max: usize,
    folder: PathBuf,
    written: Option<(RowFile<R>, Vec<Range<u64>>)>,
}

impl<R: Row + Ord> RowSorter<R> {
    /// A sorter that takes about `budget` bytes of memory, and a file in `folder` for more. The
    /// folder is created if it is absent.
    pub fn new(budget: usize, folder: PathBuf) -> Self {
        Self { held: Vec::new(), held_max: (budget / size_of::<R>()).max(1), folder, written: None }
    }

    /// Takes a row. An error loses rows.
    pub fn push(&mut self, row: R) -> io::Result<()> {
        if self.held.is_empty() {
            self.held.reserve_exact(self.held_max);
        }
        self.held.push(row);
        if self.held.len() == self.held_max { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        let (rows, runs) = match &mut self.written {
            Some(written) => written,
            none => none.insert((RowFile::new(unnamed(&self.folder)?), Vec::new())),
        };
        self.held.sort_unstable();
        let begin = rows.rows();
        rows.append(self.held.drain(..))?;
        runs.push(begin..rows.rows());
        Ok(())
    }

    /// The rows in their order.
    pub fn sorted(mut self) -> io::Result<SortedRows<R>> {
        self.held.sort_unstable();
        let held = std::mem::take(&mut self.held).into_iter();
        let Some((rows, runs)) = self.written else { return Ok(SortedRows { held: held.peekable(), merge: None }) };
        let mut runs: Vec<_> = runs.into_iter().map(Reading::new).collect();
        let mut heap = BinaryHeap::with_capacity(runs.len());
        for (number, run) in runs.iter_mut().enumerate() {
            heap.extend(run.next(&rows)?.map(|row| Reverse((row, number))));
        }
        Ok(SortedRows { held: held.peekable(), merge: Some(Merge { rows, runs, heap }) })
    }
}

/// Rows in their order. Nothing follows an error.
#[derive(Debug)]
pub struct SortedRows<R: Ord> {
    held: std::iter::Peekable<IntoIter<R>>,
    merge: Option<Merge<R>>,
}

#[derive(Debug)]
struct Merge<R: Ord> {
    rows: RowFile<R>,
    runs: Vec<Reading<R>>,
    heap: BinaryHeap<Reverse<(R, usize)>>,
}

impl<R: Row + Ord> Merge<R> {
    fn next(&mut self) -> io::Result<Option<R>> {
        let Some(Reverse((row, number))) = self.heap.pop() else { return Ok(None) };
        self.heap.extend(self.runs[number].next(&self.rows)?.map(|row| Reverse((row, number))));
        Ok(Some(row))
    }
}

impl<R: Row + Ord> Iterator for SortedRows<R> {
    type Item = io::Result<R>;

    fn next(&mut self) -> Option<io::Result<R>> {
        let Some(merge) = &mut self.merge else { return self.held.next().map(Ok) };
        let is_held_first = match (self.held.peek(), merge.heap.peek()) {
            (Some(held), Some(Reverse((written, _)))) => held < written,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_held_first {
            return self.held.next().map(Ok);
        }
        let next = merge.next();
        if next.is_err() {
            merge.heap.clear();
            self.held = Vec::new().into_iter().peekable();
        }
        next.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{RowReader, RowWriter};

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    struct Number(u64);

    impl Row for Number {
        const BYTES: usize = 8;

        fn encode(&self, row: &mut RowWriter<'_>) {
            row.u64(self.0);
        }

        fn decode(row: &mut RowReader<'_>) -> Self {
            Self(row.u64())
        }
    }

    #[test]
    fn rows_come_in_order_with_and_without_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        // Some numbers come twice.
        let numbers: Vec<u64> = (0..5000).map(|number| number * 7919 % 3001).collect();
        let mut expected = numbers.clone();
        expected.sort_unstable();
        for budget in [8, 8 * 1000, 8 * 4999, 8 * 5000, 8 * 6000] {
            let mut sorter = RowSorter::new(budget, folder.path().join("scratch"));
            for number in &numbers {
                sorter.push(Number(*number)).expect("written");
            }
            assert_eq!(sorter.written.is_some(), budget <= 8 * 5000, "a file only when it is needed");
            let sorted: Result<Vec<_>, _> = sorter.sorted().expect("read").map(|row| row.map(|row| row.0)).collect();
            assert_eq!(sorted.expect("read"), expected, "{budget}");
        }
    }
}
