//! The promise: containers are retired beside anything else, at any moment of it, and whatever single operation a pass dies at, no
//! retained version loses anything. Stories by their names in the list of known ways to lose data.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use larder_format::ids::JobId;
use larder_gnode::defragment::{Budget, DefragmentOptions, compact, plans};
use larder_gnode::pass::{self, Listing, Outcome, PassError, PassOptions, PassReport};
use larder_gnode::reclaim::Exact;
use larder_lnode::BackupError;
use larder_rewrite::check::{CheckError, CheckOptions, CheckReport, ReadData, check};
use larder_store::catalog::Version;
use larder_testkit::{Failure, Fault, OpKind, Stop, Times, When};

/// Old versions that share a part each, and newest ones with nothing of it: of one container the rest is copied, one has what no
/// version needs.
pub(crate) fn scene() -> (Scene, [JobId; 3]) {
    let scene = Scene::new();
    let forgotten = scene.alone("a", &[("one", 1, 40_000), ("two", 2, 30_000), ("none", 3, 40_000)]);
    scene.fill("a", &[("one", 1, 40_000), ("two", 2, 30_000)]);
    let first = scene.backup(&scene.context(), "a").unwrap().version.unwrap().id;
    let second = scene.alone("b", &[("one", 1, 40_000), ("four", 4, 30_000)]);
    let third = scene.alone("c", &[("two", 2, 30_000), ("four", 4, 30_000), ("five", 5, 20_000)]);
    for (series, seed) in [("a", 10), ("b", 11), ("c", 12)] {
        scene.alone(series, &[("new", seed, 20_000)]);
    }
    // What a newest version has stays, and others are led to it.
    scene.alone("d", &[("four", 4, 30_000)]);
    scene.pass_with(&PassOptions { reclaim: None, ..pass_options() }).unwrap();
    scene.forget(forgotten);
    (scene, [first, second, third])
}

fn run(scene: &Scene, store: std::sync::Arc<Between>, options: &PassOptions) -> Result<PassReport, PassError> {
    scene.runtime.handle().block_on(pass::run(&scene.context_at(store), options))
}

fn version(scene: &Scene, id: JobId) -> Version {
    scene.versions().into_iter().find(|version| version.id() == id).unwrap()
}

/// What is there is what is needed, and nothing more.
#[track_caller]
pub(crate) fn is_exact(scene: &Scene, at: &str) {
    for _ in 0..2 {
        scene.pass_with(&PassOptions { dead_after: Duration::ZERO, ..thorough(Exact::Always) }).unwrap();
    }
    let (held, needed) = scene.held_and_needed();
    assert_eq!(held, needed, "{at}");
    scene.index_agrees(at);
}

/// S7 and all the like.
#[test]
fn a_pass_cut_at_any_operation_loses_nothing_and_the_next_one_gives_up() {
    let (scene, _) = scene();
    let expected = scene.contents();
    let run = |scene: &Scene, cut: Option<(u64, Stop)>| {
        let (context, faults) = scene.faulty(&scene.memory);
        let opened = faults.count();
        if let Some((n, stop)) = cut {
            faults.stop_at(opened + n, stop);
        }
        let result = scene.runtime.block_on(pass::run(&context, &thorough(Exact::Always)));
        (result, faults.count() - opened)
    };
    let undisturbed = scene.fork();
    let (result, operations) = run(&undisturbed, None);
    let report = result.unwrap();
    let reclaimed = &report.reclaimed;
    assert!(
        reclaimed.copied_chunks > 3 && reclaimed.redirected_chunks > 3 && reclaimed.dropped_chunks > 3,
        "{report:?}"
    );
    assert!(undisturbed.contents() == expected);
    is_exact(&undisturbed, "undisturbed");
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            let cut = scene.fork();
            assert!(run(&cut, Some((n, stop))).0.is_err(), "{at}");
            assert!(cut.contents() == expected, "{at}");
            run(&cut, None).0.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(cut.contents() == expected, "{at}");
            is_exact(&cut, &at);
            assert!(cut.contents() == expected, "{at}");
        }
    }
}

/// S11: two G-nodes.
#[test]
fn two_passes_retire_at_once() {
    let (scene, _) = scene();
    let expected = scene.contents();
    at_every_operation(
        &scene,
        |scene| drop(scene.pass_with(&thorough(Exact::Always)).unwrap()),
        |scene, store| run(scene, store, &thorough(Exact::Never)),
        |scene, result, at| {
            let lost = matches!(&result, Err(PassError::Overtaken));
            let report = result.ok();
            assert!(lost || report.is_some(), "{at}");
            // What the faster one deleted is no damage.
            assert!(!report.is_some_and(|report| report.found_damage()), "{at}");
            assert!(scene.contents() == expected, "{at}");
            is_exact(scene, at);
            assert!(scene.contents() == expected, "{at}");
        },
    );
}

/// What another pass retired meanwhile is not said to be lost: the index that this one looks through names it still.
#[test]
fn a_pass_that_lists_everything_beside_another_misses_nothing() {
    let (scene, _) = scene();
    for dry_run in [false, true] {
        let options = PassOptions { listing: Listing::Whole, dry_run, ..thorough(Exact::Never) };
        at_every_operation(
            &scene,
            |scene| drop(scene.pass_with(&thorough(Exact::Always)).unwrap()),
            |scene, store| run(scene, store, &options),
            |_, result, at| match result {
                Ok(report) => assert_eq!(report.missing_containers, 0, "dry run: {dry_run}, {at}"),
                Err(error) => assert!(matches!(error, PassError::Overtaken), "dry run: {dry_run}, {at}: {error}"),
            },
        );
    }
}

/// S4: what chunks are led to is forgotten, and collected, while they are.
#[test]
fn versions_are_forgotten_while_chunks_are_led_to_their_containers() {
    let (scene, ids) = scene();
    let expected = scene.contents();
    let stories = [([ids[0], ids[1]], true), ([ids[1], ids[2]], false), ([ids[0], ids[2]], true)];
    for (forgotten, collects) in stories {
        at_every_operation(
            &scene,
            move |scene| {
                forgotten.iter().for_each(|id| scene.forget(*id));
                if collects {
                    scene.pass_with(&PassOptions { reclaim: None, ..pass_options() }).unwrap();
                }
            },
            |scene, store| run(scene, store, &thorough(Exact::Always)),
            |scene, _, at| {
                let whole = |scene: &Scene| scene.contents().iter().all(|(id, was)| expected[id] == *was);
                assert!(whole(scene) && scene.contents().len() == expected.len() - 2, "{at}");
                is_exact(scene, at);
                assert!(whole(scene) && scene.contents().len() == expected.len() - 2, "{at}");
            },
        );
    }
}

/// S1: the containers of a base are retired while a backup builds on it. Then the base is forgotten, and what the index led to is
/// kept for the new version (`LaterReferencesInherit`).
#[test]
fn a_backup_whose_base_is_retired_meanwhile_is_whole() {
    let (scene, ids) = scene();
    let files = [("one", 1, 40_000), ("two", 2, 30_000), ("more", 20, 20_000)];
    scene.fill("a", &files);
    let expected = scene.contents();
    let backup = |scene: &Scene, context: &larder_job::JobContext| {
        backup_with(context, &scene.source("a"), "a", |options| {
            options.base = Some(ids[0]);
            options.find_similar = false;
        })
    };
    let fork = scene.fork();
    let report = backup(&fork, &fork.context()).unwrap().version.unwrap();
    assert!(report.statistics.stored_bytes < 40_000, "it builds on the old version");
    let new = fork.contents().remove(&report.id).unwrap();
    for forgets in [false, true] {
        at_every_operation(
            &scene,
            move |scene| {
                scene.pass_with(&thorough(Exact::Always)).unwrap();
                if forgets {
                    ids.iter().for_each(|id| scene.forget(*id));
                    scene.pass_with(&thorough(Exact::Always)).unwrap();
                }
            },
            |scene, store| backup(scene, &scene.context_at(store)),
            |scene, result, at| {
                let id = match result {
                    Ok(report) => report.version.unwrap().id,
                    // It was forgotten before it was looked for.
                    Err(BackupError::NoSuchBase { .. }) if forgets => return,
                    Err(error) => panic!("{at}: {error}"),
                };
                assert!(scene.contents()[&id] == new, "{at}");
                scene.pass_with(&thorough(Exact::Never)).unwrap();
                for other in scene.versions().iter().filter(|version| version.id() != id) {
                    scene.forget(other.id());
                }
                scene.pass_with(&thorough(Exact::Always)).unwrap();
                assert!(scene.contents()[&id] == new, "{at}");
                // With a newer one beside it, it is an old one.
                scene.fill("other", &[("last", 30, 20_000)]);
                backup_alone(&scene.context(), &scene.source("other"), "a");
                is_exact(scene, at);
                assert!(scene.contents()[&id] == new, "{at}");
            },
        );
    }
    assert!(scene.contents() == expected);
}

/// S9: an old version is read while its containers are retired.
#[test]
fn what_is_being_read_is_retired_meanwhile() {
    let (scene, ids) = scene();
    for id in ids {
        let version = version(&scene, id);
        let expected = scene.contents().remove(&id).unwrap();
        at_every_operation(
            &scene,
            |scene| {
                let report = scene.pass_with(&thorough(Exact::Always)).unwrap();
                assert!(report.reclaimed.plan.containers > 0, "{report:?}");
            },
            |scene, store| read_announced(&scene.context_at(store), &version),
            |_, result, at| {
                let contents = result.unwrap_or_else(|error| panic!("{at}: {error}"));
                assert!(contents == expected, "{at}");
            },
        );
    }
}

/// What is being checked is retired, and rewritten: that is no damage.
#[test]
fn what_is_being_checked_is_retired_meanwhile() {
    let (scene, _) = scene();
    let checked = |scene: &Scene, store: Arc<Between>| {
        let options = CheckOptions { read_data: ReadData::All, ..CheckOptions::default() };
        check(&scene.context_at(store), &options)
    };
    let is_whole = |_: &Scene, report: Result<CheckReport, CheckError>, at: &str| {
        let report = report.unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(report.damages.is_empty(), "{at}: {:?}", report.damages);
        assert!(report.containers_read > 0, "{at}");
    };
    let retires = |scene: &Scene| {
        let report = scene.pass_with(&thorough(Exact::Always)).unwrap();
        assert!(report.reclaimed.plan.containers > 0, "{report:?}");
    };
    at_every_operation(&scene, retires, checked, is_whole);
    let relays = |scene: &Scene| {
        for version in scene.versions() {
            relay_all(&scene.context(), &version);
        }
        // What a lease names is kept in all its generations.
        scene.pass_with(&thorough(Exact::Always)).unwrap();
    };
    at_every_operation(&scene, relays, checked, is_whole);
}

/// S10: a version is rewritten while what it uses is retired, in either order.
#[test]
fn a_version_is_laid_out_anew_while_containers_are_retired() {
    let (scene, _) = scene();
    let options =
        DefragmentOptions { sparse_percent: 100, budget: Budget::of_version(100), ..DefragmentOptions::default() };
    // The newest version builds on one whose containers go.
    scene.fill("a", &[("one", 1, 40_000), ("last", 30, 20_000)]);
    let first = scene.versions().into_iter().find(|version| version.summary.series == "a").unwrap().id();
    backup_with(&scene.context(), &scene.source("a"), "a", |options| options.base = Some(first)).unwrap();
    let expected = scene.contents();
    let compact_all = move |context: &larder_job::JobContext| {
        plans(context, &options).unwrap().plans.iter().map(|plan| compact(context, plan, &options)).collect::<Vec<_>>()
    };
    let laid_out = scene.fork();
    assert!(compact_all(&laid_out.context()).len() <= 1);
    at_every_operation(
        &scene,
        move |scene| drop(compact_all(&scene.context())),
        |scene, store| run(scene, store, &thorough(Exact::Always)),
        |scene, result, at| {
            result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(scene.contents() == expected, "{at}");
            scene.pass_with(&thorough(Exact::Always)).unwrap();
            assert!(scene.contents() == expected, "{at}");
            scene.index_agrees(at);
        },
    );
}

/// S3: what a job uploaded that never committed is no copy to rely on, and what somebody adopts is not retired.
#[test]
fn nothing_is_led_to_what_no_version_has() {
    let (scene, ids) = scene();
    scene.pass_with(&thorough(Exact::Never)).unwrap();
    let expected = scene.contents();
    scene.fill("e", &[("one", 1, 40_000), ("two", 2, 30_000), ("five", 5, 20_000)]);
    let (context, faults) = scene.faulty(&scene.memory);
    faults.add(When::kind(OpKind::Put).path("versions/"), Fault::FailBefore(Failure::Status(403)), Times::Always);
    backup_with(&context, &scene.source("e"), "e", |options| options.find_similar = false)
        .expect_err("it cannot commit");
    let report = scene.pass_with(&thorough(Exact::Never)).unwrap();
    assert_eq!(report.reclaimed.plan.containers, 0, "{report:?}");
    // A job goes on with what it left, while everything else is retired and goes.
    let new = {
        let fork = scene.fork();
        let id = fork.backup(&fork.context(), "e").unwrap().version.unwrap().id;
        fork.contents().remove(&id).unwrap()
    };
    at_every_operation(
        &scene,
        move |scene| {
            scene.pass_with(&thorough(Exact::Always)).unwrap();
            ids.iter().for_each(|id| scene.forget(*id));
            scene.pass_with(&thorough(Exact::Always)).unwrap();
        },
        |scene, store| scene.backup(&scene.context_at(store), "e"),
        |scene, result, at| {
            let id = result.unwrap_or_else(|error| panic!("{at}: {error}")).version.unwrap().id;
            assert!(scene.contents()[&id] == new, "{at}");
            is_exact(scene, at);
            let contents = scene.contents();
            assert!(contents.iter().all(|(other, was)| *other == id || expected[other] == *was), "{at}");
            assert!(contents[&id] == new, "{at}");
        },
    );
}

/// A pass that is out of time retires what it had time for: one container at least, once it knows which go.
#[test]
fn passes_that_are_out_of_time_retire_a_part() {
    let scene = Scene::new();
    let mut forgotten = Vec::new();
    for number in 0..12 {
        let series = format!("s{number}");
        // Some have chunks of others, and follow them.
        let (dead, kept, shared) =
            (("dead", 100 + number, 20_000), ("kept", number, 20_000), ("shared", number % 3, 10_000));
        forgotten.push(scene.alone(&series, &[dead, kept, shared]));
        scene.fill(&series, &[kept, shared]);
        scene.backup(&scene.context(), &series).unwrap();
        scene.alone(&series, &[("new", 200 + number, 10_000)]);
    }
    scene.pass_with(&PassOptions { reclaim: None, ..pass_options() }).unwrap();
    forgotten.into_iter().for_each(|id| scene.forget(id));
    let expected = scene.contents();
    let all = scene.fork().optimize(Exact::Always).reclaimed.plan.containers;
    assert!(all >= 12);
    let mut parts = BTreeSet::new();
    for seconds in 1..300 {
        // Every look at the clock takes a second.
        let options = PassOptions { max_duration: Some(Duration::from_secs(seconds)), ..thorough(Exact::Always) };
        let cut = scene.fork();
        match cut.pass_with(&options) {
            Ok(report) if !report.is_unfinished => {
                assert!(matches!(report.outcome, Outcome::Published(_)));
                break;
            }
            Ok(report) if report.reclaimed.was_stopped && report.reclaimed.plan.containers > 0 => {
                parts.insert(report.reclaimed.plan.containers);
                cut.index_agrees("a part");
                assert!(cut.contents() == expected);
                is_exact(&cut, "the next pass goes on");
            }
            Ok(_) | Err(PassError::Interrupted) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(cut.contents() == expected, "{seconds}");
    }
    assert!(!parts.is_empty() && parts.iter().all(|part| *part < all), "{parts:?} of {all}");
}
