//! Where bytes go in a file: extents, runs of zeros that become holes, and holes punched into old
//! content.

use larder_format::entry::{Entry, EntryKind, Extent};
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::error::TargetError;

/// Zeros are left out in whole blocks of this size, aligned in the file: file systems can keep
/// these as a hole.
const BLOCK: usize = 4096;

/// A regular file's size and stored runs, checked: rising, not overlapping, not empty, within the
/// size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout<'e> {
    pub(super) size: u64,
    extents: Option<&'e [Extent]>,
}

impl<'e> Layout<'e> {
    pub(super) fn of(entry: &'e Entry) -> Result<Self, TargetError> {
        let bad = |problem| TargetError::BadEntry { path: entry.path.clone(), problem };
        let EntryKind::File { size, extents } = &entry.kind else {
            return Err(TargetError::Misuse { path: entry.path.clone(), problem: "only regular files have content" });
        };
        let mut end = 0;
        for extent in extents.iter().flatten() {
            if extent.length == 0 || extent.offset < end {
                return Err(bad("its data runs are not in rising order"));
            }
            end = extent.offset.checked_add(extent.length).ok_or_else(|| bad("its data runs end nowhere"))?;
        }
        if end > *size || i64::try_from(*size).is_err() {
            return Err(bad("its data runs and its size disagree"));
        }
        Ok(Self { size: *size, extents: extents.as_deref() })
    }

    /// The runs of stored bytes, in file order.
    pub(super) fn runs(self) -> impl Iterator<Item = Extent> + 'e {
        let whole = Extent { offset: 0, length: self.size };
        let all = self.extents.is_none() && self.size > 0;
        self.extents.into_iter().flatten().copied().chain(all.then_some(whole))
    }

    /// The holes between, before and after the runs, below `end`.
    pub(super) fn holes(self, end: u64) -> impl Iterator<Item = Extent> + 'e {
        let last = Extent { offset: self.size, length: 0 };
        let mut at = 0;
        self.runs().chain([last]).filter_map(move |run| {
            let (from, to) = (at, run.offset.min(end));
            at = run.offset + run.length;
            (from < to).then(|| Extent { offset: from, length: to - from })
        })
    }
}

/// How zeros are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zeros {
    /// Like all other bytes.
    Written,
    /// As holes. Below `existing`, the file has old content, which is punched out; above, leaving
    /// them out is enough.
    Holes { existing: u64 },
}

/// Writes all of `data` at `offset`.
pub(super) fn write(fd: BorrowedFd<'_>, data: &[u8], offset: u64, zeros: Zeros) -> Result<(), Errno> {
    let Zeros::Holes { existing } = zeros else { return write_all(fd, data, offset) };
    let mut at = 0;
    while at < data.len() {
        let zero_bytes = zero_run(&data[at..], offset + at as u64);
        if zero_bytes > 0 {
            let from = offset + at as u64;
            if from < existing {
                clear(fd, from, (zero_bytes as u64).min(existing - from))?;
            }
            at += zero_bytes;
        }
        let data_bytes = data_run(&data[at..], offset + at as u64);
        write_all(fd, &data[at..at + data_bytes], offset + at as u64)?;
        at += data_bytes;
    }
    Ok(())
}

/// Whether a range is a hole already, so that clearing it would only change the file's times.
pub(super) fn is_hole(fd: BorrowedFd<'_>, range: Extent) -> bool {
    match rustix::fs::seek(fd, SeekFrom::Data(range.offset)) {
        Ok(data) => data >= range.offset + range.length,
        Err(errno) => errno == Errno::NXIO,
    }
}

/// Whether no byte of a range is in a hole. File systems that know of none say so.
pub(super) fn is_data(fd: BorrowedFd<'_>, range: Extent) -> bool {
    match rustix::fs::seek(fd, SeekFrom::Hole(range.offset)) {
        Ok(hole) => hole >= range.offset + range.length,
        Err(errno) => errno != Errno::NXIO,
    }
}

/// Makes a range of existing content read as zeros: a hole where the file system knows them.
pub(super) fn clear(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    match rustix::fs::fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        other => return other,
    }
    let zeros = [0_u8; 1 << 16];
    let mut at = 0;
    while at < length {
        let part = usize::try_from(length - at).map_or(zeros.len(), |rest| rest.min(zeros.len()));
        write_all(fd, &zeros[..part], offset + at)?;
        at += part as u64;
    }
    Ok(())
}

/// Length of the whole zero blocks at the start of `data`, which begins at `offset`; 0 when it does
/// not start on a block.
fn zero_run(data: &[u8], offset: u64) -> usize {
    if !offset.is_multiple_of(BLOCK as u64) {
        return 0;
    }
    data.chunks_exact(BLOCK).take_while(|block| is_zero(block)).count() * BLOCK
}

/// Bytes up to the next whole zero block, or all of them.
fn data_run(data: &[u8], offset: u64) -> usize {
    let mut at = match usize::try_from(offset % BLOCK as u64).unwrap_or(0) {
        0 => 0,
        into => BLOCK - into,
    };
    while at + BLOCK <= data.len() && !is_zero(&data[at..at + BLOCK]) {
        at += BLOCK;
    }
    if at + BLOCK > data.len() { data.len() } else { at }
}

fn is_zero(block: &[u8]) -> bool {
    // In pieces, so that most blocks are told by their first bytes and the rest goes many bytes at
    // a time.
    block.chunks(256).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

fn write_all(fd: BorrowedFd<'_>, mut data: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !data.is_empty() {
        match rustix::io::pwrite(fd, data, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                data = &data[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
