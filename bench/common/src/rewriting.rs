//! The rules of HAR and Capping: of which containers duplicates are stored again.
//!
//! Both as their descriptions and destor have them. HAR (Fu and others, 2014): containers of which the version before used less than half
//! are sparse, the sparsest first, until what that version used of them is 5 % of it; the next version stores again what it would take
//! from them. Capping (Lillibridge and others, 2013): each stretch of 20 MiB of the stream may refer to as many older containers as make
//! 80 MiB. Where chunks lie is the caller's business: `C` is whatever names a container there.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// A container is sparse when less than this share of it is used (percent).
const SPARSE_PERCENT: u64 = 50;
/// Of a version's bytes at most so many percent are expected to be stored again.
const LIMIT_PERCENT: u64 = 5;
/// What Capping looks at at once (bytes of the stream).
pub const CAPPED_BYTES: u64 = 20 << 20;
/// Bytes of older containers that this much may refer to.
const CAP_BYTES: u64 = 80 << 20;

/// The containers that are sparse for HAR.
///
/// `used` says what a version of `version_bytes` uses of each container, every chunk once; `held` what is in it.
pub fn sparse<C: Hash + Ord + Copy>(
    used: &HashMap<C, u64>,
    held: impl Fn(&C) -> u64,
    version_bytes: u64,
) -> HashSet<C> {
    sparse_within(used, held, SPARSE_PERCENT, version_bytes * LIMIT_PERCENT / 100)
}

/// The same with other limits: containers of which less than a share (percent) is used, until what is used of them is this number of bytes.
pub fn sparse_within<C: Hash + Ord + Copy>(
    used: &HashMap<C, u64>,
    held: impl Fn(&C) -> u64,
    percent: u64,
    bytes: u64,
) -> HashSet<C> {
    let is_sparse = |(container, used): &(&C, &u64)| **used * 100 < held(container) * percent;
    let mut sparse: Vec<(C, u64)> =
        used.iter().filter(is_sparse).map(|(container, used)| (*container, *used)).collect();
    sparse.sort_by_key(|(container, used)| (used * 10_000 / held(container).max(1), *container));
    let mut left = bytes;
    let within = sparse.into_iter().map_while(|(container, used)| {
        left = left.checked_sub(used)?;
        Some(container)
    });
    within.collect()
}

/// The older containers that a stretch of the stream may not refer to under Capping. `used` says what it would use of each.
pub fn capped<C: Hash + Ord + Copy>(used: &HashMap<C, u64>, container_bytes: u64) -> HashSet<C> {
    let mut used: Vec<(C, u64)> = used.iter().map(|(container, bytes)| (*container, *bytes)).collect();
    used.sort_by_key(|(container, bytes)| (Reverse(*bytes), *container));
    let cap = (CAP_BYTES / container_bytes).max(1) as usize;
    used.iter().skip(cap).map(|(container, _)| *container).collect()
}

/// The same with a number of bytes that may be stored again, in place of a number of containers.
pub fn capped_within<C: Hash + Ord + Copy>(used: &HashMap<C, u64>, bytes: u64) -> HashSet<C> {
    let mut used: Vec<(C, u64)> = used.iter().map(|(container, bytes)| (*container, *bytes)).collect();
    used.sort_by_key(|(container, bytes)| (*bytes, *container));
    let mut left = bytes;
    let within = used.into_iter().map_while(|(container, bytes)| {
        left = left.checked_sub(bytes)?;
        Some(container)
    });
    within.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sparsest_containers_are_retired_first_and_within_the_limit() {
        // Of 100 each: full, half, and three that are sparse; 5 % of 1,000 is room for two of them.
        let used = HashMap::from([(1, 100), (2, 50), (3, 30), (4, 20), (5, 25)]);
        assert_eq!(sparse(&used, |_| 100, 1000), HashSet::from([4, 5]));
        assert_eq!(sparse(&used, |_| 100, 399), HashSet::new());
        assert_eq!(sparse(&used, |_| 10, 10_000), HashSet::new());
        // With more room, and all but the full one for sparse.
        assert_eq!(sparse_within(&used, |_| 100, 100, 1000), HashSet::from([2, 3, 4, 5]));
        assert_eq!(sparse_within(&used, |_| 100, 100, 44), HashSet::from([4]));
    }

    #[test]
    fn the_containers_that_give_most_are_kept() {
        let used: HashMap<u32, u64> = (0..30).map(|container| (container, u64::from(container))).collect();
        assert_eq!(capped(&used, 4 << 20), (0..10).collect());
        assert_eq!(capped(&used, 8 << 20), (0..20).collect());
        assert_eq!(capped_within(&used, 10), (0..5).collect());
    }
}
