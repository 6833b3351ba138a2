//! Rising ranges of bytes, in a list of bounded length.
//!
//! When there are too many, those with short gaps between them are joined. So memory stays small
//! for any fragmentation, and the list covers at least what was added to it.

use std::ops::Range;

/// Ranges that a list may have.
pub(crate) const RANGES_MAX: usize = 1 << 16;

/// Gaps below this length are joined first, when a list is too long (bytes).
const GAP_FIRST: u64 = 8 << 10;

/// See the module header.
#[derive(Debug)]
pub(crate) struct Joined {
    ranges: Vec<Range<u64>>,
    most: usize,
    gap_min: u64,
}

impl Joined {
    /// An empty list for at most this number of ranges, which is not 0.
    pub(crate) fn new(most: usize) -> Self {
        Self { ranges: Vec::new(), most, gap_min: 1 }
    }

    /// Adds a range that begins at or behind the beginning of the last one. An empty one is left
    /// out.
    pub(crate) fn push(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        Self::append(&mut self.ranges, range, self.gap_min);
        while self.ranges.len() > self.most {
            self.gap_min = (self.gap_min * 2).max(GAP_FIRST);
            for range in std::mem::take(&mut self.ranges) {
                Self::append(&mut self.ranges, range, self.gap_min);
            }
        }
    }

    /// Appends a range, or joins it to the last one when the gap between is shorter than `gap_min`.
    fn append(ranges: &mut Vec<Range<u64>>, range: Range<u64>, gap_min: u64) {
        match ranges.last_mut() {
            Some(last) if range.start < last.end.saturating_add(gap_min) => last.end = last.end.max(range.end),
            _ => ranges.push(range),
        }
    }

    /// Whether it covers what was added and nothing else.
    pub(crate) fn is_exact(&self) -> bool {
        self.gap_min <= 1
    }

    /// The ranges: rising, apart from each other.
    pub(crate) fn into_ranges(self) -> Vec<Range<u64>> {
        self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_is_covered_in_order_within_the_limit(
            steps in proptest::collection::vec((0u64..40_000, 0u64..30_000), 0..300), most in 1usize..20
        ) {
            let (mut at, mut added) = (0, Vec::new());
            for (gap, length) in steps {
                at += gap;
                added.push(at..at + length);
            }
            let list = |most| {
                let mut joined = Joined::new(most);
                added.iter().for_each(|range| joined.push(range.clone()));
                joined.into_ranges()
            };
            let (joined, exact) = (list(most), list(usize::MAX));
            prop_assert!(joined.len() <= most);
            prop_assert!(joined.windows(2).all(|pair| pair[0].end < pair[1].start));
            for range in added.iter().filter(|range| !range.is_empty()) {
                prop_assert!(joined.iter().any(|whole| whole.start <= range.start && range.end <= whole.end));
            }
            if exact.len() <= most {
                prop_assert_eq!(joined, exact);
            }
        }
    }
}
