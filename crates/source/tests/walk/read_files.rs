//! What a reader delivers, put back where its entry says, is the file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::torture::{Torture, noise};
use crate::support::{Walked, path_of, put, relative};
use larder_format::entry::{Entry, EntryKind};
use larder_source::{FileReader, Found, ReadError, WalkOptions};
use proptest::prelude::*;

fn read_all(reader: &mut FileReader, buffer: usize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0xAA; buffer]);
    loop {
        match reader.read(&mut buffer).expect("readable") {
            0 => return all,
            got => all.extend_from_slice(&buffer[..got]),
        }
    }
}

/// The file an entry and its stored bytes stand for.
fn rebuild(entry: &Entry, stored: &[u8]) -> Vec<u8> {
    let EntryKind::File { size, extents } = &entry.kind else { panic!("a file: {entry:?}") };
    let Some(extents) = extents else { return stored.to_vec() };
    let mut whole = vec![0; usize::try_from(*size).expect("fits")];
    let mut rest = stored;
    for extent in extents {
        let (offset, length) = (extent.offset as usize, extent.length as usize);
        whole[offset..offset + length].copy_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
    assert!(rest.is_empty(), "bytes beyond the extents");
    whole
}

fn find(root: &Path, name: &str) -> Found {
    let path = relative(&root.join(name));
    Walked::plain(&[root]).found.into_iter().find(|found| found.entry.path == path).expect("it is there")
}

#[test]
fn the_torture_tree_reads_back_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    Torture::small().build(dir.path()).expect("built");
    let mut seen = 0;
    for mut found in Walked::plain(&[dir.path()]).found {
        let path = path_of(&found.entry.path);
        if !matches!(found.entry.kind, EntryKind::File { .. }) || found.entry.path.len() > 4_000 {
            continue;
        }
        let mut reader = found.open().expect("opens");
        let expected = reader.expected().expect("known");
        let stored = read_all(&mut reader, 70_000);
        let finished = reader.finish(&mut found.entry);
        assert_eq!((finished.stored, finished.change), (expected, None), "{path:?}");
        assert_eq!(found.entry.stored_bytes(), stored.len() as u64, "{path:?}");
        if found.entry.size() < 1 << 30 {
            assert_eq!(rebuild(&found.entry, &stored), fs::read(&path).expect("readable"), "{path:?}");
        } else {
            // Too large for memory: look at the places where there is data.
            assert!(stored.len() < 1 << 20, "only data is read");
            let file = File::open(&path).expect("opens");
            let EntryKind::File { extents: Some(extents), .. } = &found.entry.kind else { panic!("it has holes") };
            let mut rest = stored.as_slice();
            for extent in extents {
                let (here, after) = rest.split_at(extent.length as usize);
                let mut real = vec![0; here.len()];
                file.read_exact_at(&mut real, extent.offset).expect("readable");
                assert_eq!(here, real);
                rest = after;
            }
            assert!(stored.iter().filter(|byte| **byte != 0).count() >= 4_900);
        }
        seen += 1;
    }
    assert!(seen > 300, "{seen}");
}

#[test]
fn holes_are_neither_read_nor_stored() {
    let dir = tempfile::tempdir().expect("a folder");
    Torture::small().build(dir.path()).expect("built");
    for (name, at_most) in [
        ("only a hole", 0),
        ("hole at the start", (1 << 19) + 4_096),
        ("hole at the end", 16_384),
        ("comb", 500 * 4_096),
        ("huge", 20_000),
    ] {
        let mut found = find(dir.path(), &format!("sparse/{name}"));
        let mut reader = found.open().expect("opens");
        let stored = read_all(&mut reader, 1 << 20);
        assert!(stored.len() <= at_most, "{name}: {} bytes", stored.len());
        assert!(matches!(found.entry.kind, EntryKind::File { extents: Some(_), .. }), "{name}: {:?}", found.entry.kind);
    }
    // Written zeros are data, and so is space that was reserved: it is not to be given back by a restore.
    for name in ["sizes/zeros", "sparse/reserved"] {
        let mut found = find(dir.path(), name);
        found.open().expect("opens");
        assert!(matches!(found.entry.kind, EntryKind::File { extents: None, size: 100_000 }), "{name}");
    }
}

#[test]
fn only_regular_files_with_contents_of_their_own_are_opened() {
    let dir = tempfile::tempdir().expect("a folder");
    Torture::small().build(dir.path()).expect("built");
    for name in ["special/fifo", "links/dangling", "links/m", "names"] {
        assert!(matches!(find(dir.path(), name).open(), Err(ReadError::NotAFile { .. })), "{name}");
    }
    // The second name of a file can be made a file again.
    let mut found = find(dir.path(), "links/m");
    found.unlink().expect("possible");
    let mut reader = found.open().expect("opens");
    assert_eq!(read_all(&mut reader, 100), b"three names");
    assert_eq!(found.entry.kind, EntryKind::File { size: 11, extents: None });
    let mut link = find(dir.path(), "links/dangling too");
    link.unlink().expect("possible");
    assert_eq!(link.entry.kind, EntryKind::Symlink { target: b"nowhere".to_vec() });
}

#[test]
fn a_fifo_named_as_a_root_is_read_as_a_stream_when_asked() {
    let dir = tempfile::tempdir().expect("a folder");
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("fifo", &link).expect("linked");
    let special = || WalkOptions { read_special: true, ..Default::default() };

    let inside = Walked::with(&[dir.path()], special());
    assert!(inside.found.iter().all(|found| !found.is_special_stream()), "only roots are");
    for root in [&fifo, &link] {
        assert!(!Walked::plain(&[root]).found.last().expect("it").is_special_stream());
        let mut found = Walked::with(&[root], special()).found.pop().expect("it");
        assert!(found.is_special_stream());
        assert_eq!(found.entry.path, relative(root));
        let writer = {
            let fifo = fifo.clone();
            std::thread::spawn(move || fs::write(fifo, noise(1, 300_000)))
        };
        let mut reader = found.open_special().expect("opens");
        assert_eq!(reader.expected(), None);
        assert!(read_all(&mut reader, 10_000) == noise(1, 300_000));
        writer.join().expect("no panic").expect("written");
        let finished = reader.finish(&mut found.entry);
        assert_eq!((finished.stored, finished.change), (300_000, None));
        assert_eq!(found.entry.kind, EntryKind::File { size: 300_000, extents: None });
    }
}

/// Needs the right and the means to make a block device; elsewhere there is nothing to test.
#[test]
fn a_block_device_named_as_a_root_is_read_whole_when_asked() {
    struct Loop(std::path::PathBuf);
    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = std::process::Command::new("losetup").arg("-d").arg(&self.0).status();
        }
    }
    let dir = tempfile::tempdir().expect("a folder");
    let image = put(dir.path(), "image", noise(5, 1 << 20));
    let losetup = std::process::Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(image).output();
    let Some(device) = losetup.ok().filter(|output| output.status.success()) else { return };
    let device = Loop(String::from_utf8(device.stdout).expect("text").trim().into());
    let link = dir.path().join("disk");
    std::os::unix::fs::symlink(&device.0, &link).expect("linked");
    for root in [&device.0, &link] {
        let special = WalkOptions { read_special: true, ..Default::default() };
        let mut found = Walked::with(&[root], special).found.pop().expect("it");
        assert!(found.is_special_stream());
        let mut reader = found.open_special().expect("opens");
        assert_eq!(reader.expected(), Some(1 << 20));
        assert_eq!(found.entry.kind, EntryKind::File { size: 1 << 20, extents: None });
        assert!(read_all(&mut reader, 300_000) == noise(5, 1 << 20));
        let finished = reader.finish(&mut found.entry);
        assert_eq!((finished.stored, finished.change), (1 << 20, None));
    }
    let plain = Walked::plain(&[&device.0]).found.pop().expect("it");
    assert!(matches!(plain.entry.kind, EntryKind::BlockDevice { .. }), "without the option the node is meant");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_sparse_file_comes_back(
        size in 0u64..400_000,
        runs in proptest::collection::vec((0u64..400_000, 1usize..20_000), 0..6),
        buffer in prop_oneof![Just(1usize), 2usize..5_000, Just(1usize << 20)],
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = put(dir.path(), "file", b"");
        let file = File::options().write(true).open(&path).expect("opens");
        file.set_len(size).expect("sized");
        let buffer = if size > 100_000 { buffer.max(1_000) } else { buffer };
        for (offset, length) in runs {
            let length = length.min(size.saturating_sub(offset) as usize);
            file.write_all_at(&noise(offset + 1, length), offset.min(size)).expect("written");
        }
        let mut found = find(dir.path(), "file");
        let mut reader = found.open().expect("opens");
        let stored = read_all(&mut reader, buffer);
        let finished = reader.finish(&mut found.entry);
        prop_assert_eq!(finished.change, None);
        prop_assert_eq!(finished.stored, stored.len() as u64);
        prop_assert_eq!(found.entry.size(), size);
        prop_assert!(rebuild(&found.entry, &stored) == fs::read(&path).expect("readable"));
    }
}
