//! Creating a store, and opening one after any end.
//!
//! The newest manifest counts. The log is replayed from where it says. Frames are checked that
//! only the last record names: it may have been written without them, and is dropped then. The
//! containers that the log names are cut behind their last frame and get their tables. Everything
//! is synced and published in a new manifest with a new slot of the log, before anything is
//! served. So nothing is ever appended to a container or a slot of an earlier process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use larder_chunking::{Fingerprinter, RunMac, RunMacKey, chunker};
use larder_format::ErrorKind;
use larder_format::compress::{Compression, Compressor};
use larder_format::config::Config;
use larder_format::container::ContainerSealer;
use larder_format::ids::{DomainId, JobId};
use larder_format::keys::Keys;
use larder_format::volume_log::{Event, Record, VolumeChange};
use larder_format::volume_manifest::VolumeManifest;
use larder_format::volume_map::{BLOCK_LEN, Place};
use parking_lot::{Condvar, Mutex, RwLock};

use super::anchor::Anchor;
use super::ballast;
use super::catalog::Catalog;
use super::containers::{self, Containers, Contents};
use super::entropy::Entropy;
use super::interrupts::Interrupts;
use super::keys::{self, NewStore};
use super::log::{self, Log, Replay};
use super::loss::Loss;
use super::manifest;
use super::opened::{Committer, Options, Pending, State, Store, Waiting};
use super::problems::{DamagedRuns, Problems};
use super::turns::Turns;
use crate::chain::Chain;
use crate::counters::Counters;
use crate::disk::Disk;
use crate::error::VolumeError;
use crate::index::{Memtables, PageCache, Ranges, Removals, RunFile, Runs, chunk_key};

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

/// Containers by number, as the log names them.
type Named = BTreeMap<u32, Contents>;

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
        let anchor = Arc::new(Anchor::create(disk, &keys)?);
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
        let replayed = log::replay(&*disk, &keys, manifest.log_use(), manifest.log_from, shape)?;
        let Replay { mut records, slots, bytes, next_seq, anchored, damage } = replayed;
        let mut recovery = Recovery { bytes, ..Recovery::default() };
        let damage = match damage {
            Some(damage) if !options.accept_loss => return Err(damage.error),
            damage => damage,
        };
        // Every record before a later one was complete, and so is one that the anchor notes: if its
        // frames are damaged, that is not the end of a process.
        let is_sure = damage.as_ref().is_some_and(|damage| damage.lost > 0)
            || records.last().is_some_and(|last| last.seq <= anchored);
        if !is_sure && !is_last_complete(&*disk, &keys, id, &records)? {
            records.pop();
            recovery.dropped = 1;
        }
        recovery.records = records.len() as u64;
        let Replayed { tables, named, next_version, catalog } = apply(&manifest, &records)?;
        recovery.loss = damage.map(|damage| Loss::of(&damage, &catalog));
        recovery.containers = named.len() as u64;
        let first_unsure = rewrite_last(&*disk, &records, &named)?;
        for (number, contents) in &named {
            let is_sure = *number < first_unsure;
            close_container(&*disk, &keys, id, *number, contents, is_sure, entropy.random()?)?;
        }
        let next_container = named.keys().last().map_or(manifest.next_container, |last| last + 1);
        let cuts = keys.cuts().ok_or(VolumeError::WrongKey)?;
        let key = keys.run_mac().ok_or(VolumeError::WrongKey)?;
        let chunker = chunker(config.chunker, &cuts.chunking.0);
        let chunker = chunker.map_err(|error| VolumeError::BadRequest(error.to_string()))?;
        let anchor = match Anchor::open(&*disk, &keys) {
            // That is a loss which was accepted.
            Err(VolumeError::Damaged { .. }) => {
                let anchor = Anchor::create(&*disk, &keys)?;
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
            next_container,
            next_version,
            compressors: (0..options.threads.max(1)).map(|_| Compressor::new(Compression::DEFAULT)).collect(),
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
        store.publish_with(&mut committer, next, &[], None)?;
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

/// Adds the frames of an event to those that the log named before.
fn name_frames(named: &mut Named, event: &Event) -> Result<(), VolumeError> {
    let Event::Frames(event) = event else { return Ok(()) };
    let contents = named.entry(event.container).or_default();
    let odd = || {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidData, "the log names frames that do not follow");
        VolumeError::Io { what: containers::path(event.container), source }
    };
    if contents.frames.len() != event.first as usize {
        return Err(odd());
    }
    for frame in &event.frames {
        contents.push(*frame).ok_or_else(odd)?;
    }
    contents.chunks.extend_from_slice(&event.chunks);
    Ok(())
}

/// Whether all frames are there that only the last record names.
fn is_last_complete(disk: &dyn Disk, keys: &Keys, store: JobId, records: &[Record]) -> Result<bool, VolumeError> {
    let Some((last, before)) = records.split_last() else { return Ok(true) };
    let mut named = Named::new();
    for event in before.iter().flat_map(|record| &record.events) {
        name_frames(&mut named, event)?;
    }
    for event in &last.events {
        let Event::Frames(frames) = event else { continue };
        name_frames(&mut named, event)?;
        let number = frames.container;
        let file = match disk.open(&containers::path(number)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            file => file.map_err(VolumeError::io(containers::path(number)))?,
        };
        let written = &named[&number].frames[frames.first as usize..];
        if !containers::hold(keys, store, number, &*file, written, &frames.chunks)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes frames again that the last commit wrote, and gives the first of its containers. The
/// process that wrote them may have ended because a sync failed. The system then takes them for
/// written, shows them, and does not write them at the next sync.
fn rewrite_last(disk: &dyn Disk, records: &[Record], named: &Named) -> Result<u32, VolumeError> {
    let frames_of = |record: &Record| -> Vec<(u32, u32)> {
        let of = |event: &Event| match event {
            Event::Frames(frames) => Some((frames.container, frames.first)),
            _ => None,
        };
        record.events.iter().filter_map(of).collect()
    };
    let last = records.iter().rev().map(frames_of).find(|frames| !frames.is_empty()).unwrap_or_default();
    for (number, first) in &last {
        let name = containers::path(*number);
        let file = disk.open(&name).map_err(VolumeError::needed(&name))?;
        for frame in named.get(number).into_iter().flat_map(|contents| &contents.frames[*first as usize..]) {
            let mut sealed = vec![0; frame.entry.sealed_len as usize];
            file.read_at(frame.object_offset, &mut sealed).map_err(VolumeError::needed(&name))?;
            file.write_at(frame.object_offset, &sealed).map_err(VolumeError::io(&name))?;
        }
    }
    Ok(last.iter().map(|(number, _)| *number).min().unwrap_or(u32::MAX))
}

/// What the records of the log give.
struct Replayed {
    tables: Memtables,
    named: Named,
    next_version: u64,
    catalog: Catalog,
}

fn apply(manifest: &VolumeManifest, records: &[Record]) -> Result<Replayed, VolumeError> {
    let (mut tables, mut named) = (Memtables::default(), Named::new());
    let (mut next_version, mut catalog) = (manifest.next_version, Catalog::of(manifest));
    for event in records.iter().flat_map(|record| &record.events) {
        match event {
            Event::Frames(frames) => {
                let mut offset = named.get(&frames.container).map_or(0, Contents::payload_len);
                name_frames(&mut named, event)?;
                for chunk in &frames.chunks {
                    let place = Place { container: frames.container, offset };
                    // As commits do: the newest place counts.
                    tables.chunks.insert(chunk_key(&chunk.fingerprint), place);
                    offset += chunk.size;
                }
            }
            Event::Wrote { volume, block, version, mapping } => {
                tables.put_block(*volume, *block, *version, mapping.clone());
                next_version = next_version.max(version + 1);
            }
            Event::Volume(change) => {
                catalog.apply(change);
                if let VolumeChange::Snapshot(snapshot) = change {
                    tables.keep_below(snapshot.volume, snapshot.version);
                    next_version = next_version.max(snapshot.version);
                }
            }
            Event::NextSlot(_) => {}
        }
    }
    Ok(Replayed { tables, named, next_version, catalog })
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
    if file.length().map_err(VolumeError::io(&name))? < end {
        return Err(VolumeError::needed(name)(std::io::ErrorKind::UnexpectedEof.into()));
    }
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
