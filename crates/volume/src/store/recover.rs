//! Creating a store, and opening one after any end.
//!
//! The newest manifest counts. The log is replayed from where it says. Frames are checked that
//! only the last record names: it may have been written without them, and is dropped then. The
//! containers that the log names are cut behind their last frame and get their tables. Everything
//! is synced and published in a new manifest with a new slot of the log, before anything is
//! served. So nothing is ever appended to a container or a slot of an earlier process.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_chunking::{Fingerprinter, RunMac, RunMacKey, chunker};
use larder_format::compress::{Compression, Compressor};
use larder_format::config::Config;
use larder_format::container::ContainerSealer;
use larder_format::ids::{DomainId, JobId};
use larder_format::keys::Keys;
use larder_format::page_run::VolumeTable;
use larder_format::volume_log::{Event, Record};
use larder_format::volume_manifest::{VolumeManifest, path as manifest_path};
use larder_format::volume_map::{BLOCK_LEN, Place};
use parking_lot::{Condvar, Mutex};

use super::containers::{self, Containers, Contents};
use super::entropy::Entropy;
use super::keys::{self, NewStore};
use super::log::{self, Log, Replay};
use super::manifest;
use super::opened::{Committer, Options, Pending, State, Store};
use crate::disk::Disk;
use crate::error::VolumeError;
use crate::index::{Memtables, PageCache, RunFile, Runs, chunk_key};

/// What opening a store did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Commits of the log that were replayed.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Containers that were closed.
    pub containers: u64,
    /// Commits that were not complete, and which nobody was told to be durable: 0 or 1.
    pub dropped: u64,
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
        for folder in ["log", "containers", ""] {
            disk.sync_folder(folder).map_err(VolumeError::io(folder))?;
        }
        let (config, keys) = keys::create_keys(entropy, new)?;
        let log = Log::begin(disk, &keys, entropy, (new.slots, new.slot_bytes), Vec::new(), 1)?;
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

    /// Opens a store whose keys are known.
    pub fn open_with_keys(
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
        let replayed = log::replay(&*disk, &keys, manifest.log_use(), manifest.log_from, manifest.slot_bytes)?;
        let Replay { mut records, slots, bytes, next_seq } = replayed;
        let mut recovery = Recovery { bytes, ..Recovery::default() };
        if !is_last_complete(&*disk, &keys, id, &records)? {
            records.pop();
            recovery.dropped = 1;
        }
        recovery.records = records.len() as u64;
        let (tables, named, next_version) = apply(&manifest, &records)?;
        recovery.containers = named.len() as u64;
        for (number, contents) in &named {
            close_container(&*disk, &keys, id, *number, contents, entropy.random()?)?;
        }
        let next_container = named.keys().last().map_or(manifest.next_container, |last| last + 1);
        let cuts = keys.cuts().ok_or(VolumeError::WrongKey)?;
        let key = keys.run_mac().ok_or(VolumeError::WrongKey)?;
        let chunker = chunker(config.chunker, &cuts.chunking.0);
        let chunker = chunker.map_err(|error| VolumeError::BadRequest(error.to_string()))?;
        // The old slots stay until the manifest below names another one.
        let log = Log::begin(&*disk, &keys, &*entropy, shape, slots, next_seq)?;
        let volumes = manifest.volumes.clone();
        let committer = Committer {
            log,
            container: None,
            next_container,
            next_version,
            compressor: Compressor::new(Compression::DEFAULT),
            manifest,
        };
        let state = State {
            volumes: volumes.clone(),
            active: Pending::default(),
            sealing: Pending::default(),
            tables,
            runs: Arc::new(runs),
            accepted: 0,
            committed: 0,
            is_full: false,
            stopped: None,
        };
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
            committer: Mutex::new(committer),
        };
        let mut committer = store.committer.lock();
        store.publish_with(&mut committer, volumes, None)?;
        remove_orphans(&*store.disk, &committer.manifest)?;
        drop(committer);
        Ok((store, recovery))
    }
}

fn open_runs(disk: &dyn Disk, keys: &Keys, manifest: &VolumeManifest) -> Result<Runs, VolumeError> {
    let mut runs = Runs::default();
    for reference in &manifest.runs {
        let run = RunFile::open(disk, keys, reference.clone())?;
        match run.table() {
            VolumeTable::Chunks => runs.chunks.push(run),
            VolumeTable::Blocks => runs.blocks.push(run),
        }
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
        for location in &named[&number].frames[frames.first as usize..] {
            if !containers::opens(keys, store, number, &*file, location)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The memory tables, the containers, and the next version after these records.
fn apply(manifest: &VolumeManifest, records: &[Record]) -> Result<(Memtables, Named, u64), VolumeError> {
    let (mut tables, mut named) = (Memtables::default(), Named::new());
    let mut next_version = manifest.next_version;
    for event in records.iter().flat_map(|record| &record.events) {
        match event {
            Event::Frames(frames) => {
                let mut offset = named.get(&frames.container).map_or(0, Contents::payload_len);
                name_frames(&mut named, event)?;
                for chunk in &frames.chunks {
                    let place = Place { container: frames.container, offset };
                    tables.chunks.entry(chunk_key(&chunk.fingerprint)).or_insert(place);
                    offset += chunk.size;
                }
            }
            Event::Wrote { volume, block, version, mapping } => {
                tables.put_block(*volume, *block, *version, mapping.clone());
                next_version = next_version.max(version + 1);
            }
            Event::NextSlot(_) => {}
        }
    }
    Ok((tables, named, next_version))
}

/// Cuts a container behind its last named frame and writes its tables, durably. One that has them
/// already is only synced.
fn close_container(
    disk: &dyn Disk,
    keys: &Keys,
    store: JobId,
    number: u32,
    contents: &Contents,
    random: [u8; 32],
) -> Result<(), VolumeError> {
    let name = containers::path(number);
    let file = disk.open(&name).map_err(VolumeError::needed(&name))?;
    let end = contents.object_len();
    if file.length().map_err(VolumeError::io(&name))? < end {
        return Err(VolumeError::needed(name)(std::io::ErrorKind::UnexpectedEof.into()));
    }
    let has_tables = containers::read_tables(keys, store, number, &*file)
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
fn remove_orphans(disk: &dyn Disk, manifest: &VolumeManifest) -> Result<(), VolumeError> {
    let list = |folder: &str| disk.list(folder).map_err(VolumeError::io(folder));
    let remove = |path: String| disk.remove(&path).map_err(VolumeError::io(path));
    for name in list("runs")? {
        if !manifest.runs.iter().any(|run| run.id.to_string() == name) {
            remove(format!("runs/{name}"))?;
        }
    }
    for name in list(manifest::FOLDER)? {
        if name.parse() != Ok(manifest.number) {
            remove(format!("{}/{name}", manifest::FOLDER))?;
        }
    }
    debug_assert!(manifest_path(manifest.number).starts_with(manifest::FOLDER));
    let last = containers::folder(manifest.next_container);
    for name in list(&last)? {
        if name.parse().is_ok_and(|number: u32| number >= manifest.next_container) {
            remove(format!("{last}/{name}"))?;
        }
    }
    Ok(())
}
