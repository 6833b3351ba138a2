//! A bloom filter before the look-ups in the job's stored chunks: most new chunks are known to be
//! new by one line of the processor's cache.
//!
//! Each chunk sets eight bits of one block of 512. Memory is fixed: beyond [`Bloom::capacity`],
//! more and more new chunks have to be looked up nevertheless, which only costs these look-ups. It
//! never says of a stored chunk that it is not.

use larder_format::segment::ChunkRecord;

use crate::chain::{Chunk, Filter, Verdict};
use crate::sampled_index::sample;

/// Words of a block, which is a line of the cache.
const BLOCK_WORDS: usize = 8;
/// Bits of memory for a chunk: with eight of them set, about two new chunks in a hundred are looked
/// for.
const BITS_A_CHUNK: usize = 10;

/// See the module header.
#[derive(Debug)]
pub struct Bloom {
    blocks: Vec<[u64; BLOCK_WORDS]>,
}

impl Bloom {
    /// A filter of about `budget` bytes.
    pub fn new(budget: usize) -> Self {
        Self { blocks: vec![[0; BLOCK_WORDS]; (budget / size_of::<[u64; BLOCK_WORDS]>()).max(1)] }
    }

    /// Chunks that it tells apart well.
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK_WORDS * 64 / BITS_A_CHUNK
    }

    /// Takes up a sample.
    pub fn insert(&mut self, sample: u64) {
        let (block, bits) = self.place(sample);
        for (word, bit) in self.blocks[block].iter_mut().zip(bits) {
            *word |= bit;
        }
    }

    /// Whether a sample may have been taken up; `false` is certain.
    pub fn may_have(&self, sample: u64) -> bool {
        let (block, bits) = self.place(sample);
        self.blocks[block].iter().zip(bits).all(|(word, bit)| word & bit != 0)
    }

    /// The block of a sample, and the bit of each of its words.
    fn place(&self, sample: u64) -> (usize, [u64; BLOCK_WORDS]) {
        let block = ((u128::from(sample) * self.blocks.len() as u128) >> 64) as usize;
        // The high bits have chosen the block; a product's high bits depend on all of the low ones.
        let spread = sample.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (block, std::array::from_fn(|word| 1 << (spread >> (16 + 6 * word as u32) & 63)))
    }
}

impl<E> Filter<E> for Bloom {
    fn check(&mut self, chunk: &Chunk<'_>, _: Option<&ChunkRecord>) -> Result<Verdict, E> {
        Ok(if self.may_have(sample(chunk.fingerprint)) { Verdict::WeakMaybe } else { Verdict::NonExisting })
    }

    fn update(&mut self, stored: &ChunkRecord) -> Result<(), E> {
        self.insert(sample(&stored.chunk.fingerprint));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scatter(n: u64) -> u64 {
        let mut x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^ (x >> 27)
    }

    #[test]
    fn at_capacity_few_new_ones_get_through() {
        let mut bloom = Bloom::new(64 << 10);
        let capacity = bloom.capacity() as u64;
        assert_eq!(capacity, 52_428);
        (0..capacity).for_each(|n| bloom.insert(scatter(n)));
        let through = (capacity..11 * capacity).filter(|n| bloom.may_have(scatter(*n))).count() as u64;
        assert!(through < capacity * 10 / 33, "{through} of {} got through", capacity * 10);
    }

    proptest! {
        #[test]
        fn nothing_stored_is_ever_ruled_out(
            stored in prop::collection::hash_set(any::<u64>(), 0..2000), budget in 0usize..4000,
        ) {
            let mut bloom = Bloom::new(budget);
            stored.iter().for_each(|sample| bloom.insert(*sample));
            prop_assert!(stored.iter().all(|sample| bloom.may_have(*sample)));
            // Samples that differ in one bit, at any position.
            let mut one = Bloom::new(4096);
            one.insert(77);
            let others = (0..64).filter(|bit| one.may_have(77 ^ (1 << bit))).count();
            prop_assert!(others < 32);
        }
    }
}
