//! The promise: whatever is done to a repository whose index was rebuilt, or lost and rebuilt, at any time, with series of both layouts
//! in it and some of them converted to and fro, no version that stays loses anything.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;

use crate::support::*;
use larder_format::compress::Compression;
use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_gnode::pass::{Listing, PassOptions};
use larder_gnode::reclaim::{Exact, ReclaimOptions, Unused};
use larder_lifecycle::convert_layout::convert;
use larder_testkit::data;
use proptest::prelude::*;

/// A series that is of the layout `lifecycle` first, and two that are not.
const SERIES: [&str; 3] = ["db", "tree", "twin"];

/// The one file of each version, as readers have it.
fn contents(scene: &Scene) -> BTreeMap<JobId, Vec<u8>> {
    let file = |contents: Contents| contents.into_iter().find(|(path, _)| path.ends_with(b"file")).unwrap().1;
    scene.contents().into_iter().map(|(id, contents)| (id, file(contents))).collect()
}

/// Series have pieces in common, with which each begins elsewhere.
fn bytes_of(pieces: &[u64]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| data::random(*piece, 4096)).collect()
}

fn back_up(scene: &Scene, series: &str, bytes: &[u8]) -> JobId {
    let layout = if series == SERIES[0] { Layout::Lifecycle } else { Layout::Standard };
    let root = scene.source(series);
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("file"), bytes).unwrap();
    let report = backup_with(&scene.context(), &root, series, |options| {
        options.layout = layout;
        options.force = true;
        options.find_similar = false;
    });
    report.unwrap().version.unwrap().id
}

/// A pass that leaves nothing that it finds out to be of no use.
fn thorough_pass(scene: &Scene, exact: Exact, arranges: bool, listing: Listing) {
    let reclaim = ReclaimOptions { unused: Unused::OfRepository(0.0), exact, ..ReclaimOptions::default() };
    let arrange = thoroughly().arrange.filter(|_| arranges);
    scene.pass_with(&PassOptions { reclaim: Some(reclaim), arrange, listing, ..pass_options() }).unwrap();
}

/// Chunks that only a version of the layout `lifecycle` needs may lie, after a rebuild, in containers that versions of the other layout
/// use too: who collects chunk by chunk has to ask both.
#[test]
fn what_only_an_arranged_version_needs_is_not_collected() {
    let scene = Scene::new();
    let mut expected = BTreeMap::new();
    let mut add = |series: &str, pieces: Vec<u64>| {
        let bytes = bytes_of(&pieces);
        expected.insert(back_up(&scene, series, &bytes), bytes);
    };
    // Half of what the first version has leaves for its volume with the second, and half of that is in another series as well.
    add("db", (0..40).collect());
    add("db", (20..60).collect());
    thorough_pass(&scene, Exact::Never, true, Listing::New);
    add("tree", (0..10).collect());
    add("tree", (100..110).collect());
    thorough_pass(&scene, Exact::Never, true, Listing::New);
    scene.rebuild();
    for exact in [Exact::Always, Exact::Never, Exact::Always] {
        thorough_pass(&scene, exact, false, Listing::Whole);
        assert!(contents(&scene) == expected);
    }
    assert_eq!(scene.rebuild().lost_chunks, 0);
    assert!(contents(&scene) == expected);
}

/// Versions were led to a container of another version, which was rewritten since, or forgotten: then no version names it, and its
/// job has a register all the same.
#[test]
fn what_others_were_led_to_is_found_when_its_own_version_has_left_it() {
    for (is_forgotten, loses) in [(false, false), (false, true), (true, false), (true, true)] {
        let scene = Scene::new();
        let mut expected = BTreeMap::new();
        let mut add = |series: &str, pieces: Vec<u64>| {
            let bytes = bytes_of(&pieces);
            let id = back_up(&scene, series, &bytes);
            expected.insert(id, bytes);
            id
        };
        add("twin", (0..20).collect());
        let left = add("tree", (0..25).collect());
        // Containers of newest versions are not retired.
        add("twin", (100..110).collect());
        thorough_pass(&scene, Exact::Never, false, Listing::New);
        if is_forgotten {
            scene.forget(left);
            expected.remove(&left);
        } else {
            convert(&scene.context(), "tree", Layout::Lifecycle, Compression::DEFAULT, None).unwrap();
        }
        if loses {
            scene.lose_index();
            // Without an index it is not known where chunks went: nothing goes that may have them.
            scene.pass_with(&PassOptions { listing: Listing::Whole, ..pass_options() }).unwrap();
        }
        assert_eq!(scene.rebuild().lost_chunks, 0);
        assert!(contents(&scene) == expected);
        thorough_pass(&scene, Exact::Always, false, Listing::Whole);
        assert!(contents(&scene) == expected, "after a pass");
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A version: pieces from here on, so many, of which every n-th is its own.
    Backup(usize, u64, u64, usize),
    Forget(usize),
    Pass(bool, bool, bool),
    /// Loses the index before, or not.
    Rebuild(bool),
    Convert(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..3, 0u64..30, 5u64..30, 2usize..12).prop_map(|(of, from, len, every)| Step::Backup(of, from, len, every)),
        3 => any::<usize>().prop_map(Step::Forget),
        5 => any::<(bool, bool, bool)>().prop_map(|(exact, arranges, whole)| Step::Pass(exact, arranges, whole)),
        2 => any::<bool>().prop_map(Step::Rebuild),
        2 => (0usize..2, any::<bool>()).prop_map(|(of, there)| Step::Convert(of, there)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_every_version_whole(steps in proptest::collection::vec(step(), 4..24)) {
        let scene = Scene::new();
        let mut expected: BTreeMap<JobId, Vec<u8>> = BTreeMap::new();
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Backup(of, from, len, every) => {
                    let own = |at: u64| (at as usize).is_multiple_of(*every);
                    let piece = |at: u64| if own(at) { 1000 * (number as u64 + 1) + at } else { at };
                    let bytes = bytes_of(&(*from..from + len).map(piece).collect::<Vec<_>>());
                    expected.insert(back_up(&scene, SERIES[*of], &bytes), bytes);
                }
                Step::Forget(place) if !expected.is_empty() => {
                    let id = *expected.keys().nth(place % expected.len()).unwrap();
                    scene.forget(id);
                    expected.remove(&id);
                }
                Step::Forget(_) => {}
                Step::Pass(exact, arranges, whole) => {
                    let exact = if *exact { Exact::Always } else { Exact::Never };
                    thorough_pass(&scene, exact, *arranges, if *whole { Listing::Whole } else { Listing::New });
                }
                Step::Rebuild(loses) => {
                    if *loses {
                        scene.lose_index();
                        if number % 2 == 0 {
                            // Somebody was faster, who knows nothing of what was moved.
                            scene.pass_with(&PassOptions { listing: Listing::Whole, ..pass_options() }).unwrap();
                        }
                    }
                    let rebuilt = scene.rebuild();
                    prop_assert_eq!(rebuilt.lost_chunks, 0, "step {} of {:?}", number, steps);
                }
                Step::Convert(of, there) => {
                    let layout = if *there { Layout::Lifecycle } else { Layout::Standard };
                    // There may be no version of it.
                    let _ = convert(&scene.context(), SERIES[*of], layout, Compression::DEFAULT, None);
                }
            }
            if !matches!(step, Step::Backup(..) | Step::Forget(_)) {
                prop_assert!(contents(&scene) == expected, "after step {number} of {steps:?}");
                prop_assert_eq!(scene.disagreements(), [], "after step {} of {:?}", number, steps);
            }
        }
        prop_assert_eq!(scene.rebuild().lost_chunks, 0, "in the end of {:?}", steps);
        prop_assert!(contents(&scene) == expected, "in the end of {steps:?}");
    }
}
