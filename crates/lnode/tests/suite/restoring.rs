//! What a restore does with what lies in the target already, and with what the repository has lost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::*;
use larder_job::JobContext;
use larder_lnode::{RestoreOptions, RestoreReport};
use larder_source::target::{Overwrite, Target, TargetOptions};
use larder_testkit::data;

struct Scene {
    dir: tempfile::TempDir,
    context: JobContext,
    _runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let (dir, context, _runtime) = restore_scene();
        Self { dir, context, _runtime }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("target")
    }

    fn restore(&self, overwrite: Overwrite) -> RestoreReport {
        self.restore_with(overwrite, &RestoreOptions::default())
    }

    fn restore_with(&self, overwrite: Overwrite, options: &RestoreOptions) -> RestoreReport {
        use std::os::unix::ffi::OsStrExt;
        let mut target = TargetOptions::default();
        target.overwrite = overwrite;
        let target = Target::open(&self.target(), target).unwrap();
        let version = versions(&self.context).pop().unwrap();
        let subpath = Some(self.source().as_os_str().as_bytes()[1..].to_vec());
        larder_lnode::restore(&self.context, &version, &target, &RestoreOptions { subpath, ..options.clone() }).unwrap()
    }

    fn is_equal(&self) {
        assert_eq!(differences(&self.source(), &self.target()), "");
    }
}

/// Inode, time of the last change of anything, allocated blocks.
fn state(path: &Path) -> (u64, i64, i64, u64) {
    let found = fs::metadata(path).unwrap();
    (found.ino(), found.ctime(), found.ctime_nsec(), found.blocks())
}

/// A dense file of several containers, a sparse one, and a small one.
fn write_files(root: &Path) {
    fs::write(root.join("large"), data::random(5, 20_000_000)).unwrap();
    fs::write(root.join("small"), "small").unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(30_000_000).unwrap();
    sparse.write_all_at(&data::random(6, 2_000_000), 10_485_760).unwrap();
    sparse.write_all_at(&data::random(7, 100_000), 20_971_520).unwrap();
}

const FILES: [&str; 3] = ["large", "small", "sparse"];

#[test]
fn equal_files_are_neither_fetched_nor_touched_under_any_policy() {
    let scene = Scene::new();
    write_files(&scene.source());
    backup(&scene.context, &scene.source()).unwrap();
    let first = scene.restore(Overwrite::Always);
    // A file system keeps holes by its blocks.
    assert!(first.files_restored == 3 && (22_100_005..22_200_000).contains(&first.bytes_restored), "{first:?}");
    let before = FILES.map(|name| state(&scene.target().join(name)));
    for overwrite in [Overwrite::Always, Overwrite::IfChanged, Overwrite::IfNewer, Overwrite::Never] {
        let report = scene.restore(overwrite);
        assert_eq!((report.files_restored, report.bytes_restored), (0, 0), "{overwrite:?}");
        assert_eq!(report.files_up_to_date + report.files_kept, 3, "{overwrite:?}");
        assert_eq!(report.fetched.containers, 0, "{overwrite:?}");
        assert_eq!(FILES.map(|name| state(&scene.target().join(name))), before, "{overwrite:?}");
    }
    scene.is_equal();
}

/// Another time and equal content: only the time is put right.
#[test]
fn a_file_that_only_looks_changed_is_not_written() {
    let scene = Scene::new();
    write_files(&scene.source());
    backup(&scene.context, &scene.source()).unwrap();
    scene.restore(Overwrite::Always);
    let long_ago = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    for name in FILES {
        fs::File::options().write(true).open(scene.target().join(name)).unwrap().set_times(long_ago).unwrap();
    }
    for overwrite in [Overwrite::IfChanged, Overwrite::Always] {
        let report = scene.restore(overwrite);
        assert_eq!((report.files_restored, report.fetched.containers), (0, 0), "{overwrite:?}");
        scene.is_equal();
    }
}

#[test]
fn one_changed_chunk_in_the_middle_is_repaired_and_nothing_else_written() {
    for (name, offset) in [("large", 9_876_543), ("sparse", 11_000_000)] {
        let scene = Scene::new();
        write_files(&scene.source());
        backup(&scene.context, &scene.source()).unwrap();
        scene.restore(Overwrite::Always);
        let path = scene.target().join(name);
        let (inode, .., blocks) = state(&path);
        let file = fs::File::options().write(true).open(&path).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"rotten", offset).unwrap();
        // Size and time tell nothing.
        file.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
        assert_eq!(scene.restore(Overwrite::IfChanged).files_restored, 0, "{name}");
        let report = scene.restore(Overwrite::Always);
        assert_eq!((report.files_restored, report.files_up_to_date, report.fetched.containers), (1, 2, 1), "{name}");
        assert!((6..100_000).contains(&report.bytes_restored), "{name}: {} bytes", report.bytes_restored);
        let after = state(&path);
        assert_eq!((inode, blocks), (after.0, after.3), "{name}");
        scene.is_equal();
    }
}

#[test]
fn old_files_of_another_length_become_what_they_should() {
    for length in [0_u64, 1, 3_000_000, 19_999_999, 20_000_001, 40_000_000] {
        let scene = Scene::new();
        write_files(&scene.source());
        backup(&scene.context, &scene.source()).unwrap();
        scene.restore(Overwrite::Always);
        for name in FILES {
            fs::File::options().write(true).open(scene.target().join(name)).unwrap().set_len(length).unwrap();
        }
        let report = scene.restore(Overwrite::Always);
        assert_eq!(report.errors, 0, "{length}");
        scene.is_equal();
    }
}

/// A restore that stopped half way leaves files that are marked; what is in them is not fetched again.
#[test]
fn an_unfinished_file_is_continued() {
    let scene = Scene::new();
    write_files(&scene.source());
    backup(&scene.context, &scene.source()).unwrap();
    scene.restore(Overwrite::Always);
    let path = scene.target().join("large");
    fs::File::options().write(true).open(&path).unwrap().set_len(15_000_000).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o1600)).unwrap();
    let report = scene.restore(Overwrite::Never);
    assert_eq!(report.files_restored, 1);
    assert!((5_000_000..5_100_000).contains(&report.bytes_restored), "{}", report.bytes_restored);
    scene.is_equal();
}

/// All memory that may be had is the least there is, so that files come in several windows; each reads what it needs once.
#[test]
fn a_file_larger_than_a_window_is_compared_and_written_in_parts() {
    let mut scene = Scene::new();
    // Pages of a database in a scattered order: every one its own run.
    let mut pages: Vec<_> = (0..6000_u64).map(|page| data::random(page, 4096)).collect();
    pages[0][..101].copy_from_slice(&database_header());
    fs::write(scene.source().join("a"), pages.concat()).unwrap();
    backup(&scene.context, &scene.source()).unwrap();
    let mut scattered: Vec<_> = (0..6000).map(|n| (n * 2777) % 6000).collect();
    scattered.dedup();
    let scattered: Vec<_> = scattered.iter().flat_map(|n| pages[*n].clone()).collect();
    fs::write(scene.source().join("a"), &scattered).unwrap();
    fs::write(scene.source().join("b"), &scattered).unwrap();
    backup(&scene.context, &scene.source()).unwrap();
    let once = scene.restore(Overwrite::Always).fetched;
    assert!(once.containers > 1 && once.bytes < 30_000_000, "the pages are those of the first version: {once:?}");
    assert_eq!(once.again, 0, "one window: {once:?}");
    fs::remove_dir_all(scene.target()).unwrap();
    scene.context.memory = 0;
    let fetched = scene.restore(Overwrite::Always).fetched;
    // 12,000 runs, a window of 4096 and then of 2048.
    let windows = 5;
    assert_eq!(fetched.containers, once.containers);
    assert!(fetched.again > 0 && fetched.again <= (windows - 1) * fetched.containers, "{fetched:?}");
    scene.is_equal();
    let file = fs::File::options().write(true).open(scene.target().join("b")).unwrap();
    for offset in (0..scattered.len() as u64).step_by(65_536) {
        file.write_all_at(b"rotten", offset).unwrap();
    }
    let report = scene.restore(Overwrite::Always);
    assert_eq!((report.files_restored, report.files_up_to_date), (1, 1));
    scene.is_equal();
}

fn objects(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(objects(&path)) } else { found.push(path) }
    }
    found
}

/// Entries behind damaged metadata have a known place, and come back; what is not known is said, and nothing is deleted.
#[test]
fn a_restore_goes_on_behind_damaged_metadata() {
    let mut scene = Scene::new();
    let problems = Arc::new(Problems::default());
    scene.context.progress = problems.clone();
    let mut random = data::random(9, 200 * 9_000).into_iter();
    for folder in 0..30 {
        let folder = scene.source().join(format!("folder-{folder:02}"));
        fs::create_dir(&folder).unwrap();
        for _ in 0..300 {
            let name: String = random.by_ref().take(200).map(|byte| char::from(b'a' + byte % 26)).collect();
            fs::write(folder.join(&name), &name[..5]).unwrap();
        }
    }
    backup(&scene.context, &scene.source()).unwrap();
    let object = objects(&scene.dir.path().join("repository/meta")).pop().unwrap();
    let mut bytes = fs::read(&object).unwrap();
    bytes[100] ^= 1;
    fs::remove_file(&object).unwrap();
    fs::write(&object, bytes).unwrap();
    fs::create_dir(scene.target()).unwrap();
    fs::write(scene.target().join("extra"), "must stay").unwrap();
    let report = scene.restore_with(Overwrite::Always, &RestoreOptions { delete: true, ..RestoreOptions::default() });
    let problems: Vec<_> = problems.0.lock().iter().map(|problem| problem.message.clone()).collect();
    assert!(report.damaged >= 1 && report.damaged < 10, "{problems:?}");
    assert!(problems[0].contains("is not known") && problems[0].contains("meta/"), "{problems:?}");
    assert!(report.files_restored > 1000 && report.files_restored < 9_000, "{} files", report.files_restored);
    assert!(scene.target().join("extra").exists());
    // What came back is right: nothing of the source differs in content.
    for path in objects(&scene.target()).iter().filter(|path| !path.ends_with("extra")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(fs::read(path).unwrap(), &name.as_bytes()[..5]);
    }
}
