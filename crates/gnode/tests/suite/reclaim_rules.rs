//! The promise: what somebody may still come to name, and what newest versions name, is not retired, whatever other copies there are.
//! Each story goes wrong without one line of `reclaim/eligibility.rs`; the rules have the names of `docs/concurrency.md`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::*;
use larder_format::ids::JobId;
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::names;
use larder_gnode::pass::PassOptions;
use larder_gnode::reclaim::Exact;
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_lnode::{BackupError, BackupReport};
use larder_reader::VersionReader;
use larder_testkit::{Failure, Fault, OpKind, Times, When};

/// What is stored twice.
const OLD: [(&str, u64, usize); 2] = [("one", 1, 40_000), ("two", 2, 30_000)];

/// A repository with a copy of what is backed up to series "a" next, in a container that a newest version uses and to which everybody
/// else would be led.
fn with_another_copy() -> (Scene, JobId) {
    let scene = Scene::new();
    let other = scene.alone("other", &OLD);
    scene.fill("a", &OLD);
    scene.fill("newest", &[("new", 3, 20_000)]);
    (scene, other)
}

/// Without a base, and without looking for similar streams: what it finds is what it adopts.
fn adopting(context: &JobContext, scene: &Scene) -> Result<BackupReport, BackupError> {
    backup_with(context, &scene.source("a"), "a", |options| {
        options.force = true;
        options.find_similar = false;
    })
}

/// What went away is forgotten by everybody else, and collected.
fn forget_and_collect(scene: &Scene, versions: [JobId; 2]) {
    versions.iter().for_each(|id| scene.forget(*id));
    scene.pass_with(&thorough(Exact::Never)).unwrap();
}

/// Data containers of a version that another job uploaded.
fn adopted(scene: &Scene, id: JobId) -> usize {
    scene.data_of(id).iter().filter(|container| container.job != id).count()
}

/// `RetireSettled`: a job is slow, another one adopts what it has uploaded and commits first. When that version and the one with the
/// other copy are gone, nobody is known to need what the slow job is about to name.
#[test]
fn containers_of_a_slow_job_are_not_retired() {
    let (scene, other) = with_another_copy();
    let was_adopted = Arc::new(AtomicUsize::new(0));
    let seen = was_adopted.clone();
    at_every_operation(
        &scene,
        move |scene| {
            let adopter = adopting(&scene.context(), scene).unwrap().version.unwrap().id;
            seen.fetch_add(adopted(scene, adopter), Ordering::Relaxed);
            backup_alone(&scene.context(), &scene.source("newest"), "a");
            scene.pass_with(&thorough(Exact::Never)).unwrap();
            forget_and_collect(scene, [adopter, other]);
        },
        |scene, store| adopting(&scene.context_at(store), scene),
        |scene, result, at| {
            let id = result.unwrap_or_else(|error| panic!("{at}: {error}")).version.unwrap().id;
            let files = scene.contents().remove(&id).unwrap();
            assert_eq!(files.values().map(Vec::len).sum::<usize>(), 70_000, "{at}");
            scene.pass_with(&thorough(Exact::Never)).unwrap();
            scene.index_agrees(at);
        },
    );
    assert!(was_adopted.load(Ordering::Relaxed) > 0, "nobody adopted anything");
}

/// `RetireNotAdopted`: what a dead job left is used by a version, and adopted by a job that runs. Meanwhile the dead job is fenced,
/// so that it is settled, and the version goes.
#[test]
fn containers_that_a_running_job_adopts_are_not_retired() {
    let (scene, other) = with_another_copy();
    let (context, faults) = scene.faulty(&scene.memory);
    faults.add(When::kind(OpKind::Put).path("versions/"), Fault::FailBefore(Failure::Status(403)), Times::Always);
    adopting(&context, &scene).expect_err("it cannot commit");
    let adopter = adopting(&scene.context(), &scene).unwrap().version.unwrap().id;
    let dead = scene.data_of(adopter).first().unwrap().job;
    assert_ne!(dead, adopter);
    backup_alone(&scene.context(), &scene.source("newest"), "a");
    let expected = scene.contents().remove(&adopter).unwrap();
    let was_adopted = AtomicUsize::new(0);
    at_every_operation(
        &scene,
        move |scene| {
            let repository = scene.repository(scene.memory.store());
            let register = Pin { series: repository.keys().series_key("a"), job: dead };
            scene.runtime.block_on(repository.fence(register, 0)).unwrap();
            scene.pass_with(&thorough(Exact::Never)).unwrap();
            forget_and_collect(scene, [adopter, other]);
        },
        |scene, store| adopting(&scene.context_at(store), scene),
        |scene, result, at| {
            let id = result.unwrap_or_else(|error| panic!("{at}: {error}")).version.unwrap().id;
            assert!(scene.contents()[&id] == expected, "{at}");
            was_adopted.fetch_add(adopted(scene, id), Ordering::Relaxed);
            scene.pass_with(&thorough(Exact::Never)).unwrap();
            scene.index_agrees(at);
        },
    );
    assert!(was_adopted.load(Ordering::Relaxed) > 0, "nobody adopted anything");
}

/// A newest version of which two generations count, because somebody reads it, is not in the index. It names containers all the same,
/// and needs no index.
#[test]
fn what_a_newest_version_of_several_generations_names_is_not_retired() {
    let (scene, _) = with_another_copy();
    let first = scene.alone("a", &OLD);
    backup_alone(&scene.context(), &scene.source("newest"), "a");
    scene.fill("a", &[OLD[0], OLD[1], ("more", 4, 30_000)]);
    let newest = backup_with(&scene.context(), &scene.source("a"), "a", |options| {
        options.base = Some(first);
        options.find_similar = false;
    });
    let newest = newest.unwrap().version.unwrap().id;
    assert!(adopted(&scene, newest) > 0, "it shares containers with its base");
    scene.pass_with(&PassOptions { reclaim: None, ..pass_options() }).unwrap();
    let version = scene.versions().into_iter().find(|version| version.id() == newest).unwrap();
    let (_, reading) = VersionReader::announce(&scene.context(), &version).unwrap();
    rewrite(&scene.context(), &version, |container| container.job == newest);
    let expected = scene.contents();
    scene.pass_with(&thorough(Exact::Never)).unwrap();
    let shared: Vec<_> = scene.data_of(newest).intersection(&scene.data_of(first)).copied().collect();
    assert!(!shared.is_empty() && shared.into_iter().all(|container| scene.is_there(container)));
    assert!(scene.contents() == expected);
    reading.end();
}

/// What a running compaction names it may reference: its newest generation would need the index.
#[test]
fn what_running_jobs_build_on_is_not_retired() {
    let (scene, _) = with_another_copy();
    let old = scene.alone("a", &OLD);
    backup_alone(&scene.context(), &scene.source("newest"), "a");
    let containers = scene.data_of(old);
    let version = scene.versions().into_iter().find(|version| version.id() == old).unwrap();
    for (kind, generation) in [(JobKind::Task, Some(1)), (JobKind::Backup, None), (JobKind::Read, None)] {
        let scene = scene.fork();
        let context = scene.context();
        let pins = vec![Pin { series: version.series, job: old }];
        let lease = Lease { pins, generation, ..context.lease(kind, "a") };
        let job = JobId::new(lease.written_ms, [1; 10]);
        let keeper = LeaseKeeper::open(&context, job, lease).unwrap();
        scene.pass_with(&thorough(Exact::Never)).unwrap();
        let is_spared = containers.iter().all(|container| scene.is_there(*container));
        assert_eq!(is_spared, kind != JobKind::Read, "{kind:?}");
        keeper.end(Ending::Closed(Done::nothing()));
        scene.version("b", 0);
        scene.pass_with(&thorough(Exact::Never)).unwrap();
        assert!(!containers.iter().any(|container| scene.is_there(*container)), "{kind:?}: the job is over");
    }
}

/// `RebuiltKeepsCopies`: a container was retired, its delete is under way, and the index is lost. The new one sees two copies, and the
/// newest version uses the one that is about to go.
#[test]
fn nothing_is_retired_for_what_may_have_been_retired_before() {
    let (scene, first, second) = twins();
    let contents = scene.contents();
    let name = names::container(*scene.data_of(first).first().unwrap());
    let bytes = scene.runtime.block_on(scene.memory.get(&name)).unwrap();
    scene.optimize(Exact::Never);
    assert_eq!(scene.runtime.block_on(scene.memory.get(&name)), None);
    scene.runtime.block_on(scene.memory.put(&name, bytes));
    scene.lose_index();
    scene.rebuild();
    let series = |id| scene.versions().into_iter().find(|version| version.id() == id).unwrap().summary.series;
    let newer = scene.versions().into_iter().rfind(|version| version.summary.series == series(first)).unwrap().id();
    assert_ne!(newer, first);
    scene.forget(newer);
    for _ in 0..2 {
        scene.optimize(Exact::Never);
    }
    scene.runtime.block_on(scene.memory.remove(&name));
    scene.rebuild();
    let left = scene.contents();
    assert!([first, second].iter().all(|id| left[id] == contents[id]));
}
