//! Verifying and copying in batches, by the process that makes a pass, or also by others.
//!
//! A pass gives batches away ([`SharedCopying`]) and gets them back in the same order. The copies
//! of others are in containers of the job of the pass, as its own copies are. Who takes part, and
//! which results count, is decided above (`larder-fleet`). Here stands what both sides agree on.

use std::collections::HashMap;
use std::fmt::Debug;

use larder_format::ChunkRef;
use larder_format::compress::Compression;
use larder_format::ids::{ContainerId, JobId};
use larder_job::JobContext;
use larder_writer::ContainerTotals;

use super::{ChunkCopier, RewriteError, Unreadable, damaged_container};

/// A chunk, and its number in the table of its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedChunk {
    /// Its number.
    pub number: u32,
    /// The chunk.
    pub chunk: ChunkRef,
}

/// Chunks that are processed together. In both lists, those of one container follow one another by
/// rising numbers, and no container has chunks at two places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyBatch {
    /// Chunks that must be readable where they are.
    pub verify: Vec<NumberedChunk>,
    /// Chunks that are copied, in this order.
    pub copy: Vec<NumberedChunk>,
}

/// How a batch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchEnd {
    /// All is readable, and this process copied: the container of each copy, in order.
    Here(Vec<ContainerId>),
    /// The same, by another process, and it was verified.
    Elsewhere {
        /// The container of each copy, in order.
        places: Vec<ContainerId>,
        /// The new containers.
        written: HashMap<ContainerId, ContainerTotals>,
        /// Uncompressed bytes of frames that were copied as they were compressed.
        whole_bytes: u64,
    },
    /// This container cannot be read, and why.
    Unreadable(ContainerId, Unreadable),
    /// A result of another process was wrong. What others did before does not count either.
    WorkerWrong,
    /// It was to stop, and nobody waited for this batch.
    Stopped,
}

/// Gives batches of passes away. Others may see it while a pass runs.
pub trait ShareCopies: Debug + Send + Sync {
    /// Uncompressed bytes of containers whose chunks make a batch.
    fn batch_bytes(&self) -> u64;

    /// Begins for a pass, which has a lease under this id, and publishes under this number. `None`:
    /// it cannot be shared.
    fn begin(
        &self,
        context: &JobContext,
        pass: JobId,
        turn: u64,
        compression: Compression,
    ) -> Option<Box<dyn SharedCopying>>;
}

/// The batches of one pass.
pub trait SharedCopying {
    /// Gives a batch away.
    fn offer(&mut self, batch: CopyBatch);

    /// Whether a batch has to come back before another one is given away.
    fn is_full(&self) -> bool;

    /// The batch that was given away first of those that are away; `None`: none is. Until it is
    /// there, `own` does batches that nobody does. `may_stop`: it need not come back if the job of
    /// the pass is to stop.
    ///
    /// # Errors
    /// Those of `own`.
    fn next(&mut self, own: &mut ChunkCopier, may_stop: bool) -> Result<Option<BatchEnd>, RewriteError>;

    /// The batches that are away are not needed. `begins_again`: nor are those that came back.
    fn abandon(&mut self, begins_again: bool);

    /// Ends it. Returns whether others may have written containers that no [`BatchEnd`] names.
    fn end(self: Box<Self>) -> bool;
}

impl ChunkCopier {
    /// Verifies and copies a batch.
    ///
    /// # Errors
    /// The store failed, or no container is to blame. Damage and cold storage are no errors.
    pub fn copy_batch(&mut self, batch: &CopyBatch) -> Result<BatchEnd, RewriteError> {
        let chunks = |of: &[NumberedChunk]| of.iter().map(|numbered| numbered.chunk).collect::<Vec<_>>();
        if let Some((container, why)) = self.unreadable_among(&chunks(&batch.verify))?.pop_first() {
            return Ok(BatchEnd::Unreadable(container, why));
        }
        match self.copy(&chunks(&batch.copy)) {
            Ok(copies) => Ok(BatchEnd::Here(copies.iter().map(|copy| copy.container).collect())),
            Err(RewriteError::Repository(error)) if error.is_unreadable() => {
                let why = if error.is_cold() { Unreadable::Cold } else { Unreadable::Damaged };
                if why == Unreadable::Damaged {
                    tracing::warn!(%error, "a container cannot be read and is not retired");
                }
                let end = damaged_container(&error).map(|container| BatchEnd::Unreadable(container, why));
                end.ok_or_else(|| RewriteError::Repository(error))
            }
            Err(error) => Err(error),
        }
    }
}
