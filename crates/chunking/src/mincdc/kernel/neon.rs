//! The search with NEON: registers of four words. Every 64-bit ARM processor has it, so nothing is
//! detected.
#![expect(unsafe_code, reason = "vector loads take pointers")]

use super::{HashParams, WORD};
use std::arch::aarch64::{
    uint32x4_t, vandq_u32, vbslq_u32, vceqq_u32, vcleq_u32, vdupq_n_u32, vld1q_u8, vmaxvq_u32, vminq_u32, vminvq_u32,
    vmlaq_u32, vreinterpretq_u32_u8, vst1q_u32,
};

/// Words of a register.
const LANES: usize = 4;

/// Positions that four loads cover.
const SPAN: usize = LANES * WORD;

/// Positions between two comparisons with the lanes' minima.
const GROUP: usize = 2 * SPAN;

/// Bytes that a group's words reach over.
const GROUP_BYTES: usize = GROUP + WORD - 1;

/// Where the loads of a group begin.
const LOADS: [usize; 8] = [0, 1, 2, 3, SPAN, SPAN + 1, SPAN + 2, SPAN + 3];

struct Order {
    multiplier: uint32x4_t,
    addend: uint32x4_t,
}

impl Order {
    #[target_feature(enable = "neon")]
    fn new(hash: HashParams) -> Self {
        Self { multiplier: vdupq_n_u32(hash.multiplier), addend: vdupq_n_u32(hash.addend) }
    }

    /// Hashes of the words at `at`, `at + 4`, ... of the group.
    #[target_feature(enable = "neon")]
    fn hashes(&self, group: &[u8; GROUP_BYTES], at: usize) -> uint32x4_t {
        let words = &group[at..at + SPAN];
        // SAFETY: `words` holds the 16 bytes that are loaded; a load of bytes needs no alignment.
        let words = unsafe { vld1q_u8(words.as_ptr()) };
        vmlaq_u32(self.addend, vreinterpretq_u32_u8(words), self.multiplier)
    }
}

pub(super) fn last_smallest(bytes: &[u8], hash: HashParams) -> usize {
    if bytes.len() < GROUP_BYTES {
        return super::last_smallest(bytes, hash);
    }
    // SAFETY: NEON belongs to the base of this architecture.
    unsafe { search(bytes, hash) }
}

/// `bytes` holds at least one group.
#[target_feature(enable = "neon")]
fn search(bytes: &[u8], hash: HashParams) -> usize {
    let order = Order::new(hash);
    let last_start = bytes.len() - GROUP_BYTES;
    let mut smallest = vdupq_n_u32(u32::MAX);
    let mut reached_in = vdupq_n_u32(0);
    let mut start = 0;
    loop {
        let group = group_at(bytes, start);
        let mut low = order.hashes(group, 0);
        for at in &LOADS[1..] {
            low = vminq_u32(low, order.hashes(group, *at));
        }
        let reached = vcleq_u32(low, smallest);
        smallest = vminq_u32(smallest, low);
        reached_in = vbslq_u32(reached, vdupq_n_u32(start as u32), reached_in);
        if start == last_start {
            break;
        }
        start = (start + GROUP).min(last_start);
    }
    let value = vdupq_n_u32(vminvq_u32(smallest));
    let start = vmaxvq_u32(vandq_u32(vceqq_u32(smallest, value), reached_in)) as usize;
    let group = group_at(bytes, start);
    let mut last = 0;
    for at in LOADS {
        let equal = to_array(vceqq_u32(order.hashes(group, at), value));
        if let Some(lane) = equal.iter().rposition(|&lane| lane != 0) {
            last = last.max(at + WORD * lane);
        }
    }
    start + last
}

fn group_at(bytes: &[u8], start: usize) -> &[u8; GROUP_BYTES] {
    bytes[start..].first_chunk().expect("groups start so that they end within the slice")
}

#[target_feature(enable = "neon")]
fn to_array(lanes: uint32x4_t) -> [u32; LANES] {
    let mut values = [0; LANES];
    // SAFETY: the array has the size of the register.
    unsafe { vst1q_u32(values.as_mut_ptr(), lanes) };
    values
}
