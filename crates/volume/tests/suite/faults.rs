//! Single operations that fail, and what is there afterwards: the store opens, has all that was
//! flushed, and never shows the data of another place.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_format::ErrorKind;
use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{Options, Store, VolumeError};

use super::hooked::Hooked;
use super::scene::{Random, Scene, options};

const BLOCK: u64 = 64 << 10;

fn open_on(scene: &Scene, disk: Arc<dyn Disk>) -> Store {
    let (entropy, keys) = (scene.entropy.clone(), scene.keys.clone());
    Store::open_with_keys(disk, entropy, &scene.config, keys, options()).unwrap().0
}

fn read(store: &Store, volume: u32, offset: u64, length: usize) -> Result<Vec<u8>, VolumeError> {
    let mut found = vec![0xee; length];
    store.read(volume, offset, &mut found).map(|()| found)
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

/// A commit that failed left a frame of the same length in the file. The next commit writes over
/// it, and its record reaches the disk, but its frame does not.
#[test]
fn a_frame_of_a_failed_commit_is_no_frame_of_the_next_one() {
    let scene = Scene::new(31, 1 << 16);
    let cuts_power = Arc::new(AtomicBool::new(false));
    let seen = cuts_power.clone();
    let names = scene.disk.clone();
    let disk = Hooked::syncs(&scene.disk, move |files| {
        seen.load(Ordering::Relaxed).then(|| {
            // The log is the first one.
            files[0].sync().unwrap();
            names.sync_folder("containers/0").unwrap();
            Err(io::Error::other("the power failed"))
        })
    });
    let store = open_on(&scene, disk);
    let mine = store.create_volume("mine", 1 << 20, 0).unwrap().id;
    let other = store.create_volume("other", 1 << 20, 0).unwrap().id;
    let (secret, data) = (Random(1).bytes(4096), Random(2).bytes(4096));
    store.write(other, 0, &secret).unwrap();
    // Space, a folder in two steps, a container in two, and its frame; then the zeros behind it.
    scene.disk.fail_once_after(6);
    assert_eq!(store.flush().unwrap_err().kind(), ErrorKind::Full);
    assert!(scene.disk.length("containers/0/0") > 4096);
    // The system writes what it has in its cache.
    scene.disk.open("containers/0/0").unwrap().sync().unwrap();
    store.discard(other, 0, BLOCK).unwrap();
    store.write(mine, 0, &data).unwrap();
    cuts_power.store(true, Ordering::Relaxed);
    store.flush().unwrap_err();
    let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
    let found = read(&store, mine, 0, 4096).unwrap();
    assert_ne!(found, secret, "a volume shows the data of another one");
    assert_eq!(found, [0; 4096]);
    store.write(mine, 0, &data).unwrap();
    store.flush().unwrap();
    assert_eq!(read(&store, mine, 0, 4096).unwrap(), data, "what was flushed is other data");
}

/// The manifest was linked, and it is open whether it is durable. It may count at the next start,
/// so nothing may change the slot that it names.
#[test]
fn a_publication_after_a_failed_one_leaves_its_slot_alone() {
    for fault in [Fault::Process, Fault::PowerLosesAll] {
        let scene = Scene::new(32, 1 << 16);
        let fails = Arc::new(AtomicBool::new(false));
        let seen = fails.clone();
        let disk = Hooked::before(&scene.disk, move |operation, path| {
            let is_it = (operation, path) == ("sync_folder", "manifest") && seen.load(Ordering::Relaxed);
            if is_it { Err(io::Error::other("an error of the disk")) } else { Ok(()) }
        });
        let store = open_on(&scene, disk);
        store.create_volume("a", 1 << 20, 0).unwrap();
        fails.store(true, Ordering::Relaxed);
        assert!(store.close().is_err());
        for _ in 0..2 {
            assert!(matches!(store.close(), Err(VolumeError::Stopped(_))));
            assert!(matches!(store.create_volume("b", 1 << 20, 0), Err(VolumeError::Stopped(_))));
        }
        let (store, _) = scene.reopen(store, fault);
        assert!(store.volume("a").is_ok());
    }
}

/// A panic in a commit is an error of one request to a server, which goes on.
#[test]
fn a_commit_that_panics_stops_the_store() {
    for has_container in [false, true] {
        let scene = Scene::new(33, 1 << 16);
        let panics = Arc::new(AtomicBool::new(false));
        let seen = panics.clone();
        let disk = Hooked::syncs(&scene.disk, move |_| {
            assert!(!seen.swap(false, Ordering::Relaxed), "no thread can be started");
            None
        });
        let store = open_on(&scene, disk);
        let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
        let (first, second) = (Random(1).bytes(4096), Random(2).bytes(4096));
        if has_container {
            store.write(volume, 0, &first).unwrap();
            store.flush().unwrap();
        }
        store.write(volume, BLOCK, &second).unwrap();
        panics.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| store.flush())).is_err());
        let again = store.flush();
        let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
        if has_container {
            assert_eq!(read(&store, volume, 0, 4096).unwrap(), first);
        }
        if again.is_ok() {
            assert_eq!(read(&store, volume, BLOCK, 4096).unwrap(), second);
        }
        store.write(volume, 2 * BLOCK, &second).unwrap();
        store.flush().unwrap();
        assert_eq!(read(&store, volume, 2 * BLOCK, 4096).unwrap(), second, "what was flushed cannot be read");
    }
}

/// After an error of a sync, the system shows writes that never reach the disk. The next start
/// sees them too.
#[test]
fn data_behind_a_failed_sync_is_written_again_by_the_next_start() {
    for file in 0..2 {
        let scene = Scene::new(34, 1 << 16);
        let (store, _) = scene.open();
        let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
        let (first, second) = (Random(1).bytes(4096), Random(2).bytes(4096));
        store.write(volume, 0, &first).unwrap();
        store.flush().unwrap();
        store.write(volume, BLOCK, &second).unwrap();
        scene.disk.fail_sync_after(file);
        store.flush().unwrap_err();
        let (store, _) = scene.reopen(store, Fault::Process);
        store.write(volume, 2 * BLOCK, &second).unwrap();
        store.flush().unwrap();
        let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
        assert_eq!(read(&store, volume, 0, 4096).unwrap(), first);
        assert_eq!(read(&store, volume, 2 * BLOCK, 4096).unwrap(), second, "{file}");
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    }
}

/// The sync of a container's tables fails at a start. The next start finds them.
#[test]
fn tables_behind_a_failed_sync_are_written_again() {
    let scene = Scene::new(35, 1 << 16);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    let data = Random(1).bytes(4096);
    store.write(volume, 0, &data).unwrap();
    store.flush().unwrap();
    drop(store);
    scene.disk.restart(Fault::Process);
    scene.disk.fail_sync_after(0);
    scene.open_with(options()).unwrap_err();
    scene.disk.restart(Fault::Process);
    drop(scene.open());
    scene.disk.restart(Fault::PowerLosesAll);
    let (store, _) = scene.open();
    assert_eq!(read(&store, volume, 0, 4096).unwrap(), data);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

/// Publications and starts that fail for want of space must not take space themselves.
#[test]
fn failed_publications_leave_no_files() {
    let scene = Scene::new(36, 1 << 16);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    store.write(volume, 0, &Random(1).bytes(100_000)).unwrap();
    store.flush().unwrap();
    drop(store);
    scene.disk.restart(Fault::Process);
    let is_full = Arc::new(AtomicBool::new(true));
    let seen = is_full.clone();
    let disk = Hooked::before(&scene.disk, move |operation, path| {
        let fails = (operation, path) == ("sync_folder", "runs") && seen.load(Ordering::Relaxed);
        if fails { Err(full()) } else { Ok(()) }
    });
    let runs = || scene.disk.list("runs").unwrap().len();
    for _ in 0..8 {
        let (entropy, keys) = (scene.entropy.clone(), scene.keys.clone());
        Store::open_with_keys(disk.clone(), entropy, &scene.config, keys, options()).unwrap_err();
    }
    assert!(runs() <= 2, "starts that fail leave {} runs", runs());
    is_full.store(false, Ordering::Relaxed);
    let store = open_on(&scene, disk);
    store.write(volume, 0, &Random(2).bytes(100_000)).unwrap();
    store.flush().unwrap();
    is_full.store(true, Ordering::Relaxed);
    let before = runs();
    for _ in 0..8 {
        assert_eq!(store.close().unwrap_err().kind(), ErrorKind::Full);
    }
    assert!(runs() <= before, "publications that fail leave {} runs", runs() - before);
}

/// What each block of a session may hold: what was flushed last, and all that was written since.
struct Session {
    volume: u32,
    blocks: Vec<Vec<Vec<u8>>>,
}

impl Session {
    const BLOCKS: usize = 12;

    fn write(&mut self, store: &Store, block: usize, data: Vec<u8>) {
        let values = &mut self.blocks[block];
        match store.write(self.volume, block as u64 * BLOCK, &data) {
            Ok(()) => values.push(data),
            // It may have happened, and no flush promises it.
            Err(_) => values.insert(values.len() - 1, data),
        }
    }

    fn flushed(&mut self) {
        self.blocks.iter_mut().for_each(|values| drop(values.drain(..values.len() - 1)));
    }

    fn run(&mut self, store: &Store) {
        for step in 0..30 {
            let data = Random(step as u64 % 20).bytes(if step % 5 == 0 { 9000 } else { 4096 });
            self.write(store, step * 7 % Self::BLOCKS, data);
            if step % 2 == 0 && store.flush().is_ok() {
                self.flushed();
            }
            if step == 15 {
                drop(store.create_volume("other", 512, 0));
                drop(store.close());
                drop(store.maintain());
            }
        }
        for _ in 0..2 {
            if store.close().is_ok() {
                self.flushed();
            }
        }
    }

    fn compare(&mut self, store: &Store, what: &str) {
        for (block, values) in self.blocks.iter_mut().enumerate() {
            let found = read(store, self.volume, block as u64 * BLOCK, 9000).unwrap();
            let is_known = |value: &Vec<u8>| found.starts_with(value);
            let position = values.iter().rposition(is_known);
            let position = position.unwrap_or_else(|| panic!("{what}: block {block} has lost its data"));
            *values = vec![values.swap_remove(position)];
        }
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty(), "{what}");
    }
}

/// Each operation of a session fails once: for want of space, or a sync with an error of the disk.
/// Whatever the session does then, the next starts find what was flushed.
#[test]
fn no_single_error_loses_a_flush_or_the_store() {
    let small = Options { tables: 6 << 10, ..options() };
    for is_sync in [false, true] {
        for at in 0.. {
            let what = format!("sync {is_sync}, operation {at}");
            let scene = Scene::new(37, 1 << 14);
            let (store, _) = scene.open_with(small.clone()).unwrap();
            let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
            let mut session = Session { volume, blocks: vec![vec![vec![0; 4096]]; Session::BLOCKS] };
            if is_sync {
                scene.disk.fail_sync_after(at)
            } else {
                scene.disk.fail_once_after(at)
            }
            session.run(&store);
            let was_spared = !scene.disk.has_failed_once();
            let (store, _) = scene.reopen(store, Fault::Process);
            session.compare(&store, &what);
            // Known chunks are named again.
            session.run(&store);
            let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
            session.compare(&store, &what);
            if was_spared {
                break;
            }
        }
    }
}

/// Damage of one block of a volume is no reason to lose the writes of others.
#[test]
fn an_unreadable_block_does_not_hold_up_other_volumes() {
    let scene = Scene::new(38, 1 << 18);
    let (store, _) = scene.open();
    let broken = store.create_volume("broken", 1 << 20, 0).unwrap().id;
    let sound = store.create_volume("sound", 1 << 20, 0).unwrap().id;
    store.write(broken, 0, &Random(1).bytes(BLOCK as usize)).unwrap();
    store.close().unwrap();
    drop(store);
    scene.disk.restart(Fault::Process);
    scene.disk.damage("containers/0/0", 100);
    let (store, _) = scene.open();
    // So many pieces that the block must be read and written again as a whole.
    for piece in 0..20 {
        store.write(broken, piece * 3000, &[7; 100]).unwrap();
    }
    assert_eq!(store.flush().unwrap_err().kind(), ErrorKind::Damaged);
    let data = Random(2).bytes(4096);
    store.write(sound, 0, &data).unwrap();
    // The flush may fail, as not everything is durable. This is.
    drop(store.flush());
    let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
    assert_eq!(read(&store, sound, 0, 4096).unwrap(), data);
}

/// Pages of the block table are read ahead for many blocks at once, and pages of the chunk index
/// for many chunks. One that is damaged concerns its own blocks and chunks alone.
#[test]
fn a_damaged_page_of_a_run_does_not_hold_up_other_blocks() {
    let mut failed = 0;
    for damaged in 0..3 {
        let scene = Scene::new(39, 1 << 18);
        let (store, _) = scene.open();
        let [broken, sound] = ["broken", "sound"].map(|name| store.create_volume(name, 16 << 20, 0).unwrap().id);
        let data = Random(1).bytes(80 * BLOCK as usize);
        store.write(broken, 0, &data).unwrap();
        store.write(sound, 0, &data[40 * BLOCK as usize..]).unwrap();
        store.close().unwrap();
        drop(store);
        let mut names = scene.disk.list("runs").unwrap();
        names.sort_unstable();
        assert_eq!(names.len(), 3, "chunks, blocks and counts");
        scene.disk.damage(&format!("runs/{}", names[damaged]), 77);
        let (store, _) = scene.open();
        let other = Random(2).bytes(4 * BLOCK as usize);
        // One batch, with old and new data.
        store.write(broken, 0, &other).unwrap();
        store.write(sound, 0, &other).unwrap();
        store.write(sound, 8 << 20, &data).unwrap();
        failed += usize::from(store.flush().is_err());
        let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
        assert_eq!(read(&store, sound, 0, other.len()).unwrap(), other);
        assert_eq!(read(&store, sound, 8 << 20, data.len()).unwrap(), data);
    }
    assert_eq!(failed, 1, "only the blocks of the damaged page of the block table wait");
}
