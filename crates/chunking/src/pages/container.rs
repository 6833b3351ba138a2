//! Files that hold the image of a disk cluster by cluster.

use super::{DISK_PAGE, Head, require};

pub(super) fn page(head: &Head<'_>) -> Option<u32> {
    qcow2(head).or_else(|| vmdk(head)).or_else(|| vdi(head)).or_else(|| vhdx(head))?;
    Some(DISK_PAGE)
}

/// Clusters and tables all begin at multiples of the cluster.
fn qcow2(head: &Head<'_>) -> Option<()> {
    let version = head.be32(4)?;
    let cluster_bits = head.be32(20)?;
    require(head.has(0, b"QFI\xfb") && (2..=3).contains(&version) && (12..=21).contains(&cluster_bits))?;
    require(head.be32(32)? <= 2)
}

/// The sparse kind. Grains follow one another behind the overhead.
fn vmdk(head: &Head<'_>) -> Option<()> {
    const COMPRESSED: u32 = 1 << 16;
    require(head.has(0, b"KDMV") && (1..=3).contains(&head.le32(4)?))?;
    require(head.le32(8)? & COMPRESSED == 0 && head.le16(77)? == 0)?;
    // The line ends that show whether the file went through a text conversion.
    require(head.has(73, b"\n \r\n"))?;
    let (grain_sectors, overhead_sectors) = (head.le64(20)?, head.le64(64)?);
    require(grain_sectors != 0 && sectors_aligned(grain_sectors) && sectors_aligned(overhead_sectors))
}

fn vdi(head: &Head<'_>) -> Option<()> {
    const MAGIC: u32 = 0xbeda_107f;
    const VERSION: u32 = 0x0001_0001;
    require(head.le32(0x40)? == MAGIC && head.le32(0x44)? == VERSION)?;
    let (data_at, block) = (head.le32(0x158)?, head.le32(0x178)?);
    require(data_at != 0 && data_at.is_multiple_of(DISK_PAGE) && block != 0 && block.is_multiple_of(DISK_PAGE))
}

/// Everything in it begins at multiples of 1 MiB by definition. The first of two headers lies at 64 KiB.
fn vhdx(head: &Head<'_>) -> Option<()> {
    require(head.has(0, b"vhdxfile") && head.has(64 << 10, b"head"))
}

pub(super) fn sectors_aligned(sectors: u64) -> bool {
    sectors.is_multiple_of(u64::from(DISK_PAGE) / 512)
}
