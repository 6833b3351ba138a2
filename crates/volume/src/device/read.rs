//! Reading: waiting writes over the mapping of the block.

use std::ops::Range;
use std::sync::Arc;

use larder_format::DecodeError;
use larder_format::volume_map::{MapItem, Mapping};

use super::blocks_of;
use crate::dirty::Dirty;
use crate::error::VolumeError;
use crate::store::{State, Store};

/// A block at one moment.
struct Seen {
    sealing: Option<Arc<Dirty>>,
    active: Option<Arc<Dirty>>,
    mapping: Option<Mapping>,
}

impl Seen {
    fn of(state: &State, key: (u32, u64)) -> Self {
        Self {
            sealing: state.sealing.blocks.get(&key).cloned(),
            active: state.active.blocks.get(&key).cloned(),
            mapping: state.tables.blocks.get(&key).map(|(_, mapping)| mapping.clone()),
        }
    }
}

impl Store {
    /// Fills the buffer from a volume. The range must be within the volume.
    pub fn read(&self, volume: u32, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let mut rest = buffer;
        for (block, range) in blocks_of(offset, rest.len() as u64) {
            let (part, behind) = rest.split_at_mut(range.len());
            self.read_block(volume, block, &range, part).map_err(|error| self.at_block(volume, block, error))?;
            rest = behind;
        }
        Ok(())
    }

    fn read_block(&self, volume: u32, block: u64, range: &Range<u32>, part: &mut [u8]) -> Result<(), VolumeError> {
        let (seen, runs) = {
            let state = self.state.lock();
            (Seen::of(&state, (volume, block)), state.runs.clone())
        };
        let is_covered = [&seen.sealing, &seen.active].into_iter().flatten().any(|dirty| dirty.covers(range));
        if !is_covered {
            let mapping = match seen.mapping {
                Some(mapping) => mapping,
                None => runs.block(&self.pages, volume, block)?,
            };
            self.read_mapping(&mapping, range, part)?;
        }
        for dirty in [seen.sealing, seen.active].into_iter().flatten() {
            dirty.overlay(range.start, part);
        }
        Ok(())
    }

    /// Reads a part of a block through its mapping.
    pub(crate) fn read_mapping(
        &self,
        mapping: &Mapping,
        range: &Range<u32>,
        mut part: &mut [u8],
    ) -> Result<(), VolumeError> {
        let mut items: Vec<MapItem> = Vec::new();
        super::splice::slice(mapping, range, &mut items);
        for item in items {
            let (here, behind) = std::mem::take(&mut part).split_at_mut(usize::from(item.length));
            part = behind;
            let Some(place) = item.place else {
                here.fill(0);
                continue;
            };
            let (frame, within) = self.containers.frame(place)?;
            let from = within + usize::from(item.skip);
            let found = frame.get(from..from + here.len()).ok_or(DecodeError::Truncated { what: "chunk" });
            here.copy_from_slice(found.map_err(VolumeError::damaged(format!("container {}", place.container)))?);
        }
        Ok(())
    }

    /// An error with the place that it concerns.
    pub(crate) fn at_block(&self, volume: u32, block: u64, source: VolumeError) -> VolumeError {
        let state = self.state.lock();
        let name = state.volumes.iter().find(|entry| entry.id == volume).map(|entry| entry.name.clone());
        let volume = name.unwrap_or_else(|| format!("number {volume}"));
        VolumeError::Blocks { volume, first: block, last: block, source: Box::new(source) }
    }

    /// Whether a block is known to be zeros.
    pub(crate) fn is_hole(&self, volume: u32, block: u64) -> Result<bool, VolumeError> {
        {
            let state = self.state.lock();
            let key = (volume, block);
            for waiting in [&state.active, &state.sealing] {
                if let Some(dirty) = waiting.blocks.get(&key) {
                    return Ok(dirty.is_zeros());
                }
            }
        }
        Ok(self.mapping(volume, block)?.is_zero())
    }
}
