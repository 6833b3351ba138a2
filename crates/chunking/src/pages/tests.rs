//! Heads built field by field from each format's description. For every kind: it is recognised, and stays so only as
//! long as each field that is looked at makes sense.

use super::*;
use proptest::prelude::*;

/// A head of zeros with fields written into it.
struct Builder(Vec<u8>);

impl Builder {
    fn new() -> Self {
        Self(vec![0; HEAD_BYTES])
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn page(&self) -> Option<u32> {
        page_size(&self.0, None)
    }
}

/// Each of the places, changed for the worse, must make the head unrecognisable.
fn every_field_counts(head: &Builder, places: &[usize]) {
    assert!(head.page().is_some());
    for &at in places {
        let mut bytes = head.0.clone();
        bytes[at] ^= 0xff;
        assert_eq!(page_size(&bytes, None), None, "byte {at} changed");
    }
}

fn sqlite(page_field: u16) -> Builder {
    Builder::new()
        .put(0, b"SQLite format 3\0")
        .put(16, &page_field.to_be_bytes())
        .put(18, &[2, 2, 0, 64, 32, 32])
        .put(44, &4_u32.to_be_bytes())
        .put(56, &1_u32.to_be_bytes())
        .put(100, &[13])
}

#[test]
fn sqlite_pages() {
    for (field, page) in [(4096, 4096), (8192, 8192), (32_768, 32_768), (1, 65_536), (512, 4096), (1024, 4096)] {
        assert_eq!(sqlite(field).page(), Some(page));
    }
    assert_eq!(sqlite(4095).page(), None);
    assert_eq!(sqlite(0).page(), None);
    every_field_counts(&sqlite(4096), &[0, 15, 17, 18, 19, 21, 23, 44, 56, 72, 91, 100]);
    let head = sqlite(8192).0;
    assert_eq!(page_size(&head, Some(10 * 8192)), Some(8192));
    assert_eq!(page_size(&head, Some(10 * 8192 + 1)), None);
    assert_eq!(page_size(&head[..100], None), None);
}

fn postgres_page(builder: Builder, at: usize, size_and_version: u16) -> Builder {
    let field = |value: u16| value.to_le_bytes();
    builder
        .put(at, &[0, 0, 0, 0, 0xe8, 0x9a, 0x92, 0x01])
        .put(at + 10, &field(4))
        .put(at + 12, &field(0x10c))
        .put(at + 14, &field(0x180))
        .put(at + 16, &field(size_and_version & 0xff00))
        .put(at + 18, &field(size_and_version))
}

#[test]
fn postgres_pages() {
    let one = postgres_page(Builder::new(), 0, 0x2004);
    assert_eq!(one.page(), Some(8192), "other pages are only reserved");
    every_field_counts(&one, &[11, 13, 15, 16, 17, 18, 19]);
    assert_eq!(page_size(&one.0[..8192], Some(8192)), Some(8192));
    assert_eq!(page_size(&one.0[..8191], None), None);
    assert_eq!(page_size(&one.0, Some(8192 * 3 + 5)), None);
    let all = (0..8).fold(Builder::new(), |builder, page| postgres_page(builder, page * 8192, 0x2004));
    every_field_counts(&all, &[19, 8192 + 19, 3 * 8192 + 13, 7 * 8192 + 18]);
    assert_eq!(postgres_page(Builder::new(), 0, 0x2003).page(), None, "a layout nobody wrote for fifteen years");
    assert_eq!(Builder::new().put(8192 * 2, b"text").page(), None);
}

fn innodb(flags: u32, page: usize) -> Builder {
    Builder::new()
        .put(24, &[0, 8])
        .put(34, &[0, 0, 0, 7, 0, 0, 0, 7])
        .put(46, &[0, 0, 0, 9])
        .put(54, &flags.to_be_bytes())
        .put(page + 4, &[0, 0, 0, 1])
        .put(page + 24, &[0, 5])
        .put(page + 34, &[0, 0, 0, 7])
}

#[test]
fn innodb_pages() {
    // Flags as both layouts write them: default, 4 KiB, compressed to 8 KiB; newer with 16 and 4 KiB.
    for (flags, page) in [(0x21, 16_384), (0xe1, 4096), (0x29, 8192), (0x15, 16_384), (0x13, 4096)] {
        let head = innodb(flags, page as usize);
        assert_eq!(head.page(), Some(page), "flags {flags:#x}");
        let second = page as usize;
        every_field_counts(&head, &[4, 7, 24, 25, 37, 41, 45, second + 7, second + 25, second + 37]);
    }
    assert_eq!(innodb(0x13, 16_384).page(), None, "the second page is not where the flags say");
}

#[test]
fn lmdb_pages() {
    let meta = |builder: Builder, at: usize, number: u8| {
        builder
            .put(at, &[number])
            .put(at + 10, &[8, 0])
            .put(at + 16, &0xbeef_c0de_u32.to_le_bytes())
            .put(at + 20, &[1, 0, 0, 0])
            .put(at + 40, &4096_u32.to_le_bytes())
    };
    let head = meta(meta(Builder::new(), 0, 0), 4096, 1);
    assert_eq!(head.page(), Some(4096));
    every_field_counts(&head, &[0, 10, 16, 20, 40, 4096, 4096 + 10, 4096 + 19]);
}

fn mbr(partitions: &[(u8, u32, u32)]) -> Builder {
    let mut builder = Builder::new().put(510, &[0x55, 0xaa]);
    for (index, (kind, start, sectors)) in partitions.iter().enumerate() {
        let at = 446 + 16 * index;
        builder = builder.put(at + 4, &[*kind]).put(at + 8, &start.to_le_bytes()).put(at + 12, &sectors.to_le_bytes());
    }
    builder
}

#[test]
fn partition_tables() {
    let two = mbr(&[(0x83, 2048, 4096), (0x83, 6144, 100_000)]);
    assert_eq!(two.page(), Some(4096));
    every_field_counts(&two, &[446, 462, 478, 510, 511]);
    assert_eq!(page_size(&two.0, Some((6144 + 100_000) * 512)), Some(4096));
    assert_eq!(page_size(&two.0, Some((6144 + 99_000) * 512)), None, "partitions reach beyond the stream");
    assert_eq!(mbr(&[(0x83, 63, 4096)]).page(), None, "partitions of old tools are not aligned");
    assert_eq!(mbr(&[(0x83, 2048, 4096), (0x83, 4096, 4096)]).page(), None, "partitions overlap");
    assert_eq!(mbr(&[]).page(), None, "a boot sector without partitions says nothing");
    assert_eq!(two.put(32_769, b"CD001").page(), None, "a CD image that also boots from a stick");
}

fn gpt(first_sector: u64) -> Builder {
    let mut header = [0; 92];
    header[..12].copy_from_slice(b"EFI PART\0\0\x01\0");
    for (at, value) in [(12, 92_u32), (24, 1), (72, 2), (80, 128), (84, 128)] {
        header[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let checksum = disk::crc32(&header);
    header[16..20].copy_from_slice(&checksum.to_le_bytes());
    Builder::new().put(512, &header).put(1024, &[0xaf; 16]).put(1024 + 32, &first_sector.to_le_bytes())
}

#[test]
fn gpt_disks() {
    assert_eq!(disk::crc32(b"123456789"), 0xcbf4_3926);
    assert_eq!(gpt(2048).page(), Some(4096));
    assert_eq!(gpt(34).page(), None);
    every_field_counts(&gpt(2048), &[512, 512 + 12, 512 + 16, 512 + 24, 512 + 40, 512 + 72, 512 + 84]);
}

#[test]
fn file_systems() {
    let ext = Builder::new()
        .put(1024, &[1, 0, 1, 0, 0, 0, 6])
        .put(1024 + 24, &[2])
        .put(1024 + 32, &[0, 128])
        .put(1024 + 56, &[0x53, 0xef, 1])
        .put(1024 + 76, &[1]);
    every_field_counts(&ext, &[1024 + 20, 1024 + 24, 1024 + 56, 1024 + 57, 1024 + 58, 1024 + 76]);
    let xfs = Builder::new()
        .put(0, b"XFSB")
        .put(4, &4096_u32.to_be_bytes())
        .put(102, &512_u16.to_be_bytes())
        .put(104, &512_u16.to_be_bytes())
        .put(120, &[12, 9, 9]);
    every_field_counts(&xfs, &[0, 6, 102, 104, 120, 121, 122]);
    let btrfs = Builder::new()
        .put((64 << 10) + 48, &65_536_u64.to_le_bytes())
        .put((64 << 10) + 64, b"_BHRfS_M")
        .put((64 << 10) + 144, &4096_u32.to_le_bytes())
        .put((64 << 10) + 148, &16_384_u32.to_le_bytes());
    every_field_counts(&btrfs, &[65_536 + 50, 65_536 + 64, 65_536 + 145, 65_536 + 149]);
    let ntfs = Builder::new().put(0, b"\xeb\x52\x90NTFS    \0\x02\x08").put(510, &[0x55, 0xaa]);
    every_field_counts(&ntfs, &[0, 3, 11, 510]);
    let exfat = Builder::new()
        .put(0, b"\xeb\x76\x90EXFAT   ")
        .put(88, &2048_u32.to_le_bytes())
        .put(108, &[9])
        .put(510, &[0x55, 0xaa]);
    every_field_counts(&exfat, &[1, 4, 30, 88, 108, 511]);
    let f2fs = Builder::new().put(1024, &0xf2f5_2010_u32.to_le_bytes()).put(1024 + 8, &[9]).put(1024 + 16, &[12]);
    every_field_counts(&f2fs, &[1024, 1024 + 8, 1024 + 16]);
    let lvm = Builder::new().put(512, b"LABELONE\x01").put(512 + 20, &[32]).put(512 + 24, b"LVM2 001");
    every_field_counts(&lvm, &[512, 512 + 8, 512 + 20, 512 + 24]);
    let luks = Builder::new().put(0, b"LUKS\xba\xbe\0\x02");
    every_field_counts(&luks, &[0, 4, 6, 7]);
    for head in [ext, xfs, btrfs, ntfs, exfat, f2fs, lvm, luks] {
        assert_eq!(head.page(), Some(4096));
    }
}

#[test]
fn containers_of_disk_images() {
    let qcow2 = Builder::new().put(0, b"QFI\xfb\0\0\0\x03").put(20, &16_u32.to_be_bytes());
    every_field_counts(&qcow2, &[0, 7, 23]);
    let vmdk = Builder::new().put(0, b"KDMV\x01\0\0\0\x03").put(20, &[128]).put(64, &[128]).put(73, b"\n \r\n");
    every_field_counts(&vmdk, &[0, 4, 10, 20, 64, 73, 77]);
    let vdi = Builder::new()
        .put(0x40, &[0x7f, 0x10, 0xda, 0xbe, 1, 0, 1, 0])
        .put(0x158, &0x20_0000_u32.to_le_bytes())
        .put(0x178, &0x10_0000_u32.to_le_bytes());
    every_field_counts(&vdi, &[0x40, 0x44, 0x158, 0x178]);
    let vhdx = Builder::new().put(0, b"vhdxfile").put(64 << 10, b"head");
    every_field_counts(&vhdx, &[0, 64 << 10]);
    for head in [qcow2, vmdk, vdi, vhdx] {
        assert_eq!(head.page(), Some(4096));
    }
}

#[test]
fn ordinary_data_is_not_pages() {
    let text = "The quick brown fox jumps over the lazy dog.\n".repeat(2000);
    let tar = Builder::new().put(0, b"folder/file").put(257, b"ustar\x0000");
    let elf = Builder::new().put(0, b"\x7fELF\x02\x01\x01");
    for head in [text.as_bytes(), &tar.0, &elf.0, &Builder::new().0, &vec![0xff; HEAD_BYTES], b"", b"x"] {
        assert_eq!(page_size(head, None), None);
        assert_eq!(page_size(head, Some(1 << 20)), None);
    }
}

proptest! {
    /// Any content under the right first bytes, of any length: no panic, and hardly ever an answer.
    #[test]
    fn noise_behind_a_magic_number_is_not_pages(
        magic in proptest::sample::select(vec!["SQLite format 3\0", "XFSB", "QFI", "KDMV", "vhdxfile", ""]),
        noise in proptest::collection::vec(any::<u8>(), 0..3000),
        total in proptest::option::of(any::<u64>()),
    ) {
        let head = [magic.as_bytes(), &noise].concat();
        prop_assert_eq!(page_size(&head, total), None);
    }
}
