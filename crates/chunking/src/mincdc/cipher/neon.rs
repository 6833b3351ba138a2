//! The order with the AES instructions of ARM: four hashes in two instructions.
//!
//! ARM's instruction adds the key before the S-box, where x86 adds it behind MixColumns. So each
//! round takes the key that the round before has on x86.
#![expect(unsafe_code, reason = "vector loads take pointers, and calling code for a detected CPU feature is unsafe")]

use std::arch::aarch64::{
    uint8x16_t, vaeseq_u8, vaesmcq_u8, vdupq_n_u32, veorq_u8, vld1q_u8, vqtbl1q_u8, vreinterpretq_u8_u32,
    vreinterpretq_u32_u8,
};

use super::{Cipher, SECOND, UNSHIFT, WINDOW};
use crate::mincdc::lanes::neon::{GROUP, last_smallest, words};
use crate::mincdc::order::reference;

/// Bytes that a group's windows reach over.
const GROUP_BYTES: usize = GROUP + WINDOW - 1;

/// Proof that the machine has the instructions. Only [`Available::detect`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available(());

impl Available {
    pub(super) fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("aes").then_some(Self(()))
    }

    pub(super) fn last_smallest(self, bytes: &[u8], order: Cipher) -> usize {
        if bytes.len() < GROUP_BYTES {
            return reference(&order, bytes);
        }
        // SAFETY: `self` exists only where the AES instructions were detected.
        unsafe { search(bytes, order) }
    }
}

/// `bytes` holds at least one group.
#[target_feature(enable = "neon,aes")]
fn search(bytes: &[u8], order: Cipher) -> usize {
    // SAFETY: the array holds the 16 bytes that are loaded.
    let unshift = unsafe { vld1q_u8(UNSHIFT.as_ptr()) };
    let key = |number: usize| vreinterpretq_u8_u32(vdupq_n_u32(order.keys[number]));
    let [k0, k1, k2, k3, k4, k5, k6] = [key(0), key(1), key(2), key(3), key(4), key(5), key(6)];
    // The same key in all columns is the same wherever ShiftRows moves it.
    let round = |s: uint8x16_t, key: uint8x16_t| vaesmcq_u8(vaeseq_u8(vqtbl1q_u8(s, unshift), key));
    let hashes = |group: &[u8; GROUP_BYTES], at: usize| {
        let a = vreinterpretq_u8_u32(words(group, at));
        let b = vreinterpretq_u8_u32(words(group, at + SECOND));
        let mut s = veorq_u8(round(a, k0), b);
        for key in [k1, k2, k3, k4, k5] {
            s = round(s, key);
        }
        vreinterpretq_u32_u8(veorq_u8(s, k6))
    };
    // SAFETY: this function has the feature.
    unsafe { last_smallest::<GROUP_BYTES>(bytes, hashes) }
}
