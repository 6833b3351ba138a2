//! [`IndexPass`]: the tools with which a pass writes and merges runs.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use larder_format::ids::ByteCount;

use crate::error::IndexError;
use crate::executor::IndexIo;
use crate::tables::{Changes, PartitionedChanges, TypedTable};
use crate::writer::{OBJECT_TARGET, PassRuns, RunWriter};

/// The tools by which a pass writes and merges runs.
#[derive(Debug)]
pub struct IndexPass {
    /// The repository.
    pub io: IndexIo,
    /// Names for its objects; of the job whose lease it holds.
    pub ids: PassRuns,
    /// Threads for merges.
    pub threads: NonZeroUsize,
    /// Bytes of memory that a merge, or the collecting of changes, may take. Writing takes some
    /// objects in addition.
    pub memory: usize,
    /// Where temporary files go.
    pub folder: PathBuf,
    /// Size of the objects of runs.
    pub object_target: ByteCount,
}

impl IndexPass {
    /// With objects of the usual size. Where nothing may run at the same time, it has one thread.
    pub fn new(io: IndexIo, ids: PassRuns, threads: NonZeroUsize, memory: usize, folder: PathBuf) -> Self {
        let threads = if io.executor.is_in_turns() { NonZeroUsize::MIN } else { threads };
        Self { io, ids, threads, memory, folder, object_target: OBJECT_TARGET }
    }

    /// Begins to collect changes of a table.
    pub fn changes<T: TypedTable>(&self) -> Result<Changes<T>, IndexError> {
        Changes::new(&self.io, self.memory, &self.folder)
    }

    /// The same by partition.
    pub fn partitioned<T: TypedTable>(
        &self,
        ranges: Vec<RangeInclusive<u64>>,
    ) -> Result<PartitionedChanges<T>, IndexError> {
        PartitionedChanges::new(&self.io, self.memory, &self.folder, ranges)
    }

    /// Begins a run. Several writers, of ranges of keys that are apart, may write runs of one age.
    pub fn writer<T: TypedTable>(&self, age: u64) -> RunWriter<'_> {
        RunWriter::new(&self.io, &self.ids, T::TABLE, age, self.object_target)
    }
}
