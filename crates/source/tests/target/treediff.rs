//! The judge of the end-to-end tests sees every kind of difference, and none where there is none.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::support::treediff::{Options, differences};
use crate::support::*;

fn make_tree(root: &Path) {
    std::fs::create_dir_all(root.join("d/e")).expect("made");
    std::fs::write(root.join("d/f"), bytes(500_000, 1)).expect("written");
    std::fs::write(root.join("d/g"), "other").expect("written");
    std::fs::hard_link(root.join("d/f"), root.join("d/linked")).expect("linked");
    std::os::unix::fs::symlink("f", root.join("d/link")).expect("made");
    let holes = std::fs::File::create(root.join("holes")).expect("made");
    holes.set_len(10 << 20).expect("sized");
    holes.write_all_at(b"data", 5 << 20).expect("written");
    rustix::fs::setxattr(root.join("d/f"), "user.a", b"1", rustix::fs::XattrFlags::empty()).expect("set");
}

/// A faithful copy, by a tool that is not ours.
fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").args(["-a", "--sparse=auto"]).arg(from).arg(to).status();
    assert!(done.is_ok_and(|status| status.success()));
}

#[test]
fn a_faithful_copy_has_no_difference_and_every_change_is_seen() {
    let place = Place::new();
    let a = place.path("a");
    std::fs::create_dir(&a).expect("made");
    make_tree(&a);
    type Change = (&'static str, fn(&Path));
    let changes: [Change; 13] = [
        ("d/f: content differs at byte 400000", |b| {
            let file = std::fs::OpenOptions::new().write(true).open(b.join("d/f")).expect("opens");
            let time = file.metadata().and_then(|meta| meta.modified()).expect("known");
            file.write_all_at(b"\0", 400_000).expect("written");
            file.set_modified(time).expect("set");
        }),
        ("d/f: mode 0644 != 0600", |b| {
            std::fs::set_permissions(b.join("d/f"), PermissionsExt::from_mode(0o600)).expect("set");
        }),
        ("d/g: mtime", |b| set_mtime(&b.join("d/g"), THEN)),
        ("d: mtime", |b| set_mtime(&b.join("d"), THEN)),
        ("d/f: attribute user.a: 1 != 2", |b| {
            rustix::fs::setxattr(b.join("d/f"), "user.a", b"2", rustix::fs::XattrFlags::empty()).expect("set");
        }),
        ("d/e: attribute user.b only in B", |b| {
            rustix::fs::setxattr(b.join("d/e"), "user.b", b"2", rustix::fs::XattrFlags::empty()).expect("set");
        }),
        ("d/new: only in B", |b| std::fs::write(b.join("d/new"), "").expect("written")),
        ("d/g: only in A", |b| std::fs::remove_file(b.join("d/g")).expect("removed")),
        ("d/g: size 5 != 4", |b| std::fs::write(b.join("d/g"), "four").expect("written")),
        ("d/link: link target f != g", |b| {
            std::fs::remove_file(b.join("d/link")).expect("removed");
            std::os::unix::fs::symlink("g", b.join("d/link")).expect("made");
        }),
        ("d/linked: not a hard link to d/f in B", |b| {
            std::fs::remove_file(b.join("d/linked")).expect("removed");
            std::fs::copy(b.join("d/f"), b.join("d/linked")).expect("copied");
        }),
        ("d/e: type Directory != RegularFile", |b| {
            std::fs::remove_dir(b.join("d/e")).expect("removed");
            std::fs::write(b.join("d/e"), "").expect("written");
        }),
        ("holes: holes lost", |b| {
            let content = read(&b.join("holes"));
            std::fs::write(b.join("holes"), content).expect("written");
        }),
    ];
    for (number, (expected, change)) in changes.into_iter().enumerate() {
        let b = place.path(&format!("b{number}"));
        copy(&a, &b);
        assert_eq!(differences(&a, &b, Options::default()).expect("compared"), [] as [&str; 0]);
        change(&b);
        let found = differences(&a, &b, Options::default()).expect("compared");
        assert!(found.iter().any(|line| line.starts_with(expected)), "{expected}: {found:?}");
    }
}

#[test]
fn what_is_left_out_is_left_out() {
    let place = Place::new();
    let (a, b) = (place.path("a"), place.path("b"));
    std::fs::create_dir(&a).expect("made");
    let _socket = std::os::unix::net::UnixListener::bind(a.join("socket")).expect("bound");
    std::fs::create_dir(&b).expect("made");
    std::fs::set_permissions(&b, PermissionsExt::from_mode(0o700)).expect("set");
    let found = differences(&a, &b, Options::default()).expect("compared");
    assert!(found.len() >= 2, "{found:?}");
    let options = Options { no_root: true, skip_sockets: true, ..Options::default() };
    assert_eq!(differences(&a, &b, options).expect("compared"), [] as [&str; 0]);
    assert!(differences(&a, &place.path("absent"), options).is_err());
    if is_root("owner part of what_is_left_out_is_left_out") {
        std::fs::write(a.join("f"), "").expect("written");
        copy(&a.join("f"), &b.join("f"));
        std::os::unix::fs::chown(b.join("f"), Some(5), Some(6)).expect("given away");
        assert_eq!(differences(&a, &b, options).expect("compared"), ["f: owner 0:0 != 5:6"]);
        let options = Options { no_owner: true, ..options };
        assert_eq!(differences(&a, &b, options).expect("compared"), [] as [&str; 0]);
    }
}
