//! Raw disk images and block devices: partition tables, file systems, volume managers.

use super::container::sectors_aligned;
use super::{DISK_PAGE, Head, require};

pub(super) fn page(head: &Head<'_>) -> Option<u32> {
    // A CD image may carry a partition table as well, but its files lie at multiples of 2 KiB.
    require(!head.has(32_769, b"CD001"))?;
    let kinds = [gpt, ext, xfs, btrfs, ntfs, exfat, f2fs, lvm, luks, mbr];
    kinds.iter().find_map(|kind| kind(head))?;
    Some(DISK_PAGE)
}

/// A header in the second sector with a checksum of its own, and the table of partitions behind it.
fn gpt(head: &Head<'_>) -> Option<()> {
    const SECTOR: usize = 512;
    const HEADER_BYTES: usize = 92;
    const CHECKSUM_AT: usize = 16;
    require(head.has(SECTOR, b"EFI PART\0\0\x01\0") && head.le32(SECTOR + 12)? as usize == HEADER_BYTES)?;
    let mut header: [u8; HEADER_BYTES] = head.array(SECTOR)?;
    header[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    require(head.le32(SECTOR + CHECKSUM_AT)? == crc32(&header))?;
    require(head.le64(SECTOR + 24)? == 1)?;
    let (table_sector, entries, entry_bytes) =
        (head.le64(SECTOR + 72)?, head.le32(SECTOR + 80)?, head.le32(SECTOR + 84)?);
    require(table_sector == 2 && entry_bytes == 128)?;
    for entry in 0..entries.min(128) as usize {
        let at = 2 * SECTOR + entry * 128;
        let used = head.slice(at, 16)?.iter().any(|&byte| byte != 0);
        require(!used || sectors_aligned(head.le64(at + 32)?))?;
    }
    Some(())
}

/// Four entries at the end of the first sector. There is no checksum, so all entries must make sense.
fn mbr(head: &Head<'_>) -> Option<()> {
    const TABLE: usize = 446;
    const ENTRY: usize = 16;
    require(head.has(510, &[0x55, 0xaa]))?;
    let mut partitions = Vec::new();
    for at in (TABLE..510).step_by(ENTRY) {
        let (status, kind) = (head.byte(at)?, head.byte(at + 4)?);
        let (start, sectors) = (u64::from(head.le32(at + 8)?), u64::from(head.le32(at + 12)?));
        if kind == 0 {
            require(head.slice(at, ENTRY)?.iter().all(|&byte| byte == 0))?;
            continue;
        }
        require(matches!(status, 0 | 0x80) && start != 0 && sectors != 0 && sectors_aligned(start))?;
        require(head.total.is_none_or(|total| start + sectors <= total.div_ceil(512)))?;
        partitions.push((start, start + sectors));
    }
    partitions.sort_unstable();
    require(!partitions.is_empty() && partitions.windows(2).all(|pair| pair[0].1 <= pair[1].0))
}

fn ext(head: &Head<'_>) -> Option<()> {
    const AT: usize = 1024;
    const MAGIC: u16 = 0xef53;
    require(head.le16(AT + 56)? == MAGIC)?;
    let (inodes, blocks, per_group) = (head.le32(AT)?, head.le32(AT + 4)?, head.le32(AT + 32)?);
    require(inodes != 0 && blocks != 0 && per_group != 0)?;
    let block_log = head.le32(AT + 24)?;
    let first_block = u32::from(block_log == 0);
    require(block_log <= 6 && head.le32(AT + 20)? == first_block)?;
    let (state, revision) = (head.le16(AT + 58)?, head.le32(AT + 76)?);
    require(state <= 7 && revision <= 1)
}

fn xfs(head: &Head<'_>) -> Option<()> {
    require(head.has(0, b"XFSB"))?;
    let (block, sector, inode) = (head.be32(4)?, u32::from(head.be16(102)?), u32::from(head.be16(104)?));
    let log = |at: usize, size: u32| Some(size.is_power_of_two() && u32::from(head.byte(at)?) == size.trailing_zeros());
    require(log(120, block)? && log(121, sector)? && log(122, inode)?)?;
    require((512..=65_536).contains(&block) && (512..=32_768).contains(&sector) && (256..=2048).contains(&inode))
}

fn btrfs(head: &Head<'_>) -> Option<()> {
    const AT: usize = 64 << 10;
    require(head.has(AT + 64, b"_BHRfS_M") && head.le64(AT + 48)? == AT as u64)?;
    let (sector, node) = (head.le32(AT + 144)?, head.le32(AT + 148)?);
    require(sector.is_power_of_two() && node.is_power_of_two() && sector >= 4096 && node >= sector)
}

fn ntfs(head: &Head<'_>) -> Option<()> {
    require(head.has(0, b"\xeb\x52\x90NTFS    ") && head.has(510, &[0x55, 0xaa]))?;
    let (sector, sectors_per_cluster) = (head.le16(11)?, head.byte(13)?);
    require(sector.is_power_of_two() && (512..=4096).contains(&sector) && sectors_per_cluster != 0)
}

fn exfat(head: &Head<'_>) -> Option<()> {
    require(head.has(0, b"\xeb\x76\x90EXFAT   ") && head.has(11, &[0; 53]) && head.has(510, &[0x55, 0xaa]))?;
    let (sector_log, clusters_at) = (head.byte(108)?, head.le32(88)?);
    require((9..=12).contains(&sector_log))?;
    require((u64::from(clusters_at) << sector_log).is_multiple_of(u64::from(DISK_PAGE)))
}

fn f2fs(head: &Head<'_>) -> Option<()> {
    const AT: usize = 1024;
    const MAGIC: u32 = 0xf2f5_2010;
    let (sector_log, block_log) = (head.le32(AT + 8)?, head.le32(AT + 16)?);
    require(head.le32(AT)? == MAGIC && (9..=12).contains(&sector_log) && block_log == 12)
}

/// A physical volume: its label lies in one of the first four sectors and names that sector.
fn lvm(head: &Head<'_>) -> Option<()> {
    (0..4_u64).find_map(|sector| {
        let at = 512 * sector as usize;
        require(head.has(at, b"LABELONE") && head.le64(at + 8)? == sector)?;
        require(head.le32(at + 20)? == 32 && head.has(at + 24, b"LVM2 001"))
    })
}

/// Sectors are encrypted each for itself, so what did not change stays the same.
fn luks(head: &Head<'_>) -> Option<()> {
    require(head.has(0, b"LUKS\xba\xbe") && (1..=2).contains(&head.be16(6)?))
}

/// The checksum of a GPT header. Bit by bit: it is computed over 92 bytes, once for a disk.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let shifted = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| shifted(crc)))
}
