//! Promise: comparing finds nothing in what was just restored, and everything that was changed since.

use std::os::unix::fs::PermissionsExt;

use crate::support::*;
use larder_format::entry::{Entry, EntryKind, Extent, Xattr};
use larder_source::target::{Difference, Target};

fn differences(target: &Target, entry: &Entry, content: &[u8]) -> Vec<Difference> {
    let mut found = target.verify(entry).expect("compared");
    found.compare_content(entry, content).expect("read");
    found.differences
}

#[test]
fn every_change_is_found_and_named() {
    let place = Place::new();
    let target = place.plain();
    let content = bytes(300_000, 1);
    let mut entry = file("f", content.len());
    entry.xattrs = vec![Xattr { name: b"user.a".to_vec(), value: b"1".to_vec() }];
    let path = place.path("f");
    let restored = || {
        put(&target, &entry, &content);
        assert_eq!(differences(&target, &entry, &content), []);
    };
    let write_at = |offset: u64| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
        file.write_all_at(b"\0", offset).expect("written");
        set_mtime(&path, THEN);
    };
    let only = |expected: Difference| {
        assert_eq!(differences(&target, &entry, &content), [expected]);
        restored();
    };
    restored();
    for offset in [0, 131_072, 299_999] {
        write_at(offset);
        only(Difference::Content { offset });
    }
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("set");
    only(Difference::Mode { expected: 0o644, found: 0o600 });
    set_mtime(&path, LATER);
    only(Difference::Mtime { expected: THEN, found: LATER });
    rustix::fs::setxattr(&path, "user.a", b"2", rustix::fs::XattrFlags::empty()).expect("set");
    only(Difference::Xattr { name: b"user.a".to_vec() });
    rustix::fs::removexattr(&path, "user.a").expect("removed");
    only(Difference::Xattr { name: b"user.a".to_vec() });
    rustix::fs::setxattr(&path, "user.b", b"2", rustix::fs::XattrFlags::empty()).expect("set");
    only(Difference::Xattr { name: b"user.b".to_vec() });
    std::fs::remove_file(&path).expect("removed");
    only(Difference::Missing);
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("made");
    only(Difference::Type);
    std::fs::OpenOptions::new().write(true).open(&path).expect("opens").set_len(10).expect("set");
    set_mtime(&path, THEN);
    let found = differences(&target, &entry, &content);
    assert_eq!(found, [Difference::Size { expected: 300_000, found: 10 }, Difference::Content { offset: 0 }]);
    if is_root("owner part of every_change_is_found_and_named") {
        restored();
        std::os::unix::fs::chown(&path, Some(77), Some(78)).expect("given away");
        only(Difference::Owner { expected: (0, 0), found: (77, 78) });
    }
}

#[test]
fn bytes_in_a_hole_are_found() {
    let place = Place::new();
    let target = place.plain();
    let entry = sparse_file("f", 10 << 20, &[(5 << 20, 100)]);
    let content = bytes(100, 2);
    put(&target, &entry, &content);
    assert_eq!(differences(&target, &entry, &content), []);
    let whole = EntryKind::File { size: 10 << 20, extents: None };
    let mut other = vec![0; 10 << 20];
    other[5 << 20..][..100].copy_from_slice(&content);
    // Zeros that are written are as good as a hole.
    put(&target, &Entry { kind: whole.clone(), ..entry.clone() }, &other);
    assert_eq!(differences(&target, &entry, &content), []);
    other[(9 << 20) + 7] = 1;
    put(&target, &Entry { kind: whole, ..entry.clone() }, &other);
    let found = differences(&target, &entry, &content);
    assert_eq!(found, [Difference::Content { offset: (9 << 20) + 7 }]);
}

#[test]
fn links_and_devices_are_compared_by_what_they_lead_to() {
    let place = Place::new();
    let target = place.plain();
    target.make_node(&symlink("link", "here")).expect("made");
    assert_eq!(differences(&target, &symlink("link", "here"), b""), []);
    assert_eq!(
        differences(&target, &symlink("link", "there"), b""),
        [Difference::LinkTarget { found: b"here".to_vec() }]
    );
    put(&target, &file("first", 1), b"x");
    target.make_link(&hard_link("second", "first")).expect("made");
    put(&target, &file("third", 1), b"x");
    assert_eq!(differences(&target, &hard_link("second", "first"), b""), []);
    assert_eq!(differences(&target, &hard_link("third", "first"), b""), [Difference::HardLink]);
    assert_eq!(differences(&target, &hard_link("second", "absent"), b""), [Difference::HardLink]);
    let fifo = entry("fifo", EntryKind::Fifo, 0o600);
    target.make_node(&fifo).expect("made");
    assert_eq!(differences(&target, &fifo, b""), []);
    assert_eq!(differences(&target, &file("fifo", 0), b""), [Difference::Type]);
    if is_root("device part of links_and_devices_are_compared_by_what_they_lead_to") {
        let device = |minor| entry("device", EntryKind::CharDevice { major: 1, minor }, 0o600);
        target.make_node(&device(3)).expect("made");
        assert_eq!(differences(&target, &device(3), b""), []);
        assert_eq!(differences(&target, &device(5), b""), [Difference::Device]);
    }
}

#[test]
fn a_truncated_expectation_is_an_error_of_the_reader() {
    let place = Place::new();
    let target = place.plain();
    let mut entry = file("f", 10);
    put(&target, &entry, &[1; 10]);
    let mut found = target.verify(&entry).expect("compared");
    assert!(found.compare_content(&entry, &[1; 9][..]).is_err());
    entry.kind = EntryKind::File { size: 10, extents: Some(vec![Extent { offset: 9, length: 5 }]) };
    let mut found = target.verify(&entry).expect("compared");
    found.compare_content(&entry, &[1; 5][..]).expect("a damaged entry has no content to compare");
}
