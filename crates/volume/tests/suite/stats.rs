//! Counters, and the space of volumes.

use super::scene::{Random, Scene};

const BLOCK: usize = 64 << 10;

#[test]
fn counters_say_what_was_done() {
    let scene = Scene::new(21, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    assert_eq!(store.stats().commits, 0);
    let data = Random(3).bytes(4 * BLOCK);
    store.write(volume, 0, &data).unwrap();
    assert!(store.stats().waiting_bytes >= 4 * BLOCK as u64);
    store.flush().unwrap();
    // At another place, and once more at the first one.
    store.write(volume, 1 << 20, &data).unwrap();
    store.flush().unwrap();
    store.write(volume, 0, &data).unwrap();
    store.flush().unwrap();
    store.read(volume, 100, &mut [0; 50]).unwrap();
    store.discard(volume, 0, BLOCK as u64).unwrap();
    let stats = store.stats();
    assert_eq!((stats.writes, stats.written_bytes), (3, 12 * BLOCK as u64));
    assert_eq!((stats.reads, stats.read_bytes), (1, 50));
    assert_eq!((stats.discards, stats.discarded_bytes), (1, BLOCK as u64));
    assert_eq!((stats.commits, stats.blocks, stats.unchanged_blocks), (2, 8, 4));
    assert_eq!((stats.cut_bytes, stats.new_bytes), (8 * BLOCK as u64, 4 * BLOCK as u64));
    assert!(stats.sealed_bytes > stats.new_bytes && stats.new_chunks > 0);
    assert_eq!((stats.volumes, stats.logical_bytes), (1, 1 << 30));
    assert_eq!((stats.log_slots, stats.log_slots_used), (4, 1));
    assert_eq!(stats.frames.hits + stats.frames.misses, 1);
    assert_eq!(stats.chunk_runs.runs, 0);
    assert_eq!((stats.waiting_most, stats.waited_nanos), (1 << 20, 0));
    // More than the buffer takes.
    store.write(volume, 2 << 20, &Random(4).bytes(3 << 20)).unwrap();
    assert!(store.stats().waited_nanos > 0);
    store.close().unwrap();
    let stats = store.stats();
    assert_eq!((stats.chunk_runs.runs, stats.block_runs.runs, stats.waiting_bytes), (1, 1, 0));
    assert_eq!(stats.table_bytes, 0);
}

#[test]
fn space_is_that_of_volumes_and_containers() {
    let scene = Scene::new(22, 1 << 20);
    let (store, _) = scene.open();
    let first = store.create_volume("b", 1 << 30, 0).unwrap().id;
    let second = store.create_volume("a", 1 << 20, 0).unwrap().id;
    let data = Random(3).bytes(3 * BLOCK);
    store.write(first, 0, &data).unwrap();
    store.close().unwrap();
    store.write(second, 0, &data).unwrap();
    store.write(first, 10 << 20, &vec![0; BLOCK]).unwrap();
    store.discard(first, 0, BLOCK as u64).unwrap();
    store.flush().unwrap();
    for _ in 0..2 {
        let usage = store.space(None).unwrap();
        let volumes: Vec<_> =
            usage.volumes.iter().map(|volume| (&*volume.name, volume.blocks, volume.data_bytes)).collect();
        assert_eq!(volumes, [("a", 3, 3 * BLOCK as u64), ("b", 2, 2 * BLOCK as u64)]);
        assert_eq!(usage.unique_bytes, 3 * BLOCK as u64);
        assert!(usage.stored_bytes > usage.unique_bytes && usage.containers == 1);
        store.close().unwrap();
    }
    assert_eq!(store.space(Some("a")).unwrap().volumes.len(), 1);
    assert!(store.space(Some("c")).is_err());
}
