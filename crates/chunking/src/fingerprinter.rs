//! Computes fingerprints: one chunk at a time, or a batch across vector lanes.
//!
//! BLAKE3 fills the lanes of a vector register with the 1 KiB leaves of one message. A chunk of 4
//! KiB has four leaves for sixteen lanes, so hashed alone it runs at a third of the speed of a long
//! message. [`Fingerprinter::many`] fills the lanes with leaves of different chunks instead. The
//! values are the same: BLAKE3 in keyed mode, as `blake3::keyed_hash` computes it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod rounds;
#[cfg(test)]
mod tests;

use crate::fingerprint::Fingerprint;
use zeroize::Zeroize;

/// Names chunks under one key. The key is wiped when this is dropped.
pub struct Fingerprinter {
    key: [u8; 32],
    kernel: Kernel,
}

/// How batches are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Every chunk alone, by the `blake3` crate. Where registers hold four words, a chunk of 4 KiB
    /// fills them by itself.
    OneByOne,
    /// Eight lanes.
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Available),
    /// Sixteen lanes.
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Available),
}

impl Kernel {
    /// All kernels this machine runs, the slowest first.
    pub(crate) fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let lanes = [avx2::Available::detect().map(Self::Avx2), avx512::Available::detect().map(Self::Avx512)];
        #[cfg(not(target_arch = "x86_64"))]
        let lanes = [None; 0];
        std::iter::once(Some(Self::OneByOne)).chain(lanes).flatten()
    }
}

impl Fingerprinter {
    /// A fingerprinter for this repository key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self::with_kernel(key, Kernel::available().last().unwrap_or(Kernel::OneByOne))
    }

    pub(crate) fn with_kernel(key: &[u8; 32], kernel: Kernel) -> Self {
        Self { key: *key, kernel }
    }

    /// Fingerprint of one chunk.
    #[must_use]
    pub fn one(&self, chunk: &[u8]) -> Fingerprint {
        Fingerprint(*blake3::keyed_hash(&self.key, chunk).as_bytes())
    }

    /// Appends the fingerprints of the adjacent chunks in `data`, in their order.
    ///
    /// With more chunks in a call, more lanes are used; above about 1 MiB there is no gain.
    ///
    /// # Panics
    /// When the lengths add up to more than `data` holds.
    pub fn many(&self, data: &[u8], lengths: &[u32], out: &mut Vec<Fingerprint>) {
        out.reserve(lengths.len());
        match self.kernel {
            Kernel::OneByOne => {
                let mut rest = data;
                for &length in lengths {
                    let (chunk, behind) = rest.split_at(length as usize);
                    out.push(self.one(chunk));
                    rest = behind;
                }
            }
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(available) => lanes::many(available, self, data, lengths, out),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(available) => lanes::many(available, self, data, lengths, out),
        }
    }
}

impl Drop for Fingerprinter {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}
