//! Panics of work in the background: they are told, and the work goes on, or the store stops.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{Store, VolumeError};

use super::hooked::Hooked;
use super::interrupts::{fill, runs};
use super::scene::{Scene, options};
use super::snapshots::{BLOCK, read};

/// A store whose disk panics once at an operation, when it is armed.
fn panicking(scene: &Scene, operation: &'static str, path: &'static str) -> (Store, Arc<AtomicBool>) {
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = is_armed.clone();
    let disk: Arc<dyn Disk> = Hooked::before(&scene.disk, move |of, at| {
        let is_it = of == operation && at.starts_with(path);
        assert!(!(is_it && armed.swap(false, Ordering::SeqCst)), "a mistake of a test");
        Ok(())
    });
    let (entropy, keys) = (scene.entropy.clone(), scene.keys.clone());
    let opened = Store::open_with_keys(disk, entropy, &scene.config, keys, options());
    (opened.unwrap().0, is_armed)
}

#[test]
fn maintenance_goes_on_behind_a_panic_and_tells_it() {
    let scene = Scene::new(91, 1 << 20);
    let (store, is_armed) = panicking(&scene, "create", "runs/");
    let (volume, expected) = fill(&store);
    is_armed.store(true, Ordering::SeqCst);
    let (looks, told) = (Cell::new(0), Cell::new(Vec::new()));
    store.maintain_in_background(Duration::ZERO, &|| {
        looks.set(looks.get() + 1);
        // Before the first wait.
        if looks.get() == 2 {
            told.set(store.stats().problems);
        }
        looks.get() > 6
    });
    let told = told.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("maintenance: ") && told[0].contains("a mistake of a test"), "{told:?}");
    assert!(store.stats().problems.is_empty());
    assert!(store.stats().chunk_runs.runs < 4, "it did not go on");
    let (files, used) = runs(&scene, &store);
    assert_eq!(files, used);
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    assert!(read(&store, volume, 0, expected.len()) == expected);
}

/// It is open whether the manifest counts.
#[test]
fn a_panic_in_a_publication_stops_the_store() {
    let scene = Scene::new(92, 1 << 20);
    let (store, is_armed) = panicking(&scene, "sync_folder", "manifest");
    let (volume, expected) = fill(&store);
    is_armed.store(true, Ordering::SeqCst);
    let looks = Cell::new(0);
    store.maintain_in_background(Duration::ZERO, &|| {
        looks.set(looks.get() + 1);
        looks.get() > 4
    });
    assert!(store.stopped().is_some_and(|why| why.contains("bug")));
    assert!(store.stats().problems.iter().any(|told| told.starts_with("maintenance: ")));
    store.write(volume, 0, &[1; 100]).unwrap_err();
    assert!(matches!(store.create_volume("other", 512, 0), Err(VolumeError::Stopped(_))));
    for fault in [Fault::Process, Fault::PowerLosesAll] {
        scene.disk.restart(fault);
        let (store, _) = scene.open();
        assert!(read(&store, volume, 0, expected.len()) == expected);
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    }
}

#[test]
fn a_panic_of_the_thread_that_commits_is_told() {
    let scene = Scene::new(93, 1 << 20);
    let (store, is_armed) = panicking(&scene, "create", "containers/");
    let (volume, expected) = fill(&store);
    store.write(volume, 800 << 20, &expected[..BLOCK - 1]).unwrap();
    store.write(volume, 900 << 20, &super::scene::Random(7).bytes(BLOCK)).unwrap();
    is_armed.store(true, Ordering::SeqCst);
    store.commit_in_background(Duration::ZERO, &|| true);
    assert!(!is_armed.load(Ordering::SeqCst));
    let problems = store.stats().problems;
    assert!(problems.iter().any(|told| told.starts_with("commits: a bug: ")), "{problems:?}");
    assert!(store.stopped().is_some());
}
