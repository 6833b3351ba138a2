//! Exact collections that several processes share: they find what one process finds needed, and no version loses anything, also if
//! workers die, lie, or say nothing, and if the process that makes the pass dies.
//!
//! A key that is missing would let the pass delete a chunk that a version needs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_fleet::{SharedPass, SharedPassOptions, clean};
use larder_format::fleet::{MARKS, MarkResult, MarkSum, MarkTask, Stage, TaskId};
use larder_format::ids::{AttemptId, JobId, RunId};
use larder_format::index_manifest::Table;
use larder_format::index_tables::ChunkKey;
use larder_format::names;
use larder_format::run::{RunBuilder, RunKey};
use larder_gnode::pass::{Outcome, PassReport};
use larder_gnode::reclaim::Exact;
use larder_job::{Cancel, JobContext};
use larder_reader::MetaChunks;
use larder_testkit::{Failure, Fault, OpKind, Stop, Times, When, sweep};

use crate::fleet::is_clean;
use crate::other_workers::{due, fleet_objects, is_claimed, result_head};
use crate::pass_workers::{Part, beside_of, facts, run_of, sharing};
use crate::reclaim_at_once::{is_exact, scene};
use crate::support::*;

/// What another process does with the tasks that it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Other {
    /// It reads, and tells the truth.
    Honest,
    /// It says that all is done, and names no key.
    Idle,
    /// It names an output that does not exist.
    Phantom,
    /// It loses a key behind the segment.
    Short,
    /// It loses all keys of a segment, and says that there were no more.
    Skips,
    /// It has another key in the place of one, and says that it read that.
    Doctored,
    /// It has a key in the place of another, and says what it read.
    Flipped,
    /// It adds a key.
    Extra,
    /// Its output was damaged.
    Rotten,
    /// Another output is in its place.
    Replaced,
    /// It read for another task.
    Stale,
    /// It says that it could not.
    Failed,
    /// It has no operator's key.
    Unsigned,
    /// Some are honest, and some are not.
    Mixed,
}

const LIES: [Other; 13] = [
    Other::Idle,
    Other::Phantom,
    Other::Short,
    Other::Skips,
    Other::Doctored,
    Other::Flipped,
    Other::Extra,
    Other::Rotten,
    Other::Replaced,
    Other::Stale,
    Other::Failed,
    Other::Unsigned,
    Other::Mixed,
];

fn marks_due(scene: &Scene) -> Vec<(JobId, TaskId)> {
    due(scene).into_iter().filter(|(_, task)| task.stage == Stage::Mark).collect()
}

fn put(scene: &Scene, name: &str, bytes: Vec<u8>) {
    scene.runtime.block_on(scene.memory.put(name, bytes::Bytes::from(bytes)));
}

/// The output with these keys, and their sum.
fn output(context: &JobContext, name: &str, pass: JobId, keys: &BTreeMap<ChunkKey, u32>) -> (Vec<u8>, MarkSum) {
    let repository = &context.repository;
    let id = RunId { job: pass, seq: 0 };
    let key = RunKey::of_fleet(repository.keys(), repository.keys().domain(), name, id).unwrap();
    let (mut run, mut sum) = (RunBuilder::new(key, [5; 32], Table::Chunks, MARKS, false).unwrap(), MarkSum::default());
    for (key, times) in keys {
        run.push(&key.0, Some(&times.to_be_bytes())).unwrap();
        sum.add(key, *times);
    }
    (run.finish().unwrap().bytes, sum)
}

/// Decides a task.
fn decide_one(scene: &Scene, (pass, id): (JobId, TaskId), other: Other) {
    let context = scene.context();
    let (keys, store) = (context.repository.keys(), context.repository.store());
    let bytes = context.executor.block_on(store.get(&names::fleet_range(pass, id))).unwrap();
    let task = MarkTask::decode(keys, pass, id, &bytes).unwrap();
    let segments = MetaChunks::new(&context);
    let mut there = BTreeMap::<ChunkKey, u32>::new();
    for (at, row) in task.segments.iter().enumerate() {
        for record in &segments.segment(row).unwrap().records {
            let key = ChunkKey::of(&record.chunk.fingerprint);
            if other != Other::Skips || at + 1 < task.segments.len() {
                *there.entry(key).or_default() += 1;
            }
        }
    }
    let attempt = AttemptId([3; 8]);
    let name = names::fleet_output(pass, id, attempt, 0);
    let mut honest = MarkSum::default();
    there.iter().for_each(|(key, times)| honest.add(key, *times));
    // Any of them: some are in the samples of rows.
    let any = usize::from(task.of_pass.ticket[0]) % there.len().max(1);
    let lost = there.keys().nth(any).copied().unwrap_or(ChunkKey([8; 20]));
    let is_lost = matches!(other, Other::Short | Other::Doctored | Other::Flipped);
    let times = if is_lost { there.remove(&lost) } else { None };
    if let (Other::Doctored | Other::Flipped, Some(times)) = (other, times) {
        let mut flipped = lost;
        flipped.0[9] ^= 4;
        there.insert(flipped, times);
    }
    if other == Other::Extra {
        there.insert(ChunkKey([7; 20]), 1);
    }
    // A run has at least one record.
    if there.is_empty() {
        there.insert(lost, 1);
    }
    let (mut bytes, mut sum) = output(&context, &name, pass, &there);
    if matches!(other, Other::Short | Other::Flipped) {
        sum = honest;
    }
    let (object_bytes, digest) = (bytes.len() as u64, MarkResult::digest_of(&bytes));
    match other {
        Other::Rotten => bytes[40] ^= 1,
        Other::Replaced => bytes = output(&context, &name, pass, &BTreeMap::from([(lost, 1)])).0,
        _ => {}
    }
    if !matches!(other, Other::Phantom | Other::Idle | Other::Failed) {
        put(scene, &name, bytes);
    }
    let result = MarkResult {
        head: result_head(if other == Other::Stale { [0; 16] } else { task.of_pass.ticket }),
        attempt,
        records: if other == Other::Idle { 0 } else { there.len() as u64 },
        object_bytes,
        digest,
        sum: sum.bytes(),
        failure: (other == Other::Failed).then(|| "it is a test".to_owned()),
        domain: keys.domain(),
    };
    let mut bytes = result.encode(keys, pass, id, [7; 32]).unwrap();
    if other == Other::Unsigned {
        // The signature is in the first part behind the body hash.
        bytes[90] ^= 1;
    }
    let _ = context.executor.block_on(store.create(&names::fleet_done(pass, id), bytes.into()));
}

/// Decides every task that is due. Returns their number.
fn decide(scene: &Scene, other: Other) -> u64 {
    let due = marks_due(scene);
    for (pass, id) in &due {
        let other = match other {
            Other::Mixed if id.number.is_multiple_of(2) => Other::Honest,
            Other::Mixed => Other::Short,
            other => other,
        };
        decide_one(scene, (*pass, *id), other);
    }
    due.len() as u64
}

/// A pass in which something happens before its n-th operation. Returns whether there is such an operation.
fn pass_with(
    fork: &Arc<Scene>,
    shared: &SharedPass,
    part: Part,
    n: u64,
    happens: impl Fn(&Scene) + Clone + Send + Sync + 'static,
) -> (PassReport, bool) {
    let hooked = fork.clone();
    let between = Between::new(fork.memory.store(), move || {
        let (scene, happens) = (hooked.clone(), happens.clone());
        async move { tokio::task::spawn_blocking(move || happens(&scene)).await.unwrap() }
    });
    let context = fork.context_at(between.clone());
    between.happens_after(n);
    (run_of(&context, shared, part).unwrap(), between.has_happened())
}

/// Some segments in each task.
fn in_batches(chunks: u64) -> SharedPass {
    SharedPass::new(SharedPassOptions {
        workers: NonZeroU32::MIN,
        claim: Duration::from_secs(1),
        poll: Duration::from_millis(4),
        batch_bytes: chunks * 512,
    })
}

/// At operations of a pass, others decide all tasks that there are: with the truth, and with each lie.
#[test]
fn whatever_others_say_the_pass_keeps_what_one_process_keeps() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let alone = scene.fork().optimize(Exact::Always);
    assert!(alone.reclaimed.dropped_chunks > 3, "{alone:?}");
    for other in [Other::Honest].into_iter().chain(LIES) {
        let (mut decided, mut of_others, mut found_wrong) = (0, 0, 0);
        // An honest worker may come at any time. Of the others, a few are enough.
        for n in (0..).step_by(if other == Other::Honest { 5 } else { 3 }) {
            let fork = Arc::new(scene.fork());
            let count = Arc::new(AtomicU64::new(0));
            let counted = count.clone();
            let shared = if n % 2 == 0 { sharing(1) } else { in_batches(40) };
            let decides = move |scene: &Scene| {
                counted.fetch_add(decide(scene, other), Ordering::SeqCst);
            };
            let (report, has_happened) = pass_with(&fork, &shared, Part::Both, n, decides);
            let at = format!("{other:?} before operation {n}");
            // A key that is left out and that is of no container that goes may make the plan another one.
            assert!(other == Other::Doctored || facts(&report) == facts(&alone), "{at}: {report:?}");
            assert!(fork.contents() == expected, "{at}");
            fork.index_agrees(&at);
            if !has_happened {
                break;
            }
            let by_others = shared.report();
            let here = count.load(Ordering::SeqCst);
            if here > 0 {
                is_exact(&fork, &at);
                assert!(fork.contents() == expected, "{at}");
                let left = fleet_objects(&fork);
                assert!(left.is_empty(), "{at}: {left:?}");
            }
            if by_others.worker_was_wrong {
                assert_eq!((by_others.tasks_of_others, by_others.segments_of_others), (0, 0), "{at}");
            }
            decided += here;
            of_others += by_others.segments_of_others;
            found_wrong += u64::from(by_others.worker_was_wrong);
            if other != Other::Honest && decided > 6 && n % 2 == 1 {
                break;
            }
        }
        assert!(decided > 3, "{other:?}: only {decided} tasks were decided");
        match other {
            Other::Honest => assert!(of_others > 3 && found_wrong == 0, "{of_others} {found_wrong}"),
            Other::Stale | Other::Failed | Other::Unsigned => {
                assert_eq!((of_others, found_wrong), (0, 0), "{other:?}");
            }
            _ => assert!(found_wrong > 0, "{other:?}: {of_others} {found_wrong}"),
        }
    }
}

/// Every kind of lie about keys, in every task, is found each time: no lie counts.
#[test]
fn no_lie_about_keys_counts() {
    let (scene, _) = scene();
    let lies = [Other::Short, Other::Skips, Other::Doctored, Other::Flipped, Other::Extra, Other::Rotten];
    for other in lies {
        for n in (0..400).step_by(9) {
            let fork = Arc::new(scene.fork());
            let count = Arc::new(AtomicU64::new(0));
            let counted = count.clone();
            let shared = sharing(1);
            let decides = move |scene: &Scene| {
                counted.fetch_add(decide(scene, other), Ordering::SeqCst);
            };
            let (_, has_happened) = pass_with(&fork, &shared, Part::Marks, n, decides);
            if !has_happened {
                break;
            }
            assert_eq!(shared.report().segments_of_others, 0, "{other:?} before operation {n}");
        }
    }
}

/// Many segments are in one task, so that samples seldom find a lie in it. Before anything goes, it is found. Keys of no container
/// that goes may be left out.
#[test]
fn a_lie_that_no_sample_finds_deletes_nothing() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let (mut decided, mut found) = (0, 0);
    for n in 10..90 {
        let fork = Arc::new(scene.fork());
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        let decides = move |scene: &Scene| {
            // The pass leaves it to others.
            if marks_due(scene).into_iter().all(|(pass, task)| is_claimed(&scene.context(), pass, task)) {
                counted.fetch_add(decide(scene, Other::Doctored), Ordering::SeqCst);
            }
        };
        let shared = in_batches([40, 60, 1000][n as usize % 3]);
        let (report, has_happened) = pass_with(&fork, &shared, Part::Marks, n, decides);
        let at = format!("before operation {n}");
        assert!(matches!(report.outcome, Outcome::Published(_)), "{at}");
        assert!(fork.contents() == expected, "{at}");
        fork.index_agrees(&at);
        decided += u64::from(count.load(Ordering::SeqCst) > 0);
        found += u64::from(shared.report().worker_was_wrong);
        if !has_happened {
            break;
        }
    }
    assert!(found > 2 && decided > 5, "{found} of {decided}");
}

/// Real workers, and a pass that gives away segments and chunks.
#[test]
fn any_number_of_workers_find_what_one_process_finds_needed() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let alone = scene.fork().optimize(Exact::Always);
    let (mut segments, mut chunks) = (0, 0);
    for round in 0..200 {
        // Who comes first is chance.
        if round >= 8 && segments > 8 && chunks > 0 {
            break;
        }
        let fork = scene.fork();
        let workers = 1 + round % 2;
        let shared = if round % 4 < 2 { sharing(2) } else { in_batches(40) };
        let contexts: Vec<_> =
            (0..workers).map(|_| JobContext { cancel: Cancel::default(), ..fork.context() }).collect();
        let (report, helped) = beside_of(&fork, &contexts, &fork.context(), &shared, Part::Both);
        let at = format!("round {round}, {workers} workers");
        assert_eq!(facts(&report.unwrap()), facts(&alone), "{at}");
        assert!(fork.contents() == expected, "{at}");
        let by_others = shared.report();
        assert!(!by_others.worker_was_wrong && by_others.tasks > 1, "{at}: {by_others:?}");
        assert!(helped.iter().all(|(ended, copied)| ended.is_err() && copied.failed == 0), "they were stopped");
        segments += by_others.segments_of_others;
        chunks += by_others.chunks_of_others;
        is_exact(&fork, &at);
        is_clean(&fork, &at);
        assert!(fork.contents() == expected, "{at}");
    }
    assert!(segments > 8 && chunks > 0, "{segments} {chunks}");
}

/// A worker that dies at its n-th operation, for each n, and the pass goes on.
#[test]
fn a_reader_that_dies_at_any_operation_costs_nothing() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let alone = scene.fork().optimize(Exact::Always);
    let mut deaths = 0;
    for n in 0..30 {
        for stop in [Stop::Before, Stop::After] {
            let fork = scene.fork();
            let (context, faults) = fork.faulty(&fork.memory);
            let worker = JobContext { cancel: Cancel::default(), ..context };
            faults.stop_at(faults.count() + n, stop);
            let (report, helped) = beside_of(&fork, &[worker], &fork.context(), &sharing(2), Part::Marks);
            deaths += u64::from(helped[0].0.is_err());
            let at = format!("operation {n}, {stop:?}");
            assert_eq!(facts(&report.unwrap()), facts(&alone), "{at}");
            assert!(fork.contents() == expected, "{at}");
            is_exact(&fork, &at);
            assert!(fork.contents() == expected, "{at}");
        }
    }
    assert!(deaths > 10, "{deaths}");
}

/// The process that makes the pass dies beside a worker. No version loses anything, and the next pass does the rest.
#[test]
fn a_pass_that_dies_while_others_read_loses_nothing() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let (context, faults) = scene.faulty(&scene.fork().memory);
    let opened = faults.count();
    run_of(&context, &sharing(2), Part::Marks).unwrap();
    let operations = faults.count() - opened;
    for n in sweep(0..operations, 2) {
        let stop = if n % 4 == 0 { Stop::Before } else { Stop::After };
        let cut = scene.fork();
        let (context, faults) = cut.faulty(&cut.memory);
        faults.stop_at(faults.count() + n, stop);
        let worker = JobContext { cancel: Cancel::default(), ..cut.context() };
        let (report, _) = beside_of(&cut, &[worker], &context, &sharing(2), Part::Marks);
        let at = format!("cut at operation {n} of {operations}, {stop:?}");
        assert!(report.is_err() || faults.count() > 0, "{at}");
        assert!(cut.contents() == expected, "{at}");
        is_exact(&cut, &at);
        assert!(cut.contents() == expected, "{at}");
        clean(&cut.repository(cut.memory.store()), &cut.runtime.handle().clone().into()).unwrap();
        let left = fleet_objects(&cut);
        assert!(left.is_empty(), "{at}: {left:?}");
    }
}

/// A worker that claimed everything and died: the pass waits for a claim, and reads.
#[test]
fn segments_that_dead_workers_claimed_are_read() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let alone = scene.fork().optimize(Exact::Always);
    let claimed = Arc::new(AtomicU64::new(0));
    for n in (0..400).step_by(11) {
        let fork = Arc::new(scene.fork());
        let count = claimed.clone();
        let claims = move |scene: &Scene| {
            for (pass, task) in marks_due(scene) {
                count.fetch_add(u64::from(is_claimed(&scene.context(), pass, task)), Ordering::SeqCst);
            }
        };
        let (report, has_happened) = pass_with(&fork, &sharing(2), Part::Marks, n, claims);
        assert_eq!(facts(&report), facts(&alone), "before operation {n}");
        assert!(fork.contents() == expected, "before operation {n}");
        if !has_happened || claimed.load(Ordering::SeqCst) > 8 {
            break;
        }
    }
    assert!(claimed.load(Ordering::SeqCst) > 2, "no task was claimed by the dead worker");
}

/// A store that takes no signs of life, tasks, claims or registers: the pass reads alone.
#[test]
fn a_pass_whose_segments_cannot_be_given_away_reads_alone() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let alone = scene.fork().optimize(Exact::Always);
    for part in ["/beat/", "/range/", "/claim/", "/done/"] {
        let fork = scene.fork();
        let (context, faults) = fork.faulty(&fork.memory);
        faults.add(When::kind(OpKind::Put).path(part), Fault::FailBefore(Failure::Status(403)), Times::Always);
        let shared = sharing(3);
        let report = run_of(&context, &shared, Part::Marks).unwrap();
        assert_eq!((facts(&report), report.outcome), (facts(&alone), alone.outcome), "{part}");
        assert!(matches!(report.outcome, Outcome::Published(_)), "{part}");
        assert_eq!(shared.report().tasks > 0, part == "/claim/" || part == "/done/", "{part}");
        assert!(fork.contents() == expected, "{part}");
        is_exact(&fork, part);
    }
}
