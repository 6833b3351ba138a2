//! Where bytes go in a file: extents, runs of zeros that become holes, and holes punched into old
//! content.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use larder_format::entry::{Entry, EntryKind, Extent};
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::error::TargetError;

/// Bytes of the blocks that file systems can keep as holes. Zeros are left out by such blocks, or
/// by the part of one that a piece has.
pub(super) const BLOCK: u64 = 4096;
/// Blocks of a file that may be known to be cleared in part. Further ones stay allocated.
const SEAMS_MAX: usize = 1 << 10;

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
#[derive(Debug, Clone, Copy)]
pub(super) enum Zeros<'o> {
    /// Like all other bytes.
    Written,
    /// As holes: they are left out, and punched out of old content.
    Holes(&'o OldContent),
}

/// The content that a file had before, and the blocks in it that become zeros piece by piece.
///
/// A file without old content does not need it: any part that is not written is a hole, whatever
/// the pieces are.
#[derive(Debug, Default)]
pub(super) struct OldContent {
    /// Bytes of it.
    bytes: u64,
    /// Blocks of which some bytes were cleared: disjoint ranges of them.
    seams: Mutex<HashMap<u64, Vec<Range<u64>>>>,
}

impl OldContent {
    /// Old content of this length, in bytes.
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, seams: Mutex::default() }
    }

    /// How many bytes there are.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// This range of the file becomes zeros.
    fn leave_out(&self, fd: BorrowedFd<'_>, range: Range<u64>) -> Result<(), Errno> {
        let range = range.start..range.end.min(self.bytes);
        if range.is_empty() {
            return Ok(());
        }
        clear(fd, range.clone(), self.bytes)?;
        let (first, last) = (range.start / BLOCK, (range.end - 1) / BLOCK);
        for block in [Some(first), Some(last).filter(|last| *last != first)].into_iter().flatten() {
            let whole = block * BLOCK..(block + 1) * BLOCK;
            let part = range.start.max(whole.start)..range.end.min(whole.end);
            // A part of a block is not given back; all its parts together are.
            if part != whole && self.completes(block, part) {
                clear(fd, whole, self.bytes)?;
            }
        }
        Ok(())
    }

    /// Notes that a part of a block was cleared. Says whether all of it is.
    fn completes(&self, block: u64, part: Range<u64>) -> bool {
        let mut seams = self.seams.lock().unwrap_or_else(PoisonError::into_inner);
        if seams.len() >= SEAMS_MAX && !seams.contains_key(&block) {
            return false;
        }
        let parts = seams.entry(block).or_default();
        let mut union = part;
        parts.retain(|known| {
            let is_apart = known.end < union.start || union.end < known.start;
            if !is_apart {
                union = union.start.min(known.start)..union.end.max(known.end);
            }
            is_apart
        });
        let is_whole = union.end - union.start == BLOCK;
        parts.push(union);
        if is_whole {
            seams.remove(&block);
        }
        is_whole
    }
}

/// Writes all of `data` at `offset`.
pub(super) fn write(fd: BorrowedFd<'_>, data: &[u8], offset: u64, zeros: Zeros<'_>) -> Result<(), Errno> {
    let Zeros::Holes(old) = zeros else { return write_all(fd, data, offset) };
    let mut at = 0;
    while at < data.len() {
        let from = offset + at as u64;
        let zero_bytes = run(&data[at..], from, true);
        old.leave_out(fd, from..from + zero_bytes as u64)?;
        at += zero_bytes;
        let data_bytes = run(&data[at..], offset + at as u64, false);
        write_all(fd, &data[at..at + data_bytes], offset + at as u64)?;
        at += data_bytes;
    }
    Ok(())
}

/// Whether a range needs no clearing, which would only change the file's times: its whole blocks
/// are holes, and its parts of blocks are zeros. `reader` opens the file for reading.
pub(super) fn is_clear(fd: BorrowedFd<'_>, range: Range<u64>, reader: impl FnOnce() -> Option<File>) -> bool {
    let first = range.start.next_multiple_of(BLOCK).min(range.end);
    let blocks = first..(range.end - range.end % BLOCK).max(first);
    let is_hole = blocks.is_empty()
        || match rustix::fs::seek(fd, SeekFrom::Data(blocks.start)) {
            Ok(data) => data >= blocks.end,
            Err(errno) => errno == Errno::NXIO,
        };
    let mut edges = [range.start..blocks.start, blocks.end..range.end].into_iter().filter(|edge| !edge.is_empty());
    is_hole && (edges.clone().next().is_none() || reader().is_some_and(|file| edges.all(|edge| is_zeros(&file, edge))))
}

/// Whether a part of a block is zeros, as far as the file goes.
fn is_zeros(file: &File, range: Range<u64>) -> bool {
    let mut reader = file;
    let mut bytes = Vec::new();
    reader.seek(io::SeekFrom::Start(range.start)).is_ok()
        && reader.take(range.end - range.start).read_to_end(&mut bytes).is_ok()
        && is_zero(&bytes)
}

/// Whether no byte of a range is in a hole. File systems that know of none say so.
pub(super) fn is_data(fd: BorrowedFd<'_>, range: Extent) -> bool {
    match rustix::fs::seek(fd, SeekFrom::Hole(range.offset)) {
        Ok(hole) => hole >= range.offset + range.length,
        Err(errno) => errno != Errno::NXIO,
    }
}

/// Makes a range read as zeros: a hole where the file system knows them. The file keeps its size.
/// `old_bytes`: the length of the old content. Nothing was written behind it in this range.
pub(super) fn clear(fd: BorrowedFd<'_>, range: Range<u64>, old_bytes: u64) -> Result<(), Errno> {
    let length = range.end - range.start;
    match rustix::fs::fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, range.start, length) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(fd, range, old_bytes),
        other => other,
    }
}

/// The same on file systems that know no holes: only old content takes writes.
fn write_zeros(fd: BorrowedFd<'_>, range: Range<u64>, old_bytes: u64) -> Result<(), Errno> {
    let zeros = [0_u8; 1 << 16];
    let size = rustix::fs::fstat(fd)?.st_size.cast_unsigned();
    let end = range.end.min(old_bytes).min(size);
    let mut at = range.start;
    while at < end {
        let part = usize::try_from(end - at).map_or(zeros.len(), |rest| rest.min(zeros.len()));
        write_all(fd, &zeros[..part], at)?;
        at += part as u64;
    }
    Ok(())
}

/// Bytes at the start of `data`, which begins at `offset`, up to a block with another byte than
/// zero in its part of `data`; without `of_zeros`, up to a block without one.
fn run(data: &[u8], offset: u64, of_zeros: bool) -> usize {
    let mut at = 0;
    while at < data.len() {
        let rest = BLOCK - (offset + at as u64) % BLOCK;
        let end = data.len().min(at + rest as usize);
        if is_zero(&data[at..end]) != of_zeros {
            break;
        }
        at = end;
    }
    at
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
