//! Database files: SQLite, PostgreSQL, InnoDB, LMDB.

use super::{Head, require};

pub(super) fn page(head: &Head<'_>) -> Option<u32> {
    let page = sqlite(head).or_else(|| lmdb(head)).or_else(|| innodb(head)).or_else(|| postgres(head))?;
    head.whole_pages(page).then_some(page)
}

/// The first page begins with a header of 100 bytes, its own tree page follows.
fn sqlite(head: &Head<'_>) -> Option<u32> {
    require(head.has(0, b"SQLite format 3\0"))?;
    // 65536 does not fit the field and is written as 1.
    let page = match head.be16(16)? {
        1 => 65_536,
        size => u32::from(size),
    };
    require(page.is_power_of_two() && page >= 512)?;
    let versions = [head.byte(18)?, head.byte(19)?];
    require(versions.iter().all(|version| matches!(version, 1 | 2)))?;
    // Payload fractions, which are constants of the format; then space that is reserved for
    // expansion.
    require(head.has(21, &[64, 32, 32]))?;
    require(head.be32(44)? <= 4 && head.be32(56)? <= 3)?;
    require(head.has(72, &[0; 20]))?;
    const TABLE_INTERIOR: u8 = 5;
    const TABLE_LEAF: u8 = 13;
    require(matches!(head.byte(100)?, TABLE_INTERIOR | TABLE_LEAF))?;
    Some(page)
}

/// Two meta pages, which take turns; the free list's record in a meta page holds the page length.
fn lmdb(head: &Head<'_>) -> Option<u32> {
    const MAGIC: u32 = 0xbeef_c0de;
    const META_PAGE: u16 = 8;
    let meta = |at: usize| Some(head.le16(at + 10)? == META_PAGE && head.le32(at + 16)? == MAGIC);
    require(meta(0)? && head.le64(0)? == 0 && head.le32(20)? == 1)?;
    let page = head.le32(40)?;
    require(page.is_power_of_two() && (512..=65_536).contains(&page))?;
    require(meta(page as usize)? && head.le64(page as usize)? == 1)?;
    Some(page)
}

/// Every page begins with the same header: checksum, page number, neighbours, log position, type,
/// tablespace. The first page also tells, in the flags of the tablespace, how long pages are.
fn innodb(head: &Head<'_>) -> Option<u32> {
    const NUMBER: usize = 4;
    const TYPE: usize = 24;
    const SPACE: usize = 34;
    const SPACE_AGAIN: usize = 38;
    const UNUSED: usize = 42;
    const PAGES: usize = 46;
    const FLAGS: usize = 54;
    const TYPE_SPACE_HEADER: u16 = 8;
    const TYPE_BITMAP: u16 = 5;
    require(head.be32(NUMBER)? == 0 && head.be16(TYPE)? == TYPE_SPACE_HEADER)?;
    let space = head.be32(SPACE)?;
    require(space == head.be32(SPACE_AGAIN)? && head.be32(UNUSED)? == 0 && head.be32(PAGES)? != 0)?;
    let page = innodb_page(head.be32(FLAGS)?)?;
    let second = page as usize;
    require(head.be32(second + NUMBER)? == 1 && head.be16(second + TYPE)? == TYPE_BITMAP)?;
    require(head.be32(second + SPACE)? == space)?;
    Some(page)
}

/// Length of pages in the file: that of compressed pages where the table is compressed.
fn innodb_page(flags: u32) -> Option<u32> {
    const NEWER_LAYOUT: u32 = 1 << 4;
    let shift = if flags & NEWER_LAYOUT != 0 {
        flags & 0xf
    } else {
        match (flags >> 1 & 0xf, flags >> 6 & 0xf) {
            (0, 0) => 5,
            (0, page) => page,
            (compressed, _) => compressed,
        }
    };
    // 1 KiB to 64 KiB.
    (1..=7).contains(&shift).then(|| 512 << shift)
}

/// Every page begins with a header that has the page's length and the layout's version. There is no
/// other mark. So every page in the head must have a sensible header, or be all zeros like reserved
/// pages.
fn postgres(head: &Head<'_>) -> Option<u32> {
    let page = u32::from(postgres_header(head, 0)?);
    for at in (page as usize..).step_by(page as usize) {
        let Some(bytes) = head.slice(at, page as usize) else { break };
        let zeros = bytes.iter().all(|&byte| byte == 0);
        require(zeros || postgres_header(head, at).map(u32::from) == Some(page))?;
    }
    Some(page)
}

/// Page length according to the header at `at`, when all of its fields make sense.
fn postgres_header(head: &Head<'_>, at: usize) -> Option<u16> {
    const HEADER: u16 = 24;
    const LAYOUT_VERSION: u16 = 4;
    const FLAGS_KNOWN: u16 = 7;
    let size_and_version = head.le16(at + 18)?;
    let page = size_and_version & 0xff00;
    require(size_and_version & 0xff == LAYOUT_VERSION && page.is_power_of_two() && page >= 4096)?;
    require(head.le16(at + 10)? & !FLAGS_KNOWN == 0)?;
    let (lower, upper, special) = (head.le16(at + 12)?, head.le16(at + 14)?, head.le16(at + 16)?);
    require(HEADER <= lower && lower <= upper && upper <= special && special <= page && special.is_multiple_of(8))?;
    require(head.bytes.len() >= at + usize::from(page))?;
    Some(page)
}
