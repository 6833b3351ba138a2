//! Reading single chunks of metadata: segments, recipe nodes, blocks of metadata streams.
//!
//! Metadata containers are small, and read whole at the first use. A version wrote its metadata in
//! the order in which it is read, and the cache on disk keeps them whole as well. But after many
//! versions, a recipe alternates between the containers of all of them, and they do not all fit
//! into memory. For evicted containers, the places of their frames stay known, and frames are read
//! again one by one. Without that, a backup of the tenth version of a database read each of ten
//! containers ten times.
//!
//! A reader with less memory than a container has reads none whole ([`ChunkReader::in_pieces`]).
//!
//! If one thread reads something, others that need it wait for that thread.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use larder_format::compress::Decompressor;
use larder_format::container::{ChunkRef, ContainerIndex, FrameLocation, FrameOpener, frame_at};
use larder_format::ids::ContainerId;
use larder_format::{DecodeError, names};
use parking_lot::Mutex;

use crate::byte_lru::ByteLru;
use crate::container_reader::OpenContainer;
use crate::repository::{Repository, RepositoryError};
use crate::turns::Turns;

/// Bytes that the places of a container's frames take at most, besides those that grow with it.
const TABLE_BYTES: u64 = 1 << 10;

/// Bytes of a container that are read at once, at least, if it is not read whole. Frames of
/// metadata have about half of it, and a version reads the next one soon.
const PIECE_MIN: usize = 256 << 10;

/// Reads chunks of metadata containers.
///
/// Shared by the threads of a job. Memory is bounded by the two budgets given to
/// [`ChunkReader::new`].
pub struct ChunkReader {
    repository: Repository,
    /// Bytes of a container that are read at once; `None`: all.
    piece: Option<u64>,
    cache: Mutex<Cache>,
    containers: Turns,
    pieces: Turns,
    frames: Turns,
}

/// Some frames of a container, by its first one.
type PieceId = (ContainerId, u32);

struct Cache {
    containers: ByteLru<ContainerId, Arc<OpenContainer>>,
    pieces: ByteLru<PieceId, Bytes>,
    tables: ByteLru<ContainerId, Arc<ContainerFrames>>,
    frames: ByteLru<(ContainerId, u32), Arc<Vec<u8>>>,
}

impl std::fmt::Debug for ChunkReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChunkReader").field(&self.repository).finish()
    }
}

impl ChunkReader {
    /// Divisor of the memory for containers that gives the additional memory for the places of
    /// their frames: some 600 bytes for each container.
    pub const TABLES_ONE_IN: usize = 8;

    /// Memory for the places of the frames of this number of containers, with `bytes` together. It
    /// is that at most.
    pub fn tables_bytes(containers: u64, bytes: u64) -> u64 {
        // A frame of 128 KiB that takes 64 bytes of tables has some 4 KiB at least.
        containers.saturating_mul(TABLE_BYTES).saturating_add(bytes / 64)
    }

    /// A reader that keeps at most `container_bytes` of sealed containers, and an eighth of that
    /// for the places of their frames. It keeps `frame_bytes` of opened frames.
    pub fn new(repository: Repository, container_bytes: NonZeroUsize, frame_bytes: NonZeroUsize) -> Self {
        let cache = Cache {
            containers: ByteLru::new(container_bytes.get()),
            pieces: ByteLru::new(container_bytes.get()),
            tables: ByteLru::new(container_bytes.get() / Self::TABLES_ONE_IN),
            frames: ByteLru::new(frame_bytes.get()),
        };
        let (containers, pieces, frames) = Default::default();
        Self { repository, piece: None, cache: Mutex::new(cache), containers, pieces, frames }
    }

    /// The same for a reader that has no memory for a container. It reads the tables, and then some
    /// frames at once.
    pub fn in_pieces(self) -> Self {
        let memory = self.cache.lock().containers.budget();
        Self { piece: Some((memory / 2).max(PIECE_MIN) as u64), ..self }
    }

    /// Reads one chunk and checks that it is the one its record names.
    pub async fn read(&self, chunk: &ChunkRef) -> Result<Bytes, RepositoryError> {
        let frames = self.frames_of(chunk.container).await?;
        let damaged = |why| RepositoryError::Damaged {
            name: names::container(chunk.container),
            source: DecodeError::Invalid { what: "chunk record", why },
        };
        let frame = *frame_at(&frames.frames, chunk.offset).ok_or(damaged("it lies outside of its container"))?;
        let raw = self.frame(chunk.container, &frames, &frame).await?;
        let from = (chunk.offset - frame.payload_offset) as usize;
        let bytes = raw.get(from..from + chunk.size as usize).ok_or(damaged("it lies across the border of a frame"))?;
        if larder_chunking::Fingerprinter::new(self.repository.keys.fingerprint()).one(bytes) != chunk.fingerprint {
            return Err(damaged("the bytes there have another fingerprint"));
        }
        Ok(Bytes::copy_from_slice(bytes))
    }

    /// Reads a container whole if it is not at hand, so that its chunks are read without a request.
    /// A reader in pieces reads its tables.
    pub async fn fetch(&self, id: ContainerId) -> Result<(), RepositoryError> {
        self.frames_of(id).await.map(drop)
    }

    /// The places of the frames of a container. It is read whole, or its tables are, if that is not
    /// at hand.
    async fn frames_of(&self, id: ContainerId) -> Result<Arc<ContainerFrames>, RepositoryError> {
        if let Some(frames) = self.cache.lock().tables.get(&id) {
            return Ok(frames);
        }
        let _turn = self.containers.wait(&id).await;
        if let Some(frames) = self.cache.lock().tables.get(&id) {
            return Ok(frames);
        }
        let of = |index: &ContainerIndex| {
            Arc::new(ContainerFrames { frames: index.frames().to_vec(), opener: index.opener().clone() })
        };
        let (frames, container) = match self.piece {
            Some(_) => (of(&self.repository.read_container_index(id).await?), None),
            None => {
                let container = Arc::new(self.repository.read_container(id).await?);
                (of(&container.index), Some(container))
            }
        };
        let mut cache = self.cache.lock();
        if let Some(container) = container {
            let bytes = container.bytes_read as usize;
            cache.containers.put(id, container, bytes);
        }
        cache.tables.put(
            id,
            frames.clone(),
            size_of_val(&*frames.frames) + frames.opener.bytes_held() + size_of::<ContainerId>(),
        );
        Ok(frames)
    }

    /// The piece of a container that holds a frame, and the offset of its first byte.
    async fn piece(
        &self,
        id: ContainerId,
        of: &ContainerFrames,
        frame: &FrameLocation,
        bytes: u64,
    ) -> Result<(Bytes, u64), RepositoryError> {
        // Pieces never depend on the frame that is wanted, so that a cache on disk has few of them.
        let (frames, number) = (&of.frames, |frame: &FrameLocation| frame.object_offset / bytes);
        let first = frames.partition_point(|other| number(other) < number(frame));
        let end = frames.partition_point(|other| number(other) <= number(frame));
        let of_it = frames.get(first..end).unwrap_or_default();
        let (first, last) = (of_it.first().unwrap_or(frame), of_it.last().unwrap_or(frame));
        let key = (id, first.number);
        if let Some(piece) = self.cache.lock().pieces.get(&key) {
            return Ok((piece, first.object_offset));
        }
        let _turn = self.pieces.wait(&key).await;
        if let Some(piece) = self.cache.lock().pieces.get(&key) {
            return Ok((piece, first.object_offset));
        }
        let range = first.object_offset..last.object_range().end;
        let opens = |piece: &[u8], frame: &FrameLocation| {
            let Range { start, end } = frame.object_range();
            let sealed = piece.get((start - range.start) as usize..(end - range.start) as usize);
            let unseal = |sealed: &[u8]| of.opener.unseal_frame(&self.repository.keys, frame, &mut sealed.to_vec());
            sealed.is_some_and(|sealed| unseal(sealed).is_ok())
        };
        let is_sound = |piece: &[u8]| of_it.iter().all(|frame| opens(piece, frame));
        let piece = self.repository.store.get_sound_range(&names::container(id), range.clone(), is_sound).await?;
        self.cache.lock().pieces.put(key, piece.clone(), piece.len());
        Ok((piece, first.object_offset))
    }

    /// A frame, opened.
    async fn frame(
        &self,
        id: ContainerId,
        of: &ContainerFrames,
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
        let mut sealed = match (sealed, self.piece) {
            (Some(sealed), _) => sealed.to_vec(),
            (None, Some(bytes)) => {
                let (piece, from) = self.piece(id, of, frame, bytes).await?;
                let range = frame.object_range();
                piece[(range.start - from) as usize..(range.end - from) as usize].to_vec()
            }
            (None, None) => self.repository.store.get_range(&names::container(id), frame.object_range()).await?.into(),
        };
        let mut raw = vec![0; frame.entry.raw_len as usize];
        of.opener
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
