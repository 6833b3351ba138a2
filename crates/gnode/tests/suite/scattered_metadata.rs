//! The promise: scattered changes cost few metadata. Segments of large files become differences, and all that reads, checks, moves and deletes metadata
//! knows the chunks below a difference.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeSet;

use crate::support::*;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::recipe::SegmentRef;
use larder_gnode::defragment::{self, DefragmentOptions, Defragmented};
use larder_reader::VersionReader;
use larder_rewrite::{CheckOptions, check};
use larder_testkit::data;

const PAGE: usize = 4096;

/// A series of one file, of which each version changes some pages anywhere.
struct Pages {
    scene: Scene,
    content: Vec<u8>,
    version: u64,
}

impl Pages {
    fn new(mib: usize) -> Self {
        Self { scene: Scene::new(), content: data::random(0, mib << 20), version: 0 }
    }

    /// Makes a version of which `of_1000` of 1,000 pages are new. Returns the bytes of containers that it stored: metadata and data.
    fn change(&mut self, of_1000: usize) -> (u64, u64) {
        let mut rng = data::Rng::new(self.version);
        let pages = self.content.len() / PAGE;
        for number in 0..pages * of_1000 / 1000 {
            let at = rng.below(pages as u64) as usize * PAGE;
            self.content[at..at + PAGE]
                .copy_from_slice(&data::random(1_000_000 * (1 + self.version) + number as u64, PAGE));
        }
        self.version += 1;
        let root = self.scene.source("pages");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("file"), &self.content).unwrap();
        let before = self.stored();
        self.scene.backup(&self.scene.context(), "pages").unwrap();
        let after = self.stored();
        (after.0 - before.0, after.1 - before.1)
    }

    /// Bytes of the containers: metadata and data.
    fn stored(&self) -> (u64, u64) {
        let listed = self.scene.runtime.block_on(self.scene.context().repository.list_containers()).unwrap();
        let of = |kind| listed.iter().filter(|listed| listed.id.kind == kind).map(|listed| listed.bytes).sum();
        (of(ContainerKind::Meta), of(ContainerKind::Data))
    }

    /// The rows of the newest version's segments.
    fn rows(&self) -> Vec<SegmentRef> {
        let (context, newest) = (self.scene.context(), self.scene.versions().pop().unwrap());
        let mut recipe = VersionReader::open(&context, &newest).unwrap().data_recipe();
        (0..recipe.segments()).map(|number| recipe.segment_ref(number).unwrap().unwrap().0).collect()
    }

    fn defragment(&self, options: &DefragmentOptions) -> usize {
        let context = self.scene.context();
        let plans = defragment::plans(&context, options).unwrap().plans;
        for plan in &plans {
            assert!(matches!(defragment::compact(&context, plan, options).unwrap(), Defragmented::Done { .. }));
        }
        plans.len()
    }

    /// Everything that the repository holds is right.
    fn is_whole(&self, at: &str) {
        let newest = self.scene.versions().pop().unwrap();
        let contents = contents_of(&self.scene.context(), &newest);
        assert!(contents.values().any(|content| *content == self.content), "{at}");
        let report = check(&self.scene.context(), &CheckOptions::default()).unwrap();
        assert!(report.damages.is_empty(), "{at}: {:?}", report.damages);
    }
}

/// At 1 % of scattered changes of 4 KiB, metadata are at most 8 % of the new data. Without differences they are 36 %.
#[test]
fn one_percent_of_scattered_changes_costs_8_percent_of_metadata() {
    let mut pages = Pages::new(64);
    pages.change(0);
    let stored: Vec<(u64, u64)> = (0..14).map(|_| pages.change(10)).collect();
    let [metadata, data] = [0, 1].map(|part| stored.iter().map(|both| [both.0, both.1][part]).sum::<u64>());
    assert!(metadata * 100 <= data * 8, "{metadata} of {data}: {stored:?}");
    pages.is_whole("after all versions");
}

#[test]
fn differences_have_levels_and_end() {
    for of_1000 in [3, 10, 40, 150] {
        let mut pages = Pages::new(6);
        let mut depths = BTreeSet::new();
        for _ in 0..12 {
            pages.change(of_1000);
            depths.extend(pages.rows().iter().map(|row| row.bases.len()));
        }
        let deepest = depths.last().copied().unwrap();
        match of_1000 {
            150 => assert!(deepest <= 2, "large changes are merged: {depths:?}"),
            _ => assert!(deepest >= 2, "{of_1000}: {depths:?}"),
        }
        assert!(deepest <= larder_format::recipe::BASES_MAX);
        pages.is_whole("after all versions");
    }
}

/// The containers of a chain stay with the last version that needs them, and passes agree on that.
#[test]
fn what_differences_are_built_on_stays_as_long_as_it_is_needed() {
    let mut pages = Pages::new(6);
    for number in 0..8 {
        pages.change(if number == 0 { 0 } else { 10 });
        pages.scene.pass().unwrap();
    }
    let of_newest: BTreeSet<ContainerId> =
        pages.rows().iter().flat_map(|row| row.chain().map(|chunk| chunk.container)).collect();
    assert!(of_newest.len() > 2, "it is built on several versions: {of_newest:?}");
    let ids: Vec<_> = pages.scene.versions().iter().map(|version| version.id()).collect();
    for id in &ids[..7] {
        pages.scene.forget(*id);
        pages.scene.pass().unwrap();
        pages.is_whole("after each forgotten version");
    }
    pages.scene.index_agrees("at the end");
    let there = pages.scene.runtime.block_on(pages.scene.context().repository.list_containers()).unwrap();
    let metadata: BTreeSet<ContainerId> =
        there.iter().map(|listed| listed.id).filter(|id| id.kind == ContainerKind::Meta).collect();
    let named = pages.scene.versions().pop().unwrap();
    let named = VersionReader::open(&pages.scene.context(), &named).unwrap();
    let named = named.manifest().containers.iter().map(|usage| usage.container);
    assert_eq!(metadata, named.filter(|id| id.kind == ContainerKind::Meta).collect());
    assert!(of_newest.is_subset(&metadata));
}

/// A rewrite makes differences of its own, leaves metadata containers, and takes all chunks of a chain along.
#[test]
fn rewritten_versions_keep_their_differences_readable() {
    let options = DefragmentOptions { held_percent: 101, cheap_percent: 101, ..DefragmentOptions::default() };
    for of_1000 in [10, 60] {
        let mut pages = Pages::new(6);
        let (mut rewritten, mut built) = (0, 0);
        for number in 0..10 {
            pages.change(if number == 0 { 0 } else { of_1000 });
            rewritten += pages.defragment(&options);
            pages.scene.pass().unwrap();
            built += pages.rows().iter().filter(|row| !row.bases.is_empty()).count();
            pages.is_whole("after each pass");
        }
        assert!(rewritten > 2 && built > 0, "{of_1000}: {rewritten} rewrites, {built} differences");
        pages.scene.index_agrees("at the end");
        let ids: Vec<_> = pages.scene.versions().iter().map(|version| version.id()).collect();
        for id in &ids[..9] {
            pages.scene.forget(*id);
        }
        pages.scene.pass().unwrap();
        pages.defragment(&options);
        pages.scene.pass().unwrap();
        pages.is_whole("with one version left");
        pages.scene.index_agrees("with one version left");
    }
}

/// A damaged chunk below a difference is found, and the next backup does not build on it.
#[test]
fn damage_below_a_difference_is_named_and_stored_again() {
    let mut pages = Pages::new(3);
    for _ in 0..3 {
        pages.change(10);
    }
    let rows = pages.rows();
    let below = rows.iter().find(|row| !row.bases.is_empty()).unwrap().bases[0].container;
    let name = larder_format::names::container(below);
    assert!(pages.scene.runtime.block_on(pages.scene.memory.change(&name, |bytes| bytes[40] ^= 1)));
    let report = check(&pages.scene.context(), &CheckOptions::default()).unwrap();
    assert!(report.damages.iter().any(|damage| format!("{damage:?}").contains(&name)), "{:?}", report.damages);
    pages.change(10);
    let newest = pages.scene.versions().pop().unwrap();
    let contents = contents_of(&pages.scene.context(), &newest);
    assert!(contents.values().any(|content| *content == pages.content));
}
