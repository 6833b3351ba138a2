//! How much space volumes and their data take. Unlike counters, this reads tables from disk.

use std::collections::BTreeMap;

use larder_format::volume_map::Mapping;

use crate::error::VolumeError;
use crate::index::{block_of_key, newest};
use crate::store::Store;

/// Space of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Its name.
    pub name: String,
    /// Bytes, as clients see them.
    pub size: u64,
    /// Blocks that are not zeros.
    pub blocks: u64,
    /// Bytes of data of its own, zeros left out: without that of its parent and of its snapshots.
    /// Data that several places have counts for each of them.
    pub data_bytes: u64,
}

/// Space of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreUsage {
    /// Volumes, by name.
    pub volumes: Vec<VolumeUsage>,
    /// Containers.
    pub containers: u64,
    /// Bytes of all chunks in containers, also of those that no volume uses any more.
    pub unique_bytes: u64,
    /// Bytes of containers: compressed and sealed.
    pub stored_bytes: u64,
}

impl Store {
    /// Space of all volumes, or of one. Takes time in proportion to the data: it reads the table of
    /// blocks, and once the tables of all containers. What waits for a commit is left out, and what
    /// is damaged.
    ///
    /// # Errors
    /// [`VolumeError::Interrupted`] when the store closes meanwhile.
    pub fn space(&self, only: Option<&str>) -> Result<StoreUsage, VolumeError> {
        let mut usage = StoreUsage::default();
        let (volumes, memory, runs) = {
            let state = self.state.lock();
            let mut memory = BTreeMap::new();
            for ((volume, block, _), mapping) in &state.tables.blocks {
                // The newest version comes first.
                memory.entry((*volume, *block)).or_insert_with(|| measure(mapping));
            }
            let volumes: Vec<_> = state.catalog.volumes().cloned().collect();
            (volumes, memory, state.runs.clone())
        };
        let mut found: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut count = |volume: u32, bytes: u64| {
            let (blocks, sum) = found.entry(volume).or_default();
            *blocks += u64::from(bytes > 0);
            *sum += bytes;
        };
        memory.iter().for_each(|((volume, _), bytes)| count(*volume, *bytes));
        let sources = runs.blocks.iter().rev().map(|run| self.watched(run));
        for record in newest(sources.collect(), 12) {
            let (key, value) = match record {
                Err(VolumeError::Damaged { .. }) => continue,
                record => record?,
            };
            let Some((volume, block, _)) = block_of_key(&key) else { continue };
            if !memory.contains_key(&(volume, block)) {
                count(volume, measure(&Mapping::decode(&value).map_err(VolumeError::damaged("runs"))?));
            }
        }
        for volume in volumes.into_iter().filter(|volume| only.is_none_or(|only| only == volume.name)) {
            let (blocks, data_bytes) = found.get(&volume.id).copied().unwrap_or_default();
            usage.volumes.push(VolumeUsage { name: volume.name, size: volume.size, blocks, data_bytes });
        }
        if let (Some(only), true) = (only, usage.volumes.is_empty()) {
            return Err(VolumeError::NoVolume(only.to_owned()));
        }
        usage.volumes.sort_by(|one, other| one.name.cmp(&other.name));
        let containers = self.committer.lock().next_container;
        for number in (0..containers).filter(|number| !runs.retired.contains(*number)) {
            let (unique, stored) = match self.container_size(number) {
                Err(VolumeError::Damaged { .. }) => continue,
                size => size?,
            };
            usage.containers += 1;
            usage.unique_bytes += unique;
            usage.stored_bytes += stored;
        }
        Ok(usage)
    }

    fn container_size(&self, number: u32) -> Result<(u64, u64), VolumeError> {
        if let Some(size) = self.container_sizes.lock().get(&number) {
            return Ok(*size);
        }
        let (size, is_open) = self.containers.size(number)?;
        if !is_open {
            self.container_sizes.lock().insert(number, size);
        }
        Ok(size)
    }
}

/// Bytes of a mapping that are in chunks.
fn measure(mapping: &Mapping) -> u64 {
    mapping.items.iter().filter(|item| item.place.is_some()).map(|item| u64::from(item.length)).sum()
}
