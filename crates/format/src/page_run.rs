//! Page runs of a volume store: sorted records in sealed pages of 4,096 bytes.
//!
//! A run is written once and never changed. Its pages are aligned, so they can be read past the
//! page cache of the system. One look-up reads one page.
//!
//! | part    | pages    | content                                                                |
//! |---------|---------:|------------------------------------------------------------------------|
//! | data    | 0 to P−1 | records, see below                                                     |
//! | tail    | T        | first key of every data page, the last key, the filter; zeros          |
//! | trailer | 1        | the fields below; zeros                                                |
//!
//! A stored page is 4,080 bytes of ciphertext and 16 of tag. Key: `page run`, a zero byte and the
//! run's id under the key of the index. Nonce: the page's number. Associated data: `LPG`, the
//! version as a byte, and the kind of the page (0 data, 1 tail, 2 trailer). Ids are drawn at random
//! for every run, so no nonce is used twice.
//!
//! | data page | size  | meaning                                                                |
//! |-----------|------:|------------------------------------------------------------------------|
//! | form      |     1 | 1: values of one width; 2: each value has its own                      |
//! | count     |     2 | records, never 0                                                       |
//! | keys      |     … | all keys, rising                                                       |
//! | lengths   | 2 each | only in form 2                                                        |
//! | values    |     … | all values                                                             |
//! | zeros     |     … | to the end                                                             |
//!
//! | offset | size | field of the trailer                                                       |
//! |-------:|-----:|----------------------------------------------------------------------------|
//! |      0 |    1 | table: 1 chunks, 2 blocks, 3 counts                                             |
//! |      1 |    1 | width of keys                                                              |
//! |      2 |    1 | bytes of a key that the filter knows                                       |
//! |      3 |    1 | zero                                                                       |
//! |      4 |    2 | width of values; 0xffff: each has its own                                  |
//! |      6 |    2 | zero                                                                       |
//! |      8 |    4 | data pages                                                                 |
//! |     12 |    4 | tail pages                                                                 |
//! |     16 |    8 | records                                                                    |
//! |     24 |    8 | bytes of the filter                                                        |

mod build;
mod read;

pub use build::PageRunBuilder;
pub use read::{Page, PageRunIndex};

use crate::ids::PageRunId;
use crate::keys::Keys;
use crate::seal::{Sealer, TAG_LEN};
use crate::wire::DecodeError;

/// Bytes of a stored page.
pub const PAGE_LEN: usize = 4096;
/// Bytes of a page before it is sealed.
pub const PAGE_ROOM: usize = PAGE_LEN - TAG_LEN;
/// Most data and tail pages of a run.
pub const PAGES_MAX: u32 = 1 << 30;

const HEAD: usize = 3;
const WHAT: &str = "page run";
const VARIABLE: u16 = u16::MAX;

/// The tables of a volume store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeTable {
    /// Fingerprints of chunks, and their places.
    Chunks,
    /// Blocks of volumes, and their mappings.
    Blocks,
    /// Places of chunks, and how often blocks name them: the sum of all records of a place.
    Counts,
}

/// The form of a table's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageForm {
    /// Bytes of a key.
    pub key_len: usize,
    /// Bytes of a key, from its beginning, that the filter knows.
    pub filter_len: usize,
    /// Bytes of a value; `None`: each value has its own.
    pub value_len: Option<usize>,
}

impl VolumeTable {
    /// All.
    pub const ALL: [Self; 3] = [Self::Chunks, Self::Blocks, Self::Counts];

    /// The number that is stored.
    pub fn code(self) -> u8 {
        match self {
            Self::Chunks => 1,
            Self::Blocks => 2,
            Self::Counts => 3,
        }
    }

    /// Inverse of [`Self::code`].
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.code() == code)
    }

    /// Chunks: the first 20 bytes of a fingerprint, and a container and an offset as u32. Blocks:
    /// volume u32, block u64 and the version's complement u64, big-endian, and a mapping. Counts:
    /// container and offset as u32, big-endian, and a difference as i64.
    pub fn form(self) -> PageForm {
        match self {
            Self::Chunks => PageForm { key_len: 20, filter_len: 20, value_len: Some(8) },
            Self::Blocks => PageForm { key_len: 20, filter_len: 12, value_len: None },
            Self::Counts => PageForm { key_len: 8, filter_len: 8, value_len: Some(8) },
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum PageKind {
    Data = 0,
    Tail = 1,
    Trailer = 2,
}

/// What one run is sealed with.
#[derive(Debug)]
pub struct PageRunKey {
    id: PageRunId,
    sealer: Sealer,
}

impl PageRunKey {
    /// That of a run. The id must be fresh random bytes when the run is to be written.
    pub fn of(keys: &Keys, id: PageRunId) -> Result<Self, DecodeError> {
        let secret = keys.index(WHAT)?.keyed(&[b"page run\0", &id.0]);
        Ok(Self { id, sealer: Sealer::new(&secret.0) })
    }

    /// The run.
    pub fn id(&self) -> PageRunId {
        self.id
    }

    fn seal(&self, number: u32, kind: PageKind, out: &mut Vec<u8>, from: usize) {
        debug_assert_eq!(out.len() - from, PAGE_ROOM);
        self.sealer.seal(u64::from(number), &aad(kind), out, from);
    }

    fn open(&self, number: u32, kind: PageKind, page: &mut [u8]) -> Result<(), DecodeError> {
        if page.len() != PAGE_LEN {
            return Err(DecodeError::Truncated { what: WHAT });
        }
        self.sealer.open(u64::from(number), &aad(kind), page, WHAT).map(drop)
    }
}

fn aad(kind: PageKind) -> [u8; 5] {
    [b'L', b'P', b'G', 2, kind as u8]
}

#[cfg(test)]
mod tests;
