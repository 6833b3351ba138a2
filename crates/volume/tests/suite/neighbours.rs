//! What one request, volume or state must not do to another one.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use larder_nbd::Exports;
use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{CollectOptions, Lower, Options, VolumeError, VolumeExports};
use parking_lot::Mutex;

use super::scene::{Random, Scene, options};
use super::snapshots::{BLOCK, read, read_snapshot};

/// Content outside of the store. One question about it waits until somebody lets it go on.
struct Gate {
    is_armed: AtomicBool,
    entered: SyncSender<()>,
    goes_on: Mutex<Receiver<()>>,
}

impl Lower for Gate {
    fn read(&self, _: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(7);
        Ok(())
    }

    fn len(&self) -> u64 {
        4 * BLOCK as u64
    }

    fn is_zero(&self, _: Range<u64>) -> bool {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.entered.send(()).unwrap();
            self.goes_on.lock().recv().unwrap();
        }
        false
    }
}

/// A volume becomes smaller, and the discard behind its end takes long. Meanwhile it becomes larger
/// again, and gets data there.
#[test]
fn a_discard_of_a_smaller_size_never_meets_the_data_of_a_larger_one() {
    let scene = Scene::new(71, 1 << 20);
    let (store, _) = scene.open();
    let whole = 4 * BLOCK as u64;
    let volume = store.create_over("disk", whole, "an image", 0).unwrap().id;
    let ((entered, has_entered), (go_on, goes_on)) = (sync_channel(1), sync_channel(1));
    let gate = Arc::new(Gate { is_armed: AtomicBool::new(true), entered, goes_on: Mutex::new(goes_on) });
    store.set_lower(volume, gate);
    let data = Random(1).bytes(BLOCK);
    let is_larger = std::thread::scope(|scope| {
        let smaller = scope.spawn(|| store.resize_volume(volume, BLOCK as u64));
        has_entered.recv().unwrap();
        let larger = store.resize_volume(volume, whole);
        if larger.is_ok() {
            store.write(volume, 2 * BLOCK as u64, &data).unwrap();
            store.flush().unwrap();
        }
        go_on.send(()).unwrap();
        smaller.join().unwrap().unwrap();
        larger.is_ok()
    });
    if !is_larger {
        store.resize_volume(volume, whole).unwrap();
        store.write(volume, 2 * BLOCK as u64, &data).unwrap();
        store.flush().unwrap();
    }
    assert!(read(&store, volume, 2 * BLOCK as u64, BLOCK) == data, "flushed data is gone");
}

/// A snapshot is deleted, and a merge drops what only it saw. Then the log loses the deletion.
#[test]
fn a_loss_of_the_log_brings_no_snapshot_back_without_its_content() {
    let scene = Scene::new(72, 1 << 18);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    let (old, new) = (Random(1).bytes(BLOCK), Random(2).bytes(BLOCK));
    store.write(volume, 0, &old).unwrap();
    let snapshot = store.create_snapshot(volume, "monday", None, 0).unwrap().id;
    store.write(volume, 0, &new).unwrap();
    store.close().unwrap();
    store.write(volume, BLOCK as u64, &new).unwrap();
    store.flush().unwrap();
    store.delete_snapshot(snapshot).unwrap();
    store.maintain().unwrap();
    for block in 2..4 {
        store.write(volume, block * BLOCK as u64, &old).unwrap();
        store.flush().unwrap();
    }
    drop(store);
    scene.disk.restart(Fault::Power);
    // The first record of each slot.
    for slot in 0..4 {
        scene.disk.damage(&format!("log/{slot}"), 512 + 40);
    }
    let (store, recovery) = scene.open_with(Options { accept_loss: true, ..options() }).unwrap();
    assert!(recovery.loss.is_some());
    if store.snapshot("disk@monday").is_ok() {
        assert!(read_snapshot(&store, snapshot, BLOCK) == old, "the snapshot has another content");
    }
    assert!(read(&store, volume, 0, BLOCK) == new);
}

/// Maintenance goes on in a server that can write nothing any more.
#[test]
fn a_stopped_store_leaves_no_files_of_merges() {
    let scene = Scene::new(73, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    for block in 0..3 {
        store.write(volume, block * BLOCK as u64, &Random(block).bytes(BLOCK)).unwrap();
        store.close().unwrap();
    }
    store.write(volume, 0, &Random(9).bytes(BLOCK)).unwrap();
    scene.disk.fail_sync_after(0);
    store.flush().unwrap_err();
    assert!(store.stopped().is_some());
    let before = scene.disk.list("runs").unwrap().len();
    for _ in 0..3 {
        drop(store.maintain());
        drop(store.collect(&CollectOptions::default()));
    }
    assert_eq!(scene.disk.list("runs").unwrap().len(), before);
}

/// A block of one volume must be read for its commit, and is damaged.
#[test]
fn a_damaged_block_fails_flushes_of_its_volume_only() {
    let scene = Scene::new(74, 1 << 20);
    let (store, _) = scene.open();
    let damaged = store.create_volume("damaged", 1 << 20, 0).unwrap().id;
    store.create_volume("sound", 1 << 20, 0).unwrap();
    store.write(damaged, 0, &Random(1).bytes(BLOCK)).unwrap();
    store.close().unwrap();
    drop(store);
    scene.disk.restart(Fault::Process);
    scene.disk.damage("containers/0/0", 100);
    let store = Arc::new(scene.open().0);
    let exports = VolumeExports::new(store.clone());
    let export = |name: &str| exports.find(name).unwrap().unwrap();
    // So many pieces that the block must be written as a whole.
    for piece in 0..20 {
        export("damaged").write(piece * 2048, &[1; 512], false).unwrap();
    }
    let data = Random(2).bytes(BLOCK);
    export("sound").write(0, &data, false).unwrap();
    export("damaged").flush().unwrap_err();
    export("sound").flush().unwrap();
    export("sound").write(BLOCK as u64, &data, true).unwrap();
    export("damaged").flush().unwrap_err();
    drop((exports, store));
    scene.disk.restart(Fault::PowerLosesAll);
    let (store, _) = scene.open();
    let sound = store.volume("sound").unwrap().id;
    assert!(read(&store, sound, 0, 2 * BLOCK) == [&data[..], &data].concat());
    // Its other writes wait until the block is written or discarded.
    assert!(matches!(store.read(damaged, 0, &mut [0; 512]), Err(VolumeError::Blocks { .. })));
}

/// Two snapshots with nothing written between: an incremental backup finds that nothing changed.
#[test]
fn a_snapshot_without_changes_offers_the_one_before() {
    let scene = Scene::new(75, 1 << 20);
    let store = Arc::new(scene.open().0);
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    store.write(volume, 0, &[1; 512]).unwrap();
    store.create_snapshot(volume, "monday", None, 0).unwrap();
    store.create_snapshot(volume, "tuesday", None, 0).unwrap();
    let export = VolumeExports::new(store).find("disk@tuesday").unwrap().unwrap();
    let context = "larder:changed-since:monday";
    assert!(export.contexts().iter().any(|known| known == context), "{:?}", export.contexts());
    assert!(!export.contexts().iter().any(|known| known == "larder:changed-since:tuesday"));
    let extents = export.block_status(context, 0, 1 << 20, 10).unwrap();
    assert!(extents.iter().all(|extent| extent.flags == 0), "{extents:?}");
}

/// Without what is below it, nothing can be discarded. Then the size stays what it was.
#[test]
fn a_volume_over_something_unreachable_keeps_its_size() {
    let scene = Scene::new(76, 1 << 20);
    let (store, _) = scene.open();
    let whole = 4 * BLOCK as u64;
    let volume = store.create_over("disk", whole, "an image", 0).unwrap().id;
    for size in [BLOCK as u64, 2 * whole] {
        assert!(matches!(store.resize_volume(volume, size), Err(VolumeError::Outside { .. })));
    }
    assert_eq!(store.volume("disk").unwrap().size, whole);
}

/// What is below one volume is lost. That volume fails where it needs it, and nothing else does.
#[test]
fn a_lost_content_below_a_volume_fails_this_volume_only() {
    let scene = Scene::new(78, 1 << 20);
    let store = Arc::new(scene.open().0);
    let whole = 4 * BLOCK as u64;
    let over = store.create_over("over", whole, "an image", 0).unwrap().id;
    let ((entered, _has_entered), (_go_on, goes_on)) = (sync_channel(1), sync_channel(1));
    let gate = Gate { is_armed: AtomicBool::new(false), entered, goes_on: Mutex::new(goes_on) };
    let gate: Arc<dyn Lower> = Arc::new(gate);
    store.set_lower(over, gate.clone());
    let other = store.create_volume("other", whole, 0).unwrap().id;
    let data = Random(1).bytes(BLOCK);
    store.write(over, 0, &data).unwrap();
    store.lose_lower(over, "it burnt");
    store.lose_lower(over, "it burnt");
    assert_eq!(store.stats().problems, ["below volume number 0: it burnt"]);
    // What it has itself, also in its flushes and snapshots.
    store.write(over, BLOCK as u64, &data).unwrap();
    store.write(over, 512, &[1; 512]).unwrap();
    let error = store.write(over, 2 * BLOCK as u64, &[1; 512]).unwrap_err();
    assert!(matches!(error, VolumeError::Outside { .. }), "{error}");
    assert!(matches!(store.read(over, 3 * BLOCK as u64, &mut [0; 512]), Err(VolumeError::Blocks { first: 3, .. })));
    store.flush_volume(over).unwrap();
    let snapshot = store.create_snapshot(over, "s", None, 0).unwrap().id;
    let mut found = vec![0; 2 * BLOCK];
    store.read_snapshot(snapshot, 0, &mut found).unwrap();
    assert_eq!(found[512..1024], [1; 512]);
    assert!(found[BLOCK..] == data);
    // Others, maintenance and the end.
    store.write(other, 100, &data).unwrap();
    store.flush().unwrap();
    store.maintain().unwrap();
    store.collect(&CollectOptions::default()).unwrap();
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    store.set_lower(over, gate);
    assert!(store.stats().problems.is_empty());
    store.read(over, 3 * BLOCK as u64, &mut [0; 512]).unwrap();
    store.lose_lower(over, "again");
    store.delete_volume(over, true).unwrap();
    assert!(store.stats().problems.is_empty(), "it is deleted");
    store.close().unwrap();
}

/// A client reads the changes since a snapshot. Meanwhile the snapshot is deleted, and another one
/// gets its name.
#[test]
fn a_name_that_is_used_again_is_not_the_same_snapshot() {
    let scene = Scene::new(77, 1 << 20);
    let store = Arc::new(scene.open().0);
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    store.write(volume, 0, &[1; 512]).unwrap();
    let monday = store.create_snapshot(volume, "monday", None, 0).unwrap().id;
    store.write(volume, BLOCK as u64, &[1; 512]).unwrap();
    let exports = VolumeExports::new(store.clone());
    let opened = exports.find("disk").unwrap().unwrap();
    for context in ["larder:changed-since:monday", "qemu:dirty-bitmap:monday"] {
        let extents = opened.block_status(context, 0, 1 << 20, 10).unwrap();
        assert_eq!(extents.iter().map(|extent| extent.length).collect::<Vec<_>>(), [65_536, 65_536, 917_504]);
    }
    store.delete_snapshot(monday).unwrap();
    store.create_snapshot(volume, "monday", None, 0).unwrap();
    for context in ["larder:changed-since:monday", "qemu:dirty-bitmap:monday"] {
        assert!(opened.block_status(context, 0, 1 << 20, 10).is_err(), "{context}");
        // A client that connects now means the new one.
        let again = exports.find("disk").unwrap().unwrap();
        assert_eq!(again.block_status(context, 0, 1 << 20, 10).unwrap().len(), 1);
    }
}
