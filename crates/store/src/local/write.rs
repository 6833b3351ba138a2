//! Writing the bytes of a new file: large ones past the page cache ([`super::blocks`]).
//!
//! A partial block at the end goes through the cache, as small files do.
//!
//! Invariants
//! * Independent of the file system's support for `O_DIRECT`, the file holds exactly the given
//!   bytes. Bytes that were not written past the cache are written through it, and real failures (a
//!   full disk) show there.
//! * When [`write_synced`] has returned, the disk has them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

use super::blocks::{BLOCK, Buffers, DIRECT_MIN};

/// Writes all bytes to a new, empty file and waits until the disk has them.
pub(super) fn write_synced(buffers: &Buffers, file: &File, bytes: &[u8]) -> io::Result<()> {
    let direct = (bytes.len() >= DIRECT_MIN)
        .then(|| buffers.past_cache(file, |buffer| write_blocks(file, bytes, buffer)))
        .flatten()
        .unwrap_or(0);
    write_at(file, &bytes[direct..], direct as u64)?;
    file.sync_all()
}

/// Writes whole blocks through an aligned buffer, up to the first write that fails or is not a
/// whole number of blocks.
fn write_blocks(file: impl AsFd, bytes: &[u8], buffer: &mut [u8]) -> usize {
    let whole = bytes.len() - bytes.len() % BLOCK;
    let mut written = 0;
    while written < whole && !buffer.is_empty() {
        let step = buffer.len().min(whole - written);
        buffer[..step].copy_from_slice(&bytes[written..written + step]);
        match rustix::io::retry_on_intr(|| rustix::io::pwrite(&file, &buffer[..step], written as u64)) {
            Ok(count) => {
                written += count;
                if count % BLOCK != 0 || count == 0 {
                    break;
                }
            }
            // Not taken this way (EINVAL), or not at all: writing through the cache finds out.
            Err(_) => break,
        }
    }
    written
}

/// Writes all bytes at this offset.
fn write_at(file: impl AsFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(&file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => (bytes, offset) = (&bytes[count..], offset + count as u64),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::blocks::STEP;
    use super::*;
    use std::fs::OpenOptions;
    use std::path::Path;

    fn bytes(len: usize) -> Vec<u8> {
        larder_testkit::data::random(len as u64, len)
    }

    /// Folders with and, mostly, without direct writing.
    fn folders() -> Vec<tempfile::TempDir> {
        let memory = tempfile::tempdir_in("/dev/shm").ok();
        [tempfile::tempdir().ok(), memory].into_iter().flatten().collect()
    }

    fn new_file(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).create_new(true).open(path).expect("made")
    }

    #[test]
    fn every_length_is_written_whole_wherever_it_is() {
        let buffers = Buffers::default();
        for folder in folders() {
            for edge in [0, 1, BLOCK, DIRECT_MIN, DIRECT_MIN + BLOCK, DIRECT_MIN + STEP, 3 * STEP + 5 * BLOCK] {
                for len in [edge.saturating_sub(1), edge, edge + 1, edge + BLOCK / 2] {
                    let (path, bytes) = (folder.path().join(len.to_string()), bytes(len));
                    let file = new_file(&path);
                    let flags = rustix::fs::fcntl_getfl(&file).expect("told");
                    write_synced(&buffers, &file, &bytes).expect("written");
                    assert!(std::fs::read(&path).expect("read") == bytes, "{len} bytes in {}", folder.path().display());
                    assert_eq!(rustix::fs::fcntl_getfl(&file).expect("told"), flags);
                    std::fs::remove_file(&path).expect("removed");
                }
            }
        }
        assert!(buffers.kept() <= 1, "buffers pile up");
    }

    /// Guards against: a failure that is hidden by continuing in the other way.
    #[test]
    fn real_failures_are_told() {
        let bytes = bytes(DIRECT_MIN + 17);
        let full = OpenOptions::new().write(true).open("/dev/full").expect("opens");
        let error = write_synced(&Buffers::default(), &full, &bytes).expect_err("there is no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("read-only");
        drop(new_file(&path));
        let unwritable = File::open(&path).expect("opens");
        assert!(write_synced(&Buffers::default(), &unwritable, &bytes).is_err());
        assert_eq!(std::fs::read(&path).expect("read"), b"");
    }

    /// A device may refuse at any block: written blocks stay, and the rest is written through the
    /// cache.
    #[test]
    fn what_is_not_taken_at_once_is_written_in_the_other_way() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let bytes = bytes(3 * BLOCK + 100);
        let path = folder.path().join("file");
        let file = new_file(&path);
        // Without memory for blocks nothing can be written in blocks.
        assert_eq!(write_blocks(&file, &bytes, &mut []), 0);
        assert_eq!(write_blocks(&file, &bytes, &mut [0; 2 * BLOCK]), 3 * BLOCK);
        write_at(&file, &bytes[BLOCK..], BLOCK as u64).expect("written");
        assert!(std::fs::read(&path).expect("read") == bytes);
    }
}
