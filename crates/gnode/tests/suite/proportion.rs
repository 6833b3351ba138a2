//! The promise: a pass costs in proportion to what is new. With thirty versions retained, a pass after one more reads that one's
//! manifest and no other, and still knows exactly what the others need.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;

use crate::support::*;
use larder_format::ids::JobId;
use larder_gnode::pass::{self, Outcome, PassOptions, PassReport};
use larder_gnode::reclaim::{Exact, ReclaimOptions};
use larder_testkit::data::Rng;
use larder_testkit::{Op, OpKind};

/// Makes a pass and gives the requests that it took.
fn counted(scene: &Scene) -> (PassReport, Vec<Op>) {
    let (context, faults) = scene.faulty(&scene.memory);
    let opened = faults.count() as usize;
    // Exact collection reads manifests and recipes, and says so.
    let options = PassOptions {
        reclaim: Some(ReclaimOptions { exact: Exact::Never, ..ReclaimOptions::default() }),
        ..pass_options()
    };
    let report = scene.runtime.block_on(pass::run(&context, &options)).unwrap();
    (report, faults.log().split_off(opened))
}

fn manifests(log: &[Op]) -> usize {
    log.iter().filter(|op| op.kind == OpKind::Get && op.path.starts_with("versions/")).count()
}

/// How often the run was read that was read most often.
fn reads_of_a_run(log: &[Op]) -> usize {
    let runs = log.iter().filter(|op| op.kind == OpKind::Get && op.path.starts_with("index/runs/"));
    let mut reads: BTreeMap<&str, usize> = BTreeMap::new();
    runs.for_each(|op| *reads.entry(&op.path).or_default() += 1);
    reads.into_values().max().unwrap_or(0)
}

/// What was listed of containers.
fn containers_listed(log: &[Op]) -> Vec<&str> {
    let of_containers = |op: &&Op| op.path.starts_with("data") || op.path.starts_with("meta");
    let listings = log.iter().filter(|op| op.kind == OpKind::List).filter(of_containers);
    listings.map(|op| op.path.trim_end_matches('/')).collect()
}

fn listings_of(job: &JobId) -> [String; 2] {
    ["data", "meta"].map(|folder| format!("{folder}/{job}"))
}

#[test]
fn a_pass_after_one_more_version_reads_one_manifest() {
    let scene = Scene::new();
    let mut ids: Vec<_> =
        (0..30).map(|edition| scene.version(if edition % 4 == 0 { "b" } else { "a" }, edition)).collect();
    let (first, log) = counted(&scene);
    assert_eq!((first.manifests_read, manifests(&log)), (30, 30));
    ids.push(scene.version("a", 30));
    let (next, log) = counted(&scene);
    assert_eq!((next.manifests_read, manifests(&log)), (1, 1));
    // Two threads may want it at once; what is read later is remembered.
    assert!(reads_of_a_run(&log) <= 2, "{log:#?}");
    // Of it all 1 manifest of a version, 1 of the index, its tables of containers and copies; the lease and the looks; what the
    // backup left.
    assert!(log.len() < 46, "{} requests: {log:#?}", log.len());
    assert_eq!(containers_listed(&log), listings_of(ids.last().unwrap()), "the new job's and no others");
    let (idle, log) = counted(&scene);
    assert_eq!((idle.outcome, manifests(&log)), (Outcome::Nothing, 0));
    assert_eq!(containers_listed(&log), [""; 0], "nothing is listed when there is nothing new");
    // What the index says is enough to know what goes when any of them is forgotten.
    let mut rng = Rng::new(5);
    while !ids.is_empty() {
        let expected = scene.contents();
        for _ in 0..=rng.below(6) {
            if !ids.is_empty() {
                scene.forget(ids.swap_remove(rng.below(ids.len() as u64) as usize));
            }
        }
        let (_, log) = counted(&scene);
        assert_eq!(manifests(&log), 0);
        let left = scene.contents();
        assert_eq!(left.len(), ids.len());
        assert!(left.iter().all(|(id, contents)| expected[id] == *contents));
        scene.pass().unwrap();
        scene.is_clean(&format!("{} left", ids.len()));
    }
}

/// Without its index a repository loses nothing but time.
#[test]
fn an_index_that_is_gone_is_made_again_from_the_manifests() {
    let scene = Scene::new();
    let ids: Vec<_> = (0..6).map(|edition| scene.version("a", edition)).collect();
    scene.pass().unwrap();
    scene.runtime.block_on(async {
        for path in scene.memory.paths().await {
            if path.starts_with("index/") {
                scene.memory.remove(&path).await;
            }
        }
    });
    scene.forget(ids[2]);
    let (report, _) = counted(&scene);
    // It is rebuilt first, and knows all of them.
    assert_eq!((report.rebuilt, report.manifests_read), (Some(2), 0));
    assert_eq!(scene.contents().len(), 5);
    scene.is_clean("after the second first pass");
}
