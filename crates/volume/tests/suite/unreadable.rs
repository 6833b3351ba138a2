//! A block that must be read for its commit and cannot: only its volume gets the error.

use larder_volume::disk::Fault;
use larder_volume::{Options, Store, VolumeError};

use super::scene::{Random, Scene, options};
use super::snapshots::{BLOCK, read};

/// A store with a volume whose first blocks do not open, and a sound one.
fn prepared(options: Options) -> (Scene, Store, u32, u32) {
    let scene = Scene::new(131, 1 << 20);
    let (store, _) = scene.open();
    let damaged = store.create_volume("damaged", 1 << 30, 0).unwrap().id;
    let sound = store.create_volume("sound", 1 << 30, 0).unwrap().id;
    store.write(damaged, 0, &Random(1).bytes(40 * BLOCK)).unwrap();
    store.close().unwrap();
    drop(store);
    scene.disk.restart(Fault::Process);
    for at in 0..20 {
        scene.disk.damage("containers/0/0", at * 2 * BLOCK as u64 + 100);
    }
    let store = scene.open_with(options).unwrap().0;
    (scene, store, damaged, sound)
}

/// Writes so many pieces of a block that it must be written as a whole.
fn write_pieces(store: &Store, volume: u32, block: usize) -> Result<(), VolumeError> {
    (0..20).try_for_each(|piece| store.write(volume, (block * BLOCK + piece * 3000) as u64, &[7; 100]))
}

#[test]
fn snapshots_and_sizes_of_other_volumes_do_not_wait_for_it() {
    let (scene, store, damaged, sound) = prepared(options());
    write_pieces(&store, damaged, 0).unwrap();
    let data = Random(2).bytes(BLOCK);
    store.write(sound, 0, &data).unwrap();
    let snapshot = store.create_snapshot(sound, "monday", None, 0).unwrap().id;
    store.resize_volume(sound, 2 << 30).unwrap();
    let clone = store.clone_snapshot("clone", snapshot, 0).unwrap().id;
    store.flush_volume(sound).unwrap();
    let is_its = |error: VolumeError| matches!(&error, VolumeError::Blocks { volume, .. } if volume == "damaged");
    assert!(is_its(store.create_snapshot(damaged, "monday", None, 0).unwrap_err()));
    assert!(is_its(store.resize_volume(damaged, 2 << 30).unwrap_err()));
    assert!(is_its(store.flush_volume(damaged).unwrap_err()));
    assert!(is_its(store.flush().unwrap_err()));
    let told = store.stats().problems;
    assert!(told.len() == 1 && told[0].contains("volume damaged, blocks 0 to 0"), "{told:?}");
    // All else is published.
    assert!(is_its(store.close().unwrap_err()));
    assert_eq!(store.stats().log_slots_used, 1);
    assert!(read(&store, clone, 0, BLOCK) == data);
    // Its end: the block is written as a whole.
    store.write(damaged, 0, &data).unwrap();
    store.create_snapshot(damaged, "monday", None, 0).unwrap();
    assert!(store.stats().problems.is_empty());
    let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
    assert!(read(&store, damaged, 0, BLOCK) == data);
    assert!(read(&store, sound, 0, BLOCK) == data);
}

/// Blocks that wait for ever must leave room in the write buffer for others.
#[test]
fn writes_of_other_volumes_find_room_beside_it() {
    let (scene, store, damaged, sound) = prepared(Options { write_buffer: 128 << 10, ..options() });
    let mut refused = 0;
    // The buffer is full of them before the first commit knows that they cannot be read.
    for block in 0..40 {
        refused += usize::from(write_pieces(&store, damaged, block).is_err());
    }
    assert!(refused > 0, "{}", store.stats().waiting_bytes);
    store.write(sound, 0, &[1; 512]).unwrap();
    for block in 0..40 {
        drop((write_pieces(&store, damaged, block), store.flush()));
    }
    let data = Random(2).bytes(20 * BLOCK);
    store.write(sound, 0, &data).unwrap();
    store.flush_volume(sound).unwrap();
    // What can end it is accepted.
    store.write(damaged, 0, &data).unwrap();
    store.discard(damaged, 20 * BLOCK as u64, 20 * BLOCK as u64).unwrap();
    store.flush().unwrap();
    write_pieces(&store, damaged, 20).unwrap();
    store.flush().unwrap();
    let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
    assert!(read(&store, sound, 0, data.len()) == data);
    assert!(read(&store, damaged, 0, data.len()) == data);
}
