//! Space comes back: counts, merges, collection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{CollectOptions, Options, Store, VolumeError};

use super::hooked::Hooked;
use super::scene::{Random, Scene, options};

const BLOCK: usize = 64 << 10;

/// Bytes of all containers.
fn stored(scene: &Scene) -> u64 {
    let names = scene.disk.list("containers/0").unwrap();
    names.iter().map(|name| scene.disk.length(&format!("containers/0/{name}"))).sum()
}

fn fill(store: &Store, volume: u32, blocks: usize, seed: u64) -> Vec<u8> {
    let data = Random(seed).bytes(blocks * BLOCK);
    store.write(volume, 0, &data).unwrap();
    data
}

fn read(store: &Store, volume: u32, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    store.read(volume, 0, &mut buffer).unwrap();
    buffer
}

#[test]
fn overwritten_data_goes_and_snapshots_hold_it() {
    let scene = Scene::new(41, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let first = fill(&store, volume, 160, 1);
    let snapshot = store.create_snapshot(volume, "a", None, 0).unwrap().id;
    let second = fill(&store, volume, 160, 2);
    store.close().unwrap();
    let both = stored(&scene);
    assert_eq!(store.collect(&CollectOptions::default()).unwrap().containers, 0);
    assert_eq!(stored(&scene), both);
    store.delete_snapshot(snapshot).unwrap();
    let collected = store.collect(&CollectOptions::default()).unwrap();
    assert!(collected.containers >= 1 && collected.rounds >= 1, "{collected:?}");
    assert!(stored(&scene) * 10 < both * 7, "{} of {both}", stored(&scene));
    assert_eq!(read(&store, volume, second.len()), second);
    // Deduplication does not find what is gone.
    store.write(volume, 32 << 20, &first).unwrap();
    let (store, _) = scene.reopen(
        {
            store.close().unwrap();
            store
        },
        Fault::Power,
    );
    let report = store.check(&CheckOptions::new(true)).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    store.delete_volume(volume, false).unwrap();
    store.collect(&CollectOptions::default()).unwrap();
    assert_eq!(stored(&scene), 0);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

#[test]
fn a_sparse_container_is_rewritten_and_its_names_follow() {
    let scene = Scene::new(42, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let mut expected = fill(&store, volume, 100, 1);
    let clone_of = store.create_snapshot(volume, "a", None, 0).unwrap().id;
    let clone = store.clone_snapshot("clone", clone_of, 0).unwrap().id;
    store.delete_volume(clone, false).unwrap();
    store.delete_snapshot(clone_of).unwrap();
    // Most of it dies, a part of single blocks too.
    store.discard(volume, 20 * BLOCK as u64 + 30_000, 80 * BLOCK as u64 - 30_000).unwrap();
    expected[20 * BLOCK + 30_000..].fill(0);
    store.close().unwrap();
    let before = stored(&scene);
    let collected = store.collect(&CollectOptions::default()).unwrap();
    assert!(collected.copied_chunks > 0 && collected.freed > before / 2, "{collected:?}");
    assert!(stored(&scene) < before / 2);
    assert_eq!(read(&store, volume, expected.len()), expected);
    let (store, _) = scene.reopen(store, Fault::Power);
    assert_eq!(read(&store, volume, expected.len()), expected);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    // The copies are found by deduplication.
    store.write(volume, 512 << 20, &expected[..20 * BLOCK]).unwrap();
    let before = stored(&scene);
    store.close().unwrap();
    assert!(stored(&scene) < before + 2 * BLOCK as u64);
}

#[test]
fn stored_bytes_stay_bounded_under_load() {
    let scene = Scene::new(43, 1 << 20);
    let small = Options { tables: 64 << 10, ..options() };
    let (store, _) = scene.open_with(small).unwrap();
    let store = Arc::new(store);
    const BLOCKS: usize = 64;
    let volume = store.create_volume("disk", (BLOCKS * BLOCK) as u64, 0).unwrap().id;
    let ends = Arc::new(AtomicBool::new(false));
    let rounds = 40;
    std::thread::scope(|scope| {
        let (collector, stop) = (store.clone(), ends.clone());
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                collector.maintain().unwrap();
                std::thread::yield_now();
            }
        });
        let (reader, stop) = (store.clone(), ends.clone());
        scope.spawn(move || {
            // What a read found in the tables stays until it ends, whatever is collected.
            while !stop.load(Ordering::Relaxed) {
                read(&reader, volume, BLOCKS * BLOCK);
            }
        });
        let mut random = Random(9);
        for _ in 0..rounds {
            for block in 0..BLOCKS {
                let data = random.bytes(BLOCK);
                store.write(volume, (block * BLOCK) as u64, &data).unwrap();
                if block % 7 == 0 {
                    // A splice of an old mapping, at any moment of a round.
                    store.write(volume, (random.below(BLOCKS as u64) as usize * BLOCK) as u64 + 100, &[1; 50]).unwrap();
                }
            }
            store.flush().unwrap();
        }
        ends.store(true, Ordering::Relaxed);
    });
    store.maintain().unwrap();
    let expected = read(&store, volume, BLOCKS * BLOCK);
    store.close().unwrap();
    store.collect(&CollectOptions::default()).unwrap();
    let all = (rounds * BLOCKS * BLOCK) as u64;
    assert!(stored(&scene) < all / 10, "{} of {all}", stored(&scene));
    assert_eq!(read(&store, volume, BLOCKS * BLOCK), expected);
    let report = store.check(&CheckOptions::new(true)).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn damaged_data_is_not_collected_and_not_hidden() {
    let scene = Scene::new(44, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    fill(&store, volume, 100, 1);
    store.discard(volume, 10 * BLOCK as u64, 90 * BLOCK as u64).unwrap();
    store.close().unwrap();
    scene.disk.damage("containers/0/0", 100);
    let (store, _) = scene.reopen(store, Fault::Power);
    store.collect(&CollectOptions::default()).unwrap();
    let error = store.read(volume, 0, &mut [0; 100]).unwrap_err();
    assert!(matches!(error, VolumeError::Blocks { first: 0, .. }), "{error}");
    let mut rest = vec![0; 9 * BLOCK];
    store.read(volume, BLOCK as u64, &mut rest).unwrap();
    assert_eq!(rest, Random(1).bytes(10 * BLOCK)[BLOCK..]);
}

#[test]
fn repaired_counts_are_those_of_the_blocks() {
    let scene = Scene::new(45, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    for seed in 0..4 {
        fill(&store, volume, 20, seed);
        store.close().unwrap();
    }
    store.repair_counts().unwrap();
    let report = store.check(&CheckOptions::new(true)).unwrap();
    assert!(report.errors.is_empty() && report.wrong_counts == 0, "{:?}", report.errors);
    assert!(store.collect(&CollectOptions::default()).unwrap().containers > 0);
}

#[test]
fn a_full_disk_collects_what_was_discarded() {
    let scene = Scene::new(46, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    fill(&store, volume, 100, 1);
    scene.disk.set_free(1 << 20);
    store.flush().unwrap();
    assert!(matches!(store.write(volume, 0, &[1]), Err(VolumeError::Full)));
    store.discard(volume, 0, 99 * BLOCK as u64).unwrap();
    store.flush().unwrap();
    let collected = store.collect(&CollectOptions { until_free: Some(50), ..CollectOptions::default() }).unwrap();
    assert!(collected.freed > 50 * BLOCK as u64, "{collected:?}");
    scene.disk.set_free(1 << 40);
    // Enough is free: nothing more is done.
    let collected = store.collect(&CollectOptions { until_free: Some(20), ..CollectOptions::default() }).unwrap();
    assert_eq!(collected.rounds, 0);
    store.write(volume, 0, &[1]).unwrap();
}

/// A part of a block is written while a round rewrites the blocks: its mapping copies old places.
#[test]
fn names_that_are_copied_during_a_round_follow_too() {
    for publishes in [false, true] {
        let scene = Scene::new(47, 1 << 20);
        let store: Arc<OnceLock<Arc<Store>>> = Arc::default();
        let (is_armed, seen) = (Arc::new(AtomicBool::new(false)), store.clone());
        let (armed, copies) = (is_armed.clone(), AtomicBool::new(false));
        let disk = Hooked::before(&scene.disk, move |operation, path| {
            if operation == "create" && path.starts_with("containers/") && armed.load(Ordering::Relaxed) {
                copies.store(true, Ordering::Relaxed);
            }
            // The first run behind the copies is the one of the blocks, which needs no lock.
            let is_merge = operation == "create" && path.starts_with("runs/") && copies.load(Ordering::Relaxed);
            if is_merge && armed.swap(false, Ordering::Relaxed) {
                let store = seen.get().unwrap().clone();
                let writer = std::thread::spawn(move || {
                    let volume = store.volume("disk").unwrap().id;
                    store.write(volume, 100, &[1; 50]).unwrap();
                    store.flush().unwrap();
                    // The tables are full then, so the last commit publishes them.
                    for block in 0..if publishes { 210 } else { 0 } {
                        store.write(volume, (800 << 20) + block * BLOCK as u64, &[1; 50]).unwrap();
                    }
                    store.flush().unwrap();
                    store.write(volume, 900 << 20, &[1; 50]).unwrap();
                    store.flush().unwrap();
                });
                writer.join().unwrap();
            }
            Ok(())
        });
        let (entropy, keys) = (scene.entropy.clone(), scene.keys.clone());
        let options = Options { tables: if publishes { 64 << 10 } else { options().tables }, ..options() };
        let opened = Store::open_with_keys(disk, entropy, &scene.config, keys, options).unwrap().0;
        let opened = store.get_or_init(|| Arc::new(opened)).clone();
        let volume = opened.create_volume("disk", 1 << 30, 0).unwrap().id;
        let mut expected = fill(&opened, volume, 100, 1);
        expected.truncate(10 * BLOCK);
        opened.discard(volume, 10 * BLOCK as u64, 90 * BLOCK as u64).unwrap();
        opened.close().unwrap();
        is_armed.store(true, Ordering::Relaxed);
        assert!(opened.collect(&CollectOptions::default()).unwrap().containers > 0);
        assert!(!is_armed.load(Ordering::Relaxed), "nothing was written during the round");
        expected[100..150].fill(1);
        assert_eq!(read(&opened, volume, expected.len()), expected);
        let report = opened.check(&CheckOptions::new(true)).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
}
