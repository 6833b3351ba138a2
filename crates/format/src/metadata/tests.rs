//! Entries survive their encoding, and blocks dedup under edits.

use proptest::prelude::*;

use super::*;

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0u32..1_000_000_000).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

fn kind() -> impl Strategy<Value = EntryKind> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    let extents = prop::collection::vec((0u64..1000, 1u64..1000), 0..5).prop_map(|gaps| {
        let mut end = 0;
        let mut place = |(gap, length)| {
            let offset = end + gap;
            end = offset + length;
            Extent { offset, length }
        };
        let extents: Vec<_> = gaps.into_iter().map(&mut place).collect();
        EntryKind::File { size: end + 7, extents: Some(extents) }
    });
    prop_oneof![
        (0u64..1 << 50).prop_map(|size| EntryKind::File { size, extents: None }),
        extents,
        Just(EntryKind::Directory),
        bytes().prop_map(|target| EntryKind::Symlink { target }),
        Just(EntryKind::HardLink { target: b"a/b".to_vec() }),
        Just(EntryKind::Fifo),
        (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| EntryKind::CharDevice { major, minor }),
        (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| EntryKind::BlockDevice { major, minor }),
    ]
}

fn entry(path: Vec<u8>) -> impl Strategy<Value = Entry> {
    // A pattern would be parsed for each entry.
    let letters = || prop::collection::vec(prop_oneof![Just('a'), Just('z'), Just('é'), Just('日')], 0..8);
    let name = || prop::option::of(letters().prop_map(|name| Arc::from(name.into_iter().collect::<String>())));
    let xattr = (prop::collection::vec(any::<u8>(), 0..9), prop::collection::vec(any::<u8>(), 0..9))
        .prop_map(|(name, value)| Xattr { name, value });
    let owner = (any::<u32>(), any::<u32>(), name(), name());
    let times = (time(), time(), prop::option::of(time()), any::<bool>());
    (kind(), 0u32..0o10000, owner, times, any::<u64>(), prop::collection::vec(xattr, 0..3)).prop_map(
        move |(kind, mode, (uid, gid, user, group), (mtime, ctime, atime, same), inode, xattrs)| Entry {
            path: path.clone(),
            kind,
            mode,
            uid,
            gid,
            user,
            group,
            mtime,
            ctime: if same { mtime } else { ctime },
            atime,
            inode,
            xattrs,
        },
    )
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let name = prop::collection::vec(prop_oneof![Just(b'a'), Just(b'-'), Just(0xff), 1u8..46, 48u8..255], 1..4)
        .prop_filter("dots", |name| name != b"." && name != b"..");
    let path = prop::collection::vec(name, 1..4).prop_map(|names| names.join(&b'/'));
    prop::collection::btree_set(path, 1..40).prop_flat_map(|paths| {
        let mut paths: Vec<_> = paths.into_iter().collect();
        paths.sort_by(|a, b| path_order(a, b));
        paths.into_iter().map(entry).collect::<Vec<_>>()
    })
}

fn blocks(entries: &[Entry]) -> Vec<Block> {
    let mut builder = BlockBuilder::new();
    let mut blocks: Vec<_> = entries.iter().filter_map(|entry| builder.push(entry).expect("valid")).collect();
    blocks.extend(builder.finish());
    blocks
}

/// A plain file with a name made of its number.
fn plain(number: usize) -> Entry {
    Entry {
        path: format!("dir/file-{number:06}").into_bytes(),
        kind: EntryKind::File { size: number as u64, extents: None },
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        user: Some(Arc::from("alice")),
        group: None,
        mtime: Timestamp { seconds: 1_700_000_000 + number as i64, nanos: 5 },
        ctime: Timestamp { seconds: 1_700_000_009, nanos: 6 },
        atime: None,
        inode: 77 + number as u64,
        xattrs: Vec::new(),
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(entries in entries()) {
        let blocks = blocks(&entries);
        let mut decoded = Vec::new();
        for block in &blocks {
            let part = decode_block(&block.bytes).expect("decodes");
            assert_eq!(data_bytes(&block.bytes), Ok(block.data_bytes));
            prop_assert_eq!(&part[0].path, &block.first_path);
            prop_assert_eq!(part.iter().map(Entry::stored_bytes).sum::<u64>(), block.data_bytes);
            decoded.extend(part);
            for len in 0..block.bytes.len() {
                prop_assert!(decode_block(&block.bytes[..len]).is_err());
            }
        }
        prop_assert_eq!(decoded, entries);
    }

    #[test]
    fn any_bytes_are_an_error_or_entries_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_block(&bytes);
        let _ = decode_block(&[&[1], &bytes[..]].concat());
    }

    #[test]
    fn damaged_blocks_never_give_a_path_that_leaves_the_target(entries in entries(), at: prop::sample::Index, with: u8) {
        for mut block in blocks(&entries) {
            let at = at.index(block.bytes.len());
            block.bytes[at] = with;
            for entry in decode_block(&block.bytes).unwrap_or_default() {
                prop_assert!(is_valid_path(&entry.path));
            }
        }
    }
}

#[test]
fn entries_that_no_reader_accepts_are_not_encoded() {
    let good = plain(5);
    let extents = |extents: &[(u64, u64)]| EntryKind::File {
        size: 100,
        extents: Some(extents.iter().map(|(offset, length)| Extent { offset: *offset, length: *length }).collect()),
    };
    let time = Timestamp { seconds: 0, nanos: 1_000_000_000 };
    let bad = [
        Entry { path: b"../out".to_vec(), ..good.clone() },
        Entry { path: Vec::new(), ..good.clone() },
        // Not behind the first, which is the same entry.
        good.clone(),
        plain(4),
        Entry { mode: 0o10_000, ..plain(6) },
        Entry { mtime: time, ..plain(6) },
        Entry { ctime: time, ..plain(6) },
        Entry { atime: Some(time), ..plain(6) },
        Entry { kind: EntryKind::HardLink { target: b"/etc".to_vec() }, ..plain(6) },
        Entry { kind: extents(&[(0, 10), (9, 5)]), ..plain(6) },
        Entry { kind: extents(&[(0, 0)]), ..plain(6) },
        Entry { kind: extents(&[(99, 2)]), ..plain(6) },
        Entry { kind: extents(&[(u64::MAX, 2)]), ..plain(6) },
        Entry { kind: EntryKind::File { size: u64::MAX, extents: None }, ..plain(6) },
    ];
    let mut builder = BlockBuilder::new();
    assert_eq!(builder.push(&good), Ok(None));
    for entry in &bad {
        assert!(builder.push(entry).is_err(), "{entry:?}");
    }
    // A refused entry left nothing behind, and the order holds across blocks.
    let block = builder.finish().expect("one entry");
    assert_eq!(decode_block(&block.bytes), Ok(vec![good.clone()]));
    assert!(builder.push(&good).is_err());
    assert_eq!(builder.push(&plain(6)), Ok(None));
}

#[test]
fn an_inserted_entry_changes_at_most_two_blocks() {
    let entries: Vec<_> = (0..20_000).map(|number| plain(number * 2)).collect();
    let before = blocks(&entries);
    assert!(before.len() > 40, "{} blocks", before.len());
    for at in [0, 1, 7_777, 19_999] {
        let mut edited = entries.clone();
        edited.insert(at, plain((at * 2).wrapping_sub(1) & 0xf_ffff));
        edited.sort_by(|a, b| path_order(&a.path, &b.path));
        let new = blocks(&edited).into_iter().filter(|block| !before.contains(block)).count();
        assert!((1..=2).contains(&new), "{new} new blocks after an insertion at {at}");
    }
}

#[test]
fn a_file_of_a_tree_costs_few_bytes() {
    let entries: Vec<_> = (0..5_000).map(plain).collect();
    let bytes: usize = blocks(&entries).iter().map(|block| block.bytes.len()).sum();
    assert!(bytes / entries.len() < 25, "{} bytes an entry", bytes / entries.len());
}
