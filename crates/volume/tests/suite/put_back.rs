//! Earlier contents of the log that somebody put back: a named damage, and never a silent loss of
//! more than the last commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_format::ErrorKind;
use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{Options, Store, VolumeError};

use super::scene::{Random, Scene, options};

const BLOCK: u64 = 64 << 10;
const SLOTS: usize = 4;
const SLOT: u64 = 1 << 14;
/// Enough for two slots.
const COMMITS: usize = 40;

fn bytes(scene: &Scene, path: &str) -> Vec<u8> {
    let file = scene.disk.open(path).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn put(scene: &Scene, path: &str, bytes: &[u8]) {
    let file = scene.disk.open(path).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
}

fn log(scene: &Scene) -> Vec<Vec<u8>> {
    (0..SLOTS).map(|slot| bytes(scene, &format!("log/{slot}"))).collect()
}

fn put_log(scene: &Scene, slots: &[Vec<u8>]) {
    slots.iter().enumerate().for_each(|(slot, bytes)| put(scene, &format!("log/{slot}"), bytes));
}

fn accepting() -> Options {
    Options { accept_loss: true, ..options() }
}

fn content(commit: usize) -> Vec<u8> {
    Random(commit as u64).bytes(5_000)
}

/// A store with a commit for each of its first blocks, that lost power, and the log as it was
/// before each commit and behind the last one.
fn scene(is_anchored: bool) -> (Scene, u32, Vec<Vec<Vec<u8>>>) {
    let scene = Scene::new(17, SLOT);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let mut logs = vec![log(&scene)];
    for commit in 0..COMMITS {
        store.write(volume, commit as u64 * BLOCK, &content(commit)).unwrap();
        store.flush().unwrap();
        logs.push(log(&scene));
    }
    if is_anchored {
        store.anchor_log().unwrap();
    }
    drop(store);
    scene.disk.restart(Fault::Power);
    (scene, volume, logs)
}

fn has(store: &Store, volume: u32, commits: usize) {
    for commit in 0..COMMITS {
        let mut found = vec![0xee; 5_000];
        store.read(volume, commit as u64 * BLOCK, &mut found).unwrap();
        let expected = if commit < commits { content(commit) } else { vec![0; 5_000] };
        assert!(found == expected, "commit {commit} of {commits}");
    }
}

#[test]
fn a_whole_log_opens_and_an_earlier_one_is_damage() {
    for put_back in 0..=COMMITS {
        let (scene, volume, logs) = scene(false);
        put_log(&scene, &logs[put_back]);
        let opened = scene.open_with(options());
        if put_back >= COMMITS - 1 {
            // The last record alone cannot be told from one that was never written.
            has(&opened.unwrap().0, volume, put_back);
            continue;
        }
        let error = opened.unwrap_err();
        assert!(matches!(error, VolumeError::DamagedLog { .. }), "{put_back}: {error}");
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.to_string().starts_with("log/") && error.to_string().contains("earlier"), "{error}");
        if put_back % 8 != 0 {
            continue;
        }
        let foreseen = Store::foresee_loss(&scene.disk, &scene.config, &scene.keys).unwrap();
        let (store, recovery) = scene.open_with(accepting()).unwrap();
        assert_eq!(foreseen, recovery.loss);
        let loss = recovery.loss.unwrap();
        assert!(loss.unreadable >= (COMMITS - 1 - put_back) as u64 && loss.dropped == 0, "{loss:?}");
        has(&store, volume, put_back);
        // From now on it opens as any other, also after new writes and another end.
        store.write(volume, 0, &content(COMMITS)).unwrap();
        store.flush().unwrap();
        let (store, recovery) = scene.reopen(store, Fault::Power);
        assert_eq!((recovery.records, recovery.loss), (1, None));
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    }
}

#[test]
fn an_idle_store_notes_its_last_record() {
    let (scene, volume, logs) = scene(true);
    has(&scene.open().0, volume, COMMITS);
    let (scene, ..) = self::scene(true);
    put_log(&scene, &logs[COMMITS - 1]);
    let error = scene.open_with(options()).unwrap_err();
    assert!(matches!(error, VolumeError::DamagedLog { .. }), "{error}");
}

#[test]
fn the_thread_that_commits_notes_the_last_record_when_nothing_else_happens() {
    let scene = Scene::new(18, SLOT);
    let (store, _) = scene.open();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    store.write(volume, 0, &content(1)).unwrap();
    store.flush().unwrap();
    let before = bytes(&scene, "anchor");
    let turns = AtomicU64::new(0);
    let ends = || bytes(&scene, "anchor") != before || turns.fetch_add(1, Ordering::Relaxed) > 10_000;
    store.commit_in_background(Duration::from_millis(1), &ends);
    assert_ne!(bytes(&scene, "anchor"), before);
}

#[test]
fn one_slot_that_was_put_back_is_damage() {
    for slot in 0..SLOTS {
        let (scene, volume, logs) = scene(false);
        let now = log(&scene);
        for earlier in &logs[..COMMITS - 1] {
            if earlier[slot] == now[slot] {
                continue;
            }
            put(&scene, &format!("log/{slot}"), &earlier[slot]);
            let error = scene.open_with(options()).unwrap_err();
            assert!(matches!(error, VolumeError::DamagedLog { .. } | VolumeError::Damaged { .. }), "{error}");
            put(&scene, &format!("log/{slot}"), &now[slot]);
        }
        has(&scene.open().0, volume, COMMITS);
    }
}

#[test]
fn lost_frames_of_a_noted_record_are_no_incomplete_end() {
    for is_anchored in [false, true] {
        let (scene, volume, _) = scene(is_anchored);
        let length = scene.disk.length("containers/0/0");
        // The last frames, and the zeros behind them.
        let file = scene.disk.open("containers/0/0").unwrap();
        let mut found = vec![0; length as usize];
        file.read_at(0, &mut found).unwrap();
        let last = found.iter().rposition(|byte| *byte != 0).unwrap() as u64;
        scene.disk.damage("containers/0/0", last);
        let (store, recovery) = scene.open();
        assert_eq!(recovery.dropped, u64::from(!is_anchored));
        let mut found = vec![0xee; 5_000];
        let read = store.read(volume, (COMMITS as u64 - 1) * BLOCK, &mut found);
        if is_anchored {
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Damaged);
            assert!(!store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
        } else {
            read.unwrap();
            assert_eq!(found, vec![0; 5_000]);
        }
    }
}

#[test]
fn an_anchor_that_is_gone_is_damage_and_one_copy_is_enough() {
    let (scene, volume, _) = scene(false);
    scene.disk.damage("anchor", 9);
    has(&scene.open().0, volume, COMMITS);
    // The file ends before the second copy. What is left may be the older one.
    let (scene, volume, _) = self::scene(true);
    scene.disk.open("anchor").unwrap().set_length(4096).unwrap();
    has(&scene.open().0, volume, COMMITS);
    for is_missing in [false, true] {
        let (scene, volume, _) = self::scene(false);
        if is_missing {
            scene.disk.remove("anchor").unwrap();
        } else {
            scene.disk.damage("anchor", 9);
            scene.disk.damage("anchor", 4096 + 9);
        }
        let error = scene.open_with(options()).unwrap_err();
        assert!(matches!(&error, VolumeError::DamagedLog { what, .. } if what == "anchor"), "{error}");
        let (store, recovery) = scene.open_with(accepting()).unwrap();
        let loss = recovery.loss.unwrap();
        assert_eq!((loss.unreadable, loss.dropped), (0, 0));
        has(&store, volume, COMMITS);
        let (store, recovery) = scene.reopen(store, Fault::Power);
        assert_eq!(recovery.loss, None);
        has(&store, volume, COMMITS);
    }
}
