//! Reading single chunks of metadata: segments, recipe nodes, blocks of metadata streams.
//!
//! Metadata containers are small, and read whole at the first use. A version wrote its metadata in
//! the order in which it is read, and the cache on disk keeps them whole as well. But after many
//! versions, a recipe alternates between the containers of all of them, and they do not all fit
//! into memory. For evicted containers, the places of their frames stay known, and frames are read
//! again one by one. Without that, a backup of the tenth version of a database read each of ten
//! containers ten times.
//!
//! If one thread reads something, others that need it wait for that thread.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use larder_format::compress::Decompressor;
use larder_format::container::{ChunkRef, FrameLocation, FrameOpener, frame_at};
use larder_format::ids::ContainerId;
use larder_format::{DecodeError, names};
use parking_lot::Mutex;

use crate::byte_lru::ByteLru;
use crate::container_reader::OpenContainer;
use crate::repository::{Repository, RepositoryError};
use crate::turns::Turns;

/// Divisor of the memory for containers that gives the additional memory for the places of their
/// frames: some 600 bytes for each container.
const TABLES_ONE_IN: usize = 8;

/// Reads chunks of metadata containers.
///
/// Shared by the threads of a job. Memory is bounded by the two budgets given to
/// [`ChunkReader::new`].
pub struct ChunkReader {
    repository: Repository,
    cache: Mutex<Cache>,
    containers: Turns,
    frames: Turns,
}

struct Cache {
    containers: ByteLru<ContainerId, Arc<OpenContainer>>,
    tables: ByteLru<ContainerId, Arc<ContainerFrames>>,
    frames: ByteLru<(ContainerId, u32), Arc<Vec<u8>>>,
}

impl std::fmt::Debug for ChunkReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChunkReader").field(&self.repository).finish()
    }
}

impl ChunkReader {
    /// A reader that keeps at most `container_bytes` of sealed containers, and an eighth of that
    /// for the places of their frames. It keeps `frame_bytes` of opened frames.
    pub fn new(repository: Repository, container_bytes: NonZeroUsize, frame_bytes: NonZeroUsize) -> Self {
        let cache = Cache {
            containers: ByteLru::new(container_bytes.get()),
            tables: ByteLru::new(container_bytes.get() / TABLES_ONE_IN),
            frames: ByteLru::new(frame_bytes.get()),
        };
        Self { repository, cache: Mutex::new(cache), containers: Turns::default(), frames: Turns::default() }
    }

    /// Reads one chunk and checks that it is the one its record names.
    pub async fn read(&self, chunk: &ChunkRef) -> Result<Bytes, RepositoryError> {
        let frames = self.frames_of(chunk.container).await?;
        let damaged = |why| RepositoryError::Damaged {
            name: names::container(chunk.container),
            source: DecodeError::Invalid { what: "chunk record", why },
        };
        let frame = *frame_at(&frames.frames, chunk.offset).ok_or(damaged("it lies outside of its container"))?;
        let raw = self.frame(chunk.container, &frames.opener, &frame).await?;
        let from = (chunk.offset - frame.payload_offset) as usize;
        let bytes = raw.get(from..from + chunk.size as usize).ok_or(damaged("it lies across the border of a frame"))?;
        if larder_chunking::Fingerprinter::new(self.repository.keys.fingerprint()).one(bytes) != chunk.fingerprint {
            return Err(damaged("the bytes there have another fingerprint"));
        }
        Ok(Bytes::copy_from_slice(bytes))
    }

    /// Reads a container whole if it is not at hand, so that its chunks are read without a request.
    pub async fn fetch(&self, id: ContainerId) -> Result<(), RepositoryError> {
        self.frames_of(id).await.map(drop)
    }

    /// The places of the frames of a container. It is read whole if that is not at hand.
    async fn frames_of(&self, id: ContainerId) -> Result<Arc<ContainerFrames>, RepositoryError> {
        if let Some(frames) = self.cache.lock().tables.get(&id) {
            return Ok(frames);
        }
        let _turn = self.containers.wait(&id).await;
        if let Some(frames) = self.cache.lock().tables.get(&id) {
            return Ok(frames);
        }
        let container = Arc::new(self.repository.read_container(id).await?);
        let (frames, opener) = (container.index.frames().to_vec(), container.index.opener().clone());
        let frames = Arc::new(ContainerFrames { frames, opener });
        let mut cache = self.cache.lock();
        cache.containers.put(id, container.clone(), container.bytes_read as usize);
        cache.tables.put(
            id,
            frames.clone(),
            size_of_val(&*frames.frames) + frames.opener.bytes_held() + size_of::<ContainerId>(),
        );
        Ok(frames)
    }

    /// A frame, opened.
    async fn frame(
        &self,
        id: ContainerId,
        opener: &FrameOpener,
        frame: &FrameLocation,
    ) -> Result<Arc<Vec<u8>>, RepositoryError> {
        let key = (id, frame.number);
        if let Some(raw) = self.cache.lock().frames.get(&key) {
            return Ok(raw);
        }
        let _turn = self.frames.wait(&key).await;
        let container = {
            let mut cache = self.cache.lock();
            if let Some(raw) = cache.frames.get(&key) {
                return Ok(raw);
            }
            cache.containers.get(&id)
        };
        let sealed = container.as_ref().and_then(|container| container.sealed(frame));
        let mut sealed = match sealed {
            Some(sealed) => sealed.to_vec(),
            None => self.repository.store.get_range(&names::container(id), frame.object_range()).await?.into(),
        };
        let mut raw = vec![0; frame.entry.raw_len as usize];
        opener
            .open_frame(&self.repository.keys, frame, &mut sealed, &mut raw, &mut Decompressor::new())
            .map_err(RepositoryError::damaged(names::container(id)))?;
        let raw = Arc::new(raw);
        self.cache.lock().frames.put(key, raw.clone(), raw.len());
        Ok(raw)
    }
}

/// Where the frames of a container are, and what opens them.
#[derive(Debug)]
struct ContainerFrames {
    frames: Vec<FrameLocation>,
    opener: FrameOpener,
}
