//! The chunk table and the frame table of a container.
//!
//! Chunk table: one column after the other.
//!
//! | field        | size      | meaning                                                            |
//! |--------------|-----------|--------------------------------------------------------------------|
//! | version      | 1         | 2                                                                  |
//! | kinds        | 1         | 0: every chunk is [`ChunkKind::Plain`]; 1: a kind byte a chunk follows |
//! | fingerprints | 32 each   |                                                                    |
//! | sizes        | varint each | uncompressed bytes, never 0                                      |
//! | kind bytes   | 1 each    | only when `kinds` is 1                                             |
//!
//! Frame table: version (2), then a row a frame: codec (1 byte), varint uncompressed bytes, varint
//! sealed bytes.

use super::{FRAME_MAX, PAYLOAD_MAX};
use crate::Fingerprint;
use crate::compress::Codec;
use crate::seal::PART_EXTRA;
use crate::wire::{DecodeError, Put, Reader};

/// How a chunk's bytes are to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChunkKind {
    /// The bytes are the chunk. The only kind that exists today; 1 is reserved for deltas against
    /// another chunk.
    Plain = 0,
}

/// One row of the chunk table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Identity of the chunk's bytes.
    pub fingerprint: Fingerprint,
    /// Uncompressed bytes.
    pub size: u32,
    /// How to understand them.
    pub kind: ChunkKind,
}

/// One row of the frame table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameEntry {
    /// How the frame was compressed.
    pub codec: Codec,
    /// Uncompressed bytes.
    pub raw_len: u32,
    /// Bytes in the object, salt and tag included.
    pub sealed_len: u32,
}

pub(super) fn encode_chunks(chunks: &[ChunkEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + chunks.len() * 35);
    out.put_u8(2);
    out.put_u8(0);
    for chunk in chunks {
        out.extend_from_slice(&chunk.fingerprint.0);
    }
    for chunk in chunks {
        out.put_varint(u64::from(chunk.size));
    }
    out
}

pub(super) fn decode_chunks(bytes: &[u8], count: u32) -> Result<Vec<ChunkEntry>, DecodeError> {
    let mut reader = Reader::new(bytes, "chunk table");
    reader.version(2)?;
    if reader.u8()? != 0 {
        return Err(reader.invalid("it holds chunks of a kind this program does not know"));
    }
    let count = count as usize;
    let fingerprints = reader.take(count.checked_mul(32).ok_or(DecodeError::Truncated { what: "chunk table" })?)?;
    let mut chunks = Vec::with_capacity(count);
    for fingerprint in fingerprints.as_chunks::<32>().0 {
        let size = reader.varint_u32()?;
        if size == 0 {
            return Err(reader.invalid("a chunk has no bytes"));
        }
        chunks.push(ChunkEntry { fingerprint: Fingerprint(*fingerprint), size, kind: ChunkKind::Plain });
    }
    reader.finish()?;
    Ok(chunks)
}

pub(super) fn encode_frames(frames: &[FrameEntry]) -> Vec<u8> {
    let mut out = vec![2];
    for frame in frames {
        out.put_u8(frame.codec as u8);
        out.put_varint(u64::from(frame.raw_len));
        out.put_varint(u64::from(frame.sealed_len));
    }
    out
}

pub(super) fn decode_frames(bytes: &[u8], count: u32) -> Result<Vec<FrameEntry>, DecodeError> {
    let mut reader = Reader::new(bytes, "frame table");
    reader.version(2)?;
    if count as usize > reader.remaining() / 3 {
        return Err(DecodeError::Truncated { what: "frame table" });
    }
    let mut frames = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let codec = Codec::from_code(reader.u8()?)?;
        let (raw_len, sealed_len) = (reader.varint_u32()?, reader.varint_u32()?);
        if raw_len == 0 || raw_len as usize > FRAME_MAX || (sealed_len as usize) < PART_EXTRA {
            return Err(reader.invalid("a frame's size is out of bounds"));
        }
        frames.push(FrameEntry { codec, raw_len, sealed_len });
    }
    reader.finish()?;
    Ok(frames)
}

/// Sum of the chunks' sizes, when it is one a container may have.
pub(super) fn payload_len(chunks: &[ChunkEntry]) -> Result<u32, DecodeError> {
    let total: u64 = chunks.iter().map(|chunk| u64::from(chunk.size)).sum();
    u32::try_from(total)
        .ok()
        .filter(|total| *total <= PAYLOAD_MAX)
        .ok_or(DecodeError::invalid("chunk table", "the chunks are larger than a container may be"))
}
