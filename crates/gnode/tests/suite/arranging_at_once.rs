//! The promise: series in the layout `lifecycle` are arranged beside anything else, at any moment of it, and no retained version loses
//! anything. A pass that dies at any single operation, and a reader beside one, are in `mfdedup_pitfalls.rs` (M2, M7).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::time::Duration;

use crate::support::*;
use larder_format::ids::{ContainerId, JobId};
use larder_gnode::pass::{self, PassError, PassOptions, PassReport};
use larder_lnode::BackupError;
use larder_rewrite::check::{CheckOptions, ReadData, check};
use larder_testkit::Stop;

fn every(of: u64, every: usize, shift: usize, mut before: [u64; 60]) -> [u64; 60] {
    (0..60).filter(|place| (place + shift).is_multiple_of(every)).for_each(|place| before[place] = of);
    before
}

/// Three versions that were arranged, one of them forgotten, and one that was not arranged yet.
pub(crate) fn scene() -> (Scene, [JobId; 4], [u64; 60]) {
    let scene = Scene::new();
    let mut now = [0; 60];
    let mut version = |of, step, shift| {
        now = every(of, step, shift, now);
        scene.lifecycle("db", &pieces(&now))
    };
    let first = version(1, 60, 0);
    let second = version(2, 5, 0);
    scene.arrange(0.0);
    let third = version(3, 4, 1);
    scene.arrange(0.0);
    let fourth = version(4, 3, 2);
    scene.forget(second);
    (scene, [first, second, third, fourth], now)
}

fn run(scene: &Scene, store: std::sync::Arc<Between>, options: &PassOptions) -> Result<PassReport, PassError> {
    scene.runtime.handle().block_on(pass::run(&scene.context_at(store), options))
}

/// Reading it (M7) is in `mfdedup_pitfalls.rs`.
#[test]
fn what_is_being_checked_is_arranged_meanwhile() {
    let (scene, ..) = scene();
    at_every_operation(
        &scene,
        |scene| drop(scene.pass_with(&thoroughly()).unwrap()),
        |scene, store| {
            let options = CheckOptions { read_data: ReadData::All, ..CheckOptions::default() };
            check(&scene.context_at(store), &options)
        },
        |_, report, at| {
            let report = report.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(report.damages.is_empty(), "{at}: {:?}", report.damages);
        },
    );
}

/// What is there is what is needed, and nothing more.
#[track_caller]
pub(crate) fn is_exact(scene: &Scene, at: &str) {
    for _ in 0..2 {
        scene.pass_with(&PassOptions { dead_after: Duration::ZERO, ..thoroughly() }).unwrap();
    }
    scene.names_lead_to_chunks(at);
    let (stored, named) = scene.stored_and_named();
    assert_eq!(stored, named, "{at}");
}

/// S11: two G-nodes.
#[test]
fn two_passes_arrange_at_once() {
    let (scene, ..) = scene();
    at_every_operation(
        &scene,
        |scene| drop(scene.pass_with(&arranging(0.0)).unwrap()),
        |scene, store| run(scene, store, &arranging(0.0)),
        |scene, result, at| {
            assert!(matches!(&result, Err(PassError::Overtaken)) || result.is_ok(), "{at}");
            scene.names_lead_to_chunks(at);
            is_exact(scene, at);
        },
    );
}

/// Versions are forgotten, the newest too, and collected while their series is arranged.
#[test]
fn versions_are_forgotten_while_they_are_arranged() {
    let (scene, ids, _) = scene();
    let stories = [(vec![ids[0]], true), (vec![ids[3]], true), (vec![ids[2]], false), (vec![ids[0], ids[3]], true)];
    for (forgotten, collects) in stories {
        at_every_operation(
            &scene,
            move |scene| {
                forgotten.iter().for_each(|id| scene.forget(*id));
                if collects {
                    scene.pass_with(&PassOptions { arrange: None, ..arranging(0.0) }).unwrap();
                }
            },
            |scene, store| run(scene, store, &arranging(0.0)),
            |scene, _, at| {
                scene.names_lead_to_chunks(at);
                is_exact(scene, at);
            },
        );
    }
}

/// M8 (`docs/lifecycle.md`): a backup builds on a version while that and others are arranged, forgotten and collected.
#[test]
fn a_backup_whose_base_is_arranged_meanwhile_is_whole() {
    let (scene, ids, now) = scene();
    let new = every(5, 7, 3, now);
    std::fs::write(scene.source("db").join("file"), pieces(&new)).unwrap();
    let backup = |scene: &Scene, context: &larder_job::JobContext, base: JobId| {
        backup_with(context, &scene.source("db"), "db", |options| {
            options.base = Some(base);
            options.force = true;
        })
    };
    // The newest one, which was not arranged, and one from before.
    for (base, others) in [(ids[3], [ids[0], ids[2]]), (ids[2], [ids[3], ids[0]])] {
        for forgets in [false, true] {
            at_every_operation(
                &scene,
                move |scene| {
                    scene.pass_with(&arranging(0.0)).unwrap();
                    if forgets {
                        scene.forget(base);
                        others.iter().for_each(|id| scene.forget(*id));
                        scene.pass_with(&thoroughly()).unwrap();
                        scene.pass_with(&thoroughly()).unwrap();
                    }
                },
                |scene, store| backup(scene, &scene.context_at(store), base),
                |scene, result, at| {
                    match result {
                        Ok(report) => assert!(report.version.is_some(), "{at}"),
                        Err(BackupError::NoSuchBase { .. }) if forgets => {}
                        Err(error) => panic!("{at}: {error}"),
                    }
                    scene.names_lead_to_chunks(at);
                    scene.pass_with(&PassOptions { arrange: None, ..arranging(0.0) }).unwrap();
                    scene.names_lead_to_chunks(at);
                    is_exact(scene, at);
                },
            );
        }
    }
}

/// A backup that dies before its commit.
fn dies(scene: &Scene, pieces_of_it: &[u64; 60]) {
    let (context, faults) = scene.faulty(&scene.memory.snapshot());
    let opened = faults.count();
    scene.lifecycle_at(&context, "db", &pieces(pieces_of_it)).unwrap();
    let operations = faults.count() - opened;
    let (context, faults) = scene.faulty(&scene.memory);
    faults.stop_at(faults.count() + operations - 2, Stop::Before);
    scene.lifecycle_at(&context, "db", &pieces(pieces_of_it)).unwrap_err();
}

/// What was uploaded by a job that died is adopted by the next backup while passes arrange.
#[test]
fn what_is_adopted_stays_while_others_are_arranged() {
    let (scene, _, now) = scene();
    let new = every(5, 2, 1, now);
    dies(&scene, &new);
    at_every_operation(
        &scene,
        |scene| drop(scene.pass_with(&thoroughly()).unwrap()),
        |scene, store| scene.lifecycle_at(&scene.context_at(store), "db", &pieces(&new)),
        |scene, result, at| {
            result.unwrap_or_else(|error| panic!("{at}: {error}"));
            scene.names_lead_to_chunks(at);
            is_exact(scene, at);
        },
    );
}

/// A backup adopts a part of what a job uploaded, and a pass arranges it. While that job is not settled, the next backup may adopt
/// the rest, which nobody uses: also when the first one was forgotten.
#[test]
fn what_nobody_uses_of_an_unsettled_job_can_be_adopted_later() {
    for forgets in [false, true] {
        let at = format!("forgets {forgets}");
        let (scene, _, now) = scene();
        let new = every(5, 2, 1, now);
        dies(&scene, &new);
        let part = every(6, 4, 1, new);
        let first = scene.lifecycle("db", &pieces(&part));
        let of_part = scene.names(first);
        scene.arrange(0.0);
        scene.names_lead_to_chunks(&at);
        if forgets {
            scene.forget(first);
            (0..2).for_each(|_| drop(scene.arrange(0.0)));
        }
        let second = scene.lifecycle("db", &pieces(&new));
        let of_whole = scene.names(second);
        let adopted = |(name, _): &(&(ContainerId, u32), _)| {
            name.0.job != second && !of_part.contains_key(*name) && of_part.keys().any(|other| other.0 == name.0)
        };
        assert!(of_whole.iter().filter(adopted).count() > 5, "{at}: only what was known was adopted");
        scene.names_lead_to_chunks(&at);
        scene.arrange(0.0);
        scene.names_lead_to_chunks(&at);
        is_exact(&scene, &at);
    }
}
