//! Crashes anywhere, also during recovery, against an oracle of acknowledged flushes.
//!
//! Every sector has the values that it may have: the one of the last acknowledged flush, and all
//! that were written since. After a crash it must have one of them, and keep it.
//! `LARDER_VOLUME_SEEDS=FROM..TO` runs other seeds.

use std::collections::BTreeMap;

use larder_format::ErrorKind;
use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{CollectOptions, FilterKind, FilterSet, Options, Store, VolumeError};

use super::oracle::{Oracle, SECTOR};
use super::scene::{Random, Scene, options};

const BLOCK: u64 = 64 << 10;
const SECTORS: usize = 640;
const SIZE: u64 = (SECTORS * SECTOR) as u64;

/// A change of the volumes that was begun and may have happened.
enum Begun {
    Nothing,
    Snapshot { volume: u32, content: Vec<u8> },
    Clone { content: Vec<u8> },
    Resize { volume: u32, sectors: usize },
    DeleteVolume(u32),
    DeleteSnapshot(u32),
}

struct Run {
    seed: u64,
    random: Random,
    scene: Scene,
    volumes: BTreeMap<u32, Oracle>,
    /// Snapshots with their content.
    snapshots: BTreeMap<u32, Vec<u8>>,
    begun: Begun,
    names: u64,
    sync_fails: bool,
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

    fn volume(&mut self) -> u32 {
        let at = self.random.below(self.volumes.len() as u64) as usize;
        *self.volumes.keys().nth(at).unwrap()
    }

    fn any_snapshot(&mut self) -> Option<u32> {
        let at = self.random.below(self.snapshots.len() as u64) as usize;
        self.snapshots.keys().nth(at).copied()
    }

    fn flushed(&mut self) {
        self.volumes.values_mut().for_each(Oracle::flushed);
    }

    fn step(&mut self, store: &Store) -> Result<(), VolumeError> {
        let volume = self.volume();
        match self.random.below(16) {
            0..=4 => {
                let Some((from, sectors)) = self.range(volume) else { return Ok(()) };
                let data = self.data(sectors);
                // A write that fails may have happened or not.
                self.volumes.get_mut(&volume).unwrap().wrote(from, &data);
                store.write(volume, from, &data)
            }
            5 => {
                let block = self.random.below(SIZE / BLOCK) * BLOCK;
                let data = self.data(BLOCK as usize / SECTOR);
                let oracle = self.volumes.get_mut(&volume).unwrap();
                if block + BLOCK > oracle.size() {
                    return Ok(());
                }
                oracle.wrote(block, &data);
                store.write(volume, block, &data)
            }
            6 => {
                let Some((from, sectors)) = self.range(volume) else { return Ok(()) };
                self.volumes.get_mut(&volume).unwrap().wrote(from, &vec![0; sectors * SECTOR]);
                store.discard(volume, from, (sectors * SECTOR) as u64)
            }
            7 | 8 => {
                store.flush()?;
                self.flushed();
                Ok(())
            }
            9 | 10 => {
                let Some((from, sectors)) = self.range(volume) else { return Ok(()) };
                let mut found = vec![0xee; sectors * SECTOR];
                store.read(volume, from, &mut found)?;
                for (number, sector) in (from as usize / SECTOR..).zip(found.chunks(SECTOR)) {
                    let expected = self.volumes[&volume].0[number].last().unwrap();
                    assert_eq!(expected, sector, "seed {}: volume {volume}, sector {number}", self.seed);
                }
                let Some(snapshot) = self.any_snapshot() else { return Ok(()) };
                self.read_snapshot(store, snapshot)
            }
            11 => store.maintain().map(drop),
            12 => store.collect(&CollectOptions { live_percent: 60, ..CollectOptions::default() }).map(drop),
            13 => self.snapshot(store, volume),
            14 => match self.any_snapshot() {
                Some(snapshot) if self.volumes.len() < 4 => self.clone(store, snapshot),
                Some(snapshot) => self.delete_snapshot(store, snapshot),
                None => self.snapshot(store, volume),
            },
            _ => self.resize_or_delete(store, volume),
        }
    }

    fn read_snapshot(&self, store: &Store, snapshot: u32) -> Result<(), VolumeError> {
        let expected = &self.snapshots[&snapshot];
        let mut found = vec![0xee; expected.len()];
        store.read_snapshot(snapshot, 0, &mut found)?;
        for (number, (found, expected)) in found.chunks(SECTOR).zip(expected.chunks(SECTOR)).enumerate() {
            assert!(found == expected, "seed {}: snapshot {snapshot}, sector {number}", self.seed);
        }
        Ok(())
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    fn snapshot(&mut self, store: &Store, volume: u32) -> Result<(), VolumeError> {
        let (name, content) = (self.name(), self.volumes[&volume].newest());
        self.begun = Begun::Snapshot { volume, content: content.clone() };
        let snapshot = store.create_snapshot(volume, &name, None, 0)?;
        self.snapshots.insert(snapshot.id, content);
        self.flushed();
        Ok(())
    }

    fn clone(&mut self, store: &Store, snapshot: u32) -> Result<(), VolumeError> {
        let (name, content) = (self.name(), self.snapshots[&snapshot].clone());
        self.begun = Begun::Clone { content: content.clone() };
        let volume = store.clone_snapshot(&name, snapshot, 0)?;
        self.add(volume.id, &content);
        Ok(())
    }

    fn add(&mut self, volume: u32, content: &[u8]) {
        self.volumes.insert(volume, Oracle(content.chunks(SECTOR).map(|sector| vec![sector.to_vec()]).collect()));
    }

    fn delete_snapshot(&mut self, store: &Store, snapshot: u32) -> Result<(), VolumeError> {
        self.begun = Begun::DeleteSnapshot(snapshot);
        match store.delete_snapshot(snapshot) {
            // It has clones.
            Err(VolumeError::Needed { .. }) => Ok(()),
            Ok(()) => {
                self.snapshots.remove(&snapshot);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn resize_or_delete(&mut self, store: &Store, volume: u32) -> Result<(), VolumeError> {
        if self.random.below(2) == 0 && self.volumes.len() > 1 {
            self.begun = Begun::DeleteVolume(volume);
            let of: Vec<u32> = store.snapshots().iter().filter(|of| of.volume == volume).map(|of| of.id).collect();
            return match store.delete_volume(volume, true) {
                Err(VolumeError::Needed { .. }) => Ok(()),
                Ok(()) => {
                    self.volumes.remove(&volume);
                    self.snapshots.retain(|id, _| !of.contains(id));
                    Ok(())
                }
                Err(error) => Err(error),
            };
        }
        let sectors = 1 + self.random.below(SECTORS as u64) as usize;
        self.begun = Begun::Resize { volume, sectors };
        store.resize_volume(volume, (sectors * SECTOR) as u64)?;
        let oracle = self.volumes.get_mut(&volume).unwrap();
        oracle.0.resize(sectors, vec![vec![0; SECTOR]]);
        Ok(())
    }

    /// Looks whether the change that was begun when an error came has happened.
    fn settle(&mut self, store: &Store) {
        let (volumes, snapshots) = (store.volumes(), store.snapshots());
        let new_snapshot = snapshots.iter().find(|snapshot| !self.snapshots.contains_key(&snapshot.id));
        let new_volume = volumes.iter().find(|volume| !self.volumes.contains_key(&volume.id));
        match std::mem::replace(&mut self.begun, Begun::Nothing) {
            Begun::Snapshot { volume, content } => {
                if let Some(new) = new_snapshot {
                    assert_eq!(new.volume, volume);
                    self.snapshots.insert(new.id, content);
                }
            }
            Begun::Clone { content } => {
                if let Some(new) = new_volume {
                    self.add(new.id, &content);
                }
            }
            Begun::Resize { volume, sectors } => {
                let now = volumes.iter().find(|of| of.id == volume).unwrap().size as usize / SECTOR;
                let oracle = self.volumes.get_mut(&volume).unwrap();
                assert!(now == sectors || now == oracle.0.len(), "seed {}", self.seed);
                oracle.0.resize(now, vec![vec![0; SECTOR]]);
            }
            Begun::DeleteVolume(volume) => {
                if volumes.iter().all(|of| of.id != volume) {
                    self.volumes.remove(&volume);
                    self.snapshots.retain(|id, _| snapshots.iter().any(|snapshot| snapshot.id == *id));
                }
            }
            Begun::DeleteSnapshot(snapshot) => {
                if snapshots.iter().all(|of| of.id != snapshot) {
                    self.snapshots.remove(&snapshot);
                }
            }
            Begun::Nothing => {}
        }
        assert!(volumes.iter().map(|volume| volume.id).eq(self.volumes.keys().copied()), "seed {}", self.seed);
        assert!(snapshots.iter().map(|of| of.id).eq(self.snapshots.keys().copied()), "seed {}", self.seed);
    }

    /// Compares everything after a crash.
    fn compare(&mut self, store: &Store) -> Result<(), VolumeError> {
        self.settle(store);
        for (volume, oracle) in &mut self.volumes {
            oracle.compare(store, *volume, self.seed)?;
        }
        self.snapshots.keys().try_for_each(|snapshot| self.read_snapshot(store, *snapshot))
    }

    fn range(&mut self, volume: u32) -> Option<(u64, usize)> {
        let all = self.volumes[&volume].0.len();
        let from = self.random.below(all as u64) as usize;
        let most = (all - from).min(if self.random.below(4) == 0 { 128 } else { 12 });
        Some(((from * SECTOR) as u64, 1 + self.random.below(most as u64) as usize))
    }

    fn options(&mut self) -> Options {
        // Small tables and buffers, so that everything happens within a few steps.
        let tables = if self.random.below(3) == 0 { 4 << 10 } else { 1 << 20 };
        // Filters in any order. Syncs overlap rarely: their seeds are not repeated exactly.
        let mut filters = FilterKind::ALL.to_vec();
        for at in 1..filters.len() {
            filters.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        filters.truncate(if self.random.below(2) == 0 { 7 } else { 1 + self.random.below(7) as usize });
        Options {
            write_buffer: 256 << 10,
            commit_at: 128 << 10,
            tables,
            filters: FilterSet::new(filters).unwrap(),
            threads: 1 + self.random.below(2) as usize,
            batch: if self.random.below(2) == 0 { 64 << 10 } else { 8 << 20 },
            overlap: self.random.below(4) == 0,
            index_memory: self.random.below(2) as usize * (1 << 20),
            // Often so small that most records fill one.
            container: [16 << 10, 128 << 10, 8 << 20][self.random.below(3) as usize],
            ..options()
        }
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

    /// Steps until an error that is no passing one. Whether there was one.
    fn steps(&mut self, store: &Store, steps: u64) -> bool {
        for _ in 0..steps {
            let Err(error) = self.step(store) else {
                self.begun = Begun::Nothing;
                continue;
            };
            let seed = self.seed;
            let is_transient = !self.scene.disk.has_failed() && error.kind() == ErrorKind::Full;
            if !is_transient {
                let is_known =
                    self.scene.disk.has_failed() || self.sync_fails || matches!(error, VolumeError::Stopped(_));
                assert!(is_known, "seed {seed}: {error}");
                return true;
            }
            if store.stopped().is_some() {
                // It does not know what is durable.
                return true;
            }
            self.settle(store);
            for (volume, oracle) in &mut self.volumes {
                if oracle.look_again(store, *volume, seed).is_err() {
                    assert!(self.scene.disk.has_failed(), "seed {seed}");
                    return true;
                }
            }
        }
        false
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let pool = (0..3).map(|_| random.bytes(BLOCK as usize)).collect();
    let slot_bytes = if random.below(3) > 0 { 1 << 14 } else { 1 << 18 };
    let scene = Scene::new(seed, slot_bytes);
    let (volumes, snapshots) = (BTreeMap::new(), BTreeMap::new());
    let mut run =
        Run { seed, random, scene, volumes, snapshots, begun: Begun::Nothing, names: 0, sync_fails: false, pool };
    let (store, _) = run.scene.open();
    let volume = store.create_volume("disk", SIZE, 0).unwrap().id;
    run.volumes.insert(volume, Oracle::new(SECTORS));
    let mut store = store;
    for _ in 0..3 {
        run.scene.disk.fail_after(run.random.below(900));
        let steps = run.random.below(if slot_bytes == 1 << 14 { 80 } else { 30 });
        if run.random.below(2) == 0 {
            // A commit that fails for want of space is tried again by the next one.
            run.scene.disk.fail_once_after(run.random.below(60));
        }
        run.sync_fails = run.random.below(4) == 0;
        if run.sync_fails {
            // The store stops, and the next start may see what is not on the disk.
            run.scene.disk.fail_sync_after(run.random.below(25));
        }
        let failed = run.steps(&store, steps);
        if !failed && run.random.below(4) == 0 && store.close().is_ok() {
            run.flushed();
        }
        drop(store);
        run.crash();
        store = run.recover();
        while run.compare(&store).is_err() {
            // The power failed while it was compared.
            assert!(run.scene.disk.has_failed(), "seed {seed}");
            drop(store);
            run.crash();
            store = run.recover();
        }
        match store.check(&CheckOptions::new(true)) {
            Ok(report) if !run.scene.disk.has_failed() => {
                assert!(report.errors.is_empty(), "seed {seed}: {:?}", report.errors);
                let files = run.scene.disk.list("containers/0").map(|names| names.len() as u64);
                assert!(files.is_err() || files.is_ok_and(|files| files == report.containers), "seed {seed}: orphans");
            }
            _ => {}
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
