//! Cutting a table into ranges of keys that can be worked on apart, and working on them in threads.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Builder;

use larder_format::index_manifest::RunRef;
use parking_lot::Mutex;

/// Cuts the keys of a table into at most `count` ranges of prefixes with about equal numbers of
/// bytes. They cover everything. Borders are where objects of the largest age begin, so a table of
/// few objects has few partitions.
pub fn partitions(runs: &[RunRef], count: NonZeroUsize) -> Vec<RangeInclusive<u64>> {
    let mut bytes_of: BTreeMap<u64, u64> = BTreeMap::new();
    for run in runs {
        *bytes_of.entry(run.age).or_default() += run.object_bytes;
    }
    let largest = bytes_of.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(age, _)| age);
    let mut objects: Vec<(u64, u64)> =
        runs.iter().filter(|run| Some(run.age) == largest).map(|run| (run.first, run.object_bytes)).collect();
    objects.sort_unstable();
    let total: u128 = objects.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    let mut partitions = Vec::new();
    let (mut first, mut before) = (0u64, 0u128);
    for (border, bytes) in objects {
        let is_due = before * count.get() as u128 >= total * (partitions.len() as u128 + 1);
        if is_due && border > first && partitions.len() + 1 < count.get() {
            partitions.push(first..=border - 1);
            first = border;
        }
        before += u128::from(bytes);
    }
    partitions.push(first..=u64::MAX);
    partitions
}

/// Does `work` for every item on at most this number of threads; the results are in the order of
/// the items. After a failure no further item is begun, and the failure of the lowest item that
/// failed is returned.
pub fn in_parallel<I: Send, T: Send, E: Send>(
    threads: NonZeroUsize,
    items: Vec<I>,
    work: impl Fn(I) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Vec<Mutex<Option<Result<T, E>>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let items: Vec<Mutex<Option<I>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let run = || {
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number).and_then(|item| item.lock().take()) else { break };
            let result = work(item);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            *results[number].lock() = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(items.len()) {
            // A thread that cannot be started leaves fewer; this one works in any case.
            if Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    // Items are begun in order, so those without a result come behind one that failed.
    results.into_iter().filter_map(Mutex::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use larder_format::ids::{JobId, RunId};
    use larder_format::index_manifest::Table;
    use proptest::prelude::*;

    use super::*;

    fn run(first: u64, bytes: u64) -> RunRef {
        RunRef {
            table: Table::Chunks,
            age: 0,
            id: RunId { job: JobId([0; 16]), seq: 0 },
            first,
            last: u64::MAX,
            records: 1,
            tombstones: 0,
            object_bytes: bytes,
            tail_bytes: 1,
            filter_bytes: 0,
        }
    }

    fn count(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).expect("not 0")
    }

    #[test]
    fn partitions_of_even_runs_are_even() {
        let runs: Vec<_> = (0..100).map(|n| run(n * 1000, 8)).collect();
        let firsts: Vec<u64> = partitions(&runs, count(4)).iter().map(|range| *range.start()).collect();
        assert_eq!(firsts, [0, 25_000, 50_000, 75_000]);
        assert_eq!(partitions(&[], count(4)), [0..=u64::MAX]);
        assert_eq!(partitions(&runs[..1], count(4)), [0..=u64::MAX]);
    }

    #[test]
    fn work_is_done_once_and_in_the_order_of_items() {
        let items: Vec<usize> = (0..100).collect();
        for threads in [1, 3] {
            let doubled = in_parallel(count(threads), items.clone(), |n| Ok::<_, ()>(n * 2));
            assert_eq!(doubled, Ok((0..100).map(|n| n * 2).collect()));
            let failed = in_parallel(count(threads), items.clone(), |n| if n == 50 { Err(n) } else { Ok(()) });
            assert_eq!(failed, Err(50));
        }
        assert_eq!(in_parallel(count(2), Vec::new(), |()| Ok::<_, ()>(())), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn partitions_cover_everything_once(
            runs in prop::collection::vec((any::<u64>(), 1u64..1 << 40), 0..50), parts in 1usize..9,
        ) {
            let runs: Vec<_> = runs.into_iter().map(|(first, bytes)| run(first, bytes)).collect();
            let ranges = partitions(&runs, count(parts));
            prop_assert!(ranges.len() <= parts);
            let mut next = Some(0);
            for range in ranges {
                prop_assert_eq!(Some(*range.start()), next);
                prop_assert!(range.start() <= range.end());
                next = range.end().checked_add(1);
            }
            prop_assert_eq!(next, None);
        }
    }
}
