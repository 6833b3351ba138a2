//! The order of code 1: four bytes, multiplied.
//!
//! The hash of four bytes is `word * multiplier + addend` modulo 2^32, with the word read
//! little-endian and an odd multiplier. It is a permutation of all words, and through the high bits
//! every byte of the word decides.
//!
//! **It keeps no secret.** The function is linear, so each length of a chunk with known bytes
//! bounds the addend for every multiplier. Six lengths leave one multiplier, and half a minute of
//! one core finds it (`tests/learned_key.rs`). It remains for processors without AES instructions,
//! where [`super::cipher`] is slow.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

use super::order::{Order, reference};
use crate::params::Algorithm;
use crate::seed::SeedStream;

/// Bytes of a window: one word.
const WINDOW: usize = 4;

/// The key. The multiplier is odd, so that no two words share a hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multiply {
    pub(crate) multiplier: u32,
    pub(crate) addend: u32,
}

/// The kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// The reference.
    Scalar,
    /// 32 positions a step.
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Available),
    /// 128 positions a step.
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Available),
    /// 32 positions a step; every 64-bit ARM has it.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Order for Multiply {
    const WINDOW: usize = WINDOW;
    const ALGORITHM: Algorithm = Algorithm::MinCdc;
    type Kernel = Kernel;

    fn from_seed(seed: &[u8; 32]) -> Self {
        let mut stream = SeedStream::new(seed, "larder mincdc 1");
        Self { multiplier: stream.next_u32() | 1, addend: stream.next_u32() }
    }

    fn of(&self, bytes: &[u8]) -> u32 {
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        word.wrapping_mul(self.multiplier).wrapping_add(self.addend)
    }

    fn kernels() -> impl Iterator<Item = Kernel> {
        let scalar = Some(Kernel::Scalar);
        #[cfg(target_arch = "x86_64")]
        let vector = [avx2::Available::detect().map(Kernel::Avx2), avx512::Available::detect().map(Kernel::Avx512)];
        #[cfg(target_arch = "aarch64")]
        let vector = [Some(Kernel::Neon)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let vector = [None; 0];
        std::iter::once(scalar).chain(vector).flatten()
    }

    fn last_smallest(&self, kernel: Kernel, bytes: &[u8]) -> usize {
        match kernel {
            Kernel::Scalar => reference(self, bytes),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(available) => available.last_smallest(bytes, *self),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(available) => available.last_smallest(bytes, *self),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => neon::last_smallest(bytes, *self),
        }
    }
}
