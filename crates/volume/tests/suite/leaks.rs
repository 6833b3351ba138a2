//! Files of merges that end in an error go at once, and not at the next start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_format::ErrorKind;
use larder_volume::CheckOptions;
use larder_volume::disk::Disk;
use larder_volume::{CollectOptions, Store, VolumeError};

use super::hooked::Hooked;
use super::interrupts::{fill, runs};
use super::scene::{Scene, options};
use super::snapshots::read;

/// Each operation of maintenance and of a collection fails once for want of space.
#[test]
fn work_that_fails_leaves_no_files() {
    type Work = fn(&Store) -> Result<(), VolumeError>;
    let works: [Work; 3] = [
        |store| store.maintain().map(drop),
        |store| store.collect(&CollectOptions::default()).map(drop),
        |store| store.repair_counts(),
    ];
    for (number, work) in works.iter().enumerate() {
        let mut failed = 0;
        for at in 0.. {
            let scene = Scene::new(111, 1 << 20);
            let (store, _) = scene.open();
            let (volume, expected) = fill(&store);
            // It would be tried again.
            scene.disk.remove("ballast").unwrap();
            scene.disk.fail_once_after(at);
            let done = work(&store);
            failed += usize::from(done.is_err());
            let was_spared = !scene.disk.has_failed_once();
            // What could not be removed is removed now.
            drop(store.maintain());
            assert!(read(&store, volume, 0, expected.len()) == expected);
            if store.stopped().is_none() {
                let (files, used) = runs(&scene, &store);
                assert_eq!(files, used, "work {number}, operation {at}: {done:?}");
                let report = store.check(&CheckOptions::new(false)).unwrap();
                assert!(report.errors.is_empty(), "work {number}, operation {at}: {done:?}, {:?}", report.errors);
            }
            if was_spared {
                break;
            }
        }
        assert!(failed > 10, "work {number}: {failed}");
    }
}

/// A merge ends when the manifest for it cannot be written.
#[test]
fn a_merge_whose_publication_fails_leaves_no_files() {
    for (operation, path) in [("sync_folder", "runs"), ("create", "manifest/"), ("link", "manifest/")] {
        let scene = Scene::new(112, 1 << 20);
        let fails = Arc::new(AtomicBool::new(false));
        let seen = fails.clone();
        let disk: Arc<dyn Disk> = Hooked::before(&scene.disk, move |of, at| {
            let is_it = of == operation && at.starts_with(path) && seen.load(Ordering::SeqCst);
            if is_it { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        });
        let (entropy, keys) = (scene.entropy.clone(), scene.keys.clone());
        let store = Store::open_with_keys(disk, entropy, &scene.config, keys, options()).unwrap().0;
        let (volume, expected) = fill(&store);
        fails.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            assert_eq!(store.maintain().unwrap_err().kind(), ErrorKind::Full);
            assert_eq!(store.collect(&CollectOptions::default()).unwrap_err().kind(), ErrorKind::Full);
            let (files, used) = runs(&scene, &store);
            assert_eq!(files, used, "{operation} {path}");
        }
        assert!(store.stopped().is_none());
        fails.store(false, Ordering::SeqCst);
        store.maintain().unwrap();
        let (files, used) = runs(&scene, &store);
        assert_eq!(files, used, "{operation} {path}");
        assert!(read(&store, volume, 0, expected.len()) == expected);
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    }
}
