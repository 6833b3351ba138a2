//! The promise: a series changes its layout, there and back, beside everything else, and every version is whole at any moment of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use larder_format::compress::Compression;
use larder_format::ids::{ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_gnode::pass::PassOptions;
use larder_gnode::reclaim::Exact;
use larder_lifecycle::convert_layout::{ConvertError, Converted, convert};
use larder_testkit::Stop;

fn every(of: u64, every: usize, before: [u64; 60]) -> [u64; 60] {
    std::array::from_fn(|place| if place.is_multiple_of(every) { of } else { before[place] })
}

/// Three versions of a series, arranged where that is its layout, and one of another series that has the same in it.
fn scene(layout: Layout) -> Scene {
    let scene = Scene::new();
    let mut now = [0; 60];
    for of in 1..4 {
        now = every(of, 3 + of as usize, now);
        match layout {
            Layout::Lifecycle => drop(scene.lifecycle("db", &pieces(&now))),
            Layout::Standard => {
                std::fs::create_dir_all(scene.source("db")).unwrap();
                std::fs::write(scene.source("db").join("file"), pieces(&now)).unwrap();
                scene.backup(&scene.context(), "db").unwrap();
            }
        }
        scene.pass_with(&arranging(0.0)).unwrap();
    }
    std::fs::create_dir_all(scene.source("other")).unwrap();
    std::fs::write(scene.source("other").join("file"), pieces(&now)).unwrap();
    scene.backup(&scene.context(), "other").unwrap();
    scene
}

fn to(context: &larder_job::JobContext, layout: Layout) -> Result<Converted, ConvertError> {
    convert(context, "db", layout, Compression::DEFAULT, None)
}

#[track_caller]
fn is_of(scene: &Scene, layout: Layout, expected: &BTreeMap<JobId, Contents>, at: &str) {
    let of_series = |version: &&larder_store::catalog::Version| version.summary.series == "db";
    assert!(scene.versions().iter().filter(of_series).all(|version| version.summary.layout == layout), "{at}");
    for _ in 0..2 {
        let all =
            PassOptions { arrange: thoroughly().arrange, dead_after: std::time::Duration::ZERO, ..pass_options() };
        scene.pass_with(&PassOptions { reclaim: thorough(Exact::Always).reclaim, ..all }).unwrap();
    }
    assert!(scene.contents() == *expected, "{at}");
    scene.index_agrees(at);
}

/// As large as backups of the layout fill them, however many there are for it.
#[test]
fn converting_fills_containers_as_the_layout_has_them() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.source("db")).unwrap();
    std::fs::write(scene.source("db").join("file"), larder_testkit::data::random(1, 40 << 20)).unwrap();
    let mut before = vec![scene.backup(&scene.context(), "db").unwrap().version.unwrap().id];
    let mut full_ones = Vec::new();
    for layout in [Layout::Lifecycle, Layout::Standard] {
        to(&scene.context(), layout).unwrap();
        let listed = scene.runtime.block_on(scene.context().repository.list_containers()).unwrap();
        let fresh = listed.iter().filter(|one| one.id.kind == ContainerKind::Data && !before.contains(&one.id.job));
        let mut sizes: Vec<u64> = fresh.map(|one| one.bytes >> 20).collect();
        sizes.sort_unstable();
        full_ones.push((sizes.len(), sizes[sizes.len() - 1]));
        before.extend(listed.iter().map(|one| one.id.job));
    }
    assert_eq!(full_ones, [(3, 16), (5, 8)]);
}

#[test]
fn a_series_goes_there_and_back() {
    for first in [Layout::Standard, Layout::Lifecycle] {
        let scene = scene(first);
        let expected = scene.contents();
        let second = if first == Layout::Standard { Layout::Lifecycle } else { Layout::Standard };
        let converted = to(&scene.context(), second).unwrap();
        assert_eq!((converted.versions, converted.left, converted.overtaken), (3, 0, 0));
        // What two versions have in common was copied once.
        assert!(converted.shared_bytes > 150_000 && converted.copied_bytes < 600_000, "{converted:?}");
        is_of(&scene, second, &expected, "there");
        let again = to(&scene.context(), second).unwrap();
        assert_eq!((again.versions, again.were_already), (0, 3));
        to(&scene.context(), first).unwrap();
        is_of(&scene, first, &expected, "and back");
        // And it goes on.
        scene.lifecycle("db", &pieces(&[9; 60]));
        let newest = scene.versions().into_iter().filter(|version| version.summary.series == "db");
        assert_eq!(newest.max_by_key(|version| version.id()).unwrap().summary.layout, first);
    }
    assert!(matches!(to(&Scene::new().context(), Layout::Standard), Err(ConvertError::NoSuchSeries { .. })));
}

/// A context with so little memory that neither the chunks of a version nor those of the one before fit. With a folder for what does not,
/// each chunk is copied once all the same; without one some are copied again, and every version is whole.
#[test]
fn what_memory_has_no_room_for_is_copied_once() {
    for first in [Layout::Standard, Layout::Lifecycle] {
        let second = if first == Layout::Standard { Layout::Lifecycle } else { Layout::Standard };
        let scene = scene(first);
        // Everything twice, the second time after all of the first.
        let twice = [pieces(&[5; 60]), pieces(&[5; 60])].concat();
        scene.lifecycle("db", &twice);
        scene.lifecycle("db", &[&twice[..], &pieces(&[6; 60])[..8192]].concat());
        let expected = scene.contents();
        let converted = |memory: usize, folder: Option<PathBuf>| {
            let scene = scene.fork();
            let context = larder_job::JobContext { memory, ..scene.context() };
            let converted = convert(&context, "db", second, Compression::DEFAULT, folder).unwrap();
            assert_eq!((converted.versions, converted.left), (5, 0));
            is_of(&scene, second, &expected, "converted");
            (converted.copied_bytes, converted.shared_bytes)
        };
        let roomy = converted(32 << 20, None);
        let scratch = scene.dir.path().join("scratch");
        assert_eq!(converted(64 << 10, Some(scratch)), roomy);
        assert!(converted(64 << 10, None).0 > roomy.0);
    }
}

#[test]
fn it_is_cut_off_at_any_operation_and_goes_on() {
    for first in [Layout::Standard, Layout::Lifecycle] {
        let second = if first == Layout::Standard { Layout::Lifecycle } else { Layout::Standard };
        let scene = scene(first);
        let expected = scene.contents();
        let run = |scene: &Scene, cut: Option<(u64, Stop)>| {
            let (context, faults) = scene.faulty(&scene.memory);
            let opened = faults.count();
            if let Some((n, stop)) = cut {
                faults.stop_at(opened + n, stop);
            }
            (to(&context, second), faults.count() - opened)
        };
        let (_, operations) = run(&scene.fork(), None);
        for n in 0..operations {
            for stop in [Stop::Before, Stop::After] {
                let at = format!("to {second}, cut at operation {n} of {operations}, {stop:?}");
                let cut = scene.fork();
                // The end of a lease is missed by nobody.
                let _ = run(&cut, Some((n, stop)));
                assert!(cut.contents() == expected, "{at}");
                cut.pass_with(&arranging(0.0)).unwrap();
                assert!(cut.contents() == expected, "{at}");
                run(&cut, None).0.unwrap_or_else(|error| panic!("{at}: {error}"));
                is_of(&cut, second, &expected, &at);
            }
        }
    }
}

/// A series of which the index was rebuilt is put in order within its layout, and a pass that is cut off goes on.
#[test]
fn order_that_was_lost_is_made_anew_and_cut_off_at_any_operation() {
    let scene = scene(Layout::Lifecycle);
    let expected = scene.contents();
    scene.lose_index();
    scene.rebuild();
    assert!(scene.is_disordered());
    let run = |scene: &Scene, cut: Option<(u64, Stop)>| {
        let (context, faults) = scene.faulty(&scene.memory);
        let opened = faults.count();
        if let Some((n, stop)) = cut {
            faults.stop_at(opened + n, stop);
        }
        (to(&context, Layout::Lifecycle), faults.count() - opened)
    };
    let (done, operations) = run(&scene.fork(), None);
    assert!(done.unwrap().versions > 0 && operations > 20);
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            let cut = scene.fork();
            let _ = run(&cut, Some((n, stop)));
            assert!(cut.contents() == expected, "{at}");
            cut.pass_with(&arranging(0.0)).unwrap();
            assert!(cut.contents() == expected, "{at}");
            run(&cut, None).0.unwrap_or_else(|error| panic!("{at}: {error}"));
            is_of(&cut, Layout::Lifecycle, &expected, &at);
            assert!(!cut.is_disordered(), "{at}");
            let (again, _) = run(&cut, None);
            assert_eq!(again.unwrap().versions, 0, "{at}");
            assert!(cut.categories_of("db").is_arranged(), "{at}");
        }
    }
}

/// A version never names containers of the other layout, so whatever was first, its series can be arranged.
#[test]
fn a_backup_whose_base_is_converted_meanwhile_is_whole() {
    for first in [Layout::Standard, Layout::Lifecycle] {
        let second = if first == Layout::Standard { Layout::Lifecycle } else { Layout::Standard };
        let scene = scene(first);
        let expected = scene.contents();
        std::fs::write(scene.source("db").join("file"), pieces(&every(7, 2, [1; 60]))).unwrap();
        at_every_operation(
            &scene,
            move |scene| {
                to(&scene.context(), second).unwrap();
                scene.pass_with(&thoroughly()).unwrap();
            },
            |scene, store| {
                let (context, path) = (scene.context_at(store), scene.source("db"));
                backup_with(&context, &path, "db", |options| options.force = true).unwrap().version.unwrap().id
            },
            |scene, new, at| {
                let mut contents = scene.contents();
                let bytes =
                    contents.remove(&new).unwrap().into_iter().find(|(path, _)| path.ends_with(b"file")).unwrap().1;
                assert!(contents == expected && bytes == pieces(&every(7, 2, [1; 60])), "{at}");
                let report = scene.pass_with(&thoroughly()).unwrap();
                let left = to(&scene.context(), second).unwrap().left;
                assert_eq!(left, 0, "{at}: {report:?}");
                let mut expected = expected.clone();
                expected.insert(new, scene.contents().remove(&new).unwrap());
                is_of(scene, second, &expected, at);
            },
        );
    }
}

/// A pass takes the conversion for dead at any moment and removes what it stored: that is no damage, and it goes on.
#[test]
fn a_conversion_that_is_taken_for_dead_was_overtaken() {
    let (first, second) = (Layout::Standard, Layout::Lifecycle);
    let scene = scene(first);
    let expected = scene.contents();
    let options = PassOptions { dead_after: Duration::ZERO, min_age: Duration::ZERO, ..thoroughly() };
    let fenced = AtomicU64::new(0);
    at_every_operation(
        &scene,
        move |scene| drop(scene.pass_with(&options).unwrap()),
        |scene, store| to(&scene.context_at(store), second),
        |scene, result, at| {
            let converted = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(converted.unreadable.is_empty(), "{at}: {converted:?}");
            fenced.fetch_add(converted.overtaken, Ordering::Relaxed);
            assert!(scene.contents() == expected, "{at}");
            to(&scene.context(), second).unwrap();
            is_of(scene, second, &expected, at);
        },
    );
    assert!(fenced.into_inner() > 0);
}

#[test]
fn passes_and_forgetting_happen_meanwhile() {
    for first in [Layout::Standard, Layout::Lifecycle] {
        let second = if first == Layout::Standard { Layout::Lifecycle } else { Layout::Standard };
        let scene = scene(first);
        let expected = scene.contents();
        let of_series = |version: &&larder_store::catalog::Version| version.summary.series == "db";
        let oldest = scene.versions().iter().filter(of_series).map(|version| version.id()).min().unwrap();
        for forgets in [false, true] {
            at_every_operation(
                &scene,
                move |scene| {
                    if forgets {
                        scene.forget(oldest);
                    }
                    scene.pass_with(&thoroughly()).unwrap();
                },
                |scene, store| to(&scene.context_at(store), second),
                |scene, result, at| {
                    let converted = result.unwrap_or_else(|error| panic!("{at}: {error}"));
                    assert!(converted.versions + converted.overtaken >= 2, "{at}: {converted:?}");
                    let mut expected = expected.clone();
                    if forgets {
                        expected.remove(&oldest);
                    }
                    assert!(scene.contents() == expected, "{at}");
                    to(&scene.context(), second).unwrap();
                    is_of(scene, second, &expected, at);
                },
            );
        }
    }
}
