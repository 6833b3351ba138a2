//! The promise: a version that is rewritten takes its metadata along, so that nothing of what was written again lies dead beside it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use crate::support::*;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::names;
use larder_gnode::defragment::{Budget, DefragmentOptions, Defragmented, compact, plans};
use larder_testkit::data;

/// Segments that are written again leave little of a version's metadata where its backup put it: that moves along, and nothing lies dead.
#[test]
fn metadata_of_a_version_leaves_its_containers_with_what_is_written_again() {
    let scene = Scene::new();
    let names: Vec<String> = (0..60).map(|number| format!("a-file-with-a-long-name-{number}")).collect();
    let edition = |changed: std::ops::Range<usize>, seed: u64| {
        let root = scene.source("a");
        std::fs::create_dir_all(&root).unwrap();
        for number in changed {
            std::fs::write(root.join(&names[number]), data::random(seed + number as u64, 10_000)).unwrap();
        }
        scene.backup(&scene.context(), "a").unwrap().version.unwrap().id
    };
    let first = edition(0..60, 0);
    let second = edition(0..24, 1000);
    let third = edition(12..40, 2000);
    scene.pass().unwrap();
    let contents = scene.contents();
    let metadata_of = |id: JobId| names::container(ContainerId { kind: ContainerKind::Meta, job: id, seq: 0 });
    let is_there = |id| scene.runtime.block_on(scene.memory.get(&metadata_of(id))).is_some();
    let context = scene.context();
    let options =
        DefragmentOptions { sparse_percent: 100, budget: Budget::of_version(100), ..DefragmentOptions::default() };
    let [plan] = &plans(&context, &options).unwrap().plans[..] else { panic!("one is sparse") };
    assert!(matches!(compact(&context, plan, &options).unwrap(), Defragmented::Done { generation: 1, .. }));
    scene.pass().unwrap();
    assert_eq!([first, second, third].map(is_there), [true, true, false]);
    assert!(scene.contents() == contents);
    scene.index_agrees("after the pass");
    let report = larder_rewrite::check(&context, &larder_rewrite::CheckOptions::default()).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
}
