//! The promise: what a pass asks the store for after one more version does not depend on how many versions there were before. A series
//! of which the same share changes every time, rewritten and retired after every version as `optimize` does it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use crate::support::*;
use larder_format::layout::Layout;
use larder_format::mark::Forgotten;
use larder_gnode::defragment::{self, DefragmentOptions, Defragmenter};
use larder_gnode::forget::pin_of;
use larder_gnode::pass::{self, Outcome, PassReport};
use larder_job::JobContext;
use larder_lnode::BackupOptions;
use larder_store::catalog::Version;
use larder_store::{CacheOptions, Store, StoreOptions};
use larder_testkit::data::{self, Rng};
use larder_testkit::{FaultStore, Op, OpKind};

const PAGE: usize = 8 << 10;
const PAGES: usize = 400;

/// A file of pages of which every twelfth changes with every version, anywhere in it.
fn edit(scene: &Scene, version: u64, pages: &mut [u64]) {
    let mut rng = Rng::new(version + 1);
    let count = pages.len() as u64;
    for change in 0..count / 12 {
        let page = rng.below(count) as usize;
        pages[page] = (version + 1) * 10_000 + change;
    }
    let bytes: Vec<u8> = pages.iter().flat_map(|page| data::random(*page, PAGE)).collect();
    let root = scene.source("pages");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("file"), bytes).unwrap();
}

/// What `optimize` does, with the requests that it took.
fn optimize(scene: &Scene) -> (PassReport, Vec<Op>) {
    let (context, faults) = scene.faulty(&scene.memory);
    let opened = faults.count() as usize;
    let remembering = pass::remembering(&context.repository, pass_options().memory);
    let looking = JobContext { repository: remembering.clone(), ..context.clone() };
    let compact = || {
        let options = DefragmentOptions::default();
        let mut compactor = Defragmenter::new(&context, &options);
        let plans = defragment::plans(&looking, &options).unwrap().plans;
        plans.iter().for_each(|plan| assert!(compactor.compact(plan).is_ok()));
        !plans.is_empty()
    };
    let pass = || scene.runtime.block_on(pass::run(&scene.context_of(remembering.clone()), &pass_options())).unwrap();
    compact();
    let mut report = pass();
    if matches!(report.outcome, Outcome::Published(_)) && compact() {
        report = report.followed_by(pass());
    }
    (report, faults.log().split_off(opened))
}

/// Requests by kind and by the folder that they are about.
fn by_name(log: &[Op]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for op in log {
        let folder = op.path.split('/').next().unwrap_or_default();
        let folder = if op.path.starts_with("index/runs") { "runs" } else { folder };
        *counts.entry(format!("{:?} {folder}", op.kind)).or_default() += 1;
    }
    counts
}

/// Makes versions of a file of so many pages, each with what `optimize` asked for after it and what it asked for once more, with nothing
/// to do.
fn history(versions: u64, pages: usize, mut each: impl FnMut(u64, PassReport, Vec<Op>, Vec<Op>)) {
    let scene = Scene::new();
    let mut pages: Vec<u64> = (0..pages as u64).collect();
    for version in 0..versions {
        edit(&scene, version, &mut pages);
        backup(&scene.context(), &scene.source("pages"), "pages").unwrap();
        let (report, log) = optimize(&scene);
        let (_, idle) = optimize(&scene);
        each(version, report, log, idle);
    }
}

#[test]
fn the_sixtieth_version_costs_no_more_requests_than_the_twentieth() {
    let (mut after_one, mut with_nothing) = (Vec::new(), Vec::new());
    history(60, PAGES, |_, _, log, idle| {
        after_one.push(log.len());
        with_nothing.push(idle.len());
    });
    // From some ten versions on containers are retired after each. Runs come and are merged, so several passes are counted together.
    let of = |counts: &[usize], versions: std::ops::Range<usize>| counts[versions].iter().sum::<usize>();
    for (counts, what) in [(&after_one, "after one version"), (&with_nothing, "with nothing to do")] {
        let (early, late) = (of(counts, 16..24), of(counts, 52..60));
        assert!(late * 4 <= early * 5, "{what}: {early} and {late}, of {counts:?}");
    }
    let (early, late) = (of(&with_nothing, 6..10), of(&with_nothing, 56..60));
    assert!(late * 2 <= early * 3, "{early} and {late}: {with_nothing:?}");
}

/// Every pass is a process of its own, as `optimize` is by a timer, with the cache of its machine.
#[test]
fn ends_of_the_index_are_fetched_once_by_a_machine() {
    let scene = Scene::new();
    let cache = tempfile::tempdir().unwrap();
    let mut pages: Vec<u64> = (0..PAGES as u64).collect();
    let reads_of_a_pass = |scene: &Scene, cache: Option<CacheOptions>| {
        let (store, faults) = FaultStore::new(scene.memory.store());
        let options = StoreOptions { cache, ..store_options() };
        let repository = scene.repository(store.clone());
        let store = Store::from_object_store(store, "", &options).unwrap();
        let context = scene.context_of(repository.through(store.with_cache_of(repository.config().repository)));
        let opened = faults.count() as usize;
        scene.runtime.block_on(pass::run(&context, &pass_options())).unwrap();
        let is_read_of_run = |op: &&Op| op.path.starts_with("index/runs") && op.kind == OpKind::Get;
        faults.log()[opened..].iter().filter(is_read_of_run).count()
    };
    let (mut with, mut without) = (0, 0);
    for version in 0..12 {
        edit(&scene, version, &mut pages);
        backup(&scene.context(), &scene.source("pages"), "pages").unwrap();
        without += reads_of_a_pass(&scene.fork(), None);
        with += reads_of_a_pass(&scene, Some(CacheOptions::new(cache.path())));
    }
    assert_eq!(with, 0, "{without} without a cache");
    assert!(without > 12);
}

/// A version of a series in the layout `lifecycle`, and a pass.
fn arranged_version(scene: &Scene, version: u64, pages: &mut [u64]) -> Version {
    edit(scene, version, pages);
    let options = |options: &mut BackupOptions| options.layout = Layout::Lifecycle;
    let made = backup_with(&scene.context(), &scene.source("pages"), "pages", options).unwrap().version.unwrap();
    scene.pass().unwrap();
    scene.versions().into_iter().find(|version| version.id() == made.id).unwrap()
}

/// What forgetting this version asks for, and the pass after it, on a copy of the repository.
fn oldest_goes(scene: &Scene, oldest: &Version) -> Vec<Op> {
    let scene = scene.fork();
    let before = scene.data_bytes();
    let (context, faults) = scene.faulty(&scene.memory);
    let opened = faults.count() as usize;
    let mark = Forgotten { time_ms: 0, host: String::new(), reason: "test".to_owned() };
    scene.runtime.block_on(context.repository.forget(pin_of(oldest), &mark)).unwrap();
    let report = scene.runtime.block_on(pass::run(&context, &pass_options())).unwrap();
    let log = faults.log().split_off(opened);
    assert!(report.done.containers > 0 && scene.data_bytes() < before, "{report:?}");
    assert_eq!((report.arranged.moved_chunks, report.arranged.written), (0, 0), "{report:?}");
    let of_data = |op: &&Op| op.path.starts_with("data/") && matches!(op.kind, OpKind::Get | OpKind::Put);
    assert_eq!(log.iter().find(of_data), None, "no data is read or written");
    log
}

/// MFDedup deletes the oldest version in constant time. Runs of the index come and are merged, so of several versions the least counts.
#[test]
fn the_oldest_of_a_lifecycle_series_goes_with_as_many_requests_whatever_there_is() {
    let scene = Scene::new();
    let mut pages: Vec<u64> = (0..PAGES as u64).collect();
    let oldest = arranged_version(&scene, 0, &mut pages);
    let (mut alone, mut beside_others) = (BTreeMap::new(), BTreeMap::new());
    for version in 1..30 {
        arranged_version(&scene, version, &mut pages);
        // Before, what only the oldest has lies among what others have.
        if version >= 6 {
            alone.insert(version + 1, oldest_goes(&scene, &oldest).len());
        }
        if (7..12).contains(&version) {
            let scene = scene.fork();
            for edition in 0..25 {
                scene.version("other", edition);
            }
            scene.pass().unwrap();
            beside_others.insert(version + 1, oldest_goes(&scene, &oldest).len());
        }
    }
    let least = |counts: &BTreeMap<u64, usize>, versions: std::ops::Range<u64>| {
        *counts.range(versions).map(|(_, requests)| requests).min().unwrap()
    };
    let [early, late] = [8..16, 23..31].map(|versions| least(&alone, versions));
    let beside = least(&beside_others, 8..13);
    assert!(late * 2 <= early * 3, "{early} with about ten versions, {late} with thirty: {alone:?}");
    assert!(beside * 2 <= early * 3, "{early} alone, {beside} beside 25 versions of another series: {beside_others:?}");
}

/// Prints requests by what they are about. `PAGES=5000 cargo test -p larder-gnode --test suite steady_requests -- --ignored --nocapture`
#[test]
#[ignore = "prints"]
fn what_versions_ask_for() {
    let pages = std::env::var("PAGES").map_or(PAGES, |count| count.parse().unwrap());
    history(60, pages, |version, report, log, idle| {
        if version % 5 != 4 && version > 1 {
            return;
        }
        let distinct = |folder| {
            log.iter().filter(|op| op.path.starts_with(folder)).map(|op| &op.path).collect::<BTreeSet<_>>().len()
        };
        let (containers, runs) = (distinct("data/"), distinct("index/runs/"));
        let reclaimed = &report.reclaimed;
        println!(
            "version {}: {} requests, {} with nothing to do; {} containers retired, {} chunks led, {} copied; {containers} containers \
             and {runs} runs asked for\n    {:?}\n    with nothing to do {:?}",
            version + 1,
            log.len(),
            idle.len(),
            reclaimed.plan.containers,
            reclaimed.redirected_chunks,
            reclaimed.copied_chunks,
            by_name(&log),
            by_name(&idle),
        );
    });
}
