//! Reading a container: its tables from the tail, then whichever frames are needed.

use std::ops::Range;

use super::tables::{decode_chunks, decode_frames, payload_len};
use super::{CHUNKS, ChunkEntry, ChunkRef, FRAMES, FrameEntry, MAGIC, OBJECT_MAX, TRAILER, TRAILER_LEN};
use crate::compress::Decompressor;
use crate::ids::ContainerId;
use crate::seal::Keys;
use crate::wire::{DecodeError, Reader};

/// Bytes of the tail to read first: holds the tables of a container of 4 KiB chunks at the default
/// target in most cases.
pub const TAIL_GUESS: usize = 192 << 10;

/// The tables of a container, checked against each other.
#[derive(Debug, Clone)]
pub struct ContainerIndex {
    /// Which container.
    pub id: ContainerId,
    /// All chunks, in payload order.
    pub chunks: Vec<ChunkEntry>,
    frames: Vec<FrameLocation>,
    /// Bytes of the whole object.
    pub object_len: u64,
    /// Uncompressed bytes of all chunks.
    pub payload_len: u32,
}

/// A frame: its place in the object and in the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLocation {
    /// The number it was sealed with.
    pub number: u32,
    /// Its row in the frame table.
    pub entry: FrameEntry,
    /// Byte offset in the object.
    pub object_offset: u64,
    /// Byte offset of its first chunk in the payload.
    pub payload_offset: u32,
}

impl FrameLocation {
    /// The bytes of the object that hold this frame.
    pub fn object_range(&self) -> Range<u64> {
        self.object_offset..self.object_offset + u64::from(self.entry.sealed_len)
    }

    /// The bytes of the payload that this frame holds.
    pub fn payload_range(&self) -> Range<u32> {
        self.payload_offset..self.payload_offset + self.entry.raw_len
    }
}

struct Trailer {
    chunk_count: u32,
    frame_count: u32,
    chunk_table_len: u32,
    frame_table_len: u32,
    payload_len: u32,
    object_len: u64,
}

fn decode_trailer(keys: &Keys, id: ContainerId, tail: &[u8], object_len: u64) -> Result<Trailer, DecodeError> {
    const WHAT: &str = "container trailer";
    let (rest, found) = tail.split_last_chunk::<4>().ok_or(DecodeError::Truncated { what: WHAT })?;
    let sealer = keys.container(id);
    let sealed = || rest.len().checked_sub(TRAILER_LEN - MAGIC.len()).map(|from| rest[from..].to_vec());
    if *found != MAGIC {
        // If it opens as a trailer of this version, it is one, and only this byte of it is damaged.
        let is_ours = || sealed().is_some_and(|mut sealed| sealer.open(TRAILER, &MAGIC, &mut sealed, WHAT).is_ok());
        return Err(match found {
            [b'L', b'C', b'T', version] if *version > MAGIC[3] && !is_ours() => {
                DecodeError::UnsupportedVersion { what: "container", found: *version, newest: MAGIC[3] }
            }
            _ => DecodeError::BadMagic { what: "container", found: *found },
        });
    }
    let mut sealed = sealed().ok_or(DecodeError::Truncated { what: WHAT })?;
    let plain = sealer.open(TRAILER, &MAGIC, &mut sealed, WHAT)?;
    let mut reader = Reader::new(plain, WHAT);
    let trailer = Trailer {
        chunk_count: reader.u32()?,
        frame_count: reader.u32()?,
        chunk_table_len: reader.u32()?,
        frame_table_len: reader.u32()?,
        payload_len: reader.u32()?,
        object_len: reader.u64()?,
    };
    reader.finish()?;
    if object_len > OBJECT_MAX {
        return Err(DecodeError::invalid("container", "it is longer than a reader accepts"));
    }
    if trailer.object_len != object_len {
        return Err(DecodeError::invalid("container", "its length is not what its trailer says"));
    }
    // A caller that asks for `tail_len` bytes subtracts it from the object's length.
    let tables_len = u64::from(trailer.chunk_table_len) + u64::from(trailer.frame_table_len);
    if tables_len + TRAILER_LEN as u64 > object_len {
        return Err(DecodeError::invalid("container", "its tables are longer than it is"));
    }
    Ok(trailer)
}

impl ContainerIndex {
    /// How many bytes at the end of the object [`ContainerIndex::decode`] needs, from a tail of at
    /// least [`TRAILER_LEN`].
    pub fn tail_len(keys: &Keys, id: ContainerId, tail: &[u8], object_len: u64) -> Result<usize, DecodeError> {
        let trailer = decode_trailer(keys, id, tail, object_len)?;
        Ok(trailer.chunk_table_len as usize + trailer.frame_table_len as usize + TRAILER_LEN)
    }

    /// Reads the tables from the end of the object (or from the whole of it). `object_len` is the
    /// length that the store reports.
    pub fn decode(keys: &Keys, id: ContainerId, tail: &[u8], object_len: u64) -> Result<Self, DecodeError> {
        let trailer = decode_trailer(keys, id, tail, object_len)?;
        let tables = &tail[..tail.len() - TRAILER_LEN];
        let table = |from_end: usize, len: u32, number: u64, what: &'static str| {
            let end = tables.len().checked_sub(from_end).ok_or(DecodeError::Truncated { what })?;
            let start = end.checked_sub(len as usize).ok_or(DecodeError::Truncated { what })?;
            let mut sealed = tables[start..end].to_vec();
            let plain_len = keys.container(id).open(number, &MAGIC, &mut sealed, what)?.len();
            sealed.truncate(plain_len);
            Ok(sealed)
        };
        let frame_table = table(0, trailer.frame_table_len, FRAMES, "frame table")?;
        let chunk_table = table(trailer.frame_table_len as usize, trailer.chunk_table_len, CHUNKS, "chunk table")?;
        let chunks = decode_chunks(&chunk_table, trailer.chunk_count)?;
        let rows = decode_frames(&frame_table, trailer.frame_count)?;
        if payload_len(&chunks)? != trailer.payload_len {
            return Err(DecodeError::invalid("chunk table", "its sizes do not add up to the payload"));
        }
        let frames = locate_frames(&rows, &chunks)?;
        let end = frames.last().map_or(0, |frame| frame.object_range().end);
        let tables_len = u64::from(trailer.chunk_table_len) + u64::from(trailer.frame_table_len);
        if end + tables_len + TRAILER_LEN as u64 != object_len {
            return Err(DecodeError::invalid("frame table", "its sizes do not add up to the object"));
        }
        Ok(Self { id, chunks, frames, object_len, payload_len: trailer.payload_len })
    }

    /// All frames, in order.
    pub fn frames(&self) -> &[FrameLocation] {
        &self.frames
    }

    /// The frame that holds the payload byte at `offset`.
    pub fn frame_at(&self, offset: u32) -> Option<&FrameLocation> {
        frame_at(&self.frames, offset)
    }

    /// The frames that hold any byte of a range of the payload.
    pub fn frames_of(&self, payload: &Range<u32>) -> &[FrameLocation] {
        let first = self.frames.partition_point(|frame| frame.payload_range().end <= payload.start);
        let last = self.frames.partition_point(|frame| frame.payload_offset < payload.end);
        self.frames.get(first..last).unwrap_or_default()
    }

    /// Every chunk with its place.
    pub fn chunk_refs(&self) -> impl Iterator<Item = ChunkRef> + '_ {
        let mut offset = 0;
        self.chunks.iter().map(move |chunk| {
            let place = ChunkRef { fingerprint: chunk.fingerprint, container: self.id, offset, size: chunk.size };
            offset += chunk.size;
            place
        })
    }
}

/// Gives every frame its offsets and checks that frames hold whole chunks.
pub(super) fn locate_frames(rows: &[FrameEntry], chunks: &[ChunkEntry]) -> Result<Vec<FrameLocation>, DecodeError> {
    let uneven = DecodeError::invalid("frame table", "a chunk does not lie in one frame");
    let mut frames = Vec::with_capacity(rows.len());
    let mut chunks = chunks.iter();
    let (mut object_offset, mut payload_offset) = (0u64, 0u32);
    for (number, entry) in rows.iter().enumerate() {
        let number = u32::try_from(number).map_err(|_| uneven.clone())?;
        frames.push(FrameLocation { number, entry: *entry, object_offset, payload_offset });
        let mut left = entry.raw_len;
        while left > 0 {
            let chunk = chunks.next().ok_or(uneven.clone())?;
            left = left.checked_sub(chunk.size).ok_or(uneven.clone())?;
        }
        // The caller has bounded the sum of the chunks by PAYLOAD_MAX, and the frames hold exactly
        // chunks.
        payload_offset += entry.raw_len;
        object_offset += u64::from(entry.sealed_len);
    }
    if chunks.next().is_some() { Err(uneven) } else { Ok(frames) }
}

/// Of the frames of a container, in payload order, the one that holds the payload byte at `offset`.
pub fn frame_at(frames: &[FrameLocation], offset: u32) -> Option<&FrameLocation> {
    let after = frames.partition_point(|frame| frame.payload_offset <= offset);
    frames[..after].last().filter(|frame| offset < frame.payload_range().end)
}

/// Opens one frame as it was compressed: `sealed`, the object's bytes at
/// [`FrameLocation::object_range`], becomes these bytes.
pub fn unseal_frame(
    keys: &Keys,
    id: ContainerId,
    frame: &FrameLocation,
    sealed: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let len = keys.container(id).open(u64::from(frame.number), &MAGIC, sealed, "frame")?.len();
    sealed.truncate(len);
    Ok(())
}

/// Opens one frame: `sealed` is the object's bytes at [`FrameLocation::object_range`], used as
/// scratch; `raw` receives the payload bytes and must be `raw_len` long.
pub fn open_frame(
    keys: &Keys,
    id: ContainerId,
    frame: &FrameLocation,
    sealed: &mut [u8],
    raw: &mut [u8],
    decompressor: &mut Decompressor,
) -> Result<(), DecodeError> {
    let plain = keys.container(id).open(u64::from(frame.number), &MAGIC, sealed, "frame")?;
    decompressor.decompress_into(frame.entry.codec, plain, raw)
}
