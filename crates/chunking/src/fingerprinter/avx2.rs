//! BLAKE3's compression function in eight lanes of AVX2 registers.
#![expect(unsafe_code, reason = "vector loads take pointers, and calling code for a detected CPU feature is unsafe")]

use super::lanes::{BLOCK, Compress, IV, LaneState};
use super::rounds::{all_rounds, mix, round};
use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_or_si256, _mm256_permute2x128_si256, _mm256_set_epi8,
    _mm256_set1_epi32, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
    _mm256_xor_si256,
};

const LANES: usize = 8;

/// Proof that the machine has the instructions. Only [`Available::detect`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available(());

impl Available {
    pub(crate) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

impl Compress<LANES> for Available {
    fn compress(self, state: &mut LaneState<LANES>, blocks: &[&[u8; BLOCK]; LANES]) {
        // SAFETY: `self` exists only where AVX2 was detected.
        unsafe { compress(state, blocks) }
    }
}

#[target_feature(enable = "avx2")]
fn compress(state: &mut LaneState<LANES>, blocks: &[&[u8; BLOCK]; LANES]) {
    let (low, high) = (transposed(blocks, 0), transposed(blocks, BLOCK / 2));
    let mut m = [_mm256_setzero_si256(); 16];
    m[..LANES].copy_from_slice(&low);
    m[LANES..].copy_from_slice(&high);
    let c = &state.chaining;
    let mut v = [
        load(&c[0]),
        load(&c[1]),
        load(&c[2]),
        load(&c[3]),
        load(&c[4]),
        load(&c[5]),
        load(&c[6]),
        load(&c[7]),
        constant(IV[0]),
        constant(IV[1]),
        constant(IV[2]),
        constant(IV[3]),
        load(&state.counter),
        // The high half of the counter: no chunk has 2^32 leaves.
        _mm256_setzero_si256(),
        load(&state.length),
        load(&state.flags),
    ];
    all_rounds!(v, m);
    for i in 0..8 {
        store(&mut state.chaining[i], xor(v[i], v[i + 8]));
    }
}

/// Register `i` of the result holds the word at `offset + 4 * i` of all blocks.
#[target_feature(enable = "avx2")]
fn transposed(blocks: &[&[u8; BLOCK]; LANES], offset: usize) -> [__m256i; LANES] {
    let mut rows = [_mm256_setzero_si256(); LANES];
    for (row, block) in rows.iter_mut().zip(blocks) {
        let half = &block[offset..offset + BLOCK / 2];
        // SAFETY: half a block has the size of the register; the load needs no alignment.
        *row = unsafe { _mm256_loadu_si256(half.as_ptr().cast()) };
    }
    // Four rows at a time: afterwards half h of `quads[4 * g + w]` holds word 4h + w of rows 4g to
    // 4g + 3.
    let mut quads = [_mm256_setzero_si256(); LANES];
    for g in [0, 4] {
        let low_01 = _mm256_unpacklo_epi32(rows[g], rows[g + 1]);
        let high_01 = _mm256_unpackhi_epi32(rows[g], rows[g + 1]);
        let low_23 = _mm256_unpacklo_epi32(rows[g + 2], rows[g + 3]);
        let high_23 = _mm256_unpackhi_epi32(rows[g + 2], rows[g + 3]);
        quads[g] = _mm256_unpacklo_epi64(low_01, low_23);
        quads[g + 1] = _mm256_unpackhi_epi64(low_01, low_23);
        quads[g + 2] = _mm256_unpacklo_epi64(high_01, high_23);
        quads[g + 3] = _mm256_unpackhi_epi64(high_01, high_23);
    }
    let mut words = rows;
    for w in 0..4 {
        words[w] = _mm256_permute2x128_si256::<0x20>(quads[w], quads[4 + w]);
        words[4 + w] = _mm256_permute2x128_si256::<0x31>(quads[w], quads[4 + w]);
    }
    words
}

#[target_feature(enable = "avx2")]
fn load(lanes: &[u32; LANES]) -> __m256i {
    // SAFETY: the array has the size of the register; the load needs no alignment.
    unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn store(lanes: &mut [u32; LANES], value: __m256i) {
    // SAFETY: the array has the size of the register; the store needs no alignment.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), value) }
}

#[target_feature(enable = "avx2")]
fn constant(word: u32) -> __m256i {
    _mm256_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx2")]
fn add(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(a, b)
}

#[target_feature(enable = "avx2")]
fn xor(a: __m256i, b: __m256i) -> __m256i {
    _mm256_xor_si256(a, b)
}

// There is no rotation instruction: whole bytes move by a shuffle, other distances by two shifts.

#[target_feature(enable = "avx2")]
fn rotate_16(a: __m256i) -> __m256i {
    let bytes = _mm256_set_epi8(
        13, 12, 15, 14, 9, 8, 11, 10, 5, 4, 7, 6, 1, 0, 3, 2, 13, 12, 15, 14, 9, 8, 11, 10, 5, 4, 7, 6, 1, 0, 3, 2,
    );
    _mm256_shuffle_epi8(a, bytes)
}

#[target_feature(enable = "avx2")]
fn rotate_12(a: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_srli_epi32::<12>(a), _mm256_slli_epi32::<20>(a))
}

#[target_feature(enable = "avx2")]
fn rotate_8(a: __m256i) -> __m256i {
    let bytes = _mm256_set_epi8(
        12, 15, 14, 13, 8, 11, 10, 9, 4, 7, 6, 5, 0, 3, 2, 1, 12, 15, 14, 13, 8, 11, 10, 9, 4, 7, 6, 5, 0, 3, 2, 1,
    );
    _mm256_shuffle_epi8(a, bytes)
}

#[target_feature(enable = "avx2")]
fn rotate_7(a: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_srli_epi32::<7>(a), _mm256_slli_epi32::<25>(a))
}
