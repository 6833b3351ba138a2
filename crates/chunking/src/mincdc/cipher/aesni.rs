//! The order with AES-NI: four hashes an instruction.
#![expect(unsafe_code, reason = "vector loads take pointers, and calling code for a detected CPU feature is unsafe")]

use std::arch::x86_64::{_mm_aesenc_si128, _mm_loadu_si128, _mm_set1_epi32, _mm_shuffle_epi8, _mm_xor_si128};

use super::{Cipher, SECOND, UNSHIFT, WINDOW};
use crate::mincdc::lanes::sse41::{GROUP, last_smallest, words};
use crate::mincdc::order::reference;

/// Bytes that a group's windows reach over.
const GROUP_BYTES: usize = GROUP + WINDOW - 1;

/// Proof that the machine has the instructions. Only [`Available::detect`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available(());

impl Available {
    pub(super) fn detect() -> Option<Self> {
        let has_all =
            is_x86_feature_detected!("sse4.1") && is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("aes");
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
#[target_feature(enable = "sse4.1,ssse3,aes")]
fn search(bytes: &[u8], order: Cipher) -> usize {
    // SAFETY: the array holds the 16 bytes that are loaded; the load needs no alignment.
    let unshift = unsafe { _mm_loadu_si128(UNSHIFT.as_ptr().cast()) };
    let key = |number: usize| _mm_set1_epi32(order.keys[number].cast_signed());
    let [k0, k1, k2, k3, k4, k5, k6] = [key(0), key(1), key(2), key(3), key(4), key(5), key(6)];
    let hashes = |group: &[u8; GROUP_BYTES], at: usize| {
        let a = _mm_xor_si128(words(group, at), k0);
        let b = _mm_xor_si128(words(group, at + SECOND), k1);
        let mut s = _mm_aesenc_si128(_mm_shuffle_epi8(a, unshift), b);
        for key in [k2, k3, k4, k5, k6] {
            s = _mm_aesenc_si128(_mm_shuffle_epi8(s, unshift), key);
        }
        s
    };
    // SAFETY: this function has the feature.
    unsafe { last_smallest::<GROUP_BYTES>(bytes, hashes) }
}
