//! Accepting writes: they wait in memory for a commit. Writers wait when the buffer is full.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{BLOCK, blocks_of};
use crate::dirty::Dirty;
use crate::error::VolumeError;
use crate::index::block_key;
use crate::index::block_of_key;
use crate::store::{Pending, State, Store};

/// Free bytes below which writes are refused, whatever the size of the file system: room for the
/// log, the runs and the waiting writes.
const RESERVE_LEAST: u64 = 64 << 20;
const RESERVE_MOST: u64 = 4 << 30;

impl Pending {
    /// Changes the waiting content of a block.
    fn change(&mut self, key: (u32, u64), change: impl FnOnce(&mut Dirty)) {
        let dirty = Arc::make_mut(self.blocks.entry(key).or_default());
        let before = dirty.bytes_held();
        change(dirty);
        // A new entry counted nothing before.
        let before = if self.blocks.len() > self.counted { 0 } else { before };
        self.counted = self.blocks.len();
        self.bytes = self.bytes + self.blocks[&key].bytes_held() - before;
    }

    /// Writes all of a later state over this one.
    pub(super) fn put_all(&mut self, later: Self) {
        for (key, dirty) in later.blocks {
            self.change(key, |known| known.put_all(&dirty));
        }
    }
}

impl Store {
    /// Writes to a volume: in memory when it returns. The range must be within the volume.
    pub fn write(&self, volume: u32, offset: u64, data: &[u8]) -> Result<(), VolumeError> {
        self.refuse_if_full()?;
        let mut rest = data;
        for (block, range) in blocks_of(offset, data.len() as u64) {
            let (part, behind) = rest.split_at(range.len());
            rest = behind;
            let part = part.to_vec();
            self.accept((volume, block), |dirty| {
                if part.len() as u64 == BLOCK { *dirty = Dirty::whole(part) } else { dirty.put(range.start, part) }
            })?;
        }
        Ok(())
    }

    /// Makes a range read as zeros, and frees what can be freed of it. In memory when it returns.
    pub fn discard(&self, volume: u32, offset: u64, length: u64) -> Result<(), VolumeError> {
        let end = offset + length;
        let whole = offset.div_ceil(BLOCK)..end / BLOCK;
        for (block, range) in blocks_of(offset, length).filter(|(_, range)| range.len() as u64 != BLOCK) {
            if !self.is_hole(volume, block)? {
                let zeros = vec![0; range.len()];
                self.accept((volume, block), |dirty| dirty.put(range.start, zeros))?;
            }
        }
        if whole.is_empty() {
            return Ok(());
        }
        // Only blocks that have a content: a new volume of terabytes is discarded at once.
        let mut next = whole.start;
        while next < whole.end {
            let found = self.blocks_within(volume, next, whole.end)?;
            let Some(last) = found.last() else { break };
            next = last + 1;
            for block in found {
                self.accept((volume, block), |dirty| *dirty = Dirty::zeros())?;
            }
        }
        Ok(())
    }

    /// The first blocks of a range that have or may have a content.
    fn blocks_within(&self, volume: u32, from: u64, to: u64) -> Result<BTreeSet<u64>, VolumeError> {
        const MOST: usize = 4096;
        let mut found = BTreeSet::new();
        let runs = {
            let state = self.state.lock();
            let range = (volume, from)..(volume, to);
            found.extend(state.active.blocks.range(range.clone()).map(|(key, _)| key.1).take(MOST));
            found.extend(state.sealing.blocks.range(range.clone()).map(|(key, _)| key.1).take(MOST));
            found.extend(state.tables.blocks.range(range).map(|(key, _)| key.1).take(MOST));
            state.runs.clone()
        };
        for run in &runs.blocks {
            for record in run.scan(&block_key(volume, from, u64::MAX)).take(MOST) {
                let (key, _) = record?;
                match block_of_key(&key) {
                    Some((of, block, _)) if of == volume && block < to => found.insert(block),
                    _ => break,
                };
            }
        }
        // Each source gave its first ones, so only the first ones of all are complete.
        Ok(found.into_iter().take(MOST).collect())
    }

    /// Changes a waiting block, once there is room.
    fn accept(&self, key: (u32, u64), change: impl FnOnce(&mut Dirty)) -> Result<(), VolumeError> {
        let mut state = self.state.lock();
        while state.active.bytes + state.sealing.bytes >= self.options.write_buffer {
            drop(state);
            self.flush()?;
            state = self.state.lock();
        }
        if let Some(why) = &state.stopped {
            return Err(VolumeError::Stopped(why.clone()));
        }
        state.active.change(key, change);
        state.accepted += 1;
        if state.active.bytes >= self.options.commit_at {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Makes everything durable that was written before.
    pub fn flush(&self) -> Result<(), VolumeError> {
        let wanted = self.state.lock().accepted;
        let mut committer = self.committer.lock();
        // Another one may have committed it while this one waited.
        if self.state.lock().committed >= wanted {
            return Ok(());
        }
        self.commit(&mut committer)
    }

    /// Commits in the background until `stop` says so: when enough writes wait, and after `idle`.
    pub fn commit_in_background(&self, idle: Duration, stop: &dyn Fn() -> bool) {
        while !stop() {
            let is_due = {
                let mut state = self.state.lock();
                let is_enough = |state: &State| state.active.bytes >= self.options.commit_at;
                if !is_enough(&state) {
                    self.changed.wait_for(&mut state, idle);
                }
                !state.active.blocks.is_empty()
            };
            if is_due && let Err(error) = self.flush() {
                tracing::error!("a commit failed: {error}");
                std::thread::sleep(idle);
            }
        }
    }

    /// Refuses data when the file system is nearly full.
    fn refuse_if_full(&self) -> Result<(), VolumeError> {
        if !self.state.lock().is_full {
            return Ok(());
        }
        self.look_at_space()?;
        if self.state.lock().is_full { Err(VolumeError::Full) } else { Ok(()) }
    }

    /// Looks whether the file system has room for more.
    pub(super) fn look_at_space(&self) -> Result<(), VolumeError> {
        let space = self.disk.space().map_err(VolumeError::io("the file system"))?;
        let usual = (space.total / 20).clamp(RESERVE_LEAST, RESERVE_MOST);
        let reserve = self.options.reserve.unwrap_or(usual.max(2 * self.options.write_buffer as u64));
        self.state.lock().is_full = space.free < reserve;
        Ok(())
    }
}
