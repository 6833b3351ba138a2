//! Promise: every kind of metadata comes back, in an order that keeps all of it, and what cannot be set is noted.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::support::*;
use larder_format::entry::{Entry, EntryKind, Timestamp, Xattr};
use larder_source::target::{NoteKind, Overwrite, OwnerMode, PutDecision, Target, TargetOptions};
use rustix::fs::XattrFlags;

pub(crate) const ACL: &[u8] = b"system.posix_acl_access";
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

pub(crate) fn xattr(name: &[u8], value: &[u8]) -> Xattr {
    Xattr { name: name.to_vec(), value: value.to_vec() }
}

/// All attributes of a path, a link not followed, sorted.
pub(crate) fn xattrs(path: &Path) -> Vec<Xattr> {
    let mut names = vec![0; 1 << 16];
    let length = rustix::fs::llistxattr(path, &mut names[..]).expect("listed");
    let mut found: Vec<Xattr> = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty() && *name != b"security.selinux")
        .map(|name| {
            let mut value = vec![0; 1 << 16];
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).expect("read");
            xattr(name, &value[..length])
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

pub(crate) fn restore(target: &Target, entry: &Entry) {
    match entry.kind {
        EntryKind::File { .. } => drop(put(target, entry, b"content")),
        EntryKind::Directory => drop(target.make_dir(entry).expect("made")),
        _ => drop(target.make_node(entry).expect("made")),
    }
}

/// A list that gives one more user rights, and the owning group less than the mask says.
pub(crate) fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 6, 12_345), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&rights.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}

/// `cap_net_raw+ep`, in the kernel's form of version 2.
pub(crate) fn capability() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn times_come_back_to_the_nanosecond() {
    let place = Place::new();
    let target = place.plain();
    let times = [
        Timestamp { seconds: 0, nanos: 1 },
        Timestamp { seconds: -1, nanos: 999_999_999 },
        Timestamp { seconds: -1_000_000_000, nanos: 0 },
        Timestamp { seconds: 4_000_000_000, nanos: 500_000_001 },
    ];
    for (number, time) in times.into_iter().enumerate() {
        for kind in [
            EntryKind::File { size: 7, extents: None },
            EntryKind::Directory,
            EntryKind::Symlink { target: b"nowhere".to_vec() },
            EntryKind::Fifo,
        ] {
            let name = format!("{number}-{kind:?}").replace([' ', '/'], "");
            let mut entry = entry(&name, kind, 0o755);
            entry.mtime = time;
            entry.atime = Some(Timestamp { seconds: time.seconds - 5, nanos: 7 });
            restore(&target, &entry);
            target.finish_dirs().expect("finished");
            let meta = std::fs::symlink_metadata(place.path(&name)).expect("stat");
            assert_eq!(mtime(&place.path(&name)), time, "{name}");
            assert_eq!((meta.atime(), meta.atime_nsec()), (time.seconds - 5, 7), "{name}");
        }
    }
}

#[test]
fn attributes_are_exactly_those_of_the_version() {
    let place = Place::new();
    let target = place.plain();
    for kind in [EntryKind::File { size: 7, extents: None }, EntryKind::Directory] {
        let mut entry = entry(format!("{kind:?}").replace([' ', '/'], ""), kind, 0o640);
        let path = place.path(std::str::from_utf8(&entry.path).expect("text"));
        entry.xattrs =
            vec![xattr(b"user.empty", b""), xattr(b"user.long", &bytes(2000, 1)), xattr(b"user.name\xff", b"a\0b")];
        entry.xattrs.sort_by(|a, b| a.name.cmp(&b.name));
        restore(&target, &entry);
        target.finish_dirs().expect("finished");
        assert_eq!(xattrs(&path), entry.xattrs);
        // Existing ones: one more, one changed, one missing.
        rustix::fs::setxattr(&path, "user.more", b"more", XattrFlags::empty()).expect("set");
        rustix::fs::setxattr(&path, "user.empty", b"not", XattrFlags::empty()).expect("set");
        rustix::fs::removexattr(&path, "user.long").expect("removed");
        restore(&target, &entry);
        target.finish_dirs().expect("finished");
        assert_eq!(xattrs(&path), entry.xattrs);
        assert_eq!((mode(&path), mtime(&path)), (0o640, THEN));
        entry.xattrs.clear();
        restore(&target, &entry);
        target.finish_dirs().expect("finished");
        assert_eq!(xattrs(&path), []);
    }
    assert!(target.notes().summary().is_empty(), "{:?}", target.notes().summary());
}

#[test]
fn up_to_date_content_gets_its_metadata_corrected() {
    let place = Place::new();
    let mut entry = file("f", 7);
    entry.xattrs = vec![xattr(b"user.a", b"1")];
    put(&place.plain(), &entry, b"content");
    let inode = std::fs::metadata(place.path("f")).expect("stat").ino();
    rustix::fs::setxattr(place.path("f"), "user.a", b"2", XattrFlags::empty()).expect("set");
    rustix::fs::chmod(place.path("f"), rustix::fs::Mode::from_raw_mode(0o4711)).expect("set");
    put(&place.overwriting(Overwrite::IfChanged), &entry, b"content");
    let meta = std::fs::metadata(place.path("f")).expect("stat");
    assert_eq!((xattrs(&place.path("f")), mode(&place.path("f"))), (entry.xattrs, 0o644));
    assert_eq!((meta.ino(), mtime(&place.path("f"))), (inode, THEN));
}

#[test]
fn an_access_control_list_and_the_mode_come_back_together() {
    let place = Place::new();
    let target = place.plain();
    let mut small = file("small", 7);
    small.mode = 0o660;
    small.xattrs = vec![xattr(ACL, &acl())];
    let mut folder = dir("folder");
    folder.mode = 0o2770;
    folder.xattrs = vec![xattr(ACL, &acl()), xattr(b"system.posix_acl_default", &acl())];
    folder.xattrs[0].value[4 + 2] = 7;
    folder.xattrs[0].value[4 + 3 * 8 + 2] = 7;
    for _ in 0..2 {
        restore(&target, &small);
        restore(&target, &folder);
        put(&target, &file("folder/in-it", 7), b"content");
        target.finish_dirs().expect("finished");
        if target.notes().count(NoteKind::Acl) > 0 {
            // A file system without lists: noted, and the mask did not become the rights of the group.
            assert_eq!(mode(&place.path("small")), 0o600);
            return;
        }
        assert_eq!((xattrs(&place.path("small")), mode(&place.path("small"))), (small.xattrs.clone(), 0o660));
        assert_eq!((xattrs(&place.path("folder")), mode(&place.path("folder"))), (folder.xattrs.clone(), 0o2770));
        assert_eq!(xattrs(&place.path("folder/in-it")), []);
    }
}

/// Setting a list changes the mode; the entry's mode has the last word.
#[test]
fn a_list_that_contradicts_the_mode_gives_no_more_rights_than_the_mode() {
    let place = Place::new();
    let mut entry = file("f", 7);
    entry.mode = 0o660;
    put(&place.plain(), &entry, b"content");
    let mut wide = acl();
    wide[4 + 4 * 8 + 2] = 7;
    entry.xattrs = vec![xattr(ACL, &wide)];
    put(&place.plain(), &entry, b"content");
    assert_eq!(mode(&place.path("f")), 0o660);
}

#[test]
fn owners_set_id_bits_and_capabilities_come_back_together() {
    if !is_root("owners_set_id_bits_and_capabilities_come_back_together") {
        return;
    }
    let place = Place::new();
    let target = place.plain();
    let kinds = [
        ("file", EntryKind::File { size: 7, extents: None }, 0o6755),
        ("folder", EntryKind::Directory, 0o3770),
        ("link", EntryKind::Symlink { target: b"nowhere".to_vec() }, 0o777),
        ("fifo", EntryKind::Fifo, 0o604),
        ("char", EntryKind::CharDevice { major: 1, minor: 3 }, 0o666),
        ("block", EntryKind::BlockDevice { major: 7, minor: 300 }, 0o640),
    ];
    for round in 0..4_u32 {
        // Replaced, and in the last round only given to other owners, which must not cost them the rest.
        let target = if round < 3 { &target } else { &place.overwriting(Overwrite::IfChanged) };
        for (name, kind, bits) in kinds.clone() {
            let mut entry = entry(name, kind, bits);
            (entry.uid, entry.gid) = (4321 + round, 8765 + round);
            if name == "file" {
                entry.xattrs = vec![xattr(CAPABILITY, &capability()), xattr(b"trusted.t", b"t")];
            } else if name != "folder" {
                entry.xattrs = vec![xattr(b"trusted.t", b"t")];
            }
            restore(target, &entry);
            target.finish_dirs().expect("finished");
            let meta = std::fs::symlink_metadata(place.path(name)).expect("stat");
            assert_eq!((meta.uid(), meta.gid()), (entry.uid, entry.gid), "{name}");
            assert_eq!(meta.mode() & 0o7777, bits, "{name}");
            assert_eq!(mtime(&place.path(name)), THEN, "{name}");
            assert_eq!(xattrs(&place.path(name)), entry.xattrs, "{name}");
            if name == "block" {
                let device = meta.rdev();
                assert_eq!((rustix::fs::major(device), rustix::fs::minor(device)), (7, 300));
            }
        }
    }
    assert!(target.notes().summary().is_empty(), "{:?}", target.notes().summary());
}

/// The kernel takes set-id bits from a file that changes hands; nothing else of it may differ for this to show.
#[test]
fn a_file_given_to_its_owner_keeps_its_set_id_bits() {
    if !is_root("a_file_given_to_its_owner_keeps_its_set_id_bits") {
        return;
    }
    let place = Place::new();
    let mut entry = file("f", 7);
    entry.mode = 0o6755;
    put(&place.plain(), &entry, b"content");
    (entry.uid, entry.gid) = (4321, 8765);
    assert_eq!(put(&place.overwriting(Overwrite::IfChanged), &entry, b"content"), PutDecision::UpToDate);
    let meta = std::fs::metadata(place.path("f")).expect("stat");
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (4321, 8765, 0o6755));
}

#[test]
fn owners_go_by_name_by_number_or_not_at_all() {
    if !is_root("owners_go_by_name_by_number_or_not_at_all") {
        return;
    }
    let cases = [
        (OwnerMode::ByName, (0, 4322), 0o2755),
        (OwnerMode::ById, (4321, 4322), 0o6755),
        (OwnerMode::None, (0, 0), 0o755),
    ];
    for (owners, expected, bits) in cases {
        let place = Place::new();
        let mut options = TargetOptions::default();
        options.owners = owners;
        let target = place.target(options);
        let mut entry = file("f", 7);
        (entry.uid, entry.gid, entry.mode) = (4321, 4322, 0o6755);
        // The user is known here by another number, the group is not known.
        (entry.user, entry.group) = (Some(Arc::from("root")), Some(Arc::from("no-such-group-here")));
        put(&target, &entry, b"content");
        let meta = std::fs::metadata(place.path("f")).expect("stat");
        assert_eq!((meta.uid(), meta.gid()), expected, "{owners:?}");
        let bits = if owners == OwnerMode::ByName { 0o6755 } else { bits };
        assert_eq!(meta.mode() & 0o7777, bits, "a file that is not its owner's must not run as its owner ({owners:?})");
        assert_eq!(target.notes().count(NoteKind::SetId), u64::from(owners == OwnerMode::None));
    }
}

#[test]
fn a_file_of_another_user_is_replaced_and_not_written_into() {
    if !is_root("a_file_of_another_user_is_replaced_and_not_written_into") {
        return;
    }
    let place = Place::new();
    std::fs::write(place.path("f"), "old content").expect("written");
    std::os::unix::fs::chown(place.path("f"), Some(1234), Some(1234)).expect("given away");
    let spy = std::fs::File::open(place.path("f")).expect("opens");
    let mut entry = file("f", 6);
    entry.mode = 0o600;
    put(&place.plain(), &entry, b"secret");
    assert_eq!(std::io::read_to_string(spy).expect("read"), "old content");
    assert_eq!(read(&place.path("f")), b"secret");
}

/// While it is written, content of a private file is not readable by others, not even where a public one stood.
#[test]
fn unfinished_files_are_private() {
    let place = Place::new();
    std::fs::write(place.path("old"), "public").expect("written");
    rustix::fs::chmod(place.path("old"), rustix::fs::Mode::from_raw_mode(0o666)).expect("set");
    let target = place.plain();
    for name in ["old", "new"] {
        let entry = file(name, 10);
        let writer = begin(&target, &entry);
        writer.write_at(0, b"half").expect("written");
        assert_eq!(mode(&place.path(name)) & 0o077, 0);
        drop(writer);
    }
}

#[test]
fn what_the_file_system_does_not_take_is_noted() {
    let place = Place::new();
    let target = place.plain();
    for number in 0..20 {
        let mut entry = file(format!("f{number}"), 7);
        entry.xattrs = vec![xattr(b"nosuchnamespace.x", b"1"), xattr(b"user.ok", b"1")];
        put(&target, &entry, b"content");
        assert_eq!(xattrs(&place.path(&format!("f{number}"))), [xattr(b"user.ok", b"1")]);
    }
    let summary = target.notes().summary();
    assert_eq!(summary.len(), 1);
    assert_eq!((summary[0].kind, summary[0].count), (NoteKind::Xattr, 20));
    assert!(summary[0].examples[0].detail.starts_with("nosuchnamespace.x: "), "{summary:?}");
    assert!(summary[0].kind.is_loss());
}
