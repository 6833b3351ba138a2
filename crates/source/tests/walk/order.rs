//! A walk gives every name below its roots once, in the order of `path_order`, with the metadata other tools see.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::support::torture::Torture;
use crate::support::{Walked, relative};
use larder_format::entry::{EntryKind, is_valid_path, path_order};
use larder_source::SkipReason;
use proptest::prelude::*;

/// What `find` says of a path: an independent view, made by other code with other system calls.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    path: Vec<u8>,
    kind: u8,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    /// Seconds and the digits after the point, as text.
    mtime: String,
    ctime: String,
    inode: u64,
    link_target: Vec<u8>,
}

fn find(root: &Path) -> Vec<Facts> {
    let format = "%p\\0%y\\0%m\\0%U\\0%G\\0%s\\0%T@\\0%C@\\0%i\\0%l\\0";
    let output = Command::new("find").arg(root).args(["-printf", format]).output().expect("find runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let fields: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
    let text = |field: &[u8]| String::from_utf8(field.to_vec()).expect("text");
    let number = |field: &[u8]| text(field).parse::<u64>().expect("a number");
    let parse = |fields: &[&[u8]]| Facts {
        path: fields[0][1..].to_vec(),
        kind: fields[1][0],
        mode: u32::from_str_radix(&text(fields[2]), 8).expect("octal"),
        uid: number(fields[3]) as u32,
        gid: number(fields[4]) as u32,
        size: number(fields[5]),
        mtime: text(fields[6]),
        ctime: text(fields[7]),
        inode: number(fields[8]),
        link_target: fields[9].to_vec(),
    };
    fields.chunks_exact(10).map(parse).collect()
}

fn as_find_prints(time: larder_format::entry::Timestamp) -> String {
    format!("{}.{:09}0", time.seconds, time.nanos)
}

#[test]
fn the_torture_tree_is_walked_whole_in_order_and_as_find_sees_it() {
    let dir = tempfile::tempdir().expect("a folder");
    Torture::small().build(dir.path()).expect("built");
    let mut expected = find(dir.path());
    expected.sort_by(|a, b| path_order(&a.path, &b.path));
    let sockets: Vec<Vec<u8>> = expected.iter().filter(|f| f.kind == b's').map(|f| f.path.clone()).collect();
    expected.retain(|facts| facts.kind != b's');

    let walked = Walked::plain(&[dir.path()]);
    assert!(walked.problems.is_empty(), "{:?}", walked.problem_lines(dir.path()));
    let skipped: Vec<(Vec<u8>, SkipReason)> = sockets.into_iter().map(|path| (path, SkipReason::Socket)).collect();
    assert_eq!(walked.skipped, skipped);
    let below: Vec<_> = walked.found.iter().filter(|f| f.entry.path.starts_with(&relative(dir.path()))).collect();
    assert_eq!(below.len(), expected.len());
    assert!(below.iter().any(|found| found.entry.path.len() > 4_096));

    for (found, facts) in below.into_iter().zip(expected) {
        let entry = &found.entry;
        let shown = larder_source::PathText(&entry.path);
        assert_eq!(entry.path, facts.path, "{shown}");
        assert!(is_valid_path(&entry.path));
        let (kind, size) = match &entry.kind {
            EntryKind::File { size, extents: None } => (b'f', Some(*size)),
            EntryKind::Directory => (b'd', None),
            EntryKind::Symlink { target } => {
                assert_eq!(*target, facts.link_target, "{shown}");
                (b'l', None)
            }
            EntryKind::Fifo => (b'p', None),
            EntryKind::CharDevice { .. } => (b'c', None),
            EntryKind::BlockDevice { .. } => (b'b', None),
            EntryKind::HardLink { .. } => (facts.kind, None),
            other => panic!("{shown} is {other:?}"),
        };
        assert_eq!(kind, facts.kind, "{shown}");
        assert!(size.is_none_or(|size| size == facts.size), "{shown}");
        assert_eq!((entry.mode, entry.uid, entry.gid), (facts.mode, facts.uid, facts.gid), "{shown}");
        assert_eq!(entry.inode, facts.inode, "{shown}");
        assert_eq!(as_find_prints(entry.mtime), facts.mtime, "{shown}");
        assert_eq!(as_find_prints(entry.ctime), facts.ctime, "{shown}");
        assert_eq!(entry.atime, None);
    }
}

#[test]
fn hard_links_point_to_the_first_name_and_devices_keep_their_numbers() {
    let dir = tempfile::tempdir().expect("a folder");
    Torture::small().build(dir.path()).expect("built");
    let walked = Walked::plain(&[dir.path()]);
    let entries = walked.by_path();
    let of =
        |path: &str| &entries[[&relative(dir.path()), b"/".as_slice(), path.as_bytes()].concat().as_slice()].entry.kind;
    let link = |path: &str| EntryKind::HardLink { target: relative(&dir.path().join(path)) };
    assert_eq!(*of("links/a/first"), EntryKind::File { size: 11, extents: None });
    assert_eq!(*of("links/m"), link("links/a/first"));
    assert_eq!(*of("links/z/deep/last"), link("links/a/first"));
    assert_eq!(*of("links/empty 2"), link("links/empty 1"));
    assert_eq!(*of("links/half"), EntryKind::File { size: 9, extents: None });
    assert_eq!(*of("order/the other half"), link("links/half"));
    assert_eq!(*of("special/fifo"), EntryKind::Fifo);
    assert_eq!(*of("special/fifo again"), link("special/fifo"));
    if crate::support::is_superuser() {
        assert_eq!(*of("special/null"), EntryKind::CharDevice { major: 1, minor: 3 });
        assert_eq!(*of("special/large numbers"), EntryKind::CharDevice { major: 4_000, minor: 1_000_000 });
        assert_eq!(*of("special/block"), EntryKind::BlockDevice { major: 7, minor: 200 });
    }
    // Both names of a symlink with two.
    assert_eq!(*of("links/dangling"), EntryKind::Symlink { target: b"nowhere".to_vec() });
    assert_eq!(*of("links/dangling too"), link("links/dangling"));
    // A group of which only one name is inside the roots.
    let part = Walked::plain(&[&dir.path().join("order")]);
    let other = part.found.iter().find(|found| found.entry.path.ends_with(b"the other half")).expect("walked");
    assert_eq!(other.entry.kind, EntryKind::File { size: 9, extents: None });
    assert!(other.may_be_linked_to());
}

#[test]
fn access_times_come_only_when_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    crate::support::put(dir.path(), "file", b"x");
    let options = larder_source::WalkOptions { with_atime: true, ..Default::default() };
    let walked = Walked::with(&[dir.path()], options);
    assert!(walked.found.iter().all(|found| found.entry.atime.is_some()));
}

/// Reading must not change what is read: neither contents nor access times.
#[test]
fn walking_and_reading_leave_access_times_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = crate::support::put(dir.path(), "sub/file", b"contents");
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    for path in [&file, &dir.path().join("sub")] {
        let times = fs::FileTimes::new().set_accessed(old);
        fs::File::open(path).expect("opens").set_times(times).expect("set");
    }
    let mut walked = Walked::plain(&[dir.path()]);
    let found = walked.found.last_mut().expect("the file");
    let mut reader = found.open().expect("opens");
    assert_eq!(reader.read(&mut [0; 100]).expect("reads"), 8);
    for path in [&file, &dir.path().join("sub")] {
        assert_eq!(fs::metadata(path).expect("there").accessed().expect("kept"), old, "{path:?}");
    }
}

/// A name of a few bytes that sort around `/`.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        Just(b'a'),
        Just(b'b'),
        Just(b'-'),
        Just(b'.'),
        Just(b'0'),
        Just(b' '),
        Just(1),
        Just(b'\n'),
        Just(255)
    ];
    proptest::collection::vec(byte, 1..4).prop_filter("not a name", |name| name != b"." && name != b"..")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_tree_comes_in_path_order_once(
        files in proptest::collection::vec(proptest::collection::vec(name(), 1..5), 0..25),
        picked in proptest::collection::vec(any::<prop::sample::Index>(), 1..4),
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let top = relative(dir.path());
        let mut expected: BTreeSet<Vec<u8>> = BTreeSet::new();
        for components in &files {
            let path: std::path::PathBuf = components.iter().map(|name| OsStr::from_bytes(name)).collect();
            let path = dir.path().join(path);
            // One file's path may lead through another file: then it is not made.
            if fs::create_dir_all(path.parent().expect("has one")).is_ok() && !path.exists() {
                fs::write(&path, b"").expect("written");
            }
        }
        let mut listed = vec![dir.path().to_owned()];
        while let Some(path) = listed.pop() {
            expected.insert(relative(&path));
            if path.is_dir() {
                listed.extend(fs::read_dir(&path).expect("listed").map(|entry| entry.expect("listed").path()));
            }
        }
        let mut expected: Vec<Vec<u8>> = expected.into_iter().collect();
        expected.sort_by(|a, b| path_order(a, b));

        let walked = Walked::plain(&[dir.path()]);
        prop_assert!(walked.problems.is_empty());
        let got: Vec<Vec<u8>> = walked.paths().iter().filter(|path| path.starts_with(&top)).map(|path| path.to_vec()).collect();
        prop_assert_eq!(&got, &expected);

        // Several roots, some inside others: the union, and every folder above, each once.
        let roots: Vec<std::path::PathBuf> = picked.iter().map(|at| crate::support::path_of(at.get::<Vec<u8>>(&expected))).collect();
        let mut union: BTreeSet<Vec<u8>> = BTreeSet::new();
        for root in roots.iter().map(|root| relative(root)) {
            let inside = |path: &&Vec<u8>| **path == root || path.starts_with(&[&root, b"/".as_slice()].concat());
            union.extend(expected.iter().filter(inside).cloned());
            let ends = root.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            union.extend(ends.map(|end| root[..end].to_vec()));
        }
        let mut union: Vec<Vec<u8>> = union.into_iter().collect();
        union.sort_by(|a, b| path_order(a, b));
        let roots: Vec<&Path> = roots.iter().map(|root| root.as_path()).collect();
        let walked = Walked::plain(&roots);
        prop_assert!(walked.problems.is_empty());
        prop_assert_eq!(walked.paths(), union);
    }
}
