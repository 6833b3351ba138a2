//! Hydration: a volume gets all content that it only has below itself, outside of the store.

use std::sync::Arc;

use larder_format::volume_manifest::Parent;
use larder_format::volume_map::BLOCK_LEN;

use super::BLOCK;
use super::lower::{Found, Search};
use crate::dirty::Dirty;
use crate::error::VolumeError;
use crate::index::View;
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

impl Store {
    /// Copies every block that a volume only has outside of the store, and then drops what is below
    /// it. Reads and writes go on meanwhile. `None`: `stop` said so; what was copied stays.
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
        let blocks = self.catalog().volume(volume)?.size.div_ceil(BLOCK);
        let (mut done, mut block) = (Hydrated::default(), 0u64);
        while block < blocks {
            if stop(block * BLOCK) {
                return Ok(None);
            }
            if block.is_multiple_of(STRIDE) && self.is_empty_below(volume, block, blocks.min(block + STRIDE))? {
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
        if !matches!(entry.parent, Some(Parent::Outside(_))) {
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

    /// Whether the content outside of the store is zeros in a range of blocks.
    fn is_empty_below(&self, volume: u32, from: u64, to: u64) -> Result<bool, VolumeError> {
        let lower = self.state.lock().lowers.get(&volume).cloned();
        Ok(lower.is_some_and(|lower| from * BLOCK >= lower.len() || lower.is_zero(from * BLOCK..to * BLOCK)))
    }

    /// Copies a block that is only outside. Whether it did.
    fn fill(&self, volume: u32, block: u64) -> Result<bool, VolumeError> {
        let (view, key) = (View::live(volume), (volume, block));
        loop {
            let search = Search::of(&self.state.lock(), view, block)?;
            let runs = search.runs.clone();
            let Found::Outside(outside) = self.finish(search, block)? else { return Ok(false) };
            if outside.is_zero(block)? {
                return Ok(false);
            }
            self.refuse_if_full()?;
            let mut content = vec![0; BLOCK_LEN as usize];
            outside.read(block * BLOCK, &mut content)?;
            let mut was_written = false;
            let is_done = self.accept_if(key, |state| {
                was_written = [&state.sealing, &state.active].iter().any(|waiting| waiting.blocks.contains_key(&key));
                // A commit may have finished a write meanwhile. What waits is a whole block, as any
                // write over content outside of the store.
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
