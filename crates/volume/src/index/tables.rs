//! The tables C (chunks) and B (blocks): keys, memory tables, and the runs of a manifest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use larder_format::Fingerprint;
use larder_format::page_run::VolumeTable;
use larder_format::volume_map::{Mapping, Place};

use super::run_file::{PageCache, RunFile};
use crate::error::VolumeError;

/// The key of a chunk: the first 20 bytes of its fingerprint.
pub(crate) fn chunk_key(fingerprint: &Fingerprint) -> [u8; 20] {
    let mut key = [0; 20];
    key.copy_from_slice(&fingerprint.0[..20]);
    key
}

/// The key of a version of a block. Newer versions come first.
pub(crate) fn block_key(volume: u32, block: u64, version: u64) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&volume.to_be_bytes());
    key[4..12].copy_from_slice(&block.to_be_bytes());
    key[12..].copy_from_slice(&(!version).to_be_bytes());
    key
}

/// Volume, block and version of a key.
pub(crate) fn block_of_key(key: &[u8]) -> Option<(u32, u64, u64)> {
    let (volume, rest) = key.split_first_chunk::<4>()?;
    let (block, version) = rest.split_first_chunk::<8>()?;
    let version = version.first_chunk::<8>()?;
    Some((u32::from_be_bytes(*volume), u64::from_be_bytes(*block), !u64::from_be_bytes(*version)))
}

/// The value of a chunk.
pub(crate) fn value_of(place: Place) -> [u8; 8] {
    (u64::from(place.container) | u64::from(place.offset) << 32).to_le_bytes()
}

/// The place in a value of a chunk.
pub(crate) fn place_of(value: &[u8]) -> Option<Place> {
    let value = u64::from_le_bytes(value.try_into().ok()?);
    Some(Place { container: value as u32, offset: (value >> 32) as u32 })
}

/// What was committed since the last manifest.
#[derive(Default)]
pub(crate) struct Memtables {
    pub(crate) chunks: HashMap<[u8; 20], Place>,
    /// By volume and block: version and content.
    pub(crate) blocks: BTreeMap<(u32, u64), (u64, Mapping)>,
}

impl Memtables {
    /// Notes a version of a block, unless a newer one is known.
    pub(crate) fn put_block(&mut self, volume: u32, block: u64, version: u64, mapping: Mapping) {
        let known = self.blocks.entry((volume, block)).or_insert((0, Mapping::ZERO));
        if known.0 <= version {
            *known = (version, mapping);
        }
    }

    /// Bytes of memory, nearly.
    pub(crate) fn bytes_held(&self) -> usize {
        self.chunks.len() * 56 + self.blocks.len() * 320
    }
}

/// The runs of a manifest, the oldest of each table first.
#[derive(Default)]
pub(crate) struct Runs {
    pub(crate) chunks: Vec<Arc<RunFile>>,
    pub(crate) blocks: Vec<Arc<RunFile>>,
}

impl Runs {
    pub(crate) fn of(&self, table: VolumeTable) -> &[Arc<RunFile>] {
        match table {
            VolumeTable::Chunks => &self.chunks,
            VolumeTable::Blocks => &self.blocks,
        }
    }

    pub(crate) fn chunk(&self, cache: &PageCache, key: &[u8; 20]) -> Result<Option<Place>, VolumeError> {
        for run in self.chunks.iter().rev() {
            if let Some(value) = run.find(cache, key)? {
                return Ok(place_of(&value));
            }
        }
        Ok(None)
    }

    /// The newest version of a block. Runs are ordered by version, so the first one has it.
    pub(crate) fn block(&self, cache: &PageCache, volume: u32, block: u64) -> Result<Mapping, VolumeError> {
        let key = block_key(volume, block, 0);
        for run in self.blocks.iter().rev() {
            if let Some(value) = run.find(cache, &key[..12])? {
                return Mapping::decode(&value).map_err(VolumeError::damaged(format!("runs/{}", run.id())));
            }
        }
        Ok(Mapping::ZERO)
    }
}
