//! Publishing: the memory tables become runs, and the next manifest names them.
//!
//! Order: the open container gets its tables; the new runs are synced; a slot of the log begins;
//! the manifest is linked and its folder synced; then old runs and slots are free.

use std::sync::Arc;

use larder_format::ids::PageRunId;
use larder_format::page_run::VolumeTable;
use larder_format::volume_manifest::{VOLUMES_MAX, VolumeEntry, VolumeManifest, is_valid_name, is_valid_size, path};
use larder_format::volume_map::Mapping;

use super::log::Log;
use super::manifest;
use super::opened::{Committer, Store};
use crate::error::VolumeError;
use crate::index::{Record, RunFile, RunWriter, Runs, Scan, block_key, newest, value_of};

/// A run is merged with newer data when it has at most this often as many records.
const TIER_RATIO: u64 = 3;

impl Store {
    /// Adds a volume. Durable when it returns.
    pub fn create_volume(&self, name: &str, size: u64, now_ms: u64) -> Result<VolumeEntry, VolumeError> {
        if !is_valid_name(name) {
            let why = "a name of a volume has 1 to 255 letters, digits, '-', '_' and '.', and does not begin with '.'";
            return Err(VolumeError::BadRequest(why.into()));
        }
        if !is_valid_size(size) {
            return Err(VolumeError::BadRequest("a volume has 512 bytes to 64 TiB, in multiples of 512".into()));
        }
        let mut committer = self.committer.lock();
        let mut volumes = self.volumes();
        if volumes.iter().any(|volume| volume.name == name) {
            return Err(VolumeError::VolumeExists(name.to_owned()));
        }
        if volumes.len() >= VOLUMES_MAX {
            return Err(VolumeError::BadRequest("the store has as many volumes as it can have".into()));
        }
        let entry = VolumeEntry { id: committer.manifest.next_volume, name: name.to_owned(), size, created_ms: now_ms };
        volumes.push(entry.clone());
        self.publish(&mut committer, volumes)?;
        Ok(entry)
    }

    /// Makes everything durable and leaves an empty log, so that the next start replays nothing.
    pub fn close(&self) -> Result<(), VolumeError> {
        self.flush()?;
        let mut committer = self.committer.lock();
        if committer.manifest.log_from == committer.log.seq {
            return Ok(());
        }
        let volumes = self.volumes();
        self.publish(&mut committer, volumes)
    }

    /// Publishes what was committed so far. An error leaves the store as it was, or stopped.
    pub(crate) fn publish(&self, committer: &mut Committer, volumes: Vec<VolumeEntry>) -> Result<(), VolumeError> {
        let before = &committer.manifest;
        let (shape, live) = ((before.slots, before.slot_bytes), committer.log.live.clone());
        let log = Log::begin(&*self.disk, &self.keys, &*self.entropy, shape, live, committer.log.seq)?;
        self.publish_with(committer, volumes, Some(log))
    }

    /// The same with a log that has no records yet: this one, or that of the committer.
    pub(super) fn publish_with(
        &self,
        committer: &mut Committer,
        volumes: Vec<VolumeEntry>,
        log: Option<Log>,
    ) -> Result<(), VolumeError> {
        if let Some(why) = &self.state.lock().stopped {
            return Err(VolumeError::Stopped(why.clone()));
        }
        if let Some(container) = &committer.container {
            container.close()?;
            self.containers.closed(container.number);
            committer.container = None;
        }
        let runs = self.state.lock().runs.clone();
        let mut next = Runs::default();
        for table in VolumeTable::ALL {
            let made = self.flush_table(table, &runs)?;
            match table {
                VolumeTable::Chunks => next.chunks = made,
                VolumeTable::Blocks => next.blocks = made,
            }
        }
        self.disk.sync_folder("runs").map_err(VolumeError::io("runs"))?;
        let before = &committer.manifest;
        let begun = log.as_ref().unwrap_or(&committer.log);
        let next_volume = volumes.iter().map(|volume| volume.id + 1).max().unwrap_or(0).max(before.next_volume);
        let manifest = VolumeManifest {
            number: before.number + 1,
            log_from: begun.seq,
            log_slot: begun.current.slot,
            log_salt: begun.current.salt,
            next_container: committer.next_container,
            next_version: committer.next_version,
            next_volume,
            volumes: volumes.clone(),
            runs: VolumeTable::ALL
                .into_iter()
                .flat_map(|table| next.of(table))
                .map(|run| run.reference.clone())
                .collect(),
            ..before.clone()
        };
        if let Err(error) = manifest::publish(&*self.disk, &self.keys, &*self.entropy, &manifest) {
            // It may have been created or not.
            return Err(self.stop(error));
        }
        let old = std::mem::replace(&mut committer.manifest, manifest);
        if let Some(log) = log {
            committer.log = log;
        }
        committer.log.live = vec![committer.log.current.slot];
        {
            let mut state = self.state.lock();
            state.tables = crate::index::Memtables::default();
            state.runs = Arc::new(next);
            state.volumes = volumes;
        }
        self.remove_superseded(&old, &committer.manifest);
        Ok(())
    }

    /// The runs of a table after its memory table was written. Newer runs of about its size are
    /// merged with it.
    fn flush_table(&self, table: VolumeTable, runs: &Runs) -> Result<Vec<Arc<RunFile>>, VolumeError> {
        let mut kept = runs.of(table).to_vec();
        let (memory, mut records) = self.memory_records(table)?;
        if memory.is_empty() {
            return Ok(kept);
        }
        let mut sources: Vec<Box<dyn Iterator<Item = _>>> = vec![Box::new(memory.into_iter().map(Ok))];
        while let Some(run) = kept.pop_if(|run| run.reference.records <= TIER_RATIO * records) {
            records += run.reference.records;
            let scan: Scan = run.scan(&[]);
            sources.push(Box::new(scan));
        }
        let mut id = [0; 16];
        id.copy_from_slice(&self.entropy.random()?[..16]);
        let mut writer = RunWriter::new(&*self.disk, &self.keys, PageRunId(id), table)?;
        for record in newest(sources, table.form().filter_len) {
            let (key, value) = record?;
            // Nothing older is left that a block of zeros would have to hide.
            let is_void = table == VolumeTable::Blocks && kept.is_empty() && value.iter().all(|byte| *byte == 0);
            if !is_void {
                writer.push(&key, &value)?;
            }
        }
        if let Some(reference) = writer.finish(&*self.disk)? {
            kept.push(RunFile::open(&*self.disk, &self.keys, reference)?);
        }
        Ok(kept)
    }

    /// Sorted records of a memory table, and their number.
    fn memory_records(&self, table: VolumeTable) -> Result<(Vec<Record>, u64), VolumeError> {
        let state = self.state.lock();
        let mut records = Vec::new();
        match table {
            VolumeTable::Chunks => {
                records
                    .extend(state.tables.chunks.iter().map(|(key, place)| (key.to_vec(), value_of(*place).to_vec())));
                records.sort_unstable();
            }
            VolumeTable::Blocks => {
                for ((volume, block), (version, mapping)) in &state.tables.blocks {
                    let mut value = Vec::new();
                    Mapping::encode(mapping, &mut value)?;
                    records.push((block_key(*volume, *block, *version).to_vec(), value));
                }
            }
        }
        let count = records.len() as u64;
        Ok((records, count))
    }

    /// Removes runs and the manifest that nothing names any more. What stays is removed by the
    /// next start.
    fn remove_superseded(&self, old: &VolumeManifest, new: &VolumeManifest) {
        for run in old.runs.iter().filter(|run| !new.runs.iter().any(|other| other.id == run.id)) {
            drop(self.disk.remove(&format!("runs/{}", run.id)));
        }
        drop(self.disk.remove(&path(old.number)));
    }

    /// Nothing can be written any more, because it is open how much of it is durable.
    pub(crate) fn stop(&self, error: VolumeError) -> VolumeError {
        self.state.lock().stopped.get_or_insert_with(|| error.to_string());
        error
    }
}
