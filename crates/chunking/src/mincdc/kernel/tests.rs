//! Every kernel against the reference, bit for bit.

use super::*;
use proptest::prelude::*;

/// Bytes with few distinct values, long runs or full entropy: kernels are most likely wrong at
/// ties.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let dense = proptest::collection::vec(any::<u8>(), WORD..1500);
    let sparse = proptest::collection::vec(prop_oneof![9 => Just(0_u8), 1 => 0..3_u8], WORD..1500);
    let runs = proptest::collection::vec((0..3_u8, 1..200_usize), 4..12)
        .prop_map(|runs| runs.into_iter().flat_map(|(byte, count)| std::iter::repeat_n(byte, count)).collect());
    let periods = (proptest::collection::vec(any::<u8>(), 1..9), WORD..1500)
        .prop_map(|(period, length)| period.into_iter().cycle().take(length).collect());
    prop_oneof![dense, sparse, runs, periods]
}

fn hash() -> impl Strategy<Value = HashParams> {
    (any::<u32>(), any::<u32>()).prop_map(|(multiplier, addend)| HashParams { multiplier: multiplier | 1, addend })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn kernels_equal_the_reference(bytes in bytes(), hash in hash(), offset in 0..64_usize) {
        let bytes = &bytes[offset.min(bytes.len() - WORD)..];
        let expected = last_smallest(bytes, hash);
        for kernel in Kernel::available() {
            prop_assert_eq!(kernel.last_smallest(bytes, hash), expected, "{:?}", kernel);
        }
    }
}

/// Every length around the sizes of groups, and every position of a unique minimum in each.
#[test]
fn minimum_is_found_at_every_position_of_every_length() {
    let hash = HashParams { multiplier: 0x9e37_79b1, addend: 0 };
    for length in (WORD..300).chain([511, 512, 513, 1000]) {
        for position in 0..length - WORD + 1 {
            // The word of zeros hashes to 0, all others to more.
            let mut bytes = vec![0x55; length];
            bytes[position..position + WORD].fill(0);
            for kernel in Kernel::available() {
                assert_eq!(kernel.last_smallest(&bytes, hash), position, "{kernel:?} length {length}");
            }
        }
    }
}

#[test]
fn runs_tie_to_the_last_position() {
    for byte in [0, 1, 0x80, 0xff] {
        for length in WORD..700 {
            let hash = HashParams { multiplier: 0xdead_beef, addend: 0x1234_5678 };
            for kernel in Kernel::available() {
                assert_eq!(kernel.last_smallest(&vec![byte; length], hash), length - WORD, "{kernel:?}");
            }
        }
    }
}
