//! Records in any order come out sorted, the last of each key, whatever fits into memory.

use crate::support::*;
use larder_format::index_manifest::Table;
use larder_index::{Cursor, Sorter, layout_of};
use proptest::prelude::*;

/// Sorts records of containers (values of any length) with so much memory.
fn sorted(records: &[(u32, Option<Vec<u8>>)], budget: usize) -> Oracle {
    let engine = Engine::new();
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut sorter =
        Sorter::new(&engine.io.repository, layout_of(Table::Containers), budget, folder.path()).expect("begins");
    for (key, value) in records {
        sorter.push(&key.to_be_bytes(), value.as_deref()).expect("fits");
    }
    let records = collect(&mut sorter.finish().expect("ends"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0, "temporary files have no names");
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_pushed_comes_out_sorted(
        records in prop::collection::vec((0u32..300, prop::option::weighted(0.9, 0usize..60)), 0..500),
        budget in prop::sample::select(vec![0usize, 200, 1500, 10_000, 1 << 20]),
    ) {
        let fill = |(number, (key, len)): (usize, (u32, Option<usize>))| (key, len.map(|len| vec![number as u8; len]));
        let records: Vec<_> = records.into_iter().enumerate().map(fill).collect();
        let oracle: Oracle =
            records.iter().map(|(key, value)| (key.to_be_bytes().to_vec(), value.clone())).collect();
        prop_assert_eq!(sorted(&records, budget), oracle);
    }
}

/// More spills than are merged at once: files are merged into one meanwhile, and the newest still holds.
#[test]
fn many_spills_are_merged_in_between() {
    let records: Vec<_> = (0..3000u32).map(|n| (n * 7919 % 1000, Some(n.to_le_bytes().to_vec()))).collect();
    let oracle: Oracle = records.iter().map(|(key, value)| (key.to_be_bytes().to_vec(), value.clone())).collect();
    assert_eq!(sorted(&records, 400), oracle);
}

/// With little memory, hundreds of spills are never read at once.
#[test]
fn a_merge_of_many_spills_takes_few_blocks() {
    let engine = Engine::new();
    let sorter =
        || Sorter::new(&engine.io.repository, layout_of(Table::Containers), 400, std::env::temp_dir().as_path());
    for count in [5u32, 40, 4000] {
        let mut sorter = sorter().expect("begins");
        for number in 0..count {
            sorter.push(&number.wrapping_mul(7919).to_be_bytes(), Some(&[1; 30])).expect("fits");
        }
        let mut sorted = sorter.finish().expect("ends");
        assert!(sorted.sources() <= 9, "{} for {count}", sorted.sources());
        assert_eq!(collect(&mut sorted).len(), count as usize);
    }
}

#[test]
fn records_of_a_wrong_width_are_refused() {
    let engine = Engine::new();
    let mut sorter = Sorter::new(&engine.io.repository, layout_of(Table::Chunks), 1000, std::env::temp_dir().as_path())
        .expect("begins");
    assert!(sorter.push(&[0; 19], None).is_err());
    assert!(sorter.push(&[0; 20], Some(&[0; 7])).is_err());
    assert!(sorter.push(&[0; 20], Some(&[0; 8])).is_ok());
    assert!(sorter.finish().expect("ends").advance().expect("one"));
}

#[test]
fn a_folder_that_is_not_there_is_named_by_the_first_spill() {
    let engine = Engine::new();
    let mut sorter =
        Sorter::new(&engine.io.repository, layout_of(Table::Chunks), 0, "/no/such/folder".as_ref()).expect("begins");
    sorter.push(&[0; 20], None).expect("one record is always admitted");
    let error = sorter.push(&[1; 20], None).expect_err("no folder");
    assert!(error.to_string().contains("temporary file"), "{error}");
}
