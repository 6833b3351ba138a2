//! [`Replayed`]: what the newest manifest and the log behind it give. Reading changes nothing.

use larder_format::config::Config;
use larder_format::ids::{JobId, RepositoryId};
use larder_format::keys::Keys;
use larder_format::volume_log::{Event, Record, VolumeChange};
use larder_format::volume_manifest::VolumeManifest;
use larder_format::volume_map::Place;

use super::catalog::Catalog;
use super::containers::{self, Contents, Named};
use super::log::{self, Damage, Replay};
use super::loss::Loss;
use super::lost_frames::LostFrames;
use super::manifest;
use super::opened::Store;
use crate::disk::Disk;
use crate::error::VolumeError;
use crate::index::{Memtables, chunk_key};

/// What the log gives.
pub(super) struct Replayed {
    pub(super) tables: Memtables,
    pub(super) named: Named,
    pub(super) next_version: u64,
    pub(super) catalog: Catalog,
    /// Records that count.
    pub(super) records: Vec<Record>,
    /// Incomplete ones at the end, which nobody was told to be durable: 0 or 1.
    pub(super) dropped: u64,
    /// Bytes of the log.
    pub(super) bytes: u64,
    /// Slots that hold them.
    pub(super) slots: Vec<u32>,
    /// The sequence number behind everything that was ever written.
    pub(super) next_seq: u64,
    damage: Option<Damage>,
    /// Frames that records name and that are gone.
    pub(super) lost: LostFrames,
}

impl Replayed {
    /// Reads the log of a manifest.
    pub(super) fn read(
        disk: &dyn Disk,
        keys: &Keys,
        store: RepositoryId,
        manifest: &VolumeManifest,
    ) -> Result<Self, VolumeError> {
        let shape = (manifest.slots, manifest.slot_bytes);
        let replay = log::replay(disk, keys, store, manifest.log_use(), manifest.log_from, shape)?;
        let Replay { mut records, slots, bytes, next_seq, anchored, damage } = replay;
        // Every record before a later one was complete, and so is one that the anchor notes: if its
        // frames are damaged, that is not the end of a process.
        let is_sure = damage.as_ref().is_some_and(|damage| damage.lost > 0)
            || records.last().is_some_and(|last| last.seq <= anchored);
        let mut dropped = 0;
        if !is_sure && !is_last_complete(disk, keys, JobId(store.0), &records)? {
            records.pop();
            dropped = 1;
        }
        let (tables, named) = (Memtables::default(), Named::new());
        let (next_version, catalog) = (manifest.next_version, Catalog::of(manifest));
        let lost = LostFrames::default();
        let mut replayed =
            Self { tables, named, next_version, catalog, records, dropped, bytes, slots, next_seq, damage, lost };
        replayed.apply()?;
        replayed.lost = LostFrames::find(disk, &replayed.named)?;
        Ok(replayed)
    }

    fn apply(&mut self) -> Result<(), VolumeError> {
        let Self { tables, named, next_version, catalog, records, .. } = self;
        for event in records.iter().flat_map(|record| &record.events) {
            match event {
                Event::Frames(frames) => {
                    let mut offset = named.get(&frames.container).map_or(0, Contents::payload_len);
                    name_frames(named, event)?;
                    for chunk in &frames.chunks {
                        let place = Place { container: frames.container, offset };
                        // As commits do: the newest place counts.
                        tables.chunks.insert(chunk_key(&chunk.fingerprint), place);
                        offset += chunk.size;
                    }
                }
                Event::Wrote { volume, block, version, mapping } => {
                    tables.put_block(*volume, *block, *version, mapping.clone());
                    *next_version = (*next_version).max(version + 1);
                }
                Event::Volume(change) => {
                    catalog.apply(change);
                    if let VolumeChange::Snapshot(snapshot) = change {
                        tables.keep_below(snapshot.volume, snapshot.version);
                        *next_version = (*next_version).max(snapshot.version);
                    }
                }
                Event::NextSlot(_) => {}
            }
        }
        Ok(())
    }

    /// What was flushed and is lost. `None`: nothing is.
    pub(super) fn loss(&self) -> Option<Loss> {
        let is_whole = self.damage.is_none() && self.lost.is_empty();
        (!is_whole).then(|| Loss::of(self.damage.as_ref(), &self.lost, &self.catalog, &self.tables))
    }

    /// The error of a store that must not be opened as it is.
    pub(super) fn error(self) -> Option<VolumeError> {
        self.damage.map(|damage| damage.error).or_else(|| self.lost.error())
    }

    /// Forgets the places of chunks that are lost. So equal chunks that are written later are
    /// stored again, and blocks that name them are not taken for unchanged.
    pub(super) fn forget_lost(&mut self) {
        let Self { tables, lost, .. } = self;
        if lost.is_empty() {
            return;
        }
        tables.chunks.retain(|_, place| !lost.has(*place));
        for mapping in tables.blocks.values_mut().filter(|mapping| lost.concern(mapping)) {
            mapping.mac = None;
        }
    }
}

impl Store {
    /// The loss that [`Options::accept_loss`](super::Options::accept_loss) would accept. Changes
    /// nothing. `None`: the log and all that it names are whole.
    ///
    /// # Errors
    /// The store is damaged in another way, or cannot be read.
    pub fn foresee_loss(disk: &dyn Disk, config: &Config, keys: &Keys) -> Result<Option<Loss>, VolumeError> {
        let manifest = manifest::newest(disk, keys)?;
        Ok(Replayed::read(disk, keys, config.repository, &manifest)?.loss())
    }
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
