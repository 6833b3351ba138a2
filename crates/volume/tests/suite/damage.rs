//! Damage of every kind of file: a clear error, and never other data.

use larder_format::ErrorKind;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{CheckOptions, CollectOptions, FilterKind, FilterSet, LostBlocks, Options, Store, VolumeError};

use super::scene::{Random, Scene, options};

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
    let error = scene.open_with(options()).unwrap_err();
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
    let error = scene.open_with(options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("log/"), "{error}");
}

#[test]
fn a_damaged_header_of_a_slot_is_an_error() {
    let (scene, ..) = scene(false);
    for slot in 0..4 {
        scene.disk.damage(&format!("log/{slot}"), 20);
    }
    let error = scene.open_with(options()).unwrap_err();
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
    assert!(store.check(&CheckOptions::new(false)).unwrap().errors.is_empty());
    let report = store.check(&CheckOptions::new(true)).unwrap();
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
        let report = store.check(&CheckOptions::new(false)).unwrap();
        assert!(report.errors.iter().all(|error| error.kind() == ErrorKind::Damaged));
        let is_named = |error: &VolumeError| matches!(error, VolumeError::Blocks { first: 0, last: 3, .. });
        assert!(report.errors.iter().any(is_named), "{:?}", report.errors);
    }
}

/// An operator who sees errors of reads writes the content again, or restores the volume from its
/// backup into another one.
#[test]
fn what_is_written_again_over_a_damaged_frame_is_stored_again() {
    for filters in [FilterSet::default(), FilterSet::new(FilterKind::ALL.to_vec()).unwrap()] {
        let (scene, volume, data) = scene(true);
        scene.disk.damage("containers/0/0", 100);
        let (store, _) = scene.open_with(Options { filters, ..options() }).unwrap();
        let mut buffer = vec![0; data.len()];
        assert_eq!(store.read(volume, 0, &mut buffer).unwrap_err().kind(), ErrorKind::Damaged);
        let other = store.create_volume("other", 1 << 30, 0).unwrap().id;
        for volume in [volume, other] {
            store.write(volume, 0, &data).unwrap();
            store.flush().unwrap();
            store.read(volume, 0, &mut buffer).unwrap();
            assert!(buffer == data);
        }
        let (store, _) = scene.reopen(store, Fault::Power);
        for volume in [volume, other] {
            store.read(volume, 0, &mut buffer).unwrap();
            assert!(buffer == data);
        }
    }
}

#[test]
fn a_container_that_is_gone_goes_when_no_volume_names_it() {
    for is_cut in [false, true] {
        let (scene, volume, data) = scene(true);
        if is_cut {
            scene.disk.damage("containers/0/0", scene.disk.length("containers/0/0") - 30);
        } else {
            scene.disk.remove("containers/0/0").unwrap();
        }
        let (store, _) = scene.open();
        // While a block names it, it stays.
        assert_eq!(store.collect(&CollectOptions::default()).unwrap().containers, 0);
        store.delete_volume(volume, true).unwrap();
        assert!(store.collect(&CollectOptions::default()).unwrap().containers > 0);
        let volume = store.create_volume("new", 1 << 30, 0).unwrap().id;
        store.write(volume, 0, &data).unwrap();
        store.flush().unwrap();
        let (store, _) = scene.reopen(store, Fault::Power);
        let mut buffer = vec![0; data.len()];
        store.read(volume, 0, &mut buffer).unwrap();
        assert!(buffer == data);
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    }
}

#[test]
fn every_damaged_page_of_a_run_is_found() {
    for damaged in 0..3 {
        let (scene, volume, data) = scene(true);
        let mut names = scene.disk.list("runs").unwrap();
        names.sort_unstable();
        let path = format!("runs/{}", names[damaged]);
        // The first page holds records. The last ones are read when the store is opened.
        scene.disk.damage(&path, 77);
        let (store, _) = scene.open();
        let report = store.check(&CheckOptions::new(false)).unwrap();
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
        assert_eq!(scene.open_with(options()).unwrap_err().kind(), ErrorKind::Damaged);
    }
}

/// The last record of the log may be an incomplete one. Damage of any other sector of the log is an
/// error, and no older state.
#[test]
fn damage_of_any_sector_of_the_log_loses_the_last_commit_at_most() {
    const COMMITS: u64 = 45;
    let prepared = || {
        let scene = Scene::new(13, 1 << 14);
        let (store, _) = scene.open();
        let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
        for commit in 0..COMMITS {
            store.write(volume, commit * BLOCK, &Random(commit).bytes(20_000)).unwrap();
            store.flush().unwrap();
        }
        drop(store);
        scene.disk.restart(Fault::Process);
        (scene, volume)
    };
    let (scene, _) = prepared();
    let (_, recovery) = scene.open();
    assert!(recovery.records > COMMITS, "the log goes on in another slot");
    for at in (0..4 * (1 << 14)).step_by(512) {
        let (scene, volume) = prepared();
        scene.disk.damage(&format!("log/{}", at >> 14), at % (1 << 14) + 20);
        let Ok((store, _)) = scene.open_with(options()) else { continue };
        for commit in 0..COMMITS - 1 {
            let mut found = vec![0; 20_000];
            store.read(volume, commit * BLOCK, &mut found).unwrap();
            assert_eq!(found, Random(commit).bytes(20_000), "damage at {at}: commit {commit}");
        }
    }
}

/// A page of a run is damaged, and the store was not closed: the blocks of other pages are served.
#[test]
fn a_damaged_page_does_not_keep_a_store_from_opening() {
    for damaged in 0..2 {
        let (scene, volume, data) = scene(true);
        let (store, _) = scene.open();
        store.write(volume, 10 * BLOCK, &data[..BLOCK as usize]).unwrap();
        store.write(volume, 20 * BLOCK, &[7; 512]).unwrap();
        store.flush().unwrap();
        drop(store);
        scene.disk.restart(Fault::Process);
        let mut names = scene.disk.list("runs").unwrap();
        names.sort_unstable();
        scene.disk.damage(&format!("runs/{}", names[damaged]), 77);
        let (store, _) = scene.open();
        let mut found = vec![0; 512];
        store.read(volume, 20 * BLOCK, &mut found).unwrap();
        assert_eq!(found, [7; 512]);
        assert!(!store.check(&CheckOptions::new(false)).unwrap().errors.is_empty());
        // Chunks that cannot be looked up are stored again.
        store.write(volume, 30 * BLOCK, &data).unwrap();
        store.flush().unwrap();
        let mut found = vec![0; data.len()];
        store.read(volume, 30 * BLOCK, &mut found).unwrap();
        assert_eq!(found, data);
    }
}

/// A store whose log has a damaged record: the third of five. The first one created the volume.
fn with_damaged_record() -> (Scene, u32, Vec<u8>) {
    let (scene, volume, data) = scene(false);
    // The slot in use begins with records; those of the others are zeros.
    for slot in 0..4 {
        let path = format!("log/{slot}");
        let file = scene.disk.open(&path).unwrap();
        let (mut at, mut head) = (512u64, [0; 16]);
        for record in 0..3 {
            file.read_at(at, &mut head).unwrap();
            let sealed = u64::from(u32::from_le_bytes(head[..4].try_into().unwrap()));
            match (record, sealed) {
                (_, 0) => break,
                (2, _) => scene.disk.damage(&path, at + 40),
                _ => at += (16 + sealed).next_multiple_of(512),
            }
        }
    }
    (scene, volume, data)
}

#[test]
fn a_loss_is_accepted_only_on_request_and_names_its_blocks() {
    let (scene, volume, data) = with_damaged_record();
    let error = scene.open_with(options()).unwrap_err();
    assert!(matches!(error, VolumeError::DamagedLog { .. }), "{error}");
    let options = Options { accept_loss: true, ..options() };
    let foreseen = Store::foresee_loss(&scene.disk, &scene.config, &scene.keys).unwrap();
    let (store, recovery) = scene.open_with(options).unwrap();
    assert_eq!(foreseen, recovery.loss);
    assert_eq!(Store::foresee_loss(&scene.disk, &scene.config, &scene.keys).unwrap(), None, "it is accepted");
    let loss = recovery.loss.unwrap();
    assert_eq!((recovery.records, loss.unreadable, loss.dropped, loss.changes.len()), (2, 1, 2, 0));
    assert_eq!(loss.blocks, [LostBlocks { volume: "disk".into(), first: 2, last: 3 }]);
    assert!(loss.why.starts_with("log/"), "{}", loss.why);
    // The state before the damage, and nothing of the records behind it.
    let mut found = vec![0xee; 4 * BLOCK as usize];
    store.read(volume, 0, &mut found).unwrap();
    assert_eq!(found[..BLOCK as usize], data[..BLOCK as usize]);
    assert_eq!(found[BLOCK as usize..], vec![0; 3 * BLOCK as usize]);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    // From now on it opens as any other, also after new writes and another end.
    store.write(volume, BLOCK, &data[..BLOCK as usize]).unwrap();
    store.flush().unwrap();
    let (store, recovery) = scene.reopen(store, Fault::Power);
    assert_eq!((recovery.records, recovery.loss), (1, None));
    store.read(volume, 0, &mut found).unwrap();
    assert_eq!(found[BLOCK as usize..][..BLOCK as usize], data[..BLOCK as usize]);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

#[test]
fn a_damaged_record_that_names_the_next_slot_is_no_end_of_the_log() {
    let scene = Scene::new(12, 1 << 16);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let mut before = String::new();
    // Until the log has gone on to another slot.
    for round in 0..200 {
        store.write(volume, round % 8 * BLOCK, &Random(round).bytes(BLOCK as usize)).unwrap();
        store.flush().unwrap();
        let used = slots_with_records(&scene);
        if used.len() == 2 {
            break;
        }
        before.clone_from(&used[0]);
    }
    assert_eq!(slots_with_records(&scene).len(), 2);
    drop(store);
    scene.disk.restart(Fault::Power);
    // The last record of the first slot names the second one.
    let file = scene.disk.open(&before).unwrap();
    let mut at = 512;
    loop {
        let mut head = [0; 16];
        file.read_at(at, &mut head).unwrap();
        let sealed = u64::from(u32::from_le_bytes(head[..4].try_into().unwrap()));
        let next = at + (16 + sealed).next_multiple_of(512);
        let mut behind = [0; 16];
        if next + 16 > 1 << 16 || file.read_at(next, &mut behind).is_err() || behind == [0; 16] {
            break;
        }
        at = next;
    }
    scene.disk.damage(&before, at + 20);
    let error = scene.open_with(options()).unwrap_err();
    assert!(matches!(error, VolumeError::DamagedLog { .. }), "{error}");
    let options = Options { accept_loss: true, ..options() };
    let (store, recovery) = scene.open_with(options).unwrap();
    assert!(recovery.loss.is_some_and(|loss| loss.dropped > 0 && loss.unreadable == 1));
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

/// Slots whose first record is not zeros.
fn slots_with_records(scene: &Scene) -> Vec<String> {
    let has_record = |path: &String| {
        let mut head = [0; 16];
        scene.disk.open(path).unwrap().read_at(512, &mut head).unwrap();
        head != [0; 16]
    };
    (0..4).map(|slot| format!("log/{slot}")).filter(has_record).collect()
}
