//! Volumes as devices: reads, writes, and commits.
//!
//! | module   | what it has                                                        |
//! |----------|--------------------------------------------------------------------|
//! | `write`  | accepting writes, discards and zeroes; waiting; flushing           |
//! | `commit` | cutting, look-ups, frames, the record, both syncs                  |
//! | `splice` | a new mapping from an old one and new pieces                       |
//! | `read`   | reading through waiting writes, memory tables and runs             |
//! | `export` | volumes as exports of an NBD server                                |

mod commit;
mod export;
mod read;
mod splice;
mod write;

pub use export::VolumeExports;

use std::ops::Range;

use larder_format::volume_map::BLOCK_LEN;

/// Bytes of a block.
const BLOCK: u64 = BLOCK_LEN as u64;

/// The blocks of a range of bytes: number, and the bytes in the block.
fn blocks_of(offset: u64, length: u64) -> impl Iterator<Item = (u64, Range<u32>)> {
    let end = offset + length;
    (offset / BLOCK..end.div_ceil(BLOCK)).map(move |block| {
        let start = block * BLOCK;
        let from = offset.max(start) - start;
        let to = end.min(start + BLOCK) - start;
        (block, from as u32..to as u32)
    })
}
