//! The order of code 5: eight bytes under a cipher.
//!
//! The hash of eight bytes is the output of a small keyed function made of AES. `R` is a round of
//! AES on one column of four bytes: every byte through the S-box, then the column through
//! MixColumns. With `a` the first and `b` the second four bytes, as columns:
//!
//! ```text
//! s = R(a ^ k0) ^ k1 ^ b
//! s = R(s) ^ k2,  and the same with k3, k4, k5, k6
//! ```
//!
//! The hash is `s` read little-endian, and so are the seven words of the key, which the seed gives.
//!
//! A window has two words, because text, tables and pages have few different words of four bytes.
//! One of those few would have the smallest hash nearly everywhere, and tie with itself. There are
//! six rounds, because four already leave no usable differential, and an observer sees only which
//! of thousands of candidates is the smallest. The cipher takes a column and not a block, because
//! one AES instruction then hashes four, eight or sixteen candidates.
//!
//! **It keeps its key.** Contents and lengths of chunks depend on it only through the cipher, so
//! methods that solve for the key of [`super::multiply`] find nothing. The function is made of
//! parts of AES, but is no standard primitive.
//!
//! **It does not keep its cuts.** An observer who knows the lengths of thousands of chunks with
//! their contents learns which windows win. So the observer predicts some cuts of other data with
//! the same windows. Every order of MinCDC has this limit.

#[cfg(target_arch = "x86_64")]
mod aesni;
#[cfg(target_arch = "aarch64")]
mod neon;
mod tables;
#[cfg(target_arch = "x86_64")]
mod vaes256;
#[cfg(target_arch = "x86_64")]
mod vaes512;

use super::order::{Order, reference};
use crate::params::Algorithm;
use crate::seed::SeedStream;
use tables::round;

/// Bytes of a window: two words.
const WINDOW: usize = 8;

/// Bytes from the first word of a window to its second.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const SECOND: usize = 4;

/// Where each byte of a block goes so that the ShiftRows of an AES instruction puts it back: four
/// columns stay four columns.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const UNSHIFT: [u8; 16] = [0, 13, 10, 7, 4, 1, 14, 11, 8, 5, 2, 15, 12, 9, 6, 3];

/// The key: k0 to k6.
#[derive(Clone, Copy)]
pub(crate) struct Cipher {
    pub(crate) keys: [u32; 7],
}

/// The kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// The reference, by tables. Processors without AES use it: slow, but never another order.
    Tables,
    /// 4 hashes an instruction.
    #[cfg(target_arch = "x86_64")]
    AesNi(aesni::Available),
    /// 8 hashes an instruction.
    #[cfg(target_arch = "x86_64")]
    Vaes256(vaes256::Available),
    /// 16 hashes an instruction.
    #[cfg(target_arch = "x86_64")]
    Vaes512(vaes512::Available),
    /// 4 hashes in two instructions.
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Available),
}

impl Order for Cipher {
    const WINDOW: usize = WINDOW;
    const ALGORITHM: Algorithm = Algorithm::MinCdcAes;
    type Kernel = Kernel;

    fn from_seed(seed: &[u8; 32]) -> Self {
        let mut stream = SeedStream::new(seed, "larder mincdc 2");
        Self { keys: std::array::from_fn(|_| stream.next_u32()) }
    }

    fn of(&self, bytes: &[u8]) -> u32 {
        let [k0, k1, rest @ ..] = self.keys;
        let a = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let b = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        rest.into_iter().fold(round(a ^ k0) ^ k1 ^ b, |s, key| round(s) ^ key)
    }

    fn kernels() -> impl Iterator<Item = Kernel> {
        let tables = Some(Kernel::Tables);
        #[cfg(target_arch = "x86_64")]
        let vector = [
            aesni::Available::detect().map(Kernel::AesNi),
            vaes256::Available::detect().map(Kernel::Vaes256),
            vaes512::Available::detect().map(Kernel::Vaes512),
        ];
        #[cfg(target_arch = "aarch64")]
        let vector = [neon::Available::detect().map(Kernel::Neon)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let vector = [None; 0];
        std::iter::once(tables).chain(vector).flatten()
    }

    fn last_smallest(&self, kernel: Kernel, bytes: &[u8]) -> usize {
        match kernel {
            Kernel::Tables => reference(self, bytes),
            #[cfg(target_arch = "x86_64")]
            Kernel::AesNi(available) => available.last_smallest(bytes, *self),
            #[cfg(target_arch = "x86_64")]
            Kernel::Vaes256(available) => available.last_smallest(bytes, *self),
            #[cfg(target_arch = "x86_64")]
            Kernel::Vaes512(available) => available.last_smallest(bytes, *self),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon(available) => available.last_smallest(bytes, *self),
        }
    }
}
