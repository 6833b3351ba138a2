//! MinCDC: a chunk ends behind the four bytes whose keyed hash is the smallest between min and max.
//!
//! A length L from min to max is a candidate; its hash is that of the bytes L-4..L, so a candidate needs no byte beyond
//! itself and a stream that ends early only has fewer of them. The hash of four bytes is `word * multiplier + addend`
//! modulo 2^32, the word read little-endian, the multiplier odd: a permutation of all words in which, through the high
//! bits, every byte of the word decides. Multiplier and addend come from the seed.
//!
//! Why this and not a rolling hash: each candidate is computed from its own four bytes, so candidates are independent
//! and fill vector lanes; there is always exactly one cut in a window, so lengths stay within half to one and a half of
//! the mean and no cut is forced by a bound; and after an edit the next window usually has the same smallest hash.
//!
//! On ties the **last** candidate wins. A run of one byte value is a tie throughout: taking the last gives chunks of
//! length max, all equal to one another, instead of min-sized ones that cost three times as many records. And where a
//! run ends inside the window and its hash happens to be the smallest, the cut falls on the run's end, which is a
//! landmark of the content, not of the place where the chunk began.
//!
//! The order is keyed by 63 bits through a linear function. It hides sizes from somebody who knows the plain text but
//! cannot choose it; it is not a cipher, and nothing but sizes depends on it.
//!
//! The search for the last smallest hash is in [`kernel`]; this file knows only lengths.

pub(crate) mod kernel;

use crate::chunker::Chunker;
use crate::params::ChunkerParams;
use crate::seed::SeedStream;
use kernel::{HashParams, Kernel, WORD};

/// Candidates looked at between two chances to stop early, in [`Chunker::is_cut`]. A wrong prediction is noticed after
/// a few candidates; shorter steps would cost the right ones more.
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
    #[expect(dead_code, reason = "used by the kernel tests")]
    pub(crate) fn with_kernel(params: ChunkerParams, seed: &[u8; 32], kernel: Kernel) -> Self {
        Self { kernel, ..Self::new(params, seed) }
    }

    /// The longest candidate, or `None` when the stream ends before there is a choice.
    fn last_candidate(&self, data: &[u8]) -> Option<usize> {
        let last = data.len().min(self.params.max as usize);
        (last > self.params.min as usize).then_some(last)
    }
}

impl Chunker for MinCdc {
    fn params(&self) -> ChunkerParams {
        self.params
    }

    fn next_cut(&self, data: &[u8]) -> usize {
        let min = self.params.min as usize;
        match self.last_candidate(data) {
            Some(last) => min + self.kernel.last_smallest(&data[min - WORD..last], self.hash),
            None => data.len(),
        }
    }

    fn is_cut(&self, data: &[u8], length: usize) -> bool {
        let min = self.params.min as usize;
        let Some(last) = self.last_candidate(data) else {
            return length == data.len();
        };
        if length < min || length > last {
            return false;
        }
        let bound = self.hash.of(&data[length - WORD..]);
        let mut candidate = min;
        while candidate <= last {
            let step_last = (candidate + EARLY_STEP - 1).min(last);
            let words = &data[candidate - WORD..step_last];
            let best = candidate + self.kernel.last_smallest(words, self.hash);
            let hash = self.hash.of(&data[best - WORD..]);
            if hash < bound || (hash == bound && best > length) {
                return false;
            }
            candidate = step_last + 1;
        }
        true
    }
}
