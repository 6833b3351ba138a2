//! An index from fingerprints to groups that is exact while it fits its budget and thins itself out
//! when it does not.
//!
//! A lost sample costs missed duplicates, never correctness. Fingerprints are uniform, so keeping
//! those with k zero bits keeps one in 2^k of every neighbourhood. A group of n chunks is still
//! found as long as about n / 2^k of them are left.

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

/// Notes which group a chunk is in.
pub trait NoteGroups {
    /// Entries that can be noted without losing any.
    fn capacity(&self) -> u64;

    /// Notes that a chunk is in `group`; of several groups the first noted stays.
    fn note(&mut self, sample: u64, group: u32);
}

/// An entry: the low 40 bits of the sample, and the group plus one. 0 is a free place.
type Entry = u64;
const GROUP_BITS: u32 = 24;
const GROUP_MASK: u64 = (1 << GROUP_BITS) - 1;
/// Places of a table that has just been made.
const PLACES_MIN: usize = 64;

/// See the module header.
///
/// An open table. 40 bits of a sample are kept. So one in a million absent chunks matches another,
/// which costs loading a group for nothing.
#[derive(Debug)]
pub struct SampledIndex {
    places: Vec<Entry>,
    places_max: usize,
    taken: usize,
    zero_bits: u32,
}

impl SampledIndex {
    /// An index that takes at most about `budget` bytes.
    pub fn new(budget: usize) -> Self {
        let places_max = (budget / size_of::<Entry>()).max(PLACES_MIN);
        Self { places: Vec::new(), places_max, taken: 0, zero_bits: 0 }
    }

    /// Entries it holds.
    pub fn len(&self) -> usize {
        self.taken
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Entries it can hold without thinning.
    pub fn capacity(&self) -> usize {
        fill_max(self.places_max)
    }

    /// Notes that a chunk is in `group`; of several groups the first noted stays.
    pub fn insert(&mut self, sample: u64, group: u32) {
        if sample.trailing_zeros() < self.zero_bits {
            return;
        }
        // Groups of that many segments are hundreds of terabytes; a chunk that is not noted is
        // stored again.
        let Some(number) = u64::from(group).checked_add(1).filter(|number| *number <= GROUP_MASK) else { return };
        // A known sample needs no room.
        if self.taken >= fill_max(self.places.len()) && self.get(sample).is_some() {
            return;
        }
        while self.taken >= fill_max(self.places.len()) {
            self.make_room();
        }
        // There may be more zero bits than before.
        if sample.trailing_zeros() >= self.zero_bits {
            self.put(sample << GROUP_BITS | number);
        }
    }

    /// The group that a chunk was noted in, if it was kept.
    pub fn get(&self, sample: u64) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let place = self.find(sample << GROUP_BITS).ok()?;
        Some((self.places[place] & GROUP_MASK) as u32 - 1)
    }

    fn put(&mut self, entry: Entry) {
        if let Err(free) = self.find(entry) {
            self.places[free] = entry;
            self.taken += 1;
        }
    }

    /// The place of the entry with this sample, or the free one where it would be. There always is
    /// a free one.
    fn find(&self, wanted: Entry) -> Result<usize, usize> {
        // The high bits are uniform, also where sampling has fixed the low ones.
        let mut place = ((u128::from(wanted) * self.places.len() as u128) >> 64) as usize;
        loop {
            match self.places[place] {
                0 => return Err(place),
                entry if entry >> GROUP_BITS == wanted >> GROUP_BITS => return Ok(place),
                _ => place = if place + 1 == self.places.len() { 0 } else { place + 1 },
            }
        }
    }

    /// Makes the table larger, or when it is as large as it may be keeps one entry in two.
    fn make_room(&mut self) {
        let larger = (self.places.len() * 2).clamp(PLACES_MIN, self.places_max);
        if larger > self.places.len() {
            let old = std::mem::replace(&mut self.places, vec![0; larger]);
            self.taken = 0;
            old.into_iter().filter(|entry| *entry != 0).for_each(|entry| self.put(entry));
            return;
        }
        self.zero_bits += 1;
        let is_kept = |entry: &Entry| *entry != 0 && (entry >> GROUP_BITS).trailing_zeros() >= self.zero_bits;
        let kept: Vec<Entry> = self.places.iter().copied().filter(is_kept).collect();
        self.places.fill(0);
        self.taken = 0;
        kept.into_iter().for_each(|entry| self.put(entry));
    }
}

impl NoteGroups for SampledIndex {
    fn capacity(&self) -> u64 {
        self.capacity() as u64
    }

    fn note(&mut self, sample: u64, group: u32) {
        self.insert(sample, group);
    }
}

/// In a fuller table, the search for absent samples would take too long.
fn fill_max(places: usize) -> usize {
    places / 4 * 3
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
        let mut index = SampledIndex::new(2400 * 8);
        assert_eq!(index.capacity(), 1800);
        for n in 0..1800 {
            index.insert(scatter(n), (n / 100) as u32);
        }
        assert!((0..1800).all(|n| index.get(scatter(n)) == Some((n / 100) as u32)));
        for n in 1800..64_000 {
            index.insert(scatter(n), (n / 100) as u32);
        }
        let kept = (0..64_000).filter(|n| index.get(scatter(*n)).is_some()).count();
        assert!((800..=1800).contains(&kept) && kept == index.len(), "{kept} kept");
        let groups: std::collections::HashSet<_> = (0..64_000).filter_map(|n| index.get(scatter(n))).collect();
        assert!(groups.len() > 250, "only {} of 640 groups can still be found", groups.len());
        assert!((0..64_000).all(|n| index.get(scatter(n)).is_none_or(|group| group == (n / 100) as u32)));
        assert!((64_000..200_000).filter(|n| index.get(scatter(*n)).is_some()).count() <= 1);
    }

    #[test]
    fn a_full_index_forgets_nothing_for_what_it_knows() {
        let mut index = SampledIndex::new(10_527);
        let full = index.capacity() as u64;
        for n in (0..full).chain(0..full) {
            index.insert(scatter(n), n as u32);
        }
        assert!((0..full).all(|n| index.get(scatter(n)) == Some(n as u32)));
    }

    proptest::proptest! {
        /// Against a map: the first note of each kept sample is kept, and nothing is lost before
        /// the table is full.
        #[test]
        fn it_is_a_map_that_forgets(
            notes in proptest::collection::vec((0u64..3000, 0u32..50), 0..3000),
            budget in 0usize..20_000,
        ) {
            let mut index = SampledIndex::new(budget);
            let mut oracle = HashMap::new();
            for (n, group) in &notes {
                index.insert(scatter(*n), *group);
                oracle.entry(*n).or_insert(*group);
            }
            let is_exact = oracle.len() <= index.capacity();
            proptest::prop_assert!(index.len() <= index.capacity());
            for (n, group) in &oracle {
                let found = index.get(scatter(*n));
                let is_right = found.map_or(!is_exact, |found| found == *group);
                proptest::prop_assert!(is_right);
            }
        }
    }
}
