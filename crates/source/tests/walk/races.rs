//! The tree may change under a walk: what is still there is found, what is not is named, and nothing is taken for something else.

use std::fs;
use std::path::Path;

use crate::support::{Walked, put, relative};
use larder_source::{Item, Roots, Walk, WalkError, WalkOptions};

fn walk(root: &Path) -> Walk {
    let path = std::os::unix::ffi::OsStrExt::as_bytes(root.as_os_str());
    Walk::new(Roots::new([path], b"/").expect("good"), WalkOptions::default())
}

/// Takes items until the entry of `path` has come.
fn take_until(walk: &mut Walk, path: &Path) -> Walked {
    let mut taken = Vec::new();
    for item in walk.by_ref() {
        let is_last = matches!(&item, Item::Found(found) if found.entry.path == relative(path));
        taken.push(item);
        if is_last {
            return taken.into_iter().collect();
        }
    }
    panic!("{path:?} never came");
}

#[test]
fn a_file_that_vanishes_after_the_listing_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["a", "b", "c"] {
        put(dir.path(), name, b"x");
    }
    let mut walk = walk(dir.path());
    take_until(&mut walk, &dir.path().join("a"));
    fs::remove_file(dir.path().join("b")).expect("removed");
    let rest: Walked = walk.collect();
    assert_eq!(rest.below(dir.path()), ["c"]);
    assert_eq!(rest.problem_lines(dir.path()), ["/b: vanished while the folder was read"]);
}

#[test]
fn a_folder_replaced_before_it_is_entered_is_not_taken_for_the_old_one() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "sub/old", b"x");
    put(dir.path(), "other/new", b"x");
    put(dir.path(), "z", b"x");
    let mut walking = walk(dir.path());
    take_until(&mut walking, &dir.path().join("sub"));
    fs::rename(dir.path().join("sub"), dir.path().join("gone")).expect("moved");
    fs::rename(dir.path().join("other"), dir.path().join("sub")).expect("moved");
    let rest: Walked = walking.collect();
    assert!(matches!(rest.problems[0].error, WalkError::Moved));
    assert_eq!(rest.below(dir.path()), ["z"]);

    // A symlink in its place must not lead anywhere.
    let mut walking = walk(dir.path());
    take_until(&mut walking, &dir.path().join("sub"));
    fs::rename(dir.path().join("sub"), dir.path().join("gone too")).expect("moved");
    std::os::unix::fs::symlink("/", dir.path().join("sub")).expect("linked");
    let rest: Walked = walking.collect();
    assert!(matches!(rest.problems[0].error, WalkError::Moved));
    assert_eq!(rest.below(dir.path()), ["z"]);
}

#[test]
fn a_walk_goes_on_in_a_folder_that_is_moved_or_removed_around_it() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["a/b/1", "a/b/2", "a/c", "d"] {
        put(dir.path(), name, b"x");
    }
    let mut walking = walk(dir.path());
    take_until(&mut walking, &dir.path().join("a/b/1"));
    fs::rename(dir.path().join("a"), dir.path().join("x")).expect("moved");
    let rest: Walked = walking.collect();
    assert!(rest.problems.is_empty());
    assert_eq!(rest.below(dir.path()), ["a/b/2", "a/c", "d"]);

    let mut walking = walk(dir.path());
    take_until(&mut walking, &dir.path().join("x/b"));
    fs::remove_dir_all(dir.path().join("x")).expect("removed");
    let rest: Walked = walking.collect();
    assert_eq!(rest.problems.len(), 2, "{:?}", rest.problem_lines(dir.path()));
}

/// Deeper than the walk holds directories open, so that it has to find its way back.
#[test]
fn the_way_back_is_found_after_moves_or_retired_by_name() {
    let deep = |dir: &Path| {
        let mut path = dir.join("top");
        for _ in 0..300 {
            path.push("d");
        }
        put(&path, "bottom", b"x");
        put(dir, "top/d/d/d/z", b"x");
        put(dir, "top/z", b"x");
        put(dir, "z", b"x");
        path.join("bottom")
    };
    let tail =
        |walked: &Walked, dir: &Path| walked.below(dir).iter().map(|path| path.replace("d/", "")).collect::<Vec<_>>();

    // Undisturbed.
    let dir = tempfile::tempdir().expect("a folder");
    let bottom = deep(dir.path());
    let mut walking = walk(dir.path());
    take_until(&mut walking, &bottom);
    let rest: Walked = walking.collect();
    assert!(rest.problems.is_empty(), "{:?}", rest.problem_lines(dir.path()));
    assert_eq!(tail(&rest, dir.path()), ["top/z", "top/z", "z"]);

    // Folders moved around the walk: their children still know them.
    let dir = tempfile::tempdir().expect("a folder");
    let bottom = deep(dir.path());
    let mut walking = walk(dir.path());
    take_until(&mut walking, &bottom);
    fs::rename(dir.path().join("top"), dir.path().join("moved")).expect("moved");
    let rest: Walked = walking.collect();
    assert!(rest.problems.is_empty(), "{:?}", rest.problem_lines(dir.path()));
    assert_eq!(tail(&rest, dir.path()), ["top/z", "top/z", "z"]);

    // A folder taken out of the middle: what is above it is found from the top, and nothing else is touched.
    let dir = tempfile::tempdir().expect("a folder");
    let away = tempfile::tempdir().expect("another folder");
    let bottom = deep(dir.path());
    let mut walking = walk(dir.path());
    take_until(&mut walking, &bottom);
    fs::rename(dir.path().join("top/d/d/d/d"), away.path().join("d")).expect("moved");
    put(away.path(), "secret", b"x");
    let rest: Walked = walking.collect();
    assert!(rest.problems.is_empty(), "{:?}", rest.problem_lines(dir.path()));
    assert_eq!(tail(&rest, dir.path()), ["top/z", "top/z", "z"]);

    // The same, and the folder above with names still to come was replaced as well: it is given up by name.
    let dir = tempfile::tempdir().expect("a folder");
    let bottom = deep(dir.path());
    let mut walking = walk(dir.path());
    take_until(&mut walking, &bottom);
    fs::rename(dir.path().join("top/d/d/d/d"), away.path().join("e")).expect("moved");
    fs::rename(dir.path().join("top/d/d/d"), away.path().join("f")).expect("moved");
    put(dir.path(), "top/d/d/d/z", b"an impostor");
    let rest: Walked = walking.collect();
    assert_eq!(rest.problem_lines(dir.path()), ["/top/d/d/d: the folder was moved or replaced while it was read"]);
    assert_eq!(tail(&rest, dir.path()), ["top/z", "z"]);
}
