//! Shares are exact, whatever memory there is for counting them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;

use crate::support::*;
use jiff::tz::TimeZone;
use larder_format::ids::{ByteCount, JobId};
use larder_gnode::exclusive_bytes::{Share, Shares, SharesBudget, exclusive_bytes};
use larder_gnode::forget::{Question, decide};
use larder_gnode::pass::PassOptions;
use larder_gnode::reclaim::Exact;
use larder_gnode::retention::{GroupBy, Policy};
use larder_store::catalog::Version;

fn shares_of_each(scene: &Scene, versions: &[Version], memory: usize) -> Vec<Share> {
    let each: Vec<_> = (0..versions.len()).map(Some).collect();
    shares_of(scene, versions, &each, memory).each
}

fn shares_of(scene: &Scene, versions: &[Version], groups: &[Option<usize>], memory: usize) -> Shares {
    let (repository, budget) = (scene.context().repository, SharesBudget::of_memory(memory));
    scene.runtime.block_on(exclusive_bytes(&repository, versions, groups, versions.len(), budget)).unwrap()
}

/// Bytes of all containers.
fn stored(scene: &Scene) -> u64 {
    let repository = scene.repository(scene.memory.store());
    scene.runtime.block_on(repository.list_containers()).unwrap().iter().map(|listed| listed.bytes).sum()
}

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
        let found = shares_of_each(&scene, &versions, memory);
        assert_eq!(found, expected, "with {memory} bytes");
    }
    // Forgetting the first half also frees what several of them share.
    let half = versions.len() / 2;
    let groups: Vec<_> = (0..versions.len()).map(|place| (place < half).then_some(place)).collect();
    let of_half = users.values().filter(|(places, _)| places.iter().all(|place| *place < half));
    let (alone, together) = of_half.fold((0, 0), |(alone, together), (places, bytes)| {
        (alone + if places.len() == 1 { *bytes } else { 0 }, together + bytes)
    });
    assert!(alone < together);
    for memory in [0, 1 << 20] {
        let found = shares_of(&scene, &versions, &groups, memory);
        let found_alone: u64 = found.each.iter().map(|share| share.alone.0).sum();
        assert_eq!((found_alone, found.together.0), (alone, together), "with {memory} bytes");
    }
}

/// What was retired counts where its chunks are: forgetting one version alone frees what is said, to the byte.
#[test]
fn what_was_retired_counts_where_its_chunks_are() {
    let scene = Scene::new();
    scene.alone("a", &[("one", 1, 60_000), ("two", 2, 40_000)]);
    scene.alone("b", &[("one", 1, 60_000), ("three", 3, 30_000)]);
    scene.alone("c", &[("two", 2, 40_000), ("three", 3, 30_000)]);
    for (series, seed) in [("a", 4), ("b", 5), ("c", 6)] {
        scene.alone(series, &[("new", seed, 20_000)]);
    }
    assert!(scene.optimize(Exact::Never).reclaimed.written > 0);
    let versions = scene.versions();
    let shares = shares_of_each(&scene, &versions, 1 << 20);
    for (version, share) in versions.iter().zip(shares) {
        let cut = scene.fork();
        cut.forget(version.id());
        cut.pass_with(&PassOptions { reclaim: None, min_age: std::time::Duration::ZERO, ..PassOptions::default() })
            .unwrap();
        assert_eq!(stored(&scene) - stored(&cut), share.alone.0);
    }
}

/// Which versions of a policy of this size stay, oldest first.
fn kept_within(scene: &Scene, bytes: u64) -> Vec<JobId> {
    let policy = Policy { size: Some(ByteCount(bytes)), ..Policy::default() };
    let question = Question {
        policy: &policy,
        group_by: GroupBy::default(),
        zone: TimeZone::UTC,
        now_ms: u64::MAX,
        budget: SharesBudget::of_memory(1 << 20),
    };
    let repository = scene.context().repository;
    let pinned = BTreeMap::new();
    let groups = scene.runtime.block_on(decide(&repository, &question, scene.versions(), &pinned)).unwrap();
    let kept = groups.iter().flat_map(|group| &group.versions).filter(|judged| judged.is_kept());
    kept.map(|judged| judged.version.id()).collect()
}

/// What only older versions need does not count for newer ones, in whatever container a pass has put it.
#[test]
fn a_size_keeps_what_fits_of_a_series_that_is_arranged() {
    let scene = Scene::new();
    let ids: Vec<JobId> = (0..8u64)
        .map(|version| {
            // A part of each version stays, and a part of it goes again with the next.
            let editions = std::array::from_fn(|piece| if piece % 3 == 0 { version } else { 0 });
            let id = scene.lifecycle("a", &pieces(&editions));
            scene.arrange(0.0);
            id
        })
        .collect();
    for count in 1..=ids.len() {
        let (gone, kept) = ids.split_at(ids.len() - count);
        let cut = scene.fork();
        gone.iter().for_each(|id| cut.forget(*id));
        cut.arrange(0.0);
        // Of metadata whole containers are counted, as they are before versions go.
        let bytes = stored(&cut);
        assert_eq!(kept_within(&scene, bytes + 4_000), kept, "the newest {count} take {bytes} bytes");
        assert_eq!(kept_within(&scene, bytes - 4_000).len(), count - 1, "{bytes}");
    }
}
