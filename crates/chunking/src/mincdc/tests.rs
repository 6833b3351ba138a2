//! Every kernel of both orders against the reference, bit for bit, and cuts against the definition.

use super::*;
use proptest::prelude::*;

/// Shortest input of a search: one window of the wider order.
const WINDOW: usize = Cipher::WINDOW;

/// Bytes with few distinct values, long runs or full entropy: kernels are most likely wrong at
/// ties.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let dense = proptest::collection::vec(any::<u8>(), WINDOW..1500);
    let sparse = proptest::collection::vec(prop_oneof![9 => Just(0_u8), 1 => 0..3_u8], WINDOW..1500);
    let runs = proptest::collection::vec((0..3_u8, 2..200_usize), 4..12)
        .prop_map(|runs| runs.into_iter().flat_map(|(byte, count)| std::iter::repeat_n(byte, count)).collect());
    let periods = (proptest::collection::vec(any::<u8>(), 1..17), WINDOW..1500)
        .prop_map(|(period, length)| period.into_iter().cycle().take(length).collect());
    prop_oneof![dense, sparse, runs, periods]
}

fn multiply() -> impl Strategy<Value = Multiply> {
    (any::<u32>(), any::<u32>()).prop_map(|(multiplier, addend)| Multiply { multiplier: multiplier | 1, addend })
}

fn check<O: Order>(order: &O, bytes: &[u8]) -> Result<(), TestCaseError> {
    let expected = reference(order, bytes);
    for kernel in O::kernels() {
        prop_assert_eq!(order.last_smallest(kernel, bytes), expected, "{:?} length {}", kernel, bytes.len());
    }
    Ok(())
}

/// The definition, straight from the header of the module.
fn defined<O: Order>(chunker: &MinCdc<O>, data: &[u8]) -> usize {
    let (min, max) = (chunker.params.min as usize, chunker.params.max as usize);
    if data.len() < max {
        return data.len();
    }
    (min..=max).rev().min_by_key(|&length| chunker.hash(data, length)).unwrap_or(max)
}

/// Cuts and confirmations at places of the data, and where what is left is as long as the bounds.
fn check_cuts<O: Order>(data: &[u8], average: u32, seed: &[u8; 32]) -> Result<(), TestCaseError> {
    let params = ChunkerParams::with_average(O::ALGORITHM, average);
    let bounds = [0, 1, WINDOW - 1, params.min as usize, params.max as usize];
    let around = bounds.into_iter().flat_map(|bound| [bound.saturating_sub(1), bound, bound + 1]);
    let from_end = around.filter(|&left| left <= data.len()).map(|left| data.len() - left);
    let starts: Vec<_> = (0..data.len()).step_by(257).chain(from_end).collect();
    for kernel in O::kernels() {
        let chunker = MinCdc::<O>::with_kernel(params, seed, kernel);
        for &start in &starts {
            let data = &data[start..];
            let expected = defined(&chunker, data);
            prop_assert_eq!(chunker.next_cut(data), expected, "{:?}", kernel);
            for length in [expected, expected.saturating_sub(1), expected + 1, params.min as usize] {
                prop_assert_eq!(chunker.confirms(data, length), length == expected, "{:?}", kernel);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn kernels_equal_the_reference(
        bytes in bytes(),
        multiply in multiply(),
        keys in any::<[u32; 7]>(),
        offset in 0..64_usize,
    ) {
        let bytes = &bytes[offset.min(bytes.len() - WINDOW)..];
        check(&multiply, bytes)?;
        check(&Cipher { keys }, bytes)?;
    }
}

proptest! {
    #[test]
    fn every_kernel_cuts_as_defined(
        data in proptest::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..4000),
        average in 150..700_u32,
        seed in any::<[u8; 32]>(),
    ) {
        check_cuts::<Multiply>(&data, average, &seed)?;
        check_cuts::<Cipher>(&data, average, &seed)?;
    }
}

/// Every length around the sizes of groups, and every position of a unique minimum in each.
fn minimum_is_found_everywhere<O: Order>(order: &O, smallest: &[u8], other: u8) {
    assert!(smallest.len() == O::WINDOW && order.of(smallest) == 0);
    for length in (O::WINDOW..300).chain([511, 512, 513, 1000]) {
        for position in 0..length - O::WINDOW + 1 {
            let mut bytes = vec![other; length];
            bytes[position..position + O::WINDOW].copy_from_slice(smallest);
            let expected = reference(order, &bytes);
            assert_eq!(order.of(&bytes[expected..]), 0, "nothing else hashes to 0");
            for kernel in O::kernels() {
                assert_eq!(order.last_smallest(kernel, &bytes), expected, "{kernel:?} length {length}");
            }
            assert_eq!(expected, position);
        }
    }
}

#[test]
fn minimum_is_found_at_every_position_of_every_length() {
    // The word of zeros hashes to 0, all others to more.
    minimum_is_found_everywhere(&Multiply { multiplier: 0x9e37_79b1, addend: 0 }, &[0; 4], 0x55);
    // The last key is that which makes these bytes hash to 0.
    let smallest = *b"smallest";
    let mut cipher = Cipher::from_seed(&[3; 32]);
    cipher.keys[6] ^= cipher.of(&smallest);
    minimum_is_found_everywhere(&cipher, &smallest, 0x55);
}

#[test]
fn runs_tie_to_the_last_position() {
    fn check<O: Order>(order: &O) {
        for byte in [0, 1, 0x80, 0xff] {
            for length in O::WINDOW..700 {
                for kernel in O::kernels() {
                    assert_eq!(order.last_smallest(kernel, &vec![byte; length]), length - O::WINDOW, "{kernel:?}");
                }
            }
        }
    }
    check(&Multiply { multiplier: 0xdead_beef, addend: 0x1234_5678 });
    check(&Cipher::from_seed(&[4; 32]));
}

/// Each byte of the window and each word of the key decides. Guards against a kernel and a
/// reference that leave out the same part.
#[test]
fn every_bit_of_window_and_key_changes_the_hash() {
    let cipher = Cipher::from_seed(&[5; 32]);
    let window = *b"8 bytes!";
    let hash = cipher.of(&window);
    for bit in 0..64 {
        let mut other = window;
        other[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(cipher.of(&other), hash, "bit {bit} of the window");
    }
    for bit in 0..7 * 32 {
        let mut other = cipher;
        other.keys[bit / 32] ^= 1 << (bit % 32);
        assert_ne!(other.of(&window), hash, "bit {bit} of the key");
    }
}
