//! The search with AVX-512: registers of sixteen words.
#![expect(unsafe_code, reason = "vector loads take pointers, and calling code for a detected CPU feature is unsafe")]

use super::{HashParams, WORD};
use std::arch::x86_64::{
    __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_add_epi32, _mm512_cmpeq_epi32_mask, _mm512_cmple_epu32_mask,
    _mm512_loadu_si512, _mm512_mask_set1_epi32, _mm512_min_epu32, _mm512_mullo_epi32, _mm512_reduce_min_epu32,
    _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
};

/// Words of a register.
const LANES: usize = 16;

/// Positions that four loads cover.
const SPAN: usize = LANES * WORD;

/// Positions between two comparisons with the lanes' minima.
const GROUP: usize = 2 * SPAN;

/// Bytes that a group's words reach over.
const GROUP_BYTES: usize = GROUP + WORD - 1;

/// How far ahead of the search bytes are asked for.
const PREFETCH: usize = 2048;

/// Proof that the machine has the instructions. Only [`Available::detect`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available(());

impl Available {
    pub(crate) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }

    pub(crate) fn last_smallest(self, bytes: &[u8], hash: HashParams) -> usize {
        if bytes.len() < GROUP_BYTES {
            return super::last_smallest(bytes, hash);
        }
        // SAFETY: `self` exists only where AVX-512F was detected.
        unsafe { last_smallest(bytes, hash) }
    }
}

struct Order {
    multiplier: __m512i,
    addend: __m512i,
}

impl Order {
    #[target_feature(enable = "avx512f")]
    fn new(hash: HashParams) -> Self {
        Self {
            multiplier: _mm512_set1_epi32(hash.multiplier.cast_signed()),
            addend: _mm512_set1_epi32(hash.addend.cast_signed()),
        }
    }

    /// Hashes of the words at `at`, `at + 4`, ... of the group.
    #[target_feature(enable = "avx512f")]
    fn hashes(&self, group: &[u8; GROUP_BYTES], at: usize) -> __m512i {
        let words = &group[at..at + SPAN];
        // SAFETY: `words` holds the 64 bytes that are loaded; the load needs no alignment.
        let words = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
        _mm512_add_epi32(_mm512_mullo_epi32(words, self.multiplier), self.addend)
    }
}

/// `bytes` holds at least one group.
#[target_feature(enable = "avx512f")]
fn last_smallest(bytes: &[u8], hash: HashParams) -> usize {
    let order = Order::new(hash);
    let last_start = bytes.len() - GROUP_BYTES;
    let mut smallest = _mm512_set1_epi32(-1);
    let mut reached_in = _mm512_setzero_si512();
    let mut start = 0;
    loop {
        let group = group_at(bytes, start);
        prefetch(group);
        let mut low = order.hashes(group, 0);
        for at in [1, 2, 3, SPAN, SPAN + 1, SPAN + 2, SPAN + 3] {
            low = _mm512_min_epu32(low, order.hashes(group, at));
        }
        let reached = _mm512_cmple_epu32_mask(low, smallest);
        smallest = _mm512_min_epu32(smallest, low);
        reached_in = _mm512_mask_set1_epi32(reached_in, reached, start as i32);
        if start == last_start {
            break;
        }
        start = (start + GROUP).min(last_start);
    }
    let value = _mm512_set1_epi32(_mm512_reduce_min_epu32(smallest).cast_signed());
    let start = latest(reached_in, _mm512_cmpeq_epi32_mask(smallest, value));
    let group = group_at(bytes, start);
    let mut last = 0;
    for at in [0, 1, 2, 3, SPAN, SPAN + 1, SPAN + 2, SPAN + 3] {
        let equal = _mm512_cmpeq_epi32_mask(order.hashes(group, at), value);
        if equal != 0 {
            last = last.max(at + WORD * equal.ilog2() as usize);
        }
    }
    start + last
}

/// Asks for the bytes that will be searched soon. The hardware's own prefetching lags behind a
/// search of this speed when the data comes from memory. With this, 8 MiB buffers are searched a
/// quarter faster. A prefetch beyond the slice reads nothing and faults nowhere.
#[target_feature(enable = "avx512f")]
fn prefetch(group: &[u8; GROUP_BYTES]) {
    let ahead = group.as_ptr().wrapping_add(PREFETCH).cast::<i8>();
    for line in [0, 64] {
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line));
    }
}

fn group_at(bytes: &[u8], start: usize) -> &[u8; GROUP_BYTES] {
    bytes[start..].first_chunk().expect("groups start so that they end within the slice")
}

/// The greatest of the chosen lanes. Nearly always one lane is chosen, so a loop beats a reduction.
#[target_feature(enable = "avx512f")]
fn latest(lanes: __m512i, mut chosen: u16) -> usize {
    let mut values = [0_u32; LANES];
    // SAFETY: the array has the size of the register; the store needs no alignment.
    unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), lanes) };
    let mut latest = 0;
    while chosen != 0 {
        latest = latest.max(values[chosen.trailing_zeros() as usize % LANES]);
        chosen &= chosen - 1;
    }
    latest as usize
}
