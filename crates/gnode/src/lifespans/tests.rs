//! The records of containers against oracles, and the same with little memory as with plenty.

use std::collections::BTreeMap;
use std::env::temp_dir;

use larder_format::ids::JobId;
use proptest::prelude::*;

use super::containers::RECORD_BYTES;
use super::*;

/// Memory for millions of records.
const PLENTY: usize = 1 << 30;

fn usage(seq: u32) -> ContainerUsage {
    usage_of(1, seq)
}

fn usage_of(job: u8, seq: u32) -> ContainerUsage {
    let container = ContainerId { kind: ContainerKind::Data, job: JobId([job; 16]), seq };
    ContainerUsage { container, chunks_used: 1, bytes_used: 1, chunks_held: 1, bytes_held: 1, object_bytes: 1 }
}

fn used(lifespans: &Lifespans, retained: &Numbers) -> Vec<ContainerId> {
    let used = lifespans.used(retained, &HashSet::new()).expect("read");
    used.map(|used| used.map(|(_, id)| id)).collect::<io::Result<_>>().expect("read")
}

fn all(lifespans: &Lifespans) -> Vec<(u32, ContainerFacts)> {
    lifespans.all().collect::<io::Result<_>>().expect("read")
}

fn changes(lifespans: &Lifespans) -> Vec<(u32, Option<ContainerFacts>)> {
    lifespans.changes().collect::<io::Result<_>>().expect("read")
}

/// Versions of two series with their containers; in between some are forgotten, and the records
/// pruned and written and read.
#[derive(Debug, Clone)]
enum Step {
    Ingest(u8, Vec<u32>),
    Forget(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..2, proptest::collection::btree_set(0u32..12, 0..8))
            .prop_map(|(series, seqs)| Step::Ingest(series, seqs.into_iter().collect())),
        3 => (0usize..8).prop_map(Step::Forget),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    /// The oracle is the list of versions with their container tables.
    #[test]
    fn exactly_what_retained_versions_use_is_used(
        steps in proptest::collection::vec(step(), 0..40),
        memory in prop_oneof![Just(0), Just(PLENTY)],
    ) {
        let mut lifespans = Lifespans::new(0, &temp_dir(), memory);
        let mut versions: Vec<(SeriesKey, u32, Vec<u32>)> = Vec::new();
        let mut stored: BTreeMap<u32, ContainerFacts> = BTreeMap::new();
        let mut next = 1;
        for step in steps {
            match step {
                Step::Ingest(series, seqs) => {
                    let series = SeriesKey([series; 16]);
                    let table: Vec<_> = seqs.iter().map(|seq| usage(*seq)).collect();
                    lifespans.ingest(series, next, &table, Layout::Standard).expect("numbers are left");
                    versions.push((series, next, seqs));
                    next += 1;
                }
                Step::Forget(place) if !versions.is_empty() => drop(versions.remove(place % versions.len())),
                Step::Forget(_) => {}
                Step::Reopen => {
                    for (number, facts) in changes(&lifespans) {
                        match facts {
                            Some(facts) => drop(stored.insert(number, facts)),
                            None => drop(stored.remove(&number)),
                        }
                    }
                    prop_assert!(stored.clone().into_iter().eq(all(&lifespans)));
                    lifespans = Lifespans::new(lifespans.next_container(), &temp_dir(), memory);
                    for (number, facts) in &stored {
                        lifespans.push(*number, facts).expect("there is room");
                    }
                    lifespans.sort().expect("sorted");
                }
            }
            let mut retained = Numbers::new();
            for (series, number, _) in &versions {
                retained.entry(*series).or_default().insert(*number);
            }
            let expected: BTreeSet<u32> = versions.iter().flat_map(|(.., seqs)| seqs.iter().copied()).collect();
            let seqs: BTreeSet<u32> = used(&lifespans, &retained).into_iter().map(|id| id.seq).collect();
            prop_assert_eq!(seqs, expected.clone());
            let dropped = lifespans.prune(&retained, &HashSet::new(), &|_| true).expect("written").all();
            prop_assert!(dropped.iter().all(|container| !expected.contains(&container.id.seq)));
            prop_assert_eq!(lifespans.len(), expected.len() as u64);
            for (number, facts) in all(&lifespans) {
                facts.encode(&mut Vec::new()).expect("is valid");
                prop_assert!(lifespans.has(&facts.id).expect("read"));
                prop_assert!(lifespans.table.find_number(number).expect("read").is_some());
            }
            prop_assert!(dropped.iter().all(|container| !lifespans.has(&container.id).expect("read")));
        }
    }
}

/// The records of a series with this number of versions. Every version added this number of
/// containers, and the next twenty versions use every fourth container. Every hundredth was
/// retired, and forwards to the one after it.
fn history(versions: u32, containers: u32) -> impl Iterator<Item = (u32, ContainerFacts)> {
    (0..versions).flat_map(move |version| {
        (0..containers).map(move |seq| {
            let last = (seq % 4 > 0 || version + 20 < versions).then_some(version + if seq % 4 > 0 { 0 } else { 20 });
            let lifespans = vec![Lifespan { first: version + 1, last: last.map(|last| last + 1) }];
            let number = version * containers + seq;
            let is_gone = number.is_multiple_of(100);
            let facts = ContainerFacts {
                id: usage_of(version as u8, seq).container,
                state: if is_gone { ContainerState::Gone } else { ContainerState::Live },
                layout: Layout::Standard,
                chunks: 2000,
                bytes: 8 << 20,
                object_bytes: 5 << 20,
                retired_chunks: if is_gone { 2000 } else { 0 },
                retired_bytes: if is_gone { 8 << 20 } else { 0 },
                users: vec![SeriesLifespans { series: SeriesKey([1; 16]), lifespans }],
                forwards: if is_gone { vec![number + 1] } else { Vec::new() },
            };
            (number, facts)
        })
    })
}

/// What a pass does with the table: it reads, looks up, ingests, forgets, and writes.
struct Worked {
    dropped: Vec<ListedContainer>,
    used: Vec<ContainerId>,
    changes: Vec<(u32, Option<ContainerFacts>)>,
    /// Bytes of the whole table, and the most that was in memory.
    bytes: u64,
    in_memory: usize,
}

fn work(versions: u32, containers: u32, memory: usize) -> Worked {
    let mut lifespans = Lifespans::new(versions * containers, &temp_dir(), memory);
    let mut in_memory = 0;
    let mut look = |lifespans: &Lifespans| in_memory = lifespans.bytes_in_memory().max(in_memory);
    for (number, facts) in history(versions, containers) {
        lifespans.push(number, &facts).expect("there is room");
        if number.is_multiple_of(1000) {
            look(&lifespans);
        }
    }
    lifespans.sort().expect("sorted");
    look(&lifespans);
    for version in [versions, versions + 1] {
        // Containers of the last version, and new ones.
        let table: Vec<_> =
            (versions - 1..=version).flat_map(|job| (0..containers).map(move |seq| usage_of(job as u8, seq))).collect();
        lifespans.ingest(SeriesKey([1; 16]), version + 1, &table, Layout::Standard).expect("there is room");
        look(&lifespans);
    }
    let retained = Numbers::from([(SeriesKey([1; 16]), (versions / 2..=versions + 2).collect())]);
    let dropped = lifespans.prune(&retained, &HashSet::new(), &|_| true).expect("written").all();
    look(&lifespans);
    let (used, changes) = (used(&lifespans, &retained), changes(&lifespans));
    look(&lifespans);
    Worked { dropped, used, changes, bytes: lifespans.bytes(), in_memory }
}

/// Its memory is the limit, for a table of many times that size, and its results are the same.
#[test]
fn with_little_memory_the_same_comes_out() {
    // As a pass with the least memory gives it.
    let memory = (7 << 20) / 4;
    let [little, plenty] = [memory, PLENTY].map(|memory| work(50, 2000, memory));
    assert!(little.bytes > 4 * memory as u64, "{}", little.bytes);
    assert!(little.in_memory <= memory, "{}", little.in_memory);
    assert!(plenty.in_memory > memory);
    assert!(little.dropped == plenty.dropped && !little.dropped.is_empty());
    assert!(little.used == plenty.used && !little.used.is_empty());
    assert!(little.changes == plenty.changes);
    // Retired ones are in the queue of an earlier index.
    let is_dropped = |(number, facts): &&(u32, Option<ContainerFacts>)| facts.is_none() && !number.is_multiple_of(100);
    assert_eq!(little.dropped.len(), little.changes.iter().filter(is_dropped).count());
    assert!(little.bytes <= (RECORD_BYTES + 1) * 52 * 2000 + (1 << 20), "{}", little.bytes);
}

/// Prints the memory of the process with millions of records, and the time of each step. `cargo
/// test --profile sim -p larder-gnode --lib -- --ignored millions --nocapture`
#[test]
#[ignore = "measures"]
fn what_millions_of_containers_take() {
    let status = |what: &str| {
        let status = std::fs::read_to_string("/proc/self/status").expect("there is a /proc");
        let line = status.lines().find(|line| line.starts_with(what)).expect("it says so").to_owned();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
    };
    for memory in [(7 << 20) / 4, (42 << 20) / 4, PLENTY] {
        let before = status("VmRSS");
        let mut lifespans = Lifespans::new(4_000_000, &temp_dir(), memory);
        let began = std::time::Instant::now();
        for (number, facts) in history(200, 20_000) {
            lifespans.push(number, &facts).expect("there is room");
        }
        lifespans.sort().expect("sorted");
        let (loaded, took) = (status("VmRSS").saturating_sub(before), began.elapsed());
        let table: Vec<_> = (199..201).flat_map(|job| (0..20_000).map(move |seq| usage_of(job, seq))).collect();
        let began = std::time::Instant::now();
        lifespans.ingest(SeriesKey([1; 16]), 201, &table, Layout::Standard).expect("there is room");
        let ingested = began.elapsed();
        let retained = Numbers::from([(SeriesKey([1; 16]), (150..=201).collect())]);
        let began = std::time::Instant::now();
        let dropped = lifespans.prune(&retained, &HashSet::new(), &|_| true).expect("written").all().len();
        println!(
            "limit {memory}: {} in memory of {}, {loaded} more resident; loaded in {took:?}, a version ingested in {ingested:?}, {dropped} dropped in {:?}",
            lifespans.bytes_in_memory(),
            lifespans.bytes(),
            began.elapsed(),
        );
    }
}
