//! Finds the last smallest hash among all four-byte words of a slice.

/// Bytes that are hashed at each position.
pub(crate) const WORD: usize = 4;

/// The keyed order of words. The multiplier is odd, so that no two words share a hash.
#[derive(Clone, Copy)]
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

/// An implementation of the search. All give the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// The reference.
    Scalar,
}

impl Kernel {
    /// The fastest kernel this machine runs.
    pub(crate) fn detect() -> Self {
        Self::Scalar
    }

    /// Position of the last smallest hash. `bytes` holds at least one word.
    pub(crate) fn last_smallest(self, bytes: &[u8], hash: HashParams) -> usize {
        match self {
            Self::Scalar => scalar(bytes, hash),
        }
    }
}

fn scalar(bytes: &[u8], hash: HashParams) -> usize {
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
