//! Filters and collection: no filter names a container that retired or is about to, so its chunks
//! are stored again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{CollectOptions, Options, Store};

use super::hooked::Hooked;
use super::scene::{Random, Scene, options};

const BLOCK: usize = 64 << 10;
/// Where nothing was written before.
const ELSEWHERE: u64 = 512 << 20;

/// Content of the blocks that a victim had: live ones first, then dead ones.
fn block(data: &[u8], number: usize) -> &[u8] {
    &data[number * BLOCK..(number + 1) * BLOCK]
}

/// Writes what every filter takes for stored: dead data, live data, and a block nearly in place.
fn write_again(store: &Store, data: &[u8], round: u64) -> Vec<(u64, Vec<u8>)> {
    let volume = store.volume("disk").unwrap().id;
    let at = ELSEWHERE + round * (16 << 20);
    let mut changed = block(data, 4).to_vec();
    changed[BLOCK - 1] ^= 1 + round as u8;
    let writes = vec![
        (at, block(data, 50 + round as usize).to_vec()),
        (at + (4 << 20), block(data, 3).to_vec()),
        (4 * BLOCK as u64, changed),
    ];
    for (offset, content) in &writes {
        store.write(volume, *offset, content).unwrap();
    }
    store.flush().unwrap();
    writes
}

#[test]
fn no_filter_names_a_container_that_retires() {
    for filters in ["index", "block", "bloom,cache,index", "block,cache", "zero,mac,bloom,block,cache,index,bytes"] {
        let scene = Scene::new(51, 1 << 20);
        let data = Arc::new(Random(1).bytes(100 * BLOCK));
        let store: Arc<OnceLock<Arc<Store>>> = Arc::default();
        let written: Arc<OnceLock<Vec<_>>> = Arc::default();
        let is_armed = Arc::new(AtomicBool::new(false));
        let (armed, copies) = (is_armed.clone(), AtomicBool::new(false));
        let (seen, noted, content) = (store.clone(), written.clone(), data.clone());
        let disk = Hooked::before(&scene.disk, move |operation, path| {
            if operation == "create" && path.starts_with("containers/") && armed.load(Ordering::Relaxed) {
                copies.store(true, Ordering::Relaxed);
            }
            // The first run behind the copies is the one of the blocks, which needs no lock.
            let is_merge = operation == "create" && path.starts_with("runs/") && copies.load(Ordering::Relaxed);
            if is_merge && armed.swap(false, Ordering::Relaxed) {
                let (store, content) = (seen.get().unwrap().clone(), content.clone());
                let writer = std::thread::spawn(move || write_again(&store, &content, 0));
                noted.set(writer.join().unwrap()).unwrap();
            }
            Ok(())
        });
        let (entropy, keys) = (scene.entropy.clone(), scene.keys.clone());
        let options = Options { filters: filters.parse().unwrap(), ..options() };
        let opened = Store::open_with_keys(disk, entropy, &scene.config, keys, options).unwrap().0;
        let opened = store.get_or_init(|| Arc::new(opened)).clone();
        let volume = opened.create_volume("disk", 1 << 30, 0).unwrap().id;
        opened.write(volume, 0, &data).unwrap();
        opened.close().unwrap();
        // Duplicates, so that the memory of the filters has the container.
        for at in [128, 160] {
            opened.write(volume, at << 20, &data[..10 * BLOCK]).unwrap();
            opened.flush().unwrap();
        }
        opened.discard(volume, 128 << 20, 64 << 20).unwrap();
        opened.discard(volume, 10 * BLOCK as u64, 90 * BLOCK as u64).unwrap();
        opened.close().unwrap();
        is_armed.store(true, Ordering::Relaxed);
        assert!(opened.collect(&CollectOptions::default()).unwrap().containers > 0, "{filters}");
        let left = scene.disk.list("containers/0").unwrap();
        assert!(!left.contains(&"0".to_owned()), "{filters}: the container is there");
        let during = written.get().expect("nothing was written during the round").clone();
        let after = write_again(&opened, &data, 1);
        let mut expected = data[..10 * BLOCK].to_vec();
        expected[4 * BLOCK..5 * BLOCK].copy_from_slice(&after[2].1);
        let compare = |store: &Store| {
            for (offset, content) in during[..2].iter().chain(&after[..2]).chain([&(0, expected.clone())]) {
                let mut found = vec![0xee; content.len()];
                store.read(volume, *offset, &mut found).unwrap_or_else(|error| panic!("{filters}: {error}"));
                assert!(found == *content, "{filters}: {offset}");
            }
            let report = store.check(&CheckOptions::new(true)).unwrap();
            assert!(report.errors.is_empty(), "{filters}: {:?}", report.errors);
        };
        compare(&opened);
        drop((opened, store));
        scene.disk.restart(Fault::Power);
        compare(&scene.open().0);
    }
}
