//! Runs: golden bytes, look-ups against a sorted list, and refusals.

use std::collections::BTreeMap;

use super::*;
use crate::golden::golden;
use crate::ids::{DomainId, JobId, RunId};
use crate::index_manifest::Table;
use crate::keys::Keys;
use crate::roles::Roles;
use crate::seal::SALT_LEN;
use crate::wire::DecodeError;
use proptest::prelude::*;

const ID: RunId = RunId { job: JobId([7; 16]), seq: 3 };
const FIXED: RecordLayout = RecordLayout { key_len: 20, value: ValueWidth::Fixed(8) };
const VARYING: RecordLayout = RecordLayout { key_len: 4, value: ValueWidth::Variable };

type Records = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn keys() -> Keys {
    crate::golden::keys()
}

fn key() -> RunKey {
    RunKey::of(&keys(), ID).expect("all keys")
}

fn build(layout: RecordLayout, records: &Records, with_filter: bool) -> FinishedRun {
    let mut builder = RunBuilder::new(key(), [9; 32], Table::Chunks, layout, with_filter).expect("valid");
    for (key, value) in records {
        builder.push(key, value.as_deref()).expect("in order");
    }
    builder.finish().expect("has records")
}

fn read(object: &[u8]) -> Result<Records, DecodeError> {
    let index = RunIndex::decode(&key(), object, object.len() as u64)?;
    let filter = index.filter_range();
    let filter = index.open_filter(&object[filter.start as usize..filter.end as usize])?;
    let mut records = Records::new();
    for number in 0..index.blocks() {
        let range = index.bytes_of(number..number + 1);
        let block = index.open_block(number, &object[range.start as usize..range.end as usize], Vec::new())?;
        for record in 0..block.count() {
            let key = block.key(record);
            assert!(filter.as_ref().is_none_or(|filter| filter.admits(key_hash(key))));
            assert_eq!(index.block_of(key), Some(number));
            assert!(index.blocks_within(prefix(key), prefix(key)).contains(&number));
            records.insert(key.to_vec(), block.value(record).map(<[u8]>::to_vec));
        }
    }
    Ok(records)
}

fn uniform(number: u64) -> Vec<u8> {
    let bytes = blake3::hash(&number.to_le_bytes());
    bytes.as_bytes()[..20].to_vec()
}

fn many(count: u64) -> Records {
    (0..count).map(|n| (uniform(n), (n % 10 != 3).then(|| n.to_le_bytes().to_vec()))).collect()
}

fn small() -> Records {
    (0..5u8).map(|n| (vec![0, 0, n, 7], (n != 2).then(|| vec![n; usize::from(n)]))).collect()
}

#[test]
fn version_2_bytes_never_change() {
    let fixed = build(FIXED, &many(3), true);
    assert_eq!(read(&golden("run_v2", &fixed.bytes)), Ok(many(3)));
    let varying = build(VARYING, &small(), false);
    assert_eq!(read(&golden("run_variable_v2", &varying.bytes)), Ok(small()));
}

fn packed(layout: RecordLayout, records: &Records) -> Vec<u8> {
    let mut builder = RunBuilder::new(key(), [9; 32], Table::Chunks, layout, false).expect("valid").packed();
    for (key, value) in records {
        builder.push(key, value.as_deref()).expect("in order");
    }
    builder.finish().expect("has records").bytes
}

/// Records of a task: numbers that rise, and places that follow each other.
fn answers(count: u32) -> Records {
    let value = |n: u32| [&[0][..], &(n / 300).to_le_bytes(), &(n % 300).to_le_bytes()].concat();
    (0..count).map(|n| ([[0, 0, 0, 3], (n + n / 9).to_be_bytes()].concat(), Some(value(n)))).collect()
}

const ANSWERS: RecordLayout = RecordLayout { key_len: 8, value: ValueWidth::Fixed(9) };

#[test]
fn packed_bytes_never_change() {
    let few = packed(ANSWERS, &answers(40));
    assert_eq!(read(&golden("run_packed_v2", &few)), Ok(answers(40)));
}

#[test]
fn packed_records_take_little_and_are_read_back() {
    let records = answers(20_000);
    let (bytes, plain) = (packed(ANSWERS, &records), build(ANSWERS, &records, false).bytes);
    assert_eq!(read(&bytes).as_ref(), Ok(&records));
    assert!(bytes.len() * 5 < plain.len(), "{} of {}", bytes.len(), plain.len());
    // Records that differ in width, and those with tombstones, stay as they are.
    assert_eq!(packed(VARYING, &small()), build(VARYING, &small(), false).bytes);
    assert_eq!(packed(FIXED, &many(50)), build(FIXED, &many(50), false).bytes);
}

#[test]
fn packed_blocks_that_are_impossible_are_refused() {
    let layout = |key_len, width| RecordLayout { key_len, value: ValueWidth::Fixed(width) };
    let block = |count: u32, rest: &[u8]| [&[2][..], &count.to_le_bytes(), rest].concat();
    // Two records of a byte that rises by 1: zstd keeps so few bytes as they are.
    let columns = zstd::bulk::compress(&[5, 1], 1).expect("zstd");
    let opened = Block::decode(layout(1, 0), block(2, &columns)).expect("valid");
    assert_eq!((opened.count(), opened.key(0), opened.key(1)), (2, &[5][..], &[6][..]));
    assert_eq!(opened.value(1), Some(&[][..]));
    for (layout, block) in [
        (layout(1, 0), block(3, &columns)),
        (layout(1, 0), block(1, &columns)),
        (layout(1, 0), block(0, &columns)),
        (layout(2, 0), block(2, &columns)),
        (layout(1, 1), block(2, &columns)),
        (layout(1, 0), block(u32::MAX, &columns)),
        (layout(1, 0), block(2, &columns[..columns.len() - 1])),
        (layout(1, 0), block(2, &[&columns[..], &[0]].concat())),
        (layout(1, 0), block(2, &[])),
        (layout(1, 0), vec![2, 1]),
        (layout(1, 0), block(2, &zstd::bulk::compress(&[5, 0], 1).expect("zstd"))),
        (VARYING, block(2, &columns)),
    ] {
        assert!(Block::decode(layout, block.clone()).is_err(), "{layout:?} {block:?}");
    }
}

/// A block is closed by the record with which it reaches its size, so one more is impossible.
/// Otherwise, some bytes could ask for much memory.
#[test]
fn packed_blocks_have_as_many_records_as_a_block_holds() {
    let layout = RecordLayout { key_len: 2, value: ValueWidth::Fixed(0) };
    let block = |count: u16| {
        // The numbers from 0 on: differences of their high bytes, and of their low ones.
        let high = (0..count).map(|number| u8::from(number > 0 && number.is_multiple_of(256)));
        let low = (0..count).map(|number| u8::from(number > 0));
        let columns = zstd::bulk::compress(&high.chain(low).collect::<Vec<u8>>(), 1).expect("zstd");
        [&[2][..], &u32::from(count).to_le_bytes(), &columns].concat()
    };
    let most = (BLOCK_TARGET / 2) as u16;
    let opened = Block::decode(layout, block(most)).expect("as many as fit");
    assert_eq!((opened.count(), opened.key(300)), (usize::from(most), &[1, 44][..]));
    assert!(Block::decode(layout, block(most + 1)).is_err());
}

#[test]
fn a_run_of_many_blocks_is_read_back_and_its_reference_is_true() {
    let records = many(20_000);
    let FinishedRun { bytes, run } = build(FIXED, &records, true);
    assert_eq!(read(&bytes).as_ref(), Ok(&records));
    assert_eq!((run.records, run.tombstones, run.object_bytes), (20_000, 2000, bytes.len() as u64));
    let (first, last) = (records.keys().next().expect("some"), records.keys().next_back().expect("some"));
    assert_eq!((run.first, run.last), (prefix(first), prefix(last)));
    let tail = &bytes[bytes.len() - run.tail_bytes as usize..];
    let index = RunIndex::decode(&key(), tail, run.object_bytes).expect("the tail is enough");
    assert!(index.blocks() > 8);
    assert_eq!(index.filter_range().end, run.object_bytes - u64::from(run.tail_bytes));
    assert_eq!(index.filter_range().end - index.filter_range().start, u64::from(run.filter_bytes));
    assert_eq!(index.blocks_within(0, u64::MAX), 0..index.blocks());
    assert_eq!(index.blocks_within(prefix(last) + 1, u64::MAX).len(), 0);
    assert_eq!(index.blocks_within(0, prefix(first) - 1).len(), 0);
    assert_eq!((index.block_of(&[0; 20]), index.block_of(&[255; 20])), (None, None));
}

#[test]
fn bytes_taken_while_it_grows_are_the_same() {
    let records = many(9000);
    let mut builder = RunBuilder::new(key(), [9; 32], Table::Chunks, FIXED, true).expect("valid");
    let mut bytes = Vec::new();
    for (number, (key, value)) in records.iter().enumerate() {
        builder.push(key, value.as_deref()).expect("in order");
        if number % 1000 == 0 {
            bytes.extend(builder.take());
        }
    }
    let estimate = builder.len();
    bytes.extend(builder.finish().expect("has records").bytes);
    assert_eq!(bytes, build(FIXED, &records, true).bytes);
    assert!(estimate.abs_diff(bytes.len() as u64) < bytes.len() as u64 / 50, "{estimate}");
}

#[test]
fn filters_are_small_and_rarely_wrong() {
    for count in [1u64, 2, 3, 10, 100, 1000, 30_000, 300_000] {
        let mut hashes: Vec<u64> = (0..count).map(|n| key_hash(&uniform(n))).collect();
        let filter = Filter::build(&mut hashes);
        assert!(hashes.iter().all(|hash| filter.admits(*hash)));
        let wrong = (0..50_000).filter(|n| filter.admits(key_hash(&uniform(count + n)))).count();
        assert!(wrong < 50_000 / 256 * 2, "{wrong} of {count}");
        let bits = filter.bytes_held() as u64 * 8 / count;
        assert!(count < 1000 || bits < 14, "{bits} bits a key for {count}");
        assert!(count < 300_000 || bits < 10, "{bits} bits a key for {count}");
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        assert_eq!(Filter::decode(&bytes), Ok(filter));
    }
}

#[test]
fn a_filter_that_cannot_be_made_admits_everything() {
    let none = Filter::decode(&[&[0; 8][..], &[255], &[0; 4]].concat()).expect("valid");
    assert!(none.admits(1) && none.admits(2));
    // Equal hashes are no obstacle.
    let filter = Filter::build(&mut vec![5, 5, 5, 9]);
    assert!(filter.admits(5) && filter.admits(9) && filter != none);
}

#[test]
fn what_no_reader_accepts_is_not_written() {
    let new = |layout| RunBuilder::new(key(), [9; 32], Table::Chunks, layout, true);
    for key_len in [0, 65] {
        assert!(new(RecordLayout { key_len, ..FIXED }).is_err());
    }
    assert!(new(RecordLayout { value: ValueWidth::Fixed(u16::MAX), ..FIXED }).is_err());
    assert!(new(FIXED).expect("valid").finish().is_err(), "no records");
    let mut builder = new(FIXED).expect("valid");
    assert!(builder.push(&[1; 19], Some(&[0; 8])).is_err());
    assert!(builder.push(&[1; 20], Some(&[0; 7])).is_err());
    assert!(builder.push(&[1; 20], Some(&[0; 8])).is_ok());
    assert!(builder.push(&[1; 20], None).is_err(), "the same key");
    assert!(builder.push(&[0; 20], None).is_err(), "a lower key");
    let mut builder = new(VARYING).expect("valid");
    assert!(builder.push(&[1; 4], Some(&vec![0; VALUE_MAX + 1])).is_err());
    assert!(builder.push(&[1; 4], Some(&vec![0; VALUE_MAX])).is_ok());
    assert!(builder.push(&[2; 4], Some(&[0; 3])).is_ok());
    let bytes = builder.finish().expect("has records").bytes;
    assert_eq!(read(&bytes).map(|records| records.len()), Ok(2));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let bytes = build(FIXED, &many(3), true).bytes;
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&flipped).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "cut to {len}");
        assert!(RunIndex::decode(&key(), &bytes[len..], bytes.len() as u64).is_err() || len < bytes.len() - 100);
    }
    assert!(
        RunIndex::decode(&RunKey::of(&keys(), RunId { seq: 4, ..ID }).expect("all keys"), &bytes, bytes.len() as u64)
            .is_err()
    );
}

#[test]
fn blocks_do_not_open_in_each_others_place() {
    let bytes = build(FIXED, &many(20_000), true).bytes;
    let index = RunIndex::decode(&key(), &bytes, bytes.len() as u64).expect("reads");
    let range = index.bytes_of(1..2);
    let sealed = &bytes[range.start as usize..range.end as usize];
    assert!(index.open_block(1, sealed, Vec::new()).is_ok());
    assert!(index.open_block(2, sealed, Vec::new()).is_err());
}

#[test]
fn other_versions_and_roles_are_refused_by_name() {
    let bytes = build(FIXED, &many(3), true).bytes;
    let decode = |bytes: &[u8]| RunIndex::decode(&key(), bytes, bytes.len() as u64).map(|_| ());
    for (version, refused) in [
        (1, DecodeError::Development { what: WHAT }),
        (9, DecodeError::UnsupportedVersion { what: WHAT, found: 9, newest: 2 }),
    ] {
        let mut other = bytes.clone();
        *other.last_mut().expect("long") = version;
        // The trailer is of this version, so that this byte is damaged.
        assert_eq!(decode(&other), Err(DecodeError::BadMagic { what: WHAT, found: [b'L', b'R', b'N', version] }));
        let trailer = other.len() - RUN_TRAILER_LEN;
        other[trailer] ^= 1;
        assert_eq!(decode(&other), Err(refused));
    }
    let backup = keys().secrets().for_roles(Roles::BACKUP, DomainId([5; 16]), None).expect("all keys");
    let backup = Keys::of(backup, keys().opening_public().clone()).expect("its own");
    assert_eq!(RunKey::of(&backup, ID).err(), Some(DecodeError::KeyLacks { what: WHAT, needs: Roles::OPERATE }));
    // A run of one process opens with its secret alone.
    assert!(RunIndex::decode(&RunKey::of_process([1; 32], ID), &bytes, bytes.len() as u64).is_err());
}

/// With the same random bytes, parts that differ have keys that differ.
#[test]
fn salts_follow_from_what_is_sealed() {
    let records = many(4000);
    let (one, again) = (build(FIXED, &records, true).bytes, build(FIXED, &records, true).bytes);
    assert_eq!(one, again, "equal records give equal bytes");
    let mut other = records.clone();
    other.insert(uniform(0), Some(vec![77; 8]));
    let other = build(FIXED, &other, true).bytes;
    let salts = |bytes: &[u8]| {
        let index = RunIndex::decode(&key(), bytes, bytes.len() as u64).expect("reads");
        let starts = (0..index.blocks()).map(|number| index.bytes_of(number..number + 1).start as usize);
        starts.map(|at| bytes[at..at + SALT_LEN].to_vec()).collect::<Vec<_>>()
    };
    let (one, other) = (salts(&one), salts(&other));
    let changed = one.iter().zip(&other).filter(|(one, other)| one != other).count();
    assert_eq!((one.len(), changed), (other.len(), 1), "of the block with the changed record");
    assert_eq!(one.iter().collect::<std::collections::BTreeSet<_>>().len(), one.len());
}

fn any_layout() -> impl Strategy<Value = RecordLayout> {
    let value = prop_oneof![Just(ValueWidth::Variable), (0u16..40).prop_map(ValueWidth::Fixed)];
    (1u8..33, value).prop_map(|(key_len, value)| RecordLayout { key_len, value })
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        layout in any_layout(),
        records in prop::collection::btree_map(any::<[u8; 32]>(), prop::option::weighted(0.9, 0usize..40), 1..300),
        with_filter: bool,
    ) {
        let width = |len| if let ValueWidth::Fixed(width) = layout.value { usize::from(width) } else { len };
        let records: Records = records.into_iter().map(|(key, len)| {
            (key[..usize::from(layout.key_len)].to_vec(), len.map(|len| vec![key[1]; width(len)]))
        }).collect();
        let object = build(layout, &records, with_filter).bytes;
        prop_assert_eq!(read(&object), Ok(records.clone()));
        prop_assert_eq!(read(&packed(layout, &records)), Ok(records));
    }

    #[test]
    fn seeking_finds_what_a_sorted_list_has(
        numbers in prop::collection::btree_set(0u8..200, 1..60), from: prop::sample::Index, wanted in 0u8..201,
    ) {
        let records: Records = numbers.iter().map(|n| (vec![*n, 0, 0, 0], None)).collect();
        let object = build(VARYING, &records, false).bytes;
        let index = RunIndex::decode(&key(), &object, object.len() as u64).expect("reads");
        let range = index.bytes_of(0..1);
        let block = index.open_block(0, &object[..range.end as usize], Vec::new()).expect("opens");
        let right = numbers.iter().filter(|n| **n < wanted).count();
        let from = from.index(right + 1);
        prop_assert_eq!(block.seek(from, &[wanted, 0, 0, 0]), right);
    }

    #[test]
    fn any_bytes_are_a_block_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), layout in any_layout()) {
        for form in [0, 1, 2] {
            let plain = [&[form, bytes.len() as u8 / 8, 0, 0, 0], &bytes[..]].concat();
            if let Ok(block) = Block::decode(layout, plain.clone()) {
                for record in 0..block.count() {
                    let _ = (block.key(record), block.value(record));
                }
            }
        }
        let _ = Filter::decode(&bytes);
    }
}
