//! Making a container: frames are sealed anywhere and in any order, then put together in theirs.

use super::read::locate_frames;
use super::sealing::{ContainerSealer, part_aad};
use super::tables::{encode_chunks, encode_frames, payload_len};
use super::{
    CHUNKS, ChunkEntry, FRAME_MAX, FRAMES, FrameEntry, MAGIC, OBJECT_MAX, PADDING, TRAILER, TRAILER_LEN, end_len,
};
use crate::compress::{Codec, Compressor};
use crate::padding::Padding;
use crate::seal::{PART_EXTRA, SALT_LEN};
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
    sealer: &ContainerSealer,
    number: u32,
    frame: CompressedFrame,
) -> Result<SealedFrame, EncodeError> {
    let what = *blake3::hash(&frame.bytes).as_bytes();
    seal_identified(sealer, number, IdentifiedFrame { frame, what })
}

/// A frame's bytes as they were compressed, and what decides them.
#[derive(Debug)]
pub struct IdentifiedFrame {
    frame: CompressedFrame,
    /// A digest of all that decides the bytes.
    what: [u8; 32],
}

impl IdentifiedFrame {
    /// Its row in the frame table, once it is sealed.
    pub fn entry(&self) -> FrameEntry {
        let CompressedFrame { codec, raw_len, bytes } = &self.frame;
        // Frames are bounded far below.
        FrameEntry { codec: *codec, raw_len: *raw_len, sealed_len: (bytes.len() + PART_EXTRA) as u32 }
    }
}

/// Seals the `number`-th frame of a container.
pub fn seal_identified(
    sealer: &ContainerSealer,
    number: u32,
    identified: IdentifiedFrame,
) -> Result<SealedFrame, EncodeError> {
    let IdentifiedFrame { frame: CompressedFrame { codec, raw_len, bytes }, what } = identified;
    seal_bytes(sealer, number, codec, raw_len, &what, &bytes)
}

/// Seals a frame of these compressed bytes, in memory that has room for just that: frames wait for
/// their container.
fn seal_bytes(
    sealer: &ContainerSealer,
    number: u32,
    codec: Codec,
    raw_len: u32,
    what: &[u8; 32],
    compressed: &[u8],
) -> Result<SealedFrame, EncodeError> {
    if raw_len == 0 || raw_len as usize > FRAME_MAX {
        return Err(EncodeError::new("frame", "it is empty or larger than a reader accepts"));
    }
    let number = u64::from(number);
    let salt = sealer.frames.salt(&sealer.random, number, what);
    let mut bytes = Vec::with_capacity(compressed.len() + PART_EXTRA);
    bytes.extend_from_slice(&[0; SALT_LEN]);
    bytes.extend_from_slice(compressed);
    sealer.frames.seal(number, &part_aad(sealer.domain), salt, &mut bytes, 0);
    let entry = FrameEntry { codec, raw_len, sealed_len: EncodeError::fit_u32("frame", bytes.len())? };
    Ok(SealedFrame { entry, bytes })
}

/// Compresses a frame, whose `chunks` are `raw`. Its container and number may still be open.
/// Refuses frames that are empty or larger than [`FRAME_MAX`].
pub fn compress_frame(
    raw: &[u8],
    chunks: &[ChunkEntry],
    compressor: &mut Compressor,
) -> Result<IdentifiedFrame, EncodeError> {
    let (codec, bytes, what) = compress_identified(raw, chunks, compressor)?;
    let raw_len = EncodeError::fit_u32("frame", raw.len())?;
    Ok(IdentifiedFrame { frame: CompressedFrame { codec, raw_len, bytes: bytes.to_vec() }, what })
}

/// The same without a copy of the bytes: codec, bytes, and a digest of all that decides them.
fn compress_identified<'a>(
    raw: &'a [u8],
    chunks: &[ChunkEntry],
    compressor: &'a mut Compressor,
) -> Result<(Codec, &'a [u8], [u8; 32]), EncodeError> {
    if raw.is_empty() || raw.len() > FRAME_MAX {
        return Err(EncodeError::new("frame", "it is empty or larger than a reader accepts"));
    }
    let settings = compressor.settings();
    let (codec, bytes) = compressor.compress(raw);
    // Fingerprints identify the bytes, and settings what compression makes of them: to hash some
    // four kilobytes instead of the frame costs a hundredth.
    let mut what = blake3::Hasher::new();
    chunks.iter().for_each(|chunk| {
        what.update(&chunk.fingerprint.0).update(&chunk.size.to_le_bytes());
    });
    what.update(&settings).update(&[codec as u8]).update(&(bytes.len() as u64).to_le_bytes());
    Ok((codec, bytes, *what.finalize().as_bytes()))
}

/// Compresses and seals the `number`-th frame of a container, whose `chunks` are `raw`. Pure:
/// frames of one container can be sealed by several threads. Refuses frames that are empty or
/// larger than [`FRAME_MAX`].
pub fn seal_frame(
    sealer: &ContainerSealer,
    number: u32,
    raw: &[u8],
    chunks: &[ChunkEntry],
    compressor: &mut Compressor,
) -> Result<SealedFrame, EncodeError> {
    let (codec, bytes, what) = compress_identified(raw, chunks, compressor)?;
    seal_bytes(sealer, number, codec, EncodeError::fit_u32("frame", raw.len())?, &what, bytes)
}

/// Bytes of a chunk in the chunk table, at most.
const ENTRY_ROOM: usize = 37;
/// Bytes of the frame table of any usual container, and of both tables' tags.
const FRAME_TABLE_ROOM: usize = 4096;
/// Bytes of padding of any usual container, at most.
const PADDING_ROOM: usize = 128 << 10;

/// Puts frames together and closes the container with its tables.
#[derive(Debug, Default)]
pub struct ContainerBuilder {
    object: Vec<u8>,
    frames: Vec<FrameEntry>,
}

impl ContainerBuilder {
    /// An empty container.
    pub fn new() -> Self {
        Self::with_room(0, 0)
    }

    /// The same, with room for frames of this many bytes in all and a table of this many chunks.
    pub fn with_room(frames: usize, chunks: usize) -> Self {
        // There are too few frames for their own table to matter.
        let tables = chunks * ENTRY_ROOM + TRAILER_LEN + FRAME_TABLE_ROOM + PADDING_ROOM;
        Self { object: Vec::with_capacity(if frames == 0 { 0 } else { frames + tables }), frames: Vec::new() }
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

    /// Appends padding and tables. `chunks` must be exactly the chunks of the frames, in order, and
    /// no more than a container may hold. Anything else is refused.
    pub fn finish(
        mut self,
        sealer: &ContainerSealer,
        chunks: &[ChunkEntry],
        padding: Padding,
    ) -> Result<Vec<u8>, EncodeError> {
        append_tables(&mut self.object, 0, &self.frames, sealer, chunks, padding)?;
        Ok(self.object)
    }
}

/// The padding and tables of a container whose frames are stored already: the bytes that follow
/// them. `chunks` as for [`ContainerBuilder::finish`].
pub fn seal_tables(
    sealer: &ContainerSealer,
    frames: &[FrameEntry],
    chunks: &[ChunkEntry],
    padding: Padding,
) -> Result<Vec<u8>, EncodeError> {
    let before: u64 = frames.iter().map(|frame| u64::from(frame.sealed_len)).sum();
    let before = usize::try_from(before).map_err(|_| EncodeError::new("container", "it is longer than memory"))?;
    let mut out = Vec::new();
    append_tables(&mut out, before, frames, sealer, chunks, padding)?;
    Ok(out)
}

/// Appends padding and tables to `out`, which lacks the first `before` bytes of the object.
fn append_tables(
    out: &mut Vec<u8>,
    before: usize,
    frames: &[FrameEntry],
    sealer: &ContainerSealer,
    chunks: &[ChunkEntry],
    padding: Padding,
) -> Result<(), EncodeError> {
    const WHAT: &str = "container";
    // These are the reader's own checks: otherwise, an error would be found when it is too
    // late.
    let payload_len = payload_len(chunks)?;
    locate_frames(frames, chunks)?;
    if chunks.iter().any(|chunk| chunk.size == 0) {
        return Err(EncodeError::new(WHAT, "a chunk has no bytes"));
    }
    let (chunk_count, frame_count) =
        (EncodeError::fit_u32(WHAT, chunks.len())?, EncodeError::fit_u32(WHAT, frames.len())?);
    let aad = part_aad(sealer.domain);
    let (chunk_table, frame_table) = (encode_chunks(chunks), encode_frames(frames));
    let unpadded =
        before + out.len() + chunk_table.len() + frame_table.len() + 2 * PART_EXTRA + end_len(sealer.id.kind);
    let object_len = padding.padded(unpadded as u64, PART_EXTRA as u64);
    if object_len > OBJECT_MAX {
        return Err(EncodeError::new(WHAT, "it is longer than a reader accepts"));
    }
    let pad_len = EncodeError::fit_u32(WHAT, object_len as usize - unpadded)?;
    let append = |out: &mut Vec<u8>, part: &[u8], number: u64, aad: &[u8]| {
        // The wrap is associated data of the trailer alone, and no other part follows from it.
        let what = blake3::Hasher::new().update(aad).update(part).finalize();
        let salt = sealer.tables.salt(&sealer.random, number, what.as_bytes());
        let from = out.len();
        out.extend_from_slice(&[0; SALT_LEN]);
        out.extend_from_slice(part);
        sealer.tables.seal(number, aad, salt, out, from);
        EncodeError::fit_u32(WHAT, out.len() - from)
    };
    if pad_len > 0 {
        append(out, &vec![0; pad_len as usize - PART_EXTRA], PADDING, &aad)?;
    }
    let chunk_table_len = append(out, &chunk_table, CHUNKS, &aad)?;
    let frame_table_len = append(out, &frame_table, FRAMES, &aad)?;
    let wrap = sealer.wrap.as_ref().map_or(&[][..], |wrap| &wrap[..]);
    out.extend_from_slice(wrap);
    let mut trailer = Vec::with_capacity(super::TRAILER_PLAIN);
    for number in [chunk_count, frame_count, chunk_table_len, frame_table_len, payload_len, pad_len] {
        trailer.put_u32(number);
    }
    trailer.put_u64(object_len);
    append(out, &trailer, TRAILER, &[wrap, &aad].concat())?;
    out.extend_from_slice(&sealer.domain.0);
    out.extend_from_slice(&MAGIC);
    debug_assert_eq!((before + out.len()) as u64, object_len);
    Ok(())
}
