//! The promise: a version whose containers passes have retired is read about as cheaply as one that they left alone. The index is asked
//! once a window, and a restore asks for every container about once; whatever changes from version to version, and in little memory too.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::path::Path;

use crate::support::*;
use larder_gnode::defragment::{self, DefragmentOptions, Defragmenter};
use larder_job::JobContext;
use larder_lnode::RestoreOptions;
use larder_reader::{FetchOptions, FetchReport, VersionReader};
use larder_rewrite::CheckOptions;
use larder_source::target::{Target, TargetOptions};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_testkit::data::{self, Rng};

const VERSIONS: u64 = 10;
const FILE: usize = 6 << 20;
const PAGE: usize = 4 << 10;

/// What changes from version to version.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// One page in so many is written over.
    Pages(u64),
    /// So many runs of bytes come in between.
    Insertions(u64),
    /// One file in so many is another.
    Files(u64),
}

const CHANGES: [Change; 5] =
    [Change::Pages(6), Change::Pages(20), Change::Insertions(60), Change::Insertions(250), Change::Files(5)];

pub(crate) fn edit(root: &Path, change: Change, version: u64) {
    let mut rng = Rng::new(version + 1);
    std::fs::create_dir_all(root).unwrap();
    let path = root.join("file");
    let random = |salt: u64, length: usize| data::random(version << 32 | salt, length);
    let mut content = match (version, change) {
        (_, Change::Files(_)) => Vec::new(),
        (0, _) => data::random(1, FILE),
        _ => std::fs::read(&path).unwrap(),
    };
    match change {
        Change::Pages(one_in) if version > 0 => {
            let pages = (FILE / PAGE) as u64;
            for salt in 0..pages / one_in {
                let at = rng.below(pages) as usize * PAGE;
                content[at..at + PAGE].copy_from_slice(&random(salt, PAGE));
            }
        }
        Change::Insertions(count) if version > 0 => {
            for salt in 0..count {
                let at = rng.below(content.len() as u64) as usize;
                content.splice(at..at, random(salt, 1000 + rng.below(2000) as usize));
            }
        }
        Change::Files(one_in) => {
            for file in (0..100).filter(|file| version == 0 || rng.below(one_in) == 0 || *file == version) {
                std::fs::write(root.join(format!("file{file:03}")), random(file, FILE / 100)).unwrap();
            }
        }
        _ => {}
    }
    std::fs::write(path, content).unwrap();
}

/// What `optimize` does.
pub(crate) fn optimize(scene: &Scene) {
    let (context, options) = (scene.context(), DefragmentOptions::default());
    let compact = || {
        let mut compactor = Defragmenter::new(&context, &options);
        for plan in defragment::plans(&context, &options).unwrap().plans {
            compactor.compact(&plan).unwrap();
        }
    };
    compact();
    scene.pass().unwrap();
    compact();
    scene.pass().unwrap();
}

/// Versions with a pass after each, or without any.
fn history(change: Change, has_passes: bool) -> Scene {
    let scene = Scene::new();
    for version in 0..VERSIONS {
        edit(&scene.source("s"), change, version);
        backup(&scene.context(), &scene.source("s"), "s").unwrap();
        if has_passes {
            optimize(&scene);
        }
    }
    scene
}

/// What reading took.
#[derive(Debug, Clone, Copy)]
struct Cost {
    fetched: FetchReport,
    /// Requests of all kinds.
    requests: usize,
}

/// Reads something with so much memory, of which containers have their own.
fn cost_of(scene: &Scene, memory: usize, read: impl FnOnce(&JobContext, FetchOptions) -> FetchReport) -> Cost {
    let (context, faults) = scene.faulty(&scene.memory);
    let context = JobContext { memory, ..context };
    let opened = faults.count() as usize;
    let fetch = FetchOptions { cache_memory: Some(4 << 20), ..FetchOptions::default() };
    let fetched = read(&context, fetch);
    let requests = faults.count() as usize - opened;
    Cost { fetched, requests }
}

fn restored(scene: &Scene, version: &Version, memory: usize, verify: bool, expected: &Contents) -> Cost {
    cost_of(scene, memory, |context, fetch| {
        let target = tempfile::tempdir().unwrap();
        let options = RestoreOptions { verify, fetch, ..RestoreOptions::default() };
        let opened = Target::open(target.path(), TargetOptions::default()).unwrap();
        let report = larder_lnode::restore(context, version, &opened, &options).unwrap();
        assert_eq!((report.errors, report.damaged, report.mismatches), (0, 0, 0), "{report:?}");
        for (path, content) in expected.iter().filter(|(_, content)| !content.is_empty()) {
            let path = target.path().join(std::str::from_utf8(path).unwrap());
            assert!(std::fs::read(path).unwrap() == *content);
        }
        report.fetched
    })
}

fn dumped(scene: &Scene, version: &Version, memory: usize, expected: &Contents) -> Cost {
    cost_of(scene, memory, |context, fetch| {
        let reader = VersionReader::open(context, version).unwrap().fetching(fetch);
        let mut seen = 0;
        let visited = reader.visit_contents(b"", |entry, content| {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).unwrap();
            if let Some(expected) = expected.get(&entry.path) {
                assert!(bytes == *expected);
                seen += 1;
            }
            Ok::<_, RepositoryError>(())
        });
        visited.unwrap();
        assert_eq!(seen, expected.len());
        reader.fetched()
    })
}

fn checked(scene: &Scene, memory: usize) -> Cost {
    cost_of(scene, memory, |context, _| {
        let report = larder_rewrite::check(context, &CheckOptions::default()).unwrap();
        assert!(report.damages.is_empty(), "{:?}", report.damages);
        FetchReport::default()
    })
}

/// Moved chunks that are looked for together with so much memory, at least.
fn window(memory: usize) -> u64 {
    (memory / 8 / 80).max(256) as u64 / 2
}

#[test]
fn versions_of_which_passes_moved_much_are_read_as_cheaply_as_others() {
    let (mut wrong, mut moved) = (Vec::new(), Vec::new());
    for change in CHANGES {
        let scene = history(change, true);
        let context = scene.context();
        let versions = scene.versions();
        let mut led = 0;
        // In the second case a window is a fraction of the version.
        for memory in [8 << 20, 160 << 10] {
            for (which, version) in [("oldest", 0), ("middle", 4), ("newest", 9)] {
                let version = &versions[version];
                let containers = VersionReader::open(&context, version).unwrap().manifest().containers.len();
                let expected = contents_of(&context, version);
                let at = format!("{change:?}, {which}, memory {memory}, {containers} containers");
                let restore = restored(&scene, version, memory, false, &expected);
                let verify = restored(&scene, version, memory, true, &expected);
                let dump = dumped(&scene, version, memory, &expected);
                for (what, cost, times) in [("restore", restore, 1), ("verify", verify, 2), ("dump", dump, 1)] {
                    let fetched = cost.fetched;
                    let at = format!("{at}: {what}: {cost:?}");
                    // Once more, where the first miss tells of one container and the index of the others.
                    // A window takes whole segments and counts all of their chunks: a small one has one segment, and there are few.
                    let spare = if memory < 1 << 20 { 6 } else { 1 };
                    let windows = fetched.redirected.div_ceil(window(memory)) + spare * times;
                    let mut claims = vec![(fetched.look_ups <= windows, format!("more than {windows} windows"))];
                    if what == "restore" {
                        let asked = 40 + 6 * fetched.containers + 30 * fetched.look_ups;
                        claims.push((cost.requests as u64 <= asked, format!("more than {asked} requests")));
                        claims.push((fetched.again <= 2, "containers were read again".to_owned()));
                    }
                    for (is_right, why) in claims {
                        if !is_right {
                            wrong.push(format!("{why}: {at}"));
                        }
                    }
                    led += fetched.redirected;
                }
            }
        }
        moved.extend((led > 0).then_some(change));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Where little changes, passes leave the containers alone.
    assert!(moved.len() >= 2, "passes moved chunks with {moved:?} only");
}

/// A check asks the index for what was moved once for all versions together.
#[test]
fn a_check_costs_about_what_it_costs_without_passes() {
    for change in CHANGES {
        let (with, without) = (history(change, true), history(change, false));
        for memory in [8 << 20, 160 << 10] {
            let (with, without) = (checked(&with, memory), checked(&without, memory));
            let at = format!("{change:?}, memory {memory}: {with:?}, {without:?}");
            assert!(with.requests <= 2 * without.requests + 60, "{at}");
        }
    }
}
