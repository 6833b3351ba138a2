//! MinCDC: a chunk ends behind the window of bytes whose keyed hash is the smallest between min and
//! max.
//!
//! A length L from min to max is a candidate; its hash is that of the last bytes before L: four in
//! the order of [`multiply`], eight in that of [`cipher`].
//!
//! It has three advantages over a rolling hash. Each candidate is computed from its own window, so
//! candidates are independent and fill vector lanes. There is always exactly one cut between the
//! bounds, so lengths stay within half to one and a half of the mean and no bound forces a cut.
//! After an edit, the next chunk usually has the same smallest hash.
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
//! The order is keyed. An observer who knows the contents and lengths of six chunks can compute the
//! key of [`multiply`]. Nothing like it is known for [`cipher`], which new repositories use. No
//! order hides the cuts themselves from an observer who knows enough lengths. The key protects
//! nothing else: fingerprints and contents have keys of their own.
//!
//! The search for the last smallest hash is in [`lanes`]; this file knows only lengths.

mod cipher;
mod lanes;
mod multiply;
mod order;
#[cfg(test)]
mod tests;

pub(crate) use cipher::Cipher;
pub(crate) use multiply::Multiply;
pub(crate) use order::{Order, reference};

use crate::chunker::Chunker;
use crate::params::ChunkerParams;

/// Candidates looked at between two chances to stop early, in [`Chunker::confirms`]. A wrong
/// prediction is noticed after a few candidates; shorter steps would cost the right ones more.
const EARLY_STEP: usize = 256;

/// See the module's header.
pub(crate) struct MinCdc<O: Order> {
    params: ChunkerParams,
    order: O,
    kernel: O::Kernel,
}

impl<O: Order> MinCdc<O> {
    /// With the fastest kernel this machine runs.
    pub(crate) fn new(params: ChunkerParams, seed: &[u8; 32]) -> Self {
        let kernel = O::kernels().last().expect("the reference runs everywhere");
        Self::with_kernel(params, seed, kernel)
    }

    pub(crate) fn with_kernel(params: ChunkerParams, seed: &[u8; 32], kernel: O::Kernel) -> Self {
        Self { params, order: O::from_seed(seed), kernel }
    }

    /// The best candidate from `first` to `last`.
    fn best(&self, data: &[u8], first: usize, last: usize) -> usize {
        first + self.order.last_smallest(self.kernel, &data[first - O::WINDOW..last])
    }

    /// Hash of a candidate.
    fn hash(&self, data: &[u8], candidate: usize) -> u32 {
        self.order.of(&data[candidate - O::WINDOW..candidate])
    }
}

impl<O: Order> Chunker for MinCdc<O> {
    fn params(&self) -> ChunkerParams {
        self.params
    }

    fn next_cut(&self, data: &[u8]) -> usize {
        let (min, max) = (self.params.min as usize, self.params.max as usize);
        if data.len() < max {
            return data.len();
        }
        self.best(data, min, max)
    }

    fn confirms(&self, data: &[u8], length: usize) -> bool {
        let (min, max) = (self.params.min as usize, self.params.max as usize);
        if data.len() < max {
            return length == data.len();
        }
        if length < min || length > max {
            return false;
        }
        let bound = self.hash(data, length);
        let mut candidate = min;
        while candidate <= max {
            let last = (candidate + EARLY_STEP - 1).min(max);
            let best = self.best(data, candidate, last);
            let hash = self.hash(data, best);
            if hash < bound || (hash == bound && best > length) {
                return false;
            }
            candidate = last + 1;
        }
        true
    }
}
