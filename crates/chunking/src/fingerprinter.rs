//! Computes fingerprints.

use crate::fingerprint::Fingerprint;
use zeroize::Zeroize;

/// Names chunks under one key. The key is wiped when this is dropped.
pub struct Fingerprinter {
    key: [u8; 32],
}

impl Fingerprinter {
    /// A fingerprinter for this repository key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self { key: *key }
    }

    /// Fingerprint of one chunk.
    #[must_use]
    pub fn one(&self, chunk: &[u8]) -> Fingerprint {
        Fingerprint(*blake3::keyed_hash(&self.key, chunk).as_bytes())
    }

    /// Appends the fingerprints of the chunks that lie back to back in `data`.
    ///
    /// # Panics
    /// When the lengths add up to more than `data` holds.
    pub fn many(&self, data: &[u8], lengths: &[u32], out: &mut Vec<Fingerprint>) {
        let mut rest = data;
        out.extend(lengths.iter().map(|&length| {
            let (chunk, behind) = rest.split_at(length as usize);
            rest = behind;
            self.one(chunk)
        }));
    }
}

impl Drop for Fingerprinter {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}
