//! Duplicates in the layout `lifecycle`: everything that the version before has, or the version itself, is found, with however
//! little memory; what comes back after a version without it is measured, and then found.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;

use crate::support::*;
use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_job::JobContext;
use larder_lnode::{BackupError, BackupOptions, BackupReport, WhyBase};

struct Scene {
    dir: tempfile::TempDir,
    context: JobContext,
    // Last: what runs on it must be gone before.
    _runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), runtime());
        fs::create_dir(dir.path().join("repository")).unwrap();
        let context = context(&runtime, init(&runtime, local(&dir.path().join("repository"))));
        Self { dir, context, _runtime: runtime }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn options(&self, series: &str) -> BackupOptions {
        let scratch = Some(self.dir.path().join("scratch"));
        BackupOptions { layout: Layout::Lifecycle, find_similar: false, scratch, ..options(series) }
    }

    /// The source is these files now.
    fn write(&self, files: impl IntoIterator<Item = (String, Vec<u8>)>) {
        let _ = fs::remove_dir_all(self.source());
        fs::create_dir(self.source()).unwrap();
        for (name, content) in files {
            fs::write(self.source().join(name), content).unwrap();
        }
    }

    fn back_up(&self, options: &BackupOptions) -> Result<BackupReport, BackupError> {
        larder_lnode::backup(&self.context, walk(&self.source()), options)
    }
}

/// So many different small files, each one chunk, in an order that has nothing to do with their contents.
fn small(count: u64, order: u64) -> impl Iterator<Item = (String, Vec<u8>)> {
    let name = move |number: u64| (number + 1).wrapping_mul(2 * order + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..count).map(move |number| (format!("{:016x}-{order}", name(number)), pseudo_random(1500, 77 + number)))
}

/// Chunks of so many files that were stored again although the version before has them, in another order.
fn missed(scene: &Scene, files: u64, options: &BackupOptions) -> u64 {
    scene.write(small(files, 0));
    assert_eq!(scene.back_up(options).unwrap().statistics.new_chunks, files);
    scene.write(small(files, 3).chain(small(files, 4).take(500)));
    let statistics = scene.back_up(options).unwrap().statistics;
    assert_eq!(statistics.files_new, files + 500);
    statistics.new_chunks
}

#[test]
fn every_chunk_of_the_version_before_is_found_in_any_order_and_with_any_memory() {
    let scene = Scene::new();
    for (files, memory, scratch) in [(6000, 0, true), (6000, 0, false), (1200, 1 << 20, true), (1200, 64 << 20, true)] {
        let mut options = scene.options(&format!("{memory}-{scratch}"));
        options.index_memory = memory;
        options.scratch = options.scratch.filter(|_| scratch);
        assert_eq!(missed(&scene, files, &options), 0, "{memory} bytes, scratch: {scratch}");
    }
    assert_eq!(fs::read_dir(scene.dir.path().join("scratch")).unwrap().count(), 0, "nothing stays on disk");
}

/// What the test above would not notice if its versions were small enough to be found by anybody.
#[test]
fn in_the_other_layout_that_order_costs_duplicates() {
    let scene = Scene::new();
    let options = BackupOptions { layout: Layout::Standard, index_memory: 0, ..scene.options("standard") };
    let missed = missed(&scene, 6000, &options);
    assert!(missed > 0);
}

#[test]
fn every_chunk_that_the_version_has_itself_is_found_with_any_memory() {
    const FILES: u64 = 1200;
    let scene = Scene::new();
    scene.write(small(FILES, 1).chain(small(FILES, 2)));
    for memory in [0, 1 << 20] {
        let options = BackupOptions { index_memory: memory, ..scene.options(&format!("series-{memory}")) };
        assert_eq!(scene.back_up(&options).unwrap().statistics.new_chunks, FILES);
    }
}

#[test]
fn what_comes_back_after_a_version_without_it_is_measured_and_then_found() {
    let scene = Scene::new();
    let options = scene.options("series");
    let content = |seeds: [u64; 2]| seeds.map(|seed| (format!("file{seed}"), pseudo_random(8 << 20, seed)));
    let back_up = |seeds| {
        scene.write(content(seeds));
        let report = scene.back_up(&options).unwrap();
        let bases: Vec<WhyBase> = report.bases.iter().map(|base| base.why).collect();
        (report.statistics.new_chunks, report.statistics.skip_permille, bases)
    };
    let (all, share, _) = back_up([1, 2]);
    assert_eq!(share, None, "there is no version before");
    let (third, share, bases) = back_up([1, 3]);
    assert!(third > all / 3 && share.is_none(), "there is no version before the base");
    assert_eq!(bases, [WhyBase::Newest]);
    // The second file is back: it is stored again, and that is seen.
    let (again, share, bases) = back_up([1, 2]);
    assert!(again > all / 3 && bases == [WhyBase::Newest], "{again} of {all}");
    assert!(share.is_some_and(|share| share > 300), "{share:?}");
    // And then three versions serve.
    let (again, share, bases) = back_up([1, 3]);
    assert_eq!((again, bases), (0, vec![WhyBase::Newest, WhyBase::Before, WhyBase::Before]));
    assert_eq!(share, Some(1000));
    // What the two newest do not have is found in the third.
    let (_, share, bases) = back_up([1, 4]);
    assert_eq!((share, bases.len()), (Some(0), 3));
    let (again, share, _) = back_up([1, 2]);
    assert_eq!((again, share), (0, Some(1000)));
    // Nothing comes back any more: after two such versions one is enough.
    for (seeds, bases) in [([1, 2], 3), ([1, 5], 3), ([1, 6], 1), ([7, 6], 1)] {
        let (_, share, found) = back_up(seeds);
        assert_eq!((share, found.len()), (Some(0), bases), "{seeds:?}");
    }
    let recorded: Vec<_> =
        versions(&scene.context).iter().map(|version| version.summary.statistics.skip_permille).collect();
    assert_eq!(recorded.iter().filter(|share| **share > Some(20)).count(), 3, "{recorded:?}");
}

#[test]
fn a_base_of_which_nothing_may_be_shared_is_refused() {
    let scene = Scene::new();
    scene.write(small(10, 1));
    let id_of = |report: BackupReport| report.version.unwrap().id;
    let own = id_of(scene.back_up(&scene.options("own")).unwrap());
    let other = id_of(scene.back_up(&scene.options("other")).unwrap());
    let standard = BackupOptions { layout: Layout::Standard, ..scene.options("standard") };
    let plain = id_of(scene.back_up(&standard).unwrap());
    let with = |options: BackupOptions, base: JobId| scene.back_up(&BackupOptions { base: Some(base), ..options });
    let is_refused = |result: Result<BackupReport, BackupError>, base: JobId| matches!(&result, Err(BackupError::UnsharedBase { id, .. }) if *id == base);
    assert!(is_refused(with(scene.options("own"), other), other));
    assert!(is_refused(with(scene.options("own"), plain), plain));
    assert!(is_refused(with(standard.clone(), own), own));
    assert!(is_refused(with(BackupOptions { series: "new".into(), ..standard.clone() }, own), own));
    assert_eq!(with(scene.options("own"), own).unwrap().bases[0].id, own);
    assert_eq!(with(BackupOptions { series: "new".into(), ..standard }, plain).unwrap().bases[0].id, plain);
}
