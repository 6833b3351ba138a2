//! Checks that several processes share: they report what one process reports, also if workers die, lie, or say nothing.
//!
//! Every wait ends: a worker is stopped when the check is over, and the check never waits for a worker longer than its claim.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_fleet::{
    Answer, FleetError, SharedCheck, SharedCheckOptions, SharedCheckReport, Takes, WorkEvent, WorkOptions, clean, work,
};
use larder_format::fleet::{CheckRange, CheckResult, FleetWorker, READ_PROOF_LEN};
use larder_format::ids::{AttemptId, ContainerKind};
use larder_format::names::{self, FleetObject};
use larder_job::{Cancel, JobContext};
use larder_rewrite::check::{CheckError, ReadData, check_with, read_contents};
use larder_rewrite::{CheckOptions, CheckReport, check};
use larder_testkit::{Stop, sweep};

use crate::fleet_workers::as_host;
use crate::other_workers::due;
use crate::support::*;

/// Series with data of their own, so that there are some containers of both kinds.
fn scene(series: u64) -> Scene {
    let scene = Scene::new();
    for number in 0..series {
        let (one, two) = (number * 2 + 100, number * 2 + 101);
        scene.alone(&format!("s{number}"), &[("a", one, 70_000), ("b", two, 40_000)]);
    }
    scene
}

fn containers(scene: &Scene, kind: ContainerKind) -> Vec<String> {
    let paths = scene.runtime.block_on(scene.memory.paths());
    paths.into_iter().filter(|path| names::parse_container(path).is_some_and(|id| id.kind == kind)).collect()
}

/// One is flipped in a frame, one is cut, one is gone.
fn damage(scene: &Scene) {
    let data = containers(scene, ContainerKind::Data);
    scene.runtime.block_on(async {
        assert!(scene.memory.change(&data[0], |bytes| bytes[60] ^= 4).await);
        assert!(scene.memory.change(&data[1], |bytes| bytes.truncate(100)).await);
        scene.memory.remove(&data[2]).await;
    });
}

fn all() -> CheckOptions {
    CheckOptions { read_data: ReadData::All, ..CheckOptions::default() }
}

fn alone(scene: &Scene) -> CheckReport {
    check(&scene.context(), &all()).unwrap()
}

fn sharing(workers: u32) -> SharedCheck {
    SharedCheck::new(SharedCheckOptions {
        workers: NonZeroU32::new(workers).unwrap(),
        claim: Duration::from_secs(1),
        poll: Duration::from_millis(4),
    })
}

fn shared(context: &JobContext, workers: u32) -> (CheckReport, SharedCheckReport) {
    let mut shared = sharing(workers);
    let report = check_with(context, &all(), &mut shared).unwrap();
    (report, shared.report().clone())
}

/// What another process does with the ranges that it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Other {
    /// It reads, and tells the truth.
    Honest,
    /// It says that all is whole, and reads nothing.
    Unread,
    /// It says that nothing is whole.
    Broken,
    /// It says of another number of containers that they are whole.
    Short,
    /// It has proofs for another range.
    Replayed,
    /// It has not the right key.
    Stranger,
    /// Several of them: some read, and some do not.
    Mixed,
    /// Its first range has nothing that is whole, and all others are whole; it reads nothing.
    FirstBroken,
}

fn result(context: &JobContext, range: &CheckRange, number: u32, other: Other) -> CheckResult {
    let count = range.containers.len();
    let (reader, other) = match other {
        Other::Mixed if number.is_multiple_of(2) => (number as u8, Other::Honest),
        Other::Mixed => (number as u8, Other::Unread),
        Other::FirstBroken if number == 0 => (99, Other::Broken),
        Other::FirstBroken => (99, Other::Unread),
        other => (99, other),
    };
    let (not_whole, proofs) = match other {
        Other::Honest | Other::Replayed => {
            let sized: Vec<_> = range.containers.iter().map(|id| (*id, range.largest)).collect();
            let key = if other == Other::Honest { range.key } else { [8; 32] };
            let found = read_contents(context, &sized, Some(&key)).unwrap();
            let (mut not_whole, mut proofs) = (Vec::new(), Vec::new());
            for (position, id) in range.containers.iter().enumerate() {
                match found.proof(*id) {
                    Some(proof) => proofs.extend(proof),
                    None => not_whole.push(position as u32),
                }
            }
            (not_whole, proofs)
        }
        Other::Broken => ((0..count as u32).collect(), Vec::new()),
        Other::Unread | Other::Stranger | Other::Mixed | Other::FirstBroken => {
            (Vec::new(), vec![3; count * READ_PROOF_LEN])
        }
        Other::Short => (Vec::new(), vec![3; (count + 1) * READ_PROOF_LEN]),
    };
    CheckResult { reader: AttemptId([reader; 8]), host: "other".to_owned(), took_ms: 1, not_whole, proofs }
}

/// Decides every range that is due. Returns their number.
fn decide(scene: &Scene, other: Other) -> u64 {
    let context = scene.context();
    let keys = context.repository.keys();
    let due = due(scene);
    for (batch, task) in &due {
        let store = context.repository.store();
        let bytes = context.executor.block_on(store.get(&names::fleet_range(*batch, *task))).unwrap();
        let range = CheckRange::decode(keys, *batch, *task, &bytes).unwrap();
        let result = result(&context, &range, task.number, other);
        let mut bytes = result.encode(keys, *batch, *task, [7; 32]).unwrap();
        if other == Other::Stranger {
            bytes[60] ^= 1;
        }
        let _ = context.executor.block_on(store.create(&names::fleet_done(*batch, *task), bytes.into()));
    }
    due.len() as u64
}

/// At every operation of a check, others decide all ranges that there are: with the truth, and with each lie.
#[test]
fn whatever_others_say_the_report_is_that_of_one_process() {
    for is_damaged in [false, true] {
        let scene = scene(5);
        if is_damaged {
            damage(&scene);
        }
        let expected = alone(&scene);
        assert_eq!(expected.damages.len(), if is_damaged { 3 } else { 0 });
        let lies = [Other::Unread, Other::Broken, Other::Short, Other::Replayed, Other::Stranger, Other::Mixed];
        for other in [Other::Honest, Other::FirstBroken].into_iter().chain(lies) {
            let decided = Arc::new(AtomicU64::new(0));
            let count = decided.clone();
            let (mut of_others, mut found_wrong) = (0, 0);
            for n in sweep(0..400, if other == Other::Honest { 6 } else { 12 }) {
                let fork = Arc::new(scene.fork());
                let (hooked, count) = (fork.clone(), count.clone());
                let between = Between::new(fork.memory.store(), move || {
                    let (scene, count) = (hooked.clone(), count.clone());
                    async move {
                        let decided = tokio::task::spawn_blocking(move || decide(&scene, other)).await.unwrap();
                        count.fetch_add(decided, Ordering::SeqCst);
                    }
                });
                let context = fork.context_at(between.clone());
                between.happens_after(n);
                let (report, by_others) = shared(&context, 1);
                assert_eq!(report, expected, "{other:?} before operation {n}");
                if !between.has_happened() {
                    break;
                }
                assert!(
                    !by_others.worker_was_wrong || by_others.ranges_of_others == 0,
                    "{other:?} before operation {n}"
                );
                of_others += by_others.ranges_of_others;
                found_wrong += u64::from(by_others.worker_was_wrong);
            }
            assert!(count_of(&decided) > 10, "{other:?}: only {} ranges were decided", count_of(&decided));
            match other {
                Other::Honest => assert!(of_others > 10 && found_wrong == 0, "{of_others} {found_wrong}"),
                Other::Unread => assert!(of_others == 0 && found_wrong > 2, "{of_others} {found_wrong}"),
                // It is right about what is damaged.
                Other::Replayed | Other::Mixed | Other::FirstBroken => assert!(found_wrong > 2, "{found_wrong}"),
                Other::Broken => assert!(of_others > 0 && found_wrong == 0),
                Other::Short | Other::Stranger => assert_eq!((of_others, found_wrong), (0, 0), "{other:?}"),
            }
        }
    }
}

fn count_of(count: &AtomicU64) -> u64 {
    count.load(Ordering::SeqCst)
}

fn reading(scene: &Scene) -> WorkOptions {
    WorkOptions { takes: Takes { batches: false, checks: true, passes: false }, ..as_host(scene, "reader") }
}

/// A worker that takes no batches; gives what it read.
fn reader(scene: &Scene, context: &JobContext) -> (Result<(), FleetError>, Answer) {
    let mut all = Answer::default();
    let ended = work(context, &[], &mut crate::fleet::Disks(&[]), &reading(scene), false, &mut |event| match event {
        WorkEvent::Checked(_, answer) => {
            all.ranges += answer.ranges;
            all.containers += answer.containers;
            all.not_whole += answer.not_whole;
        }
        WorkEvent::LeavesAlone(error) => panic!("{error}"),
        WorkEvent::Begins(..) | WorkEvent::Ends(..) | WorkEvent::Copied(..) => panic!("it takes no batches"),
    });
    (ended, all)
}

/// Real workers, more or fewer than are expected, with and without damage. The check leaves nothing.
#[test]
fn any_number_of_workers_find_what_one_process_finds() {
    for (expected_workers, workers, is_damaged) in [(1, 2, false), (3, 1, true), (3, 2, true), (64, 2, false)] {
        let scene = scene(7);
        if is_damaged {
            damage(&scene);
        }
        let expected = alone(&scene);
        std::thread::scope(|scope| {
            let cancel = Cancel::default();
            let started: Vec<_> = (0..workers)
                .map(|_| {
                    let context = JobContext { cancel: cancel.clone(), ..scene.context() };
                    let scene = &scene;
                    scope.spawn(move || reader(scene, &context))
                })
                .collect();
            let mut sharing = sharing(expected_workers);
            let report = check_with(&scene.context(), &all(), &mut sharing);
            cancel.cancel();
            let answers: Vec<_> = started.into_iter().map(|worker| worker.join().unwrap()).collect();
            sharing.tidy(&scene.context());
            assert_eq!(report.unwrap(), expected);
            assert!(!sharing.report().worker_was_wrong);
            let ranges: u64 = answers.iter().map(|(_, answer)| answer.ranges).sum();
            assert!(sharing.report().ranges_of_others <= ranges, "{ranges}: {:?}", sharing.report());
            assert!(answers.iter().all(|(ended, _)| ended.is_err()), "they were stopped");
        });
        let left: Vec<_> = scene.runtime.block_on(scene.memory.paths());
        let left: Vec<_> = left.iter().filter(|path| path.starts_with(names::FLEET)).collect();
        assert!(left.iter().all(|path| path.contains("/beat/") || path.contains("/done/")), "{left:?}");
    }
}

/// A store that accepts no new objects has no lease and no ranges: the process reads alone, as without workers.
#[test]
fn a_check_of_a_read_only_store_reads_alone() {
    let scene = scene(3);
    damage(&scene);
    let expected = alone(&scene);
    let (context, faults) = scene.faulty(&scene.memory);
    faults.read_only(true);
    let (report, by_others) = shared(&context, 4);
    assert_eq!((report, by_others), (expected, SharedCheckReport::default()));
}

/// A check that is to stop does, also while it waits for workers.
#[test]
fn a_check_that_is_to_stop_stops() {
    let scene = scene(3);
    let context = scene.context();
    let cancel = context.cancel.clone();
    let between = Between::new(scene.memory.store(), move || {
        let cancel = cancel.clone();
        async move { cancel.cancel() }
    });
    between.happens_before_any_below(names::FLEET);
    let context = JobContext { cancel: context.cancel.clone(), ..scene.context_at(between.clone()) };
    let stopped = check_with(&context, &all(), &mut sharing(2));
    assert!(matches!(stopped, Err(CheckError::Interrupted)) && between.has_happened(), "{stopped:?}");
    assert_eq!(shared(&scene.context(), 2).0, alone(&scene));
}

/// A check that died has ranges, and its lease is open for a day. Workers read nothing for it.
#[test]
fn a_worker_leaves_a_check_whose_process_is_silent() {
    let scene = scene(3);
    let died = (30..90).step_by(5).find_map(|n| {
        let cut = scene.fork();
        let (context, faults) = cut.faulty(&cut.memory);
        faults.stop_at(faults.count() + n, Stop::Before);
        let died = check_with(&context, &all(), &mut sharing(1)).is_err();
        (died && !due(&cut).is_empty()).then_some(cut)
    });
    let died = died.expect("it died after it had asked");
    // Longer than its claim.
    std::thread::sleep(Duration::from_millis(1500));
    let (context, faults) = died.faulty(&died.memory);
    let (asked, begun) = (due(&died), faults.count());
    let objects = || died.runtime.block_on(died.memory.paths()).len();
    let before = objects();
    let answer = std::thread::scope(|scope| {
        let cancel = context.cancel.clone();
        let worker = scope.spawn(|| reader(&died, &context));
        for _ in 0..4000 {
            if faults.count() > begun + 30 || worker.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        cancel.cancel();
        worker.join().unwrap().1
    });
    assert_eq!((answer, due(&died)), (Answer::default(), asked));
    assert_eq!(objects(), before, "it takes its signs of life away");
}

/// Workers that died: each left a claim of every range, and gives no sign of life.
#[test]
fn ranges_that_dead_workers_claimed_are_read() {
    let scene = scene(3);
    damage(&scene);
    let expected = alone(&scene);
    let hooked = Arc::new(scene.same());
    let (other, claimed) = (hooked.clone(), Arc::new(AtomicU64::new(0)));
    let count = claimed.clone();
    let claim = move |scene: &Scene| {
        let context = scene.context();
        let (keys, store) = (context.repository.keys(), context.repository.store());
        for (batch, task) in due(scene) {
            let dead = FleetWorker {
                worker: AttemptId([6; 8]),
                host: "dead".to_owned(),
                process: 1,
                program: "test".to_owned(),
                time_ms: 1,
                memory: 0,
                reads: None,
            };
            let bytes = dead.encode_claim(keys, batch, task, 0, [7; 32]).unwrap();
            let made = context.executor.block_on(store.create(&names::fleet_claim(batch, task, 0), bytes.into()));
            count.fetch_add(u64::from(made.is_ok()), Ordering::SeqCst);
        }
    };
    let between = Between::new(scene.memory.store(), move || {
        let (scene, claim) = (other.clone(), claim.clone());
        async move { tokio::task::spawn_blocking(move || claim(&scene)).await.unwrap() }
    });
    // Before the operation at which the ranges are there and nothing is claimed yet: found by trying.
    let context = scene.context_at(between.clone());
    for n in (10..200).rev().step_by(6) {
        between.happens_after(n);
        assert_eq!(shared(&context, 1).0, expected);
        if count_of(&claimed) > 2 {
            break;
        }
    }
    assert!(count_of(&claimed) > 2, "no range was claimed by the dead worker");
}

/// A worker that dies at its n-th operation, for each n, and the check goes on.
#[test]
fn a_worker_that_dies_at_any_operation_changes_nothing() {
    let scene = scene(4);
    damage(&scene);
    let expected = alone(&scene);
    let mut deaths = 0;
    for n in (0..30).step_by(4) {
        for stop in [Stop::Before, Stop::After] {
            let fork = scene.fork();
            let (context, faults) = fork.faulty(&fork.memory);
            faults.stop_at(faults.count() + n, stop);
            std::thread::scope(|scope| {
                let cancel = context.cancel.clone();
                let (fork, context) = (&fork, &context);
                let worker = scope.spawn(move || reader(fork, context));
                let report = shared(&fork.context(), 2).0;
                cancel.cancel();
                let (ended, _) = worker.join().unwrap();
                deaths += u64::from(ended.is_err());
                assert_eq!(report, expected, "operation {n}, {stop:?}");
            });
        }
    }
    assert!(deaths > 10, "{deaths}");
}

/// The process that makes the check dies at any operation. The next check reports the same. Its lease expires, and what it left can
/// be removed.
#[test]
fn a_check_that_dies_at_any_operation_leaves_nothing_that_matters() {
    let scene = scene(3);
    let expected = alone(&scene);
    let contents = scene.contents();
    let (context, faults) = scene.fork().faulty(&scene.fork().memory);
    let opened = faults.count();
    shared(&context, 1);
    let operations = faults.count() - opened;
    for n in sweep(0..operations, 19) {
        for stop in [Stop::Before, Stop::After] {
            let cut = scene.fork();
            let (context, faults) = cut.faulty(&cut.memory);
            faults.stop_at(faults.count() + n, stop);
            let died = check_with(&context, &all(), &mut sharing(1));
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            if n + 20 < operations {
                assert!(died.is_err(), "{at}");
            }
            assert_eq!(shared(&cut.context(), 1).0, expected, "{at}");
            assert_eq!(cut.contents(), contents, "{at}");
            let dead_after = Duration::ZERO;
            let listing = larder_gnode::pass::Listing::Whole;
            // It removes the lease; its objects go with the next index, or before.
            cut.pass_with(&larder_gnode::pass::PassOptions { dead_after, listing, ..pass_options() }).unwrap();
            clean(&cut.repository(cut.memory.store()), &cut.runtime.handle().clone().into()).unwrap();
            let left = cut.runtime.block_on(cut.memory.paths());
            let left: Vec<_> = left.iter().filter(|path| path.starts_with(names::FLEET)).collect();
            assert!(left.is_empty(), "{at}: {left:?}");
            assert_eq!(cut.contents(), contents, "{at}");
        }
    }
}

/// A result of an earlier check has another name and another key: where it is copied to, it does not open.
#[test]
fn results_of_earlier_checks_do_not_count() {
    let scene = scene(4);
    // The first check is answered by others, and its objects stay.
    let hooked = Arc::new(scene.same());
    let between = Between::new(scene.memory.store(), move || {
        let scene = hooked.clone();
        async move {
            let _ = tokio::task::spawn_blocking(move || decide(&scene, Other::Honest)).await.unwrap();
        }
    });
    let context = scene.context_at(between.clone());
    let mut earlier = 0;
    for n in (10..120).rev().step_by(5) {
        between.happens_after(n);
        earlier += shared(&context, 1).1.ranges_of_others;
        if earlier > 2 {
            break;
        }
    }
    assert!(earlier > 2, "{earlier}");
    damage(&scene);
    let expected = alone(&scene);
    let old: Vec<_> = scene.runtime.block_on(scene.memory.contents()).into_iter().collect();
    let old: Vec<_> = old.into_iter().filter(|(path, _)| path.contains("/done/check/")).collect();
    let hooked = Arc::new(scene.same());
    let copied = Arc::new(AtomicU64::new(0));
    let count = copied.clone();
    let between = Between::new(scene.memory.store(), move || {
        let (scene, old, count) = (hooked.clone(), old.clone(), count.clone());
        async move {
            tokio::task::spawn_blocking(move || {
                for (batch, task) in due(&scene) {
                    let name = names::fleet_done(batch, task);
                    let of = |path: &str| names::parse_fleet(path) == Some((batch, FleetObject::Done(task)));
                    let same = old.iter().find(|(path, _)| {
                        !of(path)
                            && names::parse_fleet(path).is_some_and(|(_, object)| object == FleetObject::Done(task))
                    });
                    if let Some((_, bytes)) = same {
                        scene.runtime.block_on(scene.memory.put(&name, bytes.clone()));
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
            .await
            .unwrap();
        }
    });
    let context = scene.context_at(between.clone());
    for n in (10..120).rev().step_by(5) {
        between.happens_after(n);
        let (report, by_others) = shared(&context, 1);
        assert_eq!(report, expected);
        assert_eq!((by_others.ranges_of_others, by_others.worker_was_wrong), (0, false));
        if count_of(&copied) > 2 {
            break;
        }
    }
    assert!(count_of(&copied) > 2);
}
