//! The promise: whatever the history of a series in the layout `lifecycle`, every version that stays is whole, names lead to its
//! chunks, and with `--holes 0` nothing is stored but what it needs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;

use crate::support::*;
use larder_format::compress::Compression;
use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_gnode::pass::{Outcome, PassOptions, PassReport};
use larder_gnode::reclaim::Exact;
use larder_lifecycle::arrange::Arranged;
use larder_lifecycle::convert_layout::convert;
use larder_testkit::data::Rng;
use proptest::prelude::*;

/// An edition in which every n-th piece is of another one.
fn edition(of: u64, every: usize, shift: usize) -> [u64; 60] {
    std::array::from_fn(|place| if (place + shift).is_multiple_of(every) { of } else { 0 })
}

#[test]
fn what_a_version_drops_leaves_for_its_volume() {
    let scene = Scene::new();
    let first = scene.lifecycle("db", &pieces(&[0; 60]));
    let report = scene.arrange(0.0);
    assert_eq!((report.arranged.versions, report.arranged.moved_chunks), (1, 0), "{report:?}");
    let second = scene.lifecycle("db", &pieces(&edition(1, 4, 0)));
    let report = scene.arrange(0.0);
    assert_eq!(report.arranged.versions, 1);
    assert!(report.arranged.moved_chunks > 20 && report.arranged.reclaimed == 1, "{report:?}");
    scene.names_lead_to_chunks("after two");
    let (stored, named) = scene.stored_and_named();
    assert_eq!(stored, named);
    // What only the first has lies by itself: forgetting it deletes a container and reads none.
    scene.forget(first);
    let report = scene.arrange(0.0);
    assert_eq!((report.arranged.moved_chunks, report.arranged.written), (0, 0), "{report:?}");
    assert!(report.done.containers >= 1, "{report:?}");
    scene.names_lead_to_chunks("without the first");
    let (stored, named) = scene.stored_and_named();
    assert_eq!(stored, named);
    scene.forget(second);
    scene.arrange(0.0);
    assert_eq!(scene.stored_and_named(), (0, 0));
    assert!(scene.extents().is_empty(), "{:?}", scene.extents());
}

/// Version after version some other pieces are of a new edition.
fn changed_until(last: u64) -> [u64; 60] {
    let mut now = [0; 60];
    for of in 1..=last {
        for (place, piece) in now.iter_mut().enumerate() {
            if (place as u64 * 7 + of * 5) % 11 < 2 {
                *piece = of;
            }
        }
    }
    now
}

/// In between, what versions use is noted and nothing moves; then all of it moves together, as if it had been done each time. The oldest
/// goes at any time without anything being read or written.
#[test]
fn waiting_is_one_merge() {
    // Two repositories with the same keys, and so the same cuts.
    let empty = Scene::new();
    let history = |every: u32, passes: &mut Vec<PassReport>| {
        let scene = empty.fork();
        let mut expected = BTreeMap::new();
        for of in 0..9 {
            let bytes = pieces(&changed_until(of));
            expected.insert(scene.lifecycle("db", &bytes), bytes);
            passes.push(scene.arrange_every(every, 0.0));
            scene.names_lead_to_chunks(&format!("after {of}"));
            assert!(scene.categories_of("db").is_arranged());
        }
        (scene, expected)
    };
    let (mut each, mut waiting) = (Vec::new(), Vec::new());
    let (exact, _) = history(1, &mut each);
    let (scene, mut expected) = history(4, &mut waiting);
    let moved = |passes: &[PassReport]| passes.iter().map(|pass| pass.arranged.moved_bytes.0).collect::<Vec<_>>();
    let (each, waiting) = (moved(&each), moved(&waiting));
    assert!(each[1..].iter().all(|moved| *moved > 0), "{each:?}");
    let has_moved: Vec<bool> = waiting.iter().map(|moved| *moved > 0).collect();
    assert_eq!(has_moved, [false, false, false, false, true, false, false, false, true], "{waiting:?}");
    assert!(waiting.iter().sum::<u64>() * 3 < each.iter().sum::<u64>() * 2, "{waiting:?} {each:?}");
    // It ends where the other ends.
    assert_eq!(scene.stored_and_named(), exact.stored_and_named());
    let forms = |scene: &Scene| scene.categories_of("db").triangle().into_iter().map(|(at, size)| (at, size.bytes));
    assert!(forms(&scene).eq(forms(&exact)));
    // Two more that wait; the oldest ones go meanwhile.
    for of in 9..11 {
        let bytes = pieces(&changed_until(of));
        expected.insert(scene.lifecycle("db", &bytes), bytes);
        scene.arrange_every(4, 0.0);
        let oldest = *expected.keys().next().unwrap();
        let said = scene.categories_of("db").freed(&[oldest].into());
        let before = scene.data_bytes();
        scene.forget(oldest);
        expected.remove(&oldest);
        let report = scene.arrange_every(4, 20.0);
        assert_eq!((report.arranged.moved_chunks, report.arranged.written), (0, 0), "{report:?}");
        assert!(said.object_bytes.0 > 0 && before - scene.data_bytes() == said.object_bytes.0, "{said:?}");
        assert!(contents(&scene) == expected);
    }
    // Asked for, it is done at once.
    let report = scene.pass_with(&thoroughly()).unwrap();
    assert!(report.arranged.moved_chunks > 0);
    let (stored, named) = scene.stored_and_named();
    assert_eq!(stored, named);
    assert!(contents(&scene) == expected);
}

/// When fewer versions are kept than it waits for, it does not wait for ever.
#[test]
fn a_short_memory_does_not_wait_longer() {
    let scene = Scene::new();
    let mut ids: Vec<JobId> = Vec::new();
    let mut moved = 0;
    for of in 0..8 {
        ids.push(scene.lifecycle("db", &pieces(&edition(of, 4, of as usize))));
        if ids.len() > 2 {
            scene.forget(ids.remove(0));
        }
        moved += u64::from(scene.arrange_every(100, 20.0).arranged.moved_chunks > 0);
        scene.names_lead_to_chunks("two are kept");
    }
    assert!(moved > 1, "{moved}");
}

#[test]
fn few_holes_are_left_and_many_are_not() {
    let scene = Scene::new();
    scene.lifecycle("db", &pieces(&[0; 60]));
    scene.lifecycle("db", &pieces(&edition(1, 20, 0)));
    let report = scene.arrange(20.0);
    assert_eq!((report.arranged.versions, report.arranged.moved_chunks), (2, 0), "{report:?}");
    scene.names_lead_to_chunks("with holes");
    scene.lifecycle("db", &pieces(&edition(2, 3, 1)));
    let report = scene.arrange(20.0);
    assert!(report.arranged.moved_chunks > 30, "{report:?}");
    scene.names_lead_to_chunks("without");
    // Nothing new: nothing to do but to delete what the index before this one had.
    assert_eq!(scene.arrange(20.0).arranged, Arranged::default());
    assert_eq!(scene.arrange(20.0).outcome, Outcome::Nothing);
}

/// Standard series beside it neither see its chunks nor lose theirs.
#[test]
fn both_layouts_live_in_one_repository() {
    let scene = Scene::new();
    let bytes = pieces(&[0; 60]);
    scene.lifecycle("db", &bytes);
    std::fs::create_dir_all(scene.source("tree")).unwrap();
    std::fs::write(scene.source("tree").join("file"), &bytes).unwrap();
    let standard = scene.backup(&scene.context(), "tree").unwrap().version.unwrap();
    assert!(standard.statistics.added_bytes >= bytes.len() as u64, "{standard:?}");
    scene.pass().unwrap();
    let db = scene.lifecycle("db", &pieces(&edition(1, 2, 0)));
    scene.pass().unwrap();
    scene.names_lead_to_chunks("both");
    scene.forget(db);
    scene.forget(standard.id);
    scene.pass().unwrap();
    scene.names_lead_to_chunks("one forgotten of each");
    assert_eq!(scene.versions().len(), 1);
}

/// What arranging writes and what retiring writes are of one job, under different names.
#[test]
fn a_pass_arranges_one_series_and_gives_up_containers_of_another() {
    let scene = Scene::new();
    scene.lifecycle("db", &pieces(&[0; 60]));
    scene.alone("a", &[("one", 1, 40_000), ("two", 2, 30_000), ("none", 3, 60_000)]);
    let forgotten = scene.versions().into_iter().find(|version| version.summary.series == "a").unwrap().id();
    scene.fill("a", &[("one", 1, 40_000), ("two", 2, 30_000)]);
    scene.backup(&scene.context(), "a").unwrap();
    scene.alone("a", &[("new", 10, 20_000)]);
    scene.pass_with(&arranging(0.0)).unwrap();
    scene.forget(forgotten);
    scene.lifecycle("db", &pieces(&edition(1, 4, 0)));
    let both = PassOptions { arrange: arranging(0.0).arrange, ..thorough(Exact::Always) };
    let report = scene.pass_with(&both).unwrap();
    assert!(report.arranged.moved_chunks > 20 && report.reclaimed.copied_chunks > 5, "{report:?}");
    scene.index_agrees("both");
    let other = |version: &larder_store::catalog::Version| version.summary.series == "a";
    assert_eq!(scene.versions().iter().filter(|version| other(version)).count(), 2);
    let db = scene.versions().into_iter().filter(|version| !other(version));
    assert!(db.flat_map(|version| scene.names(version.id())).count() > 80);
}

/// The one file of each version, as readers have it.
fn contents(scene: &Scene) -> BTreeMap<JobId, Vec<u8>> {
    let file = |contents: Contents| contents.into_iter().find(|(path, _)| path.ends_with(b"file")).unwrap().1;
    scene.contents().into_iter().map(|(id, contents)| (id, file(contents))).collect()
}

/// An index that is lost was alone in knowing where bytes went: they are found by their fingerprints. The series is not arranged any more
/// until it was converted, and loses nothing.
#[test]
fn a_lost_index_is_made_anew() {
    let scene = Scene::new();
    let mut expected = BTreeMap::new();
    for of in 1..5 {
        let bytes = pieces(&edition(of, 2 + of as usize, 0));
        expected.insert(scene.lifecycle("db", &bytes), bytes);
        scene.arrange(0.0);
    }
    scene.lose_index();
    // Without an index passes delete nothing that may be needed.
    scene.arrange(0.0);
    scene.lose_index();
    let rebuilt = scene.rebuild();
    assert_eq!((rebuilt.lost_chunks, rebuilt.unreadable_containers.len()), (0, 0), "{rebuilt:?}");
    assert!(rebuilt.reclaimed > 0);
    assert!(contents(&scene) == expected);
    assert_eq!(scene.disagreements(), []);
    let bytes = pieces(&edition(9, 3, 1));
    expected.insert(scene.lifecycle("db", &bytes), bytes);
    let first = *expected.keys().next().unwrap();
    scene.forget(first);
    expected.remove(&first);
    for _ in 0..2 {
        scene.arrange(0.0);
        assert!(contents(&scene) == expected);
    }
    // It is put in order in one step, or there and back.
    for layouts in [&[Layout::Lifecycle][..], &[Layout::Standard, Layout::Lifecycle]] {
        let scene = scene.fork();
        assert!(scene.is_disordered());
        for layout in layouts {
            let converted = convert(&scene.context(), "db", *layout, Compression::DEFAULT, None).unwrap();
            assert_eq!((converted.versions, converted.left), (4, 0));
            scene.arrange(0.0);
            assert!(contents(&scene) == expected);
        }
        scene.arrange(0.0);
        scene.arrange(0.0);
        assert!(contents(&scene) == expected && !scene.is_disordered());
        assert!(scene.categories_of("db").is_arranged());
        scene.names_lead_to_chunks("converted");
        let (stored, named) = scene.stored_and_named();
        assert_eq!(stored, named);
        let again = convert(&scene.context(), "db", Layout::Lifecycle, Compression::DEFAULT, None).unwrap();
        assert_eq!((again.versions, again.were_already), (0, 4));
    }
}

/// `RebuiltKeepsCopies`: what a rebuild finds in its place may have been retired as well, its delete being under way.
#[test]
fn a_rebuild_keeps_the_copies_of_what_may_have_been_arranged() {
    let scene = Scene::new();
    for of in 1..4 {
        scene.lifecycle("db", &pieces(&edition(of, 2 + of as usize, 0)));
    }
    let expected = contents(&scene);
    let before = scene.runtime.block_on(scene.memory.contents());
    let report = scene.arrange(0.0);
    assert!(report.arranged.reclaimed > 1, "{report:?}");
    let after = scene.runtime.block_on(scene.memory.contents());
    let late: Vec<_> =
        before.iter().filter(|(name, _)| name.starts_with("data/") && !after.contains_key(*name)).collect();
    assert!(late.len() > 1);
    for (name, bytes) in &late {
        scene.runtime.block_on(scene.memory.put(name, (*bytes).clone()));
    }
    scene.lose_index();
    scene.rebuild();
    for _ in 0..3 {
        scene.arrange(100.0);
    }
    for (name, _) in late {
        scene.runtime.block_on(scene.memory.remove(name));
    }
    scene.rebuild();
    assert!(contents(&scene) == expected);
}

#[derive(Debug, Clone)]
enum Step {
    /// A version: another edition of every n-th piece.
    Backup(u64, usize, usize),
    /// The same in another series.
    Other(u64),
    Forget(usize),
    /// Exactly or with holes, after so many versions.
    Arrange(bool, u32),
    Collect,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u64..4, 2usize..20, 0usize..9).prop_map(|(of, every, shift)| Step::Backup(of, every, shift)),
        1 => (0u64..3).prop_map(Step::Other),
        3 => any::<usize>().prop_map(Step::Forget),
        4 => (any::<bool>(), 1u32..5).prop_map(|(exactly, every)| Step::Arrange(exactly, every)),
        1 => Just(Step::Collect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any order of backups, of forgetting, and of passes that arrange, with holes or without, or fall behind. In the end all versions are
    /// forgotten one by one in any order, and after each of them there is what those need that are left.
    #[test]
    fn any_history_keeps_every_version_whole(
        steps in proptest::collection::vec(step(), 3..26),
        order in any::<u64>(),
    ) {
        let scene = Scene::new();
        let mut expected: BTreeMap<JobId, Vec<u8>> = BTreeMap::new();
        let mut pieces_now = [0; 60];
        let mut has_skipped = false;
        for step in &steps {
            match step {
                Step::Backup(of, every, shift) => {
                    for (place, piece) in pieces_now.iter_mut().enumerate() {
                        if (place + shift).is_multiple_of(*every) {
                            *piece = *of;
                        }
                    }
                    let (id, skips) = scene.lifecycle_skipping("db", &pieces(&pieces_now));
                    expected.insert(id, pieces(&pieces_now));
                    has_skipped |= skips;
                }
                Step::Other(of) => {
                    let bytes = pieces(&edition(*of, 3, 0));
                    let (id, skips) = scene.lifecycle_skipping("other", &bytes);
                    expected.insert(id, bytes);
                    has_skipped |= skips;
                }
                Step::Forget(number) if !expected.is_empty() => {
                    let id = *expected.keys().nth(number % expected.len()).unwrap();
                    scene.forget(id);
                    expected.remove(&id);
                }
                Step::Forget(_) => {}
                Step::Arrange(exactly, every) => {
                    drop(scene.arrange_every(*every, if *exactly { 0.0 } else { 20.0 }));
                }
                Step::Collect => {
                    drop(scene.pass_with(&PassOptions { arrange: None, ..arranging(0.0) }).unwrap());
                }
            }
            scene.names_lead_to_chunks(&format!("after {step:?} of {steps:?}"));
            if !matches!(step, Step::Backup(..) | Step::Other(..) | Step::Forget(_)) {
                prop_assert!(contents(&scene) == expected, "after {step:?} of {steps:?}");
                prop_assert_eq!(scene.disagreements(), [], "after {:?} of {:?}", step, steps);
            }
        }
        scene.pass_with(&thoroughly()).unwrap();
        scene.names_lead_to_chunks(&format!("in the end of {steps:?}"));
        let is_exact = || {
            let (stored, named) = scene.stored_and_named();
            stored == named || (has_skipped && stored > named)
        };
        prop_assert!(is_exact(), "{:?} of {:?}", scene.stored_and_named(), steps);
        let mut rng = Rng::new(order);
        let mut places = Vec::new();
        while !expected.is_empty() {
            let place = rng.below(expected.len() as u64) as usize;
            let id = *expected.keys().nth(place).unwrap();
            places.push(place);
            scene.forget(id);
            expected.remove(&id);
            scene.arrange(0.0);
            scene.names_lead_to_chunks(&format!("forgetting {places:?} after {steps:?}"));
            prop_assert!(contents(&scene) == expected, "forgetting {places:?} after {steps:?}");
            prop_assert!(is_exact(), "{:?} forgetting {places:?} after {steps:?}", scene.stored_and_named());
        }
        prop_assert!(scene.extents().is_empty());
    }
}
