//! Volumes as devices: reads, writes, and commits.
//!
//! | module   | what it has                                                        |
//! |----------|--------------------------------------------------------------------|
//! | `write`  | accepting writes, discards and zeroes; waiting; flushing           |
//! | `commit` | cutting, look-ups, frames, the record, both syncs                  |
//! | `splice` | a new mapping from an old one and new pieces                       |
//! | `lower`  | what is below a volume: parents, and content outside             |
//! | `changed` | blocks that changed between two snapshots                         |
//! | `hydrate` | a volume gets all content that is outside of the store          |
//! | `unreadable` | blocks that wait because they cannot be read                     |
//! | `read`   | reading through waiting writes, memory tables and runs             |
//! | `holes`  | parts of blocks that are known to be zeros                        |
//! | `export` | volumes as exports of an NBD server                                |

mod changed;
mod commit;
mod export;
mod holes;
mod hydrate;
mod lower;
mod read;
mod splice;
mod unreadable;
mod write;

pub use changed::ChangedBlocks;
pub use export::VolumeExports;
pub use hydrate::Hydrated;

use std::ops::Range;

use larder_format::volume_map::BLOCK_LEN;

/// Bytes of a block.
const BLOCK: u64 = BLOCK_LEN as u64;

/// The blocks of a range of bytes: number, and the bytes in the block.
fn blocks_of(offset: u64, length: u64) -> impl Iterator<Item = (u64, Range<u32>)> {
    let end = offset + length;
    // An empty range in the middle of a block is in no block.
    let last = if length == 0 { 0 } else { end.div_ceil(BLOCK) };
    (offset / BLOCK..last).map(move |block| {
        let start = block * BLOCK;
        let from = offset.max(start) - start;
        let to = end.min(start + BLOCK) - start;
        (block, from as u32..to as u32)
    })
}
