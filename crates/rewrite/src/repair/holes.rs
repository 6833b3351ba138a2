//! Files without their lost parts: a pure computation on entries.
//!
//! Lost data becomes a hole, so that the rest stays at its offset. Such a file must never look like
//! the original. Its times and its inode number are set to zero. So the next backup reads the file
//! again instead of treating it as unchanged, and a restore that keeps newer files keeps the better
//! one.

use std::ops::Range;

use larder_format::entry::{Entry, EntryKind, Extent, Timestamp};

/// A file without its lost data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holed {
    pub(super) entry: Entry,
    /// The rest of its stored bytes, counted from the first of them.
    pub(super) kept: Vec<Range<u64>>,
    /// Bytes that are lost.
    pub(super) lost: u64,
}

/// Cuts `lost` (ranges of its stored bytes, in order) out of a file; `None` when nothing is left,
/// or when it is no file.
pub(super) fn without(entry: &Entry, lost: &[Range<u64>]) -> Option<Holed> {
    let EntryKind::File { size, extents } = &entry.kind else { return None };
    let whole = [Extent { offset: 0, length: *size }];
    let extents = extents.as_deref().unwrap_or(&whole);
    let (mut left, mut kept): (Vec<Extent>, Vec<Range<u64>>) = (Vec::new(), Vec::new());
    let mut stored = 0;
    for extent in extents {
        let (begin, end) = (stored, stored + extent.length);
        stored = end;
        let mut at = begin;
        let mut keep = |from: u64, to: u64| {
            if from < to {
                left.push(Extent { offset: extent.offset + (from - begin), length: to - from });
                match kept.last_mut() {
                    Some(last) if last.end == from => last.end = to,
                    _ => kept.push(from..to),
                }
            }
        };
        for range in lost.iter().filter(|range| range.start < end && range.end > begin) {
            keep(at, range.start.clamp(begin, end));
            at = at.max(range.end.min(end));
        }
        keep(at, end);
    }
    if kept.is_empty() {
        return None;
    }
    let left_bytes: u64 = kept.iter().map(|range| range.end - range.start).sum();
    let never = Timestamp { seconds: 0, nanos: 0 };
    let kind = EntryKind::File { size: *size, extents: Some(left) };
    let entry = Entry { kind, mtime: never, ctime: never, inode: 0, ..entry.clone() };
    Some(Holed { entry, kept, lost: stored - left_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64, extents: Option<&[(u64, u64)]>) -> Entry {
        let time = Timestamp { seconds: 9, nanos: 9 };
        let extents = extents.map(|all| all.iter().map(|&(offset, length)| Extent { offset, length }).collect());
        Entry {
            path: b"a".to_vec(),
            kind: EntryKind::File { size, extents },
            mode: 0o644,
            uid: 0,
            gid: 0,
            user: None,
            group: None,
            mtime: time,
            ctime: time,
            atime: None,
            inode: 7,
            xattrs: Vec::new(),
        }
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which have one")]
    fn what_is_left_stays_where_it_was() {
        for (extents, lost, left, kept) in [
            (None, vec![0..3], vec![(3, 7)], vec![3..10]),
            (None, vec![3..4, 8..10], vec![(0, 3), (4, 4)], vec![0..3, 4..8]),
            // The caller cuts damage that begins before the file and ends behind it; here it may
            // touch both ends.
            (None, vec![0..1, 9..10], vec![(1, 8)], vec![1..9]),
            // Two extents, 2 and 4 bytes, with holes around: the second byte and the third are
            // lost.
            (Some(&[(1, 2), (5, 4)][..]), vec![1..3], vec![(1, 1), (6, 3)], vec![0..1, 3..6]),
            // Neighbours in the stream are kept as one range, also with a gap between them in the
            // file.
            (Some(&[(1, 2), (5, 4)][..]), vec![5..6], vec![(1, 2), (5, 3)], vec![0..5]),
        ] {
            let entry = file(10, extents);
            let holed = without(&entry, &lost).expect("something is left");
            let EntryKind::File { size: 10, extents: Some(found) } = &holed.entry.kind else { panic!("{holed:?}") };
            assert_eq!(found.iter().map(|extent| (extent.offset, extent.length)).collect::<Vec<_>>(), left);
            assert_eq!(holed.kept, kept);
            assert_eq!(holed.entry.stored_bytes() + holed.lost, entry.stored_bytes());
            assert_ne!(
                (holed.entry.mtime, holed.entry.inode),
                (entry.mtime, entry.inode),
                "it must not pass for whole"
            );
        }
    }

    #[test]
    fn a_file_of_which_nothing_is_left_is_none() {
        assert_eq!(without(&file(10, None), &[0..4, 4..10]), None);
        assert_eq!(without(&file(10, Some(&[(2, 3)])), std::slice::from_ref(&(0..3))), None);
        let folder = Entry { kind: EntryKind::Directory, ..file(0, None) };
        assert_eq!(without(&folder, &[]), None);
    }
}
