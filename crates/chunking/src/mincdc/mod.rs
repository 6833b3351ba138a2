//! MinCDC: a chunk ends behind the four bytes whose keyed hash is the smallest between min and max.
//!
//! A length L from min to max is a candidate; its hash is that of the bytes L-4..L. The hash of
//! four bytes is `word * multiplier + addend` modulo 2^32, with the word read little-endian and an
//! odd multiplier. It is a permutation of all words, and through the high bits every byte of the
//! word decides. Multiplier and addend come from the seed.
//!
//! It has three advantages over a rolling hash. Each candidate is computed from its own four bytes,
//! so candidates are independent and fill vector lanes. There is always exactly one cut in a
//! window, so lengths stay within half to one and a half of the mean and no bound forces a cut.
//! After an edit, the next window usually has the same smallest hash.
//!
//! On ties the **last** candidate wins. A run of one byte value is a tie throughout. Taking the
//! last gives chunks of length max, all equal to one another, instead of min-sized ones that cost
//! three times as many records. If a run ends inside the window and its hash happens to be the
//! smallest, the cut is at the run's end. That is a landmark of the content, not of the place where
//! the chunk began.
//!
//! The rest of a stream, when less than max remains, is one chunk. Another cut (there would be
//! candidates from min on) finds no more duplicates in trees of small files, but makes an eighth
//! more chunks. So a file shorter than max is always exactly one chunk.
//!
//! The order is keyed by 63 bits through a linear function. It hides sizes from an attacker who
//! knows the plain text but cannot choose it. It is not a cipher, and only sizes depend on it.
//!
//! The search for the last smallest hash is in [`kernel`]; this file knows only lengths.

pub(crate) mod kernel;

use crate::chunker::Chunker;
use crate::params::ChunkerParams;
use crate::seed::SeedStream;
use kernel::{HashParams, Kernel, WORD};

/// Candidates looked at between two chances to stop early, in [`Chunker::confirms`]. A wrong
/// prediction is noticed after a few candidates; shorter steps would cost the right ones more.
const EARLY_STEP: usize = 256;

/// See the module's header.
pub(crate) struct MinCdc {
    params: ChunkerParams,
    hash: HashParams,
    kernel: Kernel,
}

impl MinCdc {
    pub(crate) fn new(params: ChunkerParams, seed: &[u8; 32]) -> Self {
        let mut stream = SeedStream::new(seed, "larder mincdc 1");
        let hash = HashParams { multiplier: stream.next_u32() | 1, addend: stream.next_u32() };
        Self { params, hash, kernel: Kernel::detect() }
    }

    #[cfg(test)]
    fn with_kernel(params: ChunkerParams, seed: &[u8; 32], kernel: Kernel) -> Self {
        Self { kernel, ..Self::new(params, seed) }
    }
}

impl Chunker for MinCdc {
    fn params(&self) -> ChunkerParams {
        self.params
    }

    fn next_cut(&self, data: &[u8]) -> usize {
        let (min, max) = (self.params.min as usize, self.params.max as usize);
        if data.len() < max {
            return data.len();
        }
        min + self.kernel.last_smallest(&data[min - WORD..max], self.hash)
    }

    fn confirms(&self, data: &[u8], length: usize) -> bool {
        let (min, max) = (self.params.min as usize, self.params.max as usize);
        if data.len() < max {
            return length == data.len();
        }
        if length < min || length > max {
            return false;
        }
        let bound = self.hash.of(&data[length - WORD..]);
        let mut candidate = min;
        while candidate <= max {
            let last = (candidate + EARLY_STEP - 1).min(max);
            let best = candidate + self.kernel.last_smallest(&data[candidate - WORD..last], self.hash);
            let hash = self.hash.of(&data[best - WORD..]);
            if hash < bound || (hash == bound && best > length) {
                return false;
            }
            candidate = last + 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Algorithm;
    use proptest::prelude::*;

    /// The definition, straight from the header.
    fn reference(chunker: &MinCdc, data: &[u8]) -> usize {
        let (min, max) = (chunker.params.min as usize, chunker.params.max as usize);
        if data.len() < max {
            return data.len();
        }
        let hash = |length: usize| chunker.hash.of(&data[length - WORD..length]);
        (min..=max).rev().min_by_key(|&length| hash(length)).unwrap_or(max)
    }

    proptest! {
        #[test]
        fn every_kernel_cuts_as_defined(
            data in proptest::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..4000),
            average in 150..700_u32,
            seed in any::<[u8; 32]>(),
        ) {
            let params = ChunkerParams::with_average(Algorithm::MinCdc, average);
            for kernel in Kernel::available() {
                let chunker = MinCdc::with_kernel(params, &seed, kernel);
                for start in (0..data.len()).step_by(257) {
                    let expected = reference(&chunker, &data[start..]);
                    prop_assert_eq!(chunker.next_cut(&data[start..]), expected, "{:?}", kernel);
                }
            }
        }
    }
}
