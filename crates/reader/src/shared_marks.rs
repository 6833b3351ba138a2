//! Marks of an exact collection by the process that makes a pass, or also by others.
//!
//! A pass gives segments of recipes away ([`SharedMarks`]), and gets the keys of their chunks. They
//! come in any order, each at least once, because a set of keys is all that counts. Who takes part,
//! and which results count, is decided above (`larder-fleet`). Here stands what both sides agree
//! on.

use std::fmt::Debug;

use larder_format::ErrorKind;
use larder_format::ids::JobId;
use larder_format::index_tables::ChunkKey;
use larder_format::recipe::SegmentRef;
use larder_format::segment::Segment;
use larder_index::IndexError;
use larder_job::JobContext;
use larder_store::RepositoryError;

/// The needed chunks could not be found.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// A recipe cannot be read, or keys cannot be sorted.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Stopped on request.
    #[error("interrupted")]
    Interrupted,
}

impl MarkError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Index(error) => error.kind(),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

impl From<RepositoryError> for MarkError {
    fn from(error: RepositoryError) -> Self {
        Self::Index(error.into())
    }
}

/// Where a pass collects needed keys.
pub trait TakeMarks {
    /// Reads and verifies a segment.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, row: &SegmentRef) -> Result<Segment, RepositoryError>;

    /// A chunk is needed.
    ///
    /// # Errors
    /// There is no room for it, or the pass is to stop.
    fn needs(&mut self, key: &ChunkKey) -> Result<(), MarkError>;
}

/// Whether the results of others count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Marked {
    /// They do, as far as they were taken.
    Counts,
    /// A result of another process was wrong. No key that was taken until now counts.
    WorkerWrong,
}

/// Gives segments of exact collections away. Others may see it while a pass runs.
pub trait ShareMarks: Debug + Send + Sync {
    /// Chunk records of segments that make a batch.
    fn batch_chunks(&self) -> u64;

    /// Begins for a pass, which has a lease under this id, and publishes under this number. `look`:
    /// how often it began before. `None`: it cannot be shared.
    fn begin_marks(&self, context: &JobContext, pass: JobId, turn: u64, look: u8) -> Option<Box<dyn SharedMarks>>;

    /// Keys that were taken lack some that are needed. No result of others counts any more.
    fn was_wrong(&self);
}

/// The segments of one exact collection.
pub trait SharedMarks {
    /// Gives segments away, which are distinct and have records. Takes results until there is room
    /// for the next ones.
    ///
    /// # Errors
    /// Those of `own`.
    fn offer(&mut self, segments: Vec<SegmentRef>, own: &mut dyn TakeMarks) -> Result<Marked, MarkError>;

    /// Until nothing is away. `own` reads segments that nobody reads.
    ///
    /// # Errors
    /// Those of `own`.
    fn finish(&mut self, own: &mut dyn TakeMarks) -> Result<Marked, MarkError>;

    /// Ends it, whatever is away.
    fn end(self: Box<Self>);
}
