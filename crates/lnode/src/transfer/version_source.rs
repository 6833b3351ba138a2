//! A version as the input of a backup: its entries, their verified contents, and the parts that an
//! earlier version has as well.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

use larder_format::entry::{EntryKind, path_order};
use larder_format::ids::JobId;
use larder_format::manifest::SourceKind;
use larder_job::JobContext;
use larder_reader::{EntriesBelow, PlacedEntry, Spans, StoredBytes, VersionReader};
use larder_store::RepositoryError;

use super::CopiedBefore;
use crate::backup::{EntrySource, SourceError, Supplied, SuppliedEntry};

/// An earlier version of the source, with which the copied one is compared.
pub(super) struct Known {
    copy: JobId,
    entries: Peekable<EntriesBelow>,
    spans: Spans,
}

impl Known {
    /// The copy of the earlier version.
    pub(super) fn copy(&self) -> JobId {
        self.copy
    }

    /// Nothing is known if it cannot be read: then more is copied.
    pub(super) fn open(source: &JobContext, before: &CopiedBefore, version: &VersionReader) -> Option<Self> {
        match VersionReader::open(source, &before.version) {
            Ok(earlier) => Some(Self {
                copy: before.copy,
                entries: earlier.placed_below(b"").peekable(),
                spans: Spans::new(&earlier, version),
            }),
            Err(error) => {
                tracing::warn!(%error, "the version copied before cannot be read, so nothing is taken over from its copy");
                None
            }
        }
    }

    /// The parts of a file that the earlier version has at the same path. Paths come in order.
    fn parts(&mut self, placed: &PlacedEntry) -> Result<Vec<Range<u64>>, RepositoryError> {
        let range = |placed: &PlacedEntry| {
            let is_file = matches!(placed.entry.kind, EntryKind::File { .. });
            is_file.then(|| placed.data_range())
        };
        loop {
            match self.entries.next_if(|known| {
                known
                    .as_ref()
                    .map_or(true, |known| path_order(&known.entry.path, &placed.entry.path) != Ordering::Greater)
            }) {
                None => return Ok(Vec::new()),
                Some(known) => {
                    let known = known?;
                    if known.entry.path == placed.entry.path {
                        let Some((old, new)) = range(&known).zip(range(placed)) else { return Ok(Vec::new()) };
                        return self.spans.common_parts(old, new);
                    }
                }
            }
        }
    }
}

/// The entries of a version, and their contents.
pub(super) struct VersionSource {
    reader: Arc<VersionReader>,
    entries: EntriesBelow,
    stored: StoredBytes,
    known: Option<Known>,
}

impl VersionSource {
    pub(super) fn new(reader: VersionReader, known: Option<Known>) -> Self {
        Self::of(Arc::new(reader), known)
    }

    fn of(reader: Arc<VersionReader>, known: Option<Known>) -> Self {
        let (entries, stored) = (reader.placed_below(b""), StoredBytes::new(&reader, known.is_none()));
        Self { reader, entries, stored, known }
    }
}

impl EntrySource for VersionSource {
    fn kind(&self) -> SourceKind {
        self.reader.manifest().summary.source
    }

    fn base(&self) -> Option<JobId> {
        self.known.as_ref().map(Known::copy)
    }

    fn again(&self) -> Box<dyn EntrySource> {
        Box::new(Self::of(self.reader.clone(), None))
    }

    fn next_entry(&mut self) -> Result<Option<Supplied>, SourceError> {
        let Some(placed) = self.entries.next().transpose()? else { return Ok(None) };
        let known = match self.known.as_mut().map(|known| known.parts(&placed)) {
            None => Vec::new(),
            Some(Ok(parts)) => parts,
            Some(Err(error)) => {
                tracing::warn!(%error, "the version copied before cannot be read; the rest is read");
                self.known = None;
                Vec::new()
            }
        };
        self.stored.go_to(placed.data_range());
        Ok(Some(Supplied::Entry(SuppliedEntry { entry: placed.entry, known })))
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, SourceError> {
        Ok(self.stored.read(buffer)?)
    }

    fn pass(&mut self, bytes: u64) {
        self.stored.pass(bytes);
    }
}
