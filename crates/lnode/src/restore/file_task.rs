//! One file of a restore: its progress, and the bytes of containers that belong into it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use larder_chunking::{Fingerprint, Fingerprinter};
use larder_format::entry::{Entry, EntryKind};
use larder_source::target::FileWriter;
use parking_lot::Mutex;

/// Bytes of a container's payload that belong into a file, contiguous in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// Number of the container in the window.
    pub(super) container: u32,
    /// Their beginning in the payload.
    pub(super) offset: u32,
    /// Their number.
    pub(super) length: u32,
    /// Number of the file in the window.
    pub(super) file: u32,
    /// Their beginning in the file's stored bytes.
    pub(super) at: u64,
    /// The names of their chunks: see [`chained`].
    pub(super) names: [u8; 16],
}

/// The names of a run with one more chunk. They stand for all fingerprints in their order.
pub(super) fn chained(fingerprinter: &Fingerprinter, names: [u8; 16], next: &Fingerprint) -> [u8; 16] {
    let mut both = [0; 48];
    both[..16].copy_from_slice(&names);
    both[16..].copy_from_slice(&next.0);
    let chained = fingerprinter.one(&both);
    std::array::from_fn(|at| chained.0[at])
}

/// The progress of a file.
#[derive(Debug)]
pub(super) enum FileState {
    /// Nothing was written yet.
    Waiting,
    /// It is being written.
    Writing(Arc<FileWriter>),
    /// It needs no (more) work.
    Settled,
}

/// A file of the window.
#[derive(Debug)]
pub(super) struct FileTask {
    pub(super) entry: Entry,
    /// The beginning of its stored bytes in the data stream.
    pub(super) data_offset: u64,
    pub(super) stored: u64,
    /// The bytes of these that were there already.
    pub(super) kept: AtomicU64,
    /// Stored bytes not dealt with yet; the thread that brings it to 0 finishes the file.
    pub(super) remaining: AtomicU64,
    pub(super) state: Mutex<FileState>,
    pub(super) failed: AtomicBool,
}

impl FileTask {
    pub(super) fn new(entry: Entry, data_offset: u64, state: FileState) -> Self {
        let stored = entry.stored_bytes();
        Self {
            entry,
            data_offset,
            stored,
            kept: AtomicU64::new(0),
            remaining: AtomicU64::new(stored),
            state: Mutex::new(state),
            failed: AtomicBool::new(false),
        }
    }
}

/// The places of stored bytes `at..at + length` of a file: offsets in the file, around its holes.
pub(super) fn places(entry: &Entry, at: u64, length: u64) -> Vec<(u64, u64)> {
    let EntryKind::File { extents: Some(extents), .. } = &entry.kind else { return vec![(at, length)] };
    let mut places = Vec::new();
    let mut stored = 0;
    for extent in extents {
        let (from, to) = (at.max(stored), (at + length).min(stored + extent.length));
        if from < to {
            places.push((extent.offset + from - stored, to - from));
        }
        stored += extent.length;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::entry::{Extent, Timestamp};

    #[test]
    fn stored_bytes_go_around_the_holes() {
        let extents = vec![Extent { offset: 10, length: 5 }, Extent { offset: 100, length: 20 }];
        let entry = Entry {
            path: b"a".to_vec(),
            kind: EntryKind::File { size: 200, extents: Some(extents) },
            mode: 0,
            uid: 0,
            gid: 0,
            user: None,
            group: None,
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            atime: None,
            inode: 0,
            xattrs: Vec::new(),
        };
        assert_eq!(places(&entry, 0, 25), [(10, 5), (100, 20)]);
        assert_eq!(places(&entry, 3, 4), [(13, 2), (100, 2)]);
        assert_eq!(places(&entry, 5, 1), [(100, 1)]);
    }
}
