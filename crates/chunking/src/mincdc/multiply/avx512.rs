//! The order with AVX-512: sixteen words at once.
#![expect(unsafe_code, reason = "calling code for a detected CPU feature is unsafe")]

use std::arch::x86_64::{_mm512_add_epi32, _mm512_mullo_epi32, _mm512_set1_epi32};

use super::{Multiply, WINDOW};
use crate::mincdc::lanes::avx512::{GROUP, last_smallest, words};
use crate::mincdc::order::reference;

/// Bytes that a group's windows reach over.
const GROUP_BYTES: usize = GROUP + WINDOW - 1;

/// Proof that the machine has the instructions. Only [`Available::detect`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available(());

impl Available {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }

    pub(super) fn last_smallest(self, bytes: &[u8], order: Multiply) -> usize {
        if bytes.len() < GROUP_BYTES {
            return reference(&order, bytes);
        }
        // SAFETY: `self` exists only where AVX-512 was detected.
        unsafe { search(bytes, order) }
    }
}

/// `bytes` holds at least one group.
#[target_feature(enable = "avx512f")]
fn search(bytes: &[u8], order: Multiply) -> usize {
    let multiplier = _mm512_set1_epi32(order.multiplier.cast_signed());
    let addend = _mm512_set1_epi32(order.addend.cast_signed());
    let hashes = |group: &[u8; GROUP_BYTES], at: usize| {
        _mm512_add_epi32(_mm512_mullo_epi32(words(group, at), multiplier), addend)
    };
    // SAFETY: this function has the feature.
    unsafe { last_smallest::<GROUP_BYTES>(bytes, hashes) }
}
