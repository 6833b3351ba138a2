//! The promise: a version that cannot be read is told and stays in its layout, all others are converted, and nothing becomes unreadable
//! that was not; when it can be read again, converting again takes it along.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::*;
use larder_format::compress::Compression;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_format::names;
use larder_gnode::pass::PassOptions;
use larder_gnode::reclaim::Exact;
use larder_job::JobContext;
use larder_lifecycle::convert_layout::{Converted, convert};
use larder_reader::VersionReader;

const LAYOUTS: [(Layout, Layout); 2] = [(Layout::Standard, Layout::Lifecycle), (Layout::Lifecycle, Layout::Standard)];

/// Four versions with a file in common; each but the first has one of its own, in containers of its own.
fn scene(layout: Layout) -> (Scene, Vec<JobId>) {
    let scene = Scene::new();
    let ids = (0..4).map(|edition| {
        let own = ("own", 10 + edition, 150_000);
        scene.fill("db", &[("same", 1, 200_000), own][..if edition == 0 { 1 } else { 2 }]);
        let report = backup_with(&scene.context(), &scene.source("db"), "db", |options| options.layout = layout);
        scene.pass_with(&arranging(0.0)).unwrap();
        report.unwrap().version.unwrap().id
    });
    let ids = ids.collect();
    (scene, ids)
}

fn to(scene: &Scene, layout: Layout) -> Converted {
    convert(&scene.context(), "db", layout, Compression::DEFAULT, None).unwrap()
}

/// Containers that this version names and no other.
fn of_its_own(scene: &Scene, id: JobId, kind: ContainerKind) -> BTreeSet<ContainerId> {
    let context = scene.context();
    let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
    for version in versions(&context) {
        let manifest = scene.runtime.block_on(context.repository.manifest(&version)).unwrap();
        let named = if version.id() == id { &mut own } else { &mut others };
        named.extend(manifest.containers.iter().map(|usage| usage.container).filter(|named| named.kind == kind));
    }
    let own: BTreeSet<ContainerId> = own.difference(&others).copied().collect();
    assert!(!own.is_empty(), "{id} shares all that it has");
    own
}

fn damage(scene: &Scene, containers: &BTreeSet<ContainerId>, is_gone: bool) -> Vec<(String, bytes::Bytes)> {
    let damaged = containers.iter().map(|id| {
        let name = names::container(*id);
        let whole = scene.runtime.block_on(scene.memory.get(&name)).unwrap();
        scene.runtime.block_on(async {
            match is_gone {
                true => scene.memory.remove(&name).await,
                false => assert!(scene.memory.change(&name, |bytes| bytes[20] ^= 1).await),
            }
        });
        (name, whole)
    });
    damaged.collect()
}

/// The files of every version that can be read, as far as they come.
fn readable(scene: &Scene) -> BTreeMap<JobId, Contents> {
    let context: JobContext = scene.context();
    let read = |version: &larder_store::catalog::Version| {
        let mut contents = Contents::new();
        if let Ok(reader) = VersionReader::open(&context, version) {
            // What it is stopped by is damage, which is what is looked for.
            let _ = reader.visit_contents::<larder_store::RepositoryError>(b"", |entry, content| {
                let mut bytes = Vec::new();
                if content.read_to_end(&mut bytes).is_ok() {
                    contents.insert(entry.path.clone(), bytes);
                }
                Ok(())
            });
        }
        (version.id(), contents)
    };
    versions(&context).iter().map(read).collect()
}

/// Everything goes that a pass may think of no use.
fn thorough_passes(scene: &Scene) {
    for _ in 0..2 {
        let all = PassOptions { arrange: thoroughly().arrange, dead_after: Duration::ZERO, ..pass_options() };
        scene.pass_with(&PassOptions { reclaim: thorough(Exact::Always).reclaim, ..all }).unwrap();
    }
}

fn layouts(scene: &Scene) -> BTreeMap<JobId, Layout> {
    scene.versions().into_iter().map(|version| (version.id(), version.summary.layout)).collect()
}

#[test]
fn a_version_that_cannot_be_read_stays_and_all_others_are_converted() {
    for (first, second) in LAYOUTS {
        let (scene, ids) = scene(first);
        let expected = scene.contents();
        // One in the middle, and the newest, in whose layout the series goes on.
        for (bad, kind, is_gone) in [2, 3].into_iter().flat_map(|bad| {
            let kinds = [ContainerKind::Data, ContainerKind::Meta].into_iter();
            kinds.flat_map(move |kind| [false, true].map(|is_gone| (bad, kind, is_gone)))
        }) {
            let at = format!("to {second}, {kind:?} of version {bad}, gone {is_gone}");
            let scene = scene.fork();
            let whole = damage(&scene, &of_its_own(&scene, ids[bad], kind), is_gone);
            let before = readable(&scene);
            assert!(before[&ids[bad]].len() < expected[&ids[bad]].len(), "{at}: it lost something");
            let generation = |scene: &Scene| {
                scene.versions().into_iter().find(|version| version.id() == ids[bad]).unwrap().generation
            };
            let was = generation(&scene);

            let converted = to(&scene, second);
            assert_eq!((converted.versions, converted.left, converted.overtaken), (3, 1, 0), "{at}: {converted:?}");
            let [told] = &converted.unreadable[..] else { panic!("{at}: {converted:?}") };
            assert_eq!(told.id, ids[bad], "{at}");
            assert!(whole.iter().any(|(name, _)| told.error.to_string().contains(name)), "{at}: {}", told.error);
            assert_eq!(generation(&scene), was, "{at}");
            let of_second = |id: &JobId| if *id == ids[bad] { first } else { second };
            assert!(layouts(&scene).iter().all(|(id, layout)| *layout == of_second(id)), "{at}");
            assert!(readable(&scene) == before, "{at}: converted");
            thorough_passes(&scene);
            assert!(readable(&scene) == before, "{at}: after passes");
            // Asked for again, it is the same again.
            let again = to(&scene, second);
            assert_eq!((again.versions, again.were_already, again.left), (0, 3, 1), "{at}: {again:?}");

            for (name, bytes) in whole {
                scene.runtime.block_on(scene.memory.put(&name, bytes));
            }
            assert!(scene.contents() == expected, "{at}: whole again");
            let rest = to(&scene, second);
            assert_eq!((rest.versions, rest.left, rest.unreadable.len()), (1, 0, 0), "{at}: {rest:?}");
            assert!(layouts(&scene).values().all(|layout| *layout == second), "{at}");
            thorough_passes(&scene);
            assert!(scene.contents() == expected, "{at}: in the end");
            scene.index_agrees(&at);
        }
    }
}

/// What is of the layout already is asked only what may be shared with it.
#[test]
fn a_version_that_was_already_and_cannot_be_read_keeps_nobody_from_going() {
    for (first, second) in LAYOUTS {
        for is_gone in [false, true] {
            let at = format!("to {second}, gone {is_gone}");
            let (scene, ids) = scene(first);
            // The others cannot be read yet, so only the first two go.
            let late: BTreeSet<ContainerId> =
                ids[2..].iter().flat_map(|id| of_its_own(&scene, *id, ContainerKind::Data)).collect();
            let expected = scene.contents();
            let whole = damage(&scene, &late, true);
            assert_eq!((to(&scene, second).versions, to(&scene, second).left), (2, 2), "{at}");
            for (name, bytes) in whole {
                scene.runtime.block_on(scene.memory.put(&name, bytes));
            }
            // What is left of the old layout does not name the metadata of the new one.
            let whole = damage(&scene, &of_its_own(&scene, ids[1], ContainerKind::Meta), is_gone);
            let before = readable(&scene);
            let converted = to(&scene, second);
            assert_eq!((converted.versions, converted.were_already, converted.left), (2, 2, 0), "{at}: {converted:?}");
            thorough_passes(&scene);
            assert!(readable(&scene) == before, "{at}");
            for (name, bytes) in whole {
                scene.runtime.block_on(scene.memory.put(&name, bytes));
            }
            assert!(scene.contents() == expected, "{at}: whole again");
        }
    }
}

/// A manifest that cannot be read is one of the versions that are left, and what it needs is kept by nobody's guess.
#[test]
fn a_version_without_a_manifest_is_told() {
    for (first, second) in LAYOUTS {
        let (scene, ids) = scene(first);
        let of_version =
            |version: &larder_store::catalog::Version| names::version(version.series, version.id(), version.generation);
        let version = scene.versions().into_iter().find(|version| version.id() == ids[2]).unwrap();
        let expected: BTreeMap<_, _> = scene.contents().into_iter().filter(|(id, _)| *id != ids[2]).collect();
        assert!(scene.runtime.block_on(scene.memory.change(&of_version(&version), |bytes| bytes[20] ^= 1)));
        let converted = to(&scene, second);
        assert_eq!((converted.versions, converted.left), (3, 1), "{converted:?}");
        assert_eq!(converted.unreadable.iter().map(|version| version.id).collect::<Vec<_>>(), [ids[2]]);
        assert!(scene.contents() == expected);
    }
}
