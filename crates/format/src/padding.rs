//! Lengths of objects: rounded up, so that they do not tell the length of a single chunk.
//!
//! An observer of the store sees lengths. Those of single chunks, compressed or not, are a
//! fingerprint of known contents, whatever key orders the cuts. So lengths grow in steps of at
//! least one chunk:
//!
//! | object                          | its length is a multiple of                                  |
//! |---------------------------------|--------------------------------------------------------------|
//! | container                       | g(L), at least the step that the longest chunk needs         |
//! | manifest of a version           | g(L), at least 4 KiB                                         |
//! | small object (lease, mark, …)   | 512 times a power of two                                     |
//! | index                           | not padded: it follows the number of chunks                  |
//!
//! g(L) = 2^(⌊log2 L⌋ - 6), from the least step to 64 KiB: 0.8 to 1.6 % at most of what is large.

/// The step of the largest objects.
const STEP_MAX: u64 = 64 << 10;
/// Bytes of a container beside the frame of a single chunk: wrap, tables, trailer.
const CONTAINER_EXTRA: u64 = 2 << 10;
/// The least length of a small object.
const SMALL_MIN: u64 = 512;

/// How lengths of objects grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Padding {
    step_min: u64,
}

impl Padding {
    /// For manifests.
    pub(crate) const MANIFEST: Self = Self { step_min: 4 << 10 };

    /// For containers of chunks of at most this many bytes: a container with one chunk more has the
    /// same length or that of one step more.
    pub fn for_chunks(chunk_max: u32) -> Self {
        let needed = (u64::from(chunk_max) + CONTAINER_EXTRA).checked_next_power_of_two();
        Self { step_min: needed.unwrap_or(STEP_MAX).min(STEP_MAX) }
    }

    /// The step at a length.
    fn step(self, len: u64) -> u64 {
        let log = len.max(1).ilog2();
        (1u64 << log.saturating_sub(6)).clamp(self.step_min, STEP_MAX)
    }

    /// The length that an object of `len` bytes gets. If it is not `len`, at least `room` bytes are
    /// added.
    pub fn padded(self, len: u64, room: u64) -> u64 {
        let step = self.step(len);
        let padded = len.next_multiple_of(step);
        if padded == len || padded - len >= room { padded } else { padded + step }
    }

    /// Whether an object may have this length.
    pub fn allows(self, len: u64) -> bool {
        len.is_multiple_of(self.step_min)
    }
}

/// The length that a small object of `len` bytes gets.
pub(crate) fn small(len: u64) -> u64 {
    len.max(SMALL_MIN).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_follow_the_chunks_and_the_length() {
        let default = Padding::for_chunks(6144);
        assert_eq!(default.step_min, 8 << 10);
        assert_eq!(default.padded(1, 32), 8 << 10);
        assert_eq!(default.padded((8 << 10) - 31, 32), 16 << 10, "too little room for a sealed part");
        assert_eq!(default.padded(8 << 20, 32), 8 << 20);
        assert_eq!(default.padded((8 << 20) + 1, 32), (8 << 20) + (64 << 10));
        assert_eq!(Padding::for_chunks(1 << 30).step_min, STEP_MAX);
        assert_eq!((small(0), small(512), small(513)), (512, 512, 1024));
    }

    proptest! {
        #[test]
        fn lengths_are_steps_and_little_is_added(len in 1u64..1 << 34, chunk_max in 64u32..1 << 20) {
            let padding = Padding::for_chunks(chunk_max);
            let padded = padding.padded(len, 32);
            prop_assert!(padded >= len && padding.allows(padded));
            prop_assert!(padded == len || padded - len >= 32);
            prop_assert!(padded - len < 2 * padding.step(len) && padding.step(padded) >= padding.step_min);
            if len > 4 << 20 {
                prop_assert!((padded - len) as f64 <= 0.033 * len as f64);
            }
        }
    }
}
