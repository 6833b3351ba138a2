//! Reading a container: its tables from the tail, then whichever frames are needed.

use std::ops::Range;

use super::sealing::{FrameOpener, WRAP_LEN, part_aad, tables};
use super::tables::{decode_chunks, decode_frames, payload_len};
use super::{CHUNKS, ChunkEntry, ChunkRef, END_LEN, FRAMES, FrameEntry, MAGIC, OBJECT_MAX, PADDING, TRAILER, end_len};
use crate::compress::Decompressor;
use crate::ids::{ContainerId, ContainerKind, DomainId};
use crate::keys::Keys;
use crate::seal::{PART_EXTRA, PartKeys, SALT_LEN, only_zeros};
use crate::wire::{DEVELOPMENT, DecodeError, Reader};

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
    opener: FrameOpener,
    /// The domain of the job that wrote it.
    pub domain: DomainId,
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

/// The end of a container, opened.
struct Trailer {
    domain: DomainId,
    wrap: Option<Box<[u8; WRAP_LEN]>>,
    tables: PartKeys,
    chunk_count: u32,
    frame_count: u32,
    chunk_table_len: u32,
    frame_table_len: u32,
    payload_len: u32,
    pad_len: u32,
    object_len: u64,
}

impl Trailer {
    /// Bytes of both tables.
    fn tables_len(&self) -> u64 {
        u64::from(self.chunk_table_len) + u64::from(self.frame_table_len)
    }
}

fn decode_trailer(keys: &Keys, id: ContainerId, tail: &[u8], object_len: u64) -> Result<Trailer, DecodeError> {
    const WHAT: &str = "container trailer";
    let cut = || DecodeError::Truncated { what: WHAT };
    let (rest, found) = tail.split_last_chunk::<4>().ok_or_else(cut)?;
    if *found != MAGIC && found[..3] != MAGIC[..3] {
        return Err(DecodeError::BadMagic { what: "container", found: *found });
    }
    let open = || {
        let (rest, domain) = rest.split_last_chunk::<16>().ok_or_else(cut)?;
        let domain = DomainId(*domain);
        let from = rest.len().checked_sub(END_LEN - MAGIC.len() - domain.0.len()).ok_or_else(cut)?;
        let (rest, sealed) = rest.split_at(from);
        let wrap = match id.kind {
            ContainerKind::Meta => None,
            ContainerKind::Data => Some(Box::new(*rest.last_chunk().ok_or_else(cut)?)),
        };
        let tables = tables(keys, id, domain)?;
        let mut sealed = sealed.to_vec();
        let aad = [wrap.as_ref().map_or(&[][..], |wrap| &wrap[..]), &part_aad(domain)].concat();
        let plain = tables.open(TRAILER, &aad, &mut sealed, WHAT)?;
        let mut reader = Reader::new(plain, WHAT);
        let trailer = Trailer {
            domain,
            wrap,
            tables,
            chunk_count: reader.u32()?,
            frame_count: reader.u32()?,
            chunk_table_len: reader.u32()?,
            frame_table_len: reader.u32()?,
            payload_len: reader.u32()?,
            pad_len: reader.u32()?,
            object_len: reader.u64()?,
        };
        reader.finish()?;
        Ok(trailer)
    };
    if *found != MAGIC {
        // If it opens as a trailer of this version, it is one, and only this byte of it is damaged.
        return Err(match found[3] {
            DEVELOPMENT if open().is_err() => DecodeError::Development { what: "container" },
            version if version > MAGIC[3] && open().is_err() => {
                DecodeError::UnsupportedVersion { what: "container", found: version, newest: MAGIC[3] }
            }
            _ => DecodeError::BadMagic { what: "container", found: *found },
        });
    }
    let trailer = open()?;
    if object_len > OBJECT_MAX {
        return Err(DecodeError::invalid("container", "it is longer than a reader accepts"));
    }
    if trailer.object_len != object_len {
        return Err(DecodeError::invalid("container", "its length is not what its trailer says"));
    }
    if trailer.pad_len != 0 && (trailer.pad_len as usize) < PART_EXTRA {
        return Err(DecodeError::invalid("container", "its padding is shorter than any sealed part"));
    }
    // A caller that asks for `tail_len` bytes subtracts it from the object's length.
    if trailer.tables_len() + end_len(id.kind) as u64 > object_len {
        return Err(DecodeError::invalid("container", "its tables are longer than it is"));
    }
    Ok(trailer)
}

impl ContainerIndex {
    /// How many bytes at the end of the object [`ContainerIndex::decode`] needs, from a tail of at
    /// least [`TRAILER_LEN`](super::TRAILER_LEN), or of all bytes if there are fewer.
    pub fn tail_len(keys: &Keys, id: ContainerId, tail: &[u8], object_len: u64) -> Result<usize, DecodeError> {
        let trailer = decode_trailer(keys, id, tail, object_len)?;
        Ok(trailer.chunk_table_len as usize + trailer.frame_table_len as usize + end_len(id.kind))
    }

    /// Reads the tables from the end of the object (or from the whole of it). `object_len` is the
    /// length that the store reports. Padding is checked if its bytes are there.
    pub fn decode(keys: &Keys, id: ContainerId, tail: &[u8], object_len: u64) -> Result<Self, DecodeError> {
        let trailer = decode_trailer(keys, id, tail, object_len)?;
        let aad = part_aad(trailer.domain);
        let before = tail.len() - end_len(id.kind).min(tail.len());
        let part = |from_end: usize, len: u32, number: u64, what: &'static str| {
            let end = before.checked_sub(from_end).ok_or(DecodeError::Truncated { what })?;
            let start = end.checked_sub(len as usize).ok_or(DecodeError::Truncated { what })?;
            let mut sealed = tail[start..end].to_vec();
            Ok(trailer.tables.open(number, &aad, &mut sealed, what)?.to_vec())
        };
        let frame_table = part(0, trailer.frame_table_len, FRAMES, "frame table")?;
        let chunk_table = part(trailer.frame_table_len as usize, trailer.chunk_table_len, CHUNKS, "chunk table")?;
        let tables_len = trailer.frame_table_len as usize + trailer.chunk_table_len as usize;
        if trailer.pad_len > 0 && before >= tables_len + trailer.pad_len as usize {
            only_zeros(&part(tables_len, trailer.pad_len, PADDING, "padding")?, "container")?;
        }
        let chunks = decode_chunks(&chunk_table, trailer.chunk_count)?;
        let rows = decode_frames(&frame_table, trailer.frame_count)?;
        if payload_len(&chunks)? != trailer.payload_len {
            return Err(DecodeError::invalid("chunk table", "its sizes do not add up to the payload"));
        }
        let frames = locate_frames(&rows, &chunks)?;
        let end = frames.last().map_or(0, |frame| frame.object_range().end);
        if end + u64::from(trailer.pad_len) + trailer.tables_len() + end_len(id.kind) as u64 != object_len {
            return Err(DecodeError::invalid("frame table", "its sizes do not add up to the object"));
        }
        let Trailer { domain, wrap, payload_len, .. } = trailer;
        let opener = FrameOpener::new(id, domain, wrap);
        Ok(Self { id, chunks, frames, opener, domain, object_len, payload_len })
    }

    /// What opens its frames.
    pub fn opener(&self) -> &FrameOpener {
        &self.opener
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

impl FrameOpener {
    /// Opens one frame as it was compressed: `sealed`, the object's bytes at
    /// [`FrameLocation::object_range`], becomes these bytes.
    pub fn unseal_frame(&self, keys: &Keys, frame: &FrameLocation, sealed: &mut Vec<u8>) -> Result<(), DecodeError> {
        let plain = self.open(keys, frame.number, sealed)?;
        let (from, len) = (SALT_LEN, plain.len());
        sealed.copy_within(from..from + len, 0);
        sealed.truncate(len);
        Ok(())
    }

    /// Opens one frame: `sealed` is the object's bytes at [`FrameLocation::object_range`], used as
    /// scratch; `raw` receives the payload bytes and must be `raw_len` long.
    pub fn open_frame(
        &self,
        keys: &Keys,
        frame: &FrameLocation,
        sealed: &mut [u8],
        raw: &mut [u8],
        decompressor: &mut Decompressor,
    ) -> Result<(), DecodeError> {
        let plain = self.open(keys, frame.number, sealed)?;
        decompressor.decompress_into(frame.entry.codec, plain, raw)
    }
}
