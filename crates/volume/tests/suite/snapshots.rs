//! Snapshots, clones, resizes and deletions: against vectors, and the messages of refusals.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use larder_format::volume_manifest::Parent;
use larder_nbd::Exports;
use larder_volume::CheckOptions;
use larder_volume::disk::Fault;
use larder_volume::{Lower, Store, VolumeError, VolumeExports};

use super::scene::{Random, Scene};

pub(crate) const BLOCK: usize = 64 << 10;

pub(crate) fn read(store: &Store, volume: u32, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    store.read(volume, offset, &mut buffer).unwrap();
    buffer
}

pub(crate) fn read_snapshot(store: &Store, snapshot: u32, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    store.read_snapshot(snapshot, 0, &mut buffer).unwrap();
    buffer
}

#[test]
fn a_snapshot_keeps_what_was_written_before_it() {
    let scene = Scene::new(31, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 4 * BLOCK as u64, 0).unwrap().id;
    let first = Random(1).bytes(4 * BLOCK);
    store.write(volume, 0, &first).unwrap();
    let monday = store.create_snapshot(volume, "monday", Some("mark"), 7).unwrap();
    let second = Random(2).bytes(BLOCK + 1000);
    store.write(volume, 500, &second).unwrap();
    store.discard(volume, 3 * BLOCK as u64, BLOCK as u64).unwrap();
    let mut now = first.clone();
    now[500..500 + second.len()].copy_from_slice(&second);
    now[3 * BLOCK..].fill(0);
    // In memory, from the log, and in runs.
    let mut store = store;
    for _ in 0..3 {
        assert_eq!(read_snapshot(&store, monday.id, first.len()), first);
        assert_eq!(read(&store, volume, 0, now.len()), now);
        store.close().unwrap();
        store.maintain().unwrap();
        store = scene.reopen(store, Fault::Power).0;
    }
    assert_eq!(store.snapshot("disk@monday").unwrap(), monday);
    store.mark_snapshot(monday.id, None).unwrap();
    let (store, _) = scene.reopen(store, Fault::Power);
    assert_eq!(store.snapshot("disk@monday").unwrap().mark, None);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

#[test]
fn changes_of_volumes_are_one_record_and_last() {
    let scene = Scene::new(32, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 40, 0).unwrap().id;
    store.write(volume, 0, &[1; 1000]).unwrap();
    let snapshot = store.create_snapshot(volume, "a", None, 0).unwrap();
    let before = scene.disk.operations();
    let clone = store.clone_snapshot("clone", snapshot.id, 0).unwrap();
    store.rename_volume(clone.id, "other").unwrap();
    store.create_snapshot(clone.id, "b", None, 0).unwrap();
    // A write and a sync each of the log and of the anchor, whatever the tables hold.
    assert!(scene.disk.operations() - before <= 14, "{}", scene.disk.operations() - before);
    let (store, recovery) = scene.reopen(store, Fault::Power);
    assert_eq!(recovery.records, 6);
    assert_eq!(store.volume("other").unwrap().parent, Some(Parent::Snapshot(snapshot.id)));
    assert_eq!(read(&store, clone.id, 0, 1000), vec![1; 1000]);
    assert!(store.snapshot("other@b").is_ok());
}

#[test]
fn what_is_needed_is_not_deleted_and_the_message_names_why() {
    let scene = Scene::new(33, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    let snapshot = store.create_snapshot(volume, "monday", None, 0).unwrap().id;
    let clone = store.clone_snapshot("copy", snapshot, 0).unwrap().id;
    let text = |error: VolumeError| error.to_string();
    assert_eq!(text(store.delete_snapshot(snapshot).unwrap_err()), "the snapshot disk@monday has clones: copy");
    assert_eq!(text(store.delete_volume(volume, true).unwrap_err()), "the snapshot disk@monday has clones: copy");
    store.delete_volume(clone, false).unwrap();
    assert_eq!(text(store.delete_volume(volume, false).unwrap_err()), "the volume disk has snapshots: monday");
    assert!(matches!(store.create_snapshot(volume, "monday", None, 0), Err(VolumeError::SnapshotExists(_))));
    assert!(matches!(store.create_snapshot(volume, "a@b", None, 0), Err(VolumeError::BadRequest(_))));
    store.delete_volume(volume, true).unwrap();
    assert!(store.volumes().is_empty() && store.snapshots().is_empty());
    for error in [
        store.write(volume, 0, &[1]).unwrap_err(),
        store.read(volume, 0, &mut [0]).unwrap_err(),
        store.discard(volume, 0, 1).unwrap_err(),
        store.create_snapshot(volume, "b", None, 0).unwrap_err(),
    ] {
        assert!(matches!(error, VolumeError::NoVolume(_)), "{error}");
    }
    assert!(matches!(store.read_snapshot(snapshot, 0, &mut [0]), Err(VolumeError::NoSnapshot(_))));
    // Numbers are never used again.
    assert!(store.create_volume("disk", 1 << 20, 0).unwrap().id > clone);
    store.flush().unwrap();
}

#[test]
fn a_smaller_volume_ends_and_a_larger_one_has_zeros() {
    let scene = Scene::new(34, 1 << 20);
    let (store, _) = scene.open();
    let size = 4 * BLOCK as u64;
    let volume = store.create_volume("disk", size, 0).unwrap().id;
    let data = Random(3).bytes(4 * BLOCK);
    store.write(volume, 0, &data).unwrap();
    let snapshot = store.create_snapshot(volume, "whole", None, 0).unwrap().id;
    let part = BLOCK as u64 + 512;
    store.resize_volume(volume, part).unwrap();
    assert!(matches!(store.read(volume, part - 1, &mut [0; 2]), Err(VolumeError::BehindEnd(_))));
    assert!(matches!(store.write(volume, part, &[0]), Err(VolumeError::BehindEnd(_))));
    assert!(matches!(store.discard(volume, part, 1), Err(VolumeError::BehindEnd(_))));
    store.resize_volume(volume, 2 * size).unwrap();
    let (store, _) = scene.reopen(store, Fault::Power);
    assert_eq!(read(&store, volume, 0, part as usize), data[..part as usize]);
    assert_eq!(read(&store, volume, part, (2 * size - part) as usize), vec![0; (2 * size - part) as usize]);
    assert_eq!(read_snapshot(&store, snapshot, data.len()), data);
    assert!(matches!(store.read_snapshot(snapshot, size, &mut [0]), Err(VolumeError::BehindEnd(_))));
    // A clone that grows does not show what the parent had behind the clone's end.
    let clone = store.clone_snapshot("clone", snapshot, 0).unwrap().id;
    store.resize_volume(clone, 512).unwrap();
    store.resize_volume(clone, size).unwrap();
    assert_eq!(read(&store, clone, 0, 512), data[..512]);
    assert_eq!(read(&store, clone, 512, 4 * BLOCK - 512), vec![0; 4 * BLOCK - 512]);
}

#[test]
fn a_clone_written_with_the_content_of_its_parent_stores_nothing() {
    let scene = Scene::new(35, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 8 * BLOCK as u64, 0).unwrap().id;
    let data = Random(4).bytes(8 * BLOCK);
    store.write(volume, 0, &data).unwrap();
    let snapshot = store.create_snapshot(volume, "a", None, 0).unwrap().id;
    let clone = store.clone_snapshot("clone", snapshot, 0).unwrap().id;
    store.close().unwrap();
    store.write(clone, 0, &data).unwrap();
    store.flush().unwrap();
    let (store, recovery) = scene.reopen(store, Fault::Process);
    assert_eq!(recovery.records, 0);
    assert_eq!(read(&store, clone, 0, data.len()), data);
}

/// Content outside of a store that may fail.
struct Image(Vec<u8>);

impl Lower for Image {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = offset as usize;
        buffer.copy_from_slice(self.0.get(from..from + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn is_zero(&self, range: Range<u64>) -> bool {
        let end = (range.end as usize).min(self.0.len());
        self.0.get(range.start as usize..end).is_none_or(|part| part.iter().all(|byte| *byte == 0))
    }
}

#[test]
fn a_volume_over_something_outside_reads_it_until_it_is_written() {
    let scene = Scene::new(36, 1 << 20);
    let (store, _) = scene.open();
    let size = 6 * BLOCK;
    let mut expected = Random(5).bytes(4 * BLOCK + 700);
    expected[BLOCK..2 * BLOCK].fill(0);
    let image = Arc::new(Image(expected.clone()));
    expected.resize(size, 0);
    let volume = store.create_over("disk", size as u64, "repository/version", 0).unwrap().id;
    let other = store.create_volume("other", 1 << 20, 0).unwrap().id;
    let error = store.read(volume, 0, &mut [0; 100]).unwrap_err();
    assert!(
        error.to_string().contains("repository/version: it is not connected")
            || matches!(error, VolumeError::Blocks { .. }),
        "{error}"
    );
    // Parts cannot be written, whole blocks can, and others are not held up.
    assert!(store.write(volume, 10, &[1]).is_err());
    let whole = Random(6).bytes(BLOCK);
    store.write(volume, 2 * BLOCK as u64, &whole).unwrap();
    store.write(other, 5, &[1]).unwrap();
    store.flush().unwrap();
    expected[2 * BLOCK..3 * BLOCK].copy_from_slice(&whole);
    store.set_lower(volume, image.clone());
    assert_eq!(read(&store, volume, 0, size), expected);
    let snapshot = store.create_snapshot(volume, "before", None, 0).unwrap().id;
    let before = expected.clone();
    let part = Random(7).bytes(1000);
    for at in [100, BLOCK + 5, 4 * BLOCK + 600] {
        store.write(volume, at as u64, &part).unwrap();
        expected[at..at + part.len()].copy_from_slice(&part);
    }
    store.discard(volume, 3 * BLOCK as u64 - 50, BLOCK as u64 + 60).unwrap();
    expected[3 * BLOCK - 50..4 * BLOCK + 10].fill(0);
    let clone = store.clone_snapshot("clone", snapshot, 0).unwrap().id;
    let mut store = store;
    for _ in 0..3 {
        assert_eq!(read(&store, volume, 0, size), expected);
        assert_eq!(read_snapshot(&store, snapshot, size), before);
        assert_eq!(read(&store, clone, 0, size), before);
        store.close().unwrap();
        store.collect(&larder_volume::CollectOptions::default()).unwrap();
        store = scene.reopen(store, Fault::Power).0;
        store.set_lower(volume, image.clone());
    }
    assert!(matches!(store.drop_parent(volume), Err(VolumeError::Needed { .. })));
    store.delete_volume(clone, false).unwrap();
    store.delete_snapshot(snapshot).unwrap();
    store.write(volume, 0, &expected).unwrap();
    store.drop_parent(volume).unwrap();
    let (store, _) = scene.reopen(store, Fault::Power);
    assert_eq!(read(&store, volume, 0, size), expected);
}

#[test]
fn changed_blocks_are_those_that_were_written_between_two_snapshots() {
    let scene = Scene::new(37, 1 << 20);
    let (store, _) = scene.open();
    let store = Arc::new(store);
    let volume = store.create_volume("disk", 100 * BLOCK as u64, 0).unwrap().id;
    let write = |block: usize, seed| store.write(volume, (block * BLOCK) as u64, &Random(seed).bytes(BLOCK)).unwrap();
    let ranges = |since, until| -> Vec<Range<u64>> {
        store.changed_blocks(volume, since, until).unwrap().map(Result::unwrap).collect()
    };
    (0..10).for_each(|block| write(block, block as u64));
    let first = store.create_snapshot(volume, "first", None, 0).unwrap().id;
    (3..5).for_each(|block| write(block, 100 + block as u64));
    write(50, 7);
    let second = store.create_snapshot(volume, "second", None, 0).unwrap().id;
    write(4, 300);
    write(99, 8);
    store.discard(volume, 0, BLOCK as u64).unwrap();
    let exports = VolumeExports::new(store.clone());
    for _ in 0..3 {
        assert_eq!(ranges(None, Some(first)), std::slice::from_ref(&(0..10)));
        assert_eq!(ranges(Some(first), Some(second)), [3..5, 50..51]);
        assert_eq!(ranges(Some(second), None), [0..1, 4..5, 99..100]);
        assert_eq!(ranges(Some(first), None), [0..1, 3..5, 50..51, 99..100]);
        assert_eq!(ranges(Some(first), Some(first)), []);
        assert!(store.changed_blocks(volume, Some(second), Some(first)).is_err());
        let status = |name: &str, context: &str, from: usize, blocks: usize, most: usize| -> Vec<(u64, u32)> {
            let export = exports.find(name).unwrap().unwrap();
            assert!(export.contexts().contains(&context.to_owned()), "{context}");
            let found = export.block_status(context, (from * BLOCK) as u64, (blocks * BLOCK) as u64, most).unwrap();
            found.iter().map(|extent| (extent.length / BLOCK as u64, extent.flags)).collect()
        };
        let all = [(3, 0), (2, 1), (45, 0), (1, 1), (49, 0)];
        assert_eq!(status("disk@second", "larder:changed-since:first", 0, 100, 9), all);
        assert_eq!(status("disk@second", "qemu:dirty-bitmap:first", 0, 100, 2), all[..2]);
        assert_eq!(status("disk", "qemu:dirty-bitmap:second", 4, 2, 9), [(1, 1), (1, 0)]);
        store.close().unwrap();
        store.maintain().unwrap();
    }
}

#[test]
fn exports_appear_and_vanish_and_snapshots_are_read_only() {
    let scene = Scene::new(38, 1 << 20);
    let (store, _) = scene.open();
    let store = Arc::new(store);
    let exports = VolumeExports::new(store.clone());
    let names = || exports.list().into_iter().map(|listed| listed.name).collect::<Vec<_>>();
    assert!(names().is_empty());
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    store.write(volume, 0, &[7; 100]).unwrap();
    let snapshot = store.create_snapshot(volume, "a", None, 0).unwrap().id;
    assert_eq!(names(), ["disk", "disk@a"]);
    let (live, old) = (exports.find("").unwrap().unwrap(), exports.find("disk@a").unwrap().unwrap());
    assert!(exports.find("disk@b").unwrap().is_none() && exports.find("b").unwrap().is_none());
    assert!(old.abilities().read_only && !live.abilities().read_only);
    live.write(0, &[8; 100], true).unwrap();
    let mut buffer = [0; 100];
    old.read(0, &mut buffer).unwrap();
    assert_eq!(buffer, [7; 100]);
    assert!(old.write(0, &[9], false).is_err() && old.trim(0, 512, false).is_err());
    store.delete_snapshot(snapshot).unwrap();
    assert!(old.read(0, &mut buffer).unwrap_err().message.contains("there is no snapshot"));
    store.delete_volume(volume, false).unwrap();
    for error in [
        live.read(0, &mut buffer),
        live.write(0, &[1], false),
        live.block_status("base:allocation", 0, 512, 1).map(drop),
    ] {
        assert!(error.unwrap_err().message.contains("there is no volume"));
    }
    assert!(names().is_empty());
}
