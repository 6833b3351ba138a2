//! The end of a server: merges and rounds of collection stop, and what was written lands.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{CollectOptions, Options, Store, VolumeError};
use parking_lot::Mutex;

use super::hooked::Hooked;
use super::scene::{Random, Scene, options};
use super::snapshots::{BLOCK, read};

/// A store whose hook can use it.
type Shared = Arc<OnceLock<Arc<Store>>>;

fn open_on(scene: &Scene, disk: Arc<dyn Disk>, options: Options) -> Store {
    let (entropy, keys) = (scene.entropy.clone(), scene.keys.clone());
    Store::open_with_keys(disk, entropy, &scene.config, keys, options).unwrap().0
}

/// Files of runs, and runs that the store uses.
pub(crate) fn runs(scene: &Scene, store: &Store) -> (u64, u64) {
    let stats = store.stats();
    let used = stats.chunk_runs.runs + stats.block_runs.runs + stats.count_runs.runs;
    (scene.disk.list("runs").unwrap().len() as u64, used)
}

/// Several runs of each table, dead chunks in two containers, and live ones beside them.
pub(crate) fn fill(store: &Store) -> (u32, Vec<u8>) {
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let mut expected = Vec::new();
    for part in 0..4 {
        let data = Random(part).bytes(20 * BLOCK);
        store.write(volume, expected.len() as u64, &data).unwrap();
        store.close().unwrap();
        expected.extend(data);
    }
    let (from, length) = (6 * BLOCK, 70 * BLOCK + 1000);
    store.discard(volume, from as u64, length as u64).unwrap();
    expected[from..from + length].fill(0);
    store.close().unwrap();
    (volume, expected)
}

/// The store closes at any operation of a collection. Nothing has changed then, and no file stays.
#[test]
fn a_collection_that_is_stopped_leaves_the_store_as_it_was() {
    let (mut at, mut stopped) = (0, 0);
    loop {
        let scene = Scene::new(81, 1 << 20);
        let (store, count): (Shared, _) = (Arc::default(), Arc::new(AtomicU64::new(u64::MAX)));
        let (seen, left) = (store.clone(), count.clone());
        let disk = Hooked::before(&scene.disk, move |_, _| {
            // Wraps when it is armed and 0.
            if left.fetch_sub(1, Ordering::SeqCst) == 0 {
                seen.get().unwrap().end_maintenance();
            }
            Ok(())
        });
        let store = store.get_or_init(|| Arc::new(open_on(&scene, disk, options()))).clone();
        let (volume, expected) = fill(&store);
        count.store(at, Ordering::SeqCst);
        let collected = store.collect(&CollectOptions::default());
        let was_stopped = count.load(Ordering::SeqCst) > at;
        count.store(u64::MAX, Ordering::SeqCst);
        match collected {
            Err(VolumeError::Interrupted) => stopped += 1,
            collected => assert!(collected.unwrap().containers > 0 || was_stopped),
        }
        let (files, used) = runs(&scene, &store);
        assert_eq!(files, used, "operation {at}");
        assert!(read(&store, volume, 0, expected.len()) == expected, "operation {at}");
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty(), "operation {at}");
        store.write(volume, 500 << 20, &expected[..BLOCK]).unwrap();
        store.close().unwrap();
        drop(store);
        scene.disk.restart(Fault::Power);
        let (store, _) = scene.open();
        assert!(read(&store, volume, 0, expected.len()) == expected, "operation {at}");
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty(), "operation {at}");
        store.collect(&CollectOptions::default()).unwrap();
        if !was_stopped {
            break;
        }
        at += 1;
    }
    assert!(stopped > 5, "{stopped} of {at}");
}

/// A merge runs when the server ends: its thread does not finish it.
#[test]
fn a_merge_does_not_hold_up_the_end_of_its_thread() {
    let scene = Scene::new(82, 1 << 20);
    let (store, is_armed): (Shared, _) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let (seen, armed) = (store.clone(), is_armed.clone());
    let disk = Hooked::before(&scene.disk, move |operation, path| {
        let is_merge = operation == "create" && path.starts_with("runs/");
        if is_merge && armed.swap(false, Ordering::SeqCst) {
            seen.get().unwrap().end_maintenance();
        }
        Ok(())
    });
    let store = store.get_or_init(|| Arc::new(open_on(&scene, disk, options()))).clone();
    fill(&store);
    let before = store.stats();
    is_armed.store(true, Ordering::SeqCst);
    store.maintain_in_background(Duration::from_secs(3600), &|| false);
    assert!(!is_armed.load(Ordering::SeqCst), "nothing was merged");
    let after = store.stats();
    assert_eq!((after.chunk_runs, after.block_runs), (before.chunk_runs, before.block_runs));
    assert!(after.problems.is_empty(), "{:?}", after.problems);
    let (files, used) = runs(&scene, &store);
    assert_eq!(files, used);
}

/// A server ends while a merge runs. What clients write meanwhile, and nobody flushes, is committed.
#[test]
fn commits_end_behind_maintenance() {
    let scene = Scene::new(84, 1 << 20);
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = is_armed.clone();
    let (entered, has_entered) = sync_channel(1);
    let (go_on, goes_on) = sync_channel::<()>(1);
    let goes_on = Mutex::new(goes_on);
    let disk = Hooked::before(&scene.disk, move |operation, path| {
        let is_merge = operation == "create" && path.starts_with("runs/");
        if is_merge && armed.swap(false, Ordering::SeqCst) {
            entered.send(()).unwrap();
            goes_on.lock().recv().unwrap();
        }
        Ok(())
    });
    let store = open_on(&scene, disk, options());
    let (volume, _) = fill(&store);
    let (ends, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let stop = || ends.load(Ordering::SeqCst);
    let counted = || {
        looks.fetch_add(u64::from(stop()), Ordering::SeqCst);
        stop()
    };
    let data = Random(99).bytes(BLOCK);
    is_armed.store(true, Ordering::SeqCst);
    let has_waited = std::thread::scope(|scope| {
        let maintaining = scope.spawn(|| store.maintain_in_background(Duration::from_secs(3600), &stop));
        has_entered.recv().unwrap();
        let committing = scope.spawn(|| store.commit_in_background(Duration::from_millis(1), &counted));
        ends.store(true, Ordering::SeqCst);
        store.end_maintenance();
        // It looks again, or it has ended.
        while looks.load(Ordering::SeqCst) < 2 && !committing.is_finished() {
            std::thread::yield_now();
        }
        store.write(volume, 700 << 20, &data).unwrap();
        let has_waited = !committing.is_finished();
        go_on.send(()).unwrap();
        maintaining.join().unwrap();
        committing.join().unwrap();
        has_waited
    });
    assert!(has_waited);
    assert_eq!(store.stats().waiting_bytes, 0);
    let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
    assert!(read(&store, volume, 700 << 20, BLOCK) == data);
}
