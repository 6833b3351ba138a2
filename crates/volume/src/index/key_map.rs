//! Maps by the keys of chunks.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by the first 20 bytes of a fingerprint.
///
/// Fingerprints are hashes under a secret key. They are spread evenly already, and nobody without
/// the key can choose them, so their first bytes are the hash.
pub(crate) type KeyMap<V> = HashMap<[u8; 20], V, BuildHasherDefault<KeyHasher>>;

/// Takes the first eight bytes.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    }

    /// The length, which all keys share.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn the_first_bytes_are_the_hash() {
        let map = KeyMap::<u8>::default();
        let mut key = [0; 20];
        key[..8].copy_from_slice(&0x1234_5678_9abc_def0u64.to_le_bytes());
        assert_eq!(map.hasher().hash_one(key), 0x1234_5678_9abc_def0);
        key[19] = 1;
        assert_eq!(map.hasher().hash_one(key), 0x1234_5678_9abc_def0);
    }
}
