//! Promise: what the user leaves out is not restored, the rest is, and nobody calls it a loss or a difference.

use std::path::Path;
use std::sync::Arc;

use crate::metadata::{ACL, CAPABILITY, acl, capability, restore, xattr, xattrs};
use crate::support::*;
use larder_format::entry::{Entry, EntryKind};
use larder_source::target::{Difference, KeptReason, LinkDecision, NodeDecision, NoteKind, Target, TargetOptions};
use larder_source::{Case, PathMatcher};
use rustix::fs::XattrFlags;

fn without(place: &Place, choose: impl FnOnce(&mut TargetOptions)) -> Target {
    let mut options = TargetOptions::default();
    choose(&mut options);
    place.target(options)
}

fn patterns(patterns: &[&str]) -> Option<Arc<PathMatcher>> {
    Some(Arc::new(PathMatcher::new(patterns, Case::Sensitive).expect("good patterns")))
}

fn differences(target: &Target, entry: &Entry) -> Vec<Difference> {
    let mut found = target.verify(entry).expect("compared");
    found.compare_content(entry, &b"content"[..]).expect("read");
    found.differences
}

fn no_loss(target: &Target) {
    assert!(target.notes().summary().iter().all(|note| !note.kind.is_loss()), "{:?}", target.notes().summary());
}

#[test]
fn files_without_set_ids_have_none_and_folders_keep_theirs() {
    let place = Place::new();
    let target = without(&place, |options| options.omit.set_ids = true);
    for (name, mode_of_version, wanted) in [
        ("u", 0o4755, 0o755),
        ("g", 0o2755, 0o755),
        ("both", 0o6711, 0o711),
        ("sticky", 0o5600, 0o1600),
        ("none", 0o644, 0o644),
    ] {
        let mut entry = file(name, 7);
        entry.mode = mode_of_version;
        put(&target, &entry, b"content");
        assert_eq!(mode(&place.path(name)), wanted, "{name}");
        assert_eq!(differences(&target, &entry), [], "{name}");
        // A second name of it is a link, also where the mode looks like the mark of an unfinished file.
        let mut link = hard_link(format!("{name}-2"), name);
        link.mode = mode_of_version;
        assert_eq!(target.make_link(&link).expect("decided"), LinkDecision::Linked, "{name}");
        assert_eq!(differences(&target, &link), [], "{name}");
        // One that was restored with them before loses them, and so does one written in pieces.
        std::fs::remove_file(place.path(&format!("{name}-2"))).expect("removed");
        put(&place.plain(), &entry, b"content");
        assert_eq!(mode(&place.path(name)), mode_of_version, "{name}");
        let writer = match target.begin_file(&entry).expect("begun") {
            larder_source::target::FileDecision::Write(writer) => writer,
            other => panic!("nothing to write: {other:?}"),
        };
        writer.write_at(0, b"content").expect("written");
        writer.finish(&entry).expect("finished");
        finish_overwritten(&target);
        assert_eq!(mode(&place.path(name)), wanted, "{name}");
    }
    let fifo = entry("fifo", EntryKind::Fifo, 0o4600);
    restore(&target, &fifo);
    assert_eq!(mode(&place.path("fifo")), 0o600);
    let folder = entry("folder", EntryKind::Directory, 0o2755);
    restore(&target, &folder);
    target.finish_dirs().expect("finished");
    assert_eq!(mode(&place.path("folder")), 0o2755);
    assert_eq!(target.notes().count(NoteKind::OmittedSetId), 9);
    no_loss(&target);
}

#[test]
fn capabilities_go_with_the_set_ids() {
    if !is_root("capabilities_go_with_the_set_ids") {
        return;
    }
    let place = Place::new();
    let mut entry = file("f", 7);
    entry.xattrs = vec![xattr(CAPABILITY, &capability()), xattr(b"user.a", b"1")];
    restore(&place.plain(), &entry);
    assert_eq!(xattrs(&place.path("f")), entry.xattrs);
    for again in [true, false] {
        let target = without(&place, |options| options.omit.set_ids = true);
        restore(&target, &entry);
        assert_eq!(xattrs(&place.path("f")), entry.xattrs[1..], "{again}");
        assert_eq!(differences(&target, &entry), []);
        no_loss(&target);
        std::fs::remove_file(place.path("f")).expect("removed");
    }
}

#[test]
fn devices_are_left_out_and_pipes_are_not() {
    let place = Place::new();
    let target = without(&place, |options| options.omit.devices = true);
    std::fs::write(place.path("taken"), "mine").expect("written");
    let devices = [
        entry("char", EntryKind::CharDevice { major: 1, minor: 3 }, 0o666),
        entry("block", EntryKind::BlockDevice { major: 7, minor: 0 }, 0o660),
        entry("taken", EntryKind::CharDevice { major: 1, minor: 3 }, 0o666),
    ];
    for device in &devices {
        assert_eq!(target.make_node(device).expect("decided"), NodeDecision::Kept(KeptReason::Omitted));
        assert_eq!(differences(&target, device), []);
    }
    assert_eq!(read(&place.path("taken")), b"mine");
    assert!(!place.path("char").exists() && !place.path("block").exists());
    // Its content is the device again.
    let link = hard_link("char-2", "char");
    assert_eq!(target.make_link(&link).expect("decided"), LinkDecision::NeedsContent);
    assert_eq!(differences(&target, &link), []);
    put(&target, &file("first", 7), b"content");
    assert_eq!(differences(&target, &hard_link("second", "first")), [Difference::Missing]);
    let fifo = entry("fifo", EntryKind::Fifo, 0o600);
    assert_eq!(target.make_node(&fifo).expect("made"), NodeDecision::Made);
    assert_eq!(target.notes().count(NoteKind::OmittedDevice), 3);
    no_loss(&target);
}

/// Names of all attributes.
fn names(path: &Path) -> Vec<String> {
    xattrs(path).into_iter().map(|xattr| String::from_utf8(xattr.name).expect("text")).collect()
}

#[test]
fn attributes_that_are_not_selected_are_neither_set_nor_removed() {
    type Choice = fn(&mut TargetOptions);
    let choices: [(Choice, &[&str]); 4] = [
        (|options| options.omit.xattrs.include = patterns(&["user.a*"]), &["user.a", "user.ab"]),
        (|options| options.omit.xattrs.exclude = patterns(&["user.a*"]), &["user.b"]),
        (
            |options| {
                options.omit.xattrs.include = patterns(&["user.*", "!user.b"]);
                options.omit.xattrs.exclude = patterns(&["user.ab"]);
            },
            &["user.a"],
        ),
        (|options| options.omit.xattrs.exclude = patterns(&["*"]), &[]),
    ];
    for (choose, wanted) in choices {
        let place = Place::new();
        let target = without(&place, choose);
        for kind in [EntryKind::File { size: 7, extents: None }, EntryKind::Directory] {
            let name = format!("{kind:?}").replace([' ', '/'], "");
            let mut entry = entry(&name, kind.clone(), 0o755);
            entry.xattrs = ["user.a", "user.ab", "user.b"].map(|name| xattr(name.as_bytes(), b"of the version")).into();
            let before = target.notes().count(NoteKind::OmittedXattr);
            restore(&target, &entry);
            target.finish_dirs().expect("finished");
            assert_eq!(names(&place.path(&name)), *wanted);
            assert_eq!(target.notes().count(NoteKind::OmittedXattr) - before, 3 - wanted.len() as u64);
            // Existing ones that are not selected stay as they are, selected ones become those of the version.
            for existing in ["user.a", "user.b", "user.az"] {
                rustix::fs::setxattr(place.path(&name), existing, b"existing", XattrFlags::empty()).expect("set");
            }
            restore(&target, &entry);
            target.finish_dirs().expect("finished");
            for found in xattrs(&place.path(&name)) {
                let found_name = String::from_utf8(found.name).expect("text");
                let is_of_version = wanted.contains(&found_name.as_str());
                assert_eq!(found.value == b"of the version", is_of_version, "{found_name} {wanted:?}");
            }
            let is_az_removed = wanted == ["user.a", "user.ab"];
            assert_eq!(
                names(&place.path(&name)).contains(&"user.az".to_owned()),
                !is_az_removed && wanted != ["user.a"]
            );
            if kind != EntryKind::Directory {
                assert_eq!(differences(&target, &entry), [], "{wanted:?}");
            }
        }
        no_loss(&target);
    }
}

/// With a list, the group bits of the mode are its mask. Without it, they would give the group more than it had.
#[test]
fn without_its_access_control_list_a_file_gives_its_group_no_more() {
    let place = Place::new();
    let target = without(&place, |options| options.omit.xattrs.include = patterns(&["user.*"]));
    for kind in [EntryKind::File { size: 7, extents: None }, EntryKind::Directory] {
        let name = format!("{kind:?}").replace([' ', '/'], "");
        let mut entry = entry(&name, kind.clone(), 0o660);
        entry.xattrs = vec![xattr(ACL, &acl())];
        restore(&target, &entry);
        target.finish_dirs().expect("finished");
        assert_eq!((mode(&place.path(&name)), names(&place.path(&name)).len()), (0o600, 0));
        if kind != EntryKind::Directory {
            assert_eq!(differences(&target, &entry), []);
        }
    }
    no_loss(&target);
}
