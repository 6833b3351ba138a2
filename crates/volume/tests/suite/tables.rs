//! Tables of full containers: synced with the next record, or before a manifest.

use larder_format::compress::Compression;
use larder_volume::CheckOptions;
use larder_volume::disk::Fault;
use larder_volume::{Options, Store};

use super::scene::{Random, Scene, options};

const BLOCK: u64 = 64 << 10;
/// A little more than a container has.
const LENGTH: usize = 9 << 20;

/// A log that has room for all of it in one record.
const SLOT: u64 = 1 << 22;

/// A store whose last record filled a container. Its tables are written and not synced.
fn full_container(scene: &Scene) -> (Store, u32) {
    let size = 16 << 20;
    let (store, _) =
        scene.open_with(Options { write_buffer: 2 * size, commit_at: 2 * size, batch: size, ..options() }).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    store.write(volume, 0, &Random(1).bytes(LENGTH)).unwrap();
    store.flush().unwrap();
    assert_eq!(store.stats().commits, 1);
    (store, volume)
}

fn expect_whole(store: &Store, volume: u32) {
    let mut found = vec![0; LENGTH];
    store.read(volume, 0, &mut found).unwrap();
    assert!(found == Random(1).bytes(LENGTH));
    let report = store.check(&CheckOptions::new(true)).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

/// A sync fails, and the system shows what is not on the disk. The next start must not take the
/// tables for written, because its manifest says that they are there.
#[test]
fn tables_whose_sync_failed_are_written_again() {
    let mut failed = 0;
    // The syncs of the next commit have any order.
    for seed in 0..6 {
        for syncs in 0..4 {
            let scene = Scene::new(seed, SLOT);
            let (store, volume) = full_container(&scene);
            scene.disk.fail_sync_after(syncs);
            store.write(volume, LENGTH as u64, &Random(2).bytes(BLOCK as usize)).unwrap();
            failed += u64::from(store.flush().is_err());
            let (store, _) = scene.reopen(store, Fault::Process);
            let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
            expect_whole(&store, volume);
        }
    }
    assert_eq!(failed, 6 * 4, "the log, the anchor, the new container and the tables of the full one");
}

#[test]
fn a_manifest_waits_for_the_tables_of_all_containers() {
    let scene = Scene::new(7, SLOT);
    let (store, volume) = full_container(&scene);
    store.close().unwrap();
    let (store, recovery) = scene.reopen(store, Fault::PowerLosesAll);
    assert_eq!(recovery.records, 0);
    expect_whole(&store, volume);
}

#[test]
fn new_chunks_are_compressed_as_the_options_say() {
    let text: Vec<u8> = (0..BLOCK as u32).map(|at| (at / 7 % 251) as u8).collect();
    let sealed = [Compression::Off, Compression::DEFAULT, Compression::Zstd(-5)].map(|compression| {
        let scene = Scene::new(8, 1 << 18);
        let (store, _) = scene.open_with(Options { compression, ..options() }).unwrap();
        let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
        store.write(volume, 0, &text).unwrap();
        store.flush().unwrap();
        let stats = store.stats();
        (stats.new_bytes, stats.sealed_bytes)
    });
    assert!(sealed[0].1 >= sealed[0].0, "{sealed:?}");
    assert!(sealed[1].1 * 2 < sealed[1].0, "{sealed:?}");
    assert_ne!(sealed[1], sealed[2]);
}
