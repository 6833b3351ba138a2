//! The search of the vector kernels, one file for each width of registers. An order only computes
//! hashes.
//!
//! Window positions are taken in groups, one after the other. A register loaded at the group's
//! start holds the words at positions 0, 4, 8, .... Loaded one, two and three bytes later, it holds
//! those in between. So four loads give every word of the group without a shuffle. An order with
//! windows of two words loads the second ones four bytes later. For each group, only the smallest
//! hash of each lane is kept, and for each lane the start of the last group that reached it. So
//! there is one comparison a group instead of one a position. At the end, the smallest hash of all
//! lanes is known, and the greatest group start among the lanes that hold it. The last position is
//! then found in that one group. The last group is moved back to end with the slice; positions that
//! are seen twice do no harm.
//!
//! The constant `GROUP_BYTES` of a search is the bytes that a group's windows reach over: `GROUP`
//! and the bytes of a window but one. The order gives it, and takes the reference for shorter
//! slices.
//!
//! The searches are inlined into functions that have the features of their order, which may be more
//! than the search needs. A function of its own with fewer features could not inline the hashes.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
#[cfg(target_arch = "x86_64")]
pub(super) mod sse41;

/// Bytes from one lane to the next.
const WORD: usize = 4;

/// How far ahead of the search bytes are asked for.
#[cfg(target_arch = "x86_64")]
const PREFETCH: usize = 2048;
