//! Promise: folders get their metadata when everything in them is restored, and what is not in the version goes only on request.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::support::*;
use larder_source::target::{
    DirDecision, FullDirectories, KeptReason, NoteKind, Overwrite, PutDecision, TargetOptions,
};

#[test]
fn times_and_modes_of_folders_are_set_last() {
    let place = Place::new();
    let target = place.plain();
    let mut entries = Vec::new();
    for depth in 1..=600_usize {
        let mut entry = dir(vec!["d"; depth].join("/"));
        entry.mode = if depth % 2 == 0 { 0o500 } else { 0o2755 };
        entry.mtime.seconds += i64::try_from(depth).expect("small");
        assert_eq!(target.make_dir(&entry).expect("made"), DirDecision::Made);
        put(&target, &file([entry.path.as_slice(), b"/f"].concat(), 1), b"x");
        entries.push(entry);
    }
    assert_eq!(mode(&place.path("d/d")) & 0o1077, 0o1000, "unfinished, and for nobody else");
    target.finish_dirs().expect("finished");
    for entry in entries {
        let path = place.path(std::str::from_utf8(&entry.path).expect("text"));
        assert_eq!((mode(&path), mtime(&path)), (entry.mode, entry.mtime));
        assert_eq!(read(&path.join("f")), b"x");
    }
    assert!(target.notes().summary().is_empty());
}

#[test]
fn an_existing_folder_is_taken_and_its_content_stays() {
    for overwrite in [Overwrite::Always, Overwrite::IfChanged, Overwrite::IfNewer, Overwrite::Never] {
        let place = Place::new();
        std::fs::create_dir(place.path("d")).expect("made");
        std::fs::set_permissions(place.path("d"), PermissionsExt::from_mode(0o711)).expect("set");
        std::fs::write(place.path("d/mine"), "mine").expect("written");
        let target = place.overwriting(overwrite);
        assert_eq!(target.make_dir(&dir("d")).expect("taken"), DirDecision::Existing);
        target.finish_dirs().expect("finished");
        let expected = if overwrite == Overwrite::Never { 0o711 } else { 0o755 };
        assert_eq!(mode(&place.path("d")), expected);
        assert_eq!(mtime(&place.path("d")) == THEN, overwrite != Overwrite::Never);
        assert_eq!(read(&place.path("d/mine")), b"mine");
    }
}

#[test]
fn a_folder_of_an_interrupted_restore_is_finished_under_every_policy() {
    for overwrite in [Overwrite::Always, Overwrite::IfNewer, Overwrite::Never] {
        let place = Place::new();
        place.plain().make_dir(&dir("d")).expect("made");
        let target = place.overwriting(overwrite);
        assert_eq!(target.make_dir(&dir("d")).expect("taken"), DirDecision::Existing);
        target.finish_dirs().expect("finished");
        assert_eq!((mode(&place.path("d")), mtime(&place.path("d"))), (0o755, THEN), "{overwrite:?}");
    }
}

#[test]
fn a_file_in_the_place_of_a_folder_is_replaced_or_keeps_everything_below_out() {
    let place = Place::new();
    std::fs::write(place.path("d"), "a file").expect("written");
    let target = place.overwriting(Overwrite::Never);
    assert_eq!(target.make_dir(&dir("d")).expect("decided"), DirDecision::Kept(KeptReason::Exists));
    assert_eq!(target.make_dir(&dir("d/e")).expect("decided"), DirDecision::Kept(KeptReason::ParentKept));
    assert_eq!(put(&target, &file("d/e/f", 1), b"x"), PutDecision::Kept(KeptReason::ParentKept));
    let target = place.plain();
    assert_eq!(target.make_dir(&dir("d")).expect("decided"), DirDecision::Made);
    assert_eq!(put(&target, &file("d/f", 1), b"x"), PutDecision::Written);
    assert_eq!(target.notes().count(NoteKind::Replaced), 1);
}

#[test]
fn a_full_folder_is_kept_when_asked() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("full/below")).expect("made");
    std::fs::create_dir(place.path("empty")).expect("made");
    let mut options = TargetOptions::default();
    options.full_directories = FullDirectories::Keep;
    let target = place.target(options);
    assert_eq!(put(&target, &file("full", 1), b"x"), PutDecision::Kept(KeptReason::DirectoryNotEmpty));
    assert_eq!(put(&target, &file("empty", 1), b"x"), PutDecision::Written);
    assert!(place.path("full/below").is_dir());
    assert_eq!(put(&place.plain(), &file("full", 1), b"x"), PutDecision::Written);
}

#[test]
fn paths_longer_than_the_kernel_takes_are_restored_verified_and_removed() {
    let place = Place::new();
    let target = place.plain();
    let mut path = Vec::new();
    let mut entries = Vec::new();
    while path.len() < 5000 {
        path.extend_from_slice(if entries.len() % 10 == 0 { &[b'n'; 99] } else { b"d" });
        entries.push(dir(&path));
        target.make_dir(entries.last().expect("pushed")).expect("made");
        path.push(b'/');
    }
    let small = file([path.as_slice(), b"small"].concat(), 5);
    put(&target, &small, b"small");
    let large = file([path.as_slice(), b"large"].concat(), 5);
    let writer = begin(&target, &large);
    writer.write_at(0, b"large").expect("written");
    writer.finish(&large).expect("finished");
    let link = symlink([path.as_slice(), b"link"].concat(), "x");
    target.make_node(&link).expect("made");
    let hard = hard_link([path.as_slice(), b"hard"].concat(), &small.path);
    target.make_link(&hard).expect("made");
    target.finish_dirs().expect("finished");
    assert!(target.notes().summary().is_empty(), "{:?}", target.notes().summary());
    let fresh = place.plain();
    for entry in entries.iter().chain([&small, &large, &link, &hard]) {
        let found = fresh.verify(entry).expect("compared").differences;
        assert!(found.is_empty(), "{found:?}");
    }
    // Also without any folder on the way made before.
    let other = file([&b"o/"[..], &path, b"f"].concat(), 5);
    put(&fresh, &other, b"other");
    assert!(fresh.verify(&other).expect("compared").differences.is_empty());
    // Kept names are sorted; the whole deep tree goes at once.
    let mut gone = Vec::new();
    assert_eq!(fresh.delete_extra(b"", &[b"o"], |path| gone.push(path.to_vec())).expect("deleted"), 1);
    assert_eq!(gone, [entries[0].path.clone()]);
    assert_eq!(std::fs::read_dir(&place.root).expect("listed").count(), 1);
    assert_eq!(put(&fresh, &file("o", 1), b"x"), PutDecision::Written);
}

#[test]
fn names_of_any_bytes_are_restored() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let target = place.plain();
    for name in [&b"\xff\xfe"[..], b"new\nline", b" ", b"-rf", b"...", b"\\", &[b'x'; 255]] {
        put(&target, &file([b"d/", name].concat(), 1), b"x");
        assert_eq!(read(&place.path("d").join(std::ffi::OsStr::from_bytes(name))), b"x");
    }
    let error = target.put_file(&file([b'x'; 256], 1), b"x").expect_err("no file system takes it");
    assert!(error.to_string().starts_with("cannot create xxx"), "{error}");
}

#[test]
fn delete_removes_what_the_version_does_not_have_and_nothing_else() {
    for dry_run in [true, false] {
        let place = Place::new();
        for path in ["d/keep", "d/sub/deep/er", "d/gone", "d/kept-folder/inside", "elsewhere/file"] {
            std::fs::create_dir_all(place.path(path).parent().expect("a parent")).expect("made");
            std::fs::write(place.path(path), path).expect("written");
        }
        std::os::unix::fs::symlink("../../outside", place.path("d/link")).expect("made");
        let _socket = std::os::unix::net::UnixListener::bind(place.path("d/socket")).expect("bound");
        let mut options = TargetOptions::default();
        options.dry_run = dry_run;
        let target = place.target(options);
        target.make_dir(&dir("d")).expect("taken");
        let mut gone = Vec::new();
        let count = target
            .delete_extra(b"d", &[&b"absent"[..], b"keep", b"kept-folder"], |path| {
                gone.push(String::from_utf8(path.to_vec()).expect("text"));
            })
            .expect("deleted");
        target.finish_dirs().expect("finished");
        assert_eq!((count, gone.as_slice()), (3, &["d/gone", "d/link", "d/sub"].map(String::from)[..]));
        for (path, stays) in [("d/gone", dry_run), ("d/link", dry_run), ("d/sub", dry_run), ("d/keep", true)] {
            assert_eq!(std::fs::symlink_metadata(place.path(path)).is_ok(), stays, "{path}");
        }
        for path in ["d/kept-folder/inside", "elsewhere/file", "d/socket"] {
            assert!(place.path(path).exists(), "{path}");
        }
        assert_eq!(mtime(&place.path("d")) == THEN, !dry_run);
        assert_eq!(target.delete_extra(b"no/such", &[] as &[&[u8]], |_| ()).expect("nothing there"), 0);
        place.assert_outside_untouched();
    }
}

#[test]
fn a_large_folder_is_emptied_whole() {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).expect("made");
    for number in 0..3000 {
        std::fs::write(place.path(&format!("d/f{number}")), "").expect("written");
        if number % 5 == 0 {
            std::fs::create_dir_all(place.path(&format!("d/d{number}/empty"))).expect("made");
        }
    }
    assert_eq!(place.plain().delete_extra(b"", &[] as &[&[u8]], |_| ()).expect("deleted"), 1);
    assert!(!place.path("d").exists());
}

/// A second mount of the same file system cannot be told by its device number.
#[test]
fn mounted_file_systems_are_left_alone() {
    if !is_root("mounted_file_systems_are_left_alone") {
        return;
    }
    for below in ["d", "d/e/mounted"] {
        let place = Place::new();
        let mounted = place.path(below);
        std::fs::create_dir_all(&mounted).expect("made");
        let mount = std::process::Command::new("mount").arg("--bind").args([&place.outside, &mounted]).status();
        if !mount.is_ok_and(|status| status.success()) {
            return;
        }
        let target = place.plain();
        let deleted = target.delete_extra(b"", &[] as &[&[u8]], |_| ());
        let put = target.put_file(&file("d", 1), b"x");
        let unmounted = std::process::Command::new("umount").arg(&mounted).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
        assert_eq!(deleted.expect("tried"), 0);
        assert_eq!(put.expect("tried"), PutDecision::Kept(KeptReason::MountPoint));
        assert_eq!(target.notes().count(NoteKind::NotDeleted), 1);
        place.assert_outside_untouched();
    }
}

/// A backup that stays on one file system has an empty folder in their place.
#[test]
fn what_is_in_a_mounted_file_system_stays_if_the_version_has_nothing_of_it() {
    if !is_root("what_is_in_a_mounted_file_system_stays_if_the_version_has_nothing_of_it") {
        return;
    }
    for (keep, deleted) in [(&[][..], 0), (&[&b"known"[..]][..], 1)] {
        let place = Place::new();
        let mounted = place.path("mounted");
        std::fs::create_dir_all(&mounted).expect("made");
        let elsewhere = tempfile::tempdir().expect("a folder");
        for name in ["precious", "known"] {
            std::fs::write(elsewhere.path().join(name), name).expect("written");
        }
        let mount = std::process::Command::new("mount").arg("--bind").args([elsewhere.path(), &mounted]).status();
        if !mount.is_ok_and(|status| status.success()) {
            return;
        }
        let target = place.plain();
        let result = target.delete_extra(b"mounted", keep, |_| ());
        let unmounted = std::process::Command::new("umount").arg("-l").arg(&mounted).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
        assert_eq!(result.expect("tried"), deleted);
        assert_eq!(elsewhere.path().join("precious").exists(), keep.is_empty());
        assert_eq!(target.notes().count(NoteKind::Spared), u64::from(keep.is_empty()));
    }
}

/// New files and folders take a default list from the folder they are made in; the version's have none.
#[test]
fn access_control_lists_are_not_inherited_from_the_target() {
    let place = Place::new();
    let acl = default_acl();
    let name = c"system.posix_acl_default";
    let set = rustix::fs::setxattr(&place.root, name, &acl, rustix::fs::XattrFlags::empty());
    if set.is_err() {
        // A file system without lists.
        return;
    }
    let target = place.plain();
    target.make_dir(&dir("d")).expect("made");
    put(&target, &file("d/small", 1), b"x");
    let entry = file("large", 1);
    let writer = begin(&target, &entry);
    writer.write_at(0, b"x").expect("written");
    writer.finish(&entry).expect("finished");
    target.finish_dirs().expect("finished");
    for (path, expected) in [("d", 0o755), ("d/small", 0o644), ("large", 0o644)] {
        let mut names = [0_u8; 256];
        let length = rustix::fs::listxattr(place.path(path), &mut names[..]).expect("listed");
        assert_eq!(&names[..length], b"", "{path}");
        assert_eq!(std::fs::metadata(place.path(path)).expect("stat").mode() & 0o7777, expected);
    }
}

/// Another user may write, in the kernel's form.
fn default_acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 7, 12_345), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&rights.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}
