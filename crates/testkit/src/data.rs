//! Bytes made from a seed: the same everywhere and for ever, so a failing test can be repeated from
//! its message.

use std::ops::Range;

/// A small generator of pseudo-random numbers (splitmix64). For tests only: it is easily predicted.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator that yields the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0 where that is 0. Slightly uneven for huge bounds, which no test
    /// minds.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// A number in a range; the start of an empty one.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of some values. The slice must not be empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// Fills a buffer.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Bytes that neither compress nor repeat.
pub fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

/// Bytes like text: words from a small vocabulary, some more often than others, in lines. They
/// compress about threefold.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words: Vec<Vec<u8>> =
        (0..512).map(|_| (0..rng.within(2..10)).map(|_| b'a' + rng.below(26) as u8).collect()).collect();
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        // The smaller of two draws makes early words frequent, as in any language.
        let word = rng.below(512).min(rng.below(512)) as usize;
        bytes.extend_from_slice(&words[word]);
        bytes.push(if rng.one_in(12) { b'\n' } else { b' ' });
    }
    bytes.truncate(len);
    bytes
}

/// Bytes whose parts repeat earlier parts, as in real disks: runs of zeros, copies, text and noise.
pub fn mixed(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes: Vec<u8> = Vec::with_capacity(len);
    while bytes.len() < len {
        let run = rng.within(1..64 << 10).min((len - bytes.len()) as u64) as usize;
        match rng.below(4) {
            0 => bytes.resize(bytes.len() + run, 0),
            1 if !bytes.is_empty() => {
                let start = rng.below(bytes.len() as u64) as usize;
                let end = (start + run).min(bytes.len());
                bytes.extend_from_within(start..end);
            }
            2 => bytes.extend(text(rng.next_u64(), run)),
            _ => bytes.extend(random(rng.next_u64(), run)),
        }
    }
    bytes
}

/// A buffer after typical edits: `count` insertions, deletions and overwrites of up to `max` bytes.
pub fn edited(original: &[u8], seed: u64, count: usize, max: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = original.to_vec();
    for _ in 0..count {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let len = rng.within(1..max as u64 + 1) as usize;
        let end = (at + len).min(bytes.len());
        match rng.below(3) {
            0 => drop(bytes.splice(at..at, random(rng.next_u64(), len))),
            1 => drop(bytes.drain(at..end)),
            _ => rng.fill(&mut bytes[at..end]),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds in other crates' tests stand for these bytes: a change here changes what those tests
    /// test.
    #[test]
    fn the_same_seed_makes_the_same_bytes_for_ever() {
        assert_eq!(random(1, 9), [193, 92, 2, 137, 236, 45, 10, 145, 103]);
        assert_eq!(Rng::new(7).below(1000), Rng::new(7).below(1000));
        assert_eq!(text(3, 100), text(3, 100));
        assert_ne!(text(3, 100), text(4, 100));
        assert_eq!(mixed(5, 100_000), mixed(5, 100_000));
    }

    #[test]
    fn lengths_are_kept_and_edits_change_something() {
        for len in [0, 1, 7, 8, 9, 100_000] {
            assert_eq!(random(1, len).len(), len);
            assert_eq!(text(1, len).len(), len);
            assert_eq!(mixed(1, len).len(), len);
        }
        let original = random(1, 10_000);
        assert_ne!(edited(&original, 2, 3, 100), original);
        assert_eq!(edited(&original, 2, 0, 100), original);
        assert!(!edited(&[], 2, 5, 10).is_empty());
    }
}
