//! The promise: a pass beside anything else, at any moment of it, loses nothing that is retained and nothing that is being made.
//!
//! Method: count the store operations of one job; then for every n run it again on a copy of the repository, and let the other
//! happen, from start to end, just before operation n. Stories by their names in the list of known ways to lose data.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::time::Duration;

use crate::support::*;
use larder_format::lease::Pin;
use larder_format::names;
use larder_gnode::defragment::{self, Budget, DefragmentOptions, Defragmented};
use larder_gnode::pass::{self, Outcome, PassOptions};
use larder_lnode::BackupError;
use larder_reader::{ReadError, VersionReader};
use larder_store::jobs::CommitError;
use larder_testkit::{Failure, Fault, OpKind, Times, When};

/// Forgets all versions, or those of one series, and makes a pass.
fn forget_and_collect(scene: &Scene, only: Option<&'static str>, dead_after: Duration) {
    let repository = scene.repository(scene.memory.store());
    let options = PassOptions { dead_after, ..pass_options() };
    scene.runtime.handle().block_on(async {
        for version in repository.catalog().await.unwrap().versions {
            if only.is_none_or(|series| version.summary.series == series) {
                forget(&repository, version.id()).await;
            }
        }
        pass::run(&scene.context_of(repository), &options).await.unwrap();
    });
}

fn with_versions() -> Scene {
    let scene = Scene::new();
    scene.version("a", 0);
    scene.version("b", 0);
    scene.version("a", 1);
    scene
}

/// What the newest edition of a series holds, from a copy of the repository in which nothing disturbs its backup.
fn edition(scene: &Scene, series: &str, number: u64) -> Contents {
    let fork = scene.fork();
    let id = fork.version(series, number);
    fork.contents().remove(&id).unwrap()
}

/// S1, S2: the base of a backup is forgotten and collected while the backup runs.
#[test]
fn a_backup_whose_base_is_forgotten_and_collected_meanwhile_is_whole() {
    let scene = with_versions();
    let expected = edition(&scene, "a", 2);
    at_every_operation(
        &scene,
        |scene| forget_and_collect(scene, None, Duration::from_secs(1 << 30)),
        |scene, store| scene.backup(&scene.context_at(store), "a"),
        |scene, result, at| {
            let report = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            let id = report.version.unwrap().id;
            let contents = scene.contents();
            // When it all happens after the commit, the new version is forgotten as well.
            if let Some(contents) = contents.get(&id) {
                assert!(*contents == expected, "{at}");
            }
            assert!(contents.len() <= 1, "{at}");
            scene.pass().unwrap();
            scene.is_clean(at);
        },
    );
}

/// S1 with a similar base: the other series goes while a first backup takes over its chunks.
#[test]
fn a_backup_whose_similar_base_goes_meanwhile_is_whole() {
    let scene = Scene::new();
    scene.version("a", 0);
    std::fs::rename(scene.source("a"), scene.source("c")).unwrap();
    let fork = scene.fork();
    let id = fork.backup(&fork.context(), "c").unwrap().version.unwrap().id;
    let expected = fork.contents().remove(&id).unwrap();
    at_every_operation(
        &scene,
        |scene| forget_and_collect(scene, Some("a"), Duration::from_secs(1 << 30)),
        |scene, store| scene.backup(&scene.context_at(store), "c"),
        |scene, result, at| {
            let id = result.unwrap_or_else(|error| panic!("{at}: {error}")).version.unwrap().id;
            assert!(scene.contents()[&id] == expected, "{at}");
        },
    );
}

/// A pass thinks that a running backup is dead. The backup may lose its work, and nobody loses anything else.
#[test]
fn a_backup_that_is_fenced_commits_nothing_or_commits_whole() {
    let scene = with_versions();
    let expected = edition(&scene, "a", 2);
    let before = scene.contents();
    let fenced = std::cell::Cell::new(0);
    at_every_operation(
        &scene,
        |scene| forget_and_collect(scene, Some("b"), Duration::ZERO),
        |scene, store| scene.backup(&scene.context_at(store), "a"),
        |scene, result, at| {
            let contents = scene.contents();
            match result {
                Ok(report) => assert!(contents[&report.version.unwrap().id] == expected, "{at}"),
                Err(BackupError::Commit(CommitError::Fenced)) => fenced.set(fenced.get() + 1),
                Err(error) => panic!("{at}: {error}"),
            }
            let of_a = before.iter().filter(|(id, _)| contents.contains_key(*id));
            assert_eq!(of_a.clone().count(), 2, "{at}");
            assert!(of_a.clone().all(|(id, was)| contents[id] == *was), "{at}");
            // The next backup does not build on what the fenced one left.
            let id = scene.backup(&scene.context(), "a").unwrap().version.unwrap().id;
            scene.pass().unwrap();
            assert!(scene.contents()[&id] == expected, "{at}");
        },
    );
    assert!(fenced.get() > 0);
}

/// S3: a dead job's uploads are taken over by a backup while a pass thinks that job dead and collects.
#[test]
fn uploads_that_are_being_adopted_stay_or_are_not_used() {
    let scene = with_versions();
    scene.write("a", 2);
    let (context, faults) = scene.faulty(&scene.memory);
    faults.add(When::kind(OpKind::Put).path("versions/"), Fault::FailBefore(Failure::Status(403)), Times::Always);
    scene.backup(&context, "a").expect_err("it cannot commit");
    let fork = scene.fork();
    let report = fork.backup(&fork.context(), "a").unwrap();
    assert_eq!(report.adopted.len(), 1);
    let expected = fork.contents().remove(&report.version.unwrap().id).unwrap();
    at_every_operation(
        &scene,
        |scene| forget_and_collect(scene, None, Duration::ZERO),
        |scene, store| scene.backup(&scene.context_at(store), "a"),
        |scene, result, at| match result {
            Ok(report) => {
                if let Some(contents) = scene.contents().get(&report.version.unwrap().id) {
                    assert!(*contents == expected, "{at}");
                }
            }
            Err(BackupError::Commit(CommitError::Fenced)) => {}
            Err(error) => panic!("{at}: {error}"),
        },
    );
}

/// S3 once more: the dead job alone is fenced, and a pass collects, at any moment of the backup that takes its uploads over.
#[test]
fn uploads_of_a_job_that_is_fenced_while_they_are_adopted_stay() {
    let scene = with_versions();
    scene.write("a", 2);
    let (context, faults) = scene.faulty(&scene.memory);
    faults.add(When::kind(OpKind::Put).path("versions/"), Fault::FailBefore(Failure::Status(403)), Times::Always);
    scene.backup(&context, "a").expect_err("it cannot commit");
    let dead = scene.runtime.block_on(context.repository.unfinished_jobs()).unwrap().pop().unwrap().job;
    let dead = Pin { series: context.repository.keys().series_key("a"), job: dead };
    let fork = scene.fork();
    let id = fork.backup(&fork.context(), "a").unwrap().version.unwrap().id;
    let expected = fork.contents().remove(&id).unwrap();
    let adopted = std::cell::Cell::new(0);
    at_every_operation(
        &scene,
        move |scene| {
            let repository = scene.repository(scene.memory.store());
            scene.runtime.handle().block_on(repository.fence(dead, 0)).unwrap();
            forget_and_collect(scene, None, Duration::from_secs(1 << 30));
        },
        |scene, store| scene.backup(&scene.context_at(store), "a"),
        |scene, result, at| {
            let report = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            if let Some(contents) = scene.contents().get(&report.version.unwrap().id) {
                assert!(*contents == expected, "{at}");
                adopted.set(adopted.get() + report.adopted.len());
            }
        },
    );
    assert!(adopted.get() > 0);
}

/// S9: what is being read is forgotten and collected meanwhile.
#[test]
fn what_is_being_read_stays_until_it_was_read() {
    let scene = with_versions();
    let version = scene.versions().pop().unwrap();
    let expected = scene.contents().remove(&version.id()).unwrap();
    let late = std::cell::Cell::new(0);
    let kept = std::cell::Cell::new(0);
    at_every_operation(
        &scene,
        |scene| forget_and_collect(scene, None, Duration::from_secs(1 << 30)),
        |scene, store| {
            let context = scene.context_at(store);
            let (_, reading) = VersionReader::announce(&context, &version)?;
            let contents = contents_of(&context, &version);
            reading.end();
            Ok::<_, ReadError>(contents)
        },
        |scene, result, at| {
            match result {
                Ok(contents) => {
                    kept.set(kept.get() + 1);
                    assert!(contents == expected, "{at}");
                }
                Err(ReadError::Forgotten { .. }) => late.set(late.get() + 1),
                Err(error) => panic!("{at}: {error}"),
            }
            scene.pass().unwrap();
            scene.is_clean(at);
        },
    );
    assert!(late.get() > 0 && kept.get() > 0);
}

/// S11: two passes at once, and one of them has other versions to collect.
#[test]
fn of_two_passes_at_once_one_does_the_work() {
    let scene = with_versions();
    let first = scene.versions()[0].id();
    scene.forget(first);
    let expected = scene.contents();
    let lost = std::cell::Cell::new(0);
    at_every_operation(
        &scene,
        |scene| forget_and_collect(scene, Some("b"), Duration::from_secs(1 << 30)),
        |scene, store| {
            let repository = scene.repository(store);
            scene.runtime.block_on(pass::run(&scene.context_of(repository), &pass_options()))
        },
        |scene, result, at| {
            match result {
                Ok(report) => lost.set(lost.get() + u32::from(report.outcome == Outcome::Lost)),
                Err(pass::PassError::Overtaken) => {}
                Err(error) => panic!("{at}: {error}"),
            }
            let contents = scene.contents();
            assert_eq!(contents.len(), 1, "{at}");
            assert!(contents.iter().all(|(id, contents)| expected[id] == *contents), "{at}");
            scene.pass().unwrap();
            let left = scene.garbage();
            if !left.is_empty() {
                // What was published below the index that was rebuilt meanwhile goes with the next one that is worth making.
                assert!(left.iter().all(|name| names::parse_index(name).is_some()), "{at}: {left:?}");
                scene.version("b", 9);
                scene.pass().unwrap();
            }
            scene.is_clean(at);
        },
    );
    assert!(lost.get() > 0);
}

/// A whole backup at any moment of a pass, built on a version that another pass may be about to collect.
#[test]
fn a_backup_at_any_moment_of_a_pass_is_whole() {
    let scene = with_versions();
    let expected = edition(&scene, "a", 2);
    let newest = scene.versions()[2].id();
    scene.forget(newest);
    at_every_operation(
        &scene,
        |scene| drop(scene.backup(&scene.context(), "a").unwrap()),
        |scene, store| {
            let repository = scene.repository(store);
            scene.runtime.block_on(pass::run(&scene.context_of(repository), &pass_options()))
        },
        |scene, result, at| {
            result.unwrap_or_else(|error| panic!("{at}: {error}"));
            let newest = scene.versions().pop().unwrap();
            assert!(scene.contents()[&newest.id()] == expected, "{at}");
            scene.pass().unwrap();
            assert!(scene.contents()[&newest.id()] == expected, "{at}");
            scene.is_clean(at);
        },
    );
}

/// Lays out the newest version of a series again, whether it is worth it or not.
fn compact(scene: &Scene, series: &str) -> Defragmented {
    let context = scene.context();
    let version = versions(&context).into_iter().rfind(|version| version.summary.series == series).unwrap();
    let options =
        DefragmentOptions { sparse_percent: 100, budget: Budget::of_version(100), ..DefragmentOptions::default() };
    let manifest = scene.runtime.handle().block_on(context.repository.manifest(&version)).unwrap();
    let plan = defragment::plan(&version, &manifest, &options).unwrap();
    defragment::compact(&context, &plan, &options).unwrap()
}

/// A version of which three containers hold a little.
fn scattered() -> Scene {
    let scene = Scene::new();
    for edition in [0, 3, 4] {
        scene.version("a", edition);
    }
    scene
}

#[test]
fn what_only_superseded_generations_need_is_collected() {
    let scene = scattered();
    let before = scene.contents();
    assert!(matches!(compact(&scene, "a"), Defragmented::Done { generation: 1, .. }));
    let all = scene.versions();
    all[..2].iter().for_each(|version| scene.forget(version.id()));
    let report = scene.pass().unwrap();
    assert!(report.plan.data_containers >= 2, "{report:?}");
    assert_eq!(scene.contents()[&all[2].id()], before[&all[2].id()]);
    // What stays of the older generation is its manifest.
    let left = scene.garbage();
    assert!(
        left.iter().all(|name| name.starts_with("versions/") && name.ends_with("/0")) && left.len() == 1,
        "{left:?}"
    );
    scene.forget(all[2].id());
    scene.pass().unwrap();
    scene.is_clean("after all");
}

/// A compaction at any moment of a pass, and a backup on what it made.
#[test]
fn a_compaction_at_any_moment_of_a_pass_is_whole() {
    let scene = scattered();
    scene.forget(scene.versions()[0].id());
    let expected = scene.contents();
    let next = edition(&scene, "a", 7);
    at_every_operation(
        &scene,
        |scene| {
            compact(scene, "a");
            scene.backup(&scene.context(), "a").unwrap();
        },
        |scene, store| {
            let repository = scene.repository(store);
            scene.runtime.block_on(pass::run(&scene.context_of(repository), &pass_options()))
        },
        |scene, result, at| {
            result.unwrap_or_else(|error| panic!("{at}: {error}"));
            for _ in 0..2 {
                let contents = scene.contents();
                assert!(expected.iter().all(|(id, was)| contents[id] == *was), "{at}");
                assert!(contents[&scene.versions().pop().unwrap().id()] == next, "{at}");
                scene.pass().unwrap();
            }
        },
    );
}

/// A pass, one that thinks every job dead too, at any moment of a compaction.
#[test]
fn a_pass_at_any_moment_of_a_compaction_loses_nothing() {
    for dead_after in [Duration::from_secs(1 << 30), Duration::ZERO] {
        let scene = scattered();
        scene.version("b", 0);
        let expected = scene.contents();
        at_every_operation(
            &scene,
            move |scene| forget_and_collect(scene, Some("b"), dead_after),
            |scene, store| {
                let context = scene.context_at(store);
                let version = versions(&context).into_iter().rfind(|version| version.summary.series == "a").unwrap();
                let options = DefragmentOptions {
                    sparse_percent: 100,
                    budget: Budget::of_version(100),
                    ..DefragmentOptions::default()
                };
                let manifest = scene.runtime.block_on(context.repository.manifest(&version)).unwrap();
                let plan = defragment::plan(&version, &manifest, &options).unwrap();
                defragment::compact(&context, &plan, &options)
            },
            |scene, result, at| {
                result.unwrap_or_else(|error| panic!("{at}: {error}"));
                for _ in 0..2 {
                    let contents = scene.contents();
                    assert_eq!(contents.len(), 3, "{at}");
                    assert!(contents.iter().all(|(id, contents)| expected[id] == *contents), "{at}");
                    scene.pass().unwrap();
                }
            },
        );
    }
}
