//! Turns a repository's chunking seed into the constants of one algorithm.

/// An endless keyed stream of pseudo-random words. Each algorithm names its own, so that learning
/// the constants of one says nothing about another's.
pub(crate) struct SeedStream(blake3::OutputReader);

impl SeedStream {
    pub(crate) fn new(seed: &[u8; 32], purpose: &str) -> Self {
        Self(blake3::Hasher::new_keyed(seed).update(purpose.as_bytes()).finalize_xof())
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        let mut word = [0; 4];
        self.0.fill(&mut word);
        u32::from_le_bytes(word)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let mut word = [0; 8];
        self.0.fill(&mut word);
        u64::from_le_bytes(word)
    }
}
