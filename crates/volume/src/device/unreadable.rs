//! [`Unreadable`]: blocks that must be read for a commit, and cannot.
//!
//! They wait until they are written as a whole or discarded. Only their volumes get the error.

use std::collections::BTreeMap;

use crate::error::VolumeError;
use crate::store::{COMMITS, State, Store, Waiting};

/// The first error of each volume whose blocks a commit left behind.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Unreadable(BTreeMap<u32, VolumeError>);

impl Unreadable {
    pub(super) fn add(&mut self, volume: u32, error: VolumeError) {
        self.0.entry(volume).or_insert(error);
    }

    /// An error if blocks of this volume wait.
    pub(crate) fn of(mut self, volume: u32) -> Result<(), VolumeError> {
        self.0.remove(&volume).map_or(Ok(()), Err)
    }

    /// An error if blocks of any volume wait.
    pub(crate) fn any(self) -> Result<(), VolumeError> {
        self.0.into_values().next().map_or(Ok(()), Err)
    }

    /// Whether everything was committed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Store {
    /// Notes what a commit left behind. Needs the committer's lock.
    pub(super) fn note_unreadable(&self, left: &Unreadable) {
        let mut state = self.state.lock();
        let bytes = if left.is_empty() { 0 } else { state.sealing.bytes };
        if left.is_empty() {
            self.problems.end(COMMITS);
        }
        let before =
            std::mem::replace(&mut state.unreadable, Waiting { volumes: left.0.keys().copied().collect(), bytes });
        drop(state);
        let what = |volume: &u32| format!("volume number {volume}");
        left.0.iter().for_each(|(volume, error)| self.problems.note(&what(volume), &error.to_string()));
        let is_over = |volume: &&u32| !left.0.contains_key(volume);
        before.volumes.iter().filter(is_over).for_each(|volume| self.problems.end(&what(volume)));
    }
}

impl State {
    /// Bytes of the write buffer that a volume must find room beside. Blocks that wait for ever
    /// count as half of the buffer at most, so other volumes always find room.
    pub(super) fn held(&self, volume: u32, write_buffer: usize) -> usize {
        let is_its_own = self.unreadable.volumes.contains(&volume);
        let beyond = if is_its_own { 0 } else { self.unreadable.bytes.saturating_sub(write_buffer / 2) };
        (self.active.bytes + self.sealing.bytes).saturating_sub(beyond)
    }

    /// Whether a volume may not have more blocks waiting: such blocks fill half of the buffer, and
    /// the other half is for other volumes. What can end that is accepted.
    pub(super) fn refuses(&self, key: (u32, u64), write_buffer: usize) -> bool {
        let waits = || self.sealing.blocks.contains_key(&key) || self.active.blocks.contains_key(&key);
        self.unreadable.bytes >= write_buffer / 2 && self.unreadable.volumes.contains(&key.0) && !waits()
    }
}
