//! Making a container: frames are sealed anywhere and in any order, then put together in theirs.

use super::read::locate_frames;
use super::tables::{encode_chunks, encode_frames, payload_len};
use super::{CHUNKS, ChunkEntry, FRAME_MAX, FRAMES, FrameEntry, MAGIC, OBJECT_MAX, TRAILER, TRAILER_LEN};
use crate::compress::{Codec, Compressor};
use crate::ids::ContainerId;
use crate::seal::{Keys, TAG_LEN};
use crate::wire::{EncodeError, Put};

/// A frame ready to be put into its container.
#[derive(Debug)]
pub struct SealedFrame {
    /// Its row in the frame table.
    pub entry: FrameEntry,
    /// Ciphertext and tag.
    pub bytes: Vec<u8>,
}

/// A frame's bytes as they were once compressed, not sealed, for moving them unchanged to another
/// container.
#[derive(Debug)]
pub struct CompressedFrame {
    /// How they were compressed.
    pub codec: Codec,
    /// The size of the chunks without compression.
    pub raw_len: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Seals the `number`-th frame of a container, which is compressed already. The caller must know
/// that it opens and which chunks it holds: nothing here looks inside. Refuses frames that are
/// empty or larger than [`FRAME_MAX`].
pub fn seal_compressed(
    keys: &Keys,
    id: ContainerId,
    number: u32,
    frame: CompressedFrame,
) -> Result<SealedFrame, EncodeError> {
    let CompressedFrame { codec, raw_len, mut bytes } = frame;
    if raw_len == 0 || raw_len as usize > FRAME_MAX {
        return Err(EncodeError::new("frame", "it is empty or larger than a reader accepts"));
    }
    keys.container(id).seal(u64::from(number), &MAGIC, &mut bytes, 0);
    let entry = FrameEntry { codec, raw_len, sealed_len: EncodeError::fit_u32("frame", bytes.len())? };
    Ok(SealedFrame { entry, bytes })
}

/// Compresses and seals the `number`-th frame of a container. Pure: frames of one container can be
/// sealed by several threads. Refuses frames that are empty or larger than [`FRAME_MAX`].
pub fn seal_frame(
    keys: &Keys,
    id: ContainerId,
    number: u32,
    raw: &[u8],
    compressor: &mut Compressor,
) -> Result<SealedFrame, EncodeError> {
    if raw.is_empty() || raw.len() > FRAME_MAX {
        return Err(EncodeError::new("frame", "it is empty or larger than a reader accepts"));
    }
    let mut bytes = Vec::new();
    let codec = compressor.compress(raw, &mut bytes);
    let raw_len = EncodeError::fit_u32("frame", raw.len())?;
    let mut sealed = seal_compressed(keys, id, number, CompressedFrame { codec, raw_len, bytes })?;
    // Frames wait for their container; the room that compression did not need must not wait with
    // them.
    sealed.bytes.shrink_to_fit();
    Ok(sealed)
}

/// Bytes of a chunk in the chunk table, at most.
const ENTRY_ROOM: usize = 37;
/// Bytes of the frame table of any usual container, and of both tables' tags.
const FRAME_TABLE_ROOM: usize = 4096;

/// Puts frames together and closes the container with its tables.
#[derive(Debug)]
pub struct ContainerBuilder {
    id: ContainerId,
    object: Vec<u8>,
    frames: Vec<FrameEntry>,
}

impl ContainerBuilder {
    /// An empty container.
    pub fn new(id: ContainerId) -> Self {
        Self::with_room(id, 0, 0)
    }

    /// The same, with room for frames of this many bytes in all and a table of this many chunks.
    pub fn with_room(id: ContainerId, frames: usize, chunks: usize) -> Self {
        // There are too few frames for their own table to matter.
        let tables = chunks * ENTRY_ROOM + TRAILER_LEN + FRAME_TABLE_ROOM;
        Self { id, object: Vec::with_capacity(if frames == 0 { 0 } else { frames + tables }), frames: Vec::new() }
    }

    /// Appends the next frame: the `number` it was sealed with is the count of frames before it.
    pub fn push_frame(&mut self, frame: &SealedFrame) {
        self.object.extend_from_slice(&frame.bytes);
        self.frames.push(frame.entry);
    }

    /// Bytes so far.
    pub fn object_len(&self) -> usize {
        self.object.len()
    }

    /// Appends the tables. `chunks` must be exactly the chunks of the frames, in order, and no more
    /// than a container may hold. Anything else is refused.
    pub fn finish(mut self, keys: &Keys, chunks: &[ChunkEntry]) -> Result<Vec<u8>, EncodeError> {
        const WHAT: &str = "container";
        // These are the reader's own checks: otherwise, an error would be found when it is too
        // late.
        let payload_len = payload_len(chunks)?;
        locate_frames(&self.frames, chunks)?;
        if chunks.iter().any(|chunk| chunk.size == 0) {
            return Err(EncodeError::new(WHAT, "a chunk has no bytes"));
        }
        let (chunk_count, frame_count) =
            (EncodeError::fit_u32(WHAT, chunks.len())?, EncodeError::fit_u32(WHAT, self.frames.len())?);
        let sealer = keys.container(self.id);
        let mut append = |table: Vec<u8>, number: u64| {
            let from = self.object.len();
            self.object.extend_from_slice(&table);
            sealer.seal(number, &MAGIC, &mut self.object, from);
            EncodeError::fit_u32(WHAT, self.object.len() - from)
        };
        let chunk_table_len = append(encode_chunks(chunks), CHUNKS)?;
        let frame_table_len = append(encode_frames(&self.frames), FRAMES)?;
        let from = self.object.len();
        if (from + TRAILER_LEN) as u64 > OBJECT_MAX {
            return Err(EncodeError::new(WHAT, "it is longer than a reader accepts"));
        }
        let out = &mut self.object;
        out.put_u32(chunk_count);
        out.put_u32(frame_count);
        out.put_u32(chunk_table_len);
        out.put_u32(frame_table_len);
        out.put_u32(payload_len);
        out.put_u64((from + TRAILER_LEN) as u64);
        sealer.seal(TRAILER, &MAGIC, out, from);
        debug_assert_eq!(out.len() - from, TRAILER_LEN - MAGIC.len());
        out.extend_from_slice(&MAGIC);
        Ok(self.object)
    }
}

const _: () = assert!(super::TRAILER_PLAIN + TAG_LEN + 4 == TRAILER_LEN);
