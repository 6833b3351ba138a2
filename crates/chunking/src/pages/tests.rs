//! Heads built field by field from each format's description. For every kind: it is recognised, and
//! stays so only as long as each field that is looked at makes sense.

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

    /// Length of the pages themselves.
    fn page(&self) -> Option<u32> {
        database::page(&Head { bytes: &self.0, total: None })
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
    for (field, page) in [(4096, 4096), (8192, 8192), (32_768, 32_768), (1, 65_536), (512, 512), (1024, 1024)] {
        assert_eq!(sqlite(field).page(), Some(page));
        assert_eq!(page_size(&sqlite(field).0, None), Some(4096));
    }
    assert_eq!(sqlite(4095).page(), None);
    assert_eq!(sqlite(0).page(), None);
    every_field_counts(&sqlite(4096), &[0, 15, 17, 18, 19, 21, 23, 44, 56, 72, 91, 100]);
    let head = sqlite(8192).0;
    assert_eq!(page_size(&head, Some(10 * 8192)), Some(4096));
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
    assert_eq!(page_size(&one.0[..8192], Some(8192)), Some(4096));
    assert_eq!(page_size(&one.0[..8191], None), None);
    assert_eq!(page_size(&one.0, Some(8192 * 3 + 5)), None);
    let all = (0..8).fold(Builder::new(), |builder, page| postgres_page(builder, page * 8192, 0x2004));
    every_field_counts(&all, &[19, 8192 + 19, 3 * 8192 + 13, 7 * 8192 + 18]);
    assert_eq!(postgres_page(Builder::new(), 0, 0x2003).page(), None, "a layout nobody wrote for fifteen years");
    assert_eq!(Builder::new().put(8192 * 2, b"text").page(), None);
    // Lower, upper and special must rise, and special is aligned.
    for (lower, upper, special) in [(0x184, 0x180, 8192), (0x10c, 8184, 8176), (20, 8192, 8192), (24, 8000, 8191_u16)] {
        let [lower, upper, special] = [lower, upper, special].map(u16::to_le_bytes);
        let page = postgres_page(Builder::new(), 0, 0x2004).put(12, &lower).put(14, &upper).put(16, &special);
        assert_eq!(page.page(), None);
    }
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
    // Flags as both layouts write them: default, 4 KiB, compressed to 8 KiB; newer with 16 and 4
    // KiB.
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

#[test]
fn ordinary_data_is_not_pages() {
    let text = "The quick brown fox jumps over the lazy dog.\n".repeat(2000);
    let tar = Builder::new().put(0, b"folder/file").put(257, b"ustar\x0000");
    let elf = Builder::new().put(0, b"\x7fELF\x02\x01\x01");
    let disk = Builder::new().put(510, &[0x55, 0xaa]).put(512, b"EFI PART\0\0\x01\0");
    for head in [text.as_bytes(), &tar.0, &elf.0, &disk.0, &Builder::new().0, &vec![0xff; HEAD_BYTES], b"", b"x"] {
        assert_eq!(page_size(head, None), None);
        assert_eq!(page_size(head, Some(1 << 20)), None);
    }
}

proptest! {
    /// Any content under the right first bytes, of any length: no panic, and hardly ever an answer.
    #[test]
    fn noise_behind_a_magic_number_is_not_pages(
        magic in proptest::sample::select(vec!["SQLite format 3\0", "\0\0\0\0", ""]),
        noise in proptest::collection::vec(any::<u8>(), 0..3000),
        total in proptest::option::of(any::<u64>()),
    ) {
        let head = [magic.as_bytes(), &noise].concat();
        prop_assert_eq!(page_size(&head, total), None);
    }
}
