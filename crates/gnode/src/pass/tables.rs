//! How a pass works on the tables of the index: where, through what, and with how much memory.

use std::num::NonZeroUsize;

use larder_format::ids::ByteCount;
use larder_index::{Executor, IndexIo, IndexPass, OBJECT_TARGET, PassRuns};
use larder_store::Repository;

use super::run::PassError;

/// Memory for tables, if nobody says otherwise: enough for a repository of any size.
pub const MEMORY_DEFAULT: usize = 64 << 20;

/// With less than this no merge gets anywhere: [`PassOptions::memory`](super::PassOptions::memory) that is less counts as this. Who takes
/// the number from a person refuses it.
pub const MEMORY_MIN: usize = 8 << 20;

/// Threads of a merge at most.
pub(crate) const THREADS_MAX: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// Writers that a thread has at most: of chunks and of copies. Each has one object growing and one on its way.
const OBJECTS_OF_A_THREAD: usize = 4;

/// What work on tables needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexWork<'a> {
    pub(crate) executor: Executor,
    pub(crate) repository: &'a Repository,
    /// Bytes that sorting, looking up, merging and writing may take together.
    pub(crate) memory: usize,
}

impl IndexWork<'_> {
    /// Does some work.
    pub(crate) async fn run<T: Send + 'static, E: Send + 'static>(
        self,
        work: impl FnOnce(IndexIo) -> Result<T, E> + Send + 'static,
    ) -> Result<T, PassError>
    where
        PassError: From<E>,
    {
        Ok(self.executor.run(self.repository, work).await?)
    }
}

/// What merges and writes runs: half of the memory is for what is merged, half for the objects that are written. With little of it
/// there are fewer threads, then smaller objects.
pub(crate) fn index_pass(io: IndexIo, ids: PassRuns, memory: usize) -> IndexPass {
    let half = memory.max(MEMORY_MIN) / 2;
    let target = (half / (2 * OBJECTS_OF_A_THREAD)).min(OBJECT_TARGET.0 as usize);
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = (half / (OBJECTS_OF_A_THREAD * target)).min(cores).min(THREADS_MAX.get());
    let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
    let mut pass = IndexPass::new(io, ids, threads, half, std::env::temp_dir());
    pass.object_target = ByteCount(target as u64);
    pass
}
