//! The order with NEON: four words at once.
#![expect(unsafe_code, reason = "calling code for a CPU feature is unsafe")]

use std::arch::aarch64::{vdupq_n_u32, vmlaq_u32};

use super::{Multiply, WINDOW};
use crate::mincdc::lanes::neon::{GROUP, last_smallest as last_of_lanes, words};
use crate::mincdc::order::reference;

/// Bytes that a group's windows reach over.
const GROUP_BYTES: usize = GROUP + WINDOW - 1;

pub(super) fn last_smallest(bytes: &[u8], order: Multiply) -> usize {
    if bytes.len() < GROUP_BYTES {
        return reference(&order, bytes);
    }
    // SAFETY: NEON belongs to the base of this architecture.
    unsafe { search(bytes, order) }
}

/// `bytes` holds at least one group.
#[target_feature(enable = "neon")]
fn search(bytes: &[u8], order: Multiply) -> usize {
    let multiplier = vdupq_n_u32(order.multiplier);
    let addend = vdupq_n_u32(order.addend);
    let hashes = |group: &[u8; GROUP_BYTES], at: usize| vmlaq_u32(addend, words(group, at), multiplier);
    // SAFETY: this function has the feature.
    unsafe { last_of_lanes::<GROUP_BYTES>(bytes, hashes) }
}
