//! Batches of several workers that share nothing but the store: they save what one process saves; and who is lost, stopped, late,
//! wrong or of another version costs images of its own at most, by name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_fleet::{
    BatchReport, FleetError, Patience, Takes, WorkEvent, WorkOptions, abort, coordinate, find, read_plan, resume,
    status, to_retry, work,
};
use larder_format::fleet::{FLEET_RULES, FleetPlan, Stage};
use larder_format::ids::JobId;
use larder_format::names;
use larder_job::{Cancel, JobContext};
use larder_store::repository::random;
use larder_testkit::data;
use parking_lot::Mutex;

use crate::fleet::{Disks, Given, chunks, fleet_images, given, is_clean, is_saved, options, three};
use crate::support::*;

pub(crate) fn as_host(scene: &Scene, host: &str) -> WorkOptions {
    let fleet = options(scene, 3, 4 << 20);
    let takes = Takes { batches: true, checks: true, passes: true };
    WorkOptions { fleet, host: host.to_owned(), poll: Duration::from_millis(2), takes, nats: None }
}

/// A worker of a host, until one batch is over.
pub(crate) fn worker(
    scene: &Scene,
    context: &JobContext,
    host: &str,
    images: &[Given],
) -> Result<Vec<String>, FleetError> {
    let seen = Mutex::new(Vec::new());
    let mut watch = |event: WorkEvent<'_>| match event {
        WorkEvent::Ends(_, worked) => seen.lock().extend(worked.saved.clone()),
        WorkEvent::LeavesAlone(error) => panic!("{error}"),
        WorkEvent::Begins(..) | WorkEvent::Checked(..) | WorkEvent::Copied(..) => {}
    };
    let fleet = fleet_images(images);
    work(context, &fleet, &mut Disks(images), &as_host(scene, host), true, &mut watch)?;
    Ok(seen.into_inner())
}

/// A coordinator without images of its own host, and workers. A worker that comes too late for the batch is stopped.
fn batch(scene: &Scene, images: &[Given], hosts: &[&str], patience: Patience) -> (BatchReport, Vec<Vec<String>>) {
    std::thread::scope(|scope| {
        let workers: Vec<_> = hosts
            .iter()
            .map(|host| {
                let (context, begun) = (scene.context(), Arc::new(AtomicBool::new(false)));
                let (cancel, is_begun) = (context.cancel.clone(), begun.clone());
                let work =
                    move || {
                        let mut saved = Vec::new();
                        let fleet = fleet_images(images);
                        let ended =
                            work(&context, &fleet, &mut Disks(images), &as_host(scene, host), true, &mut |event| {
                                match event {
                                    WorkEvent::Begins(..) => begun.store(true, Ordering::SeqCst),
                                    WorkEvent::Ends(_, worked) => saved.extend(worked.saved.clone()),
                                    WorkEvent::LeavesAlone(error) => panic!("{error}"),
                                    WorkEvent::Checked(..) | WorkEvent::Copied(..) => {}
                                }
                            });
                        assert!(ended.is_ok() || !begun.load(Ordering::SeqCst), "{ended:?}");
                        saved
                    };
                (scope.spawn(work), cancel, is_begun)
            })
            .collect();
        let fleet = fleet_images(images);
        let report =
            coordinate(&scene.context(), &fleet, &fleet, &mut Disks(images), &as_host(scene, "elsewhere"), patience)
                .unwrap();
        let end =
            |(worker, cancel, is_begun): (std::thread::ScopedJoinHandle<'_, Vec<String>>, Cancel, Arc<AtomicBool>)| {
                if !is_begun.load(Ordering::SeqCst) {
                    cancel.cancel();
                }
                worker.join().unwrap()
            };
        (report, workers.into_iter().map(end).collect())
    })
}

#[test]
fn workers_save_what_one_process_saves() {
    let scene = Scene::new();
    let mut images = three();
    images.push(given("d", "any", [&data::random(2, 200_000)[..], &data::random(30, 90_000)].concat()));
    let fork = scene.fork();
    let (report, saved) = batch(&fork, &images, &["one", "two", "two"], Patience::default());
    assert!(report.ended_by.is_none(), "{:?}", report.ended_by);
    assert!(report.images.iter().all(|image| image.result.is_ok()), "{:?}", report.images);
    is_saved(&fork, &images);
    // Who planned the batch may read shared images, too.
    let count = saved.iter().map(Vec::len).sum::<usize>();
    assert!((3..=4).contains(&count), "each image is read by one process: {saved:?}");
    let (distinct, count) = chunks(&fork);
    assert_eq!(distinct, count, "every chunk is stored once");
    fork.pass().unwrap();
    is_saved(&fork, &images);
    is_clean(&fork, "after a batch of several workers");
    // The second day finds everything.
    let stored = chunks(&fork);
    let (report, _) = batch(&fork, &images, &["one", "two"], Patience::default());
    assert!(report.images.iter().all(|image| image.result.is_ok()));
    assert_eq!(chunks(&fork), stored);
    is_saved(&fork, &images);
}

fn only(images: &[Given], host: &str) -> Vec<Given> {
    images.iter().filter(|image| image.host == host).cloned().collect()
}

#[track_caller]
fn why(report: &BatchReport, name: &str) -> (Stage, String) {
    let image = report.images.iter().find(|image| image.image.name == name).unwrap();
    let failure = image.result.as_ref().unwrap_err();
    (failure.stage, failure.error.as_ref().unwrap().to_string())
}

/// Nobody reads one host, one image is gone, one is not in the inventory of its host, and one cannot be read a second time.
/// Each is named with its stage; the others are saved; and a second batch saves what can be.
#[test]
fn images_that_no_worker_can_save_are_named_and_saved_by_the_next_batch() {
    let scene = Scene::new();
    let mut images = three();
    images.push(given("gone", "one", Vec::new()));
    let mut cut = given("cut", "one", data::random(20, 300_000));
    cut.spoiled = Some((cut.bytes.len() as u64, true));
    images.push(cut);
    images.push(given("unknown", "one", data::random(21, 50_000)));
    let patience = Patience { claim: Duration::from_secs(2), task: Duration::from_secs(5) };
    let listed: Vec<_> = images.iter().filter(|image| image.name != "unknown").cloned().collect();
    let report = std::thread::scope(|scope| {
        let one = scope.spawn(|| worker(&scene, &scene.context(), "one", &listed));
        let fleet = fleet_images(&images);
        let options = as_host(&scene, "elsewhere");
        let report = coordinate(&scene.context(), &fleet, &[], &mut Disks(&[]), &options, patience).unwrap();
        assert_eq!(one.join().unwrap().unwrap(), ["a", "c"]);
        report
    });
    let (stage, text) = why(&report, "b");
    assert!(stage == Stage::Scan && text.starts_with("no worker for host two came within"), "{text}");
    assert_eq!(why(&report, "gone"), (Stage::Scan, "there is no such disk".to_owned()));
    assert!(why(&report, "unknown").1.contains("has no image unknown of series vm/unknown"));
    let (stage, text) = why(&report, "cut");
    assert!(stage == Stage::Store && text.contains("a second time"), "{text}");
    is_saved(&scene, &only(&images, "one")[..2]);
    let repository = scene.repository(scene.memory.store());
    let said = status(&repository, &scene.runtime.handle().clone().into(), report.batch).unwrap().unwrap();
    assert!(said.due.is_none() && said.workers.len() == 2, "{said:?}");
    // The next one.
    let plan = read_plan(&scene.context(), report.batch).unwrap().unwrap();
    let again = to_retry(&report, &plan);
    assert_eq!(again.iter().map(|image| &*image.name).collect::<Vec<_>>(), ["b", "gone", "cut", "unknown"]);
    images.iter_mut().for_each(|image| image.spoiled = None);
    std::thread::scope(|scope| {
        for host in ["one", "two"] {
            let (scene, images) = (&scene, &images);
            scope.spawn(move || worker(scene, &scene.context(), host, images).unwrap());
        }
        let options = as_host(&scene, "elsewhere");
        let report = coordinate(&scene.context(), &again, &[], &mut Disks(&[]), &options, Patience::default()).unwrap();
        assert_eq!(why(&report, "gone").0, Stage::Scan);
        assert_eq!(report.images.iter().filter(|image| image.result.is_ok()).count(), 3);
    });
    images.retain(|image| image.name != "gone");
    is_saved(&scene, &images);
    scene.pass().unwrap();
    is_saved(&scene, &images);
    is_clean(&scene, "after two batches");
}

/// A worker whose folder for temporary files is of no use leaves at once, and says so to the others.
#[test]
fn a_worker_that_cannot_go_on_says_so_and_the_others_do() {
    let scene = Scene::new();
    let images = three();
    let report = std::thread::scope(|scope| {
        scope.spawn(|| worker(&scene, &scene.context(), "one", &images).unwrap());
        scope.spawn(|| {
            let mut options = as_host(&scene, "two");
            options.fleet.scratch = scene.dir.path().join("absent");
            let fleet = fleet_images(&images);
            let ended = work(&scene.context(), &fleet, &mut Disks(&images), &options, true, &mut |_| {});
            assert!(matches!(ended, Err(FleetError::Scratch { .. } | FleetError::Index(_))), "{ended:?}");
        });
        let patience = Patience { claim: Duration::from_secs(2), task: Duration::from_secs(5) };
        let fleet = fleet_images(&images);
        coordinate(&scene.context(), &fleet, &[], &mut Disks(&[]), &as_host(&scene, "elsewhere"), patience).unwrap()
    });
    let (stage, text) = why(&report, "b");
    let is_said = text.starts_with("the worker left the batch: cannot use the folder for temporary files");
    assert!(stage == Stage::Store && is_said, "{stage}: {text}");
    is_saved(&scene, &only(&images, "one"));
}

/// Two that plan, and two that look after one batch: all say the same, and nothing is done twice.
#[test]
fn two_may_look_after_one_batch_and_two_batches_may_run_at_once() {
    let scene = Scene::new();
    let images = three();
    let options = as_host(&scene, "elsewhere");
    let run =
        || coordinate(&scene.context(), &fleet_images(&images), &[], &mut Disks(&[]), &options, Patience::default());
    std::thread::scope(|scope| {
        let first = scope.spawn(run);
        let second = scope.spawn(run);
        let context = scene.context();
        let open = || find(&context, "").unwrap();
        while open().len() < 2 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let (scene, options) = (&scene, &options);
        let helpers: Vec<_> = open()
            .into_iter()
            .map(|batch| {
                scope.spawn(move || {
                    let context = scene.context();
                    let plan = loop {
                        if let Some(plan) = read_plan(&context, batch).unwrap() {
                            break plan;
                        }
                    };
                    resume(&context, batch, plan, &[], &mut Disks(&[]), options).unwrap()
                })
            })
            .collect();
        let cancel = Cancel::default();
        for host in ["one", "two", "one", "two"] {
            let (images, cancel) = (&images, cancel.clone());
            scope.spawn(move || {
                // Until both batches are over.
                let context = JobContext { cancel, ..scene.context() };
                let fleet = fleet_images(images);
                let _ = work(&context, &fleet, &mut Disks(images), &as_host(scene, host), false, &mut |_| {});
            });
        }
        let mut reports = vec![first.join().unwrap().unwrap(), second.join().unwrap().unwrap()];
        reports.extend(helpers.into_iter().map(|helper| helper.join().unwrap()));
        cancel.cancel();
        for report in reports {
            assert!(report.images.iter().all(|image| image.result.is_ok()), "{:?}", report.images);
        }
    });
    is_saved(&scene, &images);
}

/// Plans that are not for this program or this key, and one that nobody may end twice.
#[test]
fn plans_of_other_programs_and_of_other_domains_are_left_alone() {
    let scene = Scene::new();
    let context = scene.context();
    let images = three();
    let (report, _) = batch(&scene, &images, &["one", "two"], Patience::default());
    let plan = read_plan(&context, report.batch).unwrap().unwrap();
    assert_eq!(abort(&context, report.batch, plan.clone(), &as_host(&scene, "x")).unwrap(), 0, "it is over");
    let mut newer = plan.clone();
    newer.shared.iter_mut().for_each(|shared| shared.rules = FLEET_RULES + 1);
    let error = resume(&context, report.batch, newer, &[], &mut Disks(&[]), &as_host(&scene, "x")).unwrap_err();
    assert!(error.to_string().contains("same version of larder on all hosts"), "{error}");
    let alone = FleetPlan { shared: None, ..plan };
    let error = resume(&context, report.batch, alone, &[], &mut Disks(&[]), &as_host(&scene, "x")).unwrap_err();
    assert!(error.to_string().contains("one process"), "{error}");
    // A plan that this key does not open.
    let repository = &context.repository;
    let id = JobId::new(5, random(repository.entropy()).unwrap());
    let foreign = scene.runtime.handle().block_on(repository.store().get(&names::fleet_plan(report.batch))).unwrap();
    scene.runtime.handle().block_on(repository.store().create(&names::fleet_plan(id), foreign)).unwrap();
    let error = read_plan(&context, id).unwrap_err();
    assert!(error.to_string().contains("use a key of its domain"), "{error}");
}

/// An object that does not open has the name of a register. The others see a task that was aborted. So the batch ends for all of
/// them, and no image is named as not saved that has a version.
#[test]
fn a_register_that_cannot_be_read_costs_its_task_alone() {
    use Stage::{Finish, Join, Place, Resolve, Send, Store};
    let mut named = 0;
    for (stage, round, number) in
        [(Send, 0, 0), (Join, 0, 1), (Store, 0, 1), (Place, 0, 0), (Resolve, 0, 0), (Finish, 0, 0)]
    {
        let scene = Scene::new();
        let images = three();
        let spoil = |batch: JobId| {
            let name = names::fleet_done(batch, larder_format::fleet::TaskId { stage, round, number });
            let store = scene.repository(scene.memory.store());
            let _ = scene.runtime.handle().block_on(store.store().create(&name, vec![7; 100].into()));
        };
        let options = as_host(&scene, "elsewhere");
        let report = std::thread::scope(|scope| {
            let planner = scope.spawn(|| {
                coordinate(
                    &scene.context(),
                    &fleet_images(&images),
                    &[],
                    &mut Disks(&[]),
                    &options,
                    Patience::default(),
                )
            });
            let context = scene.context();
            let batch = loop {
                if let Some(batch) = find(&context, "").unwrap().first() {
                    break *batch;
                }
            };
            spoil(batch);
            let workers = ["one", "two"].map(|host| scope.spawn(|| worker(&scene, &scene.context(), host, &images)));
            let report = planner.join().unwrap().unwrap();
            workers.into_iter().for_each(|worker| drop(worker.join().unwrap().unwrap()));
            report
        });
        let newest = crate::fleet::newest(&scene);
        for (image, said) in images.iter().zip(&report.images) {
            let is_there = newest.get(image.name) == Some(&image.bytes);
            assert_eq!(said.result.is_ok(), is_there, "{stage}: {} {:?}", image.name, said.result);
            if let Err(failure) = &said.result {
                let why = failure.error.as_ref().unwrap().to_string();
                assert!(why.contains("cannot be read"), "{stage}: {why}");
                named += 1;
            }
        }
        scene.pass().unwrap();
        newest.keys().for_each(|name| assert!(crate::fleet::newest(&scene).contains_key(name), "{stage}"));
    }
    // Two of the first host, and one that another process would have stored.
    assert!((3..=4).contains(&named), "{named}");
}

/// Nobody may work on a batch whose register does not open, and others go on.
#[test]
fn a_worker_goes_on_beside_a_batch_that_is_damaged() {
    let scene = Scene::new();
    let images = three();
    let context = scene.context();
    let (old, _) = batch(&scene, &images, &["one", "two"], Patience::default());
    let repository = &context.repository;
    // Its lease is open, and its index cannot be read.
    let plan = read_plan(&context, old.batch).unwrap().unwrap();
    let id = JobId::new(5, random(repository.entropy()).unwrap());
    let lease = context.lease(larder_format::lease::JobKind::Read, larder_fleet::STORE_SERIES);
    let keeper = larder_job::LeaseKeeper::open(&context, id, lease).unwrap();
    let bytes = plan.encode(repository.keys(), id, random(repository.entropy()).unwrap()).unwrap();
    let handle = scene.runtime.handle();
    handle.block_on(repository.store().create(&names::fleet_plan(id), bytes.into())).unwrap();
    for host in 0..plan.hosts.len() as u32 {
        let task = larder_format::fleet::TaskId { stage: Stage::Send, round: 0, number: host };
        handle.block_on(repository.store().create(&names::fleet_done(id, task), vec![0; 10].into())).unwrap();
    }
    let (report, _) = batch(&scene, &images, &["one", "two"], Patience::default());
    assert!(report.images.iter().all(|image| image.result.is_ok()), "{:?}", report.images);
    keeper.end(larder_job::Ending::Open);
}
