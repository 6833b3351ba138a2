//! Containers that the log names and that are gone: a named damage, and with its acceptance only the
//! blocks fail whose content is gone.

use larder_format::ErrorKind;
use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{CollectOptions, Loss, LostBlocks, Options, Store, VolumeError};

use super::scene::{Random, Scene, options};

const BLOCK: u64 = 64 << 10;
/// Blocks of one flush: a little more than a container has.
const PART: u64 = 136;
const PARTS: u64 = 3;

fn data(part: u64) -> Vec<u8> {
    Random(part + 1).bytes((PART * BLOCK) as usize)
}

/// A store whose log names several containers, and their last record too.
fn scene() -> (Scene, u32) {
    let scene = Scene::new(41, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    for part in 0..PARTS {
        store.write(volume, part * PART * BLOCK, &data(part)).unwrap();
        store.flush().unwrap();
    }
    store.anchor_log().unwrap();
    drop(store);
    scene.disk.restart(Fault::Power);
    (scene, volume)
}

fn accept(scene: &Scene) -> (Store, Loss) {
    let error = scene.open_with(options()).unwrap_err();
    assert!(matches!(&error, VolumeError::DamagedLog { what, .. } if what == "containers/0/1"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let foreseen = Store::foresee_loss(&scene.disk, &scene.config, &scene.keys).unwrap();
    let (store, recovery) = scene.open_with(Options { accept_loss: true, ..options() }).unwrap();
    assert_eq!(foreseen, recovery.loss);
    assert_eq!(Store::foresee_loss(&scene.disk, &scene.config, &scene.keys).unwrap(), None, "it is accepted");
    let loss = recovery.loss.unwrap();
    assert_eq!((loss.unreadable, loss.dropped, loss.blocks.len(), loss.changes.len()), (0, 0, 0, 0));
    assert_eq!(loss.containers, ["containers/0/1"]);
    assert!(!loss.failing.is_empty());
    (store, loss)
}

fn fails(lost: &[LostBlocks], block: u64) -> bool {
    lost.iter().any(|lost| lost.volume == "disk" && (lost.first..=lost.last).contains(&block))
}

/// The named blocks fail, and all others have their content.
fn expect_only_these_fail(store: &Store, volume: u32, failing: &[LostBlocks]) {
    for block in 0..PART * PARTS {
        let mut found = vec![0xee; BLOCK as usize];
        let read = store.read(volume, block * BLOCK, &mut found);
        assert_eq!(read.is_err(), fails(failing, block), "block {block}");
        match read {
            Ok(()) => assert!(found == data(block / PART)[(block % PART * BLOCK) as usize..][..BLOCK as usize]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Damaged),
        }
    }
}

#[test]
fn a_missing_container_of_the_log_fails_its_blocks_and_no_others() {
    let (scene, volume) = scene();
    scene.disk.remove("containers/0/1").unwrap();
    scene.disk.sync_folder("containers/0").unwrap();
    let (store, Loss { failing, .. }) = accept(&scene);
    expect_only_these_fail(&store, volume, &failing);
    let report = store.check(&CheckOptions::new(true)).unwrap();
    let blocks = report.errors.iter().filter(|error| matches!(error, VolumeError::Blocks { .. }));
    assert_eq!(blocks.count(), failing.len(), "{:?}", report.errors);
    // Sorted in a file, row by row.
    let spilled = store.check(&CheckOptions { memory: 1, ..CheckOptions::new(true) }).unwrap();
    assert_eq!(format!("{spilled:?}"), format!("{report:?}"));
    // From now on it opens as any other, and collects.
    let (store, recovery) = scene.reopen(store, Fault::Power);
    assert_eq!(recovery.loss, None);
    store.collect(&CollectOptions::default()).unwrap();
    expect_only_these_fail(&store, volume, &failing);
    // The same data written again is stored again.
    for part in 0..PARTS {
        store.write(volume, part * PART * BLOCK, &data(part)).unwrap();
    }
    store.flush().unwrap();
    let (store, _) = scene.reopen(store, Fault::Power);
    expect_only_these_fail(&store, volume, &[]);
    store.collect(&CollectOptions::default()).unwrap();
    let report = store.check(&CheckOptions::new(true)).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn a_container_of_the_log_that_was_cut_keeps_what_it_has() {
    let (scene, volume) = scene();
    let file = scene.disk.open("containers/0/1").unwrap();
    file.set_length(file.length().unwrap() / 2).unwrap();
    file.sync().unwrap();
    let (store, Loss { failing, .. }) = accept(&scene);
    let lost: u64 = failing.iter().map(|lost| lost.last - lost.first + 1).sum();
    assert!((40..PART).contains(&lost), "{lost}");
    expect_only_these_fail(&store, volume, &failing);
    let (store, recovery) = scene.reopen(store, Fault::Power);
    assert_eq!(recovery.loss, None);
    expect_only_these_fail(&store, volume, &failing);
    assert!(!store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

/// Only what is behind the last noted record may be incomplete.
#[test]
fn a_container_that_only_an_unsure_record_names_is_dropped_with_it() {
    let scene = Scene::new(42, 1 << 20);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    store.write(volume, 0, &data(0)[..BLOCK as usize]).unwrap();
    store.flush().unwrap();
    drop(store);
    scene.disk.restart(Fault::Power);
    scene.disk.remove("containers/0/0").unwrap();
    scene.disk.sync_folder("containers/0").unwrap();
    assert_eq!(Store::foresee_loss(&scene.disk, &scene.config, &scene.keys).unwrap(), None);
    let (_, recovery) = scene.open();
    assert_eq!((recovery.dropped, recovery.loss), (1, None));
}
