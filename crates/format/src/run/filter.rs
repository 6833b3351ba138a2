//! Which keys may be in a run: a binary fuse filter, 9 to 10 bits a key, wrong for one absent key
//! in 256.
//!
//! Every key has three places in a row of bytes. The xor of the three is a byte of the key's hash
//! for every key of the run. The places are in three neighbouring segments, so they are close
//! together and the row can be nearly full.
//!
//! | field    | size | meaning                                                       |
//! |----------|-----:|---------------------------------------------------------------|
//! | seed     |    8 | goes into the hashes                                          |
//! | log      |    1 | a segment is 2^log bytes, at most 18; 255: no filter follows  |
//! | segments |    4 | in which first places lie; two more follow                    |
//! | row      |    … | (segments + 2) × 2^log bytes                                  |
//!
//! The hash of a key starts with 0. Each 8 bytes of the key, the last padded with zeros, are a
//! little-endian number: xor it in, then mix. At the end xor the length in, then mix: this is
//! [`key_hash`]. In a filter: add seed × 0x9e3779b97f4a7c15, mix. To mix `x`: `x ^= x >> 32`,
//! `x *= 0xd6e8feb86659fd93`, twice, then `x ^= x >> 32`. With `h` the result, `s` the segments and
//! `L` the length of one: first place `p = h × (s × L) >> 64`, second
//! `(p + L) ^ (h >> 18 & (L − 1))`, third `(p + 2L) ^ (h & (L − 1))`, byte `h ^ h >> 32` (lowest 8
//! bits).

use super::WHAT;
use crate::wire::{DecodeError, Put, Reader};

/// Largest logarithm of a segment's length: three of these fit into a cache.
const LOG_MAX: u8 = 18;
const NONE: u8 = 255;
/// Seeds that are tried. One in a hundred fails, so nearly never more than two are.
const SEEDS: u64 = 32;

fn mix(mut x: u64) -> u64 {
    for _ in 0..2 {
        x ^= x >> 32;
        x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    x ^ (x >> 32)
}

/// The hash of a key that all filters can be asked with.
pub fn key_hash(key: &[u8]) -> u64 {
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = words.iter().fold(0, |hash, word| mix(hash ^ u64::from_le_bytes(*word)));
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    mix(hash ^ key.len() as u64)
}

/// A filter. One that could not be made admits everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    seed: u64,
    log: u8,
    segments: u32,
    row: Vec<u8>,
}

impl Filter {
    /// The filter of these [`key_hash`]es, which are reordered if equal ones are in the way.
    pub(crate) fn build(hashes: &mut Vec<u64>) -> Self {
        for seed in 0..SEEDS {
            if seed == 1 {
                // Two keys with one hash are rare, and no seed tells them apart.
                hashes.sort_unstable();
                hashes.dedup();
            }
            let mut filter = Self::sized(hashes.len(), seed);
            if filter.fill(hashes) {
                return filter;
            }
        }
        Self::all()
    }

    /// The filter that admits everything.
    pub fn all() -> Self {
        Self { seed: 0, log: NONE, segments: 0, row: Vec::new() }
    }

    fn sized(count: usize, seed: u64) -> Self {
        let mut log = 3u8;
        let mut enough_for = 8.0;
        while log < LOG_MAX && count as f64 >= enough_for {
            log += 1;
            enough_for *= 3.33;
        }
        // Small rows need more room for the three places of all keys to come out.
        let bits = (count.max(2).ilog2() as usize).max(1);
        let capacity = (count + count / 8).max(count - count / 8 + count * 5 / bits) + 8;
        let segments = capacity.div_ceil(1 << log).saturating_sub(2).max(1);
        Self { seed, log, segments: segments as u32, row: vec![0; (segments + 2) << log] }
    }

    fn places(&self, hash: u64) -> [usize; 3] {
        let len = 1u64 << self.log;
        let first = ((u128::from(hash) * u128::from(u64::from(self.segments) * len)) >> 64) as u64;
        let second = (first + len) ^ ((hash >> 18) & (len - 1));
        let third = (first + 2 * len) ^ (hash & (len - 1));
        [first as usize, second as usize, third as usize]
    }

    fn hash(&self, key_hash: u64) -> u64 {
        mix(key_hash.wrapping_add(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn byte(hash: u64) -> u8 {
        (hash ^ (hash >> 32)) as u8
    }

    /// Fills the row, from the keys that are alone at one of their places backwards; fails when
    /// some never get alone.
    fn fill(&mut self, key_hashes: &[u64]) -> bool {
        let mut keys_at = vec![(0u32, 0u64); self.row.len()];
        for key_hash in key_hashes {
            let hash = self.hash(*key_hash);
            for place in self.places(hash) {
                keys_at[place].0 += 1;
                keys_at[place].1 ^= hash;
            }
        }
        let mut order = Vec::with_capacity(key_hashes.len());
        let mut alone: Vec<usize> = (0..keys_at.len()).filter(|place| keys_at[*place].0 == 1).collect();
        while let Some(place) = alone.pop() {
            let (1, hash) = keys_at[place] else { continue };
            order.push((place as u32, hash));
            for place in self.places(hash) {
                keys_at[place].0 -= 1;
                keys_at[place].1 ^= hash;
                if keys_at[place].0 == 1 {
                    alone.push(place);
                }
            }
        }
        if order.len() < key_hashes.len() {
            return false;
        }
        for (place, hash) in order.into_iter().rev() {
            let others = self.places(hash).into_iter().fold(0, |sum, other| sum ^ self.row[other]);
            self.row[place as usize] = Self::byte(hash) ^ others;
        }
        true
    }

    /// Whether the key with this [`key_hash`] may be in. Never says no to one that is.
    pub fn admits(&self, key_hash: u64) -> bool {
        if self.log == NONE {
            return true;
        }
        let hash = self.hash(key_hash);
        let [a, b, c] = self.places(hash);
        Self::byte(hash) == self.row[a] ^ self.row[b] ^ self.row[c]
    }

    /// Bytes of memory that it takes, nearly.
    pub fn bytes_held(&self) -> usize {
        self.row.len() + size_of::<Self>()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.seed);
        out.put_u8(self.log);
        out.put_u32(self.segments);
        out.extend_from_slice(&self.row);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, WHAT);
        let (seed, log, segments) = (reader.u64()?, reader.u8()?, reader.u32()?);
        let row = reader.take(reader.remaining())?;
        let len = match log {
            NONE if segments == 0 && seed == 0 => 0,
            0..=LOG_MAX if segments > 0 => (u64::from(segments) + 2) << log,
            _ => return Err(reader.invalid("its filter has an unknown form")),
        };
        if row.len() as u64 != len {
            return Err(reader.invalid("its filter has another length than it says"));
        }
        Ok(Self { seed, log, segments, row: row.to_vec() })
    }
}
