//! The order with VAES on AVX-512: sixteen hashes an instruction.
#![expect(unsafe_code, reason = "vector loads take pointers, and calling code for a detected CPU feature is unsafe")]

use std::arch::x86_64::{
    _mm_loadu_si128, _mm512_aesenc_epi128, _mm512_broadcast_i32x4, _mm512_set1_epi32, _mm512_shuffle_epi8,
    _mm512_xor_si512,
};

use super::{Cipher, SECOND, UNSHIFT, WINDOW};
use crate::mincdc::lanes::avx512::{GROUP, last_smallest, words};
use crate::mincdc::order::reference;

/// Bytes that a group's windows reach over.
const GROUP_BYTES: usize = GROUP + WINDOW - 1;

/// Proof that the machine has the instructions. Only [`Available::detect`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available(());

impl Available {
    pub(super) fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("vaes");
        has_all.then_some(Self(()))
    }

    pub(super) fn last_smallest(self, bytes: &[u8], order: Cipher) -> usize {
        if bytes.len() < GROUP_BYTES {
            return reference(&order, bytes);
        }
        // SAFETY: `self` exists only where all three features were detected.
        unsafe { search(bytes, order) }
    }
}

/// `bytes` holds at least one group.
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn search(bytes: &[u8], order: Cipher) -> usize {
    // SAFETY: the array holds the 16 bytes that are loaded; the load needs no alignment.
    let unshift = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(UNSHIFT.as_ptr().cast()) });
    let key = |number: usize| _mm512_set1_epi32(order.keys[number].cast_signed());
    let [k0, k1, k2, k3, k4, k5, k6] = [key(0), key(1), key(2), key(3), key(4), key(5), key(6)];
    let hashes = |group: &[u8; GROUP_BYTES], at: usize| {
        let a = _mm512_xor_si512(words(group, at), k0);
        let b = _mm512_xor_si512(words(group, at + SECOND), k1);
        let mut s = _mm512_aesenc_epi128(_mm512_shuffle_epi8(a, unshift), b);
        for key in [k2, k3, k4, k5, k6] {
            s = _mm512_aesenc_epi128(_mm512_shuffle_epi8(s, unshift), key);
        }
        s
    };
    // SAFETY: this function has the feature.
    unsafe { last_smallest::<GROUP_BYTES>(bytes, hashes) }
}
