//! Reading a part of a file: large parts that are not in the page cache past it
//! ([`super::blocks`]).
//!
//! A restore reads every container once. Data in the cache is taken from there; other data need not
//! enter it.
//!
//! Invariant: independent of the file system's support for `O_DIRECT`, the bytes are those of the
//! file, and failures are reported.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, ReadWriteFlags};

use super::blocks::{BLOCK, Buffers, DIRECT_MIN};

/// Reads `length` bytes at `offset`, or the existing part of them.
pub(super) fn read_at(buffers: &Buffers, file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    // Reading into spare capacity saves zeroing it first, which costs as much as the copy from the
    // page cache.
    let mut bytes = Vec::with_capacity(length);
    if length >= DIRECT_MIN && !is_cached(file, offset, length) {
        buffers.past_cache(file, |buffer| read_blocks(file, offset, length, &mut bytes, buffer));
    }
    while bytes.len() < length {
        let from = offset + bytes.len() as u64;
        if rustix::io::retry_on_intr(|| rustix::io::pread(file, spare_capacity(&mut bytes), from))? == 0 {
            break;
        }
    }
    // A vector may get more capacity than it asked for, and a file may have grown by a foreign
    // hand.
    bytes.truncate(length);
    Ok(bytes)
}

/// Whether the page cache seems to have a part of a file: both its ends. Also where the kernel does
/// not say.
fn is_cached(file: impl AsFd, offset: u64, length: usize) -> bool {
    [offset, offset + length as u64 - 1].into_iter().all(|at| {
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        !matches!(rustix::io::preadv2(&file, &mut parts, at, ReadWriteFlags::NOWAIT), Err(Errno::AGAIN))
    })
}

/// Appends the bytes at `offset` to `bytes`, read in whole blocks, up to the first request that
/// fails or returns too few.
fn read_blocks(file: impl AsFd, offset: u64, length: usize, bytes: &mut Vec<u8>, buffer: &mut [u8]) {
    while bytes.len() < length && !buffer.is_empty() {
        let at = offset + bytes.len() as u64;
        let before = (at % BLOCK as u64) as usize;
        let step = (before + length - bytes.len()).next_multiple_of(BLOCK).min(buffer.len());
        // A failure (the way is not taken, or the disk is broken) is found again, and told, by
        // reading through the cache.
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut buffer[..step], at - before as u64));
        let got = read.unwrap_or(0);
        let wanted = got.min(before + length - bytes.len());
        bytes.extend_from_slice(buffer.get(before..wanted).unwrap_or_default());
        if got < step {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::write_synced;
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{Advice, fadvise};
    use std::sync::OnceLock;

    const SIZE: usize = (5 << 20) + 1234;

    /// A file on disk and one in memory, with the same bytes.
    fn files() -> &'static (Vec<u8>, Vec<File>, Buffers) {
        static FILES: OnceLock<(Vec<u8>, Vec<File>, Buffers)> = OnceLock::new();
        FILES.get_or_init(|| {
            let (bytes, buffers) = (larder_testkit::data::random(3, SIZE), Buffers::default());
            let file = |made: io::Result<File>| {
                let file = made.expect("made");
                write_synced(&buffers, &file, &bytes).expect("written");
                file
            };
            let mut files = vec![file(tempfile::tempfile())];
            files.extend(tempfile::tempfile_in("/dev/shm").ok().map(|memory| file(Ok(memory))));
            (bytes, files, buffers)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        #[test]
        fn any_part_is_read_whether_cached_or_not(
            offset in prop_oneof![0..SIZE, 0..10_000_usize, Just(4096)],
            length in prop_oneof![0..SIZE, DIRECT_MIN - 2..DIRECT_MIN + 2, Just(SIZE)],
            is_cached in any::<bool>(),
        ) {
            let (bytes, files, buffers) = files();
            for file in files {
                if !is_cached {
                    fadvise(file, 0, None, Advice::DontNeed).expect("taken");
                }
                let part = read_at(buffers, file, offset as u64, length).expect("reads");
                prop_assert!(part == bytes[offset..SIZE.min(offset + length)]);
            }
        }
    }

    /// Guards against: a failure that looks like the end of the file.
    #[test]
    fn failures_are_told() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let folder = File::open(folder.path()).expect("opens");
        for length in [1, DIRECT_MIN] {
            assert_eq!(
                read_at(&Buffers::default(), &folder, 0, length).expect_err("no file").kind(),
                io::ErrorKind::IsADirectory
            );
        }
    }
}
