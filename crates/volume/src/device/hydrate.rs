//! Hydration: a volume over content outside of the store gets all that it only has below itself.
//!
//! A clone has more below itself: snapshots of the store, the last of which is of a volume over
//! such content. It gets what these have too, so nothing is below it afterwards. Their chunks are
//! stored already.

use std::sync::Arc;

use larder_format::volume_map::BLOCK_LEN;

use super::BLOCK;
use super::lower::{Found, Search};
use crate::dirty::Dirty;
use crate::error::VolumeError;
use crate::index::{View, block_key, block_of_key};
use crate::store::Store;

/// Blocks that are skipped at once when all of them are zeros.
const STRIDE: u64 = 1 << 14;

/// The result of hydration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hydrated {
    /// Blocks that were copied.
    pub blocks: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// A volume that is hydrated. There is one copy of it at a time.
struct Hydrating<'a>(&'a Store, u32);

impl<'a> Hydrating<'a> {
    fn begin(store: &'a Store, volume: u32) -> Result<Self, VolumeError> {
        if store.hydrating.lock().insert(volume) {
            return Ok(Self(store, volume));
        }
        Err(VolumeError::BadRequest("another request hydrates the volume now".into()))
    }
}

impl Drop for Hydrating<'_> {
    fn drop(&mut self) {
        self.0.hydrating.lock().remove(&self.1);
    }
}

impl Store {
    /// Copies every block that a volume only has below itself, and then drops what is below it.
    /// The volume is over content outside of the store, or a clone of a snapshot of such a volume.
    /// Reads and writes go on meanwhile. `None`: `stop` said so; what was copied stays.
    ///
    /// # Errors
    /// Nothing outside is below the volume; it has snapshots, which need it; or a block cannot be
    /// read or written.
    pub fn hydrate(&self, volume: u32, stop: &mut dyn FnMut() -> bool) -> Result<Option<Hydrated>, VolumeError> {
        self.hydrate_telling(volume, &mut |_| stop())
    }

    /// The same, where `stop` gets the place in the volume in bytes, before which everything is
    /// done. It is asked with the end too, after the last block.
    pub fn hydrate_telling(
        &self,
        volume: u32,
        stop: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Hydrated>, VolumeError> {
        self.expect_no_snapshots(volume)?;
        let _hydrating = Hydrating::begin(self, volume)?;
        // From here on, commits give the volume its own blocks. An earlier one may still run.
        self.flush_volume(volume)?;
        let catalog = self.catalog();
        let blocks = catalog.volume(volume)?.size.div_ceil(BLOCK);
        let (levels, below) = catalog.levels(View::live(volume))?;
        let below = below.unwrap_or(volume);
        let (mut done, mut block) = (Hydrated::default(), 0u64);
        while block < blocks {
            if stop(block * BLOCK) {
                return Ok(None);
            }
            if block.is_multiple_of(STRIDE)
                && self.is_empty_below(&levels[1..], below, block, blocks.min(block + STRIDE))?
            {
                block += STRIDE;
                continue;
            }
            if self.fill(volume, block)? {
                done = Hydrated { blocks: done.blocks + 1, bytes: done.bytes + BLOCK };
            }
            block += 1;
        }
        if stop(blocks * BLOCK) {
            return Ok(None);
        }
        self.flush_volume(volume)?;
        self.drop_parent(volume)?;
        Ok(Some(done))
    }

    /// A snapshot that is older than a copied block would lose it with the parent.
    fn expect_no_snapshots(&self, volume: u32) -> Result<(), VolumeError> {
        let catalog = self.catalog();
        let entry = catalog.volume(volume)?;
        if catalog.levels(View::live(volume))?.1.is_none() {
            return Err(VolumeError::BadRequest(format!("volume {} is over nothing outside of the store", entry.name)));
        }
        match catalog.snapshots_of(volume).next() {
            None => Ok(()),
            Some(snapshot) => {
                let by = format!("a snapshot that may need its parent: {}", snapshot.name);
                Err(VolumeError::Needed { what: format!("the volume {}", entry.name), by })
            }
        }
    }

    /// Whether a range of blocks is zeros in these levels of the store, and outside of it below the
    /// last one.
    fn is_empty_below(&self, levels: &[View], below: u32, from: u64, to: u64) -> Result<bool, VolumeError> {
        let (lower, runs) = {
            let state = self.state.lock();
            for level in levels {
                let first = state.tables.blocks_from(level.volume, from).next();
                if first.is_some_and(|((volume, block, _), _)| volume == level.volume && block < to) {
                    return Ok(false);
                }
            }
            (state.lowers.get(&below).cloned(), state.runs.clone())
        };
        if !lower.is_some_and(|lower| from * BLOCK >= lower.len() || lower.is_zero(from * BLOCK..to * BLOCK)) {
            return Ok(false);
        }
        for (run, level) in runs.blocks.iter().flat_map(|run| levels.iter().map(move |level| (run, level))) {
            let Some(first) = run.scan(&block_key(level.volume, from, u64::MAX)).next() else { continue };
            let found = block_of_key(&first?.0);
            if found.is_some_and(|(volume, block, _)| volume == level.volume && block < to) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies a block that is only below. Whether it did.
    fn fill(&self, volume: u32, block: u64) -> Result<bool, VolumeError> {
        let (view, key) = (View::live(volume), (volume, block));
        loop {
            let search = Search::of(&self.state.lock(), view, block)?;
            let runs = search.runs.clone();
            let mut content = vec![0; BLOCK_LEN as usize];
            match self.finish_at(search, block)? {
                (0, _) => return Ok(false),
                (_, Found::Mapping(mapping)) if mapping.is_zero() => return Ok(false),
                (_, Found::Mapping(mapping)) => self.read_mapping(&mapping, &(0..BLOCK_LEN), &mut content)?,
                (_, Found::Outside(outside)) if outside.is_zero(block)? => return Ok(false),
                (_, Found::Outside(outside)) => outside.read(block * BLOCK, &mut content)?,
            }
            self.refuse_if_full()?;
            let mut was_written = false;
            let is_done = self.accept_if(key, |state| {
                was_written = [&state.sealing, &state.active].iter().any(|waiting| waiting.blocks.contains_key(&key));
                // A commit may have finished a write meanwhile. What waits is a whole block, or a
                // part over one that the store has: its commit gives the volume all of it.
                let may_have = !Arc::ptr_eq(&state.runs, &runs) || state.tables.block(view, block).is_some();
                if was_written || may_have {
                    return false;
                }
                state.active.change(key, |dirty| *dirty = Dirty::whole(std::mem::take(&mut content)));
                true
            })?;
            if is_done || was_written {
                return Ok(is_done);
            }
        }
    }
}
