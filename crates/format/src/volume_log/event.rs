//! Events of the log.
//!
//! | event    | code | fields (varints unless a size is given)                                   |
//! |----------|-----:|---------------------------------------------------------------------------|
//! | Frames   |    1 | container, number of the first frame, count of frames; each: codec (1 byte), raw length, sealed length; count of chunks; each: fingerprint (32 bytes), size |
//! | Wrote    |    2 | volume, block, version, bytes of the mapping, the mapping (`volume_map.rs`) |
//! | NextSlot |    3 | slot, salt (16 bytes): the log goes on there                              |
//! | Volume   |    4 | a change of a volume or a snapshot (`change.rs`)                          |

use super::{SlotUse, VolumeChange, WHAT};
use crate::Fingerprint;
use crate::compress::Codec;
use crate::container::{ChunkEntry, ChunkKind, FRAME_MAX, FrameEntry};
use crate::seal::PART_EXTRA;
use crate::volume_map::Mapping;
use crate::wire::{DecodeError, EncodeError, Put, Reader};

/// Frames were appended to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramesEvent {
    /// Number of the container.
    pub container: u32,
    /// Frames that it had before.
    pub first: u32,
    /// The frames.
    pub frames: Vec<FrameEntry>,
    /// All chunks of them, in order.
    pub chunks: Vec<ChunkEntry>,
}

/// One change of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Frames were appended to a container.
    Frames(FramesEvent),
    /// A block has a new content.
    Wrote {
        /// Number of the volume.
        volume: u32,
        /// Number of the block in the volume.
        block: u64,
        /// Later versions of a block have larger numbers.
        version: u64,
        /// The content.
        mapping: Mapping,
    },
    /// The log goes on in another slot. The last event of its slot.
    NextSlot(SlotUse),
    /// A volume or a snapshot changed.
    Volume(VolumeChange),
}

impl Event {
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Frames(frames) => {
                out.put_u8(1);
                out.put_varint(u64::from(frames.container));
                out.put_varint(u64::from(frames.first));
                out.put_varint(frames.frames.len() as u64);
                for frame in &frames.frames {
                    out.put_u8(frame.codec as u8);
                    out.put_varint(u64::from(frame.raw_len));
                    out.put_varint(u64::from(frame.sealed_len));
                }
                out.put_varint(frames.chunks.len() as u64);
                for chunk in &frames.chunks {
                    out.extend_from_slice(&chunk.fingerprint.0);
                    out.put_varint(u64::from(chunk.size));
                }
            }
            Self::Wrote { volume, block, version, mapping } => {
                out.put_u8(2);
                out.put_varint(u64::from(*volume));
                out.put_varint(*block);
                out.put_varint(*version);
                let mut bytes = Vec::new();
                mapping.encode(&mut bytes)?;
                out.put_bytes(&bytes);
            }
            Self::NextSlot(next) => {
                out.put_u8(3);
                out.put_varint(u64::from(next.slot));
                out.extend_from_slice(&next.salt);
            }
            Self::Volume(change) => {
                out.put_u8(4);
                change.encode(out)?;
            }
        }
        Ok(())
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            1 => Self::Frames(decode_frames(reader)?),
            2 => Self::Wrote {
                volume: reader.varint_u32()?,
                block: reader.varint()?,
                version: reader.varint()?,
                mapping: Mapping::decode(reader.bytes()?)?,
            },
            3 => Self::NextSlot(SlotUse { slot: reader.varint_u32()?, salt: reader.array()? }),
            4 => Self::Volume(VolumeChange::decode(reader)?),
            _ => return Err(DecodeError::invalid(WHAT, "it holds an unknown event")),
        })
    }
}

fn decode_frames(reader: &mut Reader<'_>) -> Result<FramesEvent, DecodeError> {
    let (container, first) = (reader.varint_u32()?, reader.varint_u32()?);
    let count = reader.count(3)?;
    let mut frames = Vec::with_capacity(count);
    for _ in 0..count {
        let codec = Codec::from_code(reader.u8()?)?;
        let (raw_len, sealed_len) = (reader.varint_u32()?, reader.varint_u32()?);
        if raw_len == 0 || raw_len as usize > FRAME_MAX || (sealed_len as usize) < PART_EXTRA {
            return Err(reader.invalid("a frame's size is out of bounds"));
        }
        frames.push(FrameEntry { codec, raw_len, sealed_len });
    }
    let count = reader.count(33)?;
    let mut chunks = Vec::with_capacity(count);
    for _ in 0..count {
        let (fingerprint, size) = (Fingerprint(reader.array()?), reader.varint_u32()?);
        if size == 0 {
            return Err(reader.invalid("a chunk has no bytes"));
        }
        chunks.push(ChunkEntry { fingerprint, size, kind: ChunkKind::Plain });
    }
    let raw: u64 = frames.iter().map(|frame| u64::from(frame.raw_len)).sum();
    if raw != chunks.iter().map(|chunk| u64::from(chunk.size)).sum::<u64>() {
        return Err(reader.invalid("its frames do not hold its chunks"));
    }
    Ok(FramesEvent { container, first, frames, chunks })
}
