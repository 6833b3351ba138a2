//! Whatever is written, merged and split, the tables hold what a sorted map holds: scans, lookups and prefixes agree with it.

use std::ops::RangeInclusive;

use crate::support::*;
use larder_format::ids::ByteCount;
use larder_format::index_manifest::{RunRef, Table};
use larder_format::run::prefix;
use larder_index::{Cursor, LookupOptions, MergePlan, SortedLookup, Tombstones, verify_run};
use larder_store::CacheOptions;
use proptest::prelude::*;

/// What happens to a table.
#[derive(Debug, Clone)]
enum Step {
    /// A run of these changes: number of the key, and its value unless it is removed.
    Write(Vec<(u16, Option<u8>)>),
    /// Runs are merged as a plan says, for a part of the keys.
    Merge { first: u64, last: u64 },
    /// The newest runs are merged, whatever their size.
    MergeNewest(usize),
    /// All runs are merged.
    MergeAll,
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0u16..400, prop::option::weighted(0.8, any::<u8>()));
    prop_oneof![
        4 => prop::collection::vec(change, 1..120).prop_map(Step::Write),
        1 => any::<(u64, u64)>().prop_map(|(a, b)| Step::Merge { first: a.min(b), last: a.max(b) }),
        1 => Just(Step::Merge { first: 0, last: u64::MAX }),
        2 => (2usize..4).prop_map(Step::MergeNewest),
        1 => Just(Step::MergeAll),
    ]
}

fn key(table: Table, number: u16) -> Vec<u8> {
    match table {
        // Some share their first 8 bytes.
        Table::Chunks => {
            let mut key = chunk_key(u64::from(number / 3));
            key[10] ^= (number % 3) as u8;
            key
        }
        Table::Containers => u32::from(number).to_be_bytes().to_vec(),
        Table::Extents => [&u64::from(number / 4).to_be_bytes()[..], &[number as u8 % 4; 13]].concat(),
        Table::Streams | Table::Copies => [&u64::from(number / 4).to_be_bytes()[..], &[number as u8 % 4; 16]].concat(),
    }
}

fn value(table: Table, value: u8) -> Vec<u8> {
    match table {
        Table::Chunks => vec![value; 8],
        Table::Containers | Table::Extents => vec![value; usize::from(value)],
        Table::Streams | Table::Copies => vec![value; 4],
    }
}

const TARGET: ByteCount = ByteCount(1200);

fn merged(engine: &Engine, table: Table, runs: &[RunRef], plan: &MergePlan, range: RangeInclusive<u64>) -> Vec<RunRef> {
    let mut draft = engine.draft(runs);
    draft.merge_planned(table, plan, range).expect("can be merged");
    let left: Vec<_> = draft.manifest.runs.iter().map(|run| run.id).collect();
    let given_up = draft.superseded();
    assert!(runs.iter().all(|run| left.contains(&run.id) != given_up.contains(&run.id)));
    draft.manifest.runs
}

fn agrees(engine: &Engine, table: Table, runs: &[RunRef], oracle: &Oracle, probes: RangeInclusive<u64>) {
    let living = living(oracle);
    let all = collect(&mut engine.scan(runs, 0..=u64::MAX, Tombstones::Drop));
    assert_eq!(crate::support::living(&all), living);
    assert_eq!(all.len(), living.len(), "no tombstone is passed on");
    let part: Oracle = all.into_iter().filter(|(key, _)| probes.contains(&prefix(key))).collect();
    assert_eq!(collect(&mut engine.scan(runs, probes, Tombstones::Drop)), part);
    let mut keys: Vec<Vec<u8>> = (0..420).map(|number| key(table, number)).collect();
    keys.sort();
    // The same key twice is two questions.
    keys.insert(7, keys[7].clone());
    let wanted: Vec<_> = keys.iter().map(|key| living.get(key).cloned()).collect();
    let reader = engine.reader(runs, LookupOptions { span: 100, gap: 50, ..LookupOptions::default() });
    for _ in 0..2 {
        assert_eq!(engine.lookup(&reader, &keys).expect("can be read"), wanted);
    }
    let mut prefixes = [0, 5, 6, 80, 417].map(|number| prefix(&key(table, number)));
    prefixes.sort();
    let of_prefixes = living.iter().filter(|(key, _)| prefixes.contains(&prefix(key)));
    let wanted: Vec<_> = of_prefixes.map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(engine.runtime.block_on(reader.with_prefixes(&prefixes)).expect("can be read"), wanted);
    for run in runs {
        engine.runtime.block_on(verify_run(&engine.io.repository, run)).expect("whole");
    }
}

fn follows_the_oracle(table: Table, steps: Vec<Step>, probes: RangeInclusive<u64>) {
    let engine = Engine::with(1 << 20, TARGET);
    let (mut runs, mut oracle, mut age) = (Vec::new(), Oracle::new(), 0);
    for step in steps {
        match step {
            Step::Write(changes) => {
                let changes: Oracle = changes
                    .into_iter()
                    .map(|(number, to)| (key(table, number), to.map(|to| value(table, to))))
                    .collect();
                runs.extend(engine.write(table, age, TARGET, &changes));
                oracle.extend(changes);
                age += 1;
            }
            Step::Merge { first, last } => {
                if let Some(plan) = MergePlan::plan(&runs) {
                    runs = merged(&engine, table, &runs, &plan, first..=last);
                }
            }
            Step::MergeNewest(count) => {
                if let Some(plan) = MergePlan::newest(&runs, count) {
                    runs = merged(&engine, table, &runs, &plan, 0..=u64::MAX);
                }
            }
            Step::MergeAll => {
                if let Some(plan) = MergePlan::full(&runs) {
                    runs = merged(&engine, table, &runs, &plan, 0..=u64::MAX);
                    assert_eq!(runs.iter().map(|run| run.tombstones).sum::<u64>(), 0);
                }
            }
        }
    }
    let mut manifest = manifest(1);
    manifest.head.number = 1;
    manifest.head.next_age = age;
    manifest.runs = runs.clone();
    manifest.sort();
    manifest.encode(engine.io.repository.keys(), [0; 32]).expect("a manifest can hold these runs");
    agrees(&engine, table, &runs, &oracle, probes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn tables_hold_what_a_sorted_map_holds(
        table in prop::sample::select(Table::ALL.to_vec()),
        steps in prop::collection::vec(step(), 1..12),
        probes: (u64, u64),
    ) {
        let probes = match table {
            Table::Chunks => probes.0.min(probes.1)..=probes.0.max(probes.1),
            Table::Streams | Table::Copies => (probes.0 % 110)..=(probes.0 % 110 + probes.1 % 30),
            _ => (probes.0 % 300) << 32..=(probes.0 % 300 + probes.1 % 100) << 32,
        };
        follows_the_oracle(table, steps, probes);
    }
}

/// Objects of many blocks, more keys than one batch, several threads.
#[test]
fn large_tables_hold_what_a_sorted_map_holds() {
    let engine = Engine::with(1 << 20, ByteCount::kib(300));
    let (mut runs, mut oracle) = (Vec::new(), Oracle::new());
    for age in 0..4u64 {
        let changes: Oracle = (0..30_000 / (age + 1))
            .map(|n| {
                let value = (n % 7 != age).then(|| [age.to_le_bytes()].concat());
                (chunk_key(n * (age + 1)), value)
            })
            .collect();
        runs.extend(engine.write(Table::Chunks, age, ByteCount::kib(300), &changes));
        oracle.extend(changes);
    }
    let living = living(&oracle);
    let queries: Oracle = (0..40_000).map(|n| (chunk_key(n * 3), Some(n.to_le_bytes().to_vec()))).collect();
    let check = |runs: &[RunRef], budget: usize| {
        let all = collect(&mut engine.scan(runs, 0..=u64::MAX, Tombstones::Drop));
        assert_eq!(crate::support::living(&all), living);
        let reader = engine.reader(runs, LookupOptions::streaming(1 << 20));
        let mut lookup = SortedLookup::new(reader, engine.runtime.handle().clone(), budget);
        let mut asked = Oracle::new();
        let mut cursor = InMemory::new(&queries);
        lookup
            .join(&mut cursor, |key, payload, found| {
                assert_eq!(found, living.get(key).map(Vec::as_slice));
                asked.insert(key.to_vec(), payload.map(<[u8]>::to_vec));
                Ok(())
            })
            .expect("can be read");
        assert_eq!(asked, queries);
        lookup.cost
    };
    let before = check(&runs, 1 << 20);
    check(&runs, 1 << 14);
    let plan = MergePlan::full(&runs).expect("several ages");
    let range = prefix(&chunk_key(5));
    runs = merged(&engine, Table::Chunks, &runs, &plan, 0..=range);
    check(&runs, 1 << 20);
    let plan = MergePlan::full(&runs).expect("several ages");
    runs = merged(&engine, Table::Chunks, &runs, &plan, 0..=u64::MAX);
    assert_eq!(runs.iter().map(|run| run.age).max(), runs.iter().map(|run| run.age).min());
    let after = check(&runs, 1 << 20);
    assert!(after.blocks < before.blocks, "{after:?} {before:?}");
}

/// Keys that are not there cost their filter, and one block in 256.
#[test]
fn absent_keys_read_few_blocks() {
    let engine = Engine::new();
    let records: Oracle = (0..50_000).map(|n| (chunk_key(n), Some(vec![1; 8]))).collect();
    let runs = engine.write(Table::Chunks, 0, ByteCount::mib(8), &records);
    let reader = engine.reader(&runs, LookupOptions::default());
    let mut keys: Vec<_> = (0..100).map(|n| chunk_key(1_000_000 + n)).collect();
    keys.sort();
    let cost = engine.runtime.block_on(reader.lookup(&keys, |_, _| panic!("not there"))).expect("can be read");
    assert!(cost.tails == 1 && cost.blocks <= 4, "{cost:?}");
    let cost = engine.runtime.block_on(reader.lookup(&keys[..1], |_, _| ())).expect("can be read");
    assert_eq!((cost.tails, cost.blocks), (0, 0), "the filter was kept");
    let cost = engine.runtime.block_on(reader.lookup(&[chunk_key(7)], |_, _| ())).expect("can be read");
    assert_eq!((cost.tails, cost.spans, cost.blocks), (0, 1, 1), "one request for a key");
}

/// L-nodes look up keys in tasks of their runtime.
#[test]
fn lookups_can_be_tasks() {
    let engine = Engine::new();
    let records: Oracle = (0..100).map(|n| (chunk_key(n), Some(vec![n as u8; 8]))).collect();
    let reader = engine.reader(&engine.write(Table::Chunks, 0, TARGET, &records), LookupOptions::default());
    let task = engine.runtime.spawn(async move {
        let mut found = Vec::new();
        reader.lookup(&[chunk_key(7)], |_, value| found.extend_from_slice(value)).await.map(|_| found)
    });
    assert_eq!(engine.runtime.block_on(task).expect("ends").expect("can be read"), [7; 8]);
}

#[test]
fn a_cursor_that_has_ended_stays_so() {
    let engine = Engine::new();
    let mut scan = engine.scan(&[], 0..=u64::MAX, Tombstones::Keep);
    assert!(!scan.advance().expect("nothing to read") && !scan.advance().expect("nothing to read"));
}

/// An L-node that begins with what an earlier one left on disk: fences and filters are there, and a key is one ranged read.
#[test]
fn with_a_cache_on_disk_a_key_is_one_request_for_the_next_process_too() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let first = Engine::new();
    let mut runs = Vec::new();
    for age in 0..3 {
        let records: Oracle = (0..20_000).map(|n| (chunk_key(n * 3 + age), Some(vec![age as u8; 8]))).collect();
        runs.extend(first.write(Table::Chunks, age, ByteCount::kib(200), &records));
    }
    assert!(runs.len() > 6, "{} objects", runs.len());
    let counted = |keys: &[Vec<u8>]| {
        let engine =
            Engine::beside(&first.memory, Some(CacheOptions { dir: dir.path().to_owned(), max_bytes: 1 << 30 }));
        let before = engine.faults.count();
        let reader = engine.reader(&runs, LookupOptions::default());
        let found = engine.lookup(&reader, keys).expect("can be read");
        assert!(found.iter().all(Option::is_some));
        engine.faults.count() - before
    };
    let mut all: Vec<_> = (0..60_000).step_by(50).map(chunk_key).collect();
    all.sort();
    assert!(counted(&all) >= 2 * runs.len() as u64);
    for key in [7, 20_000, 59_999] {
        // Filters err for one key in a hundred or so: then a block is read in vain.
        let requests = counted(&[chunk_key(key)]);
        assert!((1..=2).contains(&requests), "{requests} requests for key {key}");
    }
    let requests: u64 = (0..40).map(|n| counted(&[chunk_key(n * 1451)])).sum();
    assert!((40..=44).contains(&requests), "{requests} requests for 40 keys");
}
