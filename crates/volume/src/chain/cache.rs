//! Fingerprints of containers that were hit lately: what was written together is often written
//! together again (dedupv1, the container cache filter).

use std::collections::HashMap;

use larder_dedup::chain::Verdict;
use larder_dedup::chain::batch::Open;
use larder_format::volume_map::Place;
use lru::LruCache;
use parking_lot::Mutex;

use super::{Answer, Asked, ChunkFilter, Key, Stored};
use crate::error::VolumeError;
use crate::index::KeyMap;

/// Answers of the index in one round that make a container worth loading. One read of it costs
/// about as much as this many pages.
const HITS: usize = 4;
/// Bytes of memory of a chunk, nearly: its key twice, and its place.
const CHUNK_BYTES: usize = 72;

/// Chunks of the containers that were used last.
pub(crate) struct KnownContainers {
    places: KeyMap<Place>,
    /// Keys of each container.
    loaded: LruCache<u32, Vec<Key>>,
    chunks_max: usize,
}

impl KnownContainers {
    /// Containers of about `memory` bytes, and at least one.
    pub(super) fn new(memory: usize) -> Self {
        Self { places: KeyMap::default(), loaded: LruCache::unbounded(), chunks_max: memory / CHUNK_BYTES }
    }

    /// The place of a chunk. Its container counts as used.
    pub(super) fn find(&mut self, key: &Key) -> Option<Place> {
        let place = *self.places.get(key)?;
        self.loaded.promote(&place.container);
        Some(place)
    }

    /// Loads a container, unless it is loaded. One that is damaged is not: its chunks are found by
    /// other filters, or stored again.
    pub(super) fn load(&mut self, container: u32, stored: &dyn Stored) -> Result<(), VolumeError> {
        if self.loaded.contains(&container) {
            return Ok(());
        }
        let entries = match stored.chunks_of(container) {
            Ok(Some(entries)) => entries,
            Ok(None) => return Ok(()),
            Err(error @ VolumeError::Damaged { .. }) => {
                tracing::warn!("{error}");
                // Not tried again with every chunk.
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        for (key, offset) in &entries {
            self.places.insert(*key, Place { container, offset: *offset });
        }
        self.loaded.put(container, entries.into_iter().map(|(key, _)| key).collect());
        while self.places.len() > self.chunks_max && self.loaded.len() > 1 {
            let Some((oldest, keys)) = self.loaded.pop_lru() else { break };
            self.drop_keys(oldest, &keys);
        }
        Ok(())
    }

    fn drop_keys(&mut self, container: u32, keys: &[Key]) {
        for key in keys {
            // Another container may have the chunk too.
            if self.places.get(key).is_some_and(|place| place.container == container) {
                self.places.remove(key);
            }
        }
    }

    pub(super) fn forget(&mut self, container: u32) {
        if let Some(keys) = self.loaded.pop(&container) {
            self.drop_keys(container, &keys);
        }
    }
}

pub(super) struct Cache<'a, 'b> {
    pub(super) stored: &'a dyn Stored,
    pub(super) containers: &'a Mutex<&'b mut KnownContainers>,
}

impl ChunkFilter for Cache<'_, '_> {
    fn check(&mut self, asked: &[Asked<'_>], open: &mut Open<Answer>) -> Result<(), VolumeError> {
        let mut containers = self.containers.lock();
        for position in 0..open.len() {
            let place = containers.find(&asked[open.number(position)].key);
            if let Some(place) = place.filter(|place| self.stored.may_name(*place)) {
                open.judge(position, Verdict::StrongMaybe(Answer::At(place)));
            }
        }
        Ok(())
    }
}

/// The last filter of the chain: it judges nothing, and loads the containers that were hit.
pub(super) struct LoadHit<'a, 'b> {
    pub(super) stored: &'a dyn Stored,
    pub(super) containers: &'a Mutex<&'b mut KnownContainers>,
}

impl ChunkFilter for LoadHit<'_, '_> {
    fn check(&mut self, _: &[Asked<'_>], open: &mut Open<Answer>) -> Result<(), VolumeError> {
        let mut hits: HashMap<u32, usize> = HashMap::new();
        for position in 0..open.len() {
            if let Some(Answer::At(place)) = open.found(position) {
                *hits.entry(place.container).or_default() += 1;
            }
        }
        let mut worth: Vec<u32> =
            hits.into_iter().filter(|(_, hits)| *hits >= HITS).map(|(number, _)| number).collect();
        worth.sort_unstable();
        let mut containers = self.containers.lock();
        worth.into_iter().try_for_each(|container| containers.load(container, self.stored))
    }

    /// It is asked after the index found a chunk.
    fn can_be_certain(&self) -> bool {
        true
    }
}
