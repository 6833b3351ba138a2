//! The search with SSE4.1: registers of four words.
#![expect(unsafe_code, reason = "vector loads take pointers, and the features are those of the caller")]

use std::arch::x86_64::{
    __m128i, _MM_HINT_T0, _mm_blendv_epi8, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_min_epu32,
    _mm_movemask_ps, _mm_prefetch, _mm_set1_epi32, _mm_setzero_si128, _mm_storeu_si128,
};

use super::{PREFETCH, WORD};

/// Words of a register.
const LANES: usize = 4;

/// Positions that four loads cover.
const SPAN: usize = LANES * WORD;

/// Positions between two comparisons with the lanes' minima.
pub(in crate::mincdc) const GROUP: usize = 2 * SPAN;

/// Where the loads of a group begin.
const LOADS: [usize; 8] = [0, 1, 2, 3, SPAN, SPAN + 1, SPAN + 2, SPAN + 3];

/// The words at `at`, `at + 4`, ... of the group.
#[target_feature(enable = "sse4.1")]
#[inline]
pub(in crate::mincdc) fn words<const GROUP_BYTES: usize>(group: &[u8; GROUP_BYTES], at: usize) -> __m128i {
    let words = &group[at..at + SPAN];
    // SAFETY: `words` holds the 16 bytes that are loaded; the load needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

/// Position of the last smallest hash. `bytes` holds at least one group. `hashes` gives those of
/// the windows at a position of the group, and every fourth from there.
///
/// # Safety
/// The machine has SSE4.1.
#[inline(always)]
pub(in crate::mincdc) unsafe fn last_smallest<const GROUP_BYTES: usize>(
    bytes: &[u8],
    hashes: impl Fn(&[u8; GROUP_BYTES], usize) -> __m128i,
) -> usize {
    // SAFETY: the caller vouches for SSE4.1.
    unsafe {
        let last_start = bytes.len() - GROUP_BYTES;
        let mut smallest = _mm_set1_epi32(-1);
        let mut reached_in = _mm_setzero_si128();
        let mut start = 0;
        loop {
            let group = group_at(bytes, start);
            _mm_prefetch::<_MM_HINT_T0>(group.as_ptr().wrapping_add(PREFETCH).cast::<i8>());
            let mut low = _mm_set1_epi32(-1);
            for at in 0..WORD {
                low = _mm_min_epu32(low, _mm_min_epu32(hashes(group, at), hashes(group, SPAN + at)));
            }
            // There is no unsigned comparison here: a lane reached the minimum when it equals the
            // new minimum.
            smallest = _mm_min_epu32(smallest, low);
            let reached = _mm_cmpeq_epi32(smallest, low);
            reached_in = _mm_blendv_epi8(reached_in, _mm_set1_epi32(start as i32), reached);
            if start == last_start {
                break;
            }
            start = (start + GROUP).min(last_start);
        }
        let (value, start) = latest(to_array(smallest), to_array(reached_in));
        let value = _mm_set1_epi32(value.cast_signed());
        let group = group_at(bytes, start);
        let mut last = 0;
        for at in LOADS {
            let equal = _mm_cmpeq_epi32(hashes(group, at), value);
            let equal = _mm_movemask_ps(_mm_castsi128_ps(equal)).cast_unsigned();
            if equal != 0 {
                last = last.max(at + WORD * equal.ilog2() as usize);
            }
        }
        start + last
    }
}

fn group_at<const GROUP_BYTES: usize>(bytes: &[u8], start: usize) -> &[u8; GROUP_BYTES] {
    bytes[start..].first_chunk().expect("groups start so that they end within the slice")
}

/// The smallest hash of all lanes, and the last group that reached it.
fn latest(smallest: [u32; LANES], reached_in: [u32; LANES]) -> (u32, usize) {
    let value = smallest.into_iter().min().unwrap_or(u32::MAX);
    let starts = smallest.into_iter().zip(reached_in).filter(|&(hash, _)| hash == value).map(|(_, start)| start);
    (value, starts.max().unwrap_or(0) as usize)
}

#[target_feature(enable = "sse4.1")]
#[inline]
fn to_array(lanes: __m128i) -> [u32; LANES] {
    let mut values = [0; LANES];
    // SAFETY: the array has the size of the register; the store needs no alignment.
    unsafe { _mm_storeu_si128(values.as_mut_ptr().cast(), lanes) };
    values
}
