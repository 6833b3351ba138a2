//! Compares two versions, or parts of them, from metadata alone.
//!
//! Both are in path order, so one pass and constant memory suffice. Contents are compared by their
//! recipes. A shared segment is equal; elsewhere chunks are compared by their fingerprints. No
//! content is read, so the cost follows the metadata, however large the files are.
//!
//! Equal content that was cut differently counts as changed. Examples are a file whose holes moved,
//! and a stream that was backed up with known size only once. Otherwise chunks of one repository
//! are cut alike.

use std::cmp::Ordering;
use std::num::NonZeroUsize;

use larder_format::entry::{Entry, EntryKind, Extent, path_order};
use larder_store::RepositoryError;
use lru::LruCache;

use crate::entries::PlacedEntry;
use crate::spans::{Spans, Unshared};
use crate::version::VersionReader;

/// Remembered first names of hard links: all names of a file then cost one search.
const FIRST_NAMES: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The change of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Both have it, and a restore would write the same.
    Nothing,
    /// Mode, owner, time of modification or attributes differ.
    Metadata,
    /// The content differs: bytes of a file, target of a link, number of a device.
    Content,
    /// It has another type.
    Type,
    /// Only the newer one has it.
    Added,
    /// Only the older one has it.
    Removed,
}

/// Compares the entries of two versions at and below two paths (empty: everything).
///
/// The visitor gets the path below these, empty for the compared paths themselves. It also gets the
/// existing entries: the older, the newer, or both.
pub fn diff<E: From<RepositoryError>>(
    old: (&VersionReader, &[u8]),
    new: (&VersionReader, &[u8]),
    mut visitor: impl FnMut(&[u8], Option<&Entry>, Option<&Entry>, Change) -> Result<(), E>,
) -> Result<(), E> {
    walk(old, new, false, |name, old, new, change, _| visitor(name, old, new, change))
}

/// As [`diff`]. Of files with different contents, the visitor also gets how much of each the other
/// one lacks.
pub fn diff_with_bytes<E: From<RepositoryError>>(
    old: (&VersionReader, &[u8]),
    new: (&VersionReader, &[u8]),
    visitor: impl FnMut(&[u8], Option<&Entry>, Option<&Entry>, Change, Unshared) -> Result<(), E>,
) -> Result<(), E> {
    walk(old, new, true, visitor)
}

fn walk<E: From<RepositoryError>>(
    old: (&VersionReader, &[u8]),
    new: (&VersionReader, &[u8]),
    counts_bytes: bool,
    mut visitor: impl FnMut(&[u8], Option<&Entry>, Option<&Entry>, Change, Unshared) -> Result<(), E>,
) -> Result<(), E> {
    let none = Unshared::default();
    let (mut olds, mut news) = (old.0.placed_below(old.1), new.0.placed_below(new.1));
    let (mut before, mut after) = (olds.next().transpose()?, news.next().transpose()?);
    let mut contents = Contents { old: Side::new(old.0), new: Side::new(new.0), spans: Spans::new(old.0, new.0) };
    loop {
        let names = (before.as_ref().map(|entry| below(entry, old.1)), after.as_ref().map(|entry| below(entry, new.1)));
        let order = match names {
            (None, None) => return Ok(()),
            (Some(name), None) => {
                visitor(name, before.as_ref().map(entry), None, Change::Removed, none)?;
                Ordering::Less
            }
            (None, Some(name)) => {
                visitor(name, None, after.as_ref().map(entry), Change::Added, none)?;
                Ordering::Greater
            }
            (Some(a), Some(b)) => {
                let order = path_order(a, b);
                match (order, &before, &after) {
                    (Ordering::Equal, Some(before), Some(after)) => {
                        let change = contents.change(before, after)?;
                        let unshared = match change {
                            Change::Content if counts_bytes => contents.unshared(before, after)?,
                            _ => none,
                        };
                        visitor(b, Some(&before.entry), Some(&after.entry), change, unshared)?;
                    }
                    (Ordering::Less, ..) => visitor(a, before.as_ref().map(entry), None, Change::Removed, none)?,
                    _ => visitor(b, None, after.as_ref().map(entry), Change::Added, none)?,
                }
                order
            }
        };
        if order != Ordering::Greater {
            before = olds.next().transpose()?;
        }
        if order != Ordering::Less {
            after = news.next().transpose()?;
        }
    }
}

fn entry(placed: &PlacedEntry) -> &Entry {
    &placed.entry
}

/// The path below the compared top.
fn below<'e>(placed: &'e PlacedEntry, top: &[u8]) -> &'e [u8] {
    let rest = placed.entry.path.strip_prefix(top).unwrap_or(&placed.entry.path);
    rest.strip_prefix(b"/").unwrap_or(rest)
}

/// Whether a restore would give both the same metadata.
fn same_metadata(a: &Entry, b: &Entry) -> bool {
    a.mode == b.mode
        && (a.uid, a.gid) == (b.uid, b.gid)
        && (&a.user, &a.group) == (&b.user, &b.group)
        && a.mtime == b.mtime
        && a.xattrs == b.xattrs
}

/// Compares files of two versions.
struct Contents<'a> {
    old: Side<'a>,
    new: Side<'a>,
    spans: Spans,
}

impl Contents<'_> {
    fn change(&mut self, a: &PlacedEntry, b: &PlacedEntry) -> Result<Change, RepositoryError> {
        use EntryKind as K;
        let same_content = match (&a.entry.kind, &b.entry.kind) {
            (K::File { .. } | K::HardLink { .. }, K::File { .. } | K::HardLink { .. }) => self.same_file(a, b)?,
            (K::Symlink { target: a }, K::Symlink { target: b }) => a == b,
            (K::Directory, K::Directory) | (K::Fifo, K::Fifo) => true,
            (K::CharDevice { .. }, K::CharDevice { .. }) | (K::BlockDevice { .. }, K::BlockDevice { .. }) => {
                a.entry.kind == b.entry.kind
            }
            _ => return Ok(Change::Type),
        };
        Ok(match (same_content, same_metadata(&a.entry, &b.entry)) {
            (false, _) => Change::Content,
            (true, false) => Change::Metadata,
            (true, true) => Change::Nothing,
        })
    }

    fn same_file(&mut self, a: &PlacedEntry, b: &PlacedEntry) -> Result<bool, RepositoryError> {
        let (Some(a), Some(b)) = (self.old.contents_of(a)?, self.new.contents_of(b)?) else {
            // Links to something other than a file, or to nothing.
            return Ok(a.entry.kind == b.entry.kind);
        };
        if a.size != b.size || a.runs != b.runs {
            return Ok(false);
        }
        let stored: u64 = a.runs.iter().map(|run| run.length).sum();
        let mut at = 0;
        while at < stored {
            match self.spans.same_span(a.data_offset + at, b.data_offset + at, stored - at)? {
                0 => return Ok(false),
                span => at += span,
            }
        }
        Ok(true)
    }

    /// How much of each of two files the other one lacks.
    fn unshared(&mut self, a: &PlacedEntry, b: &PlacedEntry) -> Result<Unshared, RepositoryError> {
        let (Some(a), Some(b)) = (self.old.contents_of(a)?, self.new.contents_of(b)?) else {
            return Ok(Unshared::default());
        };
        self.spans.unshared(a.stored(), b.stored())
    }
}

/// The place of a file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Content {
    size: u64,
    runs: Vec<Extent>,
    data_offset: u64,
}

impl Content {
    fn of(placed: &PlacedEntry) -> Option<Self> {
        let EntryKind::File { size, extents } = &placed.entry.kind else { return None };
        let whole = Extent { offset: 0, length: *size };
        let runs = extents.clone().unwrap_or_else(|| vec![whole]);
        Some(Self { size: *size, runs, data_offset: placed.data_offset })
    }

    /// Its bytes in the data stream, without holes.
    fn stored(&self) -> std::ops::Range<u64> {
        let length: u64 = self.runs.iter().map(|run| run.length).sum();
        self.data_offset..self.data_offset + length
    }
}

/// One of two versions.
struct Side<'a> {
    reader: &'a VersionReader,
    first_names: LruCache<Vec<u8>, Option<Content>>,
}

impl<'a> Side<'a> {
    fn new(reader: &'a VersionReader) -> Self {
        Self { reader, first_names: LruCache::new(FIRST_NAMES) }
    }

    /// The place of the content of a file, or of a hard link's target.
    fn contents_of(&mut self, placed: &PlacedEntry) -> Result<Option<Content>, RepositoryError> {
        let EntryKind::HardLink { target } = &placed.entry.kind else { return Ok(Content::of(placed)) };
        if let Some(known) = self.first_names.get(target) {
            return Ok(known.clone());
        }
        let content = self.reader.placed(target)?.as_ref().and_then(Content::of);
        self.first_names.put(target.clone(), content.clone());
        Ok(content)
    }
}
