//! Files with holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

/// Makes a range of a file read as zeros.
pub(crate) fn punch(file: &File, offset: u64, length: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)?)
}

/// Copies a file, and leaves holes where it has holes.
pub(crate) fn sparse(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < length {
        let begin = match seek(&from, SeekFrom::Data(at)) {
            // A hole up to the end.
            Err(Errno::NXIO) => break,
            found => found?,
        };
        let end = seek(&from, SeekFrom::Hole(begin))?;
        at = begin;
        while at < end {
            let part = &mut buffer[..(end - at).min(1 << 20) as usize];
            from.read_exact_at(part, at)?;
            to.write_all_at(part, at)?;
            at += part.len() as u64;
        }
    }
    Ok(())
}
