//! Creating a store, and opening one after any end.
//!
//! The newest manifest counts. The log is replayed from where it says. Frames are checked that
//! only the last record names: it may have been written without them, and is dropped then. The
//! containers that the log names are cut behind their last frame and get their tables. Everything
//! is synced and published in a new manifest with a new slot of the log, before anything is
//! served. So nothing is ever appended to a container or a slot of an earlier process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use larder_chunking::{Fingerprinter, RunMac, RunMacKey, chunker};
use larder_format::ErrorKind;
use larder_format::compress::Compressor;
use larder_format::config::Config;
use larder_format::container::{ContainerSealer, FrameLocation};
use larder_format::ids::{DomainId, JobId};
use larder_format::keys::Keys;
use larder_format::volume_log::{Event, Record};
use larder_format::volume_manifest::VolumeManifest;
use larder_format::volume_map::{BLOCK_LEN, Place};
use parking_lot::{Condvar, Mutex, RwLock};

use super::anchor::Anchor;
use super::ballast;
use super::containers::{self, Containers, Contents, Named};
use super::entropy::Entropy;
use super::interrupts::Interrupts;
use super::keys::{self, NewStore};
use super::log::{self, Log};
use super::loss::Loss;
use super::lost_frames::LostFrames;
use super::manifest;
use super::opened::{Committer, Options, Pending, State, Store, Waiting};
use super::problems::{DamagedRuns, Problems};
use super::replayed::Replayed;
use super::turns::Turns;
use crate::chain::Chain;
use crate::counters::Counters;
use crate::disk::Disk;
use crate::error::VolumeError;
use crate::index::{PageCache, Ranges, Removals, RunFile, Runs};
use crate::spare_blocks::SpareBlocks;

/// What opening a store did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Commits of the log that were replayed.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Containers that were closed.
    pub containers: u64,
    /// Commits that were not complete, and which nobody was told to be durable: 0 or 1.
    pub dropped: u64,
    /// Flushed writes that are lost, with [`Options::accept_loss`].
    pub loss: Option<Loss>,
}

impl Store {
    /// Creates a store in an empty folder.
    pub fn create(
        disk: &dyn Disk,
        entropy: &dyn Entropy,
        password: &[u8],
        new: &NewStore,
    ) -> Result<Config, VolumeError> {
        for folder in [manifest::FOLDER, "log", "runs", "containers", "containers/0"] {
            disk.make_folder(folder).map_err(VolumeError::io(folder))?;
        }
        for slot in 0..new.slots {
            log::create(disk, slot, new.slot_bytes)?;
        }
        let (config, keys) = keys::create_keys(entropy, new)?;
        let anchor = Arc::new(Anchor::create(disk, &keys, config.repository)?);
        for folder in ["log", "containers", ""] {
            disk.sync_folder(folder).map_err(VolumeError::io(folder))?;
        }
        let log = Log::begin(disk, &keys, entropy, (new.slots, new.slot_bytes), Vec::new(), 1, anchor)?;
        let manifest = VolumeManifest {
            number: 1,
            log_from: 1,
            log_slot: log.current.slot,
            log_salt: log.current.salt,
            slots: new.slots,
            slot_bytes: new.slot_bytes,
            next_container: 0,
            next_version: 1,
            next_volume: 0,
            volumes: Vec::new(),
            runs: Vec::new(),
            block_len: BLOCK_LEN,
            next_snapshot: 0,
            snapshots: Vec::new(),
            retired: Vec::new(),
        };
        manifest::publish(disk, &keys, entropy, &manifest)?;
        keys::write(disk, entropy, password, new, &config, &keys)?;
        Ok(config)
    }

    /// Opens a store with a password.
    pub fn open(
        disk: Arc<dyn Disk>,
        entropy: Arc<dyn Entropy>,
        password: &[u8],
        options: Options,
    ) -> Result<(Self, Recovery), VolumeError> {
        let (config, keys) = keys::unlock(&*disk, password)?;
        Self::open_with_keys(disk, entropy, &config, keys, options)
    }

    /// Opens a store whose keys are known. On a full file system it removes the ballast.
    pub fn open_with_keys(
        disk: Arc<dyn Disk>,
        entropy: Arc<dyn Entropy>,
        config: &Config,
        keys: Keys,
        options: Options,
    ) -> Result<(Self, Recovery), VolumeError> {
        let open = || Self::recover(disk.clone(), entropy.clone(), config, keys.clone(), options.clone());
        match open() {
            Err(error) if error.kind() == ErrorKind::Full && ballast::release(&*disk) => open(),
            opened => opened,
        }
    }

    fn recover(
        disk: Arc<dyn Disk>,
        entropy: Arc<dyn Entropy>,
        config: &Config,
        keys: Keys,
        options: Options,
    ) -> Result<(Self, Recovery), VolumeError> {
        let id = JobId(config.repository.0);
        let manifest = manifest::newest(&*disk, &keys)?;
        // An earlier process may have ended between the link and its sync. Slots and runs that
        // only the manifest before names are overwritten below, so this one must be durable.
        disk.sync_folder(manifest::FOLDER).map_err(VolumeError::io(manifest::FOLDER))?;
        let runs = open_runs(&*disk, &keys, &manifest)?;
        let shape = (manifest.slots, manifest.slot_bytes);
        let mut replayed = Replayed::read(&*disk, &keys, config.repository, &manifest)?;
        let loss = replayed.loss();
        if loss.is_some() && !options.accept_loss {
            let unknown = || VolumeError::Bug("a loss without a reason".into());
            return Err(replayed.error().unwrap_or_else(unknown));
        }
        replayed.forget_lost();
        let Replayed { tables, named, next_version, catalog, records, dropped, bytes, slots, next_seq, lost, .. } =
            replayed;
        let (count, containers) = (records.len() as u64, named.len() as u64);
        let recovery = Recovery { records: count, bytes, containers, dropped, loss };
        let first_unsure = rewrite_last(&*disk, &records, &named, &lost)?;
        for (number, contents) in named.iter().filter(|(number, _)| !lost.is_missing(**number)) {
            let is_sure = *number < first_unsure;
            close_container(&*disk, &keys, id, *number, contents, is_sure, entropy.random()?)?;
        }
        let next_container = named.keys().last().map_or(manifest.next_container, |last| last + 1);
        let cuts = keys.cuts().ok_or(VolumeError::WrongKey)?;
        let key = keys.run_mac().ok_or(VolumeError::WrongKey)?;
        let chunker = chunker(config.chunker, &cuts.chunking.0);
        let chunker = chunker.map_err(|error| VolumeError::BadRequest(error.to_string()))?;
        let anchor = match Anchor::open(&*disk, &keys, config.repository) {
            // That is a loss which was accepted.
            Err(VolumeError::Damaged { .. }) => {
                let anchor = Anchor::create(&*disk, &keys, config.repository)?;
                disk.sync_folder("").map_err(VolumeError::io("anchor"))?;
                anchor
            }
            anchor => anchor?,
        };
        anchor.settle()?;
        // The old slots stay until the manifest below names another one.
        let log = Log::begin(&*disk, &keys, &*entropy, shape, slots, next_seq, Arc::new(anchor))?;
        let chain = Chain::new(&options.filters, options.known_containers);
        let filter_counters = chain.counters();
        let committer = Committer {
            log,
            container: None,
            tables: Vec::new(),
            next_container,
            next_version,
            compressors: (0..options.threads.max(1)).map(|_| Compressor::new(options.compression)).collect(),
            chain,
            rooms: Vec::new(),
            manifest,
        };
        let state = State {
            catalog: Arc::new(catalog),
            lowers: HashMap::new(),
            active: Pending::default(),
            sealing: Pending::default(),
            tables,
            runs: Arc::new(runs),
            accepted: 0,
            committed: 0,
            is_full: false,
            stopped: None,
            unreadable: Waiting::default(),
            log_use: (0, 0, 0),
        };
        let (problems, removals) = (Arc::new(Problems::default()), Arc::new(Removals::new(disk.clone())));
        let store = Self {
            containers: Containers::new(disk.clone(), keys.clone(), id, options.frames),
            pages: PageCache::new(options.pages),
            fingerprinter: Fingerprinter::new(keys.fingerprint()),
            mac: RunMac::new(&RunMacKey(*key)),
            chunker,
            disk,
            entropy,
            keys,
            id,
            // As many as a record frees at once.
            spare_blocks: SpareBlocks::new(options.batch.min(options.write_buffer)),
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            committer: Turns::new(committer),
            counters: Counters::default(),
            container_sizes: Mutex::default(),
            maintenance: Mutex::new(()),
            closing: RwLock::default(),
            totals: Mutex::default(),
            resizing: Mutex::default(),
            hydrating: Mutex::default(),
            merged_blocks: Mutex::default(),
            has_deleted: AtomicBool::new(false),
            idle: Mutex::new(()),
            woken: Condvar::new(),
            interrupts: Interrupts::default(),
            maintainers: AtomicUsize::new(0),
            damaged: Arc::new(DamagedRuns::new(problems.clone())),
            problems,
            removals,
            ballast: AtomicU64::new(0),
            filter_counters,
        };
        let mut committer = store.committer.lock();
        // First, because what follows needs space. The manifest before this one is gone for good.
        remove_orphans(&*store.disk, &committer.manifest, next_container)?;
        let next = store.state.lock().runs.copy();
        store.publish_with(&mut committer, next, &lost.missing(), None)?;
        drop(committer);
        store.look_at_space()?;
        store.keep_ballast();
        Ok((store, recovery))
    }
}

fn open_runs(disk: &dyn Disk, keys: &Keys, manifest: &VolumeManifest) -> Result<Runs, VolumeError> {
    let mut runs = Runs::default();
    runs.retired = Ranges::of(&manifest.retired);
    for reference in &manifest.runs {
        let run = RunFile::open(disk, keys, reference.clone())?;
        runs.of_mut(run.table()).push(run);
    }
    Ok(runs)
}

/// Writes frames again that the last commit wrote. The process that wrote them may have ended
/// because a sync failed. The system then takes them for written, shows them, and does not write
/// them at the next sync.
///
/// Gives the first container whose tables may be so too: these are synced with the next record that
/// names frames, or later.
fn rewrite_last(disk: &dyn Disk, records: &[Record], named: &Named, lost: &LostFrames) -> Result<u32, VolumeError> {
    let frames_of = |record: &Record| -> Vec<(u32, u32)> {
        let of = |event: &Event| match event {
            Event::Frames(frames) => Some((frames.container, frames.first)),
            _ => None,
        };
        record.events.iter().filter_map(of).collect()
    };
    let mut with_frames = records.iter().rev().map(frames_of).filter(|frames| !frames.is_empty());
    let last = with_frames.next().unwrap_or_default();
    for (number, first) in last.iter().filter(|(number, _)| !lost.is_missing(*number)) {
        let name = containers::path(*number);
        let file = disk.open(&name).map_err(VolumeError::needed(&name))?;
        let written = named.get(number).into_iter().flat_map(|contents| &contents.frames[*first as usize..]);
        let is_there = |frame: &&FrameLocation| !lost.has(Place { container: *number, offset: frame.payload_offset });
        for frame in written.filter(is_there) {
            let mut sealed = vec![0; frame.entry.sealed_len as usize];
            file.read_at(frame.object_offset, &mut sealed).map_err(VolumeError::needed(&name))?;
            file.write_at(frame.object_offset, &sealed).map_err(VolumeError::io(&name))?;
        }
    }
    let before = with_frames.next().unwrap_or_default();
    Ok(last.iter().chain(&before).map(|(number, _)| *number).min().unwrap_or(u32::MAX))
}

/// Cuts a container behind its last named frame and writes its tables, durably. One that has them
/// already, surely on the disk, is only synced.
fn close_container(
    disk: &dyn Disk,
    keys: &Keys,
    store: JobId,
    number: u32,
    contents: &Contents,
    is_sure: bool,
    random: [u8; 32],
) -> Result<(), VolumeError> {
    let name = containers::path(number);
    let file = disk.open(&name).map_err(VolumeError::needed(&name))?;
    let end = contents.object_len();
    let has_tables = is_sure
        && containers::read_tables(keys, store, number, &*file)
            .is_ok_and(|index| index.frames() == contents.frames && index.chunks == contents.chunks);
    if !has_tables {
        let sealer = ContainerSealer::new(keys, containers::id(store, number), DomainId::DEFAULT, random)?;
        let tables = contents.tables(&sealer)?;
        file.write_at(end, &tables).map_err(VolumeError::io(&name))?;
        file.set_length(end + tables.len() as u64).map_err(VolumeError::io(&name))?;
    }
    file.sync().map_err(VolumeError::io(&name))?;
    disk.sync_folder(&containers::folder(number)).map_err(VolumeError::io(name))
}

/// Removes files that no manifest names: of commits and merges that did not end.
fn remove_orphans(disk: &dyn Disk, manifest: &VolumeManifest, next_container: u32) -> Result<(), VolumeError> {
    let list = |folder: &str| disk.list(folder).map_err(VolumeError::io(folder));
    let remove = |path: String| disk.remove(&path).map_err(VolumeError::io(path));
    remove_orphan_runs(disk, manifest)?;
    for name in list(manifest::FOLDER)? {
        if name.parse() != Ok(manifest.number) {
            remove(format!("{}/{name}", manifest::FOLDER))?;
        }
    }
    // A commit may have begun containers of the last folder, and of the next one.
    let retired = Ranges::of(&manifest.retired);
    for folder in 0..=(next_container >> 12).saturating_add(1) {
        let folder = format!("containers/{folder}");
        for name in list(&folder)? {
            let is_orphan = |number: u32| number >= next_container || retired.contains(number);
            if name.parse().is_ok_and(is_orphan) {
                remove(format!("{folder}/{name}"))?;
            }
        }
    }
    Ok(())
}

/// Removes runs that a manifest does not name. Only a start may: later, merges write some.
fn remove_orphan_runs(disk: &dyn Disk, manifest: &VolumeManifest) -> Result<(), VolumeError> {
    for name in disk.list("runs").map_err(VolumeError::io("runs"))? {
        if !manifest.runs.iter().any(|run| run.id.to_string() == name) {
            let path = format!("runs/{name}");
            disk.remove(&path).map_err(VolumeError::io(path))?;
        }
    }
    Ok(())
}
