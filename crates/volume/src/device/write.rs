//! Accepting writes: they wait in memory for a commit. Writers wait when the buffer is full.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use larder_format::DecodeError;

use super::{BLOCK, blocks_of};
use crate::dirty::Dirty;
use crate::disk::Space;
use crate::error::VolumeError;
use crate::index::{View, block_key, block_of_key};
use crate::store::{Pending, State, Store};

/// Free bytes below which writes are refused, whatever the size of the file system: room for the
/// log, the runs and the waiting writes.
const RESERVE_LEAST: u64 = 64 << 20;
const RESERVE_MOST: u64 = 4 << 30;
/// How often a writer looks for room that nobody tells of.
const FULL_LOOK: Duration = Duration::from_millis(20);

impl Pending {
    /// Changes the waiting content of a block.
    pub(super) fn change(&mut self, key: (u32, u64), change: impl FnOnce(&mut Dirty)) {
        let dirty = Arc::make_mut(self.blocks.entry(key).or_default());
        let before = dirty.bytes_held();
        change(dirty);
        // A new entry counted nothing before.
        let before = if self.blocks.len() > self.counted { 0 } else { before };
        self.counted = self.blocks.len();
        self.bytes = self.bytes + self.blocks[&key].bytes_held() - before;
    }

    /// Forgets what waits of a volume.
    pub(crate) fn forget(&mut self, volume: u32) {
        self.blocks.retain(|key, _| key.0 != volume);
        self.bytes = self.blocks.values().map(|dirty| dirty.bytes_held()).sum();
        self.counted = self.blocks.len();
    }

    /// Adds other blocks than these.
    pub(super) fn add(&mut self, mut others: Self) {
        self.blocks.append(&mut others.blocks);
        self.bytes += others.bytes;
        self.counted = self.blocks.len();
    }

    /// Writes all of a later state over this one.
    pub(super) fn put_all(&mut self, later: Self) {
        for (key, dirty) in later.blocks {
            self.change(key, |known| known.put_all(&dirty));
        }
    }
}

impl Store {
    /// Writes to a volume: in memory when it returns.
    pub fn write(&self, volume: u32, offset: u64, data: &[u8]) -> Result<(), VolumeError> {
        self.refuse_if_full()?;
        self.refuse_behind_end(volume, offset, data.len() as u64)?;
        self.counters.writes.add(1);
        self.counters.written_bytes.add(data.len() as u64);
        let mut rest = data;
        for (block, range) in blocks_of(offset, data.len() as u64) {
            let (part, behind) = rest.split_at(range.len());
            rest = behind;
            let key = (volume, block);
            if part.len() as u64 == BLOCK {
                // Copied and worked on outside of the lock. Nothing at all if it is there already.
                match self.whole_block(key, part) {
                    Some(whole) => self.accept(key, |dirty| *dirty = whole)?,
                    None => self.counters.unchanged_blocks.add(1),
                }
            } else {
                self.accept_part(key, range.start, part.to_vec())?;
            }
        }
        Ok(())
    }

    /// Makes a range read as zeros, and frees what can be freed of it. In memory when it returns.
    pub fn discard(&self, volume: u32, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.refuse_behind_end(volume, offset, length)?;
        self.counters.discards.add(1);
        self.counters.discarded_bytes.add(length);
        self.discard_anywhere(volume, offset, length)
    }

    /// The same, also behind the end.
    pub(crate) fn discard_anywhere(&self, volume: u32, offset: u64, length: u64) -> Result<(), VolumeError> {
        let end = offset + length;
        let whole = offset.div_ceil(BLOCK)..end / BLOCK;
        for (block, range) in blocks_of(offset, length).filter(|(_, range)| range.len() as u64 != BLOCK) {
            if !self.is_hole(View::live(volume), block)? {
                self.accept_part((volume, block), range.start, vec![0; range.len()])?;
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
        // Each source gives its first ones, so only the first ones of all are complete.
        let first = |blocks: &mut dyn Iterator<Item = u64>| {
            let mut first = BTreeSet::new();
            while first.len() < MOST
                && let Some(block) = blocks.next()
            {
                first.insert(block);
            }
            first
        };
        let mut found = BTreeSet::new();
        let (levels, outside, runs) = {
            let state = self.state.lock();
            let (levels, below) = state.catalog.levels(View::live(volume))?;
            for waiting in [&state.active, &state.sealing] {
                let range = waiting.blocks.range((volume, from)..(volume, to));
                found.append(&mut first(&mut range.map(|(key, _)| key.1)));
            }
            for level in &levels {
                let records = state.tables.blocks_from(level.volume, from);
                let of_level = records.map(|(key, _)| key).take_while(|key| key.0 == level.volume && key.1 < to);
                found.append(&mut first(&mut of_level.map(|key| key.1)));
            }
            (levels, below.map(|below| state.outside(below)).transpose()?, state.runs.clone())
        };
        for (run, level) in runs.blocks.iter().flat_map(|run| levels.iter().map(move |level| (run, level))) {
            let mut blocks = BTreeSet::new();
            for record in run.scan(&block_key(level.volume, from, u64::MAX)) {
                match block_of_key(&record?.0) {
                    Some((of, block, _)) if of == level.volume && block < to => blocks.insert(block),
                    _ => break,
                };
                if blocks.len() >= MOST {
                    break;
                }
            }
            found.append(&mut blocks);
        }
        if let Some(outside) = outside {
            found.extend(outside.blocks_within(from, to, MOST)?);
        }
        Ok(found.into_iter().take(MOST).collect())
    }

    fn refuse_behind_end(&self, volume: u32, offset: u64, length: u64) -> Result<(), VolumeError> {
        let size = self.catalog().volume(volume)?.size;
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(VolumeError::BehindEnd(size)),
        }
    }

    /// Changes a waiting block, once there is room.
    pub(super) fn accept(&self, key: (u32, u64), change: impl FnOnce(&mut Dirty)) -> Result<(), VolumeError> {
        self.accept_if(key, |state| {
            state.active.change(key, change);
            true
        })
        .map(drop)
    }

    /// The same with a change that may have no effect: it says whether it had one.
    pub(super) fn accept_if(
        &self,
        key: (u32, u64),
        change: impl FnOnce(&mut State) -> bool,
    ) -> Result<bool, VolumeError> {
        let mut state = self.state.lock();
        let mut waiting = None;
        while state.held(key.0, self.options.write_buffer) >= self.options.write_buffer {
            waiting.get_or_insert_with(|| self.counters.time_wait());
            match self.committer.try_lock() {
                Some(mut committer) => {
                    drop(state);
                    let committed = self.commit(&mut committer);
                    drop(committer);
                    state = self.state.lock();
                    // A commit that fails for some blocks makes room too.
                    if state.held(key.0, self.options.write_buffer) >= self.options.write_buffer {
                        committed?.of(key.0)?;
                    }
                }
                // A commit makes room batch by batch, and tells when. Others that hold the
                // committer do not tell.
                None => drop(self.changed.wait_for(&mut state, FULL_LOOK)),
            }
            if let Some(why) = &state.stopped {
                return Err(VolumeError::Stopped(why.clone()));
            }
        }
        drop(waiting);
        if let Some(why) = &state.stopped {
            return Err(VolumeError::Stopped(why.clone()));
        }
        // It may have been deleted meanwhile. What waits of deleted volumes is forgotten.
        let of = state.catalog.volume(key.0)?;
        if state.refuses(key, self.options.write_buffer) {
            let what = format!("volume {}, blocks that wait for a commit", of.name);
            return Err(VolumeError::damaged(what)(DecodeError::NotAuthentic { what: "data" }));
        }
        if !change(&mut state) {
            return Ok(false);
        }
        state.accepted += 1;
        if state.active.bytes >= self.options.commit_at {
            self.changed.notify_all();
        }
        Ok(true)
    }

    /// Makes everything durable that was written before.
    pub fn flush(&self) -> Result<(), VolumeError> {
        self.flush_for(None)
    }

    /// The same for one volume. Blocks of other volumes that cannot be read are no error of it.
    pub fn flush_volume(&self, volume: u32) -> Result<(), VolumeError> {
        self.flush_for(Some(volume))
    }

    fn flush_for(&self, volume: Option<u32>) -> Result<(), VolumeError> {
        let wanted = self.state.lock().accepted;
        let mut committer = self.committer.lock();
        // Another one may have committed it while this one waited.
        if self.state.lock().committed >= wanted {
            return Ok(());
        }
        let committed = self.commit(&mut committer);
        match (volume, committed) {
            // The commit took all that waited, and what is left of it could not be committed.
            (Some(volume), Err(_)) if self.is_committed(volume) => Ok(()),
            (Some(volume), left) => left?.of(volume),
            (None, left) => left?.any(),
        }
    }

    /// Whether a commit that failed left nothing of a volume. Needs the committer's lock.
    fn is_committed(&self, volume: u32) -> bool {
        let state = self.state.lock();
        let mut left = state.sealing.blocks.range((volume, 0)..=(volume, u64::MAX));
        state.stopped.is_none() && left.next().is_none()
    }

    /// Refuses data when the file system is nearly full.
    pub(super) fn refuse_if_full(&self) -> Result<(), VolumeError> {
        if !self.state.lock().is_full {
            return Ok(());
        }
        self.look_at_space()?;
        if self.state.lock().is_full { Err(VolumeError::Full) } else { Ok(()) }
    }

    /// Looks whether the file system has room for more.
    pub(crate) fn look_at_space(&self) -> Result<(), VolumeError> {
        let space = self.disk.space().map_err(VolumeError::io("the file system"))?;
        self.state.lock().is_full = space.free < self.reserved(space);
        Ok(())
    }

    /// Free bytes below which writes are refused.
    pub(crate) fn reserved(&self, space: Space) -> u64 {
        let usual = (space.total / 20).clamp(RESERVE_LEAST, RESERVE_MOST);
        self.options.reserve.unwrap_or(usual.max(2 * self.options.write_buffer as u64))
    }
}
