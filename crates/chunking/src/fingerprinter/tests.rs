//! Batches against hashing alone, and that against the `blake3` crate.

use super::*;
use proptest::prelude::*;

const KEY: [u8; 32] = *b"0123456789abcdef0123456789abcdef";

fn content(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(b"content").finalize_xof().fill(&mut bytes);
    bytes
}

fn expected(data: &[u8], lengths: &[u32]) -> Vec<Fingerprint> {
    let mut at = 0;
    let mut names = Vec::new();
    for &length in lengths {
        let chunk = &data[at..at + length as usize];
        names.push(Fingerprint(blake3::keyed_hash(&KEY, chunk).into()));
        at += chunk.len();
    }
    names
}

fn check(data: &[u8], lengths: &[u32]) {
    let expected = expected(data, lengths);
    for kernel in Kernel::available() {
        let mut names = Vec::new();
        Fingerprinter::with_kernel(&KEY, kernel).many(data, lengths, &mut names);
        assert_eq!(names.len(), expected.len());
        for (chunk, (name, expected)) in names.iter().zip(&expected).enumerate() {
            assert_eq!(name, expected, "{kernel:?}, chunk {chunk} of length {}", lengths[chunk]);
        }
    }
}

/// Lengths around blocks, leaves and powers of two of leaves are where trees change shape.
fn length() -> impl Strategy<Value = u32> {
    let near_edges = (0..20_u32, -2..3_i32).prop_map(|(leaves, off)| (leaves * 1024).saturating_add_signed(off));
    let near_blocks = (0..40_u32, -1..2_i32).prop_map(|(blocks, off)| (blocks * 64).saturating_add_signed(off));
    prop_oneof![0..20_000_u32, near_edges, near_blocks]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn batches_equal_blake3(lengths in proptest::collection::vec(length(), 0..80), lead in 0..64_usize) {
        let total: u32 = lengths.iter().sum();
        check(&content(lead + total as usize)[lead..], &lengths);
    }
}

#[test]
fn every_short_length_equals_blake3() {
    let lengths: Vec<u32> = (0..2200).collect();
    check(&content(2200 * 2199 / 2), &lengths);
}

#[test]
fn long_chunks_among_short_ones_keep_their_order() {
    let lengths = [5000, 200_000, 1, 131_072, 131_071, 0, 1_500_000, 4096, 4096];
    check(&content(lengths.iter().sum::<u32>() as usize), &lengths);
}

#[test]
fn appends_behind_what_is_there() {
    let fingerprinter = Fingerprinter::new(&KEY);
    let mut names = vec![Fingerprint([7; 32])];
    fingerprinter.many(b"onetwo and more", &[3, 3], &mut names);
    assert_eq!(names, [Fingerprint([7; 32]), fingerprinter.one(b"one"), fingerprinter.one(b"two")]);
}

#[test]
fn the_key_decides() {
    assert_ne!(Fingerprinter::new(&KEY).one(b"chunk"), Fingerprinter::new(&[0; 32]).one(b"chunk"));
}
