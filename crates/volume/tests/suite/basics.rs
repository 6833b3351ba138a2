//! Writing and reading, deduplication, limits.

use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{Options, Store, VolumeError};

use super::scene::{PASSWORD, Random, Scene, options};

const BLOCK: usize = 64 << 10;

fn read(store: &Store, volume: u32, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    store.read(volume, offset, &mut buffer).unwrap();
    buffer
}

fn stored(scene: &Scene) -> u64 {
    let names = scene.disk.list("containers/0").unwrap();
    names.iter().map(|name| scene.disk.length(&format!("containers/0/{name}"))).sum()
}

#[test]
fn what_was_flushed_is_there_after_a_power_failure() {
    let scene = Scene::new(1, 1 << 20);
    let (store, recovery) = scene.open();
    assert_eq!(recovery, larder_volume::Recovery::default());
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data = Random(5).bytes(5 * BLOCK);
    store.write(volume, 1000, &data).unwrap();
    assert_eq!(read(&store, volume, 1000, data.len()), data);
    store.flush().unwrap();
    store.write(volume, 2000, &[7; 100]).unwrap();
    let (store, recovery) = scene.reopen(store, Fault::Power);
    // The volume and the commit.
    assert_eq!((recovery.records, recovery.dropped), (2, 0));
    assert_eq!(read(&store, volume, 1000, data.len()), data);
    assert_eq!(read(&store, volume, 0, 1000), vec![0; 1000]);
    // Opening published it: the next start replays nothing.
    let (store, recovery) = scene.reopen(store, Fault::Power);
    assert_eq!(recovery.records, 0);
    assert_eq!(read(&store, volume, 1000, data.len()), data);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

#[test]
fn equal_data_is_stored_once_and_unchanged_blocks_not_at_all() {
    let scene = Scene::new(2, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data = Random(6).bytes(8 * BLOCK);
    store.write(volume, 0, &data).unwrap();
    store.close().unwrap();
    let once = stored(&scene);
    assert!(once > 8 * BLOCK as u64);
    // At another place, across a restart: only what differs at the ends of the stream is new.
    let (store, _) = scene.reopen(store, Fault::Power);
    store.write(volume, 64 << 20, &data).unwrap();
    store.write(volume, 0, &data).unwrap();
    store.close().unwrap();
    assert_eq!(stored(&scene), once);
    assert_eq!(read(&store, volume, 64 << 20, data.len()), data);
    store.write(volume, 128 << 20, &vec![0; 4 * BLOCK]).unwrap();
    store.close().unwrap();
    assert_eq!(stored(&scene), once);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

#[test]
fn unchanged_blocks_need_no_record_of_the_log() {
    let scene = Scene::new(8, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data = Random(6).bytes(3 * BLOCK);
    store.write(volume, 0, &data).unwrap();
    store.close().unwrap();
    store.write(volume, 0, &data).unwrap();
    store.write(volume, 10 << 20, &vec![0; 2 * BLOCK]).unwrap();
    store.flush().unwrap();
    let (store, recovery) = scene.reopen(store, Fault::Process);
    assert_eq!(recovery.records, 0);
    assert_eq!(read(&store, volume, 0, data.len()), data);
}

#[test]
fn a_block_in_too_many_pieces_is_written_as_a_whole() {
    let scene = Scene::new(9, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    let mut expected = Random(7).bytes(BLOCK);
    store.write(volume, 0, &expected).unwrap();
    for sector in (0..128).step_by(2) {
        let data = Random(sector).bytes(100);
        let at = sector as usize * 512;
        expected[at..at + 100].copy_from_slice(&data);
        store.write(volume, at as u64, &data).unwrap();
        store.flush().unwrap();
    }
    let (store, _) = scene.reopen(store, Fault::Power);
    assert_eq!(read(&store, volume, 0, BLOCK), expected);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

#[test]
fn small_writes_do_not_read_and_many_of_them_stay_readable() {
    let scene = Scene::new(3, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    let mut expected = Random(7).bytes(1 << 20);
    store.write(volume, 0, &expected).unwrap();
    let mut random = Random(8);
    for round in 0..300 {
        let at = random.below((1 << 20) - 5000) as usize;
        let length = 1 + random.below(5000) as usize;
        let data = random.bytes(length);
        expected[at..at + data.len()].copy_from_slice(&data);
        store.write(volume, at as u64, &data).unwrap();
        if round % 7 == 0 {
            store.flush().unwrap();
        }
    }
    assert_eq!(read(&store, volume, 0, expected.len()), expected);
    let (store, _) = scene.reopen(store, Fault::Process);
    store.flush().unwrap();
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

#[test]
fn discarded_ranges_are_zeros_and_a_new_volume_is_discarded_at_once() {
    let scene = Scene::new(4, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 64 << 40, 0).unwrap().id;
    store.discard(volume, 0, 64 << 40).unwrap();
    let data = Random(9).bytes(4 * BLOCK);
    store.write(volume, 0, &data).unwrap();
    store.close().unwrap();
    store.discard(volume, 1000, 2 * BLOCK as u64).unwrap();
    for _ in 0..2 {
        assert_eq!(read(&store, volume, 0, 1000), data[..1000]);
        assert_eq!(read(&store, volume, 1000, 2 * BLOCK), vec![0; 2 * BLOCK]);
        assert_eq!(read(&store, volume, 1000 + 2 * BLOCK as u64, BLOCK), data[1000 + 2 * BLOCK..1000 + 3 * BLOCK]);
        store.close().unwrap();
    }
}

#[test]
fn a_full_disk_refuses_writes_and_serves_reads_and_flushes() {
    let scene = Scene::new(5, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data = Random(9).bytes(BLOCK);
    store.write(volume, 0, &data).unwrap();
    scene.disk.set_free(1 << 20);
    store.flush().unwrap();
    assert!(matches!(store.write(volume, 0, &[1]), Err(VolumeError::Full)));
    assert_eq!(read(&store, volume, 0, BLOCK), data);
    store.discard(volume, 0, BLOCK as u64).unwrap();
    store.flush().unwrap();
    scene.disk.set_free(1 << 40);
    store.write(volume, 0, &[1]).unwrap();
    store.close().unwrap();
}

#[test]
fn memory_is_bounded_and_many_flushes_merge_their_runs() {
    let scene = Scene::new(6, 1 << 16);
    let small = Options { write_buffer: 256 << 10, commit_at: 128 << 10, tables: 8 << 10, ..options() };
    let (store, _) = scene.open_with(small).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let mut random = Random(10);
    let mut expected = vec![0; 64 * BLOCK];
    for _ in 0..120 {
        let at = random.below(60) as usize * BLOCK + random.below(4) as usize * 512;
        let data = random.bytes(70_000);
        expected[at..at + data.len()].copy_from_slice(&data);
        store.write(volume, at as u64, &data).unwrap();
        store.flush().unwrap();
    }
    store.maintain().unwrap();
    assert!(scene.disk.list("runs").unwrap().len() < 20);
    assert_eq!(scene.disk.list("manifest").unwrap().len(), 1);
    assert_eq!(read(&store, volume, 0, expected.len()), expected);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

#[test]
fn names_sizes_and_passwords_are_checked() {
    let scene = Scene::new(7, 1 << 16);
    let (store, _) = scene.open();
    store.create_volume("a", 512, 0).unwrap();
    assert!(matches!(store.create_volume("a", 512, 0), Err(VolumeError::VolumeExists(_))));
    for (name, size) in [("", 512), ("a/b", 512), (".a", 512), ("b", 0), ("b", 513), ("b", (64 << 40) + 512)] {
        assert!(matches!(store.create_volume(name, size, 0), Err(VolumeError::BadRequest(_))), "{name} {size}");
    }
    assert!(matches!(store.volume("b"), Err(VolumeError::NoVolume(_))));
    assert!(larder_volume::store::unlock(&scene.disk, PASSWORD).is_ok());
    assert!(matches!(larder_volume::store::unlock(&scene.disk, b"other"), Err(VolumeError::WrongKey)));
}

#[test]
fn empty_requests_change_nothing() {
    let scene = Scene::new(12, 1 << 16);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    store.write(volume, 100, &[7; 50]).unwrap();
    store.write(volume, 100, &[]).unwrap();
    assert_eq!(read(&store, volume, 100, 50), [7; 50]);
    store.discard(volume, 100, 0).unwrap();
    assert_eq!(read(&store, volume, 100, 50), [7; 50]);
    assert!(read(&store, volume, 100, 0).is_empty());
    store.flush().unwrap();
    assert_eq!(read(&store, volume, 100, 50), [7; 50]);
}

/// Blocks in many pieces are read as a whole for their commit. They are not all in memory at once.
#[test]
fn a_commit_of_many_blocks_in_pieces_has_several_records() {
    const BLOCKS: u64 = 600;
    let scene = Scene::new(13, 4 << 20);
    let large = Options { write_buffer: 64 << 20, commit_at: 64 << 20, tables: 64 << 20, ..options() };
    let (store, _) = scene.open_with(large).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    for block in 0..BLOCKS {
        for piece in 0..14 {
            store.write(volume, block * BLOCK as u64 + piece * 4000, &block.to_le_bytes()).unwrap();
        }
    }
    store.flush().unwrap();
    let (_, recovery) = scene.reopen(store, Fault::Process);
    assert!(recovery.records >= BLOCKS * BLOCK as u64 / (16 << 20), "{} records", recovery.records);
}
