//! An index from fingerprints to groups that is exact while it fits its budget and thins itself out when it does not.
//!
//! A lost sample costs missed duplicates, never correctness. Fingerprints are uniform, so keeping those with k zero bits
//! keeps one in 2^k of every neighbourhood: a group of n chunks is still found as long as about n / 2^k of them are left.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use larder_format::Fingerprint;

/// The 64 bits of a fingerprint that indexes keep.
pub fn sample(fingerprint: &Fingerprint) -> u64 {
    let (first, _) = fingerprint.0.split_first_chunk().expect("a fingerprint has 32 bytes");
    u64::from_le_bytes(*first)
}

/// Keys are uniform already; sampling fixes their low bits, so the high ones choose the bucket.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct SampleHasher(u64);

impl Hasher for SampleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = self.0.rotate_left(5) ^ value.rotate_left(32);
    }
}

pub(crate) type SampleMap<V> = HashMap<u64, V, BuildHasherDefault<SampleHasher>>;

/// Entries that a hash table of at most `budget` bytes holds. Tables have a power of two of places, each with a byte of its own, and
/// double when seven eighths are taken.
pub(crate) fn entries_within<T>(budget: usize) -> usize {
    let places = (budget / (size_of::<T>() + 1)).max(16).ilog2();
    (1_usize << places) / 8 * 7 - 1
}

/// See the module header.
#[derive(Debug)]
pub struct SampledIndex {
    groups: SampleMap<u32>,
    capacity: usize,
    zero_bits: u32,
}

impl SampledIndex {
    /// An index that takes at most about `budget` bytes.
    pub fn new(budget: usize) -> Self {
        let capacity = entries_within::<(u64, u32)>(budget).max(64);
        Self { groups: SampleMap::default(), capacity, zero_bits: 0 }
    }

    /// Entries it holds.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Entries it can hold without thinning.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Notes that a chunk is in `group`; of several groups the first noted stays.
    pub fn insert(&mut self, sample: u64, group: u32) {
        if sample.trailing_zeros() < self.zero_bits {
            return;
        }
        self.groups.entry(sample).or_insert(group);
        while self.groups.len() > self.capacity {
            self.zero_bits += 1;
            let zero_bits = self.zero_bits;
            self.groups.retain(|sample, _| sample.trailing_zeros() >= zero_bits);
        }
    }

    /// The group that a chunk was noted in, if it was kept.
    pub fn get(&self, sample: u64) -> Option<u32> {
        self.groups.get(&sample).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for uniform fingerprints.
    fn scatter(n: u64) -> u64 {
        let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^= x >> 32;
        x.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (x >> 29)
    }

    #[test]
    fn it_is_exact_while_it_fits_and_then_thins_evenly() {
        let mut index = SampledIndex::new(17 * 2048);
        for n in 0..1000 {
            index.insert(scatter(n), (n / 100) as u32);
        }
        assert!((0..1000).all(|n| index.get(scatter(n)) == Some((n / 100) as u32)));
        for n in 1000..64_000 {
            index.insert(scatter(n), (n / 100) as u32);
        }
        let kept = (0..64_000).filter(|n| index.get(scatter(*n)).is_some()).count();
        assert!((800..=1791).contains(&kept), "{kept} kept");
        let groups: std::collections::HashSet<_> = (0..64_000).filter_map(|n| index.get(scatter(n))).collect();
        assert!(groups.len() > 250, "only {} of 640 groups can still be found", groups.len());
        assert!((0..64_000).all(|n| index.get(scatter(n)).is_none_or(|group| group == (n / 100) as u32)));
    }
}
