//! The promise: laid out exactly (`--holes 0`), what dies of a volume is its tail, whichever versions are forgotten: one of its objects at
//! most is cut, behind which all go, before which all stay. So forgetting deletes objects as they are, rewrites at most one of each volume,
//! and reads no other. Objects that left as a whole stay where they were written; they are of one category, and never cut.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::{BTreeMap, BTreeSet};

use crate::support::*;
use larder_format::ids::{ContainerId, JobId};
use larder_format::layout::Layout;
use larder_format::names;
use larder_gnode::pass;
use larder_lifecycle::lifecycle_map::Last;
use larder_testkit::OpKind;
use larder_testkit::data::Rng;
use proptest::prelude::*;

/// The objects of each volume, each with what is laid out in it, in order. What is open is no volume yet.
fn volumes(scene: &Scene) -> BTreeMap<u32, Vec<Vec<Laid>>> {
    let mut volumes: BTreeMap<u32, BTreeMap<ContainerId, Vec<Laid>>> = BTreeMap::new();
    for laid in scene.laid_out() {
        if let Last::Version(last) = laid.last {
            volumes.entry(last).or_default().entry(laid.container).or_default().push(laid);
        }
    }
    volumes.into_iter().map(|(last, objects)| (last, objects.into_values().collect())).collect()
}

/// Whether any of these versions may need what is of this category.
fn is_needed(laid: &Laid, retained: &BTreeSet<u32>) -> bool {
    let last = if let Last::Version(last) = laid.last { last } else { u32::MAX };
    laid.first <= last && retained.range(laid.first..=last).next().is_some()
}

/// Numbers of the versions that are retained.
fn retained(scene: &Scene) -> BTreeSet<u32> {
    scene.categories_of("db").versions.iter().map(|version| version.number).collect()
}

/// Whatever is forgotten of the versions that are there: of each volume one object is cut at most, of which the tail dies; what dies was
/// first used after all that stays.
#[track_caller]
fn dead_are_tails(scene: &Scene, at: &str) {
    let retained: Vec<u32> = retained(scene).into_iter().collect();
    let volumes = volumes(scene);
    for kept in 0..1_u32 << retained.len() {
        let kept = (0..retained.len()).filter(|place| kept >> place & 1 == 1).map(|place| retained[place]).collect();
        for (last, objects) in &volumes {
            let at = || format!("{at}: volume {last} with {kept:?} of {retained:?}: {objects:?}");
            let dies = |laid: &&Laid| !is_needed(laid, &kept);
            let firsts = |dying: bool| {
                let all = objects.iter().flatten().filter(move |laid| dies(laid) == dying);
                all.map(|laid| laid.first)
            };
            if let (Some(stays), Some(goes)) = (firsts(false).max(), firsts(true).min()) {
                assert!(stays < goes, "{}", at());
            }
            let stay = |object: &[Laid]| object.iter().take_while(|laid| !dies(laid)).count();
            for object in objects {
                assert!(object[stay(object)..].iter().all(|laid| dies(&laid)), "{}", at());
            }
            let cut = objects.iter().filter(|object| (1..object.len()).contains(&stay(object)));
            assert!(cut.count() <= 1, "{}", at());
        }
    }
}

/// Requests about data containers.
fn of_kind(log: &[larder_testkit::Op], kind: OpKind) -> BTreeSet<String> {
    let ops = log.iter().filter(|op| op.kind == kind && op.path.starts_with("data/"));
    ops.map(|op| op.path.clone()).collect()
}

/// Forgets these versions and arranges, and looks at every object of data that is created, read or deleted meanwhile. Says how many went
/// as they were, and how many were rewritten.
#[track_caller]
fn forget(scene: &Scene, ids: &[JobId], has_skipped: bool, at: &str) -> (usize, usize) {
    let before = scene.laid_out();
    ids.iter().for_each(|id| scene.forget(*id));
    let retained = retained(scene);
    let (context, faults) = scene.faulty(&scene.memory);
    let opened = faults.count() as usize;
    scene.runtime.block_on(pass::run(&context, &arranging(0.0))).unwrap();
    let log = faults.log().split_off(opened);
    let [created, read, deleted] = [OpKind::Put, OpKind::Get, OpKind::Delete].map(|kind| of_kind(&log, kind));

    let mut contents: BTreeMap<ContainerId, Vec<Laid>> = BTreeMap::new();
    before.into_iter().for_each(|laid| contents.entry(laid.container).or_default().push(laid));
    let (mut whole, mut rewritten) = (0, BTreeMap::<Last, Vec<String>>::new());
    for (container, laid) in &contents {
        let name = names::container(*container);
        let needed = laid.iter().filter(|laid| is_needed(laid, &retained)).count();
        // A category that spans versions which do without it is closed when those that use it are gone.
        if has_skipped && needed == laid.len() {
            continue;
        }
        // Nothing of it is needed, a part, or all.
        assert_eq!(deleted.contains(&name), needed < laid.len(), "{at}: {needed} of {laid:?}");
        assert!(!read.contains(&name) || (1..laid.len()).contains(&needed), "{at}: {needed} of {laid:?} was read");
        match needed {
            0 => whole += 1,
            _ if needed < laid.len() => rewritten.entry(laid[0].last).or_default().push(name),
            _ => {}
        }
    }
    assert!(rewritten.values().all(|objects| objects.len() == 1), "{at}: {rewritten:?}");
    assert!(created.len() == rewritten.len() || has_skipped, "{at}: one for each that is rewritten: {created:?}");
    let after = scene.laid_out();
    assert!(after.iter().all(|laid| is_needed(laid, &retained)), "{at}: {retained:?} of {after:?}");
    let (stored, named) = scene.stored_and_named();
    assert_eq!(stored, after.iter().map(|laid| u64::from(laid.length)).sum::<u64>(), "{at}");
    assert!(stored == named || has_skipped, "{at}: {stored} bytes, of which {named} are needed");
    (whole, rewritten.len())
}

/// One version after the other has more, and the fifth has a little of each: what left is three objects of four categories.
#[test]
fn a_volume_of_several_objects_loses_its_tail() {
    let scene = Scene::new();
    let large = [("a", 1, 11 << 20), ("b", 2, 11 << 20), ("c", 3, 11 << 20), ("d", 4, 11 << 20)];
    let small = [("e", 5, 100_000), ("f", 6, 100_000), ("g", 7, 100_000), ("h", 8, 100_000)];
    let ids: Vec<JobId> = (1..6)
        .map(|number| {
            let files = if number < 5 { [&large[..number], &small[..number]].concat() } else { small.to_vec() };
            scene.fill("db", &files);
            let report = backup_with(&scene.context(), &scene.source("db"), "db", |options| {
                options.layout = Layout::Lifecycle;
            });
            scene.arrange(0.0);
            report.unwrap().version.unwrap().id
        })
        .collect();
    let numbers: Vec<u32> = retained(&scene).into_iter().collect();
    let volume = &volumes(&scene)[&numbers[3]];
    let firsts: BTreeSet<u32> = volume.iter().flatten().map(|laid| laid.first).collect();
    assert_eq!((volume.len(), firsts.len(), volumes(&scene).len()), (3, 4, 1));
    dead_are_tails(&scene, "arranged");
    // How many versions from the fourth down go; what lies in between goes with nobody.
    for forgotten in 1..16_u32 {
        let scene = scene.fork();
        let gone: Vec<JobId> = (0..4).filter(|at| forgotten >> at & 1 == 1).map(|at| ids[at]).collect();
        let tail = (forgotten << 28).leading_ones();
        let done = forget(&scene, &gone, false, &format!("{tail} of the tail, {forgotten:04b}"));
        // Of 44 MiB in objects of 16 MiB 33, 22, 11 and nothing is left.
        assert_eq!(done, [(0, 0), (0, 1), (1, 1), (2, 1), (3, 0)][tail as usize], "{forgotten:04b}");
        dead_are_tails(&scene, "cut short");
    }
}

/// What a version changes: every n-th piece, from a place on, to new contents or to those of an edition that was there before.
#[derive(Debug, Clone)]
struct Change {
    every: usize,
    shift: usize,
    is_back: bool,
    /// How many go at once before the next version comes.
    forgets: usize,
    arranges: bool,
}

fn change() -> impl Strategy<Value = Change> {
    let forgets = prop_oneof![3 => Just(0), 2 => 1_usize..3];
    (1_usize..12, 0_usize..9, prop::bool::weighted(0.2), forgets, prop::bool::weighted(0.8))
        .prop_map(|(every, shift, is_back, forgets, arranges)| Change { every, shift, is_back, forgets, arranges })
}

/// How versions go in the end.
#[derive(Debug, Clone, Copy)]
enum Order {
    Random(u64),
    /// Every second one, of what is left every second one, and so on, as many at once: the newest stay, as by grandfather, father, son.
    Halves,
    NewestFirst,
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![4 => any::<u64>().prop_map(Order::Random), 1 => Just(Order::Halves), 1 => Just(Order::NewestFirst)]
}

/// The versions that go next.
fn next(ids: &[JobId], order: Order, round: u64) -> Vec<JobId> {
    match order {
        Order::Random(seed) => vec![*Rng::new(seed + round).pick(ids)],
        Order::Halves if ids.len() > 1 => ids.iter().rev().skip(1).step_by(2).copied().collect(),
        Order::Halves => ids.to_vec(),
        Order::NewestFirst => ids[ids.len() - 1..].to_vec(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_any_history_the_dead_are_tails(changes in prop::collection::vec(change(), 2..10), order in order()) {
        let scene = Scene::new();
        let (mut now, mut ids, mut has_skipped) = ([0; 60], Vec::new(), false);
        let mut rng = Rng::new(changes.len() as u64);
        for (number, change) in changes.iter().enumerate() {
            for place in (0..60).filter(|place| (place + change.shift).is_multiple_of(change.every)) {
                now[place] = if change.is_back { number as u64 / 2 } else { number as u64 + 1 };
            }
            let (id, skips) = scene.lifecycle_skipping("db", &pieces(&now));
            ids.push(id);
            has_skipped |= skips;
            if change.arranges {
                scene.arrange(0.0);
                dead_are_tails(&scene, &format!("after version {number} of {changes:?}"));
            }
            for _ in 0..change.forgets.min(ids.len() - 1) {
                scene.forget(ids.remove(rng.below(ids.len() as u64) as usize));
            }
        }
        scene.pass_with(&thoroughly()).unwrap();
        dead_are_tails(&scene, &format!("{changes:?}"));
        for round in 0.. {
            if ids.is_empty() {
                break;
            }
            let gone = next(&ids, order, round);
            ids.retain(|id| !gone.contains(id));
            if ids.is_empty() {
                break;
            }
            let at = format!("{order:?}, {} left, after {changes:?}", ids.len());
            forget(&scene, &gone, has_skipped, &at);
            dead_are_tails(&scene, &at);
        }
    }
}
