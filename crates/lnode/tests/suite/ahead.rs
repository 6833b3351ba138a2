//! What a restore requests before it needs it. The store holds answers back until other requests arrive, which never happens in a
//! restore that does one after the other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::fs;

use crate::support::scene::Scene;
use crate::support::*;
use larder_format::ids::ContainerKind;
use larder_lnode::{RestoreOptions, RestoreReport};
use larder_reader::FetchOptions;
use larder_rewrite::{CheckOptions, check};
use larder_source::target::{Target, TargetOptions};
use larder_testkit::{Fault, OpKind, Times, When, data};

impl Scene {
    /// Operations on data containers so far: of this kind, or all.
    fn arrived(&self, kind: Option<OpKind>) -> usize {
        let is_counted = |kind_of: OpKind| kind.is_none_or(|kind| kind == kind_of);
        self.faults.log().iter().filter(|op| op.path.contains("data/") && is_counted(op.kind)).count()
    }

    /// Restores everything, as with no paths.
    fn restore(&self) -> RestoreReport {
        self.restore_fetching(FetchOptions::default())
    }

    fn restore_fetching(&self, fetch: FetchOptions) -> RestoreReport {
        let target = Target::open(&self.dir.path().join("target"), TargetOptions::default()).unwrap();
        let version = versions(&self.context).pop().unwrap();
        let options = RestoreOptions { fetch, ..RestoreOptions::default() };
        larder_lnode::restore(&self.context, &version, &target, &options).unwrap()
    }
}

/// Pages of a database in a scattered order: every one is a run of its own.
fn scattered(pages: usize) -> (Vec<u8>, Vec<u8>) {
    let mut all: Vec<_> = (0..pages as u64).map(|page| data::random(page, 4096)).collect();
    all[0][..101].copy_from_slice(&database_header());
    let other: Vec<_> = (0..pages).flat_map(|n| all[n * 2777 % pages].clone()).collect();
    (all.concat(), other)
}

#[test]
fn containers_are_requested_while_the_recipe_is_read() {
    let scene = Scene::of(&[("file", &data::random(1, 20_000_000))]);
    let before = scene.arrived(None);
    scene.faults.add(When::kind(OpKind::Get).path("meta/"), Fault::Until("data/", before + 1), Times::Always);
    let report = scene.restore();
    assert_eq!((report.fetched.containers, report.fetched.again), (3, 0));
    scene.is_equal();
}

#[test]
fn the_next_window_is_fetched_while_one_is_written() {
    let (pages, other) = scattered(4200);
    let mut scene = Scene::of(&[("a", &pages), ("b", &other), ("c", &other)]);
    scene.context.memory = 0;
    let (before, needed) = (scene.arrived(None), scene.arrived(Some(OpKind::Put)));
    // The first window needs all containers, and none arrives before the second asks for one too.
    scene.faults.add(
        When::kind(OpKind::Get).path("data/"),
        Fault::Until("data/", before + needed + 1),
        Times::First(needed as u32),
    );
    // With memory for all of them, each is one request.
    let report = scene.restore_fetching(FetchOptions { cache_memory: Some(64 << 20), ..FetchOptions::default() });
    assert_eq!(report.fetched.containers, needed as u64);
    assert_eq!((report.files_restored, report.errors), (3, 0));
    scene.is_equal();
}

/// Memory is for three containers, and six requests may be under way: each container is read in pieces.
#[test]
fn containers_are_read_in_pieces_where_memory_is_for_few() {
    let mut scene = Scene::of(&[("file", &data::random(1, 20_000_000))]);
    scene.context.memory = 0;
    let before = scene.arrived(None);
    let fault = Fault::Until("data/", before + FetchOptions::default().prefetch);
    scene.faults.add(When::kind(OpKind::Get).path("data/"), fault, Times::Always);
    let report = scene.restore();
    assert_eq!((report.fetched.containers, report.fetched.again), (3, 0));
    assert!(report.fetched.requests > 3, "{:?}", report.fetched);
    let requested = scene.arrived(None) - before;
    assert_eq!(
        requested as u64, report.fetched.requests,
        "an answer that was held back for too long is requested again"
    );
    scene.is_equal();
}

/// Seven snapshots have written the metadata. Half of the cache has no room for it, but all of the cache has.
#[test]
fn all_metadata_is_requested_at_once_if_the_cache_holds_it() {
    let mut scene = Scene::of(&[("0", &data::random(1, 3_000_000))]);
    for number in 1..7 {
        fs::write(scene.source().join(number.to_string()), data::random(1 + number, 3_000_000)).unwrap();
        backup(&scene.context, &scene.source()).unwrap();
    }
    let version = versions(&scene.context).pop().unwrap();
    let manifest = scene.context.executor.block_on(scene.context.repository.manifest(&version)).unwrap();
    let metadata = manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Meta);
    let sizes: Vec<_> = metadata.map(|usage| usage.object_bytes as usize).collect();
    assert_eq!(sizes.len(), 7, "{sizes:?}");
    scene.context.memory = sizes.iter().sum::<usize>() * 6 + 6;
    let requested = || scene.faults.log().iter().filter(|op| op.path.contains("meta/")).count();
    let before = requested();
    let fault = Fault::Until("meta/", before + sizes.len());
    scene.faults.add(When::kind(OpKind::Get).path("meta/"), fault, Times::Always);
    let report = scene.restore();
    assert_eq!((report.files_restored, report.errors), (7, 0));
    assert_eq!(requested() - before, sizes.len(), "an answer that was held back for too long is requested again");
    scene.is_equal();
}

/// Records are compared while tables are read ahead, and a store that takes its time makes both want the same ones.
#[test]
fn a_check_reads_the_tables_of_a_container_once() {
    let scene = Scene::of(&[("0", &data::random(1, 300_000))]);
    for number in 1..9 {
        fs::write(scene.source().join(number.to_string()), data::random(1 + number, 300_000)).unwrap();
        backup(&scene.context, &scene.source()).unwrap();
    }
    let before = scene.faults.log().len();
    let delay = Fault::Delay(std::time::Duration::from_millis(20));
    scene.faults.add(When::kind(OpKind::Get).path("data/"), delay, Times::Always);
    let report = check(&scene.context, &CheckOptions::default()).unwrap();
    assert!(report.damages.is_empty());
    let log = scene.faults.log();
    let mut read: Vec<_> = log[before..].iter().filter(|op| op.path.contains("data/")).map(|op| &op.path).collect();
    let requests = read.len();
    read.sort();
    read.dedup();
    assert_eq!((requests, read.len()), (9, 9));
}
