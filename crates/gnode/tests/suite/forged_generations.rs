//! Generations that another program wrote supersede lower ones only when a pass has proved them (`ProvedBeforeRetired`). Nobody who
//! may create objects makes passes delete what a version needs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::manifest::ContainerUsage;
use larder_format::names;
use larder_format::recipe::{Proof, Recipe, SegmentRef};
use larder_format::segment::{Segment, Superchunk};
use larder_gnode::pass::{self, Listing, PassError, PassOptions, PassReport, Unproved, WhyUnproved};
use larder_index::IndexSnapshot;
use larder_lnode::{RestoreOptions, restore};
use larder_reader::{MetaChunks, RecipeReader, VersionReader};
use larder_rewrite::{CheckOptions, check};
use larder_source::target::{Target, TargetOptions};
use larder_store::catalog::Version;
use larder_store::rules::Rule;
use larder_writer::ContainerTotals;

use crate::support::*;

/// A version of an attacker and one of a victim, which a pass has ingested.
pub(crate) fn with_victim() -> (Scene, Version) {
    let scene = Scene::new();
    scene.alone("attacker", &[("x", 900, 90_000)]);
    let id = scene.alone("victim", &[("a", 1, 100_000), ("b", 2, 80_000)]);
    scene.pass().unwrap();
    let victim = scene.versions().into_iter().find(|version| version.id() == id).unwrap();
    (scene, victim)
}

pub(crate) fn containers_of(scene: &Scene, version: &Version) -> BTreeSet<ContainerId> {
    let manifest = VersionReader::open(&scene.context(), version).unwrap().manifest().clone();
    manifest.containers.iter().map(|usage| usage.container).collect()
}

pub(crate) fn all_there(scene: &Scene, containers: &BTreeSet<ContainerId>) -> bool {
    let objects = scene.runtime.block_on(scene.memory.contents());
    containers.iter().all(|id| objects.contains_key(&names::container(*id)))
}

pub(crate) fn proved_in_index(scene: &Scene, version: &Version) -> Option<(u32, bool)> {
    let repository = scene.repository(scene.memory.store());
    let newest = scene.runtime.block_on(IndexSnapshot::newest(&repository)).unwrap().snapshot;
    let row = newest.manifest.versions.iter().find(|row| row.job == version.id());
    row.map(|row| (row.generation, row.is_proved))
}

/// Two passes beside a forged generation: neither deletes anything of the version, and both say why.
#[track_caller]
pub(crate) fn is_refused(scene: &Scene, victim: &Version, generation: u32, at: &str) {
    let (needed, truth) = (containers_of(scene, victim), contents_of(&scene.context(), victim));
    for _ in 0..2 {
        let report = scene.pass().unwrap();
        let [Unproved { version, generation: number, why: WhyUnproved::Refuted { .. } }] = &report.unproved[..] else {
            panic!("{at}: {:?}", report.unproved)
        };
        assert_eq!((version.job, *number), (victim.id(), generation), "{at}");
        assert!(report.found_damage() && report.missing_containers == 0, "{at}: {report:?}");
        assert!(all_there(scene, &needed), "{at}");
        assert_eq!(proved_in_index(scene, victim), Some((0, false)), "{at}");
    }
    assert!(contents_of(&scene.context(), victim) == truth, "{at}");
}

/// The forged generation goes, and everything is as before.
#[track_caller]
pub(crate) fn is_undone(scene: &Scene, victim: &Version, generation: u32, at: &str) {
    let truth = contents_of(&scene.context(), victim);
    scene.runtime.block_on(scene.memory.remove(&names::version(victim.series, victim.id(), generation)));
    assert!(contents_of(&scene.context(), &scene.now(victim)) == truth, "{at}");
    let report = scene.pass_with(&PassOptions { listing: Listing::Whole, ..pass_options() }).unwrap();
    assert!(report.unproved.is_empty() && !report.found_damage(), "{at}: {report:?}");
    scene.is_clean_but_registers(at);
}

fn nothing(_: &mut SegmentRef, _: &mut Segment) {}

#[test]
fn what_another_process_rewrote_is_proved_once_and_then_supersedes() {
    let (scene, victim) = with_victim();
    let contents = scene.contents();
    let old = containers_of(&scene, &victim);
    relay_all(&scene.context(), &victim);
    let generation = forge(&scene.context(), &scene.now(&victim), &mut nothing, |_| {});
    assert_eq!(generation, 2);
    // Not within the bytes that a pass may read.
    let waiting = scene.pass_with(&PassOptions { prove_max: 1000, ..pass_options() }).unwrap();
    let reasons: Vec<_> = waiting.unproved.iter().map(|unproved| (unproved.generation, &unproved.why)).collect();
    assert!(matches!(reasons[..], [(2, WhyUnproved::Waiting { bytes }), (1, _)] if *bytes > 100_000), "{reasons:?}");
    assert!(!waiting.found_damage() && all_there(&scene, &old));
    assert!(scene.contents() == contents);
    let proved = scene.pass().unwrap();
    assert_eq!(proved.unproved, []);
    assert_eq!(proved_in_index(&scene, &victim), Some((2, true)));
    assert!(!all_there(&scene, &old), "what generation 0 alone used is gone");
    assert!(scene.contents() == contents);
    scene.is_clean_but_registers("proved");
    // Once is enough: the manifest is not read again.
    let later = scene.pass().unwrap();
    assert_eq!((later.manifests_read, later.unproved), (0, vec![]));
}

#[test]
fn what_this_process_wrote_needs_no_proof() {
    let (scene, victim) = with_victim();
    let old = containers_of(&scene, &victim);
    let context = scene.context();
    relay_all(&context, &victim);
    let options = PassOptions { prove_max: 0, ..pass_options() };
    let other = context.repository.of_another_process();
    let foreign = scene.runtime.block_on(pass::run(&context.through(&other), &options)).unwrap();
    assert!(matches!(foreign.unproved[..], [Unproved { why: WhyUnproved::Waiting { .. }, .. }]));
    let own = scene.runtime.block_on(pass::run(&context, &options)).unwrap();
    assert_eq!(own.unproved, []);
    assert_eq!(proved_in_index(&scene, &victim), Some((1, true)));
    assert!(!all_there(&scene, &old));
}

/// A way to change a segment that its digest covers.
type Change = fn(&mut SegmentRef, &mut Segment);

#[test]
fn a_generation_with_the_true_digests_over_other_recipes_is_refused() {
    let changes: [(&str, Change); 6] = [
        ("proof", |row, _| row.proof = Some(Proof { mac: [1; 16], cutter: 0, tail: vec![4096] })),
        ("cover", |row, _| row.cover.iter_mut().for_each(|cover| cover.data_bytes ^= 1)),
        ("superchunk", |_, segment| segment.superchunks.push(Superchunk { first: 0, records: 1, mac: [1; 16] })),
        ("order", |_, segment| segment.records.reverse()),
        ("record", |_, segment| segment.records[0].chunk.fingerprint.0[0] ^= 1),
        ("uses", |row, _| row.uses.clear()),
    ];
    for (at, change) in changes {
        let (scene, victim) = with_victim();
        let generation = forge(&scene.context(), &victim, &mut |row, segment| change(row, segment), |_| {});
        is_refused(&scene, &victim, generation, at);
        is_undone(&scene, &victim, generation, at);
    }
}

/// Creates a generation with the true digests, of which everything is true but the places of the data: there is something of the
/// attacker's.
fn forge_elsewhere(scene: &Scene, victim: &Version) -> u32 {
    let context = scene.context();
    let attacker = scene.versions().into_iter().find(|version| version.summary.series == "attacker").unwrap();
    let manifest = VersionReader::open(&context, &attacker).unwrap().manifest().clone();
    let others: HashMap<_, _> =
        manifest.containers.iter().map(|usage| (usage.container, ContainerTotals::of(usage))).collect();
    let (place, _) = others.iter().find(|(id, _)| id.kind == ContainerKind::Data).unwrap();
    let mut elsewhere = |_: &mut SegmentRef, segment: &mut Segment| {
        let is_data = |id: &ContainerId| id.kind == ContainerKind::Data;
        for record in segment.records.iter_mut().filter(|record| is_data(&record.chunk.container)) {
            (record.chunk.container, record.chunk.offset) = (*place, 0);
        }
    };
    forge_over(&context, victim, &others, &mut elsewhere, |_| {})
}

#[test]
fn a_generation_whose_chunks_are_something_else_is_refused() {
    let (scene, victim) = with_victim();
    let generation = forge_elsewhere(&scene, &victim);
    is_refused(&scene, &victim, generation, "elsewhere");
    is_undone(&scene, &victim, generation, "elsewhere");
}

#[test]
fn a_generation_with_garbage_in_its_frames_is_refused() {
    let (scene, victim) = with_victim();
    let old = containers_of(&scene, &victim);
    relay_all(&scene.context(), &victim);
    let new = containers_of(&scene, &scene.now(&victim));
    let data = new.difference(&old).find(|id| id.kind == ContainerKind::Data).unwrap();
    scene.runtime.block_on(scene.memory.change(&names::container(*data), |bytes| bytes[9] ^= 1));
    is_refused(&scene, &victim, 1, "garbage");
}

type ChangeTable = fn(&mut Vec<ContainerUsage>);

#[test]
fn a_generation_with_another_container_table_than_its_recipes_is_refused() {
    let tables: [(&str, ChangeTable); 5] = [
        ("short", |table| table.truncate(1)),
        ("fewer chunks", |table| table[0].chunks_used -= 1),
        ("fewer bytes", |table| table[0].bytes_used -= 1),
        ("another size", |table| table[0].object_bytes += 1),
        ("another size of a new one", |table| table.last_mut().unwrap().bytes_held += 1),
    ];
    for (at, table) in tables {
        let (scene, victim) = with_victim();
        let generation = forge(&scene.context(), &victim, &mut nothing, table);
        is_refused(&scene, &victim, generation, at);
        is_undone(&scene, &victim, generation, at);
    }
}

/// A reader takes no other bytes for those that a record names. The index knows another copy (`WrongIsAbsent`); without one, the
/// bytes are damaged.
#[test]
fn what_does_not_verify_is_read_elsewhere_or_not_at_all() {
    let (scene, victim) = with_victim();
    let truth = contents_of(&scene.context(), &victim);
    let generation = forge_elsewhere(&scene, &victim);
    let forged = scene.now(&victim);
    assert_eq!(forged.generation, generation, "its summary and its digests are true");
    let restored = |at: &str| {
        let (context, folder) = (scene.context(), scene.dir.path().join(at));
        std::fs::create_dir(&folder).unwrap();
        let target = Target::open(&folder, TargetOptions::default()).unwrap();
        let report = restore(&context, &forged, &target, &RestoreOptions::default()).unwrap();
        let path = folder.join(scene.source("victim").strip_prefix("/").unwrap());
        (report.damaged, ["a", "b"].map(|name| std::fs::read(path.join(name)).ok()))
    };
    let contents =
        |name: &str| truth.iter().find(|(path, _)| path.ends_with(name.as_bytes())).map(|(_, bytes)| bytes.clone());
    assert_eq!(restored("with-index"), (0, [contents("/a"), contents("/b")]));
    assert!(contents_of(&scene.context(), &forged) == truth);
    for name in scene.runtime.block_on(scene.memory.paths()) {
        if name.starts_with("index") {
            scene.runtime.block_on(scene.memory.remove(&name));
        }
    }
    let (damaged, files) = restored("without-index");
    assert_eq!((damaged, files), (2, [None, None]));
}

/// Guards against: a task of this process rewrites a forged generation in part, and the rest of it counts as proved.
#[test]
fn what_this_process_rewrote_of_an_unproved_generation_is_no_better() {
    let (scene, victim) = with_victim();
    forge_elsewhere(&scene, &victim);
    let (context, needed) = (scene.context(), containers_of(&scene, &victim));
    rewrite(&context, &scene.now(&victim), |_| false);
    let report = scene.runtime.block_on(pass::run(&context, &pass_options())).unwrap();
    assert_eq!(report.unproved.iter().map(|unproved| unproved.generation).collect::<Vec<_>>(), [2, 1]);
    assert!(all_there(&scene, &needed));
}

/// The loss that the rule prevents: the first pass after the attack deletes what the version needs.
#[test]
fn without_the_proof_a_pass_deletes_the_true_containers() {
    let (scene, victim) = with_victim();
    let needed = containers_of(&scene, &victim);
    let data = needed.iter().find(|id| id.kind == ContainerKind::Data).unwrap();
    relay_all(&scene.context(), &victim);
    let new = containers_of(&scene, &scene.now(&victim));
    let garbage = new.difference(&needed).find(|id| id.kind == ContainerKind::Data).unwrap();
    scene.runtime.block_on(scene.memory.change(&names::container(*garbage), |bytes| bytes[9] ^= 1));
    let trusting = scene.fork();
    let context = trusting.context();
    let context = context.through(&context.repository.without_rule(Rule::ProvedBeforeRetired));
    trusting.runtime.block_on(pass::run(&context, &pass_options())).unwrap();
    assert!(!all_there(&trusting, &BTreeSet::from([*data])), "the attack succeeds without the rule");
    scene.pass().unwrap();
    assert!(all_there(&scene, &BTreeSet::from([*data])));
}

/// The attack that the content roots end: another content under the true summary.
#[test]
fn a_generation_of_another_content_changes_nothing_and_is_named() {
    let (scene, victim) = with_victim();
    let truth = contents_of(&scene.context(), &victim);
    let mut other = |row: &mut SegmentRef, segment: &mut Segment| {
        segment.records.reverse();
        row.content = larder_format::content::of_segment(
            &segment.records,
            &segment.superchunks,
            row.cover.as_ref(),
            row.proof.as_ref(),
        );
    };
    let generation = forge(&scene.context(), &victim, &mut other, |_| {});
    let name = names::version(victim.series, victim.id(), generation);
    let context = scene.context();
    let listed = scene.runtime.block_on(context.repository.catalog()).unwrap();
    assert_eq!(listed.faulty.iter().map(|object| &object.name).collect::<Vec<_>>(), [&name]);
    assert!(scene.versions().iter().all(|version| version.generation == 0));
    assert!(contents_of(&context, &scene.now(&victim)) == truth);
    let found = check(&context, &CheckOptions::default()).unwrap();
    assert_eq!(found.damages.iter().map(|damage| &damage.object).collect::<Vec<_>>(), [&name]);
    // A backup does not build on it, and is whole.
    scene.fill("victim", &[("a", 1, 100_000), ("b", 3, 80_000)]);
    let built = scene.backup(&context, "victim").unwrap();
    assert!(built.bases.iter().all(|base| base.id != victim.id()), "{:?}", built.bases);
    let second =
        scene.versions().into_iter().find(|version| version.id() == built.version.as_ref().unwrap().id).unwrap();
    assert!(contents_of(&scene.context(), &second).values().any(|content| content.len() == 80_000));
    is_refused(&scene, &victim, generation, "another content");
    is_undone(&scene, &victim, generation, "another content");
}

/// What has the name of a generation and does not open was planted, or it is a generation that broke. Its references are unknown.
#[test]
fn a_generation_that_does_not_open_hides_nothing_and_stops_passes() {
    let (scene, victim) = with_victim();
    let truth = contents_of(&scene.context(), &victim);
    let name = names::version(victim.series, victim.id(), 1);
    scene.runtime.block_on(scene.memory.put(&name, &b"planted"[..]));
    let before = scene.runtime.block_on(scene.memory.contents());
    match scene.pass().unwrap_err() {
        PassError::UnreadableManifest { name: object, .. } => assert_eq!(object, name),
        other => panic!("{other}"),
    }
    let after = scene.runtime.block_on(scene.memory.contents());
    assert!(before.keys().all(|name| after.contains_key(name)));
    assert!(contents_of(&scene.context(), &scene.now(&victim)) == truth);
    scene.runtime.block_on(scene.memory.remove(&name));
    assert_eq!(scene.pass().unwrap().unproved, []);
}

/// A rebuilt index knows versions by their newest generations. It has no proofs, so the next pass makes them.
#[test]
fn a_lost_index_takes_the_proofs_with_it() {
    let (scene, victim) = with_victim();
    relay_all(&scene.context(), &victim);
    scene.pass().unwrap();
    let contents = scene.contents();
    for name in scene.runtime.block_on(scene.memory.paths()) {
        if names::parse_index(&name).is_some() {
            scene.runtime.block_on(scene.memory.remove(&name));
        }
    }
    let report: PassReport = scene.pass().unwrap();
    assert!(report.rebuilt.is_some() && report.missing_containers == 0, "{report:?}");
    assert_eq!(report.unproved, []);
    assert_eq!(proved_in_index(&scene, &victim), Some((1, true)));
    assert!(scene.contents() == contents);
}

/// One row of a recipe can be verified without those beside it.
#[test]
fn a_part_of_a_stream_is_verified_without_the_other_nodes() {
    let (scene, victim) = with_victim();
    let context = scene.context();
    let manifest = VersionReader::open(&context, &victim).unwrap().manifest().clone();
    let node = manifest.data.nodes[0].clone();
    let mut gone = node.clone();
    gone.chunk.container.seq = 999;
    let recipe = Recipe { nodes: vec![gone.clone(), node.clone(), gone] };
    let mut reader = RecipeReader::new(Arc::new(recipe.clone()), MetaChunks::new(&context));
    let (segment, start) = reader.segment_at(node.bytes + 5).unwrap().unwrap();
    assert_eq!(start, node.bytes);
    assert!(!reader.segment(segment).unwrap().is_empty());
    assert!(reader.segment_at(5).is_err(), "its node is not there");
    // It is verified: another digest in the row is noticed.
    let mut forged = recipe;
    forged.nodes[1].content.0[0] ^= 1;
    let mut reader = RecipeReader::new(Arc::new(forged), MetaChunks::new(&context));
    assert!(reader.segment_at(node.bytes + 5).unwrap_err().is_damage());
}
