//! Page runs: golden bytes, look-ups against a sorted list, damage.

use std::collections::BTreeMap;

use super::*;
use crate::golden::{golden, keys};
use crate::keys::MasterKey;
use proptest::prelude::*;

const ID: PageRunId = PageRunId([5; 16]);

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn key() -> PageRunKey {
    PageRunKey::of(&keys(), ID).expect("all keys")
}

fn build(table: VolumeTable, records: &Records) -> Vec<u8> {
    let mut builder = PageRunBuilder::new(key(), table);
    let mut bytes = Vec::new();
    for (key, value) in records {
        builder.push(key, value).expect("in order");
        bytes.append(&mut builder.take());
    }
    bytes.append(&mut builder.finish().expect("has records"));
    bytes
}

fn open(bytes: &[u8], key: impl Fn() -> PageRunKey) -> Result<PageRunIndex, DecodeError> {
    let last = bytes.last_chunk::<PAGE_LEN>().ok_or(DecodeError::Truncated { what: "test" })?;
    let tail = PageRunIndex::tail_len(&key(), last, bytes.len() as u64)? as usize;
    PageRunIndex::decode(key(), &bytes[bytes.len() - tail..], bytes.len() as u64)
}

fn page(index: &PageRunIndex, bytes: &[u8], number: u32) -> Result<Page, DecodeError> {
    index.open_page(number, bytes[number as usize * PAGE_LEN..][..PAGE_LEN].to_vec())
}

fn read(bytes: &[u8]) -> Result<Records, DecodeError> {
    let index = open(bytes, key)?;
    let mut records = Records::new();
    for number in 0..index.pages() {
        let page = page(&index, bytes, number)?;
        for record in 0..page.count() {
            assert!(index.admits(page.key(record)));
            records.insert(page.key(record).to_vec(), page.value(record).to_vec());
        }
    }
    assert_eq!(records.len() as u64, index.records);
    Ok(records)
}

fn records(table: VolumeTable, count: u64) -> Records {
    let one = |number: u64| {
        let hash = blake3::hash(&number.to_le_bytes());
        let len = table.form().value_len.unwrap_or(16 + 16 * (number % 9) as usize);
        (hash.as_bytes()[..table.form().key_len].to_vec(), hash.as_bytes().iter().copied().cycle().take(len).collect())
    };
    (0..count).map(one).collect()
}

#[test]
fn bytes_never_change() {
    let names = ["page_run_chunks_v2", "page_run_blocks_v2", "page_run_counts_v2"];
    for (table, name) in VolumeTable::ALL.into_iter().zip(names) {
        let records = records(table, 5);
        assert_eq!(read(&golden(name, &build(table, &records))), Ok(records));
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let bytes = build(VolumeTable::Blocks, &records(VolumeTable::Blocks, 90));
    assert!(bytes.len() > 4 * PAGE_LEN, "{}", bytes.len());
    let mut damaged = bytes.clone();
    for at in 0..bytes.len() {
        damaged[at] ^= 1 << (at % 8);
        assert!(read(&damaged).is_err(), "byte {at}");
        damaged[at] ^= 1 << (at % 8);
    }
    for cut in (0..bytes.len()).step_by(512) {
        assert!(read(&bytes[..cut]).is_err(), "cut to {cut}");
    }
    assert!(read(&[&bytes[..], &[0; PAGE_LEN]].concat()).is_err());
    // Another key, another run, and pages in each other's place.
    let other = || PageRunKey::of(&crate::keys::Keys::derive(&MasterKey([2; 32])), ID).expect("all keys");
    assert!(open(&bytes, other).is_err());
    assert!(open(&bytes, || PageRunKey::of(&keys(), PageRunId([6; 16])).expect("all keys")).is_err());
    let swapped = [&bytes[PAGE_LEN..2 * PAGE_LEN], &bytes[..PAGE_LEN], &bytes[2 * PAGE_LEN..]].concat();
    assert!(read(&swapped).is_err());
}

#[test]
fn disorder_and_long_values_are_refused() {
    let mut builder = PageRunBuilder::new(key(), VolumeTable::Blocks);
    builder.push(&[3; 20], &[1; 40]).expect("fits");
    assert!(builder.push(&[3; 20], &[1; 40]).is_err());
    assert!(builder.push(&[2; 20], &[1; 40]).is_err());
    assert!(builder.push(&[4; 19], &[1; 40]).is_err());
    assert!(builder.push(&[4; 20], &[1; PAGE_ROOM]).is_err());
    assert!(PageRunBuilder::new(key(), VolumeTable::Chunks).finish().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn look_ups_find_what_a_sorted_list_finds(count in 1u64..600, asked in prop::collection::vec(any::<u64>(), 20)) {
        for table in VolumeTable::ALL {
            let records = records(table, count);
            let bytes = build(table, &records);
            let index = open(&bytes, key).expect("whole");
            for number in asked.iter().map(|asked| asked % (2 * count)) {
                let wanted = blake3::hash(&number.to_le_bytes()).as_bytes()[..table.form().key_len].to_vec();
                let expected = records.range(wanted.clone()..).next();
                let mut found = None;
                if let Some(mut at) = index.page_at(&wanted) {
                    let mut first = page(&index, &bytes, at).expect("whole");
                    let mut record = first.first_at(&wanted);
                    if record == first.count() {
                        at += 1;
                        (first, record) = (page(&index, &bytes, at).expect("whole"), 0);
                    }
                    found = Some((first.key(record).to_vec(), first.value(record).to_vec()));
                }
                prop_assert_eq!(found, expected.map(|(key, value)| (key.clone(), value.clone())));
                prop_assert!(!records.contains_key(&wanted) || index.admits(&wanted));
            }
        }
    }
}
