//! Recognises streams made of pages: the files of databases.
//!
//! Such files change in place, page by page, and nothing in them ever shifts. Cut at fixed places
//! they lose nothing to the resynchronisation that content-defined cuts need behind every edit.
//! `docs/decisions/0002-chunk-size.md` has the figures and their consequences:
//!
//! * Pages longer than 4 KiB are cut every 4 KiB all the same. A change touches the page's header
//!   and its own place, and the parts between stay duplicates. Cut whole, InnoDB's pages of 16 KiB
//!   would store more than content-defined cuts.
//! * Disk images and block devices are *not* page streams, although they change in blocks of 4 KiB.
//!   Most changes in them are rewritten files, with content that has shifted against the old;
//!   content-defined cuts store less.
//!
//! | recognised                                  | looked at                                    |
//! |---------------------------------------------|----------------------------------------------|
//! | SQLite                                      | file header, constants of the format         |
//! | LMDB                                        | both meta pages                              |
//! | InnoDB tablespaces (MySQL, MariaDB)         | headers of the first two pages               |
//! | PostgreSQL heaps, indexes, maps             | header of every page of the head             |
//!
//! Only the head of a stream is looked at, by the code that is about to cut it. The answer must be
//! strict. Fixed cuts in a stream that is *not* made of pages lose nearly all duplicates behind the
//! first insertion, while the opposite mistake costs a tenth. So a magic number alone never
//! suffices: the fields around it must make sense too. An unrecognised stream is cut by content.

mod database;
#[cfg(test)]
mod tests;

/// Number of first bytes of a stream that [`page_size`] can use. The longest pages have 64 KiB, and
/// for some formats the second page's header is checked.
pub const HEAD_BYTES: usize = 68 << 10;

/// Distance of cuts in page streams, for pages of any length. Longer pages are multiples of it, of
/// shorter ones several make a chunk.
pub const PAGE_CUT: u32 = 4096;

/// The length at which to cut, when the first bytes of a stream say clearly that it consists of
/// pages.
///
/// `head` is the stream's beginning, as much of [`HEAD_BYTES`] as there is; `total` its whole
/// length where it is known.
#[must_use]
pub fn page_size(head: &[u8], total: Option<u64>) -> Option<u32> {
    database::page(&Head { bytes: head, total }).map(|_| PAGE_CUT)
}

/// The beginning of a stream; fields beyond it do not exist.
struct Head<'a> {
    bytes: &'a [u8],
    total: Option<u64>,
}

impl<'a> Head<'a> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..)?.first_chunk().copied()
    }

    fn slice(&self, at: usize, length: usize) -> Option<&'a [u8]> {
        self.bytes.get(at..at.checked_add(length)?)
    }

    fn has(&self, at: usize, magic: &[u8]) -> bool {
        self.slice(at, magic.len()) == Some(magic)
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    fn le16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn le32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn le64(&self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    fn be16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    fn be32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// Whether the stream consists of whole pages, as far as its length is known.
    fn whole_pages(&self, page: u32) -> bool {
        self.total.is_none_or(|total| total.is_multiple_of(u64::from(page)))
    }
}

/// A condition within a chain of `?`.
fn require(condition: bool) -> Option<()> {
    condition.then_some(())
}
