//! Shares are exact, whatever memory there is for counting them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;

use crate::support::*;
use larder_gnode::giving_up::Exact;
use larder_gnode::pass::PassOptions;
use larder_gnode::shares::{Share, shares};

#[test]
fn shares_are_those_of_the_container_tables() {
    let scene = Scene::new();
    for edition in 0..40 {
        scene.version(if edition % 3 == 0 { "a" } else { "b" }, edition);
    }
    let context = scene.context();
    let versions = scene.versions();
    let mut users: BTreeMap<_, (Vec<usize>, u64)> = BTreeMap::new();
    for (place, version) in versions.iter().enumerate() {
        for usage in scene.runtime.block_on(context.repository.manifest(version)).unwrap().containers {
            let user = users.entry(usage.container).or_default();
            user.0.push(place);
            user.1 = usage.object_bytes;
        }
    }
    let mut expected = vec![Share::default(); versions.len()];
    for (places, bytes) in users.values() {
        expected[places[0]].added.0 += bytes;
        if places.len() == 1 {
            expected[places[0]].alone.0 += bytes;
        }
    }
    // Two containers a version at least, so the smallest memory does not hold them all.
    assert!(users.len() > 64);
    for memory in [0, 1 << 20] {
        let found = scene.runtime.block_on(shares(&context.repository, &versions, memory)).unwrap();
        assert_eq!(found, expected, "with {memory} bytes");
    }
}

/// What was given up counts where its chunks are: forgetting one version alone frees what is said, to the byte.
#[test]
fn what_was_given_up_counts_where_its_chunks_are() {
    let scene = Scene::new();
    scene.alone("a", &[("one", 1, 60_000), ("two", 2, 40_000)]);
    scene.alone("b", &[("one", 1, 60_000), ("three", 3, 30_000)]);
    scene.alone("c", &[("two", 2, 40_000), ("three", 3, 30_000)]);
    for (series, seed) in [("a", 4), ("b", 5), ("c", 6)] {
        scene.alone(series, &[("new", seed, 20_000)]);
    }
    assert!(scene.optimize(Exact::Never).given_up.written > 0);
    let context = scene.context();
    let versions = scene.versions();
    let shares = scene.runtime.block_on(shares(&context.repository, &versions, 1 << 20)).unwrap();
    let stored = |scene: &Scene| {
        let listed =
            scene.runtime.block_on(context.repository.through(store_over(scene.memory.store())).list_containers());
        listed.unwrap().iter().map(|listed| listed.bytes).sum::<u64>()
    };
    for (version, share) in versions.iter().zip(shares) {
        let cut = scene.fork();
        cut.forget(version.id());
        cut.pass_with(&PassOptions { give_up: None, ..PassOptions::default() }).unwrap();
        assert_eq!(stored(&scene) - stored(&cut), share.alone.0);
    }
}
