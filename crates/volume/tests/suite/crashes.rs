//! Crashes anywhere, also during recovery, against an oracle of acknowledged flushes.
//!
//! Every sector has the values that it may have: the one of the last acknowledged flush, and all
//! that were written since. After a crash it must have one of them, and keep it.
//! `LARDER_VOLUME_SEEDS=FROM..TO` runs other seeds.

use larder_format::ErrorKind;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{Options, Store, VolumeError};

use super::scene::{Random, Scene, options};

const SECTOR: usize = 512;
const BLOCK: u64 = 64 << 10;
const SECTORS: usize = 640;
const SIZE: u64 = (SECTORS * SECTOR) as u64;

/// What each sector may hold.
struct Oracle(Vec<Vec<Vec<u8>>>);

impl Oracle {
    fn new() -> Self {
        Self(vec![vec![vec![0; SECTOR]]; SECTORS])
    }

    fn wrote(&mut self, offset: u64, data: &[u8]) {
        for (number, sector) in (offset as usize / SECTOR..).zip(data.chunks(SECTOR)) {
            self.0[number].push(sector.to_vec());
        }
    }

    /// All that was written before is durable.
    fn flushed(&mut self) {
        for values in &mut self.0 {
            values.drain(..values.len() - 1);
        }
    }

    /// A write failed, and happened in part or not at all: what the volume holds now is the newest.
    fn look_again(&mut self, store: &Store, volume: u32, seed: u64) -> Result<(), VolumeError> {
        let mut found = vec![0xee; SIZE as usize];
        store.read(volume, 0, &mut found)?;
        for (number, (values, sector)) in self.0.iter_mut().zip(found.chunks(SECTOR)).enumerate() {
            assert!(values.iter().any(|value| value == sector), "seed {seed}: sector {number}");
            values.push(sector.to_vec());
        }
        Ok(())
    }

    /// What the volume holds after a crash is one of the values that it may have.
    fn compare(&mut self, store: &Store, volume: u32, seed: u64) -> Result<(), VolumeError> {
        let mut found = vec![0xee; SIZE as usize];
        store.read(volume, 0, &mut found)?;
        for (number, (values, sector)) in self.0.iter_mut().zip(found.chunks(SECTOR)).enumerate() {
            assert!(values.iter().any(|value| value == sector), "seed {seed}: sector {number}");
            *values = vec![sector.to_vec()];
        }
        Ok(())
    }
}

struct Run {
    seed: u64,
    random: Random,
    scene: Scene,
    oracle: Oracle,
    /// Data that is written again and again.
    pool: Vec<Vec<u8>>,
}

impl Run {
    fn data(&mut self, sectors: usize) -> Vec<u8> {
        let length = sectors * SECTOR;
        match self.random.below(5) {
            0 => vec![0; length],
            1 | 2 => {
                let pick = self.random.below(self.pool.len() as u64) as usize;
                self.pool[pick][..length].to_vec()
            }
            3 => {
                let mut data = self.pool[0][..length].to_vec();
                data[0] = self.random.next() as u8;
                data
            }
            _ => self.random.bytes(length),
        }
    }

    fn step(&mut self, store: &Store, volume: u32) -> Result<(), VolumeError> {
        match self.random.below(10) {
            0..=4 => {
                let (from, sectors) = self.range();
                let data = self.data(sectors);
                // A write that fails may have happened or not.
                self.oracle.wrote(from, &data);
                store.write(volume, from, &data)
            }
            5 => {
                let block = self.random.below(SIZE / BLOCK) * BLOCK;
                let data = self.data(BLOCK as usize / SECTOR);
                self.oracle.wrote(block, &data);
                store.write(volume, block, &data)
            }
            6 => {
                let (from, sectors) = self.range();
                self.oracle.wrote(from, &vec![0; sectors * SECTOR]);
                store.discard(volume, from, (sectors * SECTOR) as u64)
            }
            7 | 8 => {
                store.flush()?;
                self.oracle.flushed();
                Ok(())
            }
            _ => {
                let (from, sectors) = self.range();
                let mut found = vec![0xee; sectors * SECTOR];
                store.read(volume, from, &mut found)?;
                for (number, sector) in (from as usize / SECTOR..).zip(found.chunks(SECTOR)) {
                    assert_eq!(self.oracle.0[number].last().unwrap(), sector, "seed {}: sector {number}", self.seed);
                }
                Ok(())
            }
        }
    }

    fn range(&mut self) -> (u64, usize) {
        let from = self.random.below(SECTORS as u64) as usize;
        let most = (SECTORS - from).min(if self.random.below(4) == 0 { 128 } else { 12 });
        ((from * SECTOR) as u64, 1 + self.random.below(most as u64) as usize)
    }

    fn options(&mut self) -> Options {
        // Small tables and buffers, so that everything happens within a few steps.
        let tables = if self.random.below(3) == 0 { 4 << 10 } else { 1 << 20 };
        Options { write_buffer: 256 << 10, commit_at: 128 << 10, tables, ..options() }
    }

    /// Opens the store, with crashes on the way.
    fn recover(&mut self) -> Store {
        for attempt in 0.. {
            let crashes = attempt < 3 && self.random.below(3) == 0;
            if crashes {
                self.scene.disk.fail_after(self.random.below(60));
            }
            let options = self.options();
            match self.scene.open_with(options) {
                Ok((store, _)) => {
                    return store;
                }
                Err(error) => assert!(self.scene.disk.has_failed(), "seed {}: {error}", self.seed),
            }
            self.crash();
        }
        unreachable!("the last attempt returns")
    }

    fn crash(&mut self) {
        let fault = if self.random.below(3) == 0 { Fault::Process } else { Fault::Power };
        self.scene.disk.restart(fault);
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let pool = (0..3).map(|_| random.bytes(BLOCK as usize)).collect();
    let slot_bytes = if random.below(3) > 0 { 1 << 14 } else { 1 << 18 };
    let scene = Scene::new(seed, slot_bytes);
    let mut run = Run { seed, random, scene, oracle: Oracle::new(), pool };
    let (store, _) = run.scene.open();
    let volume = store.create_volume("disk", SIZE, 0).unwrap().id;
    let mut store = store;
    for _ in 0..3 {
        run.scene.disk.fail_after(run.random.below(600));
        let steps = run.random.below(if slot_bytes == 1 << 14 { 80 } else { 30 });
        if run.random.below(2) == 0 {
            // A commit that fails for want of space is tried again by the next one.
            run.scene.disk.fail_once_after(run.random.below(60));
        }
        let mut failed = false;
        for _ in 0..steps {
            let Err(error) = run.step(&store, volume) else { continue };
            let is_transient = !run.scene.disk.has_failed() && error.kind() == ErrorKind::Full;
            if !is_transient {
                let is_known = run.scene.disk.has_failed() || matches!(error, VolumeError::Stopped(_));
                assert!(is_known, "seed {seed}: {error}");
                failed = true;
                break;
            }
            if run.oracle.look_again(&store, volume, seed).is_err() {
                assert!(run.scene.disk.has_failed(), "seed {seed}");
                failed = true;
                break;
            }
        }
        if !failed && run.random.below(4) == 0 && store.close().is_ok() {
            run.oracle.flushed();
        }
        drop(store);
        run.crash();
        store = run.recover();
        if run.oracle.compare(&store, volume, seed).is_err() {
            // The power failed while it was compared.
            assert!(run.scene.disk.has_failed(), "seed {seed}");
            drop(store);
            run.crash();
            store = run.recover();
            while run.oracle.compare(&store, volume, seed).is_err() {
                drop(store);
                run.crash();
                store = run.recover();
            }
        }
        match store.check(true) {
            Ok(report) if !run.scene.disk.has_failed() => {
                assert!(report.errors.is_empty(), "seed {seed}: {:?}", report.errors);
                let files = run.scene.disk.list("containers/0").map(|names| names.len() as u64);
                assert!(files.is_err() || files.is_ok_and(|files| files == report.containers), "seed {seed}: orphans");
            }
            _ => {}
        }
    }
}

/// The process ends at any operation of a publication, and again at any operation of the starts
/// after it. Then the power fails, and all that was never synced may go at once.
#[test]
fn no_crashes_in_a_row_lose_a_manifest() {
    let prepared = |seed| {
        let scene = Scene::new(seed, 1 << 14);
        let (store, _) = scene.open();
        let volume = store.create_volume("disk", SIZE, 0).unwrap().id;
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

fn seeds() -> std::ops::Range<u64> {
    let Some(text) = std::env::var("LARDER_VOLUME_SEEDS").ok() else { return 0..1000 };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn nothing_flushed_is_ever_lost() {
    let seeds = seeds();
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    run(seed);
                }
            });
        }
    });
}
