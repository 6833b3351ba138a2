//! A cache of whole containers that retires the one needed farthest in the future: no other cache of whole containers reads fewer.

use std::collections::{BTreeSet, HashMap};

/// The containers that have to be read, in order, for these accesses with room for so many containers.
pub(super) fn reads(accesses: impl IntoIterator<Item = u32>, slots: usize) -> Vec<u32> {
    let mut runs: Vec<u32> = accesses.into_iter().collect();
    runs.dedup();
    let mut next_use = vec![usize::MAX; runs.len()];
    let mut seen = HashMap::new();
    for (place, container) in runs.iter().enumerate().rev() {
        next_use[place] = seen.insert(*container, place).unwrap_or(usize::MAX);
    }
    let mut cached: HashMap<u32, usize> = HashMap::new();
    let mut order: BTreeSet<(usize, u32)> = BTreeSet::new();
    let mut reads = Vec::new();
    for (container, next) in runs.into_iter().zip(next_use) {
        match cached.insert(container, next) {
            Some(now) => drop(order.remove(&(now, container))),
            None => {
                reads.push(container);
                if cached.len() > slots.max(1)
                    && let Some((_, victim)) = order.pop_last()
                {
                    cached.remove(&victim);
                }
            }
        }
        order.insert((next, container));
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_last_goes_first() {
        assert_eq!(reads([1, 1, 2, 1, 3, 1, 2], 2), [1, 2, 3, 2]);
        assert_eq!(reads([1, 2, 3, 1, 2, 3], 3), [1, 2, 3]);
        assert_eq!(reads([1, 2, 1, 2], 1), [1, 2, 1, 2]);
        assert!(reads([], 1).is_empty());
    }
}
