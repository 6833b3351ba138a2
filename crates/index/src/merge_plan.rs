//! Merging runs, so that few are left to look into.
//!
//! Which runs are merged is decided by size: an age is left alone when all newer ones together are
//! small beside it. So every record is rewritten a number of times that grows with the logarithm of
//! the table, and so does the number of ages.
//!
//! A merge may be of a part of the keys. The references to merged parts then shrink: an object
//! stays until no part of it counts any more.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;

use larder_format::index_manifest::{RunRef, Table};

use crate::error::IndexError;
use crate::merge::{Merge, Tombstones};
use crate::partition::{in_parallel, partitions};
use crate::pass::IndexPass;
use crate::scan::{Readahead, RunScan};
use crate::writer::RunWriter;

/// An age that has at least this multiple of the bytes of all newer ones together is not merged
/// with them.
pub const TIER_RATIO: u64 = 3;

/// Which ages of a table are to be merged: consecutive ones, and no newer ones beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergePlan {
    /// The ages, newest first; at least two.
    pub ages: Vec<u64>,
    /// Bytes of their objects.
    pub bytes: u64,
    /// Whether there are no older ones, so that tombstones have done their work.
    pub is_full: bool,
}

impl MergePlan {
    /// Decides what to merge of a table's runs, if anything.
    pub fn plan(runs: &[RunRef]) -> Option<Self> {
        let ages = ages(runs);
        let mut taken = 0;
        let mut bytes = 0u64;
        for (age_bytes, _) in &ages {
            if taken > 0 && *age_bytes >= bytes.saturating_mul(TIER_RATIO) {
                break;
            }
            bytes += age_bytes;
            taken += 1;
        }
        Self::of(&ages, taken)
    }

    /// The newest `count` ages.
    pub fn newest(runs: &[RunRef], count: usize) -> Option<Self> {
        let ages = ages(runs);
        Self::of(&ages, count.min(ages.len()))
    }

    /// All ages at once.
    pub fn full(runs: &[RunRef]) -> Option<Self> {
        let ages = ages(runs);
        Self::of(&ages, ages.len())
    }

    fn of(ages: &[(u64, u64)], taken: usize) -> Option<Self> {
        (taken > 1).then(|| Self {
            ages: ages[..taken].iter().map(|(_, age)| *age).collect(),
            bytes: ages[..taken].iter().map(|(bytes, _)| bytes).sum(),
            is_full: taken == ages.len(),
        })
    }
}

/// Bytes and number of each age, newest first.
fn ages(runs: &[RunRef]) -> Vec<(u64, u64)> {
    let mut ages: Vec<(u64, u64)> = Vec::new();
    let mut sorted: Vec<&RunRef> = runs.iter().collect();
    sorted.sort_unstable_by_key(|run| std::cmp::Reverse(run.age));
    for run in sorted {
        match ages.last_mut() {
            Some((bytes, age)) if *age == run.age => *bytes += run.object_bytes,
            _ => ages.push((run.object_bytes, run.age)),
        }
    }
    ages
}

/// Merges the runs of a plan, for the keys with prefixes in `range`, in threads. Returns the
/// table's runs as they are then. The new ones have the highest of the merged ages.
pub(crate) fn merge_runs(
    pass: &IndexPass,
    table: Table,
    runs: &[RunRef],
    plan: &MergePlan,
    range: RangeInclusive<u64>,
) -> Result<Vec<RunRef>, IndexError> {
    let IndexPass { io, ids, threads, memory, object_target, .. } = pass;
    let (threads, memory, target) = (*threads, *memory, *object_target);
    let age = plan.ages.iter().copied().max().unwrap_or(0);
    let (merged, mut left): (Vec<RunRef>, Vec<RunRef>) = runs.iter().partition(|run| plan.ages.contains(&run.age));
    let clip = |part: &RangeInclusive<u64>| {
        let (first, last) = (*part.start().max(range.start()), *part.end().min(range.end()));
        (first <= last).then_some(first..=last)
    };
    let parts: Vec<_> = partitions(&merged, threads.saturating_mul(PARTS_A_THREAD)).iter().filter_map(clip).collect();
    let tombstones = if plan.is_full { Tombstones::Drop } else { Tombstones::Keep };
    let readahead = Readahead::within(memory / threads, plan.ages.len());
    let written = in_parallel(threads, parts, |part| {
        let scan = |age: &u64| {
            let mut runs: Vec<RunRef> = merged.iter().filter(|run| run.age == *age).copied().collect();
            runs.sort_unstable_by_key(|run| run.first);
            RunScan::new(io, &runs, part.clone(), readahead)
        };
        let mut merge = Merge::new(plan.ages.iter().map(scan).collect(), tombstones);
        let mut writer = RunWriter::new(io, ids, table, age, target);
        writer.push_all(&mut merge)?;
        writer.finish()
    })?;
    left.extend(merged.iter().flat_map(|run| outside(run, &range)));
    left.extend(written.into_iter().flatten());
    left.sort_by_key(|run| (run.table, run.age, run.first));
    Ok(left)
}

/// Partitions that a thread has on average: so that none waits long for the last one.
const PARTS_A_THREAD: NonZeroUsize = NonZeroUsize::new(2).expect("not 0");

/// The rest of a reference when a range of prefixes does not count any more.
fn outside(run: &RunRef, range: &RangeInclusive<u64>) -> impl Iterator<Item = RunRef> + use<> {
    let below = range.start().checked_sub(1).map(|last| RunRef { last: last.min(run.last), ..*run });
    let above = range.end().checked_add(1).map(|first| RunRef { first: first.max(run.first), ..*run });
    [below, above].into_iter().flatten().filter(|run| run.first <= run.last)
}

#[cfg(test)]
mod tests {
    use larder_format::ids::{JobId, RunId};
    use proptest::prelude::*;

    use super::*;

    fn run(age: u64, bytes: u64) -> RunRef {
        RunRef {
            table: Table::Chunks,
            age,
            id: RunId { job: JobId([0; 16]), seq: 0 },
            first: 0,
            last: u64::MAX,
            records: 1,
            tombstones: 0,
            object_bytes: bytes,
            tail_bytes: 1,
            filter_bytes: 0,
        }
    }

    fn planned(runs: &[(u64, u64)]) -> Option<(Vec<u64>, bool)> {
        let runs: Vec<_> = runs.iter().map(|(age, bytes)| run(*age, *bytes)).collect();
        MergePlan::plan(&runs).map(|plan| (plan.ages, plan.is_full))
    }

    #[test]
    fn small_ages_are_merged_and_large_ones_left_alone() {
        assert_eq!(planned(&[]), None);
        assert_eq!(planned(&[(1, 10)]), None);
        assert_eq!(planned(&[(1, 100), (2, 10)]), None);
        assert_eq!(planned(&[(1, 100), (2, 10), (3, 10)]), Some((vec![3, 2], false)));
        assert_eq!(planned(&[(1, 100), (2, 40), (3, 10), (4, 10)]), Some((vec![4, 3, 2, 1], true)));
        // Objects of one age count together.
        assert_eq!(planned(&[(1, 10), (1, 10), (1, 10), (2, 10)]), None);
    }

    #[test]
    fn a_range_in_the_middle_leaves_both_ends() {
        let ends = |first, last, range| {
            let run = RunRef { first, last, ..run(1, 1) };
            outside(&run, &range).map(|run| (run.first, run.last)).collect::<Vec<_>>()
        };
        assert_eq!(ends(10, 20, 12..=15), [(10, 11), (16, 20)]);
        assert_eq!(ends(10, 20, 0..=u64::MAX), []);
        assert_eq!(ends(10, 20, 10..=20), []);
        assert_eq!(ends(10, 20, 0..=9), [(10, 20)]);
        assert_eq!(ends(10, 20, 21..=u64::MAX), [(10, 20)]);
        assert_eq!(ends(0, u64::MAX, 0..=5), [(6, u64::MAX)]);
    }

    proptest! {
        /// As passes go: each adds a run and merges. The number of ages stays logarithmic, and so
        /// does the rewriting.
        #[test]
        fn ages_stay_few_and_rewriting_cheap(sizes in prop::collection::vec(1u64..1000, 1..300)) {
            let mut runs: Vec<RunRef> = Vec::new();
            let (mut written, mut added) = (0, 0);
            for (age, bytes) in sizes.into_iter().enumerate() {
                runs.push(run(age as u64, bytes));
                added += bytes;
                if let Some(plan) = MergePlan::plan(&runs) {
                    runs.retain(|run| !plan.ages.contains(&run.age));
                    runs.push(run(age as u64, plan.bytes));
                    written += plan.bytes;
                }
                prop_assert!(runs.len() <= 2 + added.ilog(TIER_RATIO) as usize);
            }
            prop_assert!(written <= added * 24, "{} {}", written, added);
        }
    }
}
