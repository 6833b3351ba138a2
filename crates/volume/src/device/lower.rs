//! What is below a volume: its parents, and content outside of the store.

use std::io;
use std::sync::Arc;

use larder_format::volume_manifest::Parent;
use larder_format::volume_map::{BLOCK_LEN, MapItem, Mapping, Place};

use super::BLOCK;
use crate::dirty::Dirty;
use crate::error::VolumeError;
use crate::index::{Runs, View};
use crate::lower::Lower;
use crate::store::{State, Store};

/// Where a block of a view comes from.
pub(crate) enum Found {
    Mapping(Mapping),
    /// From the content below this volume.
    Outside(Outside),
}

/// Content below a volume.
pub(crate) struct Outside {
    /// The text of its creator.
    what: String,
    lower: Option<Arc<dyn Lower>>,
}

/// What memory says of a block, and where to look on: taken at one moment.
pub(crate) struct Search {
    levels: Vec<View>,
    memory: Option<Mapping>,
    outside: Option<Outside>,
    pub(crate) runs: Arc<Runs>,
}

impl Search {
    pub(crate) fn of(state: &State, view: View, block: u64) -> Result<Self, VolumeError> {
        let (mut levels, below) = state.catalog.levels(view)?;
        let hit = levels.iter().enumerate().find_map(|(level, view)| Some((level, state.tables.block(*view, block)?)));
        let memory = hit.map(|(_, mapping)| mapping.clone());
        // The memory tables are newer than the runs, and each level hides those behind it.
        if let Some((level, _)) = hit {
            levels.truncate(level);
        }
        let outside = below.filter(|_| memory.is_none()).map(|volume| state.outside(volume)).transpose()?;
        Ok(Self { levels, memory, outside, runs: state.runs.clone() })
    }
}

impl State {
    /// The content outside of the store that a volume is over.
    pub(crate) fn outside(&self, volume: u32) -> Result<Outside, VolumeError> {
        let what = match &self.catalog.volume(volume)?.parent {
            Some(Parent::Outside(what)) => what.clone(),
            _ => String::new(),
        };
        Ok(Outside { what, lower: self.lowers.get(&volume).cloned() })
    }
}

impl Outside {
    fn lower(&self) -> Result<&dyn Lower, VolumeError> {
        let missing = || io::Error::new(io::ErrorKind::NotConnected, "it is not connected");
        self.lower.as_deref().ok_or_else(|| self.failed(missing()))
    }

    /// An error if it cannot be asked.
    pub(crate) fn expect_connected(&self) -> Result<(), VolumeError> {
        self.lower().map(drop)
    }

    fn failed(&self, source: io::Error) -> VolumeError {
        VolumeError::Outside { what: self.what.clone(), source }
    }

    /// Fills a part from an offset of the volume.
    pub(crate) fn read(&self, offset: u64, part: &mut [u8]) -> Result<(), VolumeError> {
        let lower = self.lower()?;
        let there = lower.len().saturating_sub(offset).min(part.len() as u64) as usize;
        let (there, behind) = part.split_at_mut(there);
        behind.fill(0);
        if there.is_empty() { Ok(()) } else { lower.read(offset, there).map_err(|error| self.failed(error)) }
    }

    pub(crate) fn is_zero(&self, block: u64) -> Result<bool, VolumeError> {
        let lower = self.lower()?;
        Ok(block * BLOCK >= lower.len() || lower.is_zero(block * BLOCK..(block + 1) * BLOCK))
    }

    /// The first blocks of a range that are not zeros.
    pub(crate) fn blocks_within(&self, from: u64, to: u64, most: usize) -> Result<Vec<u64>, VolumeError> {
        let to = to.min(self.lower()?.len().div_ceil(BLOCK));
        let mut found = Vec::new();
        for block in from..to {
            if !self.is_zero(block)? {
                found.push(block);
            }
            if found.len() == most {
                break;
            }
        }
        Ok(found)
    }
}

impl Store {
    /// Connects the content outside of the store that a volume is over. Clones of the volume's
    /// snapshots use it too.
    pub fn set_lower(&self, volume: u32, lower: Arc<dyn Lower>) {
        self.state.lock().lowers.insert(volume, lower);
        self.problems.end(&lower_of(volume));
    }

    /// The content outside of the store that a volume is over cannot be read now. Reads of blocks
    /// that only it has fail until [`Store::set_lower`], and nothing else does. `why` is one of the
    /// problems of [`Store::stats`] until then.
    pub fn lose_lower(&self, volume: u32, why: &str) {
        self.state.lock().lowers.remove(&volume);
        self.problems.note(&lower_of(volume), why);
    }

    /// Nothing outside of the store is below a volume any more.
    pub(crate) fn forget_lower(&self, volume: u32) {
        self.state.lock().lowers.remove(&volume);
        self.problems.end(&lower_of(volume));
    }

    /// Where a block comes from, as far as commits know it.
    pub(crate) fn found(&self, view: View, block: u64) -> Result<Found, VolumeError> {
        let search = Search::of(&self.state.lock(), view, block)?;
        self.finish(search, block)
    }

    /// Looks on in the runs.
    pub(crate) fn finish(&self, search: Search, block: u64) -> Result<Found, VolumeError> {
        self.finish_at(search, block).map(|(_, found)| found)
    }

    /// The same with the level where the block is: 0 is the view itself.
    pub(super) fn finish_at(&self, search: Search, block: u64) -> Result<(usize, Found), VolumeError> {
        for (level, view) in search.levels.iter().enumerate() {
            if let Some(mapping) = search.runs.block(&self.pages, *view, block)? {
                return Ok((level, Found::Mapping(mapping)));
            }
        }
        // Memory was asked first, and only levels before its one are left.
        let behind = search.levels.len();
        let found = match (search.memory, search.outside) {
            (Some(mapping), _) => Found::Mapping(mapping),
            (None, Some(outside)) => Found::Outside(outside),
            (None, None) => Found::Mapping(Mapping::ZERO),
        };
        Ok((behind, found))
    }

    /// What a commit takes for the content of a block before, and whether a parent has it. Content
    /// outside of the store has no mapping, so anything that is written is a change, zeros too:
    /// they hide something.
    pub(super) fn before(&self, key: (u32, u64), dirty: &Dirty) -> Result<(Mapping, bool), VolumeError> {
        let search = Search::of(&self.state.lock(), View::live(key.0), key.1)?;
        match self.finish_at(search, key.1)? {
            (level, Found::Mapping(mapping)) => Ok((mapping, level > 0)),
            // `accept_part` made it whole.
            (_, Found::Outside(_)) if dirty.is_whole() => Ok((unknown(), true)),
            (_, Found::Outside(_)) => Err(VolumeError::BadRequest("a part was written over unknown content".into())),
        }
    }

    /// Writes a part of a block. One that is only outside of the store is read there first, and is
    /// a whole one from then on: commits of other volumes must not wait for it, nor fail with it.
    pub(super) fn accept_part(&self, key: (u32, u64), at: u32, part: Vec<u8>) -> Result<(), VolumeError> {
        let view = View::live(key.0);
        loop {
            let search = Search::of(&self.state.lock(), view, key.1)?;
            let runs = search.runs.clone();
            let outside = match search.outside {
                None => None,
                Some(_) => match self.finish(search, key.1)? {
                    Found::Mapping(_) => None,
                    Found::Outside(outside) => Some(outside),
                },
            };
            let Some(outside) = outside else {
                return self.accept(key, |dirty| dirty.put(at, part));
            };
            // A whole block that waits hides what is below, and its commit gives the block a
            // mapping.
            if self.waits_as_whole(key) {
                return self.accept(key, |dirty| dirty.put(at, part));
            }
            let mut content = vec![0; BLOCK_LEN as usize];
            if !outside.is_zero(key.1)? {
                outside.read(key.1 * BLOCK, &mut content)?;
            }
            let is_done = self.accept_if(key, |state| {
                // Another one may have written it, and a commit may have finished it.
                if !Arc::ptr_eq(&state.runs, &runs) || state.tables.block(view, key.1).is_some() {
                    return false;
                }
                for waiting in [&state.sealing, &state.active] {
                    if let Some(dirty) = waiting.blocks.get(&key) {
                        dirty.overlay(0, &mut content);
                    }
                }
                content[at as usize..][..part.len()].copy_from_slice(&part);
                let whole = Dirty::whole(std::mem::take(&mut content));
                state.active.change(key, |dirty| *dirty = whole);
                true
            })?;
            if is_done {
                return Ok(());
            }
        }
    }
}

impl Store {
    /// Whether a whole block waits for a commit.
    fn waits_as_whole(&self, key: (u32, u64)) -> bool {
        let state = self.state.lock();
        let waiting = [&state.sealing, &state.active];
        waiting.iter().any(|waiting| waiting.blocks.get(&key).is_some_and(|dirty| dirty.is_whole()))
    }
}

/// The name of the problem of a volume whose lower content cannot be read.
fn lower_of(volume: u32) -> String {
    format!("below volume number {volume}")
}

/// A mapping that no block has.
fn unknown() -> Mapping {
    let place = Some(Place { container: u32::MAX, offset: 0 });
    Mapping { mac: None, items: vec![MapItem { place, skip: 0, length: u16::MAX, tag: [0; 4] }] }
}
