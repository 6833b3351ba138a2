//! Any two sequences of records, and what no reader accepts.

use proptest::prelude::*;

use super::*;
use crate::container::ChunkRef;
use crate::ids::{ContainerId, ContainerKind, JobId};

const OF_BASE: Fingerprint = Fingerprint([9; 32]);

/// A record that this number names.
fn record(number: u32) -> ChunkRecord {
    let mut fingerprint = [0; 32];
    fingerprint[..4].copy_from_slice(&number.to_le_bytes());
    let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq: number % 3 };
    let chunk =
        ChunkRef { fingerprint: Fingerprint(fingerprint), container, offset: number * 10, size: 4 + number % 5 };
    ChunkRecord { chunk, born: JobId([(number % 2) as u8; 16]) }
}

fn segment(numbers: &[u32]) -> Segment {
    Segment { records: numbers.iter().map(|number| record(*number)).collect(), superchunks: Vec::new() }
}

fn numbers(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

/// The difference, after it was decoded again.
fn difference(base: &[u32], to: &[u32]) -> Vec<u8> {
    let (base, to) = (segment(base), segment(to));
    let bytes = encode(&OF_BASE, &base, &to, usize::MAX).expect("in bounds").expect("no limit");
    assert!(decode(&bytes, &OF_BASE, &base) == Ok(to));
    bytes
}

#[test]
fn scattered_changes_cost_their_records() {
    let base = numbers(0..512);
    let mut to = base.clone();
    for (at, number) in [(3, 1000), (100, 1001), (101, 1002), (300, 1003), (511, 1004)] {
        to[at] = number;
    }
    assert!(difference(&base, &to).len() < 350, "{}", difference(&base, &to).len());
    // As many insertions and deletions.
    let mut to = base.clone();
    to.splice(400..402, []);
    to.splice(200..200, [2000, 2001, 2002]);
    assert!(difference(&base, &to).len() < 250);
    assert!(difference(&base, &base).len() < 60);
}

#[test]
fn any_sequence_is_encoded() {
    difference(&[], &[]);
    difference(&[1, 2], &[]);
    difference(&[], &[1, 2]);
    difference(&numbers(0..200), &numbers(150..400));
    difference(&numbers(150..400), &numbers(0..200));
    difference(&[7, 7, 7, 7], &[7, 7, 8, 7]);
}

#[test]
fn too_many_new_records_are_no_difference() {
    let (base, to) = (segment(&numbers(0..10)), segment(&numbers(8..18)));
    assert_eq!(encode(&OF_BASE, &base, &to, 7), Ok(None));
    assert!(encode(&OF_BASE, &base, &to, 8).expect("in bounds").is_some());
}

#[test]
fn superchunks_come_along() {
    let base = segment(&numbers(0..9));
    let mut to = segment(&numbers(1..9));
    to.superchunks =
        vec![Superchunk { first: 0, records: 2, mac: [3; 16] }, Superchunk { first: 5, records: 3, mac: [4; 16] }];
    let bytes = encode(&OF_BASE, &base, &to, 9).expect("in bounds").expect("few are new");
    assert_eq!(decode(&bytes, &OF_BASE, &base), Ok(to));
    // One record fewer, and the last superchunk would end outside.
    assert!(decode(&bytes, &OF_BASE, &segment(&numbers(0..8))).is_err());
}

/// Superchunks over every three records.
fn in_threes(numbers: &[u32]) -> Segment {
    let runs = numbers.chunks_exact(3).enumerate();
    let superchunks =
        runs.map(|(run, of)| Superchunk { first: run * 3, records: 3, mac: [of[0] as u8 ^ of[2] as u8; 16] });
    Segment { superchunks: superchunks.collect(), ..segment(numbers) }
}

#[test]
fn superchunks_of_the_base_are_not_listed_again() {
    let base = in_threes(&numbers(0..300));
    let mut changed = numbers(0..300);
    changed[100] = 1000;
    let to = in_threes(&changed);
    let bytes = encode(&OF_BASE, &base, &to, 9).expect("in bounds").expect("few are new");
    assert_eq!(bytes[0], KIND_MORE);
    assert!(bytes.len() < 150, "{}", bytes.len());
    assert_eq!(decode(&bytes, &OF_BASE, &base), Ok(to));
    // A superchunk of the base that is none any more: all are listed.
    let mut to = base.clone();
    to.superchunks.remove(7);
    let bytes = encode(&OF_BASE, &base, &to, 9).expect("in bounds").expect("none is new");
    assert_eq!(bytes[0], KIND_ALL);
    assert_eq!(decode(&bytes, &OF_BASE, &base), Ok(to));
}

#[test]
fn a_difference_to_another_segment_is_refused() {
    let base = segment(&numbers(0..9));
    let bytes = encode(&OF_BASE, &base, &segment(&numbers(2..9)), 9).expect("in bounds").expect("few are new");
    assert!(decode(&bytes, &Fingerprint([8; 32]), &base).is_err());
    assert!(decode(&bytes, &OF_BASE, &segment(&numbers(0..5))).is_err());
    // Neither is read as the other.
    assert!(matches!(segment::decode(&bytes), Err(DecodeError::UnsupportedVersion { .. })));
    assert!(decode(&segment::encode(&base.records, &[]).expect("in bounds"), &OF_BASE, &base).is_err());
}

#[test]
fn a_difference_of_a_newer_program_is_no_damage() {
    let base = segment(&numbers(0..9));
    let mut bytes = encode(&OF_BASE, &base, &segment(&numbers(2..9)), 9).expect("in bounds").expect("few are new");
    bytes[0] = KIND_MORE + 1;
    let newer = DecodeError::UnsupportedVersion { what: WHAT, found: 4, newest: 3 };
    assert_eq!(decode(&bytes, &OF_BASE, &base), Err(newer));
    bytes[0] = KIND_ALL - 1;
    assert!(matches!(decode(&bytes, &OF_BASE, &base), Err(DecodeError::Invalid { .. })));
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        base in prop::collection::vec(0u32..40, 0..60),
        to in prop::collection::vec(0u32..40, 0..60),
    ) {
        let bytes = difference(&base, &to);
        for len in 0..bytes.len() {
            prop_assert!(decode(&bytes[..len], &OF_BASE, &segment(&base)).is_err());
        }
    }

    #[test]
    fn superchunks_of_any_sequences_come_along(
        base in prop::collection::vec(0u32..9, 0..60),
        to in prop::collection::vec(0u32..9, 0..60),
        dropped in any::<prop::sample::Index>(),
        drops in any::<bool>(),
    ) {
        let (base, mut to) = (in_threes(&base), in_threes(&to));
        if drops && !to.superchunks.is_empty() {
            to.superchunks.remove(dropped.index(to.superchunks.len()));
        }
        let bytes = encode(&OF_BASE, &base, &to, usize::MAX).expect("in bounds").expect("no limit");
        prop_assert_eq!(decode(&bytes, &OF_BASE, &base), Ok(to));
    }

    #[test]
    fn any_input_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let base = segment(&numbers(0..20));
        let _ = decode(&bytes, &OF_BASE, &base);
        let begin = [&[KIND_MORE][..], &OF_BASE.0].concat();
        let _ = decode(&[&begin, &bytes[..]].concat(), &OF_BASE, &base);
    }
}
