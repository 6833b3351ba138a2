//! Passes that several processes share: they leave what a pass of one process leaves, and no version loses anything, also if
//! workers die, lie, or say nothing, and if the process that makes the pass dies.
//!
//! Every wait ends: a worker is stopped when the pass is over, and the pass never waits for a worker longer than its claim.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_fleet::{Copied, FleetError, SharedPass, SharedPassOptions, Takes, WorkEvent, WorkOptions, clean, work};
use larder_format::compress::Compression;
use larder_format::fleet::{Stage, TaskId};
use larder_format::ids::JobId;
use larder_format::names;
use larder_gnode::pass::{self, Listing, Outcome, PassError, PassOptions, PassReport};
use larder_gnode::reclaim::Exact;
use larder_job::{Cancel, JobContext};
use larder_reader::{ShareMarks, SharedMarks};
use larder_rewrite::chunk_copier::{ShareCopies, SharedCopying};
use larder_testkit::{Failure, Fault, OpKind, Stop, Times, When};

use crate::fleet::is_clean;
use crate::fleet_workers::as_host;
use crate::other_workers::{LIES, Other, decide, deciding, due, fleet_objects, is_claimed};
use crate::reclaim_at_once::{is_exact, scene};
use crate::support::*;

/// The part of passes that is given to workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Copies,
    Marks,
    Both,
}

/// Gives away one part only.
#[derive(Debug)]
pub(crate) struct Only(pub(crate) SharedPass, pub(crate) Part);

impl ShareCopies for Only {
    fn batch_bytes(&self, all: u64) -> u64 {
        self.0.batch_bytes(all)
    }

    fn begin(&self, context: &JobContext, pass: JobId, turn: u64, zstd: Compression) -> Option<Box<dyn SharedCopying>> {
        (self.1 != Part::Marks).then(|| self.0.begin(context, pass, turn, zstd))?
    }
}

impl ShareMarks for Only {
    fn batch_chunks(&self) -> u64 {
        self.0.batch_chunks()
    }

    fn begin_marks(&self, context: &JobContext, pass: JobId, turn: u64, look: u8) -> Option<Box<dyn SharedMarks>> {
        (self.1 != Part::Copies).then(|| self.0.begin_marks(context, pass, turn, look))?
    }

    fn was_wrong(&self) {
        self.0.was_wrong();
    }
}

pub(crate) fn sharing(workers: u32) -> SharedPass {
    // Each container is a batch.
    sharing_in(workers, 1)
}

pub(crate) fn sharing_in(workers: u32, batch_bytes: u64) -> SharedPass {
    SharedPass::new(SharedPassOptions {
        workers: NonZeroU32::new(workers).unwrap(),
        claim: Duration::from_secs(1),
        poll: Duration::from_millis(4),
        batch_bytes,
    })
}

pub(crate) fn run_of(context: &JobContext, shared: &SharedPass, part: Part) -> Result<PassReport, PassError> {
    let sharing = Some(Arc::new(Only(shared.clone(), part)) as _);
    context.executor.block_on(pass::run(context, &PassOptions { sharing, ..thorough(Exact::Always) }))
}

fn run(context: &JobContext, shared: &SharedPass) -> Result<PassReport, PassError> {
    run_of(context, shared, Part::Copies)
}

/// What a pass says that does not depend on who copied.
pub(crate) fn facts(report: &PassReport) -> impl PartialEq + std::fmt::Debug + use<> {
    let reclaimed = &report.reclaimed;
    let chunks = (reclaimed.redirected_chunks, reclaimed.copied_chunks, reclaimed.dropped_chunks);
    (report.outcome, chunks, reclaimed.copied_bytes, reclaimed.plan, reclaimed.unreadable.clone())
}

/// At every operation of a pass, others decide all tasks that there are: with the truth, and with each lie.
#[test]
fn whatever_others_say_the_pass_leaves_what_one_process_leaves() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let undisturbed = scene.fork();
    let alone = undisturbed.optimize(Exact::Always);
    assert!(alone.reclaimed.copied_chunks > 3 && alone.reclaimed.redirected_chunks > 3, "{alone:?}");
    for other in [Other::Honest].into_iter().chain(LIES) {
        let (mut decided, mut of_others, mut found_wrong) = (0, 0, 0);
        let mut n = 0;
        loop {
            let fork = Arc::new(scene.fork());
            let (between, count) = deciding(&fork, other);
            let context = fork.context_at(between.clone());
            between.happens_after(n);
            let shared = sharing(1);
            let report = run(&context, &shared).unwrap();
            let at = format!("{other:?} before operation {n}");
            assert_eq!(facts(&report), facts(&alone), "{at}");
            assert!(fork.contents() == expected, "{at}");
            if !between.has_happened() {
                break;
            }
            let by_others = shared.report();
            if count.load(Ordering::SeqCst) > 0 {
                is_exact(&fork, &at);
                assert!(fork.contents() == expected, "{at}");
                let left = fleet_objects(&fork);
                assert!(left.is_empty(), "{at}: {left:?}");
            }
            assert!(!by_others.worker_was_wrong || by_others.tasks_of_others == 0, "{at}");
            decided += count.load(Ordering::SeqCst);
            of_others += by_others.tasks_of_others;
            found_wrong += u64::from(by_others.worker_was_wrong);
            n += if other == Other::Honest { 2 } else { 5 };
        }
        assert!(decided > 2, "{other:?}: only {decided} tasks were decided in {n} passes");
        match other {
            Other::Honest => assert!(of_others > 2 && found_wrong == 0, "{of_others} {found_wrong}"),
            // A task without chunks to copy needs no containers.
            Other::Idle | Other::Mixed => assert!(found_wrong > 0, "{other:?}: {of_others} {found_wrong}"),
            Other::Phantom | Other::Short | Other::Stranger | Other::Rotten | Other::Beyond => {
                assert!(found_wrong > 0, "{other:?}: {of_others} {found_wrong}");
            }
            Other::Stale | Other::Failed | Other::Unsigned => {
                assert_eq!((of_others, found_wrong), (0, 0), "{other:?}");
            }
        }
    }
}

fn copying(scene: &Scene) -> WorkOptions {
    WorkOptions { takes: Takes { batches: false, checks: false, passes: true }, ..as_host(scene, "helper") }
}

/// A worker that copies for passes; gives what it did.
pub(crate) fn helper(scene: &Scene, context: &JobContext) -> (Result<(), FleetError>, Copied) {
    let mut all = Copied::default();
    let ended = work(context, &[], &mut crate::fleet::Disks(&[]), &copying(scene), false, &mut |event| match event {
        WorkEvent::Copied(_, copied) => {
            all.tasks += copied.tasks;
            all.segments += copied.segments;
            all.chunks += copied.chunks;
            all.failed += copied.failed;
        }
        WorkEvent::LeavesAlone(error) => panic!("{error}"),
        WorkEvent::Begins(..) | WorkEvent::Ends(..) | WorkEvent::Checked(..) => panic!("it takes passes only"),
    });
    (ended, all)
}

/// How a worker ended, and what it copied.
pub(crate) type Helped = (Result<(), FleetError>, Copied);

fn beside(
    scene: &Scene,
    workers: &[JobContext],
    context: &JobContext,
    shared: &SharedPass,
) -> (Result<PassReport, PassError>, Vec<Helped>) {
    beside_of(scene, workers, context, shared, Part::Copies)
}

/// A pass beside workers. They are stopped when it is over.
pub(crate) fn beside_of(
    scene: &Scene,
    workers: &[JobContext],
    context: &JobContext,
    shared: &SharedPass,
    part: Part,
) -> (Result<PassReport, PassError>, Vec<Helped>) {
    std::thread::scope(|scope| {
        let started: Vec<_> = workers.iter().map(|worker| scope.spawn(move || helper(scene, worker))).collect();
        let report = run_of(context, shared, part);
        workers.iter().for_each(|worker| worker.cancel.cancel());
        (report, started.into_iter().map(|worker| worker.join().unwrap()).collect())
    })
}

/// Real workers, more or fewer than are expected.
#[test]
fn any_number_of_workers_leave_what_one_process_leaves() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let alone = scene.fork().optimize(Exact::Always);
    let mut of_others = 0;
    let rounds = [(1, 1), (2, 1), (3, 2), (64, 2)].into_iter().cycle().enumerate();
    for (round, (expected_workers, workers)) in rounds.take(200) {
        // Who comes first is chance.
        if round >= 12 && of_others > 4 {
            break;
        }
        let fork = scene.fork();
        let shared = sharing(expected_workers);
        let contexts: Vec<_> =
            (0..workers).map(|_| JobContext { cancel: Cancel::default(), ..fork.context() }).collect();
        let (report, helped) = beside(&fork, &contexts, &fork.context(), &shared);
        let at = format!("{workers} workers, {expected_workers} expected");
        assert_eq!(facts(&report.unwrap()), facts(&alone), "{at}");
        assert!(fork.contents() == expected, "{at}");
        let by_others = shared.report();
        assert!(!by_others.worker_was_wrong && by_others.tasks > 1, "{at}: {by_others:?}");
        assert!(helped.iter().all(|(ended, copied)| ended.is_err() && copied.failed == 0), "they were stopped");
        of_others += by_others.tasks_of_others;
        is_exact(&fork, &at);
        // A worker may claim a task when the pass has just ended.
        is_clean(&fork, &at);
        assert!(fork.contents() == expected, "{at}");
    }
    assert!(of_others > 4, "{of_others}");
}

/// A worker that dies at its n-th operation, for each n, and the pass goes on.
#[test]
fn a_worker_that_dies_at_any_operation_costs_nothing() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let alone = scene.fork().optimize(Exact::Always);
    let mut deaths = 0;
    for n in 0..40 {
        for stop in [Stop::Before, Stop::After] {
            let fork = scene.fork();
            let (context, faults) = fork.faulty(&fork.memory);
            let worker = JobContext { cancel: Cancel::default(), ..context };
            faults.stop_at(faults.count() + n, stop);
            let (report, helped) = beside(&fork, &[worker], &fork.context(), &sharing(2));
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

/// The process that makes the pass dies at any operation, beside a worker. No version loses anything, and the next pass does the
/// rest. What is left below `fleet/` can be removed.
#[test]
fn a_pass_that_dies_at_any_operation_loses_nothing() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let (context, faults) = scene.faulty(&scene.fork().memory);
    let opened = faults.count();
    let worker = JobContext { cancel: Cancel::default(), ..scene.context() };
    run(&context, &sharing(2)).unwrap();
    drop(worker);
    let operations = faults.count() - opened;
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let cut = scene.fork();
            let (context, faults) = cut.faulty(&cut.memory);
            faults.stop_at(faults.count() + n, stop);
            let worker = JobContext { cancel: Cancel::default(), ..cut.context() };
            let (report, _) = beside(&cut, &[worker], &context, &sharing(2));
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
}

/// A worker that claimed everything and died: the pass waits for a claim, and does it.
#[test]
fn tasks_that_dead_workers_claimed_are_done() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let alone = scene.fork().optimize(Exact::Always);
    let claimed = Arc::new(AtomicU64::new(0));
    for n in (0..400).step_by(7) {
        let fork = Arc::new(scene.fork());
        let (hooked, count) = (fork.clone(), claimed.clone());
        let between = Between::new(fork.memory.store(), move || {
            let (scene, count) = (hooked.clone(), count.clone());
            let claim = move || {
                let context = scene.context();
                for (pass, task) in due(&scene) {
                    count.fetch_add(u64::from(is_claimed(&context, pass, task)), Ordering::SeqCst);
                }
            };
            async move { tokio::task::spawn_blocking(claim).await.unwrap() }
        });
        let context = fork.context_at(between.clone());
        between.happens_after(n);
        assert_eq!(facts(&run(&context, &sharing(2)).unwrap()), facts(&alone), "before operation {n}");
        assert!(fork.contents() == expected, "before operation {n}");
        if !between.has_happened() {
            break;
        }
    }
    assert!(claimed.load(Ordering::SeqCst) > 2, "no task was claimed by the dead worker");
}

/// Results of an earlier pass are copied to the names of this one: they do not open.
#[test]
fn results_of_an_earlier_pass_do_not_count() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let alone = scene.fork().optimize(Exact::Always);
    let earlier = Arc::new(parking_lot::Mutex::new(BTreeMap::<TaskId, bytes::Bytes>::new()));
    let (mut copied, mut n) = (0, 0);
    // First by honest workers, whose results are kept; then these are all that others say.
    for is_first in [true, false] {
        loop {
            let fork = Arc::new(scene.fork());
            let (hooked, kept, count) = (fork.clone(), earlier.clone(), Arc::new(AtomicU64::new(0)));
            let counted = count.clone();
            let between = Between::new(fork.memory.store(), move || {
                let (scene, kept, count) = (hooked.clone(), kept.clone(), counted.clone());
                let happens = move || {
                    let tasks = due(&scene);
                    if is_first {
                        decide(&scene, Other::Honest);
                    }
                    for (pass, task) in tasks {
                        let name = names::fleet_done(pass, task);
                        if is_first {
                            let bytes = scene.runtime.block_on(scene.memory.get(&name)).unwrap();
                            kept.lock().insert(task, bytes);
                        } else if let Some(bytes) = kept.lock().get(&task).cloned() {
                            scene.runtime.block_on(scene.memory.put(&name, bytes));
                            count.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                };
                async move { tokio::task::spawn_blocking(happens).await.unwrap() }
            });
            let context = fork.context_at(between.clone());
            between.happens_after(n);
            n += 3;
            let shared = sharing(1);
            assert_eq!(facts(&run(&context, &shared).unwrap()), facts(&alone));
            assert!(fork.contents() == expected);
            if !is_first {
                assert_eq!((shared.report().tasks_of_others, shared.report().worker_was_wrong), (0, false));
            }
            copied += count.load(Ordering::SeqCst);
            let is_enough = if is_first { earlier.lock().len() > 1 } else { copied > 2 };
            if !between.has_happened() || is_enough {
                n -= 6;
                break;
            }
        }
    }
    assert!(copied > 2 && earlier.lock().keys().all(|task| task.stage == Stage::Copy), "{copied}");
}

/// A store that takes no signs of life, tasks, claims or registers: the pass copies alone.
#[test]
fn a_pass_whose_tasks_cannot_be_created_copies_alone() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let alone = scene.fork().optimize(Exact::Always);
    for part in ["/beat/", "/range/", "/claim/", "/done/"] {
        let fork = scene.fork();
        let (context, faults) = fork.faulty(&fork.memory);
        faults.add(When::kind(OpKind::Put).path(part), Fault::FailBefore(Failure::Status(403)), Times::Always);
        let shared = sharing(3);
        let report = run(&context, &shared).unwrap();
        assert_eq!((facts(&report), report.outcome), (facts(&alone), alone.outcome), "{part}");
        assert!(matches!(report.outcome, Outcome::Published(_)), "{part}");
        assert_eq!(shared.report().tasks > 0, part == "/claim/" || part == "/done/", "{part}");
        assert!(fork.contents() == expected, "{part}");
        is_exact(&fork, part);
    }
}

/// What workers wrote for results that do not count is found by a pass that lists only what is new.
#[test]
fn containers_of_results_that_do_not_count_are_collected() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let is_left = |scene: &Scene| {
        let paths = scene.runtime.block_on(scene.memory.paths());
        let of_task = |path: &String| names::parse_container(path).is_some_and(|id| id.seq >= 1 << 31);
        paths.iter().filter(|path| of_task(path)).count()
    };
    let mut left = 0;
    for n in 0..200 {
        let fork = Arc::new(scene.fork());
        let hooked = fork.clone();
        let between = Between::new(fork.memory.store(), move || {
            let scene = hooked.clone();
            let happens = move || {
                let context = scene.context();
                // Workers write only what they claimed.
                if due(&scene).into_iter().all(|(pass, task)| is_claimed(&context, pass, task)) {
                    decide(&scene, Other::Stale);
                }
            };
            async move { tokio::task::spawn_blocking(happens).await.unwrap() }
        });
        let context = fork.context_at(between.clone());
        between.happens_after(n);
        run(&context, &sharing(1)).unwrap();
        if !between.has_happened() {
            break;
        }
        left += is_left(&fork);
        let options = PassOptions { listing: Listing::New, dead_after: Duration::ZERO, ..thorough(Exact::Never) };
        fork.pass_with(&options).unwrap();
        assert_eq!(is_left(&fork), 0, "before operation {n}");
        assert!(fork.contents() == expected, "before operation {n}");
    }
    assert!(left > 2, "{left}");
}
