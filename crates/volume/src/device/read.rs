//! Reading: waiting writes over the mapping of the block.

use std::ops::Range;
use std::sync::Arc;

use larder_format::DecodeError;
use larder_format::volume_map::{MapItem, Mapping};

use super::lower::{Found, Search};
use super::{BLOCK, blocks_of};
use crate::dirty::Dirty;
use crate::error::VolumeError;
use crate::index::View;
use crate::store::{State, Store, view_of};

/// What waits for a commit of a block, at one moment.
#[derive(Default)]
struct Seen {
    sealing: Option<Arc<Dirty>>,
    active: Option<Arc<Dirty>>,
}

impl Seen {
    fn of(state: &State, key: (u32, u64)) -> Self {
        Self { sealing: state.sealing.blocks.get(&key).cloned(), active: state.active.blocks.get(&key).cloned() }
    }
}

impl Store {
    /// Fills the buffer from a volume.
    pub fn read(&self, volume: u32, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let size = self.catalog().volume(volume)?.size;
        self.read_view(View::live(volume), size, offset, buffer)
    }

    /// Fills the buffer from a snapshot.
    pub fn read_snapshot(&self, snapshot: u32, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let (view, size) = self.snapshot_view(snapshot)?;
        self.read_view(view, size, offset, buffer)
    }

    /// The view of a snapshot, and its bytes.
    pub(super) fn snapshot_view(&self, snapshot: u32) -> Result<(View, u64), VolumeError> {
        let catalog = self.catalog();
        let snapshot = catalog.snapshot(snapshot)?;
        Ok((view_of(snapshot), snapshot.size))
    }

    fn read_view(&self, view: View, size: u64, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > size) {
            return Err(VolumeError::BehindEnd(size));
        }
        self.counters.reads.add(1);
        self.counters.read_bytes.add(buffer.len() as u64);
        let mut rest = buffer;
        for (block, range) in blocks_of(offset, rest.len() as u64) {
            let (part, behind) = rest.split_at_mut(range.len());
            self.read_block(view, block, &range, part).map_err(|error| self.at_block(view, block, error))?;
            rest = behind;
        }
        Ok(())
    }

    fn read_block(&self, view: View, block: u64, range: &Range<u32>, part: &mut [u8]) -> Result<(), VolumeError> {
        let (seen, search) = {
            let state = self.state.lock();
            let is_live = view == View::live(view.volume);
            let seen = if is_live { Seen::of(&state, (view.volume, block)) } else { Seen::default() };
            (seen, Search::of(&state, view, block)?)
        };
        let is_covered = [&seen.sealing, &seen.active].into_iter().flatten().any(|dirty| dirty.covers(range));
        if !is_covered {
            // Files that the mapping names stay at least as long as these runs.
            let _runs = search.runs.clone();
            match self.finish(search, block)? {
                Found::Mapping(mapping) => self.read_mapping(&mapping, range, part)?,
                Found::Outside(outside) => outside.read(block * BLOCK + u64::from(range.start), part)?,
            }
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
    pub(crate) fn at_block(&self, view: View, block: u64, source: VolumeError) -> VolumeError {
        let catalog = self.catalog();
        let snapshot = catalog.snapshots_of(view.volume).find(|snapshot| view_of(snapshot) == view);
        let volume = match (snapshot, catalog.volume(view.volume)) {
            (Some(snapshot), _) => catalog.full_name(snapshot),
            (None, Ok(volume)) => volume.name.clone(),
            // It was deleted meanwhile.
            (None, Err(_)) => return source,
        };
        VolumeError::Blocks { volume, first: block, last: block, source: Box::new(source) }
    }

    /// Whether a block of a view is known to be zeros.
    pub(crate) fn is_hole(&self, view: View, block: u64) -> Result<bool, VolumeError> {
        if view == View::live(view.volume) {
            let state = self.state.lock();
            for waiting in [&state.active, &state.sealing] {
                if let Some(dirty) = waiting.blocks.get(&(view.volume, block)) {
                    return Ok(dirty.is_zeros());
                }
            }
        }
        match self.found(view, block)? {
            Found::Mapping(mapping) => Ok(mapping.is_zero()),
            Found::Outside(outside) => outside.is_zero(block),
        }
    }
}
