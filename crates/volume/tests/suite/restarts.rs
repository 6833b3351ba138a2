//! Starts that are ended again and again.

use larder_volume::disk::Fault;

use super::oracle::SECTOR;
use super::scene::{Scene, options};

/// The process ends at any operation of a publication, and again at any operation of the starts
/// after it. Then the power fails, and all that was never synced may go at once.
#[test]
fn no_crashes_in_a_row_lose_a_manifest() {
    let prepared = |seed| {
        let scene = Scene::new(seed, 1 << 14);
        let (store, _) = scene.open();
        let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
        store.write(volume, 0, &[7; SECTOR]).unwrap();
        store.flush().unwrap();
        (scene, store, volume)
    };
    let count = |scene: &Scene, act: &dyn Fn()| {
        let before = scene.disk.operations();
        act();
        scene.disk.operations() - before
    };
    let (scene, store, _) = prepared(0);
    let of_close = count(&scene, &|| store.close().unwrap());
    for first in 0..of_close {
        for second in 0.. {
            let (scene, store, volume) = prepared(1000 * first + second);
            scene.disk.fail_after(first);
            // At its end it only removes files, and needs no success there.
            let _ = store.close();
            drop(store);
            scene.disk.restart(Fault::Process);
            let mut has_opened = false;
            for _ in 0..4 {
                scene.disk.fail_after(second);
                has_opened |= scene.open_with(options()).is_ok();
                scene.disk.restart(Fault::Process);
            }
            scene.disk.restart(Fault::PowerLosesAll);
            let (store, _) = scene.open();
            let mut found = [0; SECTOR];
            store.read(volume, 0, &mut found).unwrap();
            assert_eq!(found, [7; SECTOR], "{first}, {second}");
            if has_opened {
                break;
            }
        }
    }
}
