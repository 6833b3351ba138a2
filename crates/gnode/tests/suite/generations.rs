//! Versions that are rewritten beside everything else: what later generations retire is collected, and nothing that is needed.
//! (Stories S5, S10 of deletion; rules of "What tasks that move chunks must obey".)

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::*;
use larder_format::ids::{ContainerKind, JobId};
use larder_format::lease::{Done, JobKind, Lease};
use larder_format::manifest::Register;
use larder_format::names;
use larder_gnode::defragment::{Budget, DefragmentOptions, Defragmented, compact, plans};
use larder_gnode::forget::pin_of;
use larder_gnode::pass::{self, Listing, PassOptions};
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_reader::VersionReader;
use larder_store::catalog::Version;
use larder_testkit::Stop;

/// With small trees everything that a version shares with others is sparse.
pub(crate) fn options() -> DefragmentOptions {
    DefragmentOptions { sparse_percent: 100, budget: Budget::of_version(100), ..DefragmentOptions::default() }
}

fn with_versions() -> Scene {
    let scene = Scene::new();
    // What changes now and then comes from the fourth, what never does from the first.
    for edition in [0, 3, 4, 5] {
        scene.version("a", edition);
    }
    scene.version("b", 0);
    scene
}

fn compact_all(context: &JobContext) -> usize {
    let plans = plans(context, &options()).unwrap().plans;
    let done = plans.iter().map(|plan| compact(context, plan, &options()).unwrap());
    done.filter(|done| matches!(done, Defragmented::Done { .. })).count()
}

pub(crate) fn pass_after(scene: &Scene, dead_after: Duration) {
    scene.pass_with(&PassOptions { dead_after, ..pass_options() }).unwrap();
}

const NEVER: Duration = Duration::from_secs(1 << 30);

#[track_caller]
fn is_clean(scene: &Scene, at: &str) {
    scene.is_clean_but_registers(at);
}

#[test]
fn what_only_superseded_generations_used_is_collected() {
    let scene = with_versions();
    let contents = scene.contents();
    assert_eq!(compact_all(&scene.context()), 1);
    assert!(scene.contents() == contents);
    pass_after(&scene, NEVER);
    assert!(scene.contents() == contents, "older versions still use what the newest has retired");
    is_clean(&scene, "nothing is forgotten");
    // The newest alone: it needs what it has written for itself and nothing of the others.
    let newest = scene.versions().into_iter().rfind(|version| version.summary.series == "a").unwrap();
    assert_eq!(newest.generation, 1);
    for version in scene.versions().iter().filter(|version| version.id() != newest.id()) {
        scene.forget(version.id());
    }
    pass_after(&scene, NEVER);
    is_clean(&scene, "all but the newest are forgotten");
    assert!(scene.contents()[&newest.id()] == contents[&newest.id()]);
    let manifest = VersionReader::open(&scene.context(), &newest).unwrap().manifest().clone();
    let data = manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data);
    assert!(data.clone().all(|usage| usage.bytes_used == usage.bytes_held), "nothing is kept that it does not use");
    // It can be built on, and goes like any other.
    scene.version("a", 6);
    scene.forget(newest.id());
    pass_after(&scene, NEVER);
    is_clean(&scene, "the laid out one is forgotten");
}

#[test]
fn a_compaction_cut_at_any_operation_changes_nothing_and_leaves_nothing() {
    let scene = with_versions();
    let contents = scene.contents();
    let plan = plans(&scene.context(), &options()).unwrap().plans.pop().unwrap();
    let (context, faults) = scene.faulty(&scene.fork().memory);
    let before = faults.count();
    compact(&context, &plan, &options()).unwrap();
    let operations = faults.count() - before;
    assert!(operations > 8, "{operations}");
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            let cut = scene.fork();
            let (context, faults) = cut.faulty(&cut.memory);
            faults.stop_at(faults.count() + n, stop);
            // The last step, closing the lease, may fail without harm.
            let result = compact(&context, &plan, &options());
            assert!(result.is_err() || n + 1 == operations, "{at}");
            assert!(cut.contents() == contents, "{at}");
            pass_after(&cut, Duration::ZERO);
            assert!(cut.contents() == contents, "{at}");
            // What may be left of a task is the fence in its place.
            let garbage: Vec<_> = cut.garbage().into_iter().filter(|name| !name.starts_with("versions/")).collect();
            assert!(garbage.is_empty(), "{at}: {garbage:?}");
            compact_all(&cut.context());
            assert!(cut.contents() == contents, "{at}");
        }
    }
}

#[test]
fn a_compaction_whose_version_and_older_ones_go_meanwhile_loses_nothing() {
    let scene = with_versions();
    let contents = scene.contents();
    let plan = plans(&scene.context(), &options()).unwrap().plans.pop().unwrap();
    let newest = plan.version.id();
    for (forgets_newest, dead_after) in [(false, NEVER), (true, NEVER), (false, Duration::ZERO), (true, Duration::ZERO)]
    {
        at_every_operation(
            &scene,
            move |scene| {
                for version in scene.versions() {
                    if forgets_newest || version.id() != newest {
                        scene.forget(version.id());
                    }
                }
                pass_after(scene, dead_after);
            },
            |scene, store| compact(&scene.context_at(store), &plan, &options()),
            |scene, result, at| {
                // It may fail over what was deleted under a task that was considered dead or whose version is gone.
                if dead_after == NEVER && !forgets_newest {
                    result.unwrap_or_else(|error| panic!("{at}: {error}"));
                }
                let left = scene.contents();
                assert_eq!(left.len(), usize::from(!forgets_newest), "{at}");
                assert!(left.iter().all(|(id, was)| contents[id] == *was), "{at}");
                pass_after(scene, Duration::ZERO);
                let left = scene.contents();
                assert!(left.iter().all(|(id, was)| contents[id] == *was), "{at}");
                if !forgets_newest {
                    assert_eq!(left.len(), 1, "{at}");
                }
            },
        );
    }
}

fn generations_of(scene: &Scene, id: JobId) -> Vec<u32> {
    let registers = scene.runtime.block_on(scene.context().repository.list_registers()).unwrap();
    registers.into_iter().find(|(pin, _)| pin.job == id).unwrap().1
}

/// Of a version that is rewritten again and again the register and the generation that holds stay, and nothing in between, whatever
/// that is; unless somebody reads the version.
#[test]
fn generations_below_the_one_that_holds_are_removed() {
    let scene = with_versions();
    let newest = scene.versions().into_iter().rfind(|version| version.summary.series == "a").unwrap();
    let (id, contents) = (newest.id(), scene.contents());
    let version = || scene.versions().into_iter().find(|version| version.id() == id).unwrap();
    relay_all(&scene.context(), &version());
    pass_after(&scene, NEVER);
    assert_eq!(generations_of(&scene, id), [0, 1]);
    // Fenced off, and then twice more.
    let context = scene.context();
    let (keys, domain) = (context.repository.keys(), newest.summary.domain);
    let fence = larder_format::manifest::encode_aborted(keys, domain, newest.series, id, 2, [5; 32]).unwrap();
    scene
        .runtime
        .block_on(context.repository.store().create(&names::version(newest.series, id, 2), fence.into()))
        .unwrap();
    pass_after(&scene, NEVER);
    assert_eq!(generations_of(&scene, id), [0, 1, 2], "somebody may want the number");
    relay_all(&scene.context(), &version());
    relay_all(&scene.context(), &version());
    assert_eq!(generations_of(&scene, id), [0, 1, 2, 3, 4]);
    let (_, reading) = VersionReader::announce(&scene.context(), &version()).unwrap();
    pass_after(&scene, NEVER);
    assert_eq!(generations_of(&scene, id), [0, 1, 2, 3, 4], "it is being read");
    reading.end();

    // Whatever happens to the pass, and whatever else is done before any of its steps.
    let layout = move |scene: &Scene| {
        let version = scene.versions().into_iter().find(|version| version.id() == id).unwrap();
        relay_all(&scene.context(), &version);
    };
    at_every_operation(
        &scene,
        layout,
        |scene, store| {
            let options =
                PassOptions { dead_after: NEVER, min_age: std::time::Duration::ZERO, ..PassOptions::default() };
            scene.runtime.handle().block_on(pass::run(&scene.context_at(store), &options))
        },
        |scene, result, at| {
            result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(scene.contents() == contents, "{at}");
            pass_after(scene, NEVER);
            assert!(scene.contents() == contents, "{at}");
            assert_eq!(generations_of(scene, id), [0, 5], "{at}");
            pass_after(scene, NEVER);
            is_clean(scene, at);
        },
    );
    pass_after(&scene, NEVER);
    assert_eq!(generations_of(&scene, id), [0, 4]);
    is_clean(&scene, "laid out four times");
    scene.forget(id);
    pass_after(&scene, NEVER);
    is_clean(&scene, "forgotten");
}

/// That a version is whole, also when all others go: what its base left has copies in the base's newest generation, to which the index
/// would lead as long as there is one.
#[track_caller]
fn stands_alone(scene: &Scene, id: JobId, expected: &Contents, at: &str) {
    assert!(scene.contents()[&id] == *expected, "{at}");
    pass_after(scene, NEVER);
    assert!(scene.contents()[&id] == *expected, "{at}");
    for version in scene.versions().iter().filter(|version| version.id() != id) {
        scene.forget(version.id());
    }
    pass_after(scene, NEVER);
    assert!(scene.contents()[&id] == *expected, "{at}");
}

/// S10: the base of a backup is rewritten, and what it retired is collected, while the backup runs.
#[test]
fn a_backup_whose_base_is_laid_out_anew_meanwhile_is_whole() {
    let scene = with_versions();
    let fork = scene.fork();
    let id = fork.version("a", 6);
    let expected = fork.contents().remove(&id).unwrap();
    let compacted = Arc::new(AtomicUsize::new(0));
    let count = compacted.clone();
    let is_of_a = |version: &Version| version.summary.series == "a";
    at_every_operation(
        &scene,
        move |scene| {
            // Not when the backup has committed: the new version has less in common with the old ones.
            count.fetch_add(compact_all(&scene.context()), Ordering::Relaxed);
            let newest = scene.versions().into_iter().rfind(is_of_a).unwrap();
            let goes = |version: &&Version| !is_of_a(version) || version.id() < newest.id();
            for version in scene.versions().iter().filter(goes) {
                scene.forget(version.id());
            }
            pass_after(scene, NEVER);
        },
        |scene, store| scene.backup(&scene.context_at(store), "a"),
        |scene, result, at| {
            let id = result.unwrap_or_else(|error| panic!("{at}: {error}")).version.unwrap().id;
            stands_alone(scene, id, &expected, at);
        },
    );
    assert!(compacted.load(Ordering::Relaxed) > 8);
}

/// A lease keeps all generations of the version that it names. What an older one needed was collected before there was the lease: that is
/// no loss, and no reason to keep what nobody needs.
#[test]
fn what_went_with_an_older_generation_is_not_missed_for_a_lease() {
    let scene = with_versions();
    let newest = scene.versions().into_iter().rfind(|version| version.summary.series == "a").unwrap();
    for version in scene.versions().iter().filter(|version| version.id() != newest.id()) {
        scene.forget(version.id());
    }
    relay_all(&scene.context(), &newest);
    for _ in 0..2 {
        pass_after(&scene, NEVER);
    }
    let context = scene.context();
    let old = scene.runtime.block_on(context.repository.read_register(pin_of(&newest), 0)).unwrap().unwrap();
    let Register::Committed(old) = old else { panic!("it was committed") };
    let there = scene.runtime.block_on(scene.memory.contents());
    assert!(old.containers.iter().any(|usage| !there.contains_key(&names::container(usage.container))));
    for kind in [JobKind::Backup, JobKind::Read] {
        let lease = Lease { pins: vec![pin_of(&newest)], ..context.lease(kind, "a") };
        let job = JobId::new(lease.written_ms, [7; 10]);
        let keeper = LeaseKeeper::open(&context, job, lease).unwrap();
        let options = PassOptions { dead_after: NEVER, listing: Listing::Whole, ..pass_options() };
        // A version that comes meanwhile makes it worth an index.
        scene.version("b", 20 + kind as u64);
        let report = scene.pass_with(&options).unwrap();
        assert_eq!(report.missing_containers, 0, "{kind:?}");
        keeper.end(Ending::Closed(Done::nothing()));
    }
}

/// `SupersededBeforeLeases`: at any step of a pass a backup begins and reads the generation that holds. Then there is another one,
/// and the backup commits when the pass is over.
#[test]
fn what_a_new_generation_leaves_stays_for_jobs_that_a_pass_does_not_see() {
    let scene = with_versions();
    let newest = scene.versions().into_iter().rfind(|version| version.summary.series == "a").unwrap().id();
    for version in scene.versions().iter().filter(|version| version.id() != newest) {
        scene.forget(version.id());
    }
    let fork = scene.fork();
    let id = fork.version("a", 6);
    let expected = fork.contents().remove(&id).unwrap();
    type Waiting = (Sender<()>, JoinHandle<JobId>);
    let waiting: Arc<Mutex<Option<Waiting>>> = Arc::default();
    let begun = waiting.clone();
    at_every_operation(
        &scene,
        move |scene| {
            let (waits, is_waiting) = channel();
            let (go_on, may_go_on) = channel();
            let may_go_on = Arc::new(Mutex::new(may_go_on));
            let store = Between::new(scene.memory.store(), move || {
                let (waits, may_go_on) = (waits.clone(), may_go_on.clone());
                async move {
                    waits.send(()).unwrap();
                    // When the pass has failed nobody says so.
                    let wait = move || {
                        let _ = may_go_on.lock().unwrap().recv();
                    };
                    tokio::task::spawn_blocking(wait).await.unwrap();
                }
            });
            let same = scene.same();
            let backup = std::thread::spawn(move || {
                let context = same.context_at(store.clone());
                store.happens_before_any_below(names::VERSIONS);
                same.backup(&context, "a").unwrap().version.unwrap().id
            });
            is_waiting.recv().unwrap();
            assert_eq!(compact_all(&scene.context()), 1);
            *begun.lock().unwrap() = Some((go_on, backup));
        },
        |scene, store| {
            let options = PassOptions { dead_after: NEVER, ..pass_options() };
            scene.runtime.handle().block_on(pass::run(&scene.context_at(store), &options))
        },
        |scene, result, at| {
            result.unwrap_or_else(|error| panic!("{at}: {error}"));
            let (go_on, backup) = waiting.lock().unwrap().take().unwrap();
            go_on.send(()).unwrap();
            let id = backup.join().unwrap();
            stands_alone(scene, id, &expected, at);
        },
    );
}

/// What is being read is rewritten, and what only its old layout used is collected.
#[test]
fn what_is_being_read_is_laid_out_anew_meanwhile() {
    let scene = with_versions();
    let version = scene.versions().into_iter().rfind(|version| version.summary.series == "a").unwrap();
    let expected = scene.contents().remove(&version.id()).unwrap();
    let newest = version.id();
    at_every_operation(
        &scene,
        move |scene| {
            assert!(compact_all(&scene.context()) > 0);
            for version in scene.versions().iter().filter(|version| version.id() != newest) {
                scene.forget(version.id());
            }
            pass_after(scene, NEVER);
        },
        |scene, store| read_announced(&scene.context_at(store), &version),
        |_, result, at| {
            let contents = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(contents == expected, "{at}");
        },
    );
}

/// A compaction at any moment of a pass that collects what older versions had.
#[test]
fn a_pass_meets_a_compaction_at_any_of_its_steps() {
    let scene = with_versions();
    let contents = scene.contents();
    let newest = scene.versions().into_iter().rfind(|version| version.summary.series == "a").unwrap().id();
    for version in scene.versions().iter().filter(|version| version.id() != newest) {
        scene.forget(version.id());
    }
    at_every_operation(
        &scene,
        |scene| {
            assert!(compact_all(&scene.context()) > 0);
        },
        |scene, store| {
            let options = PassOptions { dead_after: NEVER, ..pass_options() };
            scene.runtime.handle().block_on(pass::run(&scene.context_at(store), &options))
        },
        |scene, result, at| {
            result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(scene.contents()[&newest] == contents[&newest], "{at}");
            pass_after(scene, NEVER);
            assert!(scene.contents()[&newest] == contents[&newest], "{at}");
            is_clean(scene, at);
        },
    );
}
