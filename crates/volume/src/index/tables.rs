//! The tables C (chunks) and B (blocks): keys, memory tables, and the runs of a manifest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use larder_format::Fingerprint;
use larder_format::volume_map::{Mapping, Place};

use super::key_map::KeyMap;
use super::view::View;

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

/// The key of a place in the table of counts.
pub(crate) fn place_key(place: Place) -> [u8; 8] {
    (u64::from(place.container) << 32 | u64::from(place.offset)).to_be_bytes()
}

/// The place of a key of the table of counts.
pub(crate) fn place_of_key(key: &[u8]) -> Option<Place> {
    let key = u64::from_be_bytes(key.try_into().ok()?);
    Some(Place { container: (key >> 32) as u32, offset: key as u32 })
}

/// The difference in a value of the table of counts.
pub(crate) fn difference_of(value: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(value.try_into().ok()?))
}

/// The place in a value of a chunk.
pub(crate) fn place_of(value: &[u8]) -> Option<Place> {
    let value = u64::from_le_bytes(value.try_into().ok()?);
    Some(Place { container: value as u32, offset: (value >> 32) as u32 })
}

/// What was committed since the last manifest.
#[derive(Default)]
pub(crate) struct Memtables {
    pub(crate) chunks: KeyMap<Place>,
    /// By volume, block and version, the newest version first.
    pub(crate) blocks: BTreeMap<(u32, u64, Reverse<u64>), Mapping>,
    /// Bounds of volumes of which a snapshot was created since. Older snapshots see nothing of
    /// these tables.
    bounds: HashMap<u32, u64>,
}

impl Memtables {
    /// Notes a version of a block: the newest one. The one before stays if a snapshot sees it.
    pub(crate) fn put_block(&mut self, volume: u32, block: u64, version: u64, mapping: Mapping) {
        let newest = self.blocks.range((volume, block, Reverse(u64::MAX))..=(volume, block, Reverse(0))).next();
        let before = newest.map(|((_, _, Reverse(before)), _)| *before);
        let bound = self.bounds.get(&volume).copied().unwrap_or(0);
        if let Some(before) = before.filter(|before| *before >= bound) {
            self.blocks.remove(&(volume, block, Reverse(before)));
        }
        self.blocks.insert((volume, block, Reverse(version)), mapping);
    }

    /// A snapshot was created: versions of the volume below the bound stay.
    pub(crate) fn keep_below(&mut self, volume: u32, bound: u64) {
        let known = self.bounds.entry(volume).or_insert(bound);
        *known = bound.max(*known);
    }

    /// What a view sees of a block here.
    pub(crate) fn block(&self, view: View, block: u64) -> Option<&Mapping> {
        let newest = (view.volume, block, Reverse(view.below.checked_sub(1)?));
        self.blocks.range(newest..=(view.volume, block, Reverse(0))).next().map(|(_, mapping)| mapping)
    }

    /// Records of blocks from one on, in order: volume, block, version.
    pub(crate) fn blocks_from(&self, volume: u32, block: u64) -> impl Iterator<Item = ((u32, u64, u64), &Mapping)> {
        let range = self.blocks.range((volume, block, Reverse(u64::MAX))..);
        range.map(|((volume, block, Reverse(version)), mapping)| ((*volume, *block, *version), mapping))
    }

    /// Bytes of memory, nearly.
    pub(crate) fn bytes_held(&self) -> usize {
        self.chunks.len() * 56 + self.blocks.len() * 320
    }
}
