//! Promise: a normal user restores everything that a normal user can own, and is told once per kind what could not be.
//!
//! Run by root, each test runs itself again as a user without rights.

#[path = "target/support/mod.rs"]
mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use larder_format::entry::{EntryKind, Xattr};
use larder_source::target::{DirDecision, KeptReason, NodeDecision, NoteKind, Overwrite, PutDecision, TargetCause};
use support::*;

/// A user and group number that own nothing.
const NOBODY: u32 = 65_534;

/// Whether the test shall go on in this process, which then has no rights.
fn without_rights(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    // The program may lie where nobody else can reach it, so it is taken along.
    let place = tempfile::tempdir().expect("a temporary folder");
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).expect("opened to all");
    let program = place.path().join("test");
    // By a process of its own: a program that is open for writing does not start. Another thread's
    // child would inherit the open file for a moment.
    let this = std::env::current_exe().expect("this program");
    assert!(Command::new("cp").args([&this, &program]).status().expect("cp runs").success());
    let work = place.path().join("work");
    std::fs::create_dir(&work).expect("made");
    std::os::unix::fs::chown(&work, Some(NOBODY), Some(NOBODY)).expect("given away");
    let output = Command::new(&program)
        .args([test, "--exact"])
        .env("TMPDIR", &work)
        .current_dir(&work)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("started");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&output.stderr));
    false
}

#[test]
fn owners_are_noted_once_for_all_files() {
    if !without_rights("owners_are_noted_once_for_all_files") {
        return;
    }
    let place = Place::new();
    let target = place.plain();
    for number in 0..100 {
        let mut entry = file(format!("d/f{number}"), 7);
        (entry.uid, entry.gid, entry.mode) = (0, 0, 0o6755);
        put(&target, &entry, b"content");
        let meta = std::fs::metadata(place.path(&format!("d/f{number}"))).expect("stat");
        assert_eq!(meta.uid(), rustix::process::geteuid().as_raw());
        assert_eq!(meta.mode() & 0o7777, 0o755, "nobody else's program runs as this user");
        assert_eq!(mtime(&place.path(&format!("d/f{number}"))), THEN);
    }
    let mut folder = dir("d");
    folder.uid = 0;
    target.make_dir(&folder).expect("made");
    let mut link = symlink("link", "x");
    link.uid = 0;
    target.make_node(&link).expect("made");
    target.finish_dirs().expect("finished");
    let notes = target.notes();
    assert_eq!((notes.count(NoteKind::Owner), notes.count(NoteKind::SetId)), (102, 100));
    let summary = notes.summary();
    assert_eq!(summary.len(), 2);
    assert!(!summary[0].kind.is_loss());
    assert_eq!(summary[0].examples[0].path, b"d/f0");
    assert!(summary[0].examples[0].detail.starts_with("user 0, group 0: "), "{summary:?}");
}

#[test]
fn folders_and_files_without_rights_for_their_owner_are_restored_and_restored_again() {
    if !without_rights("folders_and_files_without_rights_for_their_owner_are_restored_and_restored_again") {
        return;
    }
    let place = Place::new();
    for overwrite in [Overwrite::Always, Overwrite::Always, Overwrite::IfChanged, Overwrite::Never] {
        let target = place.overwriting(overwrite);
        for (path, bits) in
            [("d", 0o500), ("d/e", 0o000), ("d/e/g", 0o555), ("d/e/empty", 0o755), ("write-only", 0o300)]
        {
            let mut entry = dir(path);
            entry.mode = bits;
            target.make_dir(&entry).expect("made");
        }
        for (path, bits) in [("d/f", 0o400), ("d/e/f", 0o000), ("d/e/g/f", 0o444), ("write-only/f", 0o200)] {
            let mut entry = file(path, 7);
            entry.mode = bits;
            entry.xattrs = vec![Xattr { name: b"user.a".to_vec(), value: b"1".to_vec() }];
            let decision = target.put_file(&entry, b"content").expect("restored");
            if overwrite == Overwrite::Never {
                assert_eq!(decision, PutDecision::Kept(KeptReason::Exists));
            }
        }
        assert!(target.finish_overwritten().expect("on disk").is_empty());
        target.finish_dirs().expect("finished");
        assert_eq!(mode(&place.path("write-only")), 0o300);
        assert_eq!(mode(&place.path("d")), 0o500);
        assert_eq!(mode(&place.path("d/e")), 0o000);
        assert_eq!((mode(&place.path("d/f")), mtime(&place.path("d/f"))), (0o400, THEN));
        let lost: Vec<_> = target.notes().summary().into_iter().filter(|note| note.kind.is_loss()).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }
    let target = place.plain();
    std::fs::set_permissions(place.path("d/e"), PermissionsExt::from_mode(0o700)).expect("set");
    assert_eq!((mode(&place.path("d/e/g")), mode(&place.path("d/e/f"))), (0o555, 0));
    // A folder that its owner may not enter is removed all the same.
    std::fs::set_permissions(place.path("d/e"), PermissionsExt::from_mode(0o000)).expect("set");
    assert_eq!(target.make_dir(&dir("d")).expect("taken"), DirDecision::Existing);
    assert_eq!(target.delete_extra(b"d", &[&b"f"[..]], |_| ()).expect("deleted"), 1);
    assert_eq!(put(&target, &file("write-only", 3), b"new"), PutDecision::Written);
}

#[test]
fn what_only_root_may_make_is_noted() {
    if !without_rights("what_only_root_may_make_is_noted") {
        return;
    }
    let place = Place::new();
    let target = place.plain();
    let kept = NodeDecision::Kept(KeptReason::NotPossible);
    let device = entry("device", EntryKind::CharDevice { major: 1, minor: 3 }, 0o666);
    assert_eq!(target.make_node(&device).expect("decided"), kept);
    let fifo = entry("fifo", EntryKind::Fifo, 0o666);
    assert_eq!(target.make_node(&fifo).expect("made"), NodeDecision::Made);
    assert_eq!(mode(&place.path("fifo")), 0o666);
    let mut program = file("program", 7);
    program.xattrs = vec![Xattr {
        name: b"security.capability".to_vec(),
        value: vec![1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    }];
    put(&target, &program, b"content");
    let notes = target.notes();
    assert_eq!((notes.count(NoteKind::Node), notes.count(NoteKind::Capability)), (1, 1));
    assert_eq!(notes.summary().len(), 2);
}

#[test]
fn a_place_without_permission_is_an_error_of_that_path() {
    if !without_rights("a_place_without_permission_is_an_error_of_that_path") {
        return;
    }
    let place = Place::new();
    let target = larder_source::target::Target::open(std::path::Path::new("/"), place.plain().options().clone());
    let target = target.expect("everybody may look");
    for error in [
        target.put_file(&file("larder-test", 1), b"x").expect_err("not allowed"),
        target.put_file(&file("etc/larder-test/f", 1), b"x").expect_err("not allowed"),
        target.begin_file(&file("etc/larder-test", 1)).map(|_| ()).expect_err("not allowed"),
        target.make_dir(&dir("etc/larder-test")).map(|_| ()).expect_err("not allowed"),
    ] {
        assert_eq!(error.cause(), TargetCause::Denied, "{error}");
        assert!(error.path().is_some());
        assert!(error.to_string().contains("larder-test"), "{error}");
    }
    let error =
        larder_source::target::Target::open(std::path::Path::new("/etc/larder-test"), place.plain().options().clone())
            .expect_err("not allowed");
    assert_eq!(error.cause(), TargetCause::Denied);
}
