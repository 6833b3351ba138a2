//! File systems without a free byte: a store opens, gives data up, and collects.

use larder_format::ErrorKind;
use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{CollectOptions, Store, VolumeError};

use super::interrupts::runs;
use super::scene::{Random, Scene, options};
use super::snapshots::{BLOCK, read};

/// Others take all space that is free.
fn fill_disk(scene: &Scene) {
    scene.disk.set_capacity(scene.disk.used());
}

fn has_ballast(scene: &Scene) -> bool {
    scene.disk.list("").unwrap().contains(&"ballast".to_owned())
}

/// A store with a ballast, data in two containers, and a log that the next start replays.
fn prepared() -> (Scene, u32, Vec<u8>) {
    let scene = Scene::new(101, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let mut expected = Random(1).bytes(300 * BLOCK);
    store.write(volume, 0, &expected).unwrap();
    store.close().unwrap();
    assert!(has_ballast(&scene));
    store.discard(volume, 0, 40 * BLOCK as u64).unwrap();
    expected[..40 * BLOCK].fill(0);
    store.flush().unwrap();
    drop(store);
    scene.disk.restart(Fault::Process);
    (scene, volume, expected)
}

fn compare(store: &Store, volume: u32, expected: &[u8]) {
    assert!(read(store, volume, 0, expected.len()) == expected);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

#[test]
fn a_store_opens_without_a_free_byte_and_collects() {
    let (scene, volume, mut expected) = prepared();
    fill_disk(&scene);
    let (store, _) = scene.open();
    compare(&store, volume, &expected);
    assert!(matches!(store.write(volume, 0, &[1; 512]), Err(VolumeError::Full)));
    // Nothing is left, again.
    fill_disk(&scene);
    store.discard(volume, 0, 290 * BLOCK as u64).unwrap();
    expected[..290 * BLOCK].fill(0);
    store.flush().unwrap();
    compare(&store, volume, &expected);
    // For a merge, and not for copies.
    scene.disk.set_capacity(scene.disk.used() + (256 << 10));
    let collected = store.collect(&CollectOptions::default()).unwrap();
    assert!(collected.containers > 0, "{collected:?}");
    compare(&store, volume, &expected);
    // With room, there is a ballast again, and writes are taken.
    assert!(!has_ballast(&scene));
    scene.disk.set_capacity(1 << 40);
    store.maintain().unwrap();
    assert!(has_ballast(&scene));
    store.write(volume, 0, &expected[..512]).unwrap();
    let (store, _) = scene.reopen(store, Fault::Power);
    compare(&store, volume, &expected);
}

/// The ballast is what a collection needs that begins without a free byte. Chunks move too.
#[test]
fn a_collection_begins_without_a_free_byte() {
    let (scene, volume, mut expected) = prepared();
    let (store, _) = scene.open();
    store.discard(volume, 0, 290 * BLOCK as u64).unwrap();
    expected[..290 * BLOCK].fill(0);
    store.flush().unwrap();
    fill_disk(&scene);
    let used = scene.disk.used();
    let collected = store.collect(&CollectOptions::default()).unwrap();
    assert!(collected.containers > 0 && collected.copied_chunks > 0, "{collected:?}");
    assert!(scene.disk.used() + 200 * (BLOCK as u64) < used);
    compare(&store, volume, &expected);
    let (files, used) = runs(&scene, &store);
    assert_eq!(files, used);
}

/// Without a ballast, and without space for a merge, containers that nothing names go.
#[test]
fn dead_containers_go_without_space_for_merges() {
    let (scene, volume, mut expected) = prepared();
    let (store, _) = scene.open();
    store.discard(volume, 0, 290 * BLOCK as u64).unwrap();
    expected[..290 * BLOCK].fill(0);
    store.close().unwrap();
    // It merges, so that counts are exact, and collects nothing.
    let merges = CollectOptions { until_free: Some(0), ..CollectOptions::default() };
    assert_eq!(store.collect(&merges).unwrap().rounds, 0);
    scene.disk.remove("ballast").unwrap();
    // For a manifest.
    scene.disk.set_capacity(scene.disk.used() + 3 * 4096);
    let collected = store.collect(&CollectOptions::default()).unwrap();
    assert!(collected.containers > 0, "{collected:?}");
    compare(&store, volume, &expected);
}

/// Snapshots, volumes and names are changed, as long as the log has room. Then publications need
/// some space.
#[test]
fn volumes_are_deleted_without_a_free_byte() {
    let (scene, volume, expected) = prepared();
    let (store, _) = scene.open();
    let other = store.create_volume("other", 1 << 20, 0).unwrap().id;
    fill_disk(&scene);
    store.delete_volume(other, false).unwrap();
    for number in 0..2600 {
        let snapshot = store.create_snapshot(volume, &format!("s{number}"), None, 0).unwrap().id;
        store.delete_snapshot(snapshot).unwrap();
    }
    compare(&store, volume, &expected);
    let (store, _) = scene.reopen(store, Fault::Power);
    compare(&store, volume, &expected);
}

/// A manifest without space for it does not count, and the store goes on when there is some.
#[test]
fn a_manifest_without_space_stops_nothing() {
    let (scene, volume, expected) = prepared();
    let (store, _) = scene.open();
    scene.disk.remove("ballast").unwrap();
    for free in 0..8 {
        scene.disk.set_capacity(scene.disk.used() + free * 4096);
        store.create_volume(&format!("v{free}"), 512, 0).unwrap();
        let closed = store.close();
        assert!(closed.is_ok() || closed.unwrap_err().kind() == ErrorKind::Full);
        assert!(store.stopped().is_none());
        let (files, used) = runs(&scene, &store);
        assert_eq!(files, used, "{free}");
    }
    scene.disk.set_capacity(1 << 40);
    store.write(volume, 400 << 20, &expected[290 * BLOCK..]).unwrap();
    store.close().unwrap();
    let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
    assert!(read(&store, volume, 400 << 20, 10 * BLOCK) == expected[290 * BLOCK..]);
    compare(&store, volume, &expected);
}

/// Nothing else is given up: without a ballast, a start without space fails, and changes nothing.
#[test]
fn a_start_without_a_ballast_waits_for_space() {
    let (scene, volume, expected) = prepared();
    scene.disk.remove("ballast").unwrap();
    fill_disk(&scene);
    for _ in 0..3 {
        assert_eq!(scene.open_with(options()).unwrap_err().kind(), ErrorKind::Full);
    }
    scene.disk.set_capacity(1 << 40);
    let (store, _) = scene.open();
    compare(&store, volume, &expected);
}
