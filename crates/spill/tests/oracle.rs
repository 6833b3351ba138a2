//! Rows and sorted runs against values in memory, for several sizes of rows, and on a disk that is
//! full.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;

use larder_spill::{KeyedRow, Row, RowFile, RowReader, RowWriter, SortedRuns};
use proptest::prelude::*;

/// A key, a value, and `MORE` bytes that follow from both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TestRow<const MORE: usize> {
    key: u64,
    value: u32,
    more: [u8; MORE],
}

impl<const MORE: usize> TestRow<MORE> {
    fn new(key: u64, value: u32) -> Self {
        Self { key, value, more: std::array::from_fn(|n| (key as u8) ^ (value as u8).wrapping_add(n as u8)) }
    }
}

impl<const MORE: usize> Row for TestRow<MORE> {
    const BYTES: usize = 12 + MORE;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u64(self.key);
        row.u32(self.value);
        row.bytes(&self.more);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { key: row.u64(), value: row.u32(), more: row.bytes() }
    }
}

impl<const MORE: usize> KeyedRow for TestRow<MORE> {
    type Key = u64;

    fn key(&self) -> u64 {
        self.key
    }
}

fn file() -> File {
    tempfile::tempfile().expect("a temporary file")
}

/// Every write fails as on a full disk.
fn full() -> File {
    OpenOptions::new().read(true).write(true).open("/dev/full").expect("Linux has it")
}

fn notes() -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec((prop_oneof![0u64..2000, any::<u64>()], 0u32..100), 0..3000)
}

/// Runs of at most `memory` notes each.
fn runs_of<const MORE: usize>(notes: &[(u64, u32)], memory: usize) -> Vec<Vec<TestRow<MORE>>> {
    let run = |part: &[(u64, u32)]| {
        let mut rows: Vec<_> = part.iter().map(|(key, value)| TestRow::new(*key, *value)).collect();
        rows.sort_unstable();
        rows.dedup_by_key(|row| row.key);
        rows
    };
    notes.chunks(memory).map(run).collect()
}

fn check_runs<const MORE: usize>(
    notes: &[(u64, u32)],
    memory: usize,
    merge_at: usize,
    others: &[u64],
) -> Result<(), TestCaseError> {
    let mut runs: SortedRuns<TestRow<MORE>> = SortedRuns::new(file());
    // By key: the row of the oldest run, and the least of all.
    let (mut oldest, mut least) = (BTreeMap::new(), BTreeMap::new());
    for rows in runs_of::<MORE>(notes, memory) {
        runs.push(&rows).expect("written");
        for row in rows {
            oldest.entry(row.key).or_insert(row);
            let known = least.entry(row.key).or_insert(row);
            *known = (*known).min(row);
        }
        if runs.runs() > merge_at {
            runs.merge(file()).expect("merged");
            prop_assert_eq!(runs.runs(), 1);
            oldest = least.clone();
        }
    }
    for key in oldest.keys().chain(others) {
        prop_assert_eq!(runs.get(*key).expect("read"), oldest.get(key).copied());
    }
    prop_assert!(runs.read_all().expect("read").iter().eq(least.values()));
    let pages = |rows: usize| rows.div_ceil(SortedRuns::<TestRow<MORE>>::PAGE_ROWS);
    runs.merge(file()).expect("merged");
    prop_assert_eq!(runs.in_memory(), pages(least.len()));
    for key in least.keys().chain(others) {
        prop_assert_eq!(runs.get(*key).expect("read"), least.get(key).copied());
    }
    Ok(())
}

fn check_rows<const MORE: usize>(parts: &[(u64, Vec<(u64, u32)>)], reads: &[(u64, u64)]) -> Result<(), TestCaseError> {
    let mut rows: RowFile<TestRow<MORE>> = RowFile::new(file());
    let mut oracle: Vec<Option<TestRow<MORE>>> = Vec::new();
    for (first, part) in parts {
        let part: Vec<_> = part.iter().map(|(key, value)| TestRow::new(*key, *value)).collect();
        // Behind the end there would be room for nothing.
        if part.is_empty() {
            continue;
        }
        let first = *first as usize;
        oracle.resize(oracle.len().max(first + part.len()), None);
        part.iter().zip(&mut oracle[first..]).for_each(|(row, place)| *place = Some(*row));
        rows.write(first as u64, part).expect("written");
    }
    let appended = TestRow::new(7, 7);
    rows.append([appended]).expect("written");
    oracle.push(Some(appended));
    prop_assert_eq!(rows.rows(), oracle.len() as u64);
    let zeros = TestRow { key: 0, value: 0, more: [0; MORE] };
    let all: Vec<_> = oracle.into_iter().map(|row| row.unwrap_or(zeros)).collect();
    for (from, count) in reads {
        let range = (*from as usize).min(all.len())..((from + count) as usize).min(all.len());
        prop_assert_eq!(&rows.read(*from..from + count).expect("read"), &all[range]);
        prop_assert_eq!(rows.get(*from).ok(), all.get(*from as usize).copied());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// From runs of one row to one run of all, merged often and never.
    #[test]
    fn runs_find_everything_and_nothing_else(
        notes in notes(),
        memory in prop_oneof![20usize..200, 200usize..4000, Just(usize::MAX)],
        merge_at in prop_oneof![1usize..10, Just(usize::MAX)],
        others in prop::collection::vec(prop_oneof![0u64..3000, any::<u64>()], 0..100),
    ) {
        check_runs::<0>(&notes, memory, merge_at, &others)?;
        check_runs::<5>(&notes, memory, merge_at, &others)?;
        check_runs::<48>(&notes, memory, merge_at, &others)?;
        // Larger than a page.
        check_runs::<5000>(&notes[..notes.len().min(300)], memory, merge_at, &others)?;
    }

    #[test]
    fn runs_of_single_rows_are_found_too(notes in prop::collection::vec((0u64..50, 0u32..9), 0..60)) {
        check_runs::<5>(&notes, 1, usize::MAX, &[50, u64::MAX])?;
        check_runs::<5>(&notes, 1, 1, &[50, u64::MAX])?;
    }

    /// Written in any order, over one another and with gaps.
    #[test]
    fn rows_are_read_as_they_were_written(
        parts in prop::collection::vec((0u64..3000, notes()), 0..5),
        reads in prop::collection::vec((0u64..7000, 0u64..3000), 1..20),
    ) {
        check_rows::<0>(&parts, &reads)?;
        check_rows::<5>(&parts, &reads)?;
        check_rows::<48>(&parts, &reads)?;
    }
}

#[test]
fn a_full_disk_is_an_error_and_nothing_is_lost() {
    let row = |n: u64| TestRow::<5>::new(n, 1);
    let mut rows = RowFile::new(full());
    assert_eq!(rows.append((0..10_000).map(row)).expect_err("full").kind(), ErrorKind::StorageFull);
    assert_eq!(rows.rows(), 0);

    let mut runs = SortedRuns::new(full());
    let many: Vec<_> = (0..10_000).map(row).collect();
    assert_eq!(runs.push(&many).expect_err("full").kind(), ErrorKind::StorageFull);
    assert_eq!((runs.runs(), runs.in_memory()), (0, 0));
    assert_eq!(runs.get(5).expect("nothing is read"), None);

    let mut runs = SortedRuns::new(file());
    runs.push(&many).expect("written");
    runs.push(&[row(20_000)]).expect("written");
    assert_eq!(runs.merge(full()).expect_err("full").kind(), ErrorKind::StorageFull);
    assert_eq!(runs.runs(), 2);
    assert_eq!(runs.get(9_999).expect("read"), Some(row(9_999)));
    assert_eq!(runs.get(20_000).expect("read"), Some(row(20_000)));
}

/// A file that was cut off, as by a failing disk, is an error too.
#[test]
fn what_cannot_be_read_is_an_error() {
    let many: Vec<_> = (0..10_000).map(|n| TestRow::<5>::new(n, 1)).collect();
    let written = file();
    let mut runs = SortedRuns::new(written.try_clone().expect("another descriptor"));
    runs.push(&many).expect("written");
    written.set_len(17 * 5000).expect("cut off");
    assert_eq!(runs.get(100).expect("read"), Some(many[100]));
    assert_eq!(runs.get(9_000).expect_err("gone").kind(), ErrorKind::UnexpectedEof);
    assert_eq!(runs.merge(file()).expect_err("gone").kind(), ErrorKind::UnexpectedEof);
    assert!(runs.read_all().is_err());
    assert_eq!(runs.runs(), 1);
}
