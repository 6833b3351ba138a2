//! The search with AVX2: registers of eight words.
#![expect(unsafe_code, reason = "vector loads take pointers, and the features are those of the caller")]

use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_blendv_epi8, _mm256_castsi256_ps, _mm256_cmpeq_epi32,
    _mm256_loadu_si256, _mm256_min_epu32, _mm256_movemask_ps, _mm256_set1_epi32, _mm256_setzero_si256,
    _mm256_storeu_si256,
};

use super::{PREFETCH, WORD};

/// Words of a register.
const LANES: usize = 8;

/// Positions that four loads cover, and between two comparisons with the lanes' minima.
pub(in crate::mincdc) const GROUP: usize = LANES * WORD;

/// The words at `at`, `at + 4`, ... of the group.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::mincdc) fn words<const GROUP_BYTES: usize>(group: &[u8; GROUP_BYTES], at: usize) -> __m256i {
    let words = &group[at..at + GROUP];
    // SAFETY: `words` holds the 32 bytes that are loaded; the load needs no alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

/// Position of the last smallest hash. `bytes` holds at least one group. `hashes` gives those of
/// the windows at a position of the group, and every fourth from there.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
pub(in crate::mincdc) unsafe fn last_smallest<const GROUP_BYTES: usize>(
    bytes: &[u8],
    hashes: impl Fn(&[u8; GROUP_BYTES], usize) -> __m256i,
) -> usize {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let last_start = bytes.len() - GROUP_BYTES;
        let mut smallest = _mm256_set1_epi32(-1);
        let mut reached_in = _mm256_setzero_si256();
        let mut start = 0;
        loop {
            let group = group_at(bytes, start);
            prefetch(group);
            let mut low = _mm256_set1_epi32(-1);
            for at in 0..WORD {
                low = _mm256_min_epu32(low, hashes(group, at));
            }
            // There is no unsigned comparison here: a lane reached the minimum when it equals the
            // new minimum.
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
            let equal = _mm256_cmpeq_epi32(hashes(group, at), value);
            let equal = _mm256_movemask_ps(_mm256_castsi256_ps(equal)).cast_unsigned();
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
#[target_feature(enable = "avx2")]
#[inline]
fn prefetch<const GROUP_BYTES: usize>(group: &[u8; GROUP_BYTES]) {
    let ahead = group.as_ptr().wrapping_add(PREFETCH).cast::<i8>();
    _mm_prefetch::<_MM_HINT_T0>(ahead);
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

#[target_feature(enable = "avx2")]
#[inline]
fn to_array(lanes: __m256i) -> [u32; LANES] {
    let mut values = [0; LANES];
    // SAFETY: the array has the size of the register; the store needs no alignment.
    unsafe { _mm256_storeu_si256(values.as_mut_ptr().cast(), lanes) };
    values
}
