//! Sorting more rows than fit into memory: sorted runs in a file, merged while they are read.
//!
//! Equal rows all stay. Runs are merged within the memory for collecting: first the runs of a level
//! when there are enough of them, and in the end the few that are left. A merge writes its rows
//! behind the others, and then gives the space of the merged runs back. So the file takes about
//! twice as much as the rows at most, if its file system has holes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::vec::IntoIter;

use crate::rows::{Row, RowFile};
use crate::runs::Reading;
use crate::unnamed::unnamed;

/// Runs that are merged at once at most.
const FAN_IN_MOST: usize = 64;
/// The same with the least memory.
const FAN_IN_LEAST: usize = 4;
/// Bytes of one read of a run at most.
const READ_MOST: usize = 16 << 10;
/// Bytes of one read of a run at least, unless one row is larger.
const READ_LEAST: usize = 4 << 10;

/// Takes rows in any order.
#[derive(Debug)]
pub struct RowSorter<R> {
    held: Vec<R>,
    held_max: usize,
    budget: usize,
    folder: PathBuf,
    written: Option<Written<R>>,
}

/// Rows in a file.
#[derive(Debug)]
struct Written<R> {
    rows: RowFile<R>,
    /// Oldest first. Levels fall.
    runs: Vec<Run>,
}

#[derive(Debug, Clone)]
struct Run {
    rows: Range<u64>,
    /// How often its rows were merged.
    level: u32,
}

impl<R: Row + Ord> RowSorter<R> {
    /// A sorter that takes about `budget` bytes of memory, some pages at least, and a file in
    /// `folder` for more. The folder is created if it is absent.
    pub fn new(budget: usize, folder: PathBuf) -> Self {
        let held_max = (budget / size_of::<R>()).max(1);
        Self { held: Vec::new(), held_max, budget, folder, written: None }
    }

    /// Takes a row. An error loses rows.
    pub fn push(&mut self, row: R) -> io::Result<()> {
        if self.held.is_empty() {
            self.held.reserve_exact(self.held_max);
        }
        self.held.push(row);
        if self.held.len() == self.held_max { self.write() } else { Ok(()) }
    }

    /// Writes the held rows as a run, and merges runs while there are many of one level.
    fn write(&mut self) -> io::Result<()> {
        let written = match &mut self.written {
            Some(written) => written,
            none => none.insert(Written { rows: RowFile::new(unnamed(&self.folder)?), runs: Vec::new() }),
        };
        self.held.sort_unstable();
        let begin = written.rows.rows();
        written.rows.append(self.held.drain(..))?;
        written.runs.push(Run { rows: begin..written.rows.rows(), level: 0 });
        let fan_in = fan_in(self.budget);
        while let Some(first) = written.runs.len().checked_sub(fan_in)
            && written.runs[first..].iter().all(|run| run.level == written.runs[first].level)
        {
            // The merge takes the memory of the held rows.
            self.held = Vec::new();
            written.merge_from(first, self.budget)?;
        }
        Ok(())
    }

    /// The rows in their order.
    pub fn sorted(mut self) -> io::Result<SortedRows<R>> {
        if self.written.is_none() {
            self.held.sort_unstable();
            return Ok(SortedRows { held: self.held.into_iter(), merge: None });
        }
        if !self.held.is_empty() {
            self.write()?;
        }
        drop(self.held);
        let Some(mut written) = self.written else { return Ok(SortedRows::default()) };
        let fan_in = fan_in(self.budget);
        while written.runs.len() > fan_in {
            // The newest are the smallest.
            let first = written.runs.len() - fan_in.min(written.runs.len() + 1 - fan_in);
            written.merge_from(first, self.budget)?;
        }
        let merge = Merge::new(&written.rows, &written.runs, self.budget)?;
        Ok(SortedRows { held: Vec::new().into_iter(), merge: Some((written.rows, merge)) })
    }
}

/// Runs that are merged at once within this memory.
fn fan_in(budget: usize) -> usize {
    (budget / READ_LEAST).clamp(FAN_IN_LEAST, FAN_IN_MOST)
}

impl<R: Row + Ord> Written<R> {
    /// Makes one run of those from this one on.
    fn merge_from(&mut self, first: usize, budget: usize) -> io::Result<()> {
        let mut merge = Merge::new(&self.rows, &self.runs[first..], budget)?;
        let begin = self.rows.rows();
        let mut batch = Vec::new();
        let most = (READ_LEAST / R::BYTES).max(1);
        loop {
            let next = merge.next(&self.rows)?;
            let is_last = next.is_none();
            batch.extend(next);
            if is_last || batch.len() == most {
                self.rows.append(batch.drain(..))?;
            }
            if is_last {
                break;
            }
        }
        let level = self.runs[first..].iter().map(|run| run.level).max().unwrap_or(0) + 1;
        // Nothing else is between these runs and the new one but earlier ones.
        self.rows.give_back(self.runs[first].rows.start..begin);
        self.runs.truncate(first);
        self.runs.push(Run { rows: begin..self.rows.rows(), level });
        Ok(())
    }
}

/// Rows in their order. Nothing follows an error.
#[derive(Debug)]
pub struct SortedRows<R: Ord> {
    held: IntoIter<R>,
    merge: Option<(RowFile<R>, Merge<R>)>,
}

impl<R: Ord> Default for SortedRows<R> {
    fn default() -> Self {
        Self { held: Vec::new().into_iter(), merge: None }
    }
}

impl<R: Row + Ord> SortedRows<R> {
    /// Bytes of rows that are in memory.
    pub fn bytes_in_memory(&self) -> usize {
        let merged = self.merge.as_ref().map_or(0, |(_, merge)| merge.runs.len() * merge.most as usize);
        (self.held.len() + merged) * size_of::<R>()
    }
}

/// A merge of runs of a file.
#[derive(Debug)]
struct Merge<R: Ord> {
    runs: Vec<Reading<R>>,
    /// Rows of each run in memory at most.
    most: u64,
    heap: BinaryHeap<Reverse<(R, usize)>>,
}

impl<R: Row + Ord> Merge<R> {
    fn new(rows: &RowFile<R>, runs: &[Run], budget: usize) -> io::Result<Self> {
        let read = (budget / runs.len().max(1)).clamp(READ_LEAST, READ_MOST);
        let most = (read / R::BYTES.max(size_of::<R>())).max(1) as u64;
        let mut runs: Vec<_> = runs.iter().map(|run| Reading::of(run.rows.clone(), most)).collect();
        let mut heap = BinaryHeap::with_capacity(runs.len());
        for (number, run) in runs.iter_mut().enumerate() {
            heap.extend(run.next(rows)?.map(|row| Reverse((row, number))));
        }
        Ok(Self { runs, most, heap })
    }

    fn next(&mut self, rows: &RowFile<R>) -> io::Result<Option<R>> {
        let Some(Reverse((row, number))) = self.heap.pop() else { return Ok(None) };
        self.heap.extend(self.runs[number].next(rows)?.map(|row| Reverse((row, number))));
        Ok(Some(row))
    }
}

impl<R: Row + Ord> Iterator for SortedRows<R> {
    type Item = io::Result<R>;

    fn next(&mut self) -> Option<io::Result<R>> {
        let Some((rows, merge)) = &mut self.merge else { return self.held.next().map(Ok) };
        let next = merge.next(rows);
        if next.is_err() {
            merge.heap.clear();
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

    /// Thousands of runs are merged within the memory for collecting rows.
    #[test]
    fn a_merge_of_many_runs_takes_no_more_memory_than_the_rows_did_and_twice_their_space() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |number: u64| Number(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
        for (budget, count) in [(800, 300_000), (64 << 10, 1_000_000)] {
            let mut sorter = RowSorter::new(budget, folder.path().to_owned());
            let limit = budget.max(FAN_IN_LEAST * READ_LEAST);
            let mut on_disk = 0;
            for number in 0..count {
                sorter.push(of(number)).expect("written");
                let Some(written) = &sorter.written else { continue };
                assert!(written.runs.len() <= FAN_IN_MOST, "{}", written.runs.len());
                if number % 1000 == 0 {
                    on_disk = on_disk.max(written.rows.bytes_on_disk());
                }
            }
            let sorted = sorter.sorted().expect("merged");
            on_disk = on_disk.max(sorted.merge.as_ref().map_or(0, |(rows, _)| rows.bytes_on_disk()));
            let twice = 2 * count * Number::BYTES as u64;
            assert!(on_disk > 0 && on_disk <= twice + twice / 8, "{on_disk} of {twice}");
            assert!(sorted.bytes_in_memory() <= limit, "{} of {limit}", sorted.bytes_in_memory());
            let mut expected: Vec<u64> = (0..count).map(|number| of(number).0).collect();
            expected.sort_unstable();
            let rows: Vec<u64> = sorted.map(|row| row.expect("read").0).collect();
            assert!(rows == expected, "{budget}");
        }
    }
}
