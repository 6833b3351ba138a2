//! A file that changes under the reader is told from one that does not, and its entry always agrees with the bytes delivered.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::torture::noise;
use crate::support::{Walked, put, relative};
use larder_format::entry::EntryKind;
use larder_source::{Change, Found, ReadError};

const SIZE: usize = 1_000_000;

fn found(path: &Path) -> Found {
    Walked::plain(&[path]).found.into_iter().find(|found| found.entry.path == relative(path)).expect("it is there")
}

/// Reads `first` bytes, lets `meddle` do its work, reads the rest.
fn read_around(path: &Path, first: usize, meddle: impl FnOnce(&Path)) -> (Found, Vec<u8>, Option<Change>) {
    let mut found = found(path);
    let mut reader = found.open().expect("opens");
    let mut all = vec![0; first];
    let mut filled = 0;
    while filled < first {
        filled += reader.read(&mut all[filled..]).expect("reads");
    }
    meddle(path);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match reader.read(&mut buffer).expect("reads") {
            0 => break,
            got => all.extend_from_slice(&buffer[..got]),
        }
    }
    let finished = reader.finish(&mut found.entry);
    assert_eq!(finished.stored, all.len() as u64, "what is said to be stored was delivered");
    assert_eq!(found.entry.stored_bytes(), all.len() as u64, "the entry agrees");
    (found, all, finished.change)
}

fn file(dir: &Path) -> PathBuf {
    put(dir, "file", noise(1, SIZE))
}

fn writable(path: &Path) -> File {
    File::options().write(true).open(path).expect("opens")
}

/// What is read elsewhere and passed counts as delivered, and what is cut off meanwhile is noticed in both ways.
#[test]
fn a_file_can_be_read_elsewhere_at_the_same_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(dir.path());
    let mut found = found(&path);
    let mut reader = found.open().expect("opens");
    let elsewhere = reader.elsewhere().expect("it has no holes");
    assert_eq!(elsewhere.size(), SIZE as u64);
    let mut buffer = vec![0; 300_000];
    assert_eq!(reader.read(&mut buffer[..100_000]).expect("reads"), 100_000);
    let reading = std::thread::spawn({
        let elsewhere = elsewhere.clone();
        move || elsewhere.fill(&mut buffer, 100_000).then_some(buffer)
    });
    let mut buffer = reading.join().expect("no panic").expect("it is there");
    assert!(buffer == noise(1, SIZE)[100_000..400_000]);
    reader.pass(300_000);
    assert_eq!(reader.expected(), Some(SIZE as u64));
    assert_eq!(reader.read(&mut buffer).expect("reads"), 300_000);
    assert!(buffer == noise(1, SIZE)[400_000..700_000]);
    assert!(!elsewhere.fill(&mut buffer, SIZE as u64 - 299_999), "there is not so much");
    writable(&path).set_len(750_000).expect("cut");
    assert!(!elsewhere.fill(&mut buffer, 700_000), "there is no more so much");
    assert_eq!(reader.read(&mut buffer).expect("reads"), 50_000);
    assert_eq!(reader.read(&mut buffer).expect("reads"), 0);
    let finished = reader.finish(&mut found.entry);
    assert_eq!((finished.stored, found.entry.stored_bytes()), (750_000, 750_000));
    let change = Change::Shrank { from: SIZE as u64, to: 750_000, stored: 750_000 };
    assert_eq!(finished.change, Some(change));
}

#[test]
fn an_unchanged_file_is_said_to_be_unchanged() {
    let dir = tempfile::tempdir().expect("a folder");
    let (found, all, change) = read_around(&file(dir.path()), 1000, |_| ());
    assert_eq!(change, None);
    assert!(all == noise(1, SIZE));
    assert_eq!(found.entry.size(), SIZE as u64);
}

#[test]
fn a_file_that_shrinks_ends_where_the_reading_ended() {
    let dir = tempfile::tempdir().expect("a folder");
    let (found, all, change) =
        read_around(&file(dir.path()), 300_000, |path| writable(path).set_len(400_000).expect("cut"));
    assert_eq!(change, Some(Change::Shrank { from: SIZE as u64, to: 400_000, stored: 400_000 }));
    assert!(all == noise(1, SIZE)[..400_000]);
    assert_eq!(found.entry.kind, EntryKind::File { size: 400_000, extents: None });

    let (found, all, change) = read_around(&file(dir.path()), 300_000, |path| writable(path).set_len(0).expect("cut"));
    assert_eq!(change, Some(Change::Shrank { from: SIZE as u64, to: 0, stored: 300_000 }));
    assert_eq!((found.entry.size(), all.len()), (300_000, 300_000));

    // Cut off where everything was read already.
    let (found, all, change) = read_around(&file(dir.path()), SIZE, |path| writable(path).set_len(10).expect("cut"));
    assert_eq!(change, Some(Change::Shrank { from: SIZE as u64, to: 10, stored: SIZE as u64 }));
    assert_eq!((found.entry.size(), all.len()), (SIZE as u64, SIZE));
}

#[test]
fn a_sparse_file_that_shrinks_loses_whole_extents() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = put(dir.path(), "sparse", b"");
    let sparse = writable(&path);
    sparse.set_len(10 << 20).expect("sized");
    for offset in [0, 2 << 20, 6 << 20] {
        sparse.write_all_at(&noise(9, 100_000), offset).expect("written");
    }
    let (found, all, change) =
        read_around(&path, 1000, |path| writable(path).set_len((2 << 20) + 50_000).expect("cut"));
    let end = (2 << 20) + 50_000;
    assert_eq!(change, Some(Change::Shrank { from: 10 << 20, to: end, stored: end }));
    let EntryKind::File { size, extents: Some(extents) } = &found.entry.kind else { panic!("sparse") };
    assert_eq!(*size, end);
    assert_eq!(extents.len(), 2);
    let last = extents.last().expect("two");
    assert_eq!(last.offset + last.length, end);
    assert!(all.ends_with(&noise(9, 100_000)[..50_000]));
}

#[test]
fn a_file_that_grows_is_stored_at_its_old_length() {
    let dir = tempfile::tempdir().expect("a folder");
    let append = |path: &Path| writable(path).write_all_at(b"more", SIZE as u64).expect("written");
    let (found, all, change) = read_around(&file(dir.path()), 1000, append);
    assert_eq!(change, Some(Change::Grew { from: SIZE as u64, to: SIZE as u64 + 4 }));
    assert!(all == noise(1, SIZE));
    assert_eq!(found.entry.size(), SIZE as u64);
}

/// Clocks of file systems tick every few milliseconds: wait until a change shows.
fn later(path: &Path) {
    let before = fs::metadata(path).expect("there");
    let probe = path.with_extension("probe");
    loop {
        fs::write(&probe, b"x").expect("written");
        let now = fs::metadata(&probe).expect("there");
        if (now.ctime(), now.ctime_nsec()) > (before.ctime(), before.ctime_nsec()) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_file_written_to_or_touched_is_told_apart() {
    let dir = tempfile::tempdir().expect("a folder");
    let (.., change) = read_around(&file(dir.path()), 1000, |path| {
        later(path);
        writable(path).write_all_at(b"changed", 0).expect("written");
    });
    assert_eq!(change, Some(Change::Written));
    let (.., change) = read_around(&file(dir.path()), 1000, |path| {
        later(path);
        fs::set_permissions(path, fs::Permissions::from_mode(0o640)).expect("set");
    });
    assert_eq!(change, Some(Change::Touched));
    // A file removed while it is read is still read to its end.
    let (_, all, change) = read_around(&file(dir.path()), 1000, |path| {
        later(path);
        fs::remove_file(path).expect("removed");
    });
    assert_eq!(change, Some(Change::Touched));
    assert!(all == noise(1, SIZE));
}

#[test]
fn a_file_longer_than_it_says_is_not_passed_over_in_silence() {
    let (found, all, change) = read_around(Path::new("/proc/self/status"), 0, |_| ());
    assert_eq!(change, Some(Change::LongerThanItsSize { size: 0 }));
    assert_eq!((found.entry.size(), all.len()), (0, 0));
}

#[test]
fn a_file_that_says_more_than_it_holds_is_cut() {
    let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    if !path.exists() {
        return;
    }
    let (found, all, change) = read_around(path, 0, |_| ());
    let size = 4096;
    assert_eq!(change, Some(Change::CutShort { size, stored: all.len() as u64 }));
    assert_eq!(found.entry.size(), all.len() as u64);
}

#[test]
fn reading_that_stops_half_way_leaves_an_entry_of_that_half() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut found = found(&file(dir.path()));
    let mut reader = found.open().expect("opens");
    let got = reader.read(&mut vec![0; 1000]).expect("reads");
    let finished = reader.finish(&mut found.entry);
    assert_eq!(finished.stored, got as u64);
    assert_eq!(finished.change, Some(Change::CutShort { size: SIZE as u64, stored: got as u64 }));
    assert_eq!(found.entry.size(), got as u64);
}

#[test]
fn whatever_took_the_place_of_a_file_is_neither_waited_for_nor_followed() {
    let dir = tempfile::tempdir().expect("a folder");
    let replaced_by = |make: &dyn Fn(&Path)| {
        let path = file(dir.path());
        let mut found = found(&path);
        fs::remove_file(&path).expect("removed");
        make(&path);
        let outcome = found.open().map(drop);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        outcome
    };
    let node = |file_type| {
        move |path: &Path| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, path, file_type, mode, 0).expect("made");
        }
    };
    assert!(matches!(replaced_by(&|_| ()), Err(ReadError::Vanished { .. })));
    assert!(matches!(replaced_by(&node(rustix::fs::FileType::Fifo)), Err(ReadError::Replaced { .. })));
    assert!(matches!(replaced_by(&node(rustix::fs::FileType::Socket)), Err(ReadError::Replaced { .. })));
    assert!(matches!(
        replaced_by(&|path| symlink("/etc/passwd", path).expect("linked")),
        Err(ReadError::Replaced { .. })
    ));
    assert!(matches!(replaced_by(&|path| fs::create_dir(path).expect("made")), Err(ReadError::Replaced { .. })));
}

/// Programs that save a file write a new one and rename it: what counts is the new one, with its own metadata.
#[test]
fn a_file_saved_by_renaming_is_read_with_its_new_metadata() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(dir.path());
    let save = || {
        let new = put(dir.path(), "file.new", b"new contents");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o751)).expect("set");
        fs::rename(new, &path).expect("renamed");
    };
    let mut first = found(&path);
    save();
    let mut reader = first.open().expect("opens");
    let mut buffer = [0; 100];
    assert_eq!(reader.read(&mut buffer).expect("reads"), 12);
    assert_eq!(reader.finish(&mut first.entry).change, None);
    assert_eq!((first.entry.size(), first.entry.mode), (12, 0o751));
    assert_eq!(first.entry.inode, fs::metadata(&path).expect("there").ino());

    // Not so where others may link to it: they would get contents that are not theirs.
    fs::hard_link(&path, dir.path().join("other name")).expect("linked");
    let mut linked = found(&path);
    save();
    assert!(matches!(linked.open(), Err(ReadError::Replaced { .. })));
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_with_its_place() {
    let mut found = found(Path::new("/proc/self/mem"));
    let mut reader = found.open().expect("opens");
    let error = reader.read(&mut [0; 10]).expect_err("nothing is mapped at 0");
    assert!(error.to_string().starts_with("cannot read /proc/self/mem at byte 0: "), "{error}");
    assert_eq!(reader.finish(&mut found.entry).stored, 0);
}

#[test]
fn everything_can_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<larder_source::Walk>();
    is_send::<larder_source::Item>();
    is_send::<larder_source::FileReader>();
    is_send::<larder_source::CommandStream>();
}
