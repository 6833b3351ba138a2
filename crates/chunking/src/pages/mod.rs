//! Recognises streams made of pages: databases, disk images.
//!
//! Such streams change in place, page by page, and nothing in them ever shifts. Cutting them where their pages begin
//! loses nothing to the resynchronisation behind an edit that content-defined cuts need, and a changed page costs exactly
//! one chunk. `docs/decisions/0002-chunk-size.md` has the figures.
//!
//! Only the head of a stream is looked at, by the code that starts to cut it. The answer must be strict: cutting a stream
//! at fixed places that is *not* made of pages loses nearly all of its duplicates after the first insertion, while the
//! opposite mistake costs a tenth. So a magic number alone never suffices; the fields around it must make sense too.
//! Whatever is not recognised is cut by content.
//!
//! | stream                                              | cut at                | looked at                           |
//! |-----------------------------------------------------|-----------------------|-------------------------------------|
//! | SQLite, LMDB                                        | its page              | header                              |
//! | PostgreSQL heap, index, map files                   | its page              | header of every page of the head    |
//! | InnoDB tablespaces                                  | its page              | headers of the first two pages      |
//! | GPT and MBR disks with aligned partitions           | 4 KiB                 | table, checksum (GPT), alignment    |
//! | ext2-4, XFS, Btrfs, NTFS, exFAT, F2FS, LVM, LUKS    | 4 KiB                 | superblock                          |
//! | qcow2, VMDK (sparse), VDI, VHDX                     | 4 KiB                 | header, alignment of the data       |
//!
//! Disk images inside containers keep the guest's 4 KiB blocks whole and rewrite them in place: a container maps guest
//! clusters to places that are multiples of 4 KiB, only their order is its own, and order does not matter to
//! deduplication. Containers whose header says that clusters are compressed or not aligned are cut by content. (Whether a
//! qcow2 file holds compressed clusters its header does not say. They too stay where they are once written.)

mod container;
mod database;
mod disk;
#[cfg(test)]
mod tests;

/// How many of the first bytes of a stream are worth handing to [`page_size`]: Btrfs keeps its superblock at 64 KiB.
pub const HEAD_BYTES: usize = 68 << 10;

/// Shortest page that is worth a chunk of its own. Shorter pages are cut several at a time.
const PAGE_MIN: u32 = 4096;

/// What memory, disks and file systems agree on: the unit in which disk images change.
const DISK_PAGE: u32 = 4096;

/// Page length to cut at, when the first bytes of a stream say clearly that it consists of pages.
///
/// `head` is the stream's beginning, as much of [`HEAD_BYTES`] as there is; `total` its whole length where it is known.
#[must_use]
pub fn page_size(head: &[u8], total: Option<u64>) -> Option<u32> {
    let head = Head { bytes: head, total };
    let page = database::page(&head).or_else(|| container::page(&head)).or_else(|| disk::page(&head))?;
    Some(page.max(PAGE_MIN))
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
