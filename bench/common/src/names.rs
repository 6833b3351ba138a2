//! Maps by fingerprint, hashed as the product hashes them: a fingerprint is uniform already, so eight of its bytes do.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes a fingerprint, or the 64 bits of it that a sample has.
#[derive(Debug, Default, Clone, Copy)]
pub struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some((first, _)) = bytes.split_first_chunk() {
            self.write_u64(u64::from_le_bytes(*first));
        }
    }

    /// The low bits of samples are fixed, and the first bytes of a smallest fingerprint are small: others choose the bucket.
    fn write_u64(&mut self, value: u64) {
        self.0 = value.rotate_left(32);
    }

    /// The length of an array, which tells nothing.
    fn write_usize(&mut self, _: usize) {}
}

/// A map by fingerprint or sample.
pub type NameMap<K, V> = HashMap<K, V, BuildHasherDefault<NameHasher>>;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher as _, BuildHasherDefault};

    use larder_chunking::{Fingerprint, Fingerprinter};

    use super::NameHasher;
    use crate::SEED;

    /// Whichever fingerprints are chosen, the bits that tables use differ.
    #[test]
    fn smallest_fingerprints_spread() {
        let fingerprinter = Fingerprinter::new(&SEED);
        let mut names: Vec<Fingerprint> = (0_u32..65_536).map(|n| fingerprinter.one(&n.to_le_bytes())).collect();
        names.sort_by_key(|name| name.0);
        let hash = |name: &Fingerprint| BuildHasherDefault::<NameHasher>::default().hash_one(name);
        let buckets: HashSet<u64> = names[..256].iter().map(|name| hash(name) % 4096).collect();
        assert!(buckets.len() > 200, "{} of 256", buckets.len());
        let tags: HashSet<u64> = names[..4096].iter().map(|name| hash(name) >> 57).collect();
        assert_eq!(tags.len(), 128);
    }
}
