//! The search with AVX-512: registers of sixteen words.
#![expect(unsafe_code, reason = "vector loads take pointers, and the features are those of the caller")]

use std::arch::x86_64::{
    __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_cmpeq_epi32_mask, _mm512_cmple_epu32_mask, _mm512_loadu_si512,
    _mm512_mask_set1_epi32, _mm512_min_epu32, _mm512_reduce_min_epu32, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_storeu_si512,
};

use super::{PREFETCH, WORD};

/// Words of a register.
const LANES: usize = 16;

/// Positions that four loads cover.
const SPAN: usize = LANES * WORD;

/// Positions between two comparisons with the lanes' minima.
pub(in crate::mincdc) const GROUP: usize = 2 * SPAN;

/// The words at `at`, `at + 4`, ... of the group.
#[target_feature(enable = "avx512f")]
#[inline]
pub(in crate::mincdc) fn words<const GROUP_BYTES: usize>(group: &[u8; GROUP_BYTES], at: usize) -> __m512i {
    let words = &group[at..at + SPAN];
    // SAFETY: `words` holds the 64 bytes that are loaded; the load needs no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// Position of the last smallest hash. `bytes` holds at least one group. `hashes` gives those of
/// the windows at a position of the group, and every fourth from there.
///
/// # Safety
/// The machine has AVX-512F.
#[inline(always)]
pub(in crate::mincdc) unsafe fn last_smallest<const GROUP_BYTES: usize>(
    bytes: &[u8],
    hashes: impl Fn(&[u8; GROUP_BYTES], usize) -> __m512i,
) -> usize {
    // SAFETY: the caller vouches for AVX-512F.
    unsafe {
        let last_start = bytes.len() - GROUP_BYTES;
        let mut smallest = _mm512_set1_epi32(-1);
        let mut reached_in = _mm512_setzero_si512();
        let mut start = 0;
        loop {
            let group = group_at(bytes, start);
            prefetch(group);
            let mut low = _mm512_set1_epi32(-1);
            for at in 0..WORD {
                low = _mm512_min_epu32(low, _mm512_min_epu32(hashes(group, at), hashes(group, SPAN + at)));
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
            let equal = _mm512_cmpeq_epi32_mask(hashes(group, at), value);
            if equal != 0 {
                last = last.max(at + WORD * equal.ilog2() as usize);
            }
        }
        start + last
    }
}

/// Asks for the bytes that will be searched soon. The hardware's own prefetching lags behind a
/// search of this speed when the data comes from memory. With this, 8 MiB buffers are searched a
/// quarter faster. A prefetch beyond the slice reads nothing and faults nowhere.
#[target_feature(enable = "avx512f")]
#[inline]
fn prefetch<const GROUP_BYTES: usize>(group: &[u8; GROUP_BYTES]) {
    let ahead = group.as_ptr().wrapping_add(PREFETCH).cast::<i8>();
    for line in [0, 64] {
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line));
    }
}

fn group_at<const GROUP_BYTES: usize>(bytes: &[u8], start: usize) -> &[u8; GROUP_BYTES] {
    bytes[start..].first_chunk().expect("groups start so that they end within the slice")
}

/// The greatest of the chosen lanes. Nearly always one lane is chosen, so a loop beats a reduction.
#[target_feature(enable = "avx512f")]
#[inline]
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
