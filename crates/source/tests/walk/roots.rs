//! Every path that was asked for is walked or reported by name: nothing is left out in silence.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{Walked, put, relative};
use larder_format::entry::EntryKind;
use larder_source::{Item, Roots, Walk, WalkError, WalkOptions};

#[test]
fn folders_above_a_root_are_entries_with_their_metadata() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "a/b/file", b"x");
    put(dir.path(), "a/not asked for", b"x");
    put(dir.path(), "a/c/d", b"x");
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o1751)).expect("set");
    let (one, two) = (dir.path().join("a/b"), dir.path().join("a/c/d"));
    let walked = Walked::plain(&[&two, &one, &one]);
    assert_eq!(walked.below(dir.path()), ["a", "a/b", "a/b/file", "a/c", "a/c/d"]);
    let above = walked.by_path()[relative(dir.path()).as_slice()];
    assert_eq!(above.entry.kind, EntryKind::Directory);
    assert_eq!(above.entry.mode, 0o1751);
}

#[test]
fn a_root_may_be_a_file_or_a_symlink_but_is_never_followed() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "real/inside", b"x");
    symlink("real", dir.path().join("link")).expect("linked");
    let walked = Walked::plain(&[&dir.path().join("link"), &dir.path().join("real/inside")]);
    assert_eq!(walked.below(dir.path()), ["link", "real", "real/inside"]);
    assert_eq!(walked.found[2].entry.kind, EntryKind::Symlink { target: b"real".to_vec() });
}

#[test]
fn symlinks_above_a_root_are_recorded_as_the_folders_they_lead_to() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "real/sub/file", b"x");
    symlink("real", dir.path().join("link")).expect("linked");
    let walked = Walked::plain(&[&dir.path().join("link/sub")]);
    assert!(walked.problems.is_empty());
    assert_eq!(walked.below(dir.path()), ["link", "link/sub", "link/sub/file"]);
    let link = walked.by_path()[relative(&dir.path().join("link")).as_slice()];
    assert_eq!(link.entry.kind, EntryKind::Directory);
    assert_eq!(link.entry.inode, inode(&dir.path().join("real")));
}

fn inode(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).expect("there"))
}

#[test]
fn roots_that_cannot_be_walked_are_reported_each_by_its_own_path() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "a/file", b"x");
    symlink("a", dir.path().join("link")).expect("linked");
    let roots = [
        dir.path().join("missing"),
        dir.path().join("missing too/below/it"),
        dir.path().join("missing too/other"),
        dir.path().join("a/file/below a file"),
        dir.path().join("a"),
    ];
    let walked = Walked::plain(&roots.each_ref().map(|root| root.as_path()));
    let mut lines = walked.problem_lines(dir.path());
    lines.sort();
    let expected = [
        "/a/file/below a file: a part of the path is not a folder",
        "/missing too/below/it: no such file or folder",
        "/missing too/other: no such file or folder",
        "/missing: no such file or folder",
    ];
    assert_eq!(lines, expected);
    assert_eq!(walked.below(dir.path()), ["a", "a/file"]);
}

#[test]
fn a_root_inside_another_is_reported_if_it_is_missing_or_behind_a_symlink() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "real/file", b"x");
    symlink("real", dir.path().join("link")).expect("linked");
    let walked = Walked::plain(&[dir.path(), &dir.path().join("link/file"), &dir.path().join("nothing")]);
    let lines = walked.problem_lines(dir.path());
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("/link/file: lies behind a symbolic link"), "{lines:?}");
    assert_eq!(lines[1], "/nothing: no such file or folder");
    assert_eq!(walked.below(dir.path()), ["link", "real", "real/file"]);
}

#[test]
fn the_whole_file_system_can_be_a_root() {
    let mut walk = Walk::new(Roots::new(["/"], b"/").expect("good"), WalkOptions::default());
    // Only its beginning: the names directly below `/` up to the first folder that is not empty.
    let first =
        walk.by_ref().find_map(|item| if let Item::Found(found) = item { Some(found.entry.path) } else { None });
    assert!(!first.expect("not empty").contains(&b'/'));
}

/// A user without rights: what cannot be opened is reported, its own entry kept, and what can be reached is reached.
#[test]
fn unreadable_folders_are_reported_and_the_rest_is_walked() {
    if !crate::support::is_superuser() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "closed/inside", b"x");
    put(dir.path(), "passage/known/file", b"x");
    put(dir.path(), "z", b"x");
    let mode = |path: &str, mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(dir.path().join(path), permissions).expect("set");
    };
    mode("", 0o755);
    mode("closed", 0o700);
    mode("passage", 0o711);
    let root = dir.path().to_owned();
    // RetentionView belong to a thread: give them up in one of its own.
    let walked = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        let known = root.join("passage/known");
        Walked::plain(&[&root, &known])
    });
    let walked = walked.join().expect("no panic");
    let lines = walked.problem_lines(dir.path());
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("/closed: cannot open the folder: Permission denied"), "{lines:?}");
    assert!(lines[1].starts_with("/passage: cannot open the folder: Permission denied"), "{lines:?}");
    assert_eq!(walked.below(dir.path()), ["closed", "passage", "passage/known", "passage/known/file", "z"]);
    assert!(matches!(walked.problems[0].error, WalkError::OpenDirectory { .. }));
}
