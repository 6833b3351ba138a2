//! Restores of many windows: with the least memory a window has some hundred files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::support::scene::Scene;
use crate::support::*;
use larder_format::ids::ContainerKind;
use larder_lnode::restore::Selection;
use larder_lnode::{RestoreOptions, RestoreReport};
use larder_reader::FetchOptions;
use larder_source::target::{Target, TargetOptions};
use larder_testkit::{Fault, OpKind, Times, When, data};

impl Scene {
    /// Restores a version, the newest being 0, into a new folder.
    fn restore_version(&self, version: usize, is_estimate: bool, options: &RestoreOptions) -> RestoreReport {
        let mut target = TargetOptions::default();
        target.dry_run = is_estimate;
        let path = self.dir.path().join("target");
        let _ = fs::remove_dir_all(&path);
        let target = Target::open(&path, target).unwrap();
        let version = versions(&self.context).into_iter().rev().nth(version).unwrap();
        let options = RestoreOptions { estimate: is_estimate, ..options.clone() };
        let report = larder_lnode::restore(&self.context, &version, &target, &options).unwrap();
        assert_eq!((report.errors, report.mismatches), (0, 0));
        report
    }

    /// Requests for data and metadata, each with its number, that the restore of everything takes.
    fn requested(&self, version: usize, fetch: &FetchOptions) -> (BTreeMap<String, usize>, RestoreReport) {
        let before = self.faults.log().len();
        let options = RestoreOptions { fetch: fetch.clone(), ..RestoreOptions::default() };
        let report = self.restore_version(version, false, &options);
        if version == 0 {
            self.is_equal();
        }
        let mut requests = BTreeMap::new();
        for op in &self.faults.log()[before..] {
            if op.kind == OpKind::Get && (op.path.contains("data/") || op.path.contains("meta/")) {
                *requests.entry(op.path.clone()).or_default() += 1;
            }
        }
        (requests, report)
    }

    /// Memory for exactly the metadata.
    fn limit_memory(&mut self, version: usize) {
        let version = versions(&self.context).into_iter().rev().nth(version).unwrap();
        let manifest = self.context.executor.block_on(self.context.repository.manifest(&version)).unwrap();
        let metadata = manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Meta);
        self.context.memory = metadata.map(|usage| usage.object_bytes as usize).sum::<usize>() * 6 + 6;
    }

    /// Goal: an estimate counts what the restore of a version takes. Returns both.
    #[track_caller]
    fn compare(&self, version: usize, options: &RestoreOptions) -> RestoreReport {
        let estimate = self.restore_version(version, true, options);
        let report = self.restore_version(version, false, options);
        assert!(!estimate.planned.is_about, "{:?}", estimate.planned);
        // The estimate has read the tables itself.
        let requests = estimate.planned.requests + estimate.fetched.requests;
        assert!(requests <= report.fetched.requests && estimate.planned.bytes <= report.fetched.bytes);
        if report.fetched.requests == report.fetched.containers {
            assert_eq!((requests, estimate.planned.bytes), (report.fetched.requests, report.fetched.bytes));
        }
        report
    }
}

/// One request for each container at a time.
fn whole() -> FetchOptions {
    FetchOptions { prefetch: 1, ..FetchOptions::default() }
}

/// Trees of some shapes: small files, files of some KB, folders of folders, and large files among small ones.
fn shapes() -> Vec<Scene> {
    let noise = data::random(1, 12_000_000);
    let scene = |files: usize, name: &dyn Fn(usize) -> String, bytes: usize| {
        let scene = Scene::new();
        for file in 0..files {
            let from = file * bytes % (noise.len() - bytes);
            scene.write(&name(file), &noise[from..from + bytes]);
        }
        scene
    };
    let mixed = scene(700, &|file| format!("{file:04}"), 300);
    for large in [100, 300, 500] {
        mixed.write(&format!("{large:04}-large"), &data::random(large, 5_000_000));
    }
    vec![
        scene(1200, &|file| format!("{file:04}"), 20),
        scene(1200, &|file| format!("{}/{}", file % 7, file), 9_000),
        scene(900, &|file| format!("{}/{}/{}", file % 3, file % 30, file), 500),
        mixed,
    ]
}

#[test]
fn each_part_is_requested_once_if_memory_holds_the_metadata() {
    for (number, mut scene) in shapes().into_iter().enumerate() {
        scene.backup();
        scene.limit_memory(0);
        let (requests, report) = scene.requested(0, &whole());
        assert!(requests.len() >= 2 && requests.values().all(|requests| *requests == 1), "{number}: {requests:?}");
        assert_eq!(report.fetched.again, 0, "{number}: {:?}", report.fetched);
        let options = RestoreOptions { fetch: whole(), ..RestoreOptions::default() };
        assert_eq!(scene.compare(0, &options).fetched, report.fetched, "{number}");
        // Pieces of containers are other requests for the same bytes.
        let report = scene.compare(0, &RestoreOptions::default());
        assert_eq!(report.fetched.again, 0, "{number}: {:?}", report.fetched);
    }
}

/// Snapshots of changing files need containers of each other.
#[test]
fn containers_of_several_snapshots_are_requested_once_too() {
    let mut scene = Scene::new();
    for version in 0..4_u64 {
        for file in (0..900).filter(|file| version == 0 || file % 5 == version) {
            scene.write(&format!("{file:04}"), &data::random(version * 1000 + file, 4_000));
        }
        scene.backup();
    }
    for version in 0..4 {
        scene.limit_memory(version);
        let (requests, report) = scene.requested(version, &whole());
        assert!(requests.values().all(|requests| *requests == 1), "{version}: {requests:?}");
        assert_eq!(report.fetched.again, 0, "{version}: {:?}", report.fetched);
        scene.compare(version, &RestoreOptions { fetch: whole(), ..RestoreOptions::default() });
    }
}

/// With a selection, no window reads more than it needs.
struct Everything;

impl Selection for Everything {
    fn wants(&self, _: &[u8], _: bool) -> bool {
        true
    }
}

/// A window that reads a part of a container has nothing for the next one, which reads it whole.
#[test]
fn a_part_of_a_container_is_not_handed_on_as_all_of_it() {
    let mut scene = Scene::new();
    let mut pages: Vec<_> = (0..1900_u64).map(|page| data::random(page, 4096)).collect();
    pages[0][..101].copy_from_slice(&database_header());
    scene.write("z", &pages.concat());
    scene.backup();
    let is_data = |op: &&larder_testkit::Op| op.kind == OpKind::Put && op.path.contains("data/");
    let container = scene.faults.log().iter().find(is_data).unwrap().path.clone();
    scene.write("a-few", &pages[..64].concat());
    for file in 0..300_u64 {
        scene.write(&format!("m/{file:04}"), &data::random(5000 + file, 100));
    }
    scene.backup();
    scene.context.memory = 0;
    // The second window is planned before the part is written. It asks when the last of three requests is answered.
    let delay = Fault::Delay(Duration::from_millis(300));
    scene.faults.add(When::kind(OpKind::Get).path("data/"), delay, Times::First(3));
    let selection: Option<Arc<dyn Selection>> = Some(Arc::new(Everything));
    let options = RestoreOptions { selection, fetch: whole(), ..RestoreOptions::default() };
    let before = scene.faults.log().len();
    let report = scene.restore_version(0, false, &options);
    let parts = scene.faults.log()[before..].iter().filter(|op| op.path == container).count();
    assert!(report.files_restored > 100 && parts >= 3, "{parts} requests: {report:?}");
    assert!(fs::read(scene.restored().join("z")).unwrap() == pages.concat());
}
