//! Copying chunks from container to container: read container by container, written in the order asked for.
//!
//! Where all chunks of a frame are asked for one after the other, the frame is copied as it was compressed: opened, decompressed to
//! prove every chunk in it, and sealed anew under its new container's key. Compressing takes most of a copy's time.

use std::collections::BTreeMap;
use std::ops::Range;

use futures::StreamExt;
use larder_format::compress::Decompressor;
use larder_format::container::{CompressedFrame, FRAME_TARGET, FrameLocation};
use larder_format::ids::ContainerId;
use larder_format::manifest::Manifest;
use larder_format::{ChunkRef, DecodeError, names};
use larder_store::RepositoryError;
use larder_store::container_reader::OpenContainer;

use super::{Relayout, RelayoutError};
use crate::version::is_missing;

/// Containers read at once.
const CONCURRENT_READS: usize = 4;

/// Bytes of a frame, uncompressed, that is copied as it is.
const WHOLE_FRAME_MIN: u32 = (FRAME_TARGET / 2) as u32;
const WHOLE_FRAME_MAX: u32 = 2 * FRAME_TARGET as u32;

/// Chunks that come one after the other and fit into so many bytes together. One that does not fit alone is alone.
pub(super) fn batches<T>(
    chunks: &[T],
    bytes_max: usize,
    chunk: impl Fn(&T) -> &ChunkRef,
) -> impl Iterator<Item = &[T]> {
    let mut rest = chunks;
    std::iter::from_fn(move || {
        let mut bytes = 0usize;
        let fits = |item: &&T| {
            bytes = bytes.saturating_add(chunk(item).size as usize);
            bytes <= bytes_max
        };
        let (batch, later) = rest.split_at_checked(rest.iter().take_while(fits).count().max(1))?;
        rest = later;
        Some(batch)
    })
}

impl Relayout {
    /// Copies chunks into new data containers, in the order given; says where each of them is now.
    ///
    /// Each is checked against its fingerprint first. Reads every container once for so many chunks as memory holds.
    pub fn copy(&mut self, chunks: &[ChunkRef]) -> Result<Vec<ChunkRef>, RelayoutError> {
        let mut copies = Vec::with_capacity(chunks.len());
        for named in batches(chunks, self.batch_bytes(), |chunk| chunk) {
            self.stop_if_asked()?;
            let mut batch = named.to_vec();
            self.place(&mut batch)?;
            let contents = loop {
                match self.read_batch(&batch, Wanted::Frames) {
                    // Somebody may have moved it.
                    Err(RelayoutError::Repository(error))
                        if is_missing(&error) && self.chunks.moved().learn(missing_of(&error))? =>
                    {
                        // From where they are named: where they were a moment ago means nothing.
                        batch.copy_from_slice(named);
                        self.place(&mut batch)?;
                    }
                    contents => break contents?,
                }
            };
            self.write(&batch, contents, &mut copies)?;
        }
        Ok(copies)
    }

    /// Appends what was read to the containers that are open.
    fn write(
        &mut self,
        batch: &[ChunkRef],
        mut contents: Contents,
        copies: &mut Vec<ChunkRef>,
    ) -> Result<(), RelayoutError> {
        let mut place = 0;
        while let Some(chunk) = batch.get(place) {
            match contents.frames.remove(&place) {
                Some(Frame { chunks, compressed }) => {
                    self.whole_bytes += u64::from(compressed.raw_len);
                    copies.extend(self.data.push_frame(&batch[place..place + chunks], compressed)?);
                    place += chunks;
                }
                None => {
                    copies.push(self.data.push(chunk.fingerprint, contents.chunk(place, chunk))?);
                    place += 1;
                }
            }
        }
        self.give_back(contents);
        Ok(())
    }

    /// The next batch takes the memory of this one.
    pub(super) fn give_back(&self, contents: Contents) {
        self.spare.set(contents.bytes);
    }

    /// Chunks are named from now on as this version of the layout `lifecycle` and those like it do.
    pub fn reads_names(&mut self, manifest: &Manifest) {
        self.has_names = true;
        self.chunks.moved().expect(manifest.containers.iter().map(|usage| usage.container));
    }

    /// Sets chunks to where they are now, as far as that is known.
    pub(super) fn place(&self, chunks: &mut [ChunkRef]) -> Result<(), RelayoutError> {
        match self.has_names {
            true => self.chunks.moved().place(chunks)?,
            false => self.chunks.moved().lead_on(chunks)?,
        }
        Ok(())
    }

    /// Reads these chunks, and computes their fingerprints again.
    pub(super) fn read_batch(&self, batch: &[ChunkRef], wanted: Wanted) -> Result<Contents, RelayoutError> {
        let mut by_container: BTreeMap<ContainerId, Vec<usize>> = BTreeMap::new();
        for (place, chunk) in batch.iter().enumerate() {
            by_container.entry(chunk.container).or_default().push(place);
        }
        for places in by_container.values_mut() {
            places.sort_unstable_by_key(|place| (batch[*place].offset, *place));
        }
        let mut contents = Contents {
            bytes: if wanted == Wanted::Nothing { Vec::new() } else { self.spare.take() },
            starts: vec![0; batch.len()],
            frames: BTreeMap::new(),
        };
        contents.bytes.clear();
        let repository = self.context.repository.clone();
        let reads = by_container.iter().map(|(id, places)| {
            let ranges: Vec<Range<u32>> = places.iter().map(|place| range_of(&batch[*place])).collect();
            let repository = &repository;
            async move { repository.read_container_frames(*id, &ranges).await }
        });
        let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
        let mut opener = Opener::default();
        for places in by_container.values() {
            let Some(container) = self.context.runtime.block_on(reads.next()) else { break };
            let container = container?;
            let mut places = places.as_slice();
            while let Some(first) = places.first() {
                let chunk = &batch[*first];
                let frame = container.index.frame_at(chunk.offset);
                let frame = *frame.ok_or_else(|| damaged(chunk, "it lies outside of its container"))?;
                let end = frame.payload_range().end;
                let (here, rest) = places.split_at(places.partition_point(|place| batch[*place].offset < end));
                opener.open(&repository, &container, &frame)?;
                for place in here {
                    let bytes = opener.chunk(&frame, &batch[*place])?;
                    if self.fingerprinter.one(bytes) != batch[*place].fingerprint {
                        return Err(damaged(&batch[*place], "the bytes there have another fingerprint").into());
                    }
                }
                if wanted == Wanted::Frames && is_whole(batch, here, &frame) {
                    // All that these bytes decompress to has just been proved right, so they are right for the copy.
                    let bytes = std::mem::take(&mut opener.compressed);
                    let compressed = CompressedFrame { codec: frame.entry.codec, raw_len: frame.entry.raw_len, bytes };
                    contents.frames.insert(*first, Frame { chunks: here.len(), compressed });
                } else if wanted != Wanted::Nothing {
                    for place in here {
                        contents.starts[*place] = contents.bytes.len();
                        contents.bytes.extend_from_slice(opener.chunk(&frame, &batch[*place])?);
                    }
                }
                places = rest;
            }
        }
        drop(reads);
        Ok(contents)
    }
}

/// What becomes of chunks that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// It was only to be seen whether they are right.
    Nothing,
    /// Their bytes.
    Bytes,
    /// The same, or the frames that hold them and nothing else, as they were compressed.
    Frames,
}

/// Chunks that were read, all of them what they should be.
#[derive(Debug)]
pub(super) struct Contents {
    bytes: Vec<u8>,
    /// By place in the batch.
    starts: Vec<usize>,
    /// By the place of their first chunk. What is in them is not in `bytes`.
    frames: BTreeMap<usize, Frame>,
}

/// A frame of which all chunks are wanted, one after the other.
#[derive(Debug)]
struct Frame {
    chunks: usize,
    compressed: CompressedFrame,
}

impl Contents {
    /// The bytes of the chunk at this place in the batch.
    pub(super) fn chunk(&self, place: usize, chunk: &ChunkRef) -> &[u8] {
        &self.bytes[self.starts[place]..][..chunk.size as usize]
    }
}

fn range_of(chunk: &ChunkRef) -> Range<u32> {
    chunk.offset..chunk.offset.saturating_add(chunk.size)
}

/// Whether a frame is worth keeping as it is: the chunks of it that are wanted are all of it, in its order and with nothing between.
fn is_whole(batch: &[ChunkRef], places: &[usize], frame: &FrameLocation) -> bool {
    // Smaller ones are put together, or frames would become smaller with every move.
    if !(WHOLE_FRAME_MIN..=WHOLE_FRAME_MAX).contains(&frame.entry.raw_len) {
        return false;
    }
    let (mut next, mut after) = (frame.payload_offset, None);
    for place in places {
        if batch[*place].offset != next || after.is_some_and(|after| after != *place) {
            return false;
        }
        next = range_of(&batch[*place]).end;
        after = Some(*place + 1);
    }
    next == frame.payload_range().end
}

/// The container that an error is about.
fn missing_of(error: &RepositoryError) -> Option<ContainerId> {
    match error {
        RepositoryError::Store(error) => names::parse_container(&error.name),
        _ => None,
    }
}

/// Opens frames.
#[derive(Debug, Default)]
struct Opener {
    compressed: Vec<u8>,
    raw: Vec<u8>,
    decompressor: Decompressor,
}

impl Opener {
    fn open(
        &mut self,
        repository: &larder_store::Repository,
        container: &OpenContainer,
        frame: &FrameLocation,
    ) -> Result<(), RepositoryError> {
        container.unseal_frame(repository, frame, &mut self.compressed)?;
        self.raw.resize(frame.entry.raw_len as usize, 0);
        let opened = self.decompressor.decompress_into(frame.entry.codec, &self.compressed, &mut self.raw);
        opened.map_err(|source| RepositoryError::Damaged { name: names::container(container.index.id), source })
    }

    fn chunk(&self, frame: &FrameLocation, chunk: &ChunkRef) -> Result<&[u8], RepositoryError> {
        let from = (chunk.offset - frame.payload_offset) as usize;
        let bytes = self.raw.get(from..from + chunk.size as usize);
        bytes.ok_or_else(|| damaged(chunk, "it lies across the border of a frame"))
    }
}

fn damaged(chunk: &ChunkRef, why: &'static str) -> RepositoryError {
    let source = DecodeError::Invalid { what: "chunk record", why };
    RepositoryError::Damaged { name: names::container(chunk.container), source }
}

#[cfg(test)]
mod tests {
    use larder_format::Fingerprint;
    use larder_format::ids::{ContainerKind, JobId};

    use super::*;

    #[test]
    fn batches_are_full_and_none_is_empty() {
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq: 0 };
        let chunk = |size| ChunkRef { fingerprint: Fingerprint([0; 32]), container, offset: 0, size };
        let chunks = [3, 4, 4, 11, 1, 2, 9, 1].map(chunk);
        let sizes: Vec<Vec<u32>> =
            batches(&chunks, 10, |chunk| chunk).map(|batch| batch.iter().map(|chunk| chunk.size).collect()).collect();
        assert_eq!(sizes, [vec![3, 4], vec![4], vec![11], vec![1, 2], vec![9, 1]]);
        assert_eq!(batches(&[], 10, |chunk| chunk).count(), 0);
    }
}
