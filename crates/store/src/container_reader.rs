//! Reading containers: tables, frames, and single chunks through a bounded cache.
//!
//! Metadata containers are small and read whole: a listing of a path touches few of them, and the cache on disk keeps
//! them whole as well. Data containers are read by the restore and the check, which plan their reads themselves.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use larder_format::compress::Decompressor;
use larder_format::container::{ChunkRef, ContainerIndex, FrameLocation, TAIL_GUESS, TRAILER_LEN, open_frame};
use larder_format::ids::ContainerId;
use larder_format::{DecodeError, Fingerprint, names};
use lru::LruCache;
use parking_lot::Mutex;

use crate::repository::{Repository, RepositoryError};

/// A container that was read whole.
#[derive(Debug)]
pub struct WholeContainer {
    /// Its tables.
    pub index: ContainerIndex,
    object: Bytes,
}

impl WholeContainer {
    /// Opens one frame into `raw`, which is resized to fit.
    pub fn open_frame(
        &self,
        repository: &Repository,
        frame: &FrameLocation,
        raw: &mut Vec<u8>,
        decompressor: &mut Decompressor,
    ) -> Result<(), RepositoryError> {
        let range = frame.object_range();
        // The index was checked against the object's length.
        let mut sealed = self.object[range.start as usize..range.end as usize].to_vec();
        raw.resize(frame.entry.raw_len as usize, 0);
        open_frame(&repository.keys, self.index.id, frame, &mut sealed, raw, decompressor)
            .map_err(RepositoryError::damaged(names::container(self.index.id)))
    }
}

impl Repository {
    /// Reads a whole container.
    pub async fn read_container(&self, id: ContainerId) -> Result<WholeContainer, RepositoryError> {
        let name = names::container(id);
        let object = self.store.get(&name).await?;
        let index = ContainerIndex::decode(&self.keys, id, &object, object.len() as u64)
            .map_err(RepositoryError::damaged(name))?;
        Ok(WholeContainer { index, object })
    }

    /// Reads the tables of a container from its tail: one request, rarely two.
    pub async fn read_container_index(&self, id: ContainerId) -> Result<ContainerIndex, RepositoryError> {
        let name = names::container(id);
        let (mut tail, object_len) = self.store.get_tail(&name, TAIL_GUESS as u64).await?;
        let damaged = |source| RepositoryError::Damaged { name: name.clone(), source };
        if tail.len() < TRAILER_LEN {
            return Err(damaged(DecodeError::Truncated { what: "container" }));
        }
        let needed = ContainerIndex::tail_len(&self.keys, id, &tail, object_len).map_err(damaged)?;
        if needed > tail.len() {
            (tail, _) = self.store.get_tail(&name, needed as u64).await?;
        }
        ContainerIndex::decode(&self.keys, id, &tail, object_len).map_err(damaged)
    }
}

/// Reads chunks of metadata containers: segments, recipe nodes, blocks of metadata streams.
///
/// Shared by the threads of a job. Memory is bounded by the two budgets given to [`ChunkReader::new`].
pub struct ChunkReader {
    repository: Repository,
    cache: Mutex<Cache>,
}

struct Cache {
    containers: Weighted<ContainerId, Arc<WholeContainer>>,
    frames: Weighted<(ContainerId, u32), Arc<Vec<u8>>>,
}

/// An LRU cache bounded by the bytes of its values.
struct Weighted<K: std::hash::Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    bytes: usize,
    budget: usize,
}

impl<K: std::hash::Hash + Eq, V: Clone> Weighted<K, V> {
    fn new(budget: usize) -> Self {
        Self { entries: LruCache::unbounded(), bytes: 0, budget }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        self.entries.get(key).map(|(value, _)| value.clone())
    }

    fn put(&mut self, key: K, value: V, bytes: usize) {
        if let Some((_, old)) = self.entries.put(key, (value, bytes)) {
            self.bytes -= old;
        }
        self.bytes += bytes;
        // The newest stays even when it alone is over the budget: its reader needs it now.
        while self.bytes > self.budget && self.entries.len() > 1 {
            if let Some((_, (_, old))) = self.entries.pop_lru() {
                self.bytes -= old;
            }
        }
    }
}

impl std::fmt::Debug for ChunkReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChunkReader").field(&self.repository).finish()
    }
}

impl ChunkReader {
    /// A reader that keeps at most `container_bytes` of sealed containers and `frame_bytes` of opened frames.
    pub fn new(repository: Repository, container_bytes: NonZeroUsize, frame_bytes: NonZeroUsize) -> Self {
        let cache = Cache {
            containers: Weighted::new(container_bytes.get()),
            frames: Weighted::new(frame_bytes.get()),
        };
        Self { repository, cache: Mutex::new(cache) }
    }

    /// Reads one chunk and checks that it is the one its record names.
    pub async fn read(&self, chunk: &ChunkRef) -> Result<Bytes, RepositoryError> {
        let container = self.container(chunk.container).await?;
        let damaged = |why| RepositoryError::Damaged {
            name: names::container(chunk.container),
            source: DecodeError::Invalid { what: "chunk record", why },
        };
        let frame = *container.index.frame_at(chunk.offset).ok_or(damaged("it lies outside of its container"))?;
        let raw = self.frame(&container, &frame)?;
        let from = (chunk.offset - frame.payload_offset) as usize;
        let bytes = raw
            .get(from..from + chunk.size as usize)
            .ok_or(damaged("it lies across the border of a frame"))?;
        if larder_chunking::Fingerprinter::new(&self.repository.keys.fingerprint).one(bytes) != chunk.fingerprint {
            return Err(damaged("the bytes there have another fingerprint"));
        }
        Ok(Bytes::copy_from_slice(bytes))
    }

    async fn container(&self, id: ContainerId) -> Result<Arc<WholeContainer>, RepositoryError> {
        if let Some(container) = self.cache.lock().containers.get(&id) {
            return Ok(container);
        }
        let container = Arc::new(self.repository.read_container(id).await?);
        self.cache.lock().containers.put(id, container.clone(), container.object.len());
        Ok(container)
    }

    fn frame(&self, container: &WholeContainer, frame: &FrameLocation) -> Result<Arc<Vec<u8>>, RepositoryError> {
        let key = (container.index.id, frame.number);
        if let Some(raw) = self.cache.lock().frames.get(&key) {
            return Ok(raw);
        }
        let mut raw = Vec::new();
        container.open_frame(&self.repository, frame, &mut raw, &mut Decompressor::new())?;
        let raw = Arc::new(raw);
        self.cache.lock().frames.put(key, raw.clone(), raw.len());
        Ok(raw)
    }
}

/// Says of a chunk's bytes whether they are what the record says.
pub fn is_genuine(repository: &Repository, bytes: &[u8], fingerprint: &Fingerprint) -> bool {
    larder_chunking::Fingerprinter::new(&repository.keys.fingerprint).one(bytes) == *fingerprint
}
