//! Threads that write, discard, read and flush at once, while memory tables become runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_volume::CheckOptions;
use larder_volume::disk::Fault;
use larder_volume::{Options, Store};

use super::scene::{Random, Scene, options};

const BLOCK: u64 = 64 << 10;
/// Bytes of each thread. The last block is shared with the next thread.
const SHARE: u64 = 3 * BLOCK + 4096;

/// Works on a part of a volume, and knows what it must hold.
fn work(store: &Store, volume: u32, number: u64, steps: u64) -> Vec<u8> {
    let (mut random, from) = (Random(number), number / 2 * SHARE);
    let mut expected = vec![0; SHARE as usize];
    for _ in 0..steps {
        let at = random.below(SHARE / 512) * 512;
        let most = if random.below(3) == 0 { 200 } else { 12 };
        let length = (512 * (1 + random.below(most))).min(SHARE - at);
        let range = at as usize..(at + length) as usize;
        match random.below(10) {
            0..=4 => {
                let data = Random(random.below(20)).bytes(length as usize);
                expected[range].copy_from_slice(&data);
                store.write(volume, from + at, &data).unwrap();
            }
            5 | 6 => {
                expected[range].fill(0);
                store.discard(volume, from + at, length).unwrap();
            }
            7 | 8 => {
                let mut found = vec![0xee; length as usize];
                store.read(volume, from + at, &mut found).unwrap();
                assert_eq!(found, expected[range], "thread {number} at {at}");
            }
            _ => store.flush().unwrap(),
        }
    }
    expected
}

#[test]
fn threads_see_their_own_writes() {
    for round in 0..6 {
        let scene = Scene::new(50 + round, 1 << 16);
        let small =
            Options { write_buffer: 512 << 10, commit_at: 64 << 10, tables: 8 << 10, frames: 64 << 10, ..options() };
        let (store, _) = scene.open_with(small).unwrap();
        let volumes = ["a", "b"].map(|name| store.create_volume(name, 1 << 30, 0).unwrap().id);
        let ends = AtomicBool::new(false);
        let expected: Vec<_> = std::thread::scope(|scope| {
            let (store, ends) = (&store, &ends);
            scope.spawn(move || {
                store.commit_in_background(Duration::from_millis(1), &|| ends.load(Ordering::Relaxed));
            });
            scope.spawn(move || {
                for number in 0..10 {
                    store.create_volume(&format!("more{number}"), 512, 0).unwrap();
                }
            });
            let thread = |number: u64| scope.spawn(move || work(store, volumes[number as usize % 2], number, 250));
            let threads: Vec<_> = (0..4).map(thread).collect();
            let expected = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            ends.store(true, Ordering::Relaxed);
            expected
        });
        store.flush().unwrap();
        let (store, _) = scene.reopen(store, Fault::PowerLosesAll);
        for (number, expected) in (0..).zip(expected) {
            let mut found = vec![0xee; SHARE as usize];
            store.read(volumes[number as usize % 2], number / 2 * SHARE, &mut found).unwrap();
            assert_eq!(found, expected, "thread {number}");
        }
        assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
    }
}
