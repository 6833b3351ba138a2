//! Reading containers: tables and frames.
//!
//! Data containers are read by the restore and the check, which plan their reads themselves; single
//! chunks of metadata through [`chunk_reader`](crate::chunk_reader).

use bytes::{Bytes, BytesMut};
use larder_format::compress::Decompressor;
use larder_format::container::{ContainerIndex, FrameLocation, OBJECT_MAX, TAIL_GUESS, TRAILER_LEN};
use larder_format::ids::ContainerId;
use larder_format::{DecodeError, names};
use tokio::sync::Semaphore;

use crate::error_kind::StoreErrorKind;
use crate::repository::{Repository, RepositoryError};

/// A container's tables and as much of its frames as was read.
#[derive(Debug)]
pub struct OpenContainer {
    /// Its tables.
    pub index: ContainerIndex,
    /// Parts of the object, each with its offset, in rising order.
    parts: Vec<(u64, Bytes)>,
    /// Bytes of the whole object.
    object_len: u64,
    /// Bytes that were read to have this.
    pub bytes_read: u64,
    /// Requests that this took.
    pub requests: u32,
}

impl OpenContainer {
    /// Whether the bytes of a frame were read.
    pub fn holds(&self, frame: &FrameLocation) -> bool {
        self.sealed(frame).is_some()
    }

    /// Bytes of memory that it takes, nearly.
    pub fn bytes_held(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Its source, for [`Repository::reopen_container`]: the length of the object and the parts of
    /// it that were read.
    pub fn sealed_parts(&self) -> (u64, &[(u64, Bytes)]) {
        (self.object_len, &self.parts)
    }

    /// The bytes of a frame as they are in the object, if they were read.
    pub fn sealed(&self, frame: &FrameLocation) -> Option<&[u8]> {
        let range = frame.object_range();
        let part = self.parts.partition_point(|(offset, _)| *offset <= range.start).checked_sub(1)?;
        let (offset, bytes) = &self.parts[part];
        bytes.get((range.start - offset) as usize..(range.end - offset) as usize)
    }

    /// Opens one frame into `compressed`, as it was compressed.
    pub fn unseal_frame(
        &self,
        repository: &Repository,
        frame: &FrameLocation,
        compressed: &mut Vec<u8>,
    ) -> Result<(), RepositoryError> {
        let damaged = RepositoryError::damaged(names::container(self.index.id));
        let Some(sealed) = self.sealed(frame) else {
            return Err(damaged(DecodeError::Truncated { what: "frame" }));
        };
        compressed.clear();
        compressed.extend_from_slice(sealed);
        self.index.opener().unseal_frame(&repository.keys, frame, compressed).map_err(damaged)
    }

    /// Opens one frame into `raw`, which is resized to fit; `scratch` is overwritten.
    pub fn open_frame(
        &self,
        repository: &Repository,
        frame: &FrameLocation,
        scratch: &mut Vec<u8>,
        raw: &mut Vec<u8>,
        decompressor: &mut Decompressor,
    ) -> Result<(), RepositoryError> {
        let damaged = RepositoryError::damaged(names::container(self.index.id));
        let Some(sealed) = self.sealed(frame) else {
            return Err(damaged(DecodeError::Truncated { what: "frame" }));
        };
        scratch.clear();
        scratch.extend_from_slice(sealed);
        raw.resize(frame.entry.raw_len as usize, 0);
        self.index.opener().open_frame(&repository.keys, frame, scratch, raw, decompressor).map_err(damaged)
    }
}

/// Gaps up to this are read along (bytes). While a request waits for its first byte, the usual
/// store could send the data of 30 ms at 90 MB/s, a near one far less. This value is in between.
pub const GAP_MAX: u64 = 1 << 20;

impl Repository {
    /// Reads a whole container.
    pub async fn read_container(&self, id: ContainerId) -> Result<OpenContainer, RepositoryError> {
        let name = names::container(id);
        let is_sound = |object: &[u8]| ContainerIndex::decode(&self.keys, id, object, object.len() as u64).is_ok();
        let object = self.store.get_sound(&name, OBJECT_MAX, is_sound).await?;
        let bytes_read = object.len() as u64;
        let index =
            ContainerIndex::decode(&self.keys, id, &object, bytes_read).map_err(RepositoryError::damaged(name))?;
        Ok(OpenContainer { index, parts: vec![(0, object)], object_len: bytes_read, bytes_read, requests: 1 })
    }

    /// Reads a whole container of `object_len` bytes by this number of parallel requests, each of
    /// which waits for a turn. Several streams fill a small memory sooner than one.
    ///
    /// Memory: the container, and a copy of each frame in two parts: one less than there
    /// are requests. If its tables are longer than the last part, or damaged, twice the container
    /// for a moment.
    pub async fn read_container_in_pieces(
        &self,
        id: ContainerId,
        object_len: u64,
        pieces: u64,
        turns: &Semaphore,
    ) -> Result<OpenContainer, RepositoryError> {
        // A version says how long it is, and may say anything.
        if object_len > OBJECT_MAX {
            return self.read_container(id).await;
        }
        let name = names::container(id);
        let step = object_len.div_ceil(pieces.max(1)).max(1);
        let starts = (0..object_len).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        let read = |start: u64| {
            let name = &name;
            async move {
                // Never closed; and without a turn nothing worse happens than one request too many.
                let _turn = turns.acquire().await;
                self.store.get_range(name, start..(start + step).min(object_len)).await
            }
        };
        let parts = match futures::future::try_join_all(starts.map(read)).await {
            Ok(parts) => parts,
            // The source of the length may be wrong.
            Err(error) if error.kind == StoreErrorKind::Damaged => return self.read_container(id).await,
            Err(error) => return Err(error.into()),
        };
        let requests = parts.len() as u32;
        let bytes_read = parts.iter().map(|part| part.len() as u64).sum();
        let starts = (0..object_len).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        let mut parts: Vec<(u64, Bytes)> = starts.zip(parts).collect();
        let last = parts.last().map(|(_, bytes)| bytes.clone()).unwrap_or_default();
        let mut index = ContainerIndex::decode(&self.keys, id, &last, object_len);
        if index.is_err() {
            // The tables may be longer than the last part.
            let mut all = BytesMut::with_capacity(bytes_read as usize);
            // Each part goes as soon as it is copied.
            parts.drain(..).for_each(|(_, part)| all.extend_from_slice(&part));
            let all = all.freeze();
            index = ContainerIndex::decode(&self.keys, id, &all, object_len);
            parts = vec![(0, all)];
        }
        let Ok(index) = index else {
            // It is read once more, so its bytes here must not stay beside those.
            drop((parts, last));
            return self.read_container(id).await;
        };
        join_frames(&index, &mut parts);
        Ok(OpenContainer { index, parts, object_len, bytes_read, requests })
    }

    /// Makes a container again from its [`OpenContainer::sealed_parts`], without asking the store.
    pub fn reopen_container(
        &self,
        id: ContainerId,
        object_len: u64,
        parts: Vec<(u64, Bytes)>,
    ) -> Result<OpenContainer, RepositoryError> {
        let damaged = RepositoryError::damaged(names::container(id));
        // The tables are at the end, so the last part has them.
        let tail = match parts.last() {
            Some((offset, bytes)) if offset.checked_add(bytes.len() as u64) == Some(object_len) => bytes,
            _ => return Err(damaged(DecodeError::Truncated { what: "container" })),
        };
        let index = ContainerIndex::decode(&self.keys, id, tail, object_len).map_err(damaged)?;
        Ok(OpenContainer { index, parts, object_len, bytes_read: 0, requests: 0 })
    }

    /// Reads the tables of a container and those frames that hold any of the `wanted` payload bytes
    /// (in rising order).
    pub async fn read_container_frames(
        &self,
        id: ContainerId,
        wanted: &[std::ops::Range<u32>],
    ) -> Result<OpenContainer, RepositoryError> {
        let Tail { index, bytes: tail, object_len, bytes_read, requests } = self.read_tail(id).await?;
        let tail_from = object_len.saturating_sub(tail.len() as u64);
        let mut container = self.read_more_frames(index, wanted, vec![(tail_from, tail)]).await?;
        container.bytes_read += bytes_read;
        container.requests += requests;
        Ok(container)
    }

    /// The requests and bytes that [`Self::read_container_frames`] takes after it has read the
    /// tables. This reads them, too.
    pub async fn frames_to_read(
        &self,
        id: ContainerId,
        wanted: &[std::ops::Range<u32>],
    ) -> Result<(u64, u64), RepositoryError> {
        let Tail { index, bytes: tail, object_len, .. } = self.read_tail(id).await?;
        let tail_from = object_len.saturating_sub(tail.len() as u64);
        let ranges = missing_ranges(&index, wanted, &[(tail_from, tail)]);
        Ok((ranges.len() as u64, ranges.iter().map(|range| range.end - range.start).sum()))
    }

    /// The same for a container with known tables, and these parts.
    pub async fn read_more_frames(
        &self,
        index: ContainerIndex,
        wanted: &[std::ops::Range<u32>],
        mut parts: Vec<(u64, Bytes)>,
    ) -> Result<OpenContainer, RepositoryError> {
        let ranges = missing_ranges(&index, wanted, &parts);
        let name = names::container(index.id);
        let (mut bytes_read, mut requests) = (0, 0);
        for range in ranges {
            bytes_read += range.end - range.start;
            requests += 1;
            parts.push((range.start, self.store.get_range(&name, range).await?));
        }
        parts.sort_unstable_by_key(|(from, _)| *from);
        let object_len = index.object_len;
        Ok(OpenContainer { index, parts, object_len, bytes_read, requests })
    }

    /// Reads the tables of a container from its tail: one request, rarely two.
    pub async fn read_container_index(&self, id: ContainerId) -> Result<ContainerIndex, RepositoryError> {
        Ok(self.read_tail(id).await?.index)
    }

    async fn read_tail(&self, id: ContainerId) -> Result<Tail, RepositoryError> {
        let name = names::container(id);
        let decodes = |tail: &[u8], len: u64| ContainerIndex::decode(&self.keys, id, tail, len).is_ok();
        let is_sound = |tail: &[u8], len: u64| {
            let needed = ContainerIndex::tail_len(&self.keys, id, tail, len);
            needed.is_ok_and(|needed| needed > tail.len() || decodes(tail, len))
        };
        let (mut tail, object_len) = self.store.get_sound_tail(&name, TAIL_GUESS as u64, is_sound).await?;
        let damaged = |source| RepositoryError::Damaged { name: name.clone(), source };
        if tail.len() < TRAILER_LEN && (tail.len() as u64) < object_len {
            return Err(damaged(DecodeError::Truncated { what: "container" }));
        }
        let needed = ContainerIndex::tail_len(&self.keys, id, &tail, object_len).map_err(damaged)?;
        let (mut bytes_read, mut requests) = (tail.len() as u64, 1);
        if needed > tail.len() {
            (tail, _) = self.store.get_sound_tail(&name, needed as u64, decodes).await?;
            (bytes_read, requests) = (bytes_read + tail.len() as u64, 2);
        }
        let index = ContainerIndex::decode(&self.keys, id, &tail, object_len).map_err(damaged)?;
        Ok(Tail { index, bytes: tail, object_len, bytes_read, requests })
    }
}

/// Adds each frame across the border of two parts as a part of its own. The parts are all of the
/// object.
fn join_frames(index: &ContainerIndex, parts: &mut Vec<(u64, Bytes)>) {
    let pieces = parts.len();
    for frame in index.frames() {
        let range = frame.object_range();
        let Some(first) = parts[..pieces].partition_point(|(from, _)| *from <= range.start).checked_sub(1) else {
            break;
        };
        let mut joined = BytesMut::new();
        for (from, bytes) in &parts[first..pieces] {
            let (start, end) = (range.start.max(*from), range.end.min(from + bytes.len() as u64));
            if start >= end || (start, end) == (range.start, range.end) {
                break;
            }
            joined.extend_from_slice(&bytes[(start - from) as usize..(end - from) as usize]);
        }
        if !joined.is_empty() {
            parts.push((range.start, joined.freeze()));
        }
    }
    // A frame comes behind the part that begins where it does.
    parts.sort_by_key(|(from, _)| *from);
}

/// The ranges of the object to read for these payload bytes, without the parts at hand.
fn missing_ranges(
    index: &ContainerIndex,
    wanted: &[std::ops::Range<u32>],
    parts: &[(u64, Bytes)],
) -> Vec<std::ops::Range<u64>> {
    let is_known = |range: &std::ops::Range<u64>| {
        let has = |(from, bytes): &(u64, Bytes)| *from <= range.start && range.end <= from + bytes.len() as u64;
        parts.iter().any(has)
    };
    let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
    for wanted in wanted {
        for frame in index.frames_of(wanted) {
            let range = frame.object_range();
            if is_known(&range) {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if range.start <= last.end + GAP_MAX => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
    }
    ranges
}

/// The end of a container's object, with its tables.
struct Tail {
    index: ContainerIndex,
    bytes: Bytes,
    object_len: u64,
    bytes_read: u64,
    requests: u32,
}
