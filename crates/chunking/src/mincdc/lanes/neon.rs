//! The search with NEON: registers of four words. Every 64-bit ARM processor has it, so nothing is
//! detected.
#![expect(unsafe_code, reason = "vector loads take pointers, and the features are those of the caller")]

use std::arch::aarch64::{
    uint32x4_t, vandq_u32, vbslq_u32, vceqq_u32, vcleq_u32, vdupq_n_u32, vld1q_u8, vmaxvq_u32, vminq_u32, vminvq_u32,
    vreinterpretq_u32_u8, vst1q_u32,
};

use super::WORD;

/// Words of a register.
const LANES: usize = 4;

/// Positions that four loads cover.
const SPAN: usize = LANES * WORD;

/// Positions between two comparisons with the lanes' minima.
pub(in crate::mincdc) const GROUP: usize = 2 * SPAN;

/// Where the loads of a group begin.
const LOADS: [usize; 8] = [0, 1, 2, 3, SPAN, SPAN + 1, SPAN + 2, SPAN + 3];

/// The words at `at`, `at + 4`, ... of the group.
#[target_feature(enable = "neon")]
#[inline]
pub(in crate::mincdc) fn words<const GROUP_BYTES: usize>(group: &[u8; GROUP_BYTES], at: usize) -> uint32x4_t {
    let words = &group[at..at + SPAN];
    // SAFETY: `words` holds the 16 bytes that are loaded; a load of bytes needs no alignment.
    vreinterpretq_u32_u8(unsafe { vld1q_u8(words.as_ptr()) })
}

/// Position of the last smallest hash. `bytes` holds at least one group. `hashes` gives those of
/// the windows at a position of the group, and every fourth from there.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
pub(in crate::mincdc) unsafe fn last_smallest<const GROUP_BYTES: usize>(
    bytes: &[u8],
    hashes: impl Fn(&[u8; GROUP_BYTES], usize) -> uint32x4_t,
) -> usize {
    // SAFETY: the caller vouches for NEON.
    unsafe {
        let last_start = bytes.len() - GROUP_BYTES;
        let mut smallest = vdupq_n_u32(u32::MAX);
        let mut reached_in = vdupq_n_u32(0);
        let mut start = 0;
        loop {
            let group = group_at(bytes, start);
            let mut low = vdupq_n_u32(u32::MAX);
            for at in 0..WORD {
                low = vminq_u32(low, vminq_u32(hashes(group, at), hashes(group, SPAN + at)));
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
            let equal = to_array(vceqq_u32(hashes(group, at), value));
            if let Some(lane) = equal.iter().rposition(|&lane| lane != 0) {
                last = last.max(at + WORD * lane);
            }
        }
        start + last
    }
}

fn group_at<const GROUP_BYTES: usize>(bytes: &[u8], start: usize) -> &[u8; GROUP_BYTES] {
    bytes[start..].first_chunk().expect("groups start so that they end within the slice")
}

#[target_feature(enable = "neon")]
#[inline]
fn to_array(lanes: uint32x4_t) -> [u32; LANES] {
    let mut values = [0; LANES];
    // SAFETY: the array has the size of the register.
    unsafe { vst1q_u32(values.as_mut_ptr(), lanes) };
    values
}
