//! Containers: immutable objects that hold many chunks, compressed and sealed by the frame.
//!
//! | part         | size | sealed as  | meaning                                                                     |
//! |--------------|-----:|------------|-----------------------------------------------------------------------------|
//! | frames       |    … | 0, 1, …    | whole chunks back to back, about [`FRAME_TARGET`] a frame, compressed        |
//! | padding      |    … | 2^32 + 3   | zeros, at least 32 bytes when sealed, or nothing; `padding.rs`              |
//! | chunk table  |    … | 2^32       | every chunk's fingerprint, size and kind; `container/tables.rs`             |
//! | frame table  |    … | 2^32 + 1   | every frame's codec and sizes                                                |
//! | wrap         | 1120 |            | only in `data/`: X-Wing ciphertext of the secret of its frames (`kem.rs`)   |
//! | trailer      |   64 | 2^32 + 2   | see below                                                                    |
//! | domain       |   16 |            | whose metadata it holds, or whose job wrote it                              |
//! | magic        |    4 |            | `LCT` and the version as a byte                                              |
//!
//! Each sealed part is 16 bytes of salt, the ciphertext and 16 bytes of tag (`seal.rs`). Associated
//! data: the magic, the domain, the part's number; and for the trailer the wrap before them. The
//! parts' keys come from `tables`, a zero byte and the object's name under the key of the domain.
//! Those of frames in `meta/` come from `frames` likewise. Those of frames in `data/` come from
//! `frames`, a zero byte, the shared secret, the wrap and the name under the key for binding data.
//! So tables open to all that read metadata, and frames of data to the owner of the opening key.
//!
//! The trailer before sealing (32 bytes, little-endian):
//!
//! | offset | size | field           | meaning                                    |
//! |-------:|-----:|-----------------|--------------------------------------------|
//! |      0 |    4 | chunk_count     | rows of the chunk table                    |
//! |      4 |    4 | frame_count     | rows of the frame table                    |
//! |      8 |    4 | chunk_table_len | sealed bytes of the chunk table            |
//! |     12 |    4 | frame_table_len | sealed bytes of the frame table            |
//! |     16 |    4 | payload_len     | bytes of all chunks, uncompressed          |
//! |     20 |    4 | pad_len         | sealed bytes of the padding, 0 or at least 32 |
//! |     24 |    8 | object_len      | bytes of the whole object                  |
//!
//! The payload is the chunks back to back, so a chunk's offset is the sum of the sizes before it.
//! An offset in a chunk record is an offset in the payload. A frame holds whole chunks, so one
//! chunk needs one frame. The directory is at the end: the writer streams, and one read of the tail
//! finds everything.
//!
//! Frames instead of single chunks are compressed because small chunks then shrink like large ones
//! (`docs/decisions/0003-compression.md`).

mod read;
mod sealing;
mod tables;
mod write;

pub use read::{ContainerIndex, FrameLocation, TAIL_GUESS, frame_at};
pub use sealing::{ContainerSealer, FrameOpener, WRAP_LEN};
pub use tables::{ChunkEntry, ChunkKind, FrameEntry};
pub use write::{
    CompressedFrame, ContainerBuilder, IdentifiedFrame, SealedFrame, compress_frame, seal_compressed, seal_frame,
    seal_identified, seal_tables,
};

use crate::Fingerprint;
use crate::ids::{ContainerId, ContainerKind};

/// Payload bytes at which a writer closes a frame. Just above 256 KiB, zstd's fast levels get other
/// parameters and are a tenth faster. Larger frames gain little more, and more data must be opened
/// for a single chunk (`docs/decisions/0003-compression.md`).
pub const FRAME_TARGET: usize = 512 << 10;

/// The same in containers of metadata. A reader of a recipe follows segments and differences in the
/// containers of many versions. Larger frames would not stay in its cache until their next use.
pub const META_FRAME_TARGET: usize = 128 << 10;

/// Most payload bytes that one frame may declare. It bounds the allocation of a reader for a
/// damaged or forged table.
pub const FRAME_MAX: usize = 64 << 20;

/// Sealed object bytes at which a writer closes a container. Smaller costs requests, larger costs
/// rewrites of sparse ones.
pub const CONTAINER_TARGET: usize = 8 << 20;

/// Payload bytes at which a writer closes a container however well it compresses.
pub const PAYLOAD_TARGET_MAX: usize = 4 * CONTAINER_TARGET;

/// Payload bytes of a container of the layout `lifecycle`. It is exact for containers that
/// arranging fills, because many of these are open at once. Others have at least as many. Larger
/// ones are read with fewer seeks, and are retired as much
/// (`docs/decisions/0006-arranging-in-merges.md`).
pub const LIFECYCLE_PAYLOAD: usize = 2 * CONTAINER_TARGET;
const _: () = assert!(LIFECYCLE_PAYLOAD <= PAYLOAD_TARGET_MAX);

/// Most payload bytes a container may declare.
pub const PAYLOAD_MAX: u32 = 1 << 30;

/// Most bytes of a container's object: a full payload that does not compress, in small chunks, and
/// its tables.
pub const OBJECT_MAX: u64 = 2 << 30;

const VERSION: u8 = 2;
const MAGIC: [u8; 4] = [b'L', b'C', b'T', VERSION];
const TRAILER_PLAIN: usize = 32;
/// Bytes of the sealed trailer, the domain and the magic.
const END_LEN: usize = TRAILER_PLAIN + crate::seal::PART_EXTRA + 16 + MAGIC.len();
/// Bytes that sealing adds to a compressed frame.
pub const FRAME_EXTRA: usize = crate::seal::PART_EXTRA;
/// Bytes at the end that are always there: the wrap, the sealed trailer, the domain and the magic.
pub const TRAILER_LEN: usize = WRAP_LEN + END_LEN;

/// Bytes behind the tables of a container of a kind.
const fn end_len(kind: ContainerKind) -> usize {
    match kind {
        ContainerKind::Data => TRAILER_LEN,
        ContainerKind::Meta => END_LEN,
    }
}

// Numbers under which the parts behind the frames are sealed; frames are numbered with 32 bits.
const CHUNKS: u64 = 1 << 32;
const FRAMES: u64 = (1 << 32) + 1;
const TRAILER: u64 = (1 << 32) + 2;
const PADDING: u64 = (1 << 32) + 3;

/// A chunk and its place: the unit of segments, recipe nodes and manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkRef {
    /// Identity of the chunk's bytes.
    pub fingerprint: Fingerprint,
    /// The container it was in when the record was written; the global index knows better later.
    pub container: ContainerId,
    /// Byte offset in the container's payload.
    pub offset: u32,
    /// Length in bytes, never 0.
    pub size: u32,
}

#[cfg(test)]
mod tests;
