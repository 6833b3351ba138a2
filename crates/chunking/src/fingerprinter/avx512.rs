//! BLAKE3's compression function in sixteen lanes of AVX-512 registers.
#![expect(unsafe_code, reason = "vector loads take pointers, and calling code for a detected CPU feature is unsafe")]

use super::lanes::{BLOCK, Compress, IV, LaneState};
use super::rounds::{all_rounds, mix, round};
use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_loadu_si512, _mm512_ror_epi32, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64, _mm512_xor_si512,
};

const LANES: usize = 16;

/// Proof that the machine has the instructions. Only [`Available::detect`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available(());

impl Available {
    pub(crate) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }
}

impl Compress<LANES> for Available {
    fn compress(self, state: &mut LaneState<LANES>, blocks: &[&[u8; BLOCK]; LANES]) {
        // SAFETY: `self` exists only where AVX-512F was detected.
        unsafe { compress(state, blocks) }
    }
}

#[target_feature(enable = "avx512f")]
fn compress(state: &mut LaneState<LANES>, blocks: &[&[u8; BLOCK]; LANES]) {
    let mut m = transposed(blocks);
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
        _mm512_setzero_si512(),
        load(&state.length),
        load(&state.flags),
    ];
    all_rounds!(v, m);
    for i in 0..8 {
        store(&mut state.chaining[i], xor(v[i], v[i + 8]));
    }
}

/// Register `i` of the result holds word `i` of all blocks.
#[target_feature(enable = "avx512f")]
fn transposed(blocks: &[&[u8; BLOCK]; LANES]) -> [__m512i; LANES] {
    let mut rows = [_mm512_setzero_si512(); LANES];
    for (row, block) in rows.iter_mut().zip(blocks) {
        // SAFETY: a block has the size of the register; the load needs no alignment.
        *row = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
    }
    // Four rows at a time: afterwards quarter q of `quads[4 * g + w]` holds word 4q + w of rows 4g
    // to 4g + 3.
    let mut quads = [_mm512_setzero_si512(); LANES];
    for g in [0, 4, 8, 12] {
        let low_01 = _mm512_unpacklo_epi32(rows[g], rows[g + 1]);
        let high_01 = _mm512_unpackhi_epi32(rows[g], rows[g + 1]);
        let low_23 = _mm512_unpacklo_epi32(rows[g + 2], rows[g + 3]);
        let high_23 = _mm512_unpackhi_epi32(rows[g + 2], rows[g + 3]);
        quads[g] = _mm512_unpacklo_epi64(low_01, low_23);
        quads[g + 1] = _mm512_unpackhi_epi64(low_01, low_23);
        quads[g + 2] = _mm512_unpacklo_epi64(high_01, high_23);
        quads[g + 3] = _mm512_unpackhi_epi64(high_01, high_23);
    }
    // Then a transposition of quarters, for each w.
    let mut words = rows;
    for w in 0..4 {
        let even_left = _mm512_shuffle_i32x4::<0x88>(quads[w], quads[4 + w]);
        let odd_left = _mm512_shuffle_i32x4::<0xdd>(quads[w], quads[4 + w]);
        let even_right = _mm512_shuffle_i32x4::<0x88>(quads[8 + w], quads[12 + w]);
        let odd_right = _mm512_shuffle_i32x4::<0xdd>(quads[8 + w], quads[12 + w]);
        words[w] = _mm512_shuffle_i32x4::<0x88>(even_left, even_right);
        words[4 + w] = _mm512_shuffle_i32x4::<0x88>(odd_left, odd_right);
        words[8 + w] = _mm512_shuffle_i32x4::<0xdd>(even_left, even_right);
        words[12 + w] = _mm512_shuffle_i32x4::<0xdd>(odd_left, odd_right);
    }
    words
}

#[target_feature(enable = "avx512f")]
fn load(lanes: &[u32; LANES]) -> __m512i {
    // SAFETY: the array has the size of the register; the load needs no alignment.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn store(lanes: &mut [u32; LANES], value: __m512i) {
    // SAFETY: the array has the size of the register; the store needs no alignment.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), value) }
}

#[target_feature(enable = "avx512f")]
fn constant(word: u32) -> __m512i {
    _mm512_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx512f")]
fn add(a: __m512i, b: __m512i) -> __m512i {
    _mm512_add_epi32(a, b)
}

#[target_feature(enable = "avx512f")]
fn xor(a: __m512i, b: __m512i) -> __m512i {
    _mm512_xor_si512(a, b)
}

#[target_feature(enable = "avx512f")]
fn rotate_16(a: __m512i) -> __m512i {
    _mm512_ror_epi32::<16>(a)
}

#[target_feature(enable = "avx512f")]
fn rotate_12(a: __m512i) -> __m512i {
    _mm512_ror_epi32::<12>(a)
}

#[target_feature(enable = "avx512f")]
fn rotate_8(a: __m512i) -> __m512i {
    _mm512_ror_epi32::<8>(a)
}

#[target_feature(enable = "avx512f")]
fn rotate_7(a: __m512i) -> __m512i {
    _mm512_ror_epi32::<7>(a)
}
