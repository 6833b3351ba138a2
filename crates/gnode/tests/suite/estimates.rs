//! The promise: what a dry run says a pass takes, planning it and carrying it out, is about what it takes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use crate::support::*;
use larder_format::ids::JobId;
use larder_gnode::pass::cost::Requests;
use larder_gnode::pass::{Outcome, PassOptions, PassReport, run};
use larder_gnode::reclaim::{Exact, ReclaimOptions};

fn options(exact: Exact) -> PassOptions {
    PassOptions { reclaim: Some(ReclaimOptions { exact, ..ReclaimOptions::default() }), ..pass_options() }
}

/// Makes a pass and counts what it asks the store for.
fn counted(scene: &Scene, options: &PassOptions) -> (PassReport, Requests) {
    let repository = scene.repository(scene.memory.store());
    let before = repository.store().stats();
    let report = scene.runtime.block_on(run(&scene.context_of(repository.clone()), options)).unwrap();
    (report, Requests::between(&before, &repository.store().stats()))
}

/// Compares what a dry run says with what the pass then takes.
#[track_caller]
fn compare(scene: &Scene, options: &PassOptions, at: &str) -> PassReport {
    let (dry, took) = counted(scene, &PassOptions { dry_run: true, ..options.clone() });
    assert_eq!((dry.outcome, dry.planning), (Outcome::Planned, took), "{at}");
    let carrying_out = Requests::of(&dry.plan);
    let (report, took) = counted(scene, options);
    assert_eq!(report.planning, Requests::default());
    let said = dry.planning.and(carrying_out);
    // A tenth, and what one or two tables more or less make.
    let is_about = |said: u64, took: u64| said.abs_diff(took) * 10 <= took.max(said) + 80;
    assert!(is_about(said.creates, took.creates), "{at}: {said:?} {took:?}");
    assert!(is_about(said.reads, took.reads), "{at}: {said:?} {took:?}");
    assert!(said.deletes.abs_diff(took.deletes) <= 2, "{at}: {said:?} {took:?}");
    report
}

#[test]
fn what_a_dry_run_says_is_about_what_a_pass_takes() {
    let scene = Scene::new();
    let ids: Vec<JobId> = (0..12).map(|edition| scene.version("a", edition)).collect();
    let others: Vec<JobId> = (0..12).map(|edition| scene.version("b", edition)).collect();
    compare(&scene, &options(Exact::Never), "nothing is known");
    compare(&scene, &options(Exact::Never), "nothing is to be done");
    scene.version("a", 20);
    compare(&scene, &options(Exact::Never), "a version is new");
    ids[..2].iter().for_each(|id| scene.forget(*id));
    compare(&scene, &options(Exact::Never), "two are forgotten");
    others[..9].iter().for_each(|id| scene.forget(*id));
    let report = compare(&scene, &options(Exact::Always), "most are forgotten");
    assert!(report.plan.reclaimed.is_exact && report.plan.deletions() > 20, "{report:?}");
}

/// Many containers that go for what lies in others, and for what is copied.
#[test]
fn reclaim_is_estimated_too() {
    let scene = Scene::new();
    for number in 0..12u64 {
        let (twice, once) = (("twice", number, 60_000), ("once", 100 + number, 40_000));
        scene.alone(&format!("a{number}"), &[twice, once]);
        scene.alone(&format!("b{number}"), &[twice]);
        scene.alone(&format!("a{number}"), &[("new", 200 + number, 20_000)]);
    }
    let takes_in = PassOptions { reclaim: None, ..options(Exact::Never) };
    compare(&scene, &takes_in, "nothing is retired");
    let report = compare(&scene, &options(Exact::Never), "much is retired");
    assert_eq!(report.plan.reclaimed.containers, 12);
}
