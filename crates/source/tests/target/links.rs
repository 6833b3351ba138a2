//! Promise: links come back as links, and a link that cannot be one is left to the caller.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use crate::support::*;
use larder_source::target::{KeptReason, LinkDecision, NodeDecision, NoteKind, Overwrite, PutDecision};

fn inode(place: &Place, name: &str) -> u64 {
    std::fs::symlink_metadata(place.path(name)).expect("stat").ino()
}

#[test]
fn symlinks_come_back_whatever_they_say() {
    let place = Place::new();
    let target = place.plain();
    for (number, to) in [&b"x"[..], b"../../../..", b"/etc/passwd", b"\xff\n", &[b'y'; 4095]].into_iter().enumerate() {
        let name = format!("link{number}");
        for expected in [NodeDecision::Made, NodeDecision::UpToDate] {
            assert_eq!(target.make_node(&symlink(&name, to)).expect("made"), expected);
            assert_eq!(std::fs::read_link(place.path(&name)).expect("a link").as_os_str().as_bytes(), to);
            assert_eq!(mtime(&place.path(&name)), THEN);
        }
        let other = symlink(&name, "another");
        assert_eq!(
            place.overwriting(Overwrite::Never).make_node(&other).expect("decided"),
            NodeDecision::Kept(KeptReason::Exists)
        );
        assert_eq!(place.overwriting(Overwrite::IfChanged).make_node(&other).expect("made"), NodeDecision::Made);
        assert_eq!(std::fs::read_link(place.path(&name)).expect("a link").as_os_str(), "another");
    }
    assert!(target.make_node(&symlink("empty", "")).is_err(), "no file system makes it");
}

#[test]
fn hard_links_share_an_inode_again() {
    let place = Place::new();
    let target = place.plain();
    put(&target, &file("a/first", 7), b"content");
    for expected in [LinkDecision::Linked, LinkDecision::UpToDate] {
        for name in ["a/second", "b/third"] {
            assert_eq!(target.make_link(&hard_link(name, "a/first")).expect("made"), expected);
            assert_eq!(inode(&place, name), inode(&place, "a/first"));
        }
    }
    // A second run finds everything as it should be.
    let again = place.overwriting(Overwrite::IfChanged);
    let before = inode(&place, "a/first");
    assert_eq!(put(&again, &file("a/first", 7), b"content"), PutDecision::UpToDate);
    assert_eq!(again.make_link(&hard_link("a/second", "a/first")).expect("made"), LinkDecision::UpToDate);
    assert_eq!(inode(&place, "a/second"), before);
    // With new content, all names have it.
    let mut changed = file("a/first", 7);
    changed.mtime = LATER;
    assert_eq!(put(&again, &changed, b"CONTENT"), PutDecision::Written);
    for name in ["a/second", "b/third"] {
        let mut link = hard_link(name, "a/first");
        link.mtime = LATER;
        assert_eq!(again.make_link(&link).expect("made"), LinkDecision::Linked);
        assert_eq!(read(&place.path(name)), b"CONTENT");
    }
}

#[test]
fn names_that_were_linked_and_are_not_any_more_part() {
    let place = Place::new();
    std::fs::write(place.path("one"), "shared content").expect("written");
    std::fs::hard_link(place.path("one"), place.path("two")).expect("linked");
    let target = place.plain();
    put(&target, &file("one", 3), b"one");
    put(&target, &file("two", 3), b"two");
    assert_eq!((read(&place.path("one")), read(&place.path("two"))), (b"one".to_vec(), b"two".to_vec()));
}

#[test]
fn without_its_first_name_a_link_needs_content() {
    let place = Place::new();
    let target = place.plain();
    let needs = |entry| assert_eq!(target.make_link(&entry).expect("decided"), LinkDecision::NeedsContent);
    needs(hard_link("second", "absent"));
    needs(hard_link("second", "absent/deep"));
    // What stands there is not the version's: kept by its owner's wish, unfinished, or a folder.
    std::fs::write(place.path("kept"), "mine").expect("written");
    needs(hard_link("second", "kept"));
    let entry = file("begun", 5);
    let writer = begin(&target, &entry);
    set_mtime(&place.path("begun"), THEN);
    needs(hard_link("second", "begun"));
    drop(writer);
    // A cut copy with its time preserved.
    std::fs::write(place.path("short"), "cut").expect("written");
    set_mtime(&place.path("short"), THEN);
    let link = hard_link("second", "short");
    assert_eq!(target.make_link_of_size(&link, Some(9)).expect("decided"), LinkDecision::NeedsContent);
    std::fs::create_dir(place.path("folder")).expect("made");
    set_mtime(&place.path("folder"), THEN);
    needs(hard_link("second", "folder"));
    assert!(!place.path("second").exists());
}

#[test]
fn what_is_in_the_way_of_a_hard_link_goes_by_the_policy() {
    let place = Place::new();
    put(&place.plain(), &file("first", 7), b"content");
    std::fs::write(place.path("second"), "mine").expect("written");
    let link = hard_link("second", "first");
    let never = place.overwriting(Overwrite::Never);
    assert_eq!(never.make_link(&link).expect("decided"), LinkDecision::Kept(KeptReason::Exists));
    assert_eq!(never.notes().count(NoteKind::Kept), 1);
    let newer = place.overwriting(Overwrite::IfNewer);
    assert_eq!(newer.make_link(&link).expect("decided"), LinkDecision::Kept(KeptReason::Newer));
    assert_eq!(place.plain().make_link(&link).expect("made"), LinkDecision::Linked);
    assert_eq!(inode(&place, "second"), inode(&place, "first"));
}
