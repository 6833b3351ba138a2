//! Two versions are compared from their metadata alone: every change is told, and no content is read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::*;
use larder_job::JobContext;
use larder_lnode::BackupOptions;
use larder_reader::{Change, VersionReader, diff};
use larder_store::{RepositoryError, Store, StoreOptions};
use larder_testkit::{FaultStore, Memory, OpKind, data};

fn write_first(root: &Path) {
    fs::create_dir_all(root.join("folder")).unwrap();
    fs::write(root.join("equal"), data::random(1, 9_000_000)).unwrap();
    fs::write(root.join("changed"), data::random(2, 9_000_000)).unwrap();
    fs::write(root.join("rewritten"), data::random(3, 300_000)).unwrap();
    fs::write(root.join("grown"), data::random(4, 300_000)).unwrap();
    fs::write(root.join("removed"), "x").unwrap();
    fs::write(root.join("type"), "x").unwrap();
    fs::write(root.join("linked"), data::random(5, 100_000)).unwrap();
    fs::hard_link(root.join("linked"), root.join("zlink")).unwrap();
    for n in 0..200 {
        fs::write(root.join(format!("folder/{n:03}")), format!("{n} ").repeat(n)).unwrap();
    }
}

fn write_second(root: &Path) {
    let time = fs::metadata(root.join("changed")).unwrap().modified().unwrap();
    let changed = fs::File::options().write(true).open(root.join("changed")).unwrap();
    changed.write_all_at(b"!", 5_000_000).unwrap();
    // Neither size nor time of modification tell.
    changed.set_modified(time).unwrap();
    fs::write(root.join("rewritten"), data::random(3, 300_000)).unwrap();
    fs::write(root.join("grown"), data::random(4, 300_001)).unwrap();
    fs::remove_file(root.join("removed")).unwrap();
    fs::write(root.join("added"), "x").unwrap();
    fs::remove_file(root.join("type")).unwrap();
    fs::create_dir(root.join("type")).unwrap();
    // A link that is none any more, with equal content.
    fs::remove_file(root.join("zlink")).unwrap();
    fs::copy(root.join("linked"), root.join("zlink")).unwrap();
    fs::write(root.join("folder/100"), "other").unwrap();
}

fn changes(context: &JobContext, top: &[u8]) -> Vec<(String, Change)> {
    let versions = versions(context);
    let [old, new] = [0, 1].map(|number| VersionReader::open(context, &versions[number]).unwrap());
    let mut changes = Vec::new();
    diff((&old, top), (&new, top), |name, before, after, change| {
        assert_eq!(before.is_none(), change == Change::Added);
        assert_eq!(after.is_none(), change == Change::Removed);
        if change != Change::Nothing {
            changes.push((String::from_utf8(name.to_vec()).unwrap(), change));
        }
        Ok::<(), RepositoryError>(())
    })
    .unwrap();
    changes
}

#[test]
fn every_change_is_told_and_no_content_read() {
    // Once as a backup that follows another, which shares segments; once read again into another series.
    for series in ["series", "another"] {
        let (dir, runtime, memory) = (tempfile::tempdir().unwrap(), runtime(), Memory::new());
        let (store, faults) = FaultStore::new(memory.store());
        let store = Store::from_object_store(store, "", &StoreOptions::default()).unwrap();
        let context = context(&runtime, init(&runtime, store));
        let source = dir.path().join("source");
        write_first(&source);
        backup(&context, &source).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        write_second(&source);
        let paths = vec![source.as_os_str().as_bytes().to_vec()];
        larder_lnode::backup(&context, walk(&source), &BackupOptions { paths, ..options(series) }).unwrap();
        let before = faults.log().len();
        let found = changes(&context, &source.as_os_str().as_bytes()[1..]);
        let expected = [
            ("", Change::Metadata),
            ("added", Change::Added),
            ("changed", Change::Content),
            ("folder/100", Change::Content),
            ("grown", Change::Content),
            ("removed", Change::Removed),
            ("rewritten", Change::Metadata),
            ("type", Change::Type),
            ("zlink", Change::Metadata),
        ];
        let found: Vec<_> = found.iter().map(|(name, change)| (name.as_str(), *change)).collect();
        assert_eq!(found, expected, "{series}");
        let reads: Vec<_> = faults.log()[before..].iter().filter(|op| op.kind == OpKind::Get).cloned().collect();
        assert!(!reads.is_empty() && reads.iter().all(|op| !op.path.starts_with("data/")), "{series}: {reads:?}");
    }
}

#[test]
fn a_version_does_not_differ_from_itself() {
    let (dir, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let context = context(&runtime, init(&runtime, local(&dir.path().join("repository"))));
    let source = dir.path().join("source");
    write_first(&source);
    for series in ["one", "two"] {
        larder_lnode::backup(&context, walk(&source), &options(series)).unwrap();
    }
    // Folders above it are everybody's.
    assert_eq!(changes(&context, &source.as_os_str().as_bytes()[1..]), []);
}
