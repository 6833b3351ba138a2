//! Promise: holes come back as holes, zeros become holes on request, and no old byte shines through either.

use std::io::Read;
use std::os::unix::fs::MetadataExt;

use crate::support::*;
use larder_source::target::{Target, TargetOptions};

const MIB: u64 = 1 << 20;

fn sparse_target(place: &Place) -> Target {
    let mut options = TargetOptions::default();
    options.sparse = true;
    place.target(options)
}

/// Bytes on disk. A file system may add a little for its own tables.
fn allocated(place: &Place, name: &str) -> u64 {
    std::fs::metadata(place.path(name)).expect("stat").blocks() * 512
}

#[test]
fn holes_of_the_original_are_left_out() {
    let place = Place::new();
    let target = place.plain();
    let size = 1 << 40;
    let entry = sparse_file("huge", size, &[(0, 4096), (MIB, 10), (size - 5 * MIB, 8192)]);
    let content = bytes(4096 + 10 + 8192, 1);
    put(&target, &entry, &content);
    let large = sparse_file("pieces", size, &[(0, 4096), (MIB, 10), (size - 5 * MIB, 8192)]);
    let writer = begin(&target, &large);
    writer.write_at(size - 5 * MIB, &content[4106..]).expect("written");
    writer.write_at(0, &content[..4096]).expect("written");
    writer.write_at(MIB, &content[4096..4106]).expect("written");
    writer.finish(&large).expect("finished");
    for name in ["huge", "pieces"] {
        assert_eq!(std::fs::metadata(place.path(name)).expect("stat").len(), size);
        assert!(allocated(&place, name) < 64 << 10, "{}", allocated(&place, name));
        assert_eq!(mtime(&place.path(name)), THEN);
    }
    for entry in [&entry, &large] {
        let mut found = target.verify(entry).expect("compared");
        found.compare_content(entry, content.as_slice()).expect("read");
        assert_eq!(found.differences, []);
    }
}

#[test]
fn a_file_of_nothing_but_a_hole() {
    let place = Place::new();
    let target = place.plain();
    for (name, size) in [("all-hole", 10 * MIB), ("empty", 0)] {
        put(&target, &sparse_file(name, size, &[]), b"");
        let entry = sparse_file(format!("{name}-begun"), size, &[]);
        begin(&target, &entry).finish(&entry).expect("finished");
        for name in [name, &format!("{name}-begun")] {
            assert_eq!(std::fs::metadata(place.path(name)).expect("stat").len(), size);
            assert_eq!(allocated(&place, name), 0);
            assert_eq!((mode(&place.path(name)), mtime(&place.path(name))), (0o644, THEN));
        }
    }
}

#[test]
fn old_content_is_punched_out() {
    for (name, old_bytes) in [("longer", 20 * MIB), ("shorter", 3 * MIB)] {
        let place = Place::new();
        std::fs::write(place.path(name), vec![7; usize::try_from(old_bytes).expect("small")]).expect("written");
        let target = place.plain();
        let entry = sparse_file(name, 10 * MIB, &[(MIB, 4096)]);
        let content = bytes(4096, 2);
        put(&target, &entry, &content);
        let mut expected = vec![0; 10 << 20];
        expected[1 << 20..][..4096].copy_from_slice(&content);
        assert!(read(&place.path(name)) == expected);
        assert!(allocated(&place, name) < 64 << 10);
    }
}

/// Old content ends at any place, also within a block that is a hole afterwards.
#[test]
fn a_file_that_was_written_over_is_not_touched_again() {
    const RUNS: [&[(u64, u64)]; 5] = [&[], &[(8192, 4096)], &[(0, 4096)], &[(8192, 5000), (40_000, 10)], &[(100, 10)]];
    for (old_bytes, runs) in [1, 100, 4096, 8193, 60_000].into_iter().flat_map(|old| RUNS.map(|runs| (old, runs))) {
        for size in [runs.last().map_or(10, |(offset, length)| offset + length), 53_000] {
            let place = Place::new();
            std::fs::write(place.path("old"), vec![7; old_bytes]).expect("written");
            let target = place.plain();
            let content = bytes(runs.iter().map(|(_, length)| *length as usize).sum(), 4);
            for name in ["old", "new"] {
                let entry = sparse_file(name, size, runs);
                let writer = begin(&target, &entry);
                let mut rest = content.as_slice();
                for (offset, length) in runs {
                    let (now, later) = rest.split_at(*length as usize);
                    writer.write_at(*offset, now).expect("written");
                    rest = later;
                }
                writer.finish(&entry).expect("finished");
            }
            finish_overwritten(&target);
            let what = format!("{old_bytes} old bytes, {runs:?}, {size} bytes");
            assert!(read(&place.path("old")) == read(&place.path("new")), "{what}");
            let entry = sparse_file("old", size, runs);
            let writer = begin(&target, &entry);
            for (offset, length) in runs {
                writer.keep(*offset, *length).expect("kept");
            }
            writer.finish(&entry).expect("finished");
            assert!(!writer.has_changed(), "{what}");
            assert_eq!(allocated(&place, "old"), allocated(&place, "new"), "{what}");
        }
    }
}

#[test]
fn an_equal_file_with_holes_is_not_touched() {
    let place = Place::new();
    let target = place.plain();
    let entry = sparse_file("f", 10 * MIB, &[(MIB, 4096), (5 * MIB, 8192)]);
    let content = bytes(3 * 4096, 2);
    put(&target, &entry, &content);
    let before = std::fs::metadata(place.path("f")).expect("stat");
    let writer = begin(&target, &entry);
    writer.keep(MIB, 4096).expect("kept");
    writer.keep(5 * MIB, 8192).expect("kept");
    writer.finish(&entry).expect("finished");
    assert!(!writer.has_changed());
    let after = std::fs::metadata(place.path("f")).expect("stat");
    assert_eq!((before.ino(), before.ctime(), before.ctime_nsec()), (after.ino(), after.ctime(), after.ctime_nsec()));
}

#[test]
fn zeros_become_holes_on_request() {
    let mut content = bytes(10 << 20, 3);
    content[1 << 20..9 << 20].fill(0);
    for old in [false, true] {
        let place = Place::new();
        for name in ["put", "begun", "full"] {
            if old {
                std::fs::write(place.path(name), vec![7; 12 << 20]).expect("written");
            }
        }
        let target = sparse_target(&place);
        put(&target, &file("put", content.len()), &content);
        let entry = file("begun", content.len());
        let writer = begin(&target, &entry);
        // Odd pieces, so that blocks of zeros lie across their borders.
        for (number, piece) in content.chunks(100_001).enumerate().rev() {
            writer.write_at(number as u64 * 100_001, piece).expect("written");
        }
        writer.finish(&entry).expect("finished");
        finish_overwritten(&target);
        put(&place.plain(), &file("full", content.len()), &content);
        for name in ["put", "begun", "full"] {
            assert!(read(&place.path(name)) == content, "{name}, old: {old}");
            assert_eq!(mtime(&place.path(name)), THEN);
        }
        assert!(allocated(&place, "put") < 2 * MIB + (64 << 10), "{}", allocated(&place, "put"));
        assert!(allocated(&place, "begun") < 2 * MIB + (64 << 10), "{}", allocated(&place, "begun"));
        assert!(allocated(&place, "full") >= 10 * MIB, "holes only on request");
    }
}

#[test]
fn a_file_that_ends_in_zeros_has_its_whole_size() {
    let place = Place::new();
    let target = sparse_target(&place);
    for size in [4096, 4097, 8192, 100_000] {
        let entry = file(format!("f{size}"), size);
        put(&target, &entry, &vec![0; size]);
        let entry = file(format!("g{size}"), size);
        let writer = begin(&target, &entry);
        writer.write_at(0, &vec![0; size]).expect("written");
        writer.finish(&entry).expect("finished");
        for name in [format!("f{size}"), format!("g{size}")] {
            let mut content = Vec::new();
            std::fs::File::open(place.path(&name)).expect("opens").read_to_end(&mut content).expect("read");
            assert!(content == vec![0; size]);
        }
    }
}
