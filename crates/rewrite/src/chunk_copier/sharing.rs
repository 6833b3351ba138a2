//! Verifying and copying in batches, by the process that makes a pass, or also by others.
//!
//! A pass gives batches away ([`SharedCopying`]) and gets them back in the same order. So does a
//! job that rewrites a version; here, it counts as a pass. The copies of others are in containers
//! of the job of the pass, as its own copies are. Who takes part, and
//! which results count, is decided above (`larder-fleet`). Here stands what both sides agree on.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;

use futures::StreamExt;
use larder_format::ChunkRef;
use larder_format::compress::Compression;
use larder_format::ids::{ContainerId, JobId};
use larder_job::JobContext;
use larder_writer::ContainerTotals;

use super::{ChunkCopier, RewriteError, Unreadable, damaged_container};

/// Tables of containers that are read at once.
const TABLES_AT_ONCE: usize = 8;

/// A chunk, and its number in the table of its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedChunk {
    /// Its number.
    pub number: u32,
    /// The chunk.
    pub chunk: ChunkRef,
}

/// Chunks that are processed together. No chunk is in a list twice.
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
    /// All is readable, and this process copied: the place of each copy, in order.
    Here(Vec<ChunkRef>),
    /// The same, by another process, and it was verified.
    Elsewhere {
        /// The place of each copy, in order.
        places: Vec<ChunkRef>,
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

/// The batches of a job that rewrites a version.
pub struct SharedBatches<'a> {
    /// Gives them away.
    pub copying: &'a mut (dyn SharedCopying + 'static),
    /// Uncompressed bytes of chunks that make a batch.
    pub bytes: u64,
}

impl Debug for SharedBatches<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedBatches").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Gives batches of passes away. Others may see it while a pass runs.
pub trait ShareCopies: Debug + Send + Sync {
    /// Uncompressed bytes of containers whose chunks make a batch; `all` is of the whole job. Of a
    /// rewrite, both are bytes of chunks.
    fn batch_bytes(&self, all: u64) -> u64;

    /// Begins for a pass, which has a lease under this id, and publishes under this number. Of a
    /// rewrite, it is the number of the generation. `None`: it cannot be shared.
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
    /// These chunks at their present places, with their numbers in the tables there. `None`: one of
    /// them is not there, or a table cannot be read.
    pub(super) fn numbered(&self, chunks: &[ChunkRef]) -> Result<Option<Vec<NumberedChunk>>, RewriteError> {
        let mut chunks = chunks.to_vec();
        self.place(&mut chunks)?;
        let at = |chunk: &ChunkRef| (chunk.container, chunk.offset);
        let mut found: HashMap<(ContainerId, u32), Option<NumberedChunk>> =
            chunks.iter().map(|chunk| (at(chunk), None)).collect();
        let containers: BTreeSet<ContainerId> = chunks.iter().map(|chunk| chunk.container).collect();
        let repository = &self.context.repository;
        let reads = containers.iter().map(|id| repository.read_container_index(*id));
        let mut reads = futures::stream::iter(reads).buffered(TABLES_AT_ONCE);
        while let Some(index) = self.context.executor.block_on(reads.next()) {
            let index = match index {
                Ok(index) => index,
                Err(error) if error.is_unreadable() => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            for (number, chunk) in (0..).zip(index.chunk_refs()) {
                if let Some(place) = found.get_mut(&at(&chunk)) {
                    *place = Some(NumberedChunk { number, chunk });
                }
            }
        }
        let numbered =
            |chunk: &ChunkRef| found.get(&at(chunk)).copied().flatten().filter(|there| there.chunk == *chunk);
        Ok(chunks.iter().map(numbered).collect())
    }

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
            Ok(copies) => Ok(BatchEnd::Here(copies)),
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
