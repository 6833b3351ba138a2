//! Newest versions that are rewritten with workers: the recipes name the same chunks as those of one process, and no version loses
//! anything, also if workers die or lie, and if the process that rewrites dies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use larder_fleet::{SharedPass, clean};
use larder_format::ids::{ContainerId, ContainerKind};
use larder_gnode::defragment::{DefragmentError, DefragmentPlan, Defragmented, Defragmenter, plans};
use larder_job::{Cancel, JobContext};
use larder_reader::VersionReader;
use larder_testkit::{Failure, Fault, OpKind, Stop, Times, When, data, sweep};

use crate::generations::{options, pass_after};
use crate::other_workers::{LIES, Other, decide, deciding, due, fleet_objects, is_claimed};
use crate::pass_workers::{Helped, helper, sharing, sharing_in};
use crate::support::*;

const NEVER: Duration = Duration::from_secs(1 << 30);

/// A newest version that uses a part of what earlier ones stored, in several segments.
fn scene() -> Scene {
    scene_of(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &[1, 3, 5, 7, 9, 10, 11, 12])
}

/// The files of the first version, and those of the second.
fn scene_of(first: &[u64], second: &[u64]) -> Scene {
    let scene = Scene::new();
    let write = |numbers: &[u64]| {
        let root = scene.source("a");
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        for number in numbers {
            std::fs::write(root.join(format!("file{number:02}")), data::random(*number, 900_000)).unwrap();
        }
        backup_with(&scene.context(), &root, "a", |options| options.find_similar = false).unwrap();
    };
    write(first);
    write(second);
    // The same again, so that a chunk is in several batches.
    std::fs::write(scene.source("a").join("file20"), data::random(3, 900_000)).unwrap();
    backup_with(&scene.context(), &scene.source("a"), "a", |options| options.find_similar = false).unwrap();
    scene
}

fn plan(scene: &Scene) -> DefragmentPlan {
    plans(&scene.context(), &options()).unwrap().plans.pop().unwrap()
}

fn rewrite(
    context: &JobContext,
    plan: &DefragmentPlan,
    shared: Option<&SharedPass>,
) -> Result<Defragmented, DefragmentError> {
    let sharing = shared.map(|shared| Arc::new(shared.clone()) as _);
    Defragmenter::new(context, &options()).shared_with(sharing).compact(plan)
}

/// What a rewrite says that does not depend on who copied.
fn facts(done: &Defragmented) -> (u32, u64, u64, u64, u64) {
    match done {
        Defragmented::Done { generation, chunks, bytes, shared_chunks, shared_bytes, .. } => {
            (*generation, *chunks, *bytes, *shared_chunks, *shared_bytes)
        }
        Defragmented::Overtaken => panic!("nobody else is here"),
    }
}

fn data_containers(scene: &Scene) -> BTreeSet<ContainerId> {
    let newest = scene.versions().pop().unwrap();
    let manifest = VersionReader::open(&scene.context(), &newest).unwrap().manifest().clone();
    let data = manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data);
    data.map(|usage| usage.container).collect()
}

/// Nothing is left that no version needs, except fences.
#[track_caller]
fn leaves_nothing(scene: &Scene, at: &str) {
    pass_after(scene, Duration::ZERO);
    clean(&scene.repository(scene.memory.store()), &scene.runtime.handle().clone().into()).unwrap();
    let garbage: Vec<_> = scene.garbage().into_iter().filter(|name| !name.starts_with("versions/")).collect();
    assert!(garbage.is_empty(), "{at}: {garbage:?}");
}

/// At every operation of a rewrite, others decide all tasks that there are: with the truth, and with each lie.
#[test]
fn whatever_others_say_the_rewrite_has_the_chunks_of_one_process() {
    let scene = scene();
    let (expected, plan) = (scene.contents(), plan(&scene));
    let alone = facts(&rewrite(&scene.fork().context(), &plan, None).unwrap());
    assert!(alone.1 > 10, "{alone:?}");
    for other in [Other::Honest].into_iter().chain(LIES) {
        let (mut decided, mut of_others, mut found_wrong, mut n) = (0, 0, 0, 0);
        loop {
            let fork = Arc::new(scene.fork());
            let (between, count) = deciding(&fork, other);
            let context = fork.context_at(between.clone());
            between.happens_after(n);
            let shared = sharing(2);
            let done = facts(&rewrite(&context, &plan, Some(&shared)).unwrap());
            let at = format!("{other:?} before operation {n}");
            assert_eq!(done, alone, "{at}");
            assert!(fork.contents() == expected, "{at}");
            if !between.has_happened() {
                break;
            }
            let by_others = shared.report();
            if count.load(Ordering::SeqCst) > 0 {
                let left = fleet_objects(&fork);
                assert!(left.is_empty(), "{at}: {left:?}");
                leaves_nothing(&fork, &at);
                assert!(fork.contents() == expected, "{at}");
            }
            assert!(!by_others.worker_was_wrong || by_others.tasks_of_others == 0, "{at}");
            decided += count.load(Ordering::SeqCst);
            of_others += by_others.tasks_of_others;
            found_wrong += u64::from(by_others.worker_was_wrong);
            n += if other == Other::Honest { 3 } else { 7 };
        }
        assert!(decided > 1, "{other:?}: only {decided} tasks were decided");
        match other {
            Other::Honest => assert!(of_others > 2 && found_wrong == 0, "{of_others} {found_wrong}"),
            Other::Stale | Other::Failed | Other::Unsigned => {
                assert_eq!((of_others, found_wrong), (0, 0), "{other:?}");
            }
            // Nothing is only verified here, so it has nothing else to copy.
            Other::Stranger => assert_eq!(found_wrong, 0),
            _ => assert!(found_wrong > 0, "{other:?}: {of_others} {found_wrong}"),
        }
    }
}

/// A worker tells the truth for a while, and then lies. What counted before counts no more: the version names nothing of others.
#[test]
fn one_lie_undoes_what_others_copied_before() {
    // More tasks than are away at once.
    let (all, odd): (Vec<u64>, Vec<u64>) = ((1..=28).collect(), (1..=28).step_by(2).collect());
    let scene = scene_of(&all, &odd);
    let (expected, plan) = (scene.contents(), plan(&scene));
    let alone = facts(&rewrite(&scene.fork().context(), &plan, None).unwrap());
    let mut after_the_truth = 0;
    for (n, gap) in (6..33).step_by(3).flat_map(|n| [8, 25].map(|gap| (n, gap))) {
        let fork = Arc::new(scene.fork());
        let (hooked, between) = (fork.clone(), Arc::new(OnceLock::<Arc<Between>>::new()));
        let (again, honest) = (between.clone(), Arc::new(AtomicU64::new(0)));
        let (decided, lied) = (honest.clone(), Arc::new(AtomicU64::new(0)));
        let lies = lied.clone();
        let hook = Between::new(fork.memory.store(), move || {
            let (scene, again, decided, lies) = (hooked.clone(), again.clone(), decided.clone(), lies.clone());
            async move {
                let is_first = decided.load(Ordering::SeqCst) == 0 && lies.load(Ordering::SeqCst) == 0;
                let other = if is_first { Other::Honest } else { Other::Phantom };
                let (_, all) = tokio::task::spawn_blocking(move || decide(&scene, other)).await.unwrap();
                if is_first { &decided } else { &lies }.fetch_add(all, Ordering::SeqCst);
                if is_first && let Some(between) = again.get() {
                    between.happens_after(gap);
                }
            }
        });
        between.set(hook.clone()).unwrap();
        let context = fork.context_at(hook.clone());
        hook.happens_after(n);
        let shared = sharing(2);
        assert_eq!(
            facts(&rewrite(&context, &plan, Some(&shared)).unwrap()),
            alone,
            "before operation {n}, and {gap} later"
        );
        assert!(fork.contents() == expected, "before operation {n}, and {gap} later");
        let report = shared.report();
        if report.worker_was_wrong {
            after_the_truth += u64::from(honest.load(Ordering::SeqCst) > 0 && lied.load(Ordering::SeqCst) > 0);
            let of_others = data_containers(&fork).into_iter().filter(|id| id.seq >= 1 << 31).count();
            assert_eq!((of_others, report.tasks_of_others), (0, 0), "before operation {n}, and {gap} later");
        }
    }
    assert!(after_the_truth > 2, "{after_the_truth}");
}

/// Of a task with several containers, the last one is damaged. One chunk of each is read again.
#[test]
fn a_worker_that_damages_one_container_of_several_is_found() {
    let (all, odd): (Vec<u64>, Vec<u64>) = ((1..=50).collect(), (1..=50).step_by(2).collect());
    let scene = scene_of(&all, &odd);
    let (expected, plan) = (scene.contents(), plan(&scene));
    let (mut decided, mut found) = (0, 0);
    // One chunk of the whole task would find half of them.
    for n in 12..48 {
        let fork = Arc::new(scene.fork());
        let (between, count) = deciding(&fork, Other::Rotten);
        let context = fork.context_at(between.clone());
        between.happens_after(n);
        let shared = sharing_in(2, 20 << 20);
        rewrite(&context, &plan, Some(&shared)).unwrap();
        assert!(fork.contents() == expected, "before operation {n}");
        // Of a task that this process did, the lie is not read.
        assert_eq!(shared.report().tasks_of_others, 0, "before operation {n}");
        decided += count.load(Ordering::SeqCst);
        found += u64::from(shared.report().worker_was_wrong);
    }
    assert!(decided > 4 && found > 1, "{decided} {found}");
}

/// A rewrite beside a worker, which is stopped when it is over.
fn beside(
    scene: &Scene,
    worker: &JobContext,
    context: &JobContext,
    plan: &DefragmentPlan,
    shared: &SharedPass,
) -> (Result<Defragmented, DefragmentError>, Helped) {
    std::thread::scope(|scope| {
        let started = scope.spawn(|| helper(scene, worker));
        let done = rewrite(context, plan, Some(shared));
        worker.cancel.cancel();
        (done, started.join().unwrap())
    })
}

/// Real workers. The version is in few more containers than alone: each batch may end with one that is not full.
#[test]
fn a_worker_leaves_what_one_process_leaves() {
    let scene = scene();
    let (expected, plan) = (scene.contents(), plan(&scene));
    let by_one = scene.fork();
    let alone = facts(&rewrite(&by_one.context(), &plan, None).unwrap());
    let mut of_others = 0;
    for round in 0..100 {
        // Who comes first is chance.
        if round >= 4 && of_others > 2 {
            break;
        }
        let fork = scene.fork();
        let worker = JobContext { cancel: Cancel::default(), ..fork.context() };
        let shared = sharing(2);
        let (done, _) = beside(&fork, &worker, &fork.context(), &plan, &shared);
        assert_eq!(facts(&done.unwrap()), alone);
        assert!(fork.contents() == expected);
        let report = shared.report();
        assert!(!report.worker_was_wrong && report.tasks > 1, "{report:?}");
        let most = data_containers(&by_one).len() + report.tasks_of_others as usize;
        assert!(data_containers(&fork).len() <= most, "{} {most}", data_containers(&fork).len());
        of_others += report.tasks_of_others;
        leaves_nothing(&fork, "a worker");
    }
    assert!(of_others > 2, "{of_others}");
}

/// The worker, and the process that rewrites, die at any operation.
#[test]
fn a_rewrite_whose_processes_die_at_any_operation_loses_nothing() {
    let scene = scene();
    let (expected, plan) = (scene.contents(), plan(&scene));
    let alone = facts(&rewrite(&scene.fork().context(), &plan, None).unwrap());
    let mut failed = 0;
    for n in sweep(0..90, 7) {
        for (stop, dies) in [(Stop::Before, true), (Stop::After, true), (Stop::Before, false), (Stop::After, false)] {
            let at = format!("operation {n}, {stop:?}, the rewrite dies: {dies}");
            let cut = scene.fork();
            let (faulty, faults) = cut.faulty(&cut.memory);
            faults.stop_at(faults.count() + n, stop);
            let (context, worker) = if dies { (faulty, cut.context()) } else { (cut.context(), faulty) };
            let worker = JobContext { cancel: Cancel::default(), ..worker };
            let (done, _) = beside(&cut, &worker, &context, &plan, &sharing(2));
            failed += u64::from(done.is_err());
            match done {
                Ok(done) => assert_eq!(facts(&done), alone, "{at}"),
                Err(error) => assert!(dies, "{at}: {error}"),
            }
            assert!(cut.contents() == expected, "{at}");
            leaves_nothing(&cut, &at);
            assert!(cut.contents() == expected, "{at}");
            let left = fleet_objects(&cut);
            assert!(left.is_empty(), "{at}: {left:?}");
        }
    }
    assert!(failed > 10, "{failed}");
}

/// A worker that claimed everything and died, and a store that takes no tasks, claims or registers.
#[test]
fn a_rewrite_without_help_copies_alone() {
    let scene = scene();
    let (expected, plan) = (scene.contents(), plan(&scene));
    let alone = facts(&rewrite(&scene.fork().context(), &plan, None).unwrap());
    let claimed = Arc::new(AtomicU64::new(0));
    for n in (10..60).step_by(9) {
        let fork = Arc::new(scene.fork());
        let (hooked, count) = (fork.clone(), claimed.clone());
        let between = Between::new(fork.memory.store(), move || {
            let (scene, count) = (hooked.clone(), count.clone());
            let claim = move || {
                let context = scene.context();
                let taken = due(&scene).into_iter().filter(|(pass, task)| is_claimed(&context, *pass, *task));
                count.fetch_add(taken.count() as u64, Ordering::SeqCst);
            };
            async move { tokio::task::spawn_blocking(claim).await.unwrap() }
        });
        let context = fork.context_at(between.clone());
        between.happens_after(n);
        assert_eq!(facts(&rewrite(&context, &plan, Some(&sharing(2))).unwrap()), alone, "before operation {n}");
        assert!(fork.contents() == expected, "before operation {n}");
    }
    assert!(claimed.load(Ordering::SeqCst) > 0, "no task was claimed by the dead worker");
    for part in ["/beat/", "/range/", "/claim/", "/done/copy"] {
        let fork = scene.fork();
        let (context, faults) = fork.faulty(&fork.memory);
        faults.add(When::kind(OpKind::Put).path(part), Fault::FailBefore(Failure::Status(403)), Times::Always);
        assert_eq!(facts(&rewrite(&context, &plan, Some(&sharing(3))).unwrap()), alone, "{part}");
        assert!(fork.contents() == expected, "{part}");
        pass_after(&fork, NEVER);
        assert!(fork.contents() == expected, "{part}");
    }
}
