//! Entries that come complete from elsewhere, such as those of a version in another repository, and
//! how the feeder takes them.
//!
//! The source knows which parts of a file the base has at the same path. These are taken over from
//! the base unread, if the base is followed. Everything else is read, cut and looked up like the
//! files of a tree.

use std::ops::Range;
use std::sync::Arc;

use larder_format::entry::{Entry, EntryKind};
use larder_format::ids::JobId;
use larder_format::manifest::SourceKind;
use larder_format::recipe::Recipe;
use larder_job::Problem;
use larder_reader::{MetaChunks, PlacedEntry, RecipeReader};
use larder_store::RepositoryError;

use super::batch::{Batch, EntryChange};
use super::feed::{Ended, FeedItem, Feeder, Gone, SMALL_FILE_MAX};
use super::read_window::Supply;
use super::taken_over::{Stretch, Untouched};
use super::unchanged_files::Comparison;

/// Complete entries, in path order, and the contents of the files among them.
pub trait EntrySource: Send {
    /// Whether the entries are a tree, or one stream as a file.
    fn kind(&self) -> SourceKind;

    /// The version that the known parts are about. They do not count with another base.
    fn base(&self) -> Option<JobId>;

    /// The same entries from the first one on, with no known parts, for a look at their head.
    fn again(&self) -> Box<dyn EntrySource>;

    /// The next entry, or a problem between entries; `None` at the end.
    ///
    /// # Errors
    /// No version can be made of this source.
    fn next_entry(&mut self) -> Result<Option<Supplied>, SourceError>;

    /// Reads stored bytes of the last entry (holes are left out); 0 at their end, and never before
    /// it.
    ///
    /// # Errors
    /// No version can be made of this source.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, SourceError>;

    /// Leaves out stored bytes of the last entry.
    fn pass(&mut self, bytes: u64);
}

/// What a source supplies.
#[derive(Debug)]
pub enum Supplied {
    /// The next entry.
    Entry(SuppliedEntry),
    /// Something is not in the source as it should be. It counts as an error of the version.
    Problem(Problem),
}

/// A source that cannot be read any more.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It is a repository.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// It is something else.
    #[error("cannot read {}: {source}", larder_source::PathText(.path))]
    Input {
        /// The path in the version.
        path: Vec<u8>,
        /// The error.
        source: std::io::Error,
    },
}

/// An entry, and the parts of its stored bytes that the base has at the same path and the same
/// offsets.
#[derive(Debug)]
pub struct SuppliedEntry {
    /// The entry, complete.
    pub entry: Entry,
    /// Offsets in its stored bytes, in rising order.
    pub known: Vec<Range<u64>>,
}

/// The base of supplied entries: what is known of them is there.
pub(super) struct SuppliedBase {
    pub(super) entries: Comparison,
    pub(super) data: Arc<Recipe>,
    pub(super) chunks: MetaChunks,
}

/// The bytes of a large file. A failure ends it.
struct SourceSupply<'a> {
    source: &'a mut dyn EntrySource,
    failure: Option<SourceError>,
}

impl Supply for SourceSupply<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        match self.source.read(buffer) {
            Ok(count) => count,
            Err(error) => {
                self.failure = Some(error);
                0
            }
        }
    }

    fn pass(&mut self, bytes: u64) {
        self.source.pass(bytes);
    }
}

impl Feeder {
    /// Feeds complete entries. Returns the error that ended the reading of the base's entries.
    pub(super) fn supplied(
        mut self,
        source: &mut dyn EntrySource,
        mut base: Option<SuppliedBase>,
    ) -> Option<RepositoryError> {
        let mut batch = Batch::new();
        let failure = loop {
            if self.cancel.is_cancelled() {
                break None;
            }
            match source.next_entry() {
                Ok(None) => break None,
                Err(error) => break Some(error),
                Ok(Some(Supplied::Problem(problem))) => {
                    batch.problem(problem);
                    if self.send_batch_if_full(&mut batch).is_err() {
                        return None;
                    }
                }
                Ok(Some(Supplied::Entry(supplied))) => {
                    match self.supplied_entry(supplied, source, &mut base, &mut batch) {
                        Ok(()) => {}
                        Err(Stopped::Gone) => return None,
                        Err(Stopped::Failed(error)) => break Some(error),
                    }
                }
            }
        };
        // No version is made of a part of the source.
        let _ = match failure {
            Some(SourceError::Repository(error)) => self.send(FeedItem::SourceFailed(error)),
            Some(SourceError::Input { path, source }) => self.send(FeedItem::InputFailed { path, source }),
            None => self.send_batch(&mut batch),
        };
        base.and_then(|base| base.entries.failure)
    }

    fn supplied_entry(
        &mut self,
        supplied: SuppliedEntry,
        source: &mut dyn EntrySource,
        base: &mut Option<SuppliedBase>,
        batch: &mut Batch,
    ) -> Result<(), Stopped> {
        let SuppliedEntry { entry, known } = supplied;
        let of_base = base.as_mut().and_then(|base| base.entries.find(&entry.path));
        let fate = match &of_base {
            None => EntryChange::New,
            Some(placed) if placed.entry == entry => EntryChange::Unmodified,
            Some(_) => EntryChange::Changed,
        };
        let stored = entry.stored_bytes();
        let range = of_base.as_ref().and_then(file_range);
        // Equal entries with other contents would be a change that no file system shows.
        let is_whole = known.len() == 1 && known.first() == Some(&(0..stored));
        let is_known = |range: &Range<u64>| is_whole && range.end - range.start == stored;
        if let Some(range) = range.as_ref().filter(|range| stored == 0 || is_known(range)) {
            self.pass(Some(range), stored);
            batch.keep(entry, range.start, fate);
            return Ok(self.send_batch_if_full(batch)?);
        }
        let fate = if fate == EntryChange::Unmodified && stored > 0 { EntryChange::Changed } else { fate };
        if stored <= SMALL_FILE_MAX {
            self.pass(range.as_ref(), stored);
            let contents = contents(source, stored as usize).map_err(Stopped::Failed)?;
            batch.supply(entry, contents, fate);
            return Ok(self.send_batch_if_full(batch)?);
        }
        self.send_batch(batch)?;
        let untouched = base.as_ref().zip(range.as_ref()).and_then(|(base, range)| {
            let stretches: Vec<_> = known
                .into_iter()
                .filter(|part| part.end <= range.end - range.start)
                .map(|part| Stretch { base: range.start + part.start, range: part })
                .collect();
            let reader = RecipeReader::new(base.data.clone(), base.chunks.clone());
            (!stretches.is_empty()).then(|| Untouched::new(reader, range.end, stored, stretches))
        });
        let mut supply = SourceSupply { source, failure: None };
        self.cut_stream(&mut supply, None, Some(stored), range.as_ref(), untouched)?;
        match supply.failure {
            Some(error) => Err(Stopped::Failed(error)),
            None => Ok(self.send(FeedItem::End(Box::new(Ended { entry, fate, problems: Vec::new() })))?),
        }
    }
}

/// Why feeding ends.
enum Stopped {
    Gone,
    Failed(SourceError),
}

impl From<Gone> for Stopped {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// The stored bytes of a file of the base.
fn file_range(placed: &PlacedEntry) -> Option<Range<u64>> {
    let is_file = matches!(placed.entry.kind, EntryKind::File { .. });
    is_file.then(|| placed.data_range())
}

/// The whole contents of a small file.
fn contents(source: &mut dyn EntrySource, stored: usize) -> Result<Vec<u8>, SourceError> {
    let mut bytes = vec![0; stored];
    let mut filled = 0;
    while filled < stored {
        match source.read(&mut bytes[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
