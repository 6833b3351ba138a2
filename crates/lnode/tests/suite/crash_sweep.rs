//! The promise: whatever single store operation a backup or a restore dies at, everything committed before is intact, the
//! repository is whole, and the next run works at once and reuses what was uploaded.
//!
//! Method: run once and count the operations; then for every n run again on a copy of the store that fails for good from
//! operation n on (with n applied, and not applied), reopen the copy as a new process would, check it with all content read,
//! restore every version byte for byte, and back up again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::*;
use larder_job::JobContext;
use larder_rewrite::check::ReadData;
use larder_rewrite::{CheckOptions, check};
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::{FaultStore, Faults, Memory, Stop, data};

fn options() -> StoreOptions {
    // A stopped store never comes back: no use in asking for long.
    let soon = Duration::from_millis(1);
    StoreOptions { retry_deadline: soon, first_deadline: soon, ..StoreOptions::default() }
}

fn open(runtime: &tokio::runtime::Runtime, store: Store) -> Repository {
    let entropy = std::sync::Arc::new(larder_testkit::entropy());
    runtime.block_on(Repository::open(store, PASSWORD, entropy)).expect("the repository opens")
}

fn plain(memory: &Memory) -> Store {
    Store::from_object_store(memory.store(), "", &options()).unwrap()
}

fn faulty(memory: &Memory) -> (Store, Faults) {
    let (store, faults) = FaultStore::new(memory.store());
    (Store::from_object_store(store, "", &options()).unwrap(), faults)
}

fn write_tree(root: &Path, edition: u64) {
    fs::create_dir_all(root.join("folder")).unwrap();
    fs::write(root.join("large"), data::edited(&data::mixed(1, 1_500_000), edition, 3, 100)).unwrap();
    fs::write(root.join("folder/small"), format!("edition {edition}")).unwrap();
    fs::write(root.join("same"), data::text(7, 20_000)).unwrap();
}

struct Scene {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    /// A repository with one version of the first edition.
    before: Memory,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let before = Memory::new();
        let context = context(&runtime, init(&runtime, plain(&before)));
        let scene = Self { dir, runtime, before };
        write_tree(&scene.source(), 0);
        let mut copy = std::process::Command::new("cp");
        copy.arg("-a").arg(scene.source()).arg(scene.dir.path().join("first"));
        assert!(copy.status().unwrap().success());
        backup(&context, &scene.source()).unwrap();
        write_tree(&scene.source(), 1);
        scene
    }

    fn source(&self) -> std::path::PathBuf {
        self.dir.path().join("source")
    }

    fn context(&self, memory: &Memory) -> JobContext {
        context(&self.runtime, open(&self.runtime, plain(memory)))
    }

    /// Everything that must hold whatever happened: the repository is whole, and each version is one of the two editions.
    fn is_whole(&self, memory: &Memory, expected: &[&Path], at: &str) {
        let context = self.context(memory);
        let report = check(&context, &CheckOptions { read_data: ReadData::All, ..CheckOptions::default() }).unwrap();
        assert_eq!(report.damages, [], "{at}");
        let versions = versions(&context);
        assert_eq!(versions.len(), expected.len(), "{at}");
        for (version, original) in versions.iter().zip(expected) {
            let target = tempfile::tempdir_in(self.dir.path()).unwrap();
            let report = restore(&context, version, &self.source(), target.path()).unwrap();
            assert_eq!(report.errors, 0, "{at}");
            assert_eq!(differences(original, target.path()), "", "{at}");
        }
    }
}

#[test]
fn a_backup_cut_at_any_operation_leaves_every_version_whole_and_the_next_run_works() {
    let scene = Scene::new();
    let (first, source) = (scene.dir.path().join("first"), scene.source());
    let run = |memory: &Memory, cut: Option<(u64, Stop)>| {
        let (store, faults) = faulty(memory);
        let context = context(&scene.runtime, open(&scene.runtime, store));
        let opened = faults.count();
        if let Some((n, stop)) = cut {
            faults.stop_at(opened + n, stop);
        }
        let result = backup(&context, &source);
        (result, faults.count() - opened)
    };
    let (result, operations) = run(&scene.before.snapshot(), None);
    result.expect("an undisturbed backup succeeds");
    assert!(operations >= 10, "{operations} operations");
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            let memory = scene.before.snapshot();
            let (result, _) = run(&memory, Some((n, stop)));
            // A commit that took effect although the job never heard so is a version; closing the lease comes after.
            let committed = versions(&scene.context(&memory)).len() == 2;
            assert!(result.is_err() || committed, "{at}: reported as done, but there is no version");
            let expected: &[&Path] = if committed { &[&first, &source] } else { &[&first] };
            scene.is_whole(&memory, expected, &at);
            let report = backup(&scene.context(&memory), &source).expect("the next run works at once");
            if !committed {
                assert_eq!(report.statistics.errors, 0, "{at}");
            }
            let expected: &[&Path] = if committed { &[&first, &source, &source] } else { &[&first, &source] };
            scene.is_whole(&memory, expected, &at);
        }
    }
}

#[test]
fn what_a_dead_job_uploaded_is_not_uploaded_again() {
    let scene = Scene::new();
    let memory = Memory::new();
    let (store, faults) = faulty(&memory);
    let context = context(&scene.runtime, init(&scene.runtime, store));
    // Dies at its commit, when everything else is there.
    let when = larder_testkit::When::kind(larder_testkit::OpKind::Put).path("versions/");
    let dead = larder_testkit::Fault::FailBefore(larder_testkit::Failure::Status(403));
    faults.add(when, dead, larder_testkit::Times::Always);
    backup(&context, &scene.source()).expect_err("it cannot commit");
    faults.clear();
    let context = scene.context(&memory);
    let report = backup(&context, &scene.source()).unwrap();
    assert_eq!(report.adopted.len(), 1);
    assert_eq!(report.statistics.new_chunks, 0, "all chunks were there");
    scene.is_whole(&memory, &[&scene.source()], "after the second run");
    // Three runs later the dead job is history: its containers belong to versions now.
    let report = backup(&context, &scene.source()).unwrap();
    assert_eq!(report.statistics.new_chunks, 0);
}

#[test]
fn a_restore_cut_at_any_operation_changes_nothing_and_can_be_run_again() {
    let scene = Scene::new();
    let first = scene.dir.path().join("first");
    let run = |target: &Path, cut: Option<u64>| {
        let memory = scene.before.snapshot();
        let (store, faults) = faulty(&memory);
        let context = context(&scene.runtime, open(&scene.runtime, store));
        let version = versions(&context).pop().unwrap();
        let opened = faults.count();
        if let Some(n) = cut {
            faults.stop_at(opened + n, Stop::Before);
        }
        let result = restore(&context, &version, &scene.source(), target);
        (result, faults.count() - opened, memory)
    };
    let target = tempfile::tempdir_in(scene.dir.path()).unwrap();
    let (result, operations, _) = run(target.path(), None);
    result.expect("an undisturbed restore succeeds");
    for n in 0..operations {
        let target = tempfile::tempdir_in(scene.dir.path()).unwrap();
        let (result, _, memory) = run(target.path(), Some(n));
        if result.is_ok() {
            // Only what a restore can do without may fail unnoticed: its lease.
            assert_eq!(differences(&first, target.path()), "", "cut at {n}");
        }
        let (again, _, _) = run(target.path(), None);
        assert_eq!(again.expect("it can be run again").errors, 0);
        assert_eq!(differences(&first, target.path()), "", "cut at {n}, then run again");
        scene.is_whole(&memory, &[&first], &format!("restore cut at {n}"));
    }
}
