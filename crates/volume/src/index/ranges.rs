//! [`Ranges`]: a set of containers, as ranges.

use std::collections::BTreeMap;

use larder_format::volume_manifest::ContainerRange;

/// Containers by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    pub(crate) fn of(ranges: &[ContainerRange]) -> Self {
        Self(ranges.iter().map(|range| (range.first, range.last)).collect())
    }

    /// In order, with others between them.
    pub(crate) fn ranges(&self) -> Vec<ContainerRange> {
        self.0.iter().map(|(first, last)| ContainerRange { first: *first, last: *last }).collect()
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, last)| number <= *last)
    }

    /// Adds one, and joins it with its neighbours.
    pub(crate) fn insert(&mut self, number: u32) {
        if self.contains(number) {
            return;
        }
        let (mut first, mut last) = (number, number);
        if let Some((before, end)) = self.0.range(..number).next_back()
            && end + 1 == number
        {
            first = *before;
        }
        if let Some(end) = number.checked_add(1).and_then(|next| self.0.remove(&next)) {
            last = end;
        }
        self.0.insert(first, last);
    }

    /// How many containers there are.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_are_a_set(numbers in prop::collection::vec(0u32..60, 0..50)) {
            let mut ranges = Ranges::default();
            numbers.iter().for_each(|number| ranges.insert(*number));
            let set: BTreeSet<u32> = numbers.into_iter().collect();
            prop_assert!((0..70).all(|number| ranges.contains(number) == set.contains(&number)));
            prop_assert_eq!(ranges.count(), set.len() as u64);
            let list = ranges.ranges();
            prop_assert!(list.is_sorted_by(|a, b| a.last + 1 < b.first));
            prop_assert_eq!(Ranges::of(&list), ranges);
        }
    }
}
