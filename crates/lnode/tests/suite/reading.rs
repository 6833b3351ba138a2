//! The promise of every job that reads (`docs/concurrency.md`): it says so first and looks then, in the store and not in a
//! cache; it renews what it said, and closes it. A store that takes nothing is read all the same. What was forgotten
//! meanwhile is not called damaged.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use larder_format::mark::Forgotten;
use larder_format::names;
use larder_job::{JobContext, Progress};
use larder_lnode::{RestoreError, RestoreOptions};
use larder_reader::{ReadError, VersionReader};
use larder_rewrite::check::ReadData;
use larder_rewrite::{CheckOptions, CheckReport, check};
use larder_source::target::{Target, TargetOptions};
use larder_store::catalog::Version;
use larder_store::{Store, StoreOptions};
use larder_testkit::{Failure, Fault, FaultStore, Faults, Memory, OpKind, Times, When, data};

type Job<'a> = Box<dyn Fn() + 'a>;

struct Scene {
    dir: tempfile::TempDir,
    memory: Memory,
    faults: Faults,
    context: JobContext,
    version: Version,
    // Last: what runs on it must be gone before.
    runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let (dir, runtime, memory) = (tempfile::tempdir().unwrap(), runtime(), Memory::new());
        let (store, faults) = FaultStore::new(memory.store());
        let soon = Duration::from_millis(1);
        let options = StoreOptions { retry_deadline: soon, first_deadline: soon, ..StoreOptions::default() };
        let repository = init(&runtime, Store::from_object_store(store, "", &options).unwrap());
        let context = context(&runtime, repository);
        let source = dir.path().join("source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("a"), "first").unwrap();
        fs::write(source.join("large"), data::random(3, 3_000_000)).unwrap();
        backup(&context, &source).unwrap();
        let version = versions(&context).pop().unwrap();
        Self { dir, memory, faults, context, version, runtime }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("target")
    }

    fn restore(&self) -> Result<larder_lnode::RestoreReport, RestoreError> {
        restore(&self.context, &self.version, &self.source(), &self.target())
    }

    fn check(&self) -> CheckReport {
        check(&self.context, &CheckOptions { read_data: ReadData::All, ..CheckOptions::default() }).unwrap()
    }

    /// Everything that a reading job may be.
    fn jobs(&self) -> [(&'static str, Job<'_>); 3] {
        [
            ("restore", Box::new(|| assert_eq!(self.restore().unwrap().errors, 0))),
            ("check", Box::new(|| assert_eq!(self.check().damages, []))),
            (
                "dump",
                Box::new(|| {
                    let (reader, reading) = VersionReader::announce(&self.context, &self.version).unwrap();
                    let mut bytes = 0;
                    reader
                        .visit_contents(b"", |_, content| {
                            bytes += std::io::copy(content, &mut std::io::sink()).unwrap();
                            Ok::<(), larder_store::RepositoryError>(())
                        })
                        .unwrap();
                    assert_eq!(bytes, 3_000_005);
                    reading.end();
                }),
            ),
        ]
    }

    fn register(&self) -> String {
        names::version(self.version.series, self.version.id(), 0)
    }

    fn mark(&self) -> String {
        names::forgotten(self.version.series, self.version.id())
    }

    /// What is at the mark's name when somebody forgets the version.
    fn mark_bytes(&self) -> Vec<u8> {
        let mark = Forgotten { time_ms: 0, host: "host".to_owned(), reason: "for a test".to_owned() };
        let keys = self.context.repository.keys();
        mark.encode(keys, keys.domain(), self.version.series, self.version.id(), [9; 32]).unwrap()
    }

    fn remove(&self, prefix: &str) {
        self.runtime.block_on(async {
            for path in self.memory.paths().await.iter().filter(|path| path.starts_with(prefix)) {
                self.memory.remove(path).await;
            }
        });
    }

    fn leases(&self) -> Vec<String> {
        let paths = self.runtime.block_on(self.memory.paths());
        paths.into_iter().filter(|path| path.starts_with(names::JOBS)).collect()
    }
}

/// Remembers notes.
#[derive(Debug, Default)]
struct Notes(parking_lot::Mutex<Vec<String>>);

impl Progress for Notes {
    fn note(&self, text: &str) {
        self.0.lock().push(text.to_owned());
    }
}

#[test]
fn the_lease_comes_first_then_the_mark_then_the_register_and_done_is_last() {
    let scene = Scene::new();
    for (job, run) in scene.jobs() {
        let before = scene.faults.log().len();
        run();
        let log = scene.faults.log()[before..].to_vec();
        let at = |kind: OpKind, part: &str| {
            let found = log.iter().position(|op| op.kind == kind && op.path.contains(part));
            found.unwrap_or_else(|| panic!("{job}: no {kind:?} of {part} in {log:?}"))
        };
        let lease = log.iter().position(|op| op.kind == OpKind::Put).unwrap();
        assert!(log[lease].path.starts_with(names::JOBS) && log[lease].path.ends_with("/0"), "{job}: {log:?}");
        let after = |kind: OpKind, part: &str| {
            let found = log[lease..].iter().position(|op| op.kind == kind && op.path.contains(part));
            lease + found.unwrap_or_else(|| panic!("{job}: no {kind:?} of {part} after the lease in {log:?}"))
        };
        let mark = after(OpKind::Get, &scene.mark());
        let register = after(OpKind::Get, &scene.register());
        assert!(lease < mark && mark < register, "{job}: {log:?}");
        assert!(register < at(OpKind::Get, "data/"), "{job}: {log:?}");
        assert_eq!(at(OpKind::Put, "/done"), log.len() - 1, "{job}: {log:?}");
    }
}

#[test]
fn a_long_read_renews_its_lease_and_then_closes_it() {
    let mut scene = Scene::new();
    scene.context.renew_every = Duration::from_millis(5);
    let (_, reading) = VersionReader::announce(&scene.context, &scene.version).unwrap();
    let renewals = || scene.leases().iter().filter(|path| !path.ends_with("/0") && !path.ends_with("/done")).count();
    while renewals() < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let open = scene.context.executor.block_on(scene.context.repository.unfinished_jobs()).unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].lease.pins.iter().map(|pin| pin.job).collect::<Vec<_>>(), [scene.version.id()]);
    reading.end();
    assert!(scene.context.executor.block_on(scene.context.repository.unfinished_jobs()).unwrap().is_empty());
    let after = scene.leases();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(scene.leases(), after, "nothing is renewed after the end");
}

#[test]
fn a_read_that_is_dropped_renews_no_more() {
    let mut scene = Scene::new();
    scene.context.renew_every = Duration::from_millis(5);
    drop(VersionReader::announce(&scene.context, &scene.version).unwrap());
    // A renewal may be under way.
    std::thread::sleep(Duration::from_millis(20));
    let after = scene.leases();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(scene.leases(), after);
    assert!(!after.iter().any(|path| path.ends_with("/done") && !path.contains(&scene.version.id().to_string())));
}

#[test]
fn a_store_that_may_only_be_read_is_read_with_a_note() {
    let mut scene = Scene::new();
    let notes = Arc::new(Notes::default());
    scene.context.progress = notes.clone();
    let (refused, always) = (Fault::FailBefore(Failure::Status(403)), Times::Always);
    scene.faults.add(When::kind(OpKind::Put), refused, always);
    for (job, run) in scene.jobs() {
        run();
        let notes = std::mem::take(&mut *notes.0.lock());
        assert_eq!(notes.len(), 1, "{job}: {notes:?}");
        assert!(notes[0].contains("access denied"), "{job}: {notes:?}");
    }
    assert_eq!(differences(&scene.source(), &scene.target()), "");
}

#[test]
fn a_version_forgotten_before_the_look_is_not_read() {
    for register_is_gone in [false, true] {
        let scene = Scene::new();
        match register_is_gone {
            true => scene.remove(&scene.register()),
            false => scene.runtime.block_on(scene.memory.put(&scene.mark(), scene.mark_bytes())),
        }
        let error = scene.restore().expect_err("it is forgotten");
        assert!(matches!(error, RestoreError::Forgotten { id } if id == scene.version.id()), "{error}");
        assert_eq!(fs::read_dir(scene.target()).map_or(0, Iterator::count), 0, "nothing was restored");
        let error = VersionReader::announce(&scene.context, &scene.version).expect_err("it is forgotten");
        assert!(matches!(error, ReadError::Forgotten { .. }), "{error}");
        assert_eq!(scene.leases().iter().filter(|path| path.ends_with("/done")).count(), 3, "each lease is closed");
    }
}

/// Forgets the version and collects what it needs when the job has begun to read it.
struct Forgetful {
    memory: Memory,
    runtime: tokio::runtime::Handle,
    mark: (String, Vec<u8>),
}

impl Progress for Forgetful {
    fn expectation_is_complete(&self) {
        self.runtime.block_on(async {
            self.memory.put(&self.mark.0, self.mark.1.clone()).await;
            for path in self.memory.paths().await.iter().filter(|path| path.starts_with("data/")) {
                self.memory.remove(path).await;
            }
        });
    }
}

impl Scene {
    fn forgotten_while_it_is_read() -> Self {
        let mut scene = Self::new();
        let (memory, runtime) = (scene.memory.clone(), scene.runtime.handle().clone());
        let mark = (scene.mark(), scene.mark_bytes());
        scene.context.progress = Arc::new(Forgetful { memory, runtime, mark });
        scene
    }
}

#[test]
fn what_goes_missing_with_its_version_is_forgotten_and_not_damaged() {
    let scene = Scene::forgotten_while_it_is_read();
    let target = Target::open(&scene.target(), TargetOptions::default()).unwrap();
    let restored = larder_lnode::restore(&scene.context, &scene.version, &target, &RestoreOptions::default());
    let error = restored.expect_err("it was forgotten");
    assert!(matches!(error, RestoreError::Forgotten { .. }), "{error}");
}

#[test]
fn a_check_does_not_call_forgotten_versions_damaged() {
    let scene = Scene::forgotten_while_it_is_read();
    let report = scene.check();
    assert_eq!((report.damages, report.forgotten), (Vec::new(), vec![scene.version.id()]));
}

/// Whoever may create objects must not be able to keep what is there from being read.
#[test]
fn a_mark_that_does_not_open_hides_nothing() {
    let scene = Scene::new();
    scene.runtime.block_on(scene.memory.put(&scene.mark(), "planted"));
    assert_eq!(scene.restore().unwrap().errors, 0);
    assert_eq!(scene.check().forgotten, []);
    assert_eq!(differences(&scene.source(), &scene.target()), "");
}

#[test]
fn what_is_missing_of_a_version_that_is_there_is_damage() {
    let scene = Scene::new();
    scene.remove("data/");
    let report = scene.restore().unwrap();
    assert_eq!((report.errors, report.damaged), (2, 2));
    let report = scene.check();
    assert_eq!((report.damages.len(), report.forgotten.len()), (1, 0));
}
