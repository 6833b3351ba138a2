//! The promise: whatever single store operation a pass dies at, every retained version is whole, and the next pass finishes what
//! is to be done and leaves nothing behind. (Also story S7: a crash between two steps that belong together.)
//!
//! Method: count the operations of a pass; then for every n die there on a copy of the repository, with n applied and not applied.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::time::Duration;

use crate::support::*;
use larder_gnode::forget::pin_of;
use larder_gnode::pass::{self, Outcome, PassOptions};
use larder_reader::{Reading, VersionReader};
use larder_testkit::{Failure, Fault, OpKind, Stop, Times, When};

/// A repository in which a pass has everything to do that there is.
fn scene() -> Scene {
    let scene = Scene::new();
    let forgotten = [scene.version("a", 0), scene.version("b", 0), scene.version("a", 3)];
    scene.version("a", 4);
    scene.pass().unwrap();
    let kept = scene.version("b", 1);
    let context = scene.context();
    let version = scene.versions().into_iter().find(|version| version.id() == forgotten[0]).unwrap();
    scene.runtime.block_on(async {
        context.repository.pin(pin_of(&version), 0, "host", "test").await.unwrap();
        context.repository.unpin(pin_of(&version), 0, "host", "test").await.unwrap();
    });
    // A reader that closed its lease, and one that died.
    let versions = scene.versions();
    let (_, reading): (VersionReader, Reading) = VersionReader::announce(&context, &versions[0]).unwrap();
    reading.end();
    let (_, reading): (VersionReader, Reading) = VersionReader::announce(&context, &versions[1]).unwrap();
    drop(reading);
    // A job that died.
    scene.write("b", 2);
    let (context, faults) = scene.faulty(&scene.memory);
    faults.add(When::kind(OpKind::Put).path("versions/"), Fault::FailBefore(Failure::Status(403)), Times::Always);
    scene.backup(&context, "b").expect_err("it cannot commit");
    forgotten.into_iter().for_each(|id| scene.forget(id));
    assert!(scene.versions().iter().any(|version| version.id() == kept));
    scene
}

#[test]
fn a_pass_cut_at_any_operation_loses_nothing_and_the_next_one_finishes() {
    let scene = scene();
    let expected = scene.contents();
    assert_eq!(expected.len(), 2);
    let options = PassOptions { dead_after: Duration::ZERO, ..pass_options() };
    let run = |scene: &Scene, cut: Option<(u64, Stop)>| {
        let (context, faults) = scene.faulty(&scene.memory);
        let opened = faults.count();
        if let Some((n, stop)) = cut {
            faults.stop_at(opened + n, stop);
        }
        let result = scene.runtime.block_on(pass::run(&context, &options));
        (result, faults.count() - opened)
    };
    let undisturbed = scene.fork();
    let (result, operations) = run(&undisturbed, None);
    let report = result.unwrap();
    assert_eq!((report.plan.versions, report.plan.fenced.len()), (3, 1));
    assert!(report.plan.data_containers > 0 && report.plan.meta_containers > 0 && operations > 50, "{operations}");
    assert!(matches!(report.outcome, Outcome::Published(_)));
    let left = undisturbed.garbage();
    // What the dead job left is its fence.
    assert!(left.len() == 1 && left.iter().all(|name| name.starts_with("versions/")), "{left:?}");
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            let cut = scene.fork();
            let (result, _) = run(&cut, Some((n, stop)));
            assert!(result.is_err(), "{at}");
            assert_eq!(cut.contents(), expected, "{at}");
            let (result, _) = run(&cut, None);
            result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(cut.contents(), expected, "{at}");
            // A pass that died before its index was created is known to be over when the next index is there. It left its lease
            // and its runs.
            let more: Vec<_> = cut.garbage().difference(&left).cloned().collect();
            let is_of_pass = |name: &String| name.starts_with("jobs/") || name.starts_with("index/runs/");
            assert!(more.len() <= 5 && more.iter().all(is_of_pass), "{at}: {more:?}");
            cut.pass().unwrap();
            assert_eq!(cut.garbage(), left, "{at}");
            assert_eq!(cut.contents(), expected, "{at}");
        }
    }
}

#[test]
fn a_full_or_read_only_store_is_told_and_nothing_is_lost() {
    let scene = scene();
    let expected = scene.contents();
    let (context, faults) = scene.faulty(&scene.memory);
    faults.read_only(true);
    let refused = scene.runtime.block_on(pass::run(&context, &pass_options()));
    assert!(refused.unwrap_err().to_string().contains("read-only"));
    faults.clear();
    faults.space(0);
    let refused = scene.runtime.block_on(pass::run(&context, &pass_options()));
    assert!(refused.is_err());
    assert_eq!(scene.contents(), expected);
}

#[test]
fn a_pass_that_is_out_of_time_stops_and_the_next_one_goes_on() {
    let scene = scene();
    let expected = scene.contents();
    // Every look at the clock takes a second.
    let options = |seconds| PassOptions {
        dead_after: Duration::ZERO,
        max_duration: Some(Duration::from_secs(seconds)),
        ..pass_options()
    };
    let mut unfinished = 0;
    for seconds in 1..60 {
        let cut = scene.fork();
        let result = cut.pass_with(&options(seconds));
        assert_eq!(cut.contents(), expected);
        match result {
            Ok(report) if report.is_unfinished => unfinished += 1,
            Ok(_) => break,
            Err(error) => assert!(matches!(error, pass::PassError::Interrupted), "{error}"),
        }
        cut.pass_with(&options(1000)).unwrap();
        assert_eq!(cut.garbage().len(), 1);
    }
    assert!(unfinished > 0);
}
