//! Batches of several workers when something goes wrong beside them: what workers left for one another is damaged, a worker stands
//! still until its batch is over and removed, the process that planned is lost, or another batch keeps a worker.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::sync::Arc;
use std::time::Duration;

use larder_fleet::{BatchReport, FleetError, Patience, clean, coordinate, find, read_plan, resume, status, work};
use larder_format::fleet::{FLEET_RULES, FleetPlan, PlannedHost, PlannedImage, SharedWork, Stage, TaskId, TaskRecord};
use larder_format::ids::JobId;
use larder_format::lease::{Done, JobKind};
use larder_format::names::{self, FleetObject};
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_store::repository::random;
use larder_testkit::data;
use larder_testkit::{Failure, Fault, OpKind, Times, When};
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;

use crate::fleet::{Disks, Given, batch_with, fleet_images, given, is_saved, newest, three};
use crate::fleet_workers::{as_host, worker};
use crate::support::*;

const SOON: Patience = Patience { claim: Duration::from_secs(1), task: Duration::from_secs(2) };

/// Plans a batch that this process reads no image of.
fn plan(scene: &Scene, context: &JobContext, images: &[Given], patience: Patience) -> Result<BatchReport, FleetError> {
    coordinate(context, &fleet_images(images), &[], &mut Disks(&[]), &as_host(scene, "elsewhere"), patience)
}

fn only(images: &[Given], host: &str) -> Vec<Given> {
    images.iter().filter(|image| image.host == host).cloned().collect()
}

/// Waits until something is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}");
}

fn names_with(scene: &Scene, text: &str) -> Vec<String> {
    let paths = scene.runtime.block_on(scene.memory.paths());
    paths.into_iter().filter(|path| path.contains(text)).collect()
}

/// What tasks left for others is about space alone: it is flipped or deleted before any operation of a batch, and every image is
/// saved.
#[test]
fn what_tasks_left_may_be_damaged_or_gone_at_any_moment() {
    let mut images = three();
    // Places are told across rounds.
    images[1].round = 1;
    for deletes in [true, false] {
        let damage = move |scene: &Scene| {
            let store = scene.memory.store();
            let is_hint = |path: &String| match names::parse_fleet(path) {
                Some((_, FleetObject::Output(task, ..))) => task.stage != Stage::Scan,
                _ => false,
            };
            scene.runtime.handle().block_on(async {
                for path in scene.memory.paths().await.into_iter().filter(is_hint) {
                    let path = ObjectPath::from(path);
                    let mut bytes = store.get(&path).await.unwrap().bytes().await.unwrap().to_vec();
                    store.delete(&path).await.unwrap();
                    if !deletes {
                        bytes.iter_mut().step_by(7).for_each(|byte| *byte ^= 1);
                        store.put(&path, bytes.into()).await.unwrap();
                    }
                }
            });
        };
        at_every_operation(
            &Scene::new(),
            damage,
            |scene, store| batch_with(&scene.context_at(store), scene, &images, 2),
            |scene, result, at| {
                let report = result.unwrap_or_else(|error| panic!("{at}: {error}"));
                assert!(report.ended_by.is_none(), "{at}: {:?}", report.ended_by);
                assert!(report.images.iter().all(|image| image.result.is_ok()), "{at}: {:?}", report.images);
                is_saved(scene, &images);
            },
        );
    }
}

/// It stands still before its questions, or before what it stored is told, until its images are named as not saved and all that
/// the batch left is removed. Then it goes on, and creates these registers for the first time once more. It commits nothing.
#[test]
fn a_worker_that_stood_still_beyond_the_end_of_its_batch_commits_nothing() {
    for text in ["/done/send/", "/done/store/"] {
        let scene = Scene::new();
        let images = only(&three(), "one");
        let slow = Between::new(scene.memory.store(), || async {});
        slow.stand_still_before(text);
        let context = scene.context_at(slow.clone());
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let fleet = fleet_images(&images);
                work(&context, &fleet, &mut Disks(&images), &as_host(&scene, "one"), true, &mut |_| {})
            });
            let report = plan(&scene, &scene.context(), &images, SOON).unwrap();
            assert!(report.images.iter().all(|image| image.result.is_err()), "{text}: {:?}", report.images);
            let repository = scene.repository(scene.memory.store());
            assert_eq!(clean(&repository, &scene.runtime.handle().clone().into()).unwrap().batches, 1, "{text}");
            slow.go_on();
            let ended = worker.join().unwrap();
            assert!(ended.is_ok(), "{text}: {ended:?}");
        });
        assert_eq!(newest(&scene).len(), 0, "{text}: images that were named as not saved");
    }
}

/// Nobody reaches the store for twice as long as images wait for silent workers. Who is back first ends nothing of the others.
#[test]
fn an_outage_of_the_store_ends_nobodys_tasks() {
    // Much longer than a busy machine lets a thread wait.
    let patience = Patience { task: Duration::from_secs(10), ..SOON };
    let scene = Scene::new();
    let images = only(&three(), "one");
    let still = |_| Between::new(scene.memory.store(), || async {});
    let [of_planner, of_worker] = [(); 2].map(still);
    let contexts = [&of_planner, &of_worker].map(|store| scene.context_at(store.clone()));
    // The worker has not told anybody what it found when the outage begins.
    of_worker.stand_still_before("/done/send/");
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| worker(&scene, &contexts[1], "one", &images));
        let planned = scope.spawn(|| plan(&scene, &contexts[0], &images, patience));
        until("a claim", || !names_with(&scene, "/claim/").is_empty());
        until("scans", || of_worker.has_stood_still());
        of_planner.stand_still();
        std::thread::sleep(patience.task * 2);
        of_planner.go_on();
        std::thread::sleep(patience.task / 10);
        of_worker.go_on();
        let report = planned.join().unwrap().unwrap();
        assert!(report.images.iter().all(|image| image.result.is_ok()), "{:?}", report.images);
        assert_eq!(worker.join().unwrap().unwrap().len(), images.len());
    });
    is_saved(&scene, &images);
}

/// A batch with an open lease. Its first host has left it, and nobody has begun the second.
fn open_batch(scene: &Scene, context: &JobContext) -> (JobId, LeaseKeeper) {
    let repository = &context.repository;
    let salt = || random(repository.entropy()).unwrap();
    let id = JobId::new(5, random(repository.entropy()).unwrap());
    let keeper = LeaseKeeper::open(context, id, context.lease(JobKind::Read, larder_fleet::STORE_SERIES)).unwrap();
    let host = |name: &str| PlannedHost { name: name.to_owned(), store: JobId([1; 16]), is_any: None, round: None };
    let image = |name: &str, host| PlannedImage {
        name: name.to_owned(),
        series: format!("vm/{name}"),
        host,
        job: JobId([host as u8 + 2; 16]),
        source: "memory".to_owned(),
    };
    let shared = SharedWork {
        rules: FLEET_RULES,
        claim_seconds: 1,
        task_seconds: 2,
        tags: Vec::new(),
        force: false,
        verify_every: 0,
    };
    let plan = FleetPlan {
        images: vec![image("a", 0), image("b", 1)],
        hosts: vec![host("one"), host("two")],
        partitions: 1,
        index: 0,
        time_ms: 1,
        program: "test".to_owned(),
        shared: Some(shared),
    };
    let task = TaskId { stage: Stage::Send, round: 0, number: 0 };
    let record = TaskRecord {
        host: "one".to_owned(),
        time_ms: 1,
        took_ms: 1,
        ..TaskRecord::aborted("it left".to_owned(), repository.keys().domain())
    };
    let plan = plan.encode(repository.keys(), id, salt()).unwrap();
    let record = record.encode(repository.keys(), id, task, salt()).unwrap();
    scene.runtime.handle().block_on(async {
        repository.store().create(&names::fleet_plan(id), plan.into()).await.unwrap();
        repository.store().create(&names::fleet_done(id, task), record.into()).await.unwrap();
    });
    (id, keeper)
}

/// A batch is closed and removed before any of its operations. A worker leaves it: without an error, and without a register.
#[test]
fn a_worker_leaves_a_batch_that_is_removed_under_it() {
    for n in 0..30 {
        let scene = Arc::new(Scene::new());
        let (id, keeper) = open_batch(&scene, &scene.context());
        let (other, keeper) = (scene.clone(), Arc::new(parking_lot::Mutex::new(Some(keeper))));
        let between = Between::new(scene.memory.store(), move || {
            let (scene, keeper) = (other.clone(), keeper.clone());
            async move {
                let close = move || {
                    keeper.lock().take().unwrap().end(Ending::Closed(Done::nothing()));
                    let repository = scene.repository(scene.memory.store());
                    clean(&repository, &scene.runtime.handle().clone().into()).unwrap();
                };
                tokio::task::spawn_blocking(close).await.unwrap();
            }
        });
        let context = scene.context_at(between.clone());
        between.happens_after(n);
        let cancel = context.cancel.clone();
        let begun = std::sync::atomic::AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                until("it happens", || between.has_happened());
                // It may come when nothing of the batch is there any more.
                for _ in 0..200 {
                    if begun.load(std::sync::atomic::Ordering::SeqCst) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                cancel.cancel();
            });
            let images = [given("x", "other", vec![1])];
            let fleet = fleet_images(&images);
            work(&context, &fleet, &mut Disks(&images), &as_host(&scene, "other"), true, &mut |event| {
                if matches!(event, larder_fleet::WorkEvent::Begins(..)) {
                    begun.store(true, std::sync::atomic::Ordering::SeqCst);
                }
            })
        });
        let is_begun = begun.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(ended.is_ok(), is_begun, "{n}: {ended:?}");
        if let Err(error) = ended {
            assert_eq!(error.kind(), larder_format::ErrorKind::Interrupted, "{n}: {error}");
        }
        assert!(names_with(&scene, &format!("{id}/done/")).is_empty(), "{n}");
    }
}

/// The process that planned is lost. It says so, names nothing as failed, and workers renew its lease, so that no pass removes what
/// they work with. They finish the batch, and a retry reports.
#[test]
fn workers_keep_the_lease_of_a_batch_whose_planner_is_lost() {
    let scene = Scene::new();
    let images = three();
    let quick = |context: JobContext| JobContext { renew_every: Duration::from_millis(100), ..context };
    let planner = scene.context();
    std::thread::scope(|scope| {
        let one = scope.spawn(|| {
            let context = quick(scene.context());
            worker(&scene, &context, "one", &images)
        });
        let planned =
            scope.spawn(|| plan(&scene, &planner, &images, Patience { claim: SOON.claim, ..Patience::default() }));
        until("questions", || !names_with(&scene, "/done/send/").is_empty());
        planner.cancel.cancel();
        let report = planned.join().unwrap().unwrap();
        assert!(report.ended_by.is_some() && report.images.iter().all(|image| image.is_undecided()), "{report:?}");
        let leases = || names_with(&scene, &format!("jobs/{}/", report.batch));
        until("the lease is renewed", || leases().len() >= 3);
        let two = worker(&scene, &quick(scene.context()), "two", &images).unwrap();
        assert_eq!((one.join().unwrap().unwrap(), two), (vec!["a".to_owned(), "c".to_owned()], vec!["b".to_owned()]));
        let context = scene.context();
        let plan = read_plan(&context, report.batch).unwrap().unwrap();
        let report = resume(&context, report.batch, plan, &[], &mut Disks(&[]), &as_host(&scene, "x")).unwrap();
        assert!(report.images.iter().all(|image| image.result.is_ok()), "{:?}", report.images);
    });
    is_saved(&scene, &images);
}

/// The process that planned may not create signs of life, and ends with an error. The batch is open to workers, which finish it.
#[test]
fn a_batch_whose_planner_fails_after_its_plan_is_open_to_workers() {
    let scene = Scene::new();
    let images = only(&three(), "one");
    let (planner, faults) = scene.faulty(&scene.memory);
    faults.add(When::kind(OpKind::Put).path("/beat/"), Fault::FailBefore(Failure::Denied), Times::Always);
    let error = plan(&scene, &planner, &images, SOON).unwrap_err();
    assert!(error.to_string().contains("denied") || error.to_string().contains("permitted"), "{error}");
    let context = scene.context();
    let found = scene.runtime.handle().block_on(context.repository.fleet_batches()).unwrap();
    assert_eq!((found.open.len(), found.over.len()), (1, 0));
    // Its lease says nothing of an end, so passes give it the time of a lost process.
    let id = *found.open.first().unwrap();
    let state = scene.runtime.handle().block_on(context.repository.lease_state(id)).unwrap();
    assert_eq!((state.newest.map(|(renewal, _)| renewal), state.is_closed), (Some(0), false));
    assert_eq!(worker(&scene, &context, "one", &images).unwrap().len(), images.len());
    is_saved(&scene, &images);
}

/// A worker is busy with a batch for longer than another one waits for a worker. It says there that it will come.
#[test]
fn a_batch_waits_for_a_worker_that_is_busy_with_another_one() {
    // Much longer than a busy machine lets a thread wait.
    let patience = Patience { task: Duration::from_secs(6), ..SOON };
    let scene = Scene::new();
    let images = three();
    let own = [given("z", "one", data::random(77, 60_000))];
    let all = [&images[..], &own].concat();
    std::thread::scope(|scope| {
        let first = scope
            .spawn(|| plan(&scene, &scene.context(), &images, Patience { claim: SOON.claim, ..Patience::default() }));
        let context = scene.context();
        let cancel = context.cancel.clone();
        let one = scope.spawn(|| {
            let fleet = fleet_images(&all);
            let context = context;
            work(&context, &fleet, &mut Disks(&all), &as_host(&scene, "one"), false, &mut |_| {})
        });
        until("questions", || !names_with(&scene, "/done/send/").is_empty());
        let second = scope.spawn(|| plan(&scene, &scene.context(), &own, patience));
        until("the second", || find(&scene.context(), "").unwrap().len() == 2);
        // Twice as long as the second batch waits for silent workers.
        std::thread::sleep(patience.task * 2);
        worker(&scene, &scene.context(), "two", &all).unwrap();
        let reports = [first, second].map(|planner| planner.join().unwrap().unwrap());
        cancel.cancel();
        let _ = one.join().unwrap();
        for report in reports {
            assert!(report.images.iter().all(|image| image.result.is_ok()), "{:?}", report.images);
            let repository = scene.repository(scene.memory.store());
            assert!(status(&repository, &scene.runtime.handle().clone().into(), report.batch).unwrap().is_some());
        }
    });
    is_saved(&scene, &all);
}
