//! Which file of a version is read, and where its bytes are in the data stream.
//!
//! Not here: the chunks of the data stream (`places`).

use std::ops::Range;

use larder_format::entry::EntryKind;

use super::RandomError;
use crate::entries::PlacedEntry;
use crate::version::VersionReader;

/// Files that an error names when the snapshot has several.
const CANDIDATES_MAX: usize = 10;

/// A file of a version that can be read at random offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RandomFile {
    /// Its path in the version.
    pub path: Vec<u8>,
    placed: PlacedEntry,
}

impl VersionReader {
    /// Finds the regular file at `path`. Without a path it is the only file of the version. The
    /// version of a stream or a device has one file.
    ///
    /// # Errors
    /// There is no such file, the path is not a file, or there are several files and no path.
    pub fn random_file(&self, path: Option<&[u8]>) -> Result<RandomFile, RandomError> {
        match path {
            Some(path) => self.file_at(path),
            None => self.only_file(),
        }
    }

    fn file_at(&self, path: &[u8]) -> Result<RandomFile, RandomError> {
        let absent = || RandomError::NoSuchFile { path: path.to_vec() };
        let mut placed = self.placed(path)?.ok_or_else(absent)?;
        if let EntryKind::HardLink { target } = &placed.entry.kind {
            let target = target.clone();
            placed = self.placed(&target)?.ok_or_else(absent)?;
        }
        match placed.entry.kind {
            EntryKind::File { .. } => Ok(RandomFile { path: path.to_vec(), placed }),
            // The few files below it are what the user may have meant.
            EntryKind::Directory => {
                let (candidates, has_more) = self.files_below(path)?;
                let candidates = candidates.into_iter().map(|placed| placed.entry.path).collect();
                Err(RandomError::Folder { path: path.to_vec(), candidates, has_more })
            }
            _ => Err(RandomError::NotAFile { path: path.to_vec() }),
        }
    }

    fn only_file(&self) -> Result<RandomFile, RandomError> {
        let (mut files, has_more) = self.files_below(b"")?;
        match files.len() {
            0 => Err(RandomError::NoFiles),
            1 => {
                let placed = files.remove(0);
                Ok(RandomFile { path: placed.entry.path.clone(), placed })
            }
            _ => {
                let candidates = files.into_iter().map(|placed| placed.entry.path).collect();
                Err(RandomError::SeveralFiles { candidates, has_more })
            }
        }
    }

    /// The first files below a path, and whether there are more.
    fn files_below(&self, path: &[u8]) -> Result<(Vec<PlacedEntry>, bool), RandomError> {
        let mut files = Vec::new();
        for placed in self.placed_below(path) {
            let placed = placed?;
            if matches!(placed.entry.kind, EntryKind::File { .. }) {
                if files.len() == CANDIDATES_MAX {
                    return Ok((files, true));
                }
                files.push(placed);
            }
        }
        Ok((files, false))
    }
}

/// A range of a file that is stored, or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Byte offset in the file.
    pub offset: u64,
    /// Bytes, never 0.
    pub length: u64,
    /// Whether all its bytes are known to be zero.
    pub is_hole: bool,
}

/// Maps the bytes of a file to the data stream.
#[derive(Debug)]
pub struct Contents {
    size: u64,
    /// Stored runs in rising order.
    runs: Vec<Run>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    offset: u64,
    length: u64,
    /// Offset in the data stream.
    stored: u64,
}

/// A part of a file: its range there, and where that begins in the data stream. `None`: a hole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Byte offsets in the file.
    pub range: Range<u64>,
    /// Offset in the data stream of the first of them. `None`: all are zero.
    pub stored: Option<u64>,
}

impl Contents {
    pub(super) fn of(file: &RandomFile) -> Self {
        Self::of_entry(&file.placed)
    }

    /// The whole data stream, as one file.
    pub(super) fn of_stream(size: u64) -> Self {
        let run = (size > 0).then_some(Run { offset: 0, length: size, stored: 0 });
        Self { size, runs: run.into_iter().collect() }
    }

    /// Those of an entry. One that is no regular file is empty.
    pub fn of_entry(placed: &PlacedEntry) -> Self {
        let PlacedEntry { entry, data_offset } = placed;
        let mut stored = *data_offset;
        let mut runs = Vec::new();
        let size = entry.size();
        if let EntryKind::File { extents, .. } = &entry.kind {
            match extents {
                None if size > 0 => runs.push(Run { offset: 0, length: size, stored }),
                None => {}
                Some(extents) => {
                    for extent in extents {
                        runs.push(Run { offset: extent.offset, length: extent.length, stored });
                        stored += extent.length;
                    }
                }
            }
        }
        Self { size, runs }
    }

    /// Bytes of the file, holes included.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of memory that its runs take.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.runs)
    }

    /// The parts of a range of the file, in order and without gaps.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        let range = range.start..range.end.min(self.size);
        let mut at = range.start;
        let mut next = self.runs.partition_point(|run| run.offset + run.length <= at);
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let run = self.runs.get(next).filter(|run| run.offset < range.end);
            let piece = match run {
                Some(run) if run.offset <= at => {
                    next += 1;
                    let end = (run.offset + run.length).min(range.end);
                    Piece { range: at..end, stored: Some(run.stored + (at - run.offset)) }
                }
                Some(run) => Piece { range: at..run.offset, stored: None },
                None => Piece { range: at..range.end, stored: None },
            };
            at = piece.range.end;
            Some(piece)
        })
    }

    /// The ranges of the data stream that the file has, in order.
    pub(super) fn stored(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.runs.iter().map(|run| run.stored..run.stored + run.length)
    }

    /// Bytes that are stored.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.length).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(size: u64, runs: &[(u64, u64)]) -> Contents {
        let mut stored = 1000;
        let runs = runs.iter().map(|(offset, length)| {
            let run = Run { offset: *offset, length: *length, stored };
            stored += length;
            run
        });
        Contents { size, runs: runs.collect() }
    }

    fn pieces(contents: &Contents, range: Range<u64>) -> Vec<(Range<u64>, Option<u64>)> {
        contents.pieces(range).map(|piece| (piece.range, piece.stored)).collect()
    }

    #[test]
    fn holes_are_between_and_around_runs() {
        let sparse = contents(100, &[(10, 20), (30, 5), (50, 10)]);
        let all = [
            (0..10, None),
            (10..30, Some(1000)),
            (30..35, Some(1020)),
            (35..50, None),
            (50..60, Some(1025)),
            (60..100, None),
        ];
        assert_eq!(pieces(&sparse, 0..100), all);
        assert_eq!(pieces(&sparse, 0..1000), all);
        assert_eq!(pieces(&sparse, 12..13), [(12..13, Some(1002))]);
        assert_eq!(pieces(&sparse, 34..51), [(34..35, Some(1024)), (35..50, None), (50..51, Some(1025))]);
        assert_eq!(pieces(&sparse, 70..80), [(70..80, None)]);
        assert_eq!(pieces(&sparse, 100..110), []);
        assert_eq!(sparse.stored().collect::<Vec<_>>(), [1000..1020, 1020..1025, 1025..1035]);
    }

    #[test]
    fn a_file_may_be_empty_or_one_hole() {
        assert_eq!(pieces(&contents(0, &[]), 0..10), []);
        assert_eq!(pieces(&contents(7, &[]), 0..10), [(0..7, None)]);
    }
}
