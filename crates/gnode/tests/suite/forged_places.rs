//! What a proof of a generation reads (`ReadWhereMoved`): every chunk that is not where the version had it. A container is no proof of
//! what it holds because the version names it, and a name is none because the index finds the chunk elsewhere.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::key_file::{KeyFields, Unlock};
use larder_format::names;
use larder_format::recipe::SegmentRef;
use larder_format::roles::Roles;
use larder_format::segment::Segment;
use larder_gnode::pass::{self, Listing, PassOptions, Unproved, WhyUnproved};
use larder_gnode::reclaim::Exact;
use larder_reader::VersionReader;
use larder_store::Repository;
use larder_store::catalog::Version;
use larder_testkit::{FaultStore, OpKind};
use larder_writer::ContainerTotals;

use crate::forged_generations::{all_there, containers_of, is_refused, is_undone, proved_in_index, with_victim};
use crate::support::*;

/// Creates a generation with the true digests, of which chunks of one of the version's own containers are said to be in another.
fn forge_within(scene: &Scene, victim: &Version, from: ContainerId, to: ContainerId) -> u32 {
    let mut within = |_: &mut SegmentRef, segment: &mut Segment| {
        for record in segment.records.iter_mut().filter(|record| record.chunk.container == from) {
            (record.chunk.container, record.chunk.offset) = (to, 0);
        }
    };
    forge_over(&scene.context(), victim, &HashMap::from([(to, totals(scene, to))]), &mut within, |_| {})
}

/// What the manifests say of a container; something, if none names it.
fn totals(scene: &Scene, container: ContainerId) -> ContainerTotals {
    let manifests = scene
        .versions()
        .into_iter()
        .map(|version| VersionReader::open(&scene.context(), &version).unwrap().manifest().containers.clone());
    let usage = manifests.flatten().find(|usage| usage.container == container);
    let nothing = ContainerTotals { chunks: 100, bytes: 1 << 20, object_bytes: 1 << 20 };
    usage.map_or(nothing, |usage| ContainerTotals::of(&usage))
}

/// Guards against: a generation leaves one of the version's containers for another of them, which does not have its chunks, or for
/// one that does not exist. The index finds the chunks where they were.
#[test]
fn a_generation_whose_chunks_are_not_where_it_says_in_a_container_of_the_version_is_refused() {
    let (scene, first) = with_victim();
    let data = |version: &Version| -> BTreeSet<ContainerId> {
        containers_of(&scene, version).into_iter().filter(|id| id.kind == ContainerKind::Data).collect()
    };
    scene.fill("victim", &[("a", 1, 100_000), ("b", 3, 80_000)]);
    let id = scene.backup(&scene.context(), "victim").unwrap().version.unwrap().id;
    let victim = scene.versions().into_iter().find(|version| version.id() == id).unwrap();
    scene.pass().unwrap();
    let (shared, own) = (data(&first), data(&victim));
    let (to, from) = (*shared.iter().next().unwrap(), *own.difference(&shared).next().unwrap());
    let nowhere = ContainerId { job: JobId([9; 16]), ..to };
    for (at, to) in [("nowhere", nowhere), ("within", to)] {
        let generation = forge_within(&scene, &victim, from, to);
        is_refused(&scene, &victim, generation, at);
        is_undone(&scene, &victim, generation, at);
    }
}

/// Says that the chunks of one data container are in another.
fn forge_from(scene: &Scene, victim: &Version, to: ContainerId) {
    let from = *scene.data_of(victim.id()).first().unwrap();
    forge_within(scene, victim, from, to);
}

/// A generation that names a retired container has what the index forwards to, and nothing else. An object that has its name since
/// goes with the next pass.
#[test]
fn a_generation_over_a_retired_container_has_what_that_forwards_to() {
    let (scene, a, b) = twins();
    let gone = *scene.data_of(a).first().unwrap();
    let bytes = scene.runtime.block_on(scene.memory.get(&names::container(gone))).unwrap();
    let stays = *scene.data_of(b).first().unwrap();
    scene.optimize(Exact::Never);
    assert_eq!(scene.reclaimed(), BTreeMap::from([(gone, vec![stays])]));
    let version = |id| scene.versions().into_iter().find(|version| version.id() == id).unwrap();
    let newest = scene.versions().pop().unwrap();
    assert!(newest.id() != a && newest.id() != b);
    for is_planted in [false, true] {
        let scene = Scene { memory: scene.memory.snapshot(), ..scene.same() };
        if is_planted {
            scene.runtime.block_on(scene.memory.put(&names::container(gone), bytes.clone()));
        }
        let other = scene.fork();
        forge_from(&other, &newest, gone);
        is_refused(&other, &newest, 1, "retired, and never had these chunks");
        let contents = scene.contents();
        forge_from(&scene, &version(b), gone);
        let (store, faults) = FaultStore::new(scene.memory.store());
        let context = scene.context_at(store);
        let report = scene.runtime.block_on(pass::run(&context, &pass_options())).unwrap();
        assert_eq!(report.unproved, [], "{is_planted}");
        // Some forty chunks were moved, and the index is looked for a few times.
        let looks = faults.log().iter().filter(|op| op.kind == OpKind::List && op.path.starts_with("index")).count();
        assert!((1..12).contains(&looks), "{is_planted}: {looks}");
        assert_eq!(proved_in_index(&scene, &version(b)), Some((1, true)), "{is_planted}");
        scene.pass_with(&PassOptions { listing: Listing::Whole, ..pass_options() }).unwrap();
        assert!(!scene.is_there(gone) && scene.is_there(stays), "{is_planted}");
        assert!(scene.contents() == contents, "{is_planted}");
    }
}

/// Guards against: an object with the name of a retired container has a chunk that is moved nowhere, because nobody needed it then.
#[test]
fn a_planted_container_proves_nothing() {
    let scene = Scene::new();
    let first = scene.alone("a", &[("one", 1, 90_000), ("two", 2, 60_000)]);
    for files in [&[("one", 1, 90_000)], &[("new", 3, 50_000)]] {
        scene.fill("a", files);
        scene.backup(&scene.context(), "a").unwrap();
    }
    let gone = *scene.data_of(first).first().unwrap();
    let bytes = scene.runtime.block_on(scene.memory.get(&names::container(gone))).unwrap();
    let repository = scene.repository(scene.memory.store());
    let index = scene.runtime.block_on(repository.read_container_index(gone)).unwrap();
    let known = totals(&scene, gone);
    scene.forget(first);
    scene.optimize(Exact::Always);
    assert!(!scene.is_there(gone) && scene.reclaimed().contains_key(&gone));
    let again = scene.alone("b", &[("two", 2, 60_000)]);
    scene.pass().unwrap();
    let victim = scene.versions().into_iter().find(|version| version.id() == again).unwrap();
    scene.runtime.block_on(scene.memory.put(&names::container(gone), bytes));
    let mut there = |_: &mut SegmentRef, segment: &mut Segment| {
        for record in &mut segment.records {
            if let Some(chunk) = index.chunk_refs().find(|chunk| chunk.fingerprint == record.chunk.fingerprint) {
                record.chunk = chunk;
            }
        }
    };
    let generation = forge_over(&scene.context(), &victim, &HashMap::from([(gone, known)]), &mut there, |_| {});
    is_refused(&scene, &victim, generation, "planted");
}

/// A key that reads no contents proves nothing, so all generations stay. Its pass goes on.
#[test]
fn without_a_key_for_contents_all_generations_stay() {
    let (scene, victim) = with_victim();
    let old = containers_of(&scene, &victim);
    relay_all(&scene.context(), &victim);
    let fields = KeyFields { roles: Roles::OPERATE, ..KeyFields::for_tests() };
    let all = scene.repository(scene.memory.store());
    let opened = scene.runtime.block_on(async {
        all.add_key(Unlock::Password(b"operator"), fields).await.unwrap();
        Repository::open(store_over(scene.memory.store()), b"operator", Arc::new(larder_testkit::entropy())).await
    });
    let context = scene.context_of(opened.unwrap());
    assert!(context.repository.require(Roles::RESTORE, "contents").is_err());
    let report = scene.runtime.block_on(pass::run(&context, &pass_options())).unwrap();
    assert!(matches!(report.unproved[..], [Unproved { why: WhyUnproved::NeedsContents, .. }]), "{report:?}");
    assert!(all_there(&scene, &old) && !report.found_damage());
}
