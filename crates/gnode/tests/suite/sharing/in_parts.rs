//! Newest versions whose tables exceed the memory are worked on in parts, and nothing of the rest changes.

use std::cell::Cell;

use larder_gnode::maintenance::{self, Ended, MaintenanceOptions, NotRewritten, Task};

use super::*;

/// Versions leave what they use less than two fifths of.
const SPARSE: DefragmentOptions =
    DefragmentOptions { sparse_percent: 40, budget: Budget::of_version(100), duplicate_percent: 101, ..EXACT };

/// Three versions of a series, of which the newest uses little of the containers of the first two.
fn age(scene: &Scene, series: &str, salt: u64) {
    let files = |range: std::ops::Range<u64>| range.map(|seed| salt * 1000 + seed).collect::<Vec<_>>();
    scene.next(series, &files(1..4), &files(100..110));
    scene.next(series, &files(1..2), &[files(100..103), files(200..210)].concat());
}

/// What is left by each version, and what is copied.
fn left(plans: &[DefragmentPlan]) -> BTreeMap<JobId, (Vec<ContainerId>, u64)> {
    let containers = |plan: &DefragmentPlan| plan.containers.iter().map(|usage| usage.container).collect();
    plans.iter().map(|plan| (plan.version.id(), (containers(plan), plan.bytes))).collect()
}

fn within(scene: &Scene, memory: u64) -> JobContext {
    JobContext { memory: memory as usize, ..scene.context() }
}

/// The memory that the largest newest version needs.
fn memory_for_one(scene: &Scene, options: &DefragmentOptions) -> u64 {
    let plans = defragment::plans(&within(scene, 1), options).unwrap();
    assert!(plans.plans.is_empty());
    plans.too_large.iter().map(|too_large| too_large.needed).max().unwrap()
}

#[test]
fn versions_with_nothing_in_common_leave_the_same_in_parts() {
    let scene = Scene::new();
    for (salt, series) in (1..).zip(["a", "b", "c", "d"]) {
        scene.alone_with(series, &(1..11).map(|seed| salt * 1000 + seed).collect::<Vec<_>>(), &[]);
        age(&scene, series, salt);
    }
    let contents = scene.contents();
    let whole = defragment::plans(&scene.context(), &SPARSE).unwrap();
    assert!(whole.too_large.is_empty() && whole.plans.len() == 4);
    let one = memory_for_one(&scene, &SPARSE);
    for memory in [one, 2 * one, 3 * one, 4 * one] {
        let plans = defragment::plans(&within(&scene, memory), &SPARSE).unwrap();
        assert!(plans.too_large.is_empty());
        assert_eq!(left(&plans.plans), left(&whole.plans), "{memory}");
    }
    let context = within(&scene, one);
    let options = MaintenanceOptions { tasks: BTreeSet::from([Task::Defragment]), ..MaintenanceOptions::default() };
    let report = maintenance::run(&context, &options, &|id, why| panic!("{id:?}: {why}")).unwrap();
    assert!(report.defragmented.failed.is_empty());
    scene.is_whole(&contents, "in parts");
}

/// All newest versions that use a container leave it, or none does.
#[test]
fn a_container_of_several_parts_stays() {
    let scene = Scene::new();
    scene.alone_with("a", &(1..11).map(|seed| 1000 + seed).collect::<Vec<_>>(), &[]);
    let first = scene.newest("a");
    scene.files("b", &(1..11).map(|seed| 1000 + seed).collect::<Vec<_>>(), &[]);
    backup_with(&scene.context(), &scene.source("b"), "b", |options| options.base = Some(first.id())).unwrap();
    let common = scene.data_of_version(&first);
    age(&scene, "a", 1);
    age(&scene, "b", 1);
    let leaves_common = |memory: u64| {
        let plans = defragment::plans(&within(&scene, memory), &SPARSE).unwrap();
        assert!(plans.too_large.is_empty());
        let plans = left(&plans.plans);
        plans.values().filter(|(left, _)| left.iter().any(|container| common.contains(container))).count()
    };
    let one = memory_for_one(&scene, &SPARSE);
    assert_eq!((leaves_common(8 * one), leaves_common(one)), (2, 0));
    // The same when unused bytes may not stay.
    let none = DefragmentOptions { unused_percent: Some(0.0), ..SPARSE };
    let one = memory_for_one(&scene, &none);
    for plan in defragment::plans(&within(&scene, one), &none).unwrap().plans {
        assert!(plan.containers.iter().all(|usage| !common.contains(&usage.container)));
    }
}

#[test]
fn a_version_that_memory_cannot_hold_is_named_with_what_it_needs() {
    let scene = Scene::new();
    scene.alone_with("a", &(1..11).collect::<Vec<_>>(), &[]);
    age(&scene, "a", 0);
    scene.alone_with("b", &(2001..2011).collect::<Vec<_>>(), &[]);
    let (newest, contents) = (scene.newest("a"), scene.contents());
    let needed = memory_for_one(&scene, &SPARSE);
    let plans = defragment::plans(&within(&scene, needed - 8), &SPARSE).unwrap();
    let named: Vec<_> = plans.too_large.iter().map(|too_large| (too_large.version.id(), too_large.needed)).collect();
    assert_eq!(named, [(newest.id(), needed)]);
    assert!(defragment::plans(&within(&scene, needed), &SPARSE).unwrap().too_large.is_empty());
    let options = MaintenanceOptions { tasks: BTreeSet::from([Task::Defragment]), ..MaintenanceOptions::default() };
    let report = maintenance::run(&within(&scene, needed - 8), &options, &|_, _| {}).unwrap();
    let why = report.defragmented.failed.get(&newest.id()).expect("reported");
    assert!(matches!(why, NotRewritten::TooLittleMemory { .. }) && !why.is_damage());
    assert!(why.to_string().starts_with("defragmenting it needs 1 MiB of memory"), "{why}");
    assert_eq!(report.ended(false), Ended::Incomplete);
    scene.is_whole(&contents, "nothing was rewritten");
}

/// The newest versions in the order of parts: their series and ids.
fn in_order(scene: &Scene) -> Vec<(String, JobId)> {
    let repository = scene.repository(scene.memory.store());
    let newest = scene.runtime.block_on(repository.newest_of_every_series()).unwrap();
    newest.into_iter().map(|version| (version.summary.series.clone(), version.id())).collect()
}

/// While a part is worked on, others forget and collect a version of a later part.
#[test]
fn a_version_that_others_collect_between_parts_is_no_damage() {
    // The order of series is random. The large one has to be the first.
    let is_first = |scene: &Scene| {
        scene.alone_with("large", &(1..11).collect::<Vec<_>>(), &[]);
        age(scene, "large", 0);
        for (salt, series) in (1..).zip(["b", "c", "d", "e"]) {
            scene.alone_with(series, &(1..11).map(|seed| salt * 1000 + seed).collect::<Vec<_>>(), &[]);
        }
        in_order(scene)[0].0 == "large"
    };
    let scene = (0..100).map(|_| Scene::new()).find(is_first).unwrap();
    let memory = memory_for_one(&scene, &DefragmentOptions::default()) - 8;
    let (last, is_collected) = (in_order(&scene).last().unwrap().1, Cell::new(false));
    let options = MaintenanceOptions { tasks: BTreeSet::from([Task::Defragment]), ..MaintenanceOptions::default() };
    let report = maintenance::run(&within(&scene, memory), &options, &|_, why| {
        assert!(matches!(why, NotRewritten::TooLittleMemory { .. }), "{why}");
        if !is_collected.replace(true) {
            scene.forget(last);
            scene.collect();
        }
    })
    .unwrap();
    assert!(is_collected.get());
    assert_eq!(report.ended(false), Ended::Incomplete, "nothing is damaged");
}

/// Two versions have a container in common, and are in several parts. A third one has a few of its chunks in a container of its own.
#[test]
fn nothing_is_copied_for_duplicates_that_stay() {
    let common: Vec<u64> = (1..11).collect();
    let is_last = |scene: &Scene| {
        scene.alone_with("a", &common, &[]);
        let first = scene.newest("a");
        scene.files("b", &common, &[]);
        backup_with(&scene.context(), &scene.source("b"), "b", |options| options.base = Some(first.id())).unwrap();
        scene.collect_only();
        scene.alone_with("c", &(1..4).collect::<Vec<_>>(), &(50..62).collect::<Vec<_>>());
        scene.collect_only();
        // Beside one of them, and not beside both.
        in_order(scene)[2].0 != "c"
    };
    let scene = (0..100).map(|_| Scene::new()).find(is_last).unwrap();
    let options = DefragmentOptions { budget: Budget::of_version(100), ..DefragmentOptions::default() };
    let one = memory_for_one(&scene, &options);
    let copied = |memory: u64| {
        let plans = defragment::plans(&within(&scene, memory), &options).unwrap();
        assert!(plans.too_large.is_empty());
        plans.plans.iter().map(|plan| plan.bytes).sum::<u64>()
    };
    let whole = copied(1000 * one);
    assert!(whole > 0, "in one part, it is worth it");
    for times in 1..40 {
        let copied = copied(times * one);
        assert!(copied == 0 || copied == whole, "{copied} with {times} times {one}");
    }
}

/// A version whose manifest is too large to be read keeps what it shares with others: its containers come from the index.
#[test]
fn what_a_version_uses_whose_manifest_is_not_read_stays() {
    let scene = Scene::new();
    let common: Vec<u64> = (1..11).collect();
    scene.alone_with("a", &common, &[]);
    let first = scene.newest("a");
    scene.files("b", &common, &[]);
    backup_with(&scene.context(), &scene.source("b"), "b", |options| options.base = Some(first.id())).unwrap();
    let of_common = scene.data_of_version(&first);
    // Each version stores a container more.
    let mut kept = common.clone();
    while scene.newest("b").manifest_bytes <= scene.newest("a").manifest_bytes {
        let new: Vec<u64> = (0..3).map(|seed| kept.len() as u64 * 1000 + seed).collect();
        scene.next("b", &kept, &new);
        kept.extend(new);
    }
    age(&scene, "a", 0);
    let bytes = |series| scene.newest(series).manifest_bytes;
    let (small, large) = (bytes("a"), bytes("b"));
    assert!(small < large, "{small} {large}");
    let leaves_common = |manifest_least: u64| {
        let options = DefragmentOptions { manifest_least, ..SPARSE };
        let plans = defragment::plans(&within(&scene, 8 * large - 8), &options).unwrap();
        assert_eq!(plans.too_large.len(), usize::from(manifest_least < large), "{:?}", plans.too_large);
        left(&plans.plans).values().any(|(left, _)| left.iter().any(|container| of_common.contains(container)))
    };
    // The index does not know it yet.
    assert!(leaves_common(small));
    scene.collect_only();
    assert!(!leaves_common(small));
}
