//! Frames on disk, as they are sealed in the store: a second tier below the opened ones in memory.
//!
//! Invariants
//! * Frames of a container are here only together with the tables that open them.
//! * The configured number of bytes is never exceeded. Without room the frame that was not used
//!   for longest goes, or, while all must stay, the write fails.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use larder_format::container::{ContainerIndex, FrameLocation};
use larder_format::ids::ContainerId;
use lru::LruCache;
use parking_lot::Mutex;

use crate::container_cache::disk_tier::{DiskTier, Stored, rounded};

/// A container and the number of a frame in it.
pub(super) type FrameKey = (ContainerId, u32);

/// See the module header.
#[derive(Debug)]
pub(super) struct DiskFrames {
    tier: DiskTier,
    /// Bytes of the file.
    budget: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    frames: LruCache<FrameKey, Arc<Stored>>,
    /// Tables, and the number of frames that need them.
    tables: HashMap<ContainerId, (Arc<ContainerIndex>, u32)>,
    used: u64,
    /// Whether frames must stay.
    is_pinned: bool,
    /// Why nothing more is written.
    failed: Option<io::ErrorKind>,
}

impl State {
    /// Removes the least recently used frame.
    fn evict(&mut self) -> Option<Arc<Stored>> {
        let (key, stored) = self.frames.pop_lru()?;
        self.removed(&key, &stored);
        Some(stored)
    }

    fn removed(&mut self, key: &FrameKey, stored: &Stored) {
        self.used -= rounded(stored.bytes);
        if let Some((_, frames)) = self.tables.get_mut(&key.0) {
            *frames -= 1;
            if *frames == 0 {
                self.tables.remove(&key.0);
            }
        }
    }
}

impl DiskFrames {
    /// A tier of at most `budget` bytes in a temporary file without a name in `folder`.
    pub(super) fn new(folder: &Path, budget: u64) -> io::Result<Self> {
        let state =
            State { frames: LruCache::unbounded(), tables: HashMap::new(), used: 0, is_pinned: false, failed: None };
        Ok(Self { tier: DiskTier::new(folder)?, budget, state: Mutex::new(state) })
    }

    /// From now on every frame stays.
    pub(super) fn pin(&self) {
        self.state.lock().is_pinned = true;
    }

    /// Frames may go again.
    pub(super) fn unpin(&self) {
        self.state.lock().is_pinned = false;
    }

    /// Bytes on disk.
    pub(super) fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// The tables of a container that has frames here.
    pub(super) fn tables(&self, id: &ContainerId) -> Option<Arc<ContainerIndex>> {
        self.state.lock().tables.get(id).map(|(tables, _)| tables.clone())
    }

    /// Whether a frame is here. It counts as used.
    pub(super) fn has(&self, key: &FrameKey) -> bool {
        self.state.lock().frames.get(key).is_some()
    }

    /// Reads a frame as it was sealed, and says which blocks that were. The bytes may differ from
    /// what was written.
    pub(super) fn read(&self, key: &FrameKey, sealed: &mut Vec<u8>) -> Option<Arc<Stored>> {
        let stored = self.state.lock().frames.get(key).cloned()?;
        match self.tier.read_range(&stored, 0..stored.bytes, sealed) {
            Ok(()) => Some(stored),
            Err(error) => {
                tracing::warn!(%error, "the disk cache cannot be read");
                None
            }
        }
    }

    /// A frame did not open: it is read from the store again. One that was written to other blocks
    /// meanwhile stays.
    pub(super) fn remove(&self, key: &FrameKey, read: &Arc<Stored>) {
        let mut state = self.state.lock();
        if state.frames.peek(key).is_some_and(|stored| Arc::ptr_eq(stored, read)) {
            state.frames.pop(key);
            state.removed(key, read);
            drop(state);
            self.tier.release(read);
        }
    }

    /// Keeps a frame.
    ///
    /// # Errors
    /// All frames must stay and there is no room, or the file cannot be written. Without pinning, a
    /// frame without room is not kept, and that is no error.
    pub(super) fn put(&self, tables: &Arc<ContainerIndex>, frame: &FrameLocation, sealed: &[u8]) -> io::Result<()> {
        let key = (tables.id, frame.number);
        let bytes = rounded(sealed.len() as u64);
        {
            let mut state = self.state.lock();
            if state.frames.contains(&key) {
                return Ok(());
            }
            if let Some(failed) = state.failed {
                return if state.is_pinned { Err(failed.into()) } else { Ok(()) };
            }
            while state.used.saturating_add(bytes) > self.budget {
                if state.is_pinned {
                    return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the disk cache is full"));
                }
                match state.evict() {
                    Some(stored) => self.tier.release(&stored),
                    None => return Ok(()),
                }
            }
            state.used += bytes;
        }
        let written = self.tier.write(sealed);
        let mut state = self.state.lock();
        match written {
            Ok(stored) => {
                if state.frames.contains(&key) {
                    // Another thread wrote the same frame, and others may read that.
                    state.used -= bytes;
                    self.tier.release(&stored);
                } else {
                    state.frames.put(key, Arc::new(stored));
                    state.tables.entry(tables.id).or_insert_with(|| (tables.clone(), 0)).1 += 1;
                }
                Ok(())
            }
            Err(error) => {
                state.used -= bytes;
                state.failed = Some(error.kind());
                tracing::warn!(%error, "the disk cache cannot be written; going on without more of it");
                if state.is_pinned { Err(error) } else { Ok(()) }
            }
        }
    }
}
