//! Runs of the global index: records sorted by key, in objects of sealed blocks.
//!
//! A record is a key and a value, or a key and a tombstone, which says that older runs' records of
//! that key are void. All keys of a run have one width; values have one width or each their own
//! ([`RecordLayout`]). Keys sort as bytes, so numbers in them are big-endian.
//!
//! Layout of `index/runs/<job>/<seq>`:
//!
//! | part    | number  | content                                                                     |
//! |---------|--------:|-----------------------------------------------------------------------------|
//! | blocks  | 0, 1, … | records, see `block.rs`; about 32 KiB each before packing and sealing       |
//! | filter  | 2³²     | which keys may be here, see `filter.rs`                                     |
//! | fences  | 2³² + 1 | per block: its first key, varint sealed length, varint records; the last key |
//! | trailer | 2³² + 2 | the fields below                                                            |
//! |         |         | magic `LRN` and a byte 2, the version, not sealed                           |
//!
//! | offset | size | field of the trailer                                |
//! |-------:|-----:|-----------------------------------------------------|
//! |      0 |    1 | table                                               |
//! |      1 |    1 | width of keys, 1 to 64                              |
//! |      2 |    2 | width of values; 0xffff: each has its own           |
//! |      4 |    4 | blocks                                              |
//! |      8 |    8 | records, tombstones included                        |
//! |     16 |    8 | tombstones                                          |
//! |     24 |    4 | sealed bytes of the filter                          |
//! |     28 |    4 | sealed bytes of the fences                          |
//! |     32 |    8 | bytes of the object                                 |
//!
//! Each part is sealed by itself (`seal.rs`): 16 bytes of salt, the ciphertext, 16 bytes of tag.
//! The keys come from `run`, a zero byte and the object's name under the key of the index. The
//! magic and the number are the associated data. A run is written front to back; a reader takes the
//! tail, and then only the blocks it needs.

mod block;
mod build;
mod filter;
mod key;
mod pack;
mod read;

pub use block::Block;
pub use build::{FinishedRun, RunBuilder};
pub use filter::{Filter, key_hash};
pub use key::RunKey;
pub use read::RunIndex;

use crate::seal::PART_EXTRA;

/// Size of a block before it is sealed at which it is closed. Smaller costs fences, larger costs
/// lookups of single keys.
pub const BLOCK_TARGET: usize = 32 << 10;
/// Longest value.
pub const VALUE_MAX: usize = 16 << 20;
/// Longest key.
pub const KEY_MAX: usize = 64;
/// Most bytes of an object that a reader accepts.
pub const RUN_OBJECT_MAX: u64 = 1 << 36;
/// Bytes of the sealed trailer and the magic.
pub const RUN_TRAILER_LEN: usize = TRAILER_PLAIN_LEN + PART_EXTRA + MAGIC.len();

const TRAILER_PLAIN_LEN: usize = 40;
const MAGIC: [u8; 4] = *b"LRN\x02";
const FILTER: u64 = 1 << 32;
const FENCES: u64 = FILTER + 1;
const TRAILER: u64 = FILTER + 2;
const WHAT: &str = "index run";
/// Bytes of a block before its records: form and count.
const HEAD_LEN: usize = 5;
const VARIABLE: u16 = u16::MAX;
/// Most bytes of a block before it is sealed: one that is about to be closed takes one more record.
const BLOCK_MAX: usize = BLOCK_TARGET + VALUE_MAX + KEY_MAX + 64;

/// How wide the values of a run are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueWidth {
    /// All of them have this many bytes.
    Fixed(u16),
    /// Each its own, up to [`VALUE_MAX`].
    Variable,
}

/// The form of the records of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordLayout {
    /// Bytes of a key, 1 to [`KEY_MAX`].
    pub key_len: u8,
    /// Bytes of a value.
    pub value: ValueWidth,
}

impl RecordLayout {
    fn value_code(self) -> u16 {
        match self.value {
            ValueWidth::Fixed(width) => width,
            ValueWidth::Variable => VARIABLE,
        }
    }

    fn is_valid(self) -> bool {
        (1..=KEY_MAX).contains(&usize::from(self.key_len)) && self.value != ValueWidth::Fixed(VARIABLE)
    }
}

/// The first 8 bytes of a key as a big-endian number, a shorter key padded with zeros: the unit of
/// ranges of runs.
pub fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; 8];
            head[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(head)
        }
    }
}

#[cfg(test)]
mod tests;
