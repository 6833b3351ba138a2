//! A damaged page of a run: everything that does not need the page goes on.

use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{CollectOptions, Store, VolumeError};

use super::scene::{Random, Scene};
use super::snapshots::{BLOCK, read};

/// Runs of chunks, of blocks and of counts.
fn counts(store: &Store) -> [u64; 3] {
    let stats = store.stats();
    [stats.chunk_runs.runs, stats.block_runs.runs, stats.count_runs.runs]
}

/// A store with nine runs of each table. The second value has the paths of the three that belong to
/// the fifth publication.
fn prepared() -> (Scene, Vec<String>, u32, Vec<u8>) {
    let scene = Scene::new(121, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let list = || scene.disk.list("runs").unwrap();
    let (mut fifth, mut expected) = (Vec::new(), Vec::new());
    for part in 0..9 {
        let before = list();
        let data = Random(part).bytes(10 * BLOCK);
        store.write(volume, expected.len() as u64, &data).unwrap();
        expected.extend(data);
        store.close().unwrap();
        if part == 4 {
            let new = list().into_iter().filter(|name| !before.contains(name));
            fifth = new.map(|name| format!("runs/{name}")).collect();
        }
    }
    assert_eq!((fifth.len(), counts(&store)), (3, [9, 9, 9]));
    drop(store);
    scene.disk.restart(Fault::Process);
    (scene, fifth, volume, expected)
}

#[test]
fn other_runs_are_merged_and_the_damage_is_told_once() {
    let mut damaged_tables = [0; 3];
    for number in 0..3 {
        let (scene, fifth, volume, expected) = prepared();
        let path = &fifth[number];
        scene.disk.damage(path, 77);
        let (store, _) = scene.open();
        for _ in 0..3 {
            store.maintain().unwrap();
        }
        // The damaged one stays alone between those before and those behind it.
        let after = counts(&store);
        assert_eq!(after.iter().filter(|runs| **runs == 1).count(), 2, "{after:?}");
        assert_eq!(after.iter().filter(|runs| **runs == 3).count(), 1, "{after:?}");
        damaged_tables[after.iter().position(|runs| *runs == 3).unwrap()] += 1;
        let told = store.stats().problems;
        assert_eq!(told.iter().filter(|told| told.contains(&path[..])).count(), 1, "{told:?}");
        assert!(store.space(None).unwrap().unique_bytes > 0);
        let report = store.check(&CheckOptions::new(false)).unwrap();
        assert!(report.errors.iter().any(|error| error.to_string().contains(&path[..])), "{:?}", report.errors);
        assert_eq!(report.wrong_counts, 0);
        // Commits go on, and new runs are merged.
        for part in 10..18 {
            store.write(volume, (300 + part * 10) * BLOCK as u64, &Random(part).bytes(10 * BLOCK)).unwrap();
            store.close().unwrap();
        }
        store.maintain().unwrap();
        assert!(counts(&store).iter().all(|runs| *runs < 8), "{:?}", counts(&store));
        for part in 0..9 {
            let from = part * 10 * BLOCK;
            let mut found = vec![0; 10 * BLOCK];
            match store.read(volume, from as u64, &mut found) {
                Ok(()) => assert!(found == expected[from..from + 10 * BLOCK]),
                Err(error) => assert!(part == 4 && matches!(error, VolumeError::Blocks { .. }), "{part}: {error}"),
            }
        }
    }
    assert_eq!(damaged_tables, [1, 1, 1]);
}

/// Blocks that cannot be found name chunks all the same. What nothing names goes.
#[test]
fn a_collection_beside_a_damaged_run_deletes_only_what_is_dead() {
    for number in 0..3 {
        let (scene, fifth, volume, expected) = prepared();
        scene.disk.damage(&fifth[number], 77);
        let (store, _) = scene.open();
        // The blocks of two containers, and nearly all of a third one.
        store.discard(volume, 50 * BLOCK as u64, 28 * BLOCK as u64).unwrap();
        store.flush().unwrap();
        let collected = store.collect(&CollectOptions::default());
        let after = counts(&store);
        if let Ok(collected) = &collected {
            assert!(collected.containers >= 2, "{collected:?}");
            if after[1] > 1 {
                assert_eq!(collected.copied_chunks, 0, "a name of a chunk that moves may be in the damaged page");
            }
        } else {
            // Without counts nothing is known to be dead.
            assert!(store.stats().problems.iter().any(|told| told.contains(&fifth[number][..])));
        }
        assert!(read(&store, volume, 50 * BLOCK as u64, 28 * BLOCK).iter().all(|byte| *byte == 0));
        for part in [0..40, 78..90] {
            let bytes = part.start * BLOCK..part.end * BLOCK;
            assert!(read(&store, volume, bytes.start as u64, bytes.len()) == expected[bytes]);
        }
        let (store, _) = scene.reopen(store, Fault::Power);
        assert!(read(&store, volume, 78 * BLOCK as u64, 12 * BLOCK) == expected[78 * BLOCK..]);
        let bad = |error: &VolumeError| !error.to_string().contains(&fifth[number][..]);
        let report = store.check(&CheckOptions::new(true)).unwrap();
        assert!(!report.errors.iter().any(bad), "{:?}", report.errors);
    }
}
