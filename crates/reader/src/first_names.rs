//! Files as their further names need them.
//!
//! An entry of a hard link names the path of an earlier entry, and only that one tells the size and
//! the place of the content. A file does not tell whether it has further names. So first names are
//! looked up when a link comes, and those that were used last are remembered.

use std::num::NonZeroUsize;
use std::ops::Range;

use larder_format::entry::{Entry, EntryKind};
use larder_store::RepositoryError;
use lru::LruCache;

use crate::version::VersionReader;

/// Remembered first names: all names of a file then cost one search.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// A regular file with several names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedFile {
    /// Logical size in bytes.
    pub size: u64,
    /// Its stored bytes in the data stream.
    pub data: Range<u64>,
}

/// See the module header.
#[derive(Debug)]
pub struct FirstNames<'a> {
    reader: &'a VersionReader,
    known: LruCache<Vec<u8>, Option<LinkedFile>>,
}

impl<'a> FirstNames<'a> {
    /// Those of a version.
    pub fn new(reader: &'a VersionReader) -> Self {
        Self { reader, known: LruCache::new(REMEMBERED) }
    }

    /// The file that a hard link is a name of. `None`: the entry is no hard link, or one of another
    /// kind, or the version does not tell its first name (damage).
    pub fn file(&mut self, entry: &Entry) -> Result<Option<LinkedFile>, RepositoryError> {
        let EntryKind::HardLink { target } = &entry.kind else { return Ok(None) };
        if let Some(known) = self.known.get(target) {
            return Ok(known.clone());
        }
        let first = match self.reader.placed(target) {
            Ok(first) => first,
            Err(error) if error.is_damage() => None,
            Err(error) => return Err(error),
        };
        let first = first.filter(|placed| matches!(placed.entry.kind, EntryKind::File { .. }));
        let file = first.map(|placed| LinkedFile { size: placed.entry.size(), data: placed.data_range() });
        self.known.put(target.clone(), file.clone());
        Ok(file)
    }

    /// The size of a file under any of its names; `None` for everything else.
    pub fn size(&mut self, entry: &Entry) -> Result<Option<u64>, RepositoryError> {
        match &entry.kind {
            EntryKind::File { size, .. } => Ok(Some(*size)),
            _ => Ok(self.file(entry)?.map(|file| file.size)),
        }
    }
}
