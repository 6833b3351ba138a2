//! What goes wrong in the released MFDedup, one test each, by the numbers of the list of its pitfalls. M6 (overlapping copies of memory) cannot be
//! written in safe Rust, and the workspace denies the other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;

use crate::arranging_at_once::{is_exact, scene as unarranged};
use crate::support::*;
use larder_format::ids::JobId;
use larder_gnode::pass::{self, PassOptions};
use larder_testkit::Stop;

fn every(of: u64, every: usize, shift: usize, mut before: [u64; 60]) -> [u64; 60] {
    (0..60).filter(|place| (place + shift).is_multiple_of(every)).for_each(|place| before[place] = of);
    before
}

/// Versions of a series, arranged one by one, with what they hold.
fn arranged(scene: &Scene, series: &str, count: u64, holes: f64) -> BTreeMap<JobId, Vec<u8>> {
    let mut now = [0; 60];
    let mut expected = BTreeMap::new();
    for of in 1..=count {
        now = every(of, 2 + of as usize % 5, of as usize, now);
        expected.insert(scene.lifecycle(series, &pieces(&now)), pieces(&now));
        scene.arrange(holes);
    }
    expected
}

#[track_caller]
fn holds(scene: &Scene, expected: &BTreeMap<JobId, Vec<u8>>, at: &str) {
    let file = |contents: Contents| contents.into_iter().find(|(path, _)| path.ends_with(b"file")).unwrap().1;
    let found: BTreeMap<_, _> = scene.contents().into_iter().map(|(id, contents)| (id, file(contents))).collect();
    assert!(found == *expected, "{at}");
}

/// M1: after the first deletion every version that it restores is wrong.
#[test]
fn m1_after_deletions_every_version_is_what_it_was() {
    for newest_first in [false, true] {
        let scene = Scene::new();
        let mut expected = arranged(&scene, "db", 6, 0.0);
        while !expected.is_empty() {
            let id = *if newest_first { expected.keys().next_back() } else { expected.keys().next() }.unwrap();
            scene.forget(id);
            expected.remove(&id);
            scene.arrange(0.0);
            holds(&scene, &expected, "deleted one");
        }
        assert_eq!(scene.stored_and_named(), (0, 0));
    }
}

/// M2: what is arranged is removed before what takes its place is written.
#[test]
fn m2_a_pass_cut_at_any_operation_loses_nothing_and_the_next_one_arranges() {
    let (scene, ..) = unarranged();
    let expected = scene.contents();
    let run = |scene: &Scene, cut: Option<(u64, Stop)>| {
        let (context, faults) = scene.faulty(&scene.memory);
        let opened = faults.count();
        if let Some((n, stop)) = cut {
            faults.stop_at(opened + n, stop);
        }
        let result = scene.runtime.block_on(pass::run(&context, &arranging(0.0)));
        (result, faults.count() - opened)
    };
    let undisturbed = scene.fork();
    let (result, operations) = run(&undisturbed, None);
    let arranged = result.unwrap().arranged;
    assert!(arranged.moved_chunks > 20 && arranged.reclaimed > 1 && arranged.written > 1, "{arranged:?}");
    is_exact(&undisturbed, "undisturbed");
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            let cut = scene.fork();
            assert!(run(&cut, Some((n, stop))).0.is_err(), "{at}");
            cut.names_lead_to_chunks(&at);
            assert!(cut.contents() == expected, "{at}");
            run(&cut, None).0.unwrap_or_else(|error| panic!("{at}: {error}"));
            is_exact(&cut, &at);
            assert!(cut.contents() == expected, "{at}");
        }
    }
}

/// M3: tables of two series are mixed up.
#[test]
fn m3_series_with_equal_contents_do_not_meet() {
    let scene = Scene::new();
    let mut expected = arranged(&scene, "one", 3, 0.0);
    let other = arranged(&scene, "two", 3, 0.0);
    holds(&scene, &expected.iter().chain(&other).map(|(id, bytes)| (*id, bytes.clone())).collect(), "both");
    expected.keys().for_each(|id| scene.forget(*id));
    expected.clear();
    scene.arrange(0.0);
    holds(&scene, &other, "one is gone");
}

/// M5: all of the input is read into memory. Here a pass arranges many times what its tables may take.
#[test]
fn m5_a_version_larger_than_memory_is_arranged() {
    let scene = Scene::new();
    let version = |of: u64| -> Vec<u8> { (0..64).flat_map(|n| pieces(&every(of + n, 3, 0, [n; 60]))).collect() };
    let mut expected = BTreeMap::new();
    let memory = PassOptions { memory: 1, ..arranging(0.0) };
    for of in [1, 2] {
        let bytes = version(of);
        expected.insert(scene.lifecycle("db", &bytes), bytes);
        let report = scene.pass_with(&memory).unwrap();
        assert_eq!(report.arranged.versions, 1);
    }
    holds(&scene, &expected, "arranged");
    scene.names_lead_to_chunks("arranged");
}

/// M7: categories vanish under a reader. Here a version is read while it is arranged, and what was arranged before is arranged again.
#[test]
fn m7_what_is_being_read_is_arranged_meanwhile() {
    let (scene, ids, _) = unarranged();
    for id in [ids[0], ids[2], ids[3]] {
        let version = scene.versions().into_iter().find(|version| version.id() == id).unwrap();
        let expected = scene.contents().remove(&id).unwrap();
        at_every_operation(
            &scene,
            |scene| {
                let report = scene.pass_with(&thoroughly()).unwrap();
                assert!(report.arranged.reclaimed > 0, "{report:?}");
            },
            |scene, store| read_announced(&scene.context_at(store), &version),
            |_, result, at| {
                let contents = result.unwrap_or_else(|error| panic!("{at}: {error}"));
                assert!(contents == expected, "{at}");
            },
        );
    }
}

/// M8: versions are deleted that were not arranged yet, and those before them.
#[test]
fn m8_what_was_not_arranged_yet_is_deleted() {
    let scene = Scene::new();
    let mut now = [0; 60];
    let mut expected = BTreeMap::new();
    for of in 1..6 {
        now = every(of, 3, of as usize, now);
        expected.insert(scene.lifecycle("db", &pieces(&now)), pieces(&now));
    }
    let ids: Vec<JobId> = expected.keys().copied().collect();
    for id in [ids[1], ids[0], ids[3]] {
        scene.forget(id);
        expected.remove(&id);
        scene.pass_with(&PassOptions { arrange: None, ..arranging(0.0) }).unwrap();
        holds(&scene, &expected, "behind");
    }
    scene.arrange(0.0);
    holds(&scene, &expected, "caught up");
    let (stored, named) = scene.stored_and_named();
    assert_eq!(stored, named);
}

/// M9: a chunk that the next version has only as a duplicate within itself is still one that it has.
#[test]
fn m9_what_comes_again_only_within_a_version_stays_active() {
    let scene = Scene::new();
    let mut expected = BTreeMap::new();
    let first = pieces(&[0; 60]);
    expected.insert(scene.lifecycle("db", &first), first.clone());
    scene.arrange(0.0);
    // New bytes, then a part of the first version twice, at other places.
    let second = [pieces(&[1; 60]), first[40_000..140_000].to_vec(), first[40_000..140_000].to_vec()].concat();
    let id = scene.lifecycle("db", &second);
    expected.insert(id, second);
    scene.arrange(0.0);
    holds(&scene, &expected, "arranged");
    let extents = scene.extents();
    let open = extents.values().flat_map(|record| &record.0).filter(|extent| extent.last.is_none());
    let moved: u64 = open.map(|extent| u64::from(extent.length)).sum();
    assert!((80_000..110_000).contains(&moved), "{moved} bytes of the first version are still used, each once");
    let (stored, named) = scene.stored_and_named();
    assert_eq!(stored, named);
}

/// M10: one volume that is lost must not take other versions with it, and must be noticed.
#[test]
fn m10_a_lost_volume_takes_only_what_is_in_it() {
    let scene = Scene::new();
    let expected = arranged(&scene, "db", 4, 0.0);
    let ids: Vec<JobId> = expected.keys().copied().collect();
    // What only the first version needs.
    let extents = scene.extents();
    let of_first = extents.values().flat_map(|record| &record.0).find(|extent| extent.last == Some(1)).unwrap();
    let lost = of_first.to.unwrap().0;
    scene.runtime.block_on(scene.memory.remove(&larder_format::names::container(lost)));
    assert!(!scene.disagreements().is_empty());
    for id in &ids[1..] {
        let version = scene.versions().into_iter().find(|version| version.id() == *id).unwrap();
        let contents = contents_of(&scene.context(), &version);
        assert!(contents.iter().any(|(path, bytes)| path.ends_with(b"file") && *bytes == expected[id]));
    }
}
