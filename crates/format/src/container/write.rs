//! Making a container: frames are sealed anywhere and in any order, then put together in theirs.

use super::tables::{encode_chunks, encode_frames};
use super::{CHUNKS, ChunkEntry, FRAMES, FrameEntry, MAGIC, TRAILER, TRAILER_LEN};
use crate::compress::Compressor;
use crate::ids::ContainerId;
use crate::seal::{Keys, TAG_LEN};
use crate::wire::Put;

/// A frame ready to be put into its container.
#[derive(Debug)]
pub struct SealedFrame {
    /// Its row in the frame table.
    pub entry: FrameEntry,
    /// Ciphertext and tag.
    pub bytes: Vec<u8>,
}

/// Compresses and seals the `number`-th frame of a container. Pure: frames of one container can be sealed by several threads.
pub fn seal_frame(keys: &Keys, id: ContainerId, number: u32, raw: &[u8], compressor: &mut Compressor) -> SealedFrame {
    let mut bytes = Vec::new();
    let codec = compressor.compress(raw, &mut bytes);
    keys.container(id).seal(u64::from(number), &MAGIC, &mut bytes, 0);
    // Frames wait for their container; the room that compression did not need must not wait with them.
    bytes.shrink_to_fit();
    let entry = FrameEntry { codec, raw_len: raw.len() as u32, sealed_len: bytes.len() as u32 };
    SealedFrame { entry, bytes }
}

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
        Self { id, object: Vec::new(), frames: Vec::new() }
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

    /// Appends the tables. `chunks` must be exactly what the frames hold, in order.
    pub fn finish(mut self, keys: &Keys, chunks: &[ChunkEntry]) -> Vec<u8> {
        let payload_len: u64 = chunks.iter().map(|chunk| u64::from(chunk.size)).sum();
        debug_assert_eq!(payload_len, self.frames.iter().map(|frame| u64::from(frame.raw_len)).sum::<u64>());
        let sealer = keys.container(self.id);
        let mut append = |table: Vec<u8>, number: u64| {
            let from = self.object.len();
            self.object.extend_from_slice(&table);
            sealer.seal(number, &MAGIC, &mut self.object, from);
            (self.object.len() - from) as u32
        };
        let chunk_table_len = append(encode_chunks(chunks), CHUNKS);
        let frame_table_len = append(encode_frames(&self.frames), FRAMES);
        let from = self.object.len();
        let out = &mut self.object;
        out.put_u32(chunks.len() as u32);
        out.put_u32(self.frames.len() as u32);
        out.put_u32(chunk_table_len);
        out.put_u32(frame_table_len);
        out.put_u32(payload_len as u32);
        out.put_u64((from + TRAILER_LEN) as u64);
        sealer.seal(TRAILER, &MAGIC, out, from);
        debug_assert_eq!(out.len() - from, TRAILER_LEN - MAGIC.len());
        out.extend_from_slice(&MAGIC);
        self.object
    }
}

const _: () = assert!(super::TRAILER_PLAIN + TAG_LEN + 4 == TRAILER_LEN);
