//! A quick proof, at every start of the program, that this machine computes the same as every other
//! machine.
//!
//! A kernel may be wrong on one processor: a compiler's mistake, an emulator's, a broken machine.
//! It would not fail. It would cut elsewhere and find no duplicates, or compute fingerprints that
//! no other machine can verify. Every kernel that this machine may use is therefore compared with
//! its reference before anything is written.

use crate::fingerprint::Fingerprint;
use crate::fingerprinter::{self, Fingerprinter};
use crate::mincdc::{Cipher, Multiply, Order, reference};

/// Bytes that are hashed and searched. The whole test is meant to cost well under two milliseconds.
const DATA: usize = 48 << 10;

/// Lengths of chunks, repeated until the data is used up: whole leaves and tails of many lengths,
/// one to nine leaves.
const LENGTHS: [u32; 12] = [4096, 1, 1024, 3000, 64, 2049, 5555, 1023, 8193, 65, 1025, 6144];

/// A kernel of this machine disagrees with the reference. Nothing may be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfTestError {
    /// A vector kernel cuts elsewhere than the scalar reference.
    #[error("chunking kernel {kernel} finds position {got} where the reference finds {expected}")]
    Cut {
        /// The kernel that is wrong.
        kernel: String,
        /// Position by the scalar reference.
        expected: usize,
        /// Position by the kernel.
        got: usize,
    },
    /// Hashing across lanes gives another fingerprint than hashing one chunk.
    #[error("fingerprint kernel {kernel} gives another name to chunk {chunk} of {length} bytes than hashing it alone")]
    Fingerprint {
        /// The kernel that is wrong.
        kernel: String,
        /// Which chunk of the test batch.
        chunk: usize,
        /// Its length.
        length: u32,
    },
}

/// Compares every kernel that this machine runs with its reference. Takes less than two
/// milliseconds.
///
/// # Errors
/// The first disagreement; the program must not write to any repository then.
pub fn self_test() -> Result<(), SelfTestError> {
    let data = content();
    cuts(&data, &Multiply { multiplier: 0x9e37_79b1, addend: 0x7f4a_7c15 })?;
    cuts(&data, &Cipher::from_seed(&[0x4c; 32]))?;
    fingerprints(&data)
}

fn cuts<O: Order>(data: &[u8], order: &O) -> Result<(), SelfTestError> {
    let run = [0x20; 700];
    // Windows of all sizes up to two groups of the widest kernel, at changing alignments; one as
    // long as a real one; and ties throughout.
    let short = (0..130).map(|extra| &data[extra..2 * extra + O::WINDOW]);
    for window in short.chain([&data[1..8193], &run]) {
        let expected = reference(order, window);
        for kernel in O::kernels() {
            let got = order.last_smallest(kernel, window);
            if got != expected {
                return Err(SelfTestError::Cut { kernel: format!("{} {kernel:?}", O::ALGORITHM), expected, got });
            }
        }
    }
    Ok(())
}

fn fingerprints(data: &[u8]) -> Result<(), SelfTestError> {
    let mut lengths = Vec::new();
    let mut left = data.len() as u32;
    for length in LENGTHS.into_iter().cycle() {
        let length = length.min(left);
        lengths.push(length);
        left -= length;
        if left == 0 {
            break;
        }
    }
    let key = [0x4c; 32];
    let mut expected: Option<Vec<Fingerprint>> = None;
    for kernel in fingerprinter::Kernel::available() {
        let mut got = Vec::new();
        Fingerprinter::with_kernel(&key, kernel).many(data, &lengths, &mut got);
        let expected = expected.get_or_insert_with(|| got.clone());
        if let Some(chunk) = (0..lengths.len()).find(|&chunk| got.get(chunk) != expected.get(chunk)) {
            let kernel = format!("{kernel:?}");
            return Err(SelfTestError::Fingerprint { kernel, chunk, length: lengths[chunk] });
        }
    }
    Ok(())
}

/// Bytes without structure but with some short runs, the same on every machine.
fn content() -> Vec<u8> {
    let mut state = 0x1234_5678_u32;
    let mut bytes = Vec::with_capacity(DATA);
    while bytes.len() < DATA {
        state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        let count = if state >> 24 == 0 { 40 } else { 1 };
        bytes.resize(bytes.len() + count, (state >> 16) as u8);
    }
    bytes.truncate(DATA);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_passes() {
        assert_eq!(self_test(), Ok(()));
    }
}
