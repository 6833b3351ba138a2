//! Damage of every kind of file: a clear error, and never other data.

use larder_format::ErrorKind;
use larder_volume::VolumeError;
use larder_volume::disk::{Disk, Fault};

use super::scene::{Random, Scene};

const BLOCK: u64 = 64 << 10;

/// A store with flushed data, in the log or in runs.
fn scene(is_closed: bool) -> (Scene, u32, Vec<u8>) {
    let scene = Scene::new(11, 1 << 18);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data = Random(5).bytes(4 * BLOCK as usize);
    for part in 0..4 {
        let from = part * BLOCK as usize;
        store.write(volume, part as u64 * BLOCK, &data[from..from + BLOCK as usize]).unwrap();
        store.flush().unwrap();
    }
    if is_closed {
        store.close().unwrap();
    }
    drop(store);
    scene.disk.restart(Fault::Power);
    (scene, volume, data)
}

/// The manifest that counts. The power failure may have brought back the one before.
fn newest_manifest(scene: &Scene) -> String {
    let names = scene.disk.list("manifest").unwrap();
    format!("manifest/{}", names.iter().filter_map(|name| name.parse::<u64>().ok()).max().unwrap())
}

#[test]
fn a_damaged_manifest_is_an_error_and_no_older_state() {
    let (scene, ..) = scene(true);
    let path = newest_manifest(&scene);
    scene.disk.damage(&path, scene.disk.length(&path) / 2);
    let error = scene.open_with(super::scene::options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains(&path), "{error}");
}

#[test]
fn a_damaged_record_below_a_later_one_is_no_end_of_the_log() {
    let (scene, ..) = scene(false);
    // The slot in use is the one that begins with a header; its first record follows.
    for slot in 0..4 {
        scene.disk.damage(&format!("log/{slot}"), 512 + 40);
    }
    let error = scene.open_with(super::scene::options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("log/"), "{error}");
}

#[test]
fn a_damaged_header_of_a_slot_is_an_error() {
    let (scene, ..) = scene(false);
    for slot in 0..4 {
        scene.disk.damage(&format!("log/{slot}"), 20);
    }
    let error = scene.open_with(super::scene::options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
}

#[test]
fn a_damaged_frame_fails_reads_of_its_blocks_and_only_these() {
    let (scene, volume, data) = scene(true);
    scene.disk.damage("containers/0/0", 100);
    let (store, _) = scene.open();
    let mut wrong = 0;
    for block in 0..4 {
        let mut buffer = vec![0xee; BLOCK as usize];
        match store.read(volume, block * BLOCK, &mut buffer) {
            Ok(()) => assert_eq!(buffer, data[(block * BLOCK) as usize..][..BLOCK as usize]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Damaged);
                assert!(error.to_string().starts_with(&format!("volume disk, blocks {block} to {block}")), "{error}");
                wrong += 1;
            }
        }
    }
    assert_eq!(wrong, 1);
    assert!(store.check(false).unwrap().errors.is_empty());
    let report = store.check(true).unwrap();
    assert!(matches!(&report.errors[..], [VolumeError::Blocks { volume, first: 0, last: 0, .. }] if volume == "disk"));
}

#[test]
fn damaged_tables_of_a_container_and_missing_ones_are_found() {
    let (first, ..) = scene(true);
    first.disk.damage("containers/0/0", first.disk.length("containers/0/0") - 30);
    let (second, ..) = scene(true);
    second.disk.remove("containers/0/0").unwrap();
    for scene in [first, second] {
        let (store, _) = scene.open();
        let report = store.check(false).unwrap();
        assert!(report.errors.iter().all(|error| error.kind() == ErrorKind::Damaged));
        let is_named = |error: &VolumeError| matches!(error, VolumeError::Blocks { first: 0, last: 3, .. });
        assert!(report.errors.iter().any(is_named), "{:?}", report.errors);
    }
}

#[test]
fn every_damaged_page_of_a_run_is_found() {
    for damaged in 0..2 {
        let (scene, volume, data) = scene(true);
        let mut names = scene.disk.list("runs").unwrap();
        names.sort_unstable();
        let path = format!("runs/{}", names[damaged]);
        // The first page holds records. The last ones are read when the store is opened.
        scene.disk.damage(&path, 77);
        let (store, _) = scene.open();
        let report = store.check(false).unwrap();
        assert!(report.errors.iter().any(|error| error.to_string().contains(&path)), "{:?}", report.errors);
        for block in 0..4 {
            let mut buffer = vec![0xee; BLOCK as usize];
            match store.read(volume, block * BLOCK, &mut buffer) {
                Ok(()) => assert_eq!(buffer, data[(block * BLOCK) as usize..][..BLOCK as usize]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Damaged),
            }
        }
        drop(store);
        scene.disk.damage(&path, scene.disk.length(&path) - 1);
        assert_eq!(scene.open_with(super::scene::options()).unwrap_err().kind(), ErrorKind::Damaged);
    }
}
