//! The promise: what is stored twice, or needed by no version, leaves the repository although versions that stay name its container;
//! every retained version is whole at every moment, from the store alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::*;
use larder_format::ids::JobId;
use larder_format::names;
use larder_gnode::defragment::{Budget, DefragmentOptions, compact, plans};
use larder_gnode::pass::{Outcome, PassError, PassOptions};
use larder_gnode::reclaim::{Exact, ReclaimOptions, Unused};
use larder_rewrite::{CheckOptions, check};
use proptest::prelude::*;

#[test]
fn of_two_copies_one_is_retired_and_found_through_the_index() {
    let (scene, a, b) = twins();
    let contents = scene.contents();
    let (held, needed) = scene.held_and_needed();
    assert!(held > needed + 140_000, "{held} {needed}");
    let report = scene.optimize(Exact::Never);
    let reclaimed = &report.reclaimed;
    assert_eq!((reclaimed.plan.containers, reclaimed.copied_chunks, reclaimed.written), (1, 0, 0), "{report:?}");
    assert!(reclaimed.redirected_chunks > 20 && report.done.containers == 1, "{report:?}");
    let (old, new) = (scene.data_of(a), scene.data_of(b));
    let [gone, stays] = [&old, &new].map(|containers| *containers.first().unwrap());
    assert!(!scene.is_there(gone) && scene.is_there(stays));
    assert_eq!(scene.reclaimed(), BTreeMap::from([(gone, vec![stays])]));
    let (held, needed) = scene.held_and_needed();
    assert_eq!(held, needed);
    assert!(scene.contents() == contents);
    scene.index_agrees("after the pass");
    scene.is_clean("after the pass");
    let again = scene.optimize(Exact::Never);
    assert_eq!(again.outcome, Outcome::Nothing, "{again:?}");
    let report = check(&scene.context(), &CheckOptions::default()).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
    // S4: the version goes whose container has the only copy. It stays for the other, and goes with it.
    scene.forget(b);
    scene.optimize(Exact::Never);
    assert!(scene.is_there(stays) && scene.contents()[&a] == contents[&a]);
    scene.is_clean("the keeper of the copy is forgotten");
    scene.index_agrees("the keeper of the copy is forgotten");
    scene.forget(a);
    scene.optimize(Exact::Never);
    assert!(!scene.is_there(stays));
    assert_eq!(scene.reclaimed(), BTreeMap::new());
    scene.is_clean("both are forgotten");
}

/// What newest versions use stays where it is.
#[test]
fn newest_versions_need_no_index() {
    let scene = Scene::new();
    let files = [("one", 1, 90_000)];
    let newest = ["a", "b"].map(|series| scene.alone(series, &files));
    let report = scene.optimize(Exact::Always);
    assert_eq!(report.reclaimed.plan.containers, 0);
    for id in newest {
        assert!(scene.data_of(id).into_iter().all(|container| scene.is_there(container)));
    }
}

/// A container of which a part is stored elsewhere: the rest is copied.
#[test]
fn what_has_no_other_copy_is_copied() {
    let scene = Scene::new();
    let a = scene.alone("a", &[("one", 1, 90_000), ("two", 2, 60_000)]);
    let b = scene.alone("b", &[("one", 1, 90_000), ("three", 3, 80_000)]);
    scene.alone("a", &[("new", 4, 50_000)]);
    scene.alone("b", &[("new", 5, 50_000)]);
    let contents = scene.contents();
    let report = scene.optimize(Exact::Never);
    let reclaimed = &report.reclaimed;
    assert!(reclaimed.copied_chunks > 5 && reclaimed.written == 1 && reclaimed.plan.containers == 1, "{report:?}");
    let (held, needed) = scene.held_and_needed();
    assert_eq!(held, needed);
    assert!(scene.contents() == contents);
    scene.index_agrees("after the pass");
    scene.is_clean("after the pass");
    // S13, one hop: what the first was led to goes in its turn.
    let other = scene.alone("b", &[("one", 1, 90_000), ("two", 2, 60_000), ("three", 3, 80_000)]);
    scene.alone("b", &[("newer", 6, 50_000)]);
    let contents = scene.contents();
    scene.optimize(Exact::Never);
    let (held, needed) = scene.held_and_needed();
    assert_eq!(held, needed);
    assert!(scene.contents() == contents);
    scene.index_agrees("after the second pass");
    scene.is_clean("after the second pass");
    // In any order they go, and nothing is left.
    for id in [b, other, a] {
        scene.forget(id);
        scene.optimize(Exact::Never);
        assert!(scene.contents().iter().all(|(id, was)| contents[id] == *was));
        scene.is_clean("one is forgotten");
        scene.index_agrees("one is forgotten");
    }
}

/// A container of which a version that stays needs little.
#[test]
fn what_no_version_needs_goes_although_its_container_is_named() {
    let scene = Scene::new();
    let first = scene.alone("a", &[("one", 1, 90_000), ("two", 2, 60_000), ("three", 3, 80_000)]);
    scene.fill("a", &[("two", 2, 60_000)]);
    let second = scene.backup(&scene.context(), "a").unwrap().version.unwrap();
    assert!(second.statistics.stored_bytes < 20_000);
    scene.alone("a", &[("new", 4, 50_000)]);
    scene.optimize(Exact::Never);
    scene.forget(first);
    let contents = scene.contents();
    assert_eq!(scene.optimize(Exact::Never).reclaimed.plan.containers, 0);
    let (held, needed) = scene.held_and_needed();
    assert!(held > needed + 160_000);
    // A dry run says the same and leaves no trace.
    let before = scene.runtime.block_on(scene.memory.contents());
    let dry = scene.pass_with(&PassOptions { dry_run: true, ..thorough(Exact::Always) }).unwrap();
    assert_eq!(scene.runtime.block_on(scene.memory.contents()), before);
    let report = scene.optimize(Exact::Always);
    assert_eq!(dry.plan.reclaimed, report.plan.reclaimed);
    assert!(report.reclaimed.dropped_chunks > 20 && report.reclaimed.copied_chunks > 5, "{report:?}");
    let (held, needed) = scene.held_and_needed();
    assert_eq!(held, needed);
    assert!(scene.contents() == contents);
    scene.index_agrees("after the pass");
    scene.is_clean("after the pass");
    assert_eq!(scene.optimize(Exact::Always).outcome, Outcome::Nothing);
}

/// By rule: when a quarter of the versions went, recipes are read without being asked.
#[test]
fn exact_collection_comes_by_itself_when_many_versions_went() {
    let scene = Scene::new();
    let ids: Vec<_> = (0..8).map(|edition| scene.version("a", edition)).collect();
    assert!(!scene.optimize(Exact::WhenWorth).reclaimed.plan.is_exact);
    scene.forget(ids[0]);
    assert!(!scene.optimize(Exact::WhenWorth).reclaimed.plan.is_exact);
    scene.forget(ids[1]);
    assert!(scene.optimize(Exact::WhenWorth).reclaimed.plan.is_exact);
    scene.forget(ids[2]);
    assert!(!scene.optimize(Exact::WhenWorth).reclaimed.plan.is_exact, "it begins to count again");
}

/// What newest versions use cannot be retired however little of it is needed. When they leave it, it is looked at once more.
#[test]
fn what_was_left_for_newest_versions_goes_when_they_have_left_it() {
    let scene = Scene::new();
    let first = scene.alone("a", &[("one", 1, 90_000), ("two", 2, 60_000), ("three", 3, 80_000)]);
    let second = || {
        scene.fill("a", &[("two", 2, 60_000)]);
        backup_with(&scene.context(), &scene.source("a"), "a", |options| options.force = true).unwrap()
    };
    // Of both the newest is rewritten, and the other stays where the first has put it.
    assert!(
        [second(), second()].iter().all(|report| report.version.as_ref().unwrap().statistics.stored_bytes < 20_000)
    );
    scene.optimize(Exact::Never);
    scene.forget(first);
    let contents = scene.contents();
    assert_eq!(scene.optimize(Exact::WhenWorth).reclaimed.plan.containers, 0);
    let again = scene.optimize(Exact::WhenWorth);
    assert!(again.outcome == Outcome::Nothing && !again.reclaimed.plan.is_exact, "{again:?}");
    let (held, needed) = scene.held_and_needed();
    assert!(held > needed + 160_000);
    relay_all(&scene.context(), scene.versions().iter().max_by_key(|version| version.id()).unwrap());
    let report = scene.optimize(Exact::WhenWorth);
    assert!(report.reclaimed.plan.is_exact && report.reclaimed.dropped_chunks > 20, "{report:?}");
    let (held, needed) = scene.held_and_needed();
    assert_eq!(held, needed);
    assert!(scene.contents() == contents);
    scene.version("a", 5);
    assert!(!scene.optimize(Exact::WhenWorth).reclaimed.plan.is_exact, "nothing is left");
}

/// Series of three versions. The first of each is given: without it, two fifths of its container are needed, by the second one alone.
fn partly_dead(series: u64) -> (Scene, Vec<JobId>) {
    let (scene, mut first) = (Scene::new(), Vec::new());
    for number in 0..series {
        let series = format!("s{number}");
        let (dead, kept) = (("dead", 10 + number, 90_000), ("kept", 20 + number, 60_000));
        first.push(scene.alone(&series, &[dead, kept]));
        scene.fill(&series, &[kept]);
        scene.backup(&scene.context(), &series).unwrap();
        scene.alone(&series, &[("new", 30 + number, 20_000)]);
    }
    (scene, first)
}

/// Who may not copy all at once goes on with the next pass.
#[test]
fn what_a_limit_has_left_is_looked_for_again() {
    let (scene, all) = partly_dead(4);
    scene.optimize(Exact::Never);
    all.into_iter().for_each(|id| scene.forget(id));
    // Room for two of the four, whatever the chunks' number makes of the estimates.
    let all_four = scene.pass_with(&PassOptions { dry_run: true, ..pass_options() }).unwrap().plan.reclaimed;
    assert_eq!(all_four.containers, 4);
    let reclaim = ReclaimOptions { max_rewrite: Some(all_four.copied_bytes.0 / 8 * 5), ..ReclaimOptions::default() };
    let options = PassOptions { reclaim: Some(reclaim), ..pass_options() };
    for containers in [2, 2] {
        let report = scene.pass_with(&options).unwrap();
        assert!(report.reclaimed.plan.is_exact && report.reclaimed.plan.containers == containers, "{report:?}");
    }
    assert!(!scene.pass_with(&options).unwrap().reclaimed.plan.is_exact);
    let (held, needed) = scene.held_and_needed();
    assert_eq!(held, needed);
}

#[test]
fn thresholds_and_budgets_hold() {
    let scene = Scene::new();
    // A tenth, a half and all of three containers are stored elsewhere as well.
    let (tenth, half, all) = (("tenth", 1, 20_000), ("half", 2, 100_000), ("all", 3, 200_000));
    scene.alone("a", &[tenth, ("rest", 10, 180_000)]);
    scene.alone("b", &[half, ("rest", 11, 100_000)]);
    scene.alone("c", &[all]);
    scene.alone("d", &[tenth, half, all]);
    for (series, seed) in [("a", 20), ("b", 21), ("c", 22)] {
        scene.alone(series, &[("new", seed, 30_000)]);
    }
    let planned = |unused, max_rewrite| {
        let reclaim = ReclaimOptions { unused, max_rewrite, exact: Exact::Never, ..ReclaimOptions::default() };
        let cut = scene.fork();
        cut.pass_with(&PassOptions { reclaim: None, ..pass_options() }).unwrap();
        let options = PassOptions { reclaim: Some(reclaim), dry_run: true, ..pass_options() };
        cut.pass_with(&options).unwrap().plan.reclaimed.containers
    };
    assert_eq!(planned(Unused::OfContainer(0), None), 3);
    assert_eq!(planned(Unused::OfContainer(20), None), 2);
    assert_eq!(planned(Unused::OfContainer(80), None), 1);
    assert_eq!(planned(Unused::OfContainer(0), Some(1000)), 1);
    assert_eq!(planned(Unused::OfContainer(0), Some(150_000)), 2);
    // 320 of about 1010 kB are of no use: more than a tenth.
    assert_eq!(planned(Unused::WhenMuch { container: 20 }, None), 2);
    assert_eq!(planned(Unused::OfRepository(0.0), None), 3);
    assert_eq!(planned(Unused::OfRepository(5.0), None), 2);
    assert_eq!(planned(Unused::OfRepository(20.0), None), 1);
    assert_eq!(planned(Unused::OfRepository(50.0), None), 0);
}

/// What cannot be read is not relied on, and its copies stay.
#[test]
fn a_copy_that_is_damaged_is_not_led_to() {
    for damages_winner in [true, false] {
        let (scene, a, b) = twins();
        let contents = scene.contents();
        let (loser, winner) = (*scene.data_of(a).first().unwrap(), *scene.data_of(b).first().unwrap());
        let damaged = if damages_winner { winner } else { loser };
        // In the middle of its chunks; its tables are whole.
        let name = names::container(damaged);
        scene.runtime.block_on(scene.memory.change(&name, |bytes| bytes[30_000] ^= 1));
        let report = scene.optimize(Exact::Never);
        assert!(scene.is_there(loser) && scene.is_there(winner) || !damages_winner, "{report:?}");
        if damages_winner {
            assert_eq!(report.reclaimed.unreadable, [winner]);
            assert!(scene.contents_but(b) == without(&contents, b));
        } else {
            // Nothing of the loser is needed to give it up, and then both are whole.
            assert!(scene.contents() == contents);
        }
        scene.index_agrees("after the pass");
    }
}

impl Scene {
    fn contents_but(&self, without: JobId) -> BTreeMap<JobId, Contents> {
        let context = self.context();
        let others = versions(&context).into_iter().filter(|version| version.id() != without);
        others.map(|version| (version.id(), contents_of(&context, &version))).collect()
    }
}

/// A container that cannot be read ends an attempt after some chunks were copied. The next one copies them again, into another container:
/// two copies in one container would stay for ever.
#[test]
fn chunks_that_are_copied_again_are_in_no_container_twice() {
    // One of them is the first that is read.
    for damaged in 0..3 {
        let (scene, first) = partly_dead(3);
        let victim = *scene.data_of(first[damaged]).first().unwrap();
        scene.optimize(Exact::Never);
        first.into_iter().for_each(|id| scene.forget(id));
        scene.runtime.block_on(scene.memory.change(&names::container(victim), |bytes| bytes[110_000] ^= 1));
        let report = scene.optimize(Exact::Always);
        let reclaimed = &report.reclaimed;
        assert_eq!(reclaimed.unreadable, [victim]);
        assert!(reclaimed.copied_chunks > 5 && reclaimed.whole_bytes <= reclaimed.copied_bytes, "{report:?}");
        let repository = scene.repository(scene.memory.store());
        for container in scene.runtime.block_on(repository.list_containers()).unwrap() {
            let table = scene.runtime.block_on(repository.read_container_index(container.id)).unwrap();
            let chunks: BTreeSet<_> = table.chunk_refs().map(|chunk| chunk.fingerprint.0).collect();
            assert_eq!(chunks.len(), table.chunk_refs().count(), "{damaged} {}", container.id);
        }
        scene.index_agrees("after the pass");
    }
}

fn without(contents: &BTreeMap<JobId, Contents>, id: JobId) -> BTreeMap<JobId, Contents> {
    contents.iter().filter(|(other, _)| **other != id).map(|(id, contents)| (*id, contents.clone())).collect()
}

/// The index is lost after containers were retired. It alone knew where their chunks went: a pass deletes nothing of that, and a
/// repair finds them.
#[test]
fn what_was_retired_is_found_again_without_the_index() {
    let scene = Scene::new();
    let a = scene.alone("a", &[("one", 1, 90_000), ("two", 2, 60_000)]);
    let b = scene.alone("b", &[("one", 1, 90_000), ("three", 3, 80_000)]);
    scene.alone("a", &[("new", 4, 50_000)]);
    scene.alone("b", &[("new", 5, 50_000)]);
    let contents = scene.contents();
    assert_eq!(scene.optimize(Exact::Never).reclaimed.written, 1);
    assert!(scene.contents() == contents);
    let before = scene.reclaimed();
    assert_eq!(before.len(), 1);
    let reclaimed = scene.fork();
    scene.lose_index();
    let rebuilt = scene.rebuild();
    assert_eq!((rebuilt.reclaimed, rebuilt.unnamed, rebuilt.lost_chunks), (1, 1, 0), "{rebuilt:?}");
    assert!(rebuilt.unreadable_containers.is_empty());
    assert!(scene.contents() == contents);
    scene.index_agrees("rebuilt");
    assert_eq!(scene.reclaimed(), before);
    // Passes go on with it, and nothing is led to what may have been retired before.
    let report = scene.optimize(Exact::Always);
    assert_eq!((report.reclaimed.plan.containers, report.missing_containers), (0, 0));
    assert!(scene.contents() == contents);
    for id in [b, a] {
        scene.forget(id);
        scene.optimize(Exact::Never);
        assert!(scene.contents().iter().all(|(id, was)| contents[id] == *was));
        scene.index_agrees("one is forgotten");
        scene.is_clean("one is forgotten");
    }

    // A pass does so by itself, and says so.
    let scene = reclaimed;
    scene.lose_index();
    let report = scene.optimize(Exact::Always);
    // Above the number whose mark is there.
    assert_eq!((report.rebuilt, report.missing_containers), (Some(2), 0), "{report:?}");
    assert!(scene.contents() == contents);
    assert_eq!((scene.optimize(Exact::Always).rebuilt, scene.reclaimed()), (None, before));
}

/// A delete may come late: what the index leads to stays also when the index is rebuilt while the container is still there.
#[test]
fn a_rebuild_keeps_the_copies_of_what_may_have_been_retired() {
    let (scene, first, second) = twins();
    let contents = scene.contents();
    let gone = *scene.data_of(first).first().unwrap();
    let name = names::container(gone);
    let bytes = scene.runtime.block_on(scene.memory.get(&name)).unwrap();
    scene.optimize(Exact::Never);
    assert!(!scene.is_there(gone));
    // As if it were under way.
    scene.runtime.block_on(scene.memory.put(&name, bytes));
    scene.lose_index();
    scene.rebuild();
    scene.forget(second);
    scene.optimize(Exact::Always);
    scene.runtime.block_on(scene.memory.remove(&name));
    scene.rebuild();
    assert!(scene.contents()[&first] == contents[&first]);
}

#[derive(Debug, Clone)]
enum Step {
    /// With the version before it as base.
    Backup(usize, [u64; 3]),
    /// Without knowing anything.
    Alone(usize, [u64; 3]),
    Forget(usize),
    Pass,
    Thorough,
    Exact,
    /// With so little time (s).
    Hurried(u64),
    Compact,
    /// The index is lost, and rebuilt.
    Rebuild,
}

fn step() -> impl Strategy<Value = Step> {
    let seeds = || [0u64..6, 0..6, 0..6];
    prop_oneof![
        4 => (0usize..3, seeds()).prop_map(|(series, seeds)| Step::Backup(series, seeds)),
        4 => (0usize..3, seeds()).prop_map(|(series, seeds)| Step::Alone(series, seeds)),
        3 => (0usize..8).prop_map(Step::Forget),
        1 => Just(Step::Pass),
        3 => Just(Step::Thorough),
        3 => Just(Step::Exact),
        2 => (10u64..80).prop_map(Step::Hurried),
        1 => Just(Step::Compact),
        1 => Just(Step::Rebuild),
    ]
}

fn compact_all(scene: &Scene) {
    let context = scene.context();
    let options =
        DefragmentOptions { sparse_percent: 100, budget: Budget::of_version(100), ..DefragmentOptions::default() };
    for plan in plans(&context, &options).unwrap().plans {
        compact(&context, &plan, &options).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// After any history every version that stays is what it was, the index agrees, and nothing is left of what went.
    #[test]
    fn any_history_keeps_every_version_whole(steps in proptest::collection::vec(step(), 4..22)) {
        let scene = Scene::new();
        let series = ["a", "b", "c"];
        let mut expected: BTreeMap<JobId, Contents> = BTreeMap::new();
        // `RebuiltKeepsCopies`.
        let mut keeps_copies = false;
        let whole = |scene: &Scene, expected: &BTreeMap<JobId, Contents>| scene.contents() == *expected;
        for step in &steps {
            match step {
                Step::Backup(number, seeds) | Step::Alone(number, seeds) => {
                    let name = series[*number];
                    let files = [("one", seeds[0], 40_000), ("two", seeds[1], 30_000), ("three", seeds[2], 20_000)];
                    scene.fill(name, &files);
                    let id = match step {
                        Step::Backup(..) => scene.backup(&scene.context(), name).unwrap().version.unwrap().id,
                        _ => scene.alone(name, &files),
                    };
                    expected.insert(id, scene.contents().remove(&id).unwrap());
                    let context = scene.context();
                    let kept = expected[&id].iter().find(|(path, _)| path.ends_with(b"one")).unwrap().1;
                    prop_assert_eq!(kept, &std::fs::read(scene.source(name).join("one")).unwrap());
                    drop(context);
                }
                Step::Forget(number) if !expected.is_empty() => {
                    let id = *expected.keys().nth(number % expected.len()).unwrap();
                    scene.forget(id);
                    expected.remove(&id);
                }
                Step::Forget(_) => {}
                Step::Pass => drop(scene.pass().unwrap()),
                Step::Thorough => drop(scene.optimize(Exact::Never)),
                Step::Exact => drop(scene.optimize(Exact::Always)),
                Step::Hurried(seconds) => {
                    // Every look at the clock takes a second.
                    let max_duration = Some(Duration::from_secs(*seconds));
                    match scene.pass_with(&PassOptions { max_duration, ..thorough(Exact::Always) }) {
                        Ok(_) | Err(PassError::Interrupted) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                Step::Compact => compact_all(&scene),
                Step::Rebuild => {
                    scene.lose_index();
                    let rebuilt = scene.rebuild();
                    prop_assert_eq!((rebuilt.lost_chunks, rebuilt.unreadable_containers.len()), (0, 0));
                    keeps_copies = true;
                }
            }
            if !matches!(step, Step::Backup(..) | Step::Alone(..) | Step::Forget(_)) {
                prop_assert!(whole(&scene, &expected), "after {step:?} of {steps:?}");
                prop_assert_eq!(scene.disagreements(), [], "after {:?} of {:?}", step, steps);
            }
        }
        // What only old versions need is stored once: new versions with nothing in common with them come.
        for (number, name) in series.iter().enumerate() {
            let id = scene.alone(name, &[("last", 100 + number as u64, 20_000)]);
            expected.insert(id, scene.contents().remove(&id).unwrap());
        }
        scene.optimize(Exact::Always);
        prop_assert!(whole(&scene, &expected), "in the end of {steps:?}");
        let (held, needed) = scene.held_and_needed();
        prop_assert!(held == needed || keeps_copies, "{held} {needed} {steps:?}");
        let again = scene.optimize(Exact::Always);
        prop_assert!(again.reclaimed.plan.containers == 0 || keeps_copies, "{again:?} after {steps:?}");
        while let Some(id) = expected.keys().next().copied() {
            scene.forget(id);
            expected.remove(&id);
            scene.optimize(Exact::Never);
            prop_assert!(whole(&scene, &expected), "forgetting after {steps:?}");
        }
        let context = scene.context();
        prop_assert_eq!(scene.runtime.block_on(context.repository.list_containers()).unwrap(), []);
    }
}

/// Also what was forgotten before the first pass makes it worth reading all recipes.
#[test]
fn what_was_forgotten_before_the_first_pass_counts() {
    let scene = Scene::new();
    let ids: Vec<_> = (0..6).map(|edition| scene.version("a", edition)).collect();
    let few = scene.fork();
    few.forget(ids[0]);
    ids[..3].iter().for_each(|id| scene.forget(*id));
    assert!(scene.pass().unwrap().reclaimed.plan.is_exact);
    // And once more, because the newest version uses containers with much that nobody needs.
    for (edition, is_exact) in [(6, true), (7, false)] {
        scene.version("a", edition);
        assert_eq!(scene.pass().unwrap().reclaimed.plan.is_exact, is_exact, "{edition}");
    }
    let expected = few.contents();
    assert!(!few.pass().unwrap().reclaimed.plan.is_exact, "one of six is not worth it");
    assert!(few.contents() == expected);
}
