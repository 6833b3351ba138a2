//! Shares are exact, whatever memory there is for counting them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod support;

use std::collections::BTreeMap;

use larder_gnode::shares::{Share, shares};
use support::*;

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
