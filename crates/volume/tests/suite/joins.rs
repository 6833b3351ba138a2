//! A commit in the background takes in what is written while it runs.

use std::cell::Cell;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use larder_volume::disk::Fault;
use larder_volume::{Options, Store};

use super::hooked::Hooked;
use super::scene::{Random, Scene, options};

const BLOCK: usize = 64 << 10;
/// Blocks that are enough for a commit.
const ENOUGH: usize = 8;

/// Commits in the background. While its first batch is prepared, `meanwhile` writes. The power fails
/// after the first commit. Gives the store as it is afterwards, and the volume.
fn commit_once(scene: &Scene, content: &[u8], meanwhile: impl Fn(&Store, u32) + Send + Sync + 'static) -> (Store, u32) {
    let known: Arc<OnceLock<(Weak<Store>, u32)>> = Arc::default();
    let seen = known.clone();
    let disk = Hooked::before(&scene.disk, move |operation, path| {
        if let ("create", "containers/0/0", Some((store, volume))) = (operation, path, seen.get()) {
            meanwhile(&store.upgrade().unwrap(), *volume);
        }
        Ok(())
    });
    let options = Options { write_buffer: 4 << 20, commit_at: ENOUGH * BLOCK, ..options() };
    let keys = (scene.entropy.clone(), scene.keys.clone());
    let store = Arc::new(Store::open_with_keys(disk, keys.0, &scene.config, keys.1, options).unwrap().0);
    let volume = store.create_volume("disk", 4 << 20, 0).unwrap().id;
    known.set((Arc::downgrade(&store), volume)).ok().unwrap();
    store.write(volume, 0, content).unwrap();
    let looks = Cell::new(0);
    let has_committed = || {
        let has = looks.replace(looks.get() + 1) > 0;
        if has {
            scene.disk.fail_after(0);
        }
        has
    };
    store.commit_in_background(Duration::from_secs(60), &has_committed);
    drop(store);
    scene.disk.restart(Fault::PowerLosesAll);
    (scene.open().0, volume)
}

#[test]
fn what_arrives_meanwhile_is_durable_with_the_same_commit() {
    let scene = Scene::new(70, 1 << 20);
    let (first, second) = (Random(1).bytes(ENOUGH * BLOCK), Random(2).bytes(ENOUGH * BLOCK));
    let later = second.clone();
    let (store, volume) = commit_once(&scene, &first, move |store, volume| {
        store.write(volume, (ENOUGH * BLOCK) as u64, &later).unwrap();
    });
    let mut found = vec![0; 2 * ENOUGH * BLOCK];
    store.read(volume, 0, &mut found).unwrap();
    assert!(found == [first, second].concat());
}

#[test]
fn a_block_that_is_under_way_and_written_again_waits() {
    let scene = Scene::new(71, 1 << 20);
    let (first, second) = (Random(1).bytes(ENOUGH * BLOCK), Random(2).bytes(ENOUGH * BLOCK));
    let later = second.clone();
    let (store, volume) = commit_once(&scene, &first, move |store, volume| {
        store.write(volume, (ENOUGH * BLOCK) as u64, &later).unwrap();
        store.write(volume, 4096, &[7; 512]).unwrap();
    });
    // Only the first commit is durable, and nothing of it is lost.
    let mut found = vec![0; 2 * ENOUGH * BLOCK];
    store.read(volume, 0, &mut found).unwrap();
    assert!(found[..ENOUGH * BLOCK] == first);
    assert!(found[ENOUGH * BLOCK..] == [0; ENOUGH * BLOCK]);
}
