//! The search with AVX2: registers of eight words.
#![expect(unsafe_code, reason = "vector loads take pointers, and calling code for a detected CPU feature is unsafe")]

use super::{HashParams, WORD};
use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_add_epi32, _mm256_blendv_epi8, _mm256_castsi256_ps, _mm256_cmpeq_epi32,
    _mm256_loadu_si256, _mm256_min_epu32, _mm256_movemask_ps, _mm256_mullo_epi32, _mm256_set1_epi32,
    _mm256_setzero_si256, _mm256_storeu_si256,
};

/// Words of a register.
const LANES: usize = 8;

/// Positions that four loads cover, and between two comparisons with the lanes' minima.
const GROUP: usize = LANES * WORD;

/// Bytes that a group's words reach over.
const GROUP_BYTES: usize = GROUP + WORD - 1;

/// How far ahead of the search bytes are asked for.
const PREFETCH: usize = 2048;

/// Proof that the machine has the instructions. Only [`Available::detect`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available(());

impl Available {
    pub(crate) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    pub(crate) fn last_smallest(self, bytes: &[u8], hash: HashParams) -> usize {
        if bytes.len() < GROUP_BYTES {
            return super::last_smallest(bytes, hash);
        }
        // SAFETY: `self` exists only where AVX2 was detected.
        unsafe { last_smallest(bytes, hash) }
    }
}

struct Order {
    multiplier: __m256i,
    addend: __m256i,
}

impl Order {
    #[target_feature(enable = "avx2")]
    fn new(hash: HashParams) -> Self {
        Self {
            multiplier: _mm256_set1_epi32(hash.multiplier.cast_signed()),
            addend: _mm256_set1_epi32(hash.addend.cast_signed()),
        }
    }

    /// Hashes of the words at `at`, `at + 4`, ... of the group.
    #[target_feature(enable = "avx2")]
    fn hashes(&self, group: &[u8; GROUP_BYTES], at: usize) -> __m256i {
        let words = &group[at..at + GROUP];
        // SAFETY: `words` holds the 32 bytes that are loaded; the load needs no alignment.
        let words = unsafe { _mm256_loadu_si256(words.as_ptr().cast()) };
        _mm256_add_epi32(_mm256_mullo_epi32(words, self.multiplier), self.addend)
    }
}

/// `bytes` holds at least one group.
#[target_feature(enable = "avx2")]
fn last_smallest(bytes: &[u8], hash: HashParams) -> usize {
    let order = Order::new(hash);
    let last_start = bytes.len() - GROUP_BYTES;
    let mut smallest = _mm256_set1_epi32(-1);
    let mut reached_in = _mm256_setzero_si256();
    let mut start = 0;
    loop {
        let group = group_at(bytes, start);
        prefetch(group);
        let mut low = order.hashes(group, 0);
        for at in [1, 2, 3] {
            low = _mm256_min_epu32(low, order.hashes(group, at));
        }
        // There is no unsigned comparison here: a lane reached the minimum when it equals the new
        // minimum.
        smallest = _mm256_min_epu32(smallest, low);
        let reached = _mm256_cmpeq_epi32(smallest, low);
        reached_in = _mm256_blendv_epi8(reached_in, _mm256_set1_epi32(start as i32), reached);
        if start == last_start {
            break;
        }
        start = (start + GROUP).min(last_start);
    }
    let (value, start) = latest(to_array(smallest), to_array(reached_in));
    let value = _mm256_set1_epi32(value.cast_signed());
    let group = group_at(bytes, start);
    let mut last = 0;
    for at in 0..WORD {
        let equal = _mm256_cmpeq_epi32(order.hashes(group, at), value);
        let equal = _mm256_movemask_ps(_mm256_castsi256_ps(equal)).cast_unsigned();
        if equal != 0 {
            last = last.max(at + WORD * equal.ilog2() as usize);
        }
    }
    start + last
}

/// Asks for the bytes that will be searched soon. The hardware's own prefetching lags behind a
/// search of this speed when the data comes from memory. With this, 8 MiB buffers are searched a
/// quarter faster. A prefetch beyond the slice reads nothing and faults nowhere.
#[target_feature(enable = "avx2")]
fn prefetch(group: &[u8; GROUP_BYTES]) {
    let ahead = group.as_ptr().wrapping_add(PREFETCH).cast::<i8>();
    _mm_prefetch::<_MM_HINT_T0>(ahead);
}

fn group_at(bytes: &[u8], start: usize) -> &[u8; GROUP_BYTES] {
    bytes[start..].first_chunk().expect("groups start so that they end within the slice")
}

/// The smallest hash of all lanes, and the last group that reached it.
fn latest(smallest: [u32; LANES], reached_in: [u32; LANES]) -> (u32, usize) {
    let value = smallest.into_iter().min().unwrap_or(u32::MAX);
    let starts = smallest.into_iter().zip(reached_in).filter(|&(hash, _)| hash == value).map(|(_, start)| start);
    (value, starts.max().unwrap_or(0) as usize)
}

#[target_feature(enable = "avx2")]
fn to_array(lanes: __m256i) -> [u32; LANES] {
    let mut values = [0; LANES];
    // SAFETY: the array has the size of the register; the store needs no alignment.
    unsafe { _mm256_storeu_si256(values.as_mut_ptr().cast(), lanes) };
    values
}
