//! The blocks of one record: what waits, and what was there before.

use std::collections::BTreeSet;
use std::ops::{Bound, Range};
use std::sync::Arc;

use larder_format::volume_map::{BLOCK_LEN, MAPPING_MAX, MapItem, Mapping};

use super::super::splice::may_overflow;
use crate::chain::{FilterKind, VerdictKind, is_zeros};
use crate::device::lower::{Found, Search};
use crate::device::unreadable::Unreadable;
use crate::dirty::Dirty;
use crate::error::VolumeError;
use crate::index::View;
use crate::store::Store;
use crate::workers;

/// A block of a commit: volume and number.
pub(super) type BlockId = (u32, u64);

/// How far a commit is.
#[derive(Default)]
pub(super) struct Progress {
    /// Writes that were accepted when it took what waits.
    pub(super) upto: u64,
    /// The last block that it looked at.
    pub(super) after: Option<BlockId>,
    /// Blocks that it has looked at before it took more.
    pub(super) left: BTreeSet<BlockId>,
    /// No block is behind that one.
    pub(super) is_last: bool,
    /// Blocks that must be read for the commit, and cannot be. They wait, and others do not.
    pub(super) unreadable: Unreadable,
}

/// A block of a commit.
pub(super) struct Changing {
    pub(super) key: BlockId,
    pub(super) dirty: Arc<Dirty>,
    pub(super) old: Mapping,
    /// MAC of the new content, if the whole block was written.
    pub(super) mac: Option<[u8; 16]>,
    /// It has the content that it had before.
    pub(super) is_unchanged: bool,
    /// It becomes a record also if it is unchanged, because its volume is about to lose the parent
    /// that has it.
    pub(super) becomes_own: bool,
    /// Parts that were written, with the chunks that they became.
    pub(super) parts: Vec<(Range<u32>, Vec<MapItem>)>,
}

impl Store {
    /// The next blocks that can be read, and whose record and chunks have a bounded size. Empty: no
    /// block is left.
    pub(super) fn next_batch(&self, room: usize, progress: &mut Progress) -> Vec<Changing> {
        loop {
            let waiting = self.waiting(room, progress);
            if waiting.is_empty() {
                return Vec::new();
            }
            let keys: Vec<_> = waiting.iter().map(|(key, _)| *key).collect();
            // It only saves time. Each block is looked up by itself, with its own error.
            drop(self.read_ahead(&keys));
            let (mut batch, mut data) = (Vec::new(), 0);
            for (key, dirty) in waiting {
                if data >= self.options.batch {
                    // A block in too many pieces became a whole one.
                    progress.is_last = false;
                    break;
                }
                progress.after = Some(key);
                match self.changing(key, dirty) {
                    Ok(changing) => {
                        data += changing.dirty.ranges().map(|range| range.len()).sum::<usize>();
                        batch.push(changing);
                    }
                    Err(error) => progress.unreadable.add(key.0, error),
                }
            }
            if !batch.is_empty() {
                return self.compare_macs(batch);
            }
        }
    }

    /// The next blocks that wait, and whether they are the last ones.
    fn waiting(&self, room: usize, progress: &mut Progress) -> Vec<(BlockId, Arc<Dirty>)> {
        let mut waiting = Vec::new();
        progress.is_last = true;
        let state = self.state.lock();
        let (mut bytes, mut data) = (0, 0);
        let from = progress.after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = state.sealing.blocks.range((from, Bound::Unbounded));
        for (key, dirty) in behind.filter(|(key, _)| !progress.left.contains(key)) {
            let ranges: usize = dirty.ranges().map(|range| range.len()).sum();
            // Events of the block and of its chunks.
            bytes += MAPPING_MAX + 32 + (ranges / 1024 + 4) * 48;
            data += ranges;
            if !waiting.is_empty() && (bytes > room || data > self.options.batch) {
                progress.is_last = false;
                break;
            }
            waiting.push((*key, dirty.clone()));
        }
        waiting
    }

    /// Brings the pages with these blocks into memory, with many reads at once.
    fn read_ahead(&self, keys: &[BlockId]) -> Result<(), VolumeError> {
        let (catalog, runs, missing) = {
            let state = self.state.lock();
            let is_missing = |(volume, block): &&BlockId| state.tables.block(View::live(*volume), *block).is_none();
            let missing: Vec<_> = keys.iter().filter(is_missing).copied().collect();
            (state.catalog.clone(), state.runs.clone(), missing)
        };
        for of_volume in missing.chunk_by(|one, other| one.0 == other.0) {
            let mut open: Vec<u64> = of_volume.iter().map(|(_, block)| *block).collect();
            for view in catalog.levels(View::live(of_volume[0].0))?.0 {
                open = runs.read_ahead(&self.pages, view, open)?;
            }
        }
        Ok(())
    }

    /// Looks up the old mapping of a block. A block in too many pieces is read, and written again
    /// as a whole.
    fn changing(&self, key: BlockId, dirty: Arc<Dirty>) -> Result<Changing, VolumeError> {
        let (old, is_of_parent) = self.before(key, &dirty)?;
        let becomes_own = is_of_parent && !old.is_zero() && self.hydrating.lock().contains(&key.0);
        let mut changing = Changing { key, dirty, old, mac: None, is_unchanged: false, becomes_own, parts: Vec::new() };
        let min = self.chunker.params().min.max(512);
        if !changing.dirty.is_whole() && may_overflow(&changing.old, changing.dirty.ranges(), min) {
            let mut content = vec![0; BLOCK_LEN as usize];
            self.read_mapping(&changing.old, &(0..BLOCK_LEN), &mut content)
                .map_err(|error| self.at_block(View::live(key.0), key.1, error))?;
            changing.dirty.overlay(0, &mut content);
            changing.dirty = Arc::new(Dirty::whole(content));
        }
        Ok(changing)
    }

    /// Works out the MACs of whole blocks, and finds those that keep their content.
    fn compare_macs(&self, mut batch: Vec<Changing>) -> Vec<Changing> {
        let macs = workers::map(self.threads_for(batch.len(), 16), &batch, |changing| {
            let dirty = &changing.dirty;
            if dirty.is_zeros() || !dirty.is_whole() {
                return None;
            }
            dirty.mac().or_else(|| match dirty.as_whole() {
                Some(content) => Some(self.mac_of(content)),
                None => {
                    let mut content = Vec::with_capacity(BLOCK_LEN as usize);
                    dirty.append(&(0..BLOCK_LEN), &mut content);
                    Some(self.mac_of(&content))
                }
            })
        });
        let counter = self.counter(FilterKind::Mac);
        for (changing, mac) in batch.iter_mut().zip(macs) {
            // A MAC of zeros is that of a block whose MAC is not known.
            changing.mac = mac.filter(|mac| *mac != [0; 16]);
            changing.is_unchanged = if changing.becomes_own {
                false
            } else if changing.dirty.is_zeros() {
                changing.old.is_zero()
            } else {
                counter.is_some()
                    && changing.mac.is_some()
                    && changing.mac == changing.old.mac
                    && self.is_readable(&changing.old)
            };
            if let (Some(counter), Some(_), None) = (counter, mac, changing.dirty.mac()) {
                counter.measured(1, || ());
                let verdict = if changing.is_unchanged { VerdictKind::Existing } else { VerdictKind::Weak };
                counter.note(std::iter::once(verdict));
            }
        }
        batch
    }

    /// Threads for a number of items, when one thread takes `each` at least.
    pub(super) fn threads_for(&self, items: usize, each: usize) -> usize {
        self.options.threads.min(items / each).max(1)
    }

    /// What a write of a whole block becomes. `None`: it has the content that it had.
    ///
    /// The content is compared with a mapping that was the newest at some moment of this write, so
    /// that is when the write happens. Writes that wait for a commit are not looked into.
    pub(in crate::device) fn whole_block(&self, key: BlockId, content: &[u8]) -> Option<Dirty> {
        if self.counter(FilterKind::Zero).is_some() && is_zeros(content) {
            return Some(Dirty::zeros());
        }
        let mac = self.mac_of(content);
        let Some(counter) = self.counter(FilterKind::Mac) else {
            return Some(Dirty::with_mac(self.spare_blocks.copy(content), mac));
        };
        let is_unchanged = counter.measured(1, || mac != [0; 16] && self.stored_mac(key) == Some(mac));
        counter.note(std::iter::once(if is_unchanged { VerdictKind::Existing } else { VerdictKind::Weak }));
        if is_unchanged { None } else { Some(Dirty::with_mac(self.spare_blocks.copy(content), mac)) }
    }

    /// The MAC of a block in the store, if nothing of it waits for a commit. A clone may have it
    /// from its parent. A commit reports what cannot be read.
    fn stored_mac(&self, key: BlockId) -> Option<[u8; 16]> {
        let search = {
            let state = self.state.lock();
            let waits = state.active.blocks.contains_key(&key) || state.sealing.blocks.contains_key(&key);
            if waits || state.stopped.is_some() {
                return None;
            }
            Search::of(&state, View::live(key.0), key.1).ok()?
        };
        match self.finish(search, key.1).ok()? {
            Found::Mapping(mapping) => mapping.mac.filter(|_| self.is_readable(&mapping)),
            Found::Outside(_) => None,
        }
    }
}
