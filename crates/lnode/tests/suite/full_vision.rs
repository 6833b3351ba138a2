//! The promise of reading contents: the right bytes whatever there is room for, every container once where there is enough of
//! it, as many requests at once as asked for and no more, nothing left on disk, and no more read than pays.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use larder_job::JobContext;
use larder_lnode::{RestoreOptions, RestoreReport};
use larder_reader::{FetchOptions, FetchReport, VersionReader};
use larder_source::target::{Target, TargetOptions};
use larder_store::{RepositoryError, Store, StoreOptions};
use larder_testkit::{Fault, FaultStore, Faults, Memory, OpKind, Times, When, data};

struct Scene {
    dir: tempfile::TempDir,
    memory: Memory,
    faults: Faults,
    context: JobContext,
    // Last: what runs on it must be gone before.
    runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let (dir, runtime, memory) = (tempfile::tempdir().unwrap(), runtime(), Memory::new());
        let (store, faults) = FaultStore::new(memory.store());
        let options = StoreOptions { attempt_timeout: Duration::from_millis(250), ..StoreOptions::default() };
        let repository = init(&runtime, Store::from_object_store(store, "", &options).unwrap());
        let context = context(&runtime, repository);
        fs::create_dir(dir.path().join("source")).unwrap();
        Self { dir, memory, faults, context, runtime }
    }

    /// A file whose newest version has pieces of many containers all over, and one that does not change.
    fn scattered() -> Self {
        let scene = Self::new();
        let mut content = data::random(1, 26 << 20);
        scene.write("a", &data::random(2, 3 << 20));
        scene.write("large", &content);
        scene.backup();
        for version in 0..3_u64 {
            for place in (version as usize * 70_000..content.len() - 80_000).step_by(300_000) {
                content[place..place + 60_000].copy_from_slice(&data::random(version << 32 | place as u64, 60_000));
            }
            scene.write("large", &content);
            scene.backup();
        }
        scene
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.source().join(name), content).unwrap();
    }

    fn backup(&self) {
        backup(&self.context, &self.source()).unwrap();
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn scratch(&self) -> PathBuf {
        self.dir.path().join("scratch")
    }

    fn options(&self, prefetch: usize, memory: u64, disk: u64) -> FetchOptions {
        let mut options = FetchOptions::default();
        (options.prefetch, options.cache_memory, options.cache_disk) = (prefetch, Some(memory as usize), disk);
        options.scratch = self.scratch();
        options
    }

    /// Reads one file of the newest version.
    fn dump(&self, name: &str, options: &FetchOptions) -> (Result<Vec<u8>, String>, FetchReport) {
        let version = versions(&self.context).pop().unwrap();
        let reader = VersionReader::open(&self.context, &version).unwrap().fetching(options.clone());
        let path = self.source().join(name).as_os_str().as_bytes()[1..].to_vec();
        let mut bytes = Vec::new();
        let mut result = Ok(());
        let visited = reader.visit_contents(&path, |_, content| {
            result = std::io::copy(content, &mut bytes).map(drop);
            Ok::<(), RepositoryError>(())
        });
        visited.unwrap();
        (result.map(|()| bytes).map_err(|error| error.to_string()), reader.fetched())
    }

    fn restore(&self, context: &JobContext, options: &FetchOptions) -> RestoreReport {
        let version = versions(context).pop().unwrap();
        let subpath = Some(self.source().as_os_str().as_bytes()[1..].to_vec());
        let options = RestoreOptions { subpath, fetch: options.clone(), ..RestoreOptions::default() };
        let target = Target::open(&self.dir.path().join("target"), TargetOptions::default()).unwrap();
        larder_lnode::restore(context, &version, &target, &options).unwrap()
    }

    fn data_reads(&self) -> u64 {
        let is_read = |op: &&larder_testkit::Op| op.kind == OpKind::Get && op.path.starts_with("data/");
        self.faults.log().iter().filter(is_read).count() as u64
    }

    fn reading_paths(&self, from: usize) -> HashSet<String> {
        let log = self.faults.log();
        let reads = log[from..].iter().filter(|op| op.kind == OpKind::Get && op.path.starts_with("data/"));
        reads.map(|op| op.path.clone()).collect()
    }
}

#[test]
fn the_bytes_are_right_and_nothing_is_read_twice_where_there_is_room() {
    let scene = Scene::scattered();
    let content = fs::read(scene.source().join("large")).unwrap();
    let (large, small) = (1 << 30, 9 << 20);
    let mut again = HashMap::new();
    for prefetch in [0, 1, 4] {
        for (memory, disk) in [(large, 0), (small, large), (small, 0), (1, 0), (1, large)] {
            let before = scene.data_reads();
            let (dumped, fetched) = scene.dump("large", &scene.options(prefetch, memory, disk));
            let what = format!("prefetch {prefetch}, memory {memory}, disk {disk}: {fetched:?}");
            assert!(dumped.unwrap() == content, "{what}");
            assert_eq!(fetched.requests, scene.data_reads() - before, "{what}");
            assert_eq!(fetched.used, content.len() as u64, "{what}");
            // What does not fit as a whole is read in pieces, each once.
            let is_enough = memory > 1 || disk == large;
            assert_eq!(fetched.again == 0, is_enough, "{what}");
            assert_eq!(fetched.disk_hits > 0, memory < large && disk == large, "{what}");
            // A container goes to disk once at most, and never comes back as a whole.
            assert!(fetched.disk_written <= fetched.bytes, "{what}");
            assert!(fetched.disk_read <= fetched.disk_hits * (600 << 10), "{what}");
            let without = *again.entry((memory, disk)).or_insert(fetched.again);
            assert!(
                fetched.again <= without,
                "looking ahead reads nothing again that is not read again without: {what}"
            );
        }
    }
    assert_eq!(fs::read_dir(scene.scratch()).unwrap().count(), 0, "nothing stays on disk");
}

#[test]
fn what_a_crash_left_on_disk_goes_with_the_next_run() {
    let scene = Scene::scattered();
    fs::create_dir(scene.scratch()).unwrap();
    fs::write(scene.scratch().join("larder-scratch-1-0"), "of a process that died").unwrap();
    let (dumped, fetched) = scene.dump("large", &scene.options(4, 9 << 20, 1 << 30));
    assert_eq!((dumped.map(|bytes| bytes.len()), fetched.disk_hits > 0), (Ok(26 << 20), true));
    assert_eq!(fs::read_dir(scene.scratch()).unwrap().count(), 0);
}

#[test]
fn without_a_place_for_the_disk_tier_everything_is_read_all_the_same() {
    let scene = Scene::scattered();
    let mut options = scene.options(4, 9 << 20, 1 << 30);
    options.scratch = PathBuf::from("/dev/null/nothing");
    let (dumped, fetched) = scene.dump("large", &options);
    assert_eq!(dumped.map(|bytes| bytes.len()), Ok(26 << 20));
    assert!(fetched.again > 0 && fetched.disk_hits == 0, "{fetched:?}");
}

/// The temporary file gives back rubbish, or ends too early: what is wrong is read from the store again.
#[test]
fn damage_to_the_temporary_file_costs_reading_again_and_no_wrong_byte() {
    let scene = Scene::scattered();
    let content = fs::read(scene.source().join("large")).unwrap();
    for is_cut in [false, true] {
        let version = versions(&scene.context).pop().unwrap();
        let options = scene.options(2, 9 << 20, 1 << 30);
        let reader = VersionReader::open(&scene.context, &version).unwrap().fetching(options);
        let path = scene.source().join("large").as_os_str().as_bytes()[1..].to_vec();
        let (mut bytes, mut damaged) = (Vec::new(), 0);
        let visited = reader.visit_contents(&path, |_, content| {
            while std::io::copy(&mut content.take(1 << 20), &mut bytes).unwrap() > 0 {
                damaged += damage_files_of(&scene.scratch(), is_cut);
            }
            Ok::<(), RepositoryError>(())
        });
        visited.unwrap();
        let fetched = reader.fetched();
        assert!(bytes == content, "{fetched:?}");
        assert!(damaged > 0 && fetched.again > 0 && fetched.disk_written > 0, "{damaged} {fetched:?}");
    }
}

/// Files without names that this process has open in a folder, by way of its descriptors.
fn damage_files_of(folder: &Path, is_cut: bool) -> usize {
    let mut count = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(folder)) {
            let file = fs::OpenOptions::new().write(true).open(entry.path()).unwrap();
            let length = file.metadata().unwrap().len();
            match is_cut {
                true => file.set_len(0).unwrap(),
                false => file.write_all_at(&vec![0xA5; length as usize], 0).unwrap(),
            }
            count += usize::from(length > 0);
        }
    }
    count
}

/// No request is answered: so many are asked, whatever time passes, and when they are answered at last all comes out right.
#[test]
fn as_many_requests_are_under_way_as_asked_for() {
    let scene = Arc::new(Scene::scattered());
    for prefetch in [0, 1, 3] {
        for by_file in [false, true] {
            let _ = fs::remove_dir_all(scene.dir.path().join("target"));
            scene.faults.add(When::kind(OpKind::Get).path("data/"), Fault::Hang, Times::Always);
            let before = scene.faults.log().len();
            let job = std::thread::spawn({
                let scene = scene.clone();
                move || {
                    let options = scene.options(prefetch, 1 << 30, 0);
                    match by_file {
                        true => scene.restore(&scene.context, &options).errors,
                        false => scene.dump("large", &options).0.map_or(1, |_| 0),
                    }
                }
            });
            let wanted = prefetch.max(1);
            while scene.reading_paths(before).len() < wanted {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(scene.reading_paths(before).len(), wanted, "prefetch {prefetch}, by file: {by_file}");
            scene.faults.clear();
            assert_eq!(job.join().unwrap(), 0);
        }
    }
}

#[test]
fn little_of_large_containers_is_not_read_whole() {
    let scene = Scene::new();
    let large = data::random(5, 30 << 20);
    scene.write("large", &large);
    scene.backup();
    fs::remove_file(scene.source().join("large")).unwrap();
    let pieces: Vec<u8> = (0..3).flat_map(|n| large[n * 10_000_000..n * 10_000_000 + 300_000].to_vec()).collect();
    scene.write("pieces", &pieces);
    scene.backup();
    let options = scene.options(4, 1 << 30, 0);
    let (dumped, of_dump) = scene.dump("pieces", &options);
    assert!(dumped.unwrap() == pieces);
    let of_restore = scene.restore(&scene.context, &options).fetched;
    for fetched in [of_dump, of_restore] {
        assert!(fetched.containers >= 3 && fetched.again == 0, "{fetched:?}");
        assert!(fetched.bytes < 6 << 20, "{fetched:?}");
        assert!(fetched.requests <= 2 * fetched.containers, "{fetched:?}");
    }
    assert_eq!(differences(&scene.source(), &scene.dir.path().join("target")), "");
}

#[test]
fn damage_is_named_by_the_file_that_needs_what_is_damaged() {
    let mut scene = Scene::new();
    scene.write("a", &data::random(7, 20 << 20));
    scene.backup();
    let before: HashSet<String> = scene.runtime.block_on(scene.memory.paths()).into_iter().collect();
    scene.write("b", &data::random(8, 20 << 20));
    scene.backup();
    let paths = scene.runtime.block_on(scene.memory.paths());
    let victim = paths.iter().find(|path| path.starts_with("data/") && !before.contains(*path)).unwrap();
    scene.runtime.block_on(scene.memory.change(victim, |bytes| bytes[1000] ^= 1));
    let options = scene.options(6, 1 << 30, 0);
    assert!(scene.dump("a", &options).0.is_ok());
    let error = scene.dump("b", &options).0.expect_err("it is damaged");
    assert!(error.contains(victim.as_str()), "{error}");
    let problems = Arc::new(Problems::default());
    scene.context.progress = problems.clone();
    let report = scene.restore(&scene.context, &options);
    assert_eq!((report.errors, report.damaged, report.files_restored), (1, 1, 1));
    let problems: Vec<_> = problems.0.lock().iter().map(|problem| problem.path.clone()).collect();
    assert_eq!(problems, [b"b".to_vec()]);
}
