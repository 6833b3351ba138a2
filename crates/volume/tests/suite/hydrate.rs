//! Hydration: a volume gets all content that is outside of the store, while it is written, through crashes.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_volume::CheckOptions;
use larder_volume::disk::Fault;
use larder_volume::{Lower, Store, VolumeError};

use crate::scene::{Random, Scene};

const BLOCK: usize = 64 << 10;

/// Content outside of the store.
struct Image(Vec<u8>);

impl Lower for Image {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn is_zero(&self, range: Range<u64>) -> bool {
        let end = (range.end as usize).min(self.0.len());
        self.0.get(range.start as usize..end).is_none_or(|part| part.iter().all(|byte| *byte == 0))
    }
}

/// Data, a hole, and an end in the middle of a block.
fn image(blocks: usize) -> Vec<u8> {
    let mut image = Random(3).bytes(blocks * BLOCK + 700);
    image[2 * BLOCK..4 * BLOCK].fill(0);
    image
}

fn over(store: &Store, image: &[u8]) -> u32 {
    let volume = store.create_over("a", image.len().next_multiple_of(512) as u64, "an image", 0).unwrap().id;
    store.set_lower(volume, Arc::new(Image(image.to_vec())));
    volume
}

fn read(store: &Store, volume: u32, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    store.read(volume, 0, &mut buffer).unwrap();
    buffer
}

#[test]
fn everything_is_copied_beside_writes_and_through_ends() {
    for seed in 0..12 {
        let scene = Scene::new(50 + seed, 1 << 20);
        let (mut store, _) = scene.open();
        let image = image(40);
        let volume = over(&store, &image);
        let mut expected = image.clone();
        expected.resize(image.len().next_multiple_of(512), 0);
        let mut random = Random(seed);
        let mut change = |store: &Store, expected: &mut Vec<u8>| {
            let at = random.below(expected.len() as u64 / 512) as usize * 512;
            let length = (1 + random.below(200) as usize) * 512;
            let end = (at + length).min(expected.len());
            if random.below(3) == 0 {
                store.discard(volume, at as u64, (end - at) as u64).unwrap();
                expected[at..end].fill(0);
            } else {
                let bytes = random.bytes(end - at);
                store.write(volume, at as u64, &bytes).unwrap();
                expected[at..end].copy_from_slice(&bytes);
            }
        };
        // Stopped after some blocks, and continued after the end of the process.
        let mut left = 3 + seed;
        while store.volume("a").unwrap().parent.is_some() {
            change(&store, &mut expected);
            let mut steps = 0;
            let stop = &mut || {
                steps += 1;
                if steps % 2 == 0 {
                    change(&store, &mut expected);
                }
                steps > left
            };
            let done = store.hydrate(volume, stop).unwrap();
            assert!(done.is_none_or(|done| done.bytes == done.blocks * BLOCK as u64));
            assert!(read(&store, volume, expected.len()) == expected, "seed {seed}");
            store.flush().unwrap();
            (store, _) = scene.reopen(store, if seed % 2 == 0 { Fault::Power } else { Fault::Process });
            if store.volume("a").unwrap().parent.is_some() {
                store.set_lower(volume, Arc::new(Image(image.clone())));
            }
            left += 9;
        }
        assert!(read(&store, volume, expected.len()) == expected, "seed {seed}");
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    }
}

#[test]
fn writers_beside_a_copy_lose_nothing() {
    let scene = Scene::new(90, 1 << 20);
    let (store, _) = scene.open();
    let image = image(120);
    let volume = over(&store, &image);
    let blocks = image.len() / BLOCK;
    let ended = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        scope.spawn(|| {
            store.commit_in_background(std::time::Duration::from_millis(1), &|| ended.load(Ordering::Relaxed))
        });
        let writer = scope.spawn(|| {
            let mut random = Random(7);
            let mut expected = image.clone();
            for step in 0..600u64 {
                let at = random.below(blocks as u64) as usize * BLOCK + random.below(120) as usize * 512;
                let bytes = random.bytes(512);
                store.write(volume, at as u64, &bytes).unwrap();
                expected[at..at + 512].copy_from_slice(&bytes);
                if step % 50 == 0 {
                    store.flush().unwrap();
                }
            }
            expected
        });
        let copied = store.hydrate(volume, &mut || false).unwrap().unwrap();
        assert!(copied.blocks <= blocks as u64);
        let written = writer.join().unwrap();
        ended.store(true, Ordering::Relaxed);
        written
    });
    assert!(read(&store, volume, written.len()) == written);
    assert!(store.volume("a").unwrap().parent.is_none());
}

/// A clone gets the content of the snapshots below it, and that of the image. Then its parent can
/// be copied too, and nothing outside is needed any more.
#[test]
fn a_clone_is_copied_with_all_that_is_below_it() {
    for seed in 0..8 {
        let scene = Scene::new(120 + seed, 1 << 20);
        let (mut store, _) = scene.open();
        let image = image(30);
        let below = over(&store, &image);
        let length = image.len().next_multiple_of(512);
        let mut first = image.clone();
        first.resize(length, 0);
        let mut random = Random(seed);
        let mut change = |store: &Store, volume: u32, expected: &mut Vec<u8>| {
            let at = random.below(length as u64 / 512) as usize * 512;
            let end = (at + (1 + random.below(300) as usize) * 512).min(length);
            if random.below(3) == 0 {
                store.discard(volume, at as u64, (end - at) as u64).unwrap();
                expected[at..end].fill(0);
            } else {
                let bytes = random.bytes(end - at);
                store.write(volume, at as u64, &bytes).unwrap();
                expected[at..end].copy_from_slice(&bytes);
            }
        };
        (0..4).for_each(|_| change(&store, below, &mut first));
        let snapshot = store.create_snapshot(below, "s", None, 0).unwrap().id;
        let clone = store.clone_snapshot("c", snapshot, 0).unwrap().id;
        let (mut second, mut third) = (first.clone(), first.clone());
        (0..3).for_each(|_| change(&store, below, &mut first));
        (0..3).for_each(|_| change(&store, clone, &mut second));
        // A clone of the clone, which has another content by now.
        let again = store.create_snapshot(clone, "t", None, 0).unwrap().id;
        let deep = store.clone_snapshot("d", again, 0).unwrap().id;
        third.clone_from(&second);
        (0..3).for_each(|_| change(&store, clone, &mut second));
        if seed % 2 == 0 {
            store.close().unwrap();
        }
        for (volume, name) in [(deep, "d"), (clone, "c"), (below, "a")] {
            let mut left = 2 + seed;
            while store.volume(name).unwrap().parent.is_some() {
                let mut steps = 0;
                let stop = &mut || {
                    steps += 1;
                    if steps % 3 == 0 {
                        let expected = [&mut third, &mut second, &mut first].into_iter().zip([deep, clone, below]);
                        expected.filter(|(_, of)| *of == volume).for_each(|(of, _)| change(&store, volume, of));
                    }
                    steps > left
                };
                store.hydrate(volume, stop).unwrap();
                store.flush().unwrap();
                (store, _) = scene.reopen(store, if seed % 3 == 0 { Fault::Power } else { Fault::Process });
                if store.volume("a").unwrap().parent.is_some() {
                    store.set_lower(below, Arc::new(Image(image.clone())));
                }
                left += 11;
                for (expected, volume) in [(&third, deep), (&second, clone), (&first, below)] {
                    assert!(&read(&store, volume, length) == expected, "seed {seed}: {name}, volume {volume}");
                }
            }
            // Nobody needs the snapshot below it any more.
            match name {
                "d" => store.delete_snapshot(again).unwrap(),
                "c" => store.delete_snapshot(snapshot).unwrap(),
                _ => {}
            }
        }
        let (store, _) = scene.reopen(store, Fault::Power);
        for (expected, volume) in [(&third, deep), (&second, clone), (&first, below)] {
            assert!(&read(&store, volume, length) == expected, "seed {seed}: volume {volume}");
        }
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    }
}

#[test]
fn a_volume_that_snapshots_need_keeps_its_parent() {
    let scene = Scene::new(91, 1 << 20);
    let (store, _) = scene.open();
    let image = image(8);
    let volume = over(&store, &image);
    let snapshot = store.create_snapshot(volume, "s", None, 0).unwrap().id;
    assert!(matches!(store.hydrate(volume, &mut || false), Err(VolumeError::Needed { .. })));
    store.delete_snapshot(snapshot).unwrap();
    // One that appears meanwhile is found at the end.
    let mut made = false;
    let error = store.hydrate(volume, &mut || {
        if !made {
            made = true;
            store.create_snapshot(volume, "t", None, 0).unwrap();
        }
        false
    });
    assert!(matches!(error, Err(VolumeError::Needed { .. })));
    let other = store.create_volume("b", 512, 0).unwrap().id;
    assert!(matches!(store.hydrate(other, &mut || false), Err(VolumeError::BadRequest(_))));
    assert!(read(&store, volume, image.len()) == image);
}

/// What is below is there for the last time, so chunks that the store has are looked at before they
/// count as copied.
#[test]
fn what_the_store_has_damaged_is_copied() {
    let scene = Scene::new(87, 1 << 20);
    let (store, _) = scene.open();
    let image = image(12);
    let sound = store.create_volume("sound", 1 << 30, 0).unwrap().id;
    store.write(sound, 0, &image[..12 * BLOCK]).unwrap();
    store.close().unwrap();
    drop(store);
    scene.disk.restart(Fault::Process);
    scene.disk.damage("containers/0/0", 100);
    let (store, _) = scene.open();
    let volume = over(&store, &image);
    store.hydrate(volume, &mut || false).unwrap();
    let (store, _) = scene.reopen(store, Fault::Power);
    assert!(read(&store, volume, image.len().next_multiple_of(512))[..image.len()] == image);
}
