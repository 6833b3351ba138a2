//! FastCDC: a gear hash decides, with normalised chunking.
//!
//! The hash of a place is the sum of the last 64 bytes' gear values, with the byte k places back
//! shifted left by k bits. A place is a cut when the hash is below a threshold. Up to the normal
//! point, the threshold is a fourth of the plain one, beyond it four times that (normalisation
//! level 2). So lengths gather around the mean, and max forces fewer cuts.
//!
//! It differs from the published algorithm in three ways. The hash is warmed up over the 64 bytes
//! before min. So a place depends on the same 64 bytes in every chunk and can be tested without
//! scanning. Thresholds instead of bit masks: any mean is possible, not only powers of two, and all
//! 64 bits take part. The normal point is at 13/16 of the mean. With it, the mean of random data is
//! the requested one (with min a quarter of it).
//!
//! Used for comparison with the papers; MinCDC is faster and finds more.

use crate::chunker::Chunker;
use crate::params::ChunkerParams;
use crate::seed::SeedStream;

/// Bytes that a hash depends on: each step shifts by one bit, and the hash has 64.
const WINDOW: usize = 64;

/// See the module's header.
pub(crate) struct FastCdc {
    params: ChunkerParams,
    /// Where the threshold changes, as a length.
    normal: usize,
    strict: u64,
    loose: u64,
    gear: Box<[u64; 256]>,
}

impl FastCdc {
    pub(crate) fn new(params: ChunkerParams, seed: &[u8; 32]) -> Self {
        let average = u64::from(params.average);
        let plain = u64::MAX / average;
        let (strict, loose) = (plain / 4, plain.saturating_mul(4));
        let normal = (average * 13 / 16).max(u64::from(params.min)) as usize;
        let mut stream = SeedStream::new(seed, "larder fastcdc 1");
        let gear = Box::new(std::array::from_fn(|_| {
            loop {
                let value = stream.next_u64();
                // A run of one byte value hashes to the negated gear value everywhere. It must
                // never qualify, or such a run (the commonest of all repetitions) would be cut into
                // min-sized chunks.
                if value.wrapping_neg() >= loose {
                    break value;
                }
            }
        }));
        Self { params, normal, strict, loose, gear }
    }

    fn threshold(&self, length: usize) -> u64 {
        if length < self.normal { self.strict } else { self.loose }
    }

    fn step(&self, hash: u64, byte: u8) -> u64 {
        (hash << 1).wrapping_add(self.gear[usize::from(byte)])
    }

    fn hash_before(&self, data: &[u8], length: usize) -> u64 {
        data[length - WINDOW..length].iter().fold(0, |hash, &byte| self.step(hash, byte))
    }
}

impl Chunker for FastCdc {
    fn params(&self) -> ChunkerParams {
        self.params
    }

    fn next_cut(&self, data: &[u8]) -> usize {
        let min = self.params.min as usize;
        let last = data.len().min(self.params.max as usize);
        if last <= min {
            return last;
        }
        let mut hash = self.hash_before(data, min);
        if hash < self.threshold(min) {
            return min;
        }
        // A candidate of length L is tested once byte L-1 is in the hash; lengths below `normal`
        // come first.
        let middle = self.normal.clamp(min, last + 1) - 1;
        let middle = middle.max(min);
        for (offset, &byte) in data[min..middle].iter().enumerate() {
            hash = self.step(hash, byte);
            if hash < self.strict {
                return min + offset + 1;
            }
        }
        for (offset, &byte) in data[middle..last].iter().enumerate() {
            hash = self.step(hash, byte);
            if hash < self.loose {
                return middle + offset + 1;
            }
        }
        last
    }

    fn is_worth_predicting(&self) -> bool {
        true
    }

    fn confirms(&self, data: &[u8], length: usize) -> bool {
        let min = self.params.min as usize;
        let last = data.len().min(self.params.max as usize);
        length == last || ((min..last).contains(&length) && self.hash_before(data, length) < self.threshold(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Algorithm;

    /// The definition, straight from the header: every place on its own, no running hash.
    fn reference(chunker: &FastCdc, data: &[u8]) -> usize {
        let (min, max) = (chunker.params.min as usize, chunker.params.max as usize);
        (min..=data.len().min(max))
            .find(|&length| chunker.hash_before(data, length) < chunker.threshold(length))
            .unwrap_or(data.len().min(max))
    }

    #[test]
    fn running_hash_equals_the_definition() {
        let params = ChunkerParams::with_average(Algorithm::FastCdc, 512);
        let chunker = FastCdc::new(params, &[3; 32]);
        let mut stream = SeedStream::new(&[4; 32], "test data");
        let data: Vec<u8> = (0..40_000).map(|_| stream.next_u32() as u8).collect();
        for start in (0..38_000).step_by(37) {
            assert_eq!(chunker.next_cut(&data[start..]), reference(&chunker, &data[start..]), "from {start}");
        }
    }
}
