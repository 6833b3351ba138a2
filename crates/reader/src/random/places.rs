//! Places of chunks at any offset of the data stream, for several threads.
//!
//! Segments are read through the recipe like those of any other reader. A bounded number of them
//! stays decoded. After [`Places::keep`], segments come from a temporary file and the store is not
//! asked any more.
//!
//! Invariants
//! * A segment knows in which state of [`Moved`] its places were found. Segments of an older state
//!   are read again.
//! * No lock is held during a request.

use std::sync::{Arc, OnceLock};

use larder_format::recipe::Recipe;
use larder_store::RepositoryError;
use larder_store::byte_lru::ByteLru;
use parking_lot::Mutex;

use super::kept_places::{KEPT, KeptPlaces};
use super::segment::Segment;
use crate::chunk_resolver::Moved;
use crate::recipe_reader::{MetaChunks, RecipeReader};
use crate::resolved::{Resolved, SegmentNumber};
use crate::version::VersionReader;

/// Readers of the recipe that are kept for later questions. Each has a few nodes.
const IDLE_MAX: usize = 8;

/// See the module header.
pub(super) struct Places {
    recipe: Arc<Recipe>,
    chunks: MetaChunks,
    resolved: Arc<Resolved>,
    idle: Mutex<Vec<RecipeReader>>,
    decoded: Mutex<ByteLru<SegmentNumber, Arc<Segment>>>,
    kept: OnceLock<KeptPlaces>,
}

impl Places {
    /// Places of a version. About `budget` bytes of segments stay decoded.
    pub(super) fn new(version: &VersionReader, budget: usize) -> Self {
        Self {
            recipe: version.data.clone(),
            chunks: version.chunks.clone(),
            resolved: version.resolved.clone(),
            idle: Mutex::default(),
            decoded: Mutex::new(ByteLru::new(budget)),
            kept: OnceLock::new(),
        }
    }

    /// The knowledge of chunks that are not where records say.
    pub(super) fn moved(&self) -> &Moved {
        self.chunks.moved()
    }

    /// The segment that holds the stream byte at `offset`; `None` behind the end.
    pub(super) fn segment(&self, offset: u64) -> Result<Option<Arc<Segment>>, RepositoryError> {
        if let Some(kept) = self.kept.get() {
            return self.kept_segment(kept, offset);
        }
        let reader = self.idle.lock().pop();
        let recipe = || RecipeReader::new(self.recipe.clone(), self.chunks.clone());
        let mut reader = reader.unwrap_or_else(|| recipe().resolving(Some(self.resolved.clone())));
        let found = self.read(&mut reader, offset);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(reader);
        }
        found
    }

    fn read(&self, reader: &mut RecipeReader, offset: u64) -> Result<Option<Arc<Segment>>, RepositoryError> {
        let Some((number, start)) = reader.segment_at(offset)? else { return Ok(None) };
        let changes = self.moved().changes();
        if let Some(segment) = self.decoded(number, changes) {
            return Ok(Some(segment));
        }
        let records = reader.segment(number)?;
        let chunks = records.iter().map(|record| record.chunk).collect();
        // Found places may be newer than this count says, which costs another read.
        Ok(Some(self.remember(Segment::new(number, start, changes, chunks))))
    }

    fn kept_segment(&self, kept: &KeptPlaces, offset: u64) -> Result<Option<Arc<Segment>>, RepositoryError> {
        let Some(number) = kept.segment_at(offset) else { return Ok(None) };
        // Others may have places that were never copied.
        if let Some(segment) = self.decoded(number, KEPT) {
            return Ok(Some(segment));
        }
        let segment = kept.read(offset).map_err(|error| scratch_failed(&error))?;
        Ok(segment.map(|segment| self.remember(segment)))
    }

    fn decoded(&self, number: SegmentNumber, changes: u64) -> Option<Arc<Segment>> {
        self.decoded.lock().get(&number).filter(|segment| segment.changes == changes)
    }

    fn remember(&self, segment: Segment) -> Arc<Segment> {
        let segment = Arc::new(segment);
        self.decoded.lock().put(segment.number, segment.clone(), segment.bytes_held());
        segment
    }

    /// Whether places come from the temporary file.
    pub(super) fn are_kept(&self) -> bool {
        self.kept.get().is_some()
    }

    /// From now on, places are those of the temporary file.
    pub(super) fn keep(&self, kept: KeptPlaces) {
        // A second call would have the same places.
        let _ = self.kept.set(kept);
        self.idle.lock().clear();
    }
}

/// The error for a temporary file that cannot be read any more.
fn scratch_failed(error: &std::io::Error) -> RepositoryError {
    tracing::warn!(%error, "the disk cache cannot be read");
    let source = larder_format::DecodeError::Truncated { what: "list of chunks" };
    RepositoryError::Damaged { name: "the disk cache".to_owned(), source }
}
