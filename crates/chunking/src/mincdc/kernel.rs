//! Finds the last smallest hash among all four-byte words of a slice: one scalar reference, and
//! vector kernels that give the same answer.
//!
//! How the vector kernels work. Word positions are taken in groups, one after the other. A register
//! loaded at the group's start holds the words at positions 0, 4, 8, .... Loaded one, two and three
//! bytes later, it holds those in between. So four loads give every word of the group without a
//! shuffle. For each group, only the smallest hash of each lane is kept, and for each lane the
//! start of the last group that reached it. So there is one comparison a group instead of one a
//! position. At the end, the smallest hash of all lanes is known, and the greatest group start
//! among the lanes that hold it. The last position is then found in that one group. The last group
//! is moved back to end with the slice; positions that are seen twice do no harm.
//!
//! Callers: the MinCDC chunker and the self-test. Slices shorter than a group go to the reference.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(test)]
mod tests;

/// Bytes that are hashed at each position.
pub(crate) const WORD: usize = 4;

/// The keyed order of words. The multiplier is odd, so that no two words share a hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashParams {
    pub(crate) multiplier: u32,
    pub(crate) addend: u32,
}

impl HashParams {
    /// Hash of the first four bytes.
    pub(crate) fn of(self, bytes: &[u8]) -> u32 {
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        word.wrapping_mul(self.multiplier).wrapping_add(self.addend)
    }
}

/// An implementation of the search. All give the same answer; the chunker uses the fastest that the
/// machine runs.
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
    /// 16 positions a step; every 64-bit ARM has it.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kernel {
    /// All kernels this machine runs, the slowest first.
    pub(crate) fn available() -> impl Iterator<Item = Self> {
        let scalar = Some(Self::Scalar);
        #[cfg(target_arch = "x86_64")]
        let vector = [avx2::Available::detect().map(Self::Avx2), avx512::Available::detect().map(Self::Avx512)];
        #[cfg(target_arch = "aarch64")]
        let vector = [Some(Self::Neon)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let vector = [None; 0];
        std::iter::once(scalar).chain(vector).flatten()
    }

    /// The fastest kernel this machine runs.
    pub(crate) fn detect() -> Self {
        Self::available().last().unwrap_or(Self::Scalar)
    }

    /// Position of the last smallest hash. `bytes` holds at least one word.
    pub(crate) fn last_smallest(self, bytes: &[u8], hash: HashParams) -> usize {
        match self {
            Self::Scalar => last_smallest(bytes, hash),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(available) => available.last_smallest(bytes, hash),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(available) => available.last_smallest(bytes, hash),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => neon::last_smallest(bytes, hash),
        }
    }
}

/// The reference. Its answers are right by definition.
fn last_smallest(bytes: &[u8], hash: HashParams) -> usize {
    let mut best = 0;
    let mut smallest = u32::MAX;
    for (position, word) in bytes.windows(WORD).enumerate() {
        let value = hash.of(word);
        if value <= smallest {
            smallest = value;
            best = position;
        }
    }
    best
}
