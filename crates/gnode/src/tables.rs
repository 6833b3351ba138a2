//! How a pass works on the tables of the index: their place, access and memory.

use std::num::NonZeroUsize;
use std::sync::Arc;

use larder_format::ids::{ByteCount, RunId};
use larder_format::index_manifest::IndexManifest;
use larder_format::names;
use larder_index::{Draft, Executor, IndexIo, IndexPass, IndexSnapshot, OBJECT_TARGET, PassRuns};
use larder_job::{JobContext, NoProgress};
use larder_store::{Repository, StoreError};

use crate::error::PassError;
use crate::ingest::{Ingested, Sketches, follow};
use crate::reclaim::ReclaimError;

/// Memory for tables by default: enough for a repository of any size. With the rest of the process,
/// a pass that makes an index of ten million chunks stays below 64 MB.
pub const MEMORY_DEFAULT: usize = 48 << 20;

/// With less than this no merge can proceed:
/// [`PassOptions::memory`](crate::pass::PassOptions::memory) below this counts as this. A user
/// interface refuses such a number.
pub const MEMORY_MIN: usize = 8 << 20;

/// Of that memory, one part in this number caches ends of runs and of containers that are read
/// repeatedly.
const TAILS_ONE_IN: usize = 8;

/// The repository, with a cache of runs and tables of containers, within a part of the memory that
/// a pass has for tables. These objects never change, so the cache is never stale. For all steps of
/// one round: defragmentation before and after a pass reads the same runs.
pub fn remembering(repository: &Repository, memory: usize) -> Repository {
    repository.through(repository.store().remembering_tails(memory / TAILS_ONE_IN))
}

/// The memory that [`remembering`] leaves for everything else.
fn beside_tails(memory: usize) -> usize {
    memory - memory / TAILS_ONE_IN
}

/// Bytes that a pass holds for each number of a container: a bit in each of up to eight sets.
const NUMBER_BYTES: u64 = 1;
/// Bytes that a pass holds for each version of the index, in its rows and listings, about.
const VERSION_BYTES: u64 = 800;

/// The memory for tables, of all that a pass over this index may take. Sets of container numbers
/// and rows of versions are always in memory.
///
/// # Errors
/// It does not suffice for these, and for the least that tables can do with.
pub(crate) fn for_tables(memory: usize, manifest: &IndexManifest) -> Result<usize, PassError> {
    let numbers = u64::from(manifest.head.next_container) * NUMBER_BYTES;
    let fixed = numbers + manifest.versions.len() as u64 * VERSION_BYTES;
    // Less than the least counts as the least.
    let (memory, least) = (memory.max(MEMORY_MIN), beside_tails(MEMORY_MIN) as u64);
    match (beside_tails(memory) as u64).checked_sub(fixed) {
        Some(left) if left >= least => Ok(left as usize),
        // The least has an eighth to spare.
        _ if fixed <= least / 8 => Ok(least as usize),
        _ => {
            let needed = (least + fixed).div_ceil(TAILS_ONE_IN as u64 - 1) * TAILS_ONE_IN as u64;
            Err(PassError::TooLittleMemory { memory: memory as u64, needed })
        }
    }
}

/// Threads of a merge at most.
pub(crate) const THREADS_MAX: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// Writers that a thread has at most: of chunks and of copies. Each has one object growing and one
/// in upload.
const OBJECTS_OF_A_THREAD: usize = 4;

/// Bytes of memory for checking and copying chunks, beside the buffers of the threads.
const COPY_MEMORY: usize = 64 << 20;

/// The context in which a pass reads and writes contents.
pub(crate) fn copying(context: &JobContext, threads: NonZeroUsize) -> JobContext {
    JobContext { threads, memory: COPY_MEMORY, progress: Arc::new(NoProgress), ..context.clone() }
}

/// The context for parts of a round that move contents. Unless it touches cold storage, thawed
/// objects count as cold.
pub(crate) fn moving(context: &JobContext, touches_cold: bool) -> JobContext {
    match touches_cold {
        true => context.clone(),
        false => context.through(&context.repository.through(context.repository.store().leaving_thawed())),
    }
}

/// Limits of work on tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes that sorting, looking up, merging and writing may take together.
    pub(crate) memory: usize,
    /// Threads that merge at most.
    pub(crate) threads: NonZeroUsize,
}

impl Limits {
    /// This much memory, and the usual threads.
    pub(crate) fn of_memory(memory: usize) -> Self {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self { memory, threads: cores.min(THREADS_MAX) }
    }
}

/// The context of work on tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexWork<'a> {
    pub(crate) executor: &'a Executor,
    pub(crate) repository: &'a Repository,
    pub(crate) limits: Limits,
}

impl IndexWork<'_> {
    /// Runs some work.
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

/// The tool that merges and writes runs. Half of the memory is for reading, half for the objects
/// that are written. With little memory there are fewer threads, then smaller objects.
pub(crate) fn index_pass(io: IndexIo, ids: PassRuns, limits: Limits) -> IndexPass {
    let half = limits.memory.max(MEMORY_MIN) / 2;
    let target = (half / (2 * OBJECTS_OF_A_THREAD)).min(OBJECT_TARGET.0 as usize);
    let threads = (half / (OBJECTS_OF_A_THREAD * target)).min(limits.threads.get()).min(THREADS_MAX.get());
    let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
    let mut pass = IndexPass::new(io, ids, threads, half, std::env::temp_dir());
    pass.object_target = ByteCount(target as u64);
    pass
}

/// An index with its tables of chunks.
pub(crate) struct WithChunks<T> {
    pub(crate) manifest: IndexManifest,
    pub(crate) ingested: Ingested,
    /// Runs that are not part of it any more.
    pub(crate) left_over: Vec<RunId>,
    /// The result of the work with it.
    pub(crate) then: T,
}

/// The index with the chunks of containers that have numbers from `first_new` on, and the result of
/// `then` for it.
pub(crate) async fn with_chunks<T: Send + 'static>(
    index: IndexWork<'_>,
    ids: PassRuns,
    manifest: IndexManifest,
    first_new: u32,
    sketches: Sketches,
    then: impl FnOnce(&IndexPass, &mut Draft<'_>) -> Result<T, ReclaimError> + Send + 'static,
) -> Result<WithChunks<T>, PassError> {
    let limits = index.limits;
    let chunks = move |io| {
        let pass = index_pass(io, ids, limits);
        let drafted = IndexSnapshot { number: manifest.head.number, manifest: Arc::new(manifest) };
        let mut draft = Draft::new(&pass, &drafted);
        let ingested = follow(&pass, &mut draft, first_new, &sketches)?;
        let then = then(&pass, &mut draft)?;
        let left_over = draft.intermediate();
        Ok::<_, ReclaimError>(WithChunks { manifest: draft.manifest, ingested, left_over, then })
    };
    index.run(chunks).await
}

/// Deletes runs that were written and merged in one pass. They are in no index.
pub(crate) async fn discard(repository: &Repository, runs: Vec<RunId>) -> Result<(), StoreError> {
    for id in runs {
        repository.store().delete(&names::run(id)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(containers: u32, versions: usize) -> IndexManifest {
        let mut manifest = (*IndexSnapshot::empty().manifest).clone();
        manifest.head.next_container = containers;
        let row = larder_format::index_manifest::IndexedVersion {
            number: 1,
            series: larder_format::ids::SeriesKey([0; 16]),
            job: larder_format::ids::JobId([0; 16]),
            generation: 0,
            state: larder_format::index_manifest::VersionState::Retained,
            layout: larder_format::layout::Layout::Standard,
            is_arranged: false,
            is_carried: false,
            is_proved: false,
            is_settled: false,
            seen_ms: 0,
        };
        manifest.versions = vec![row; versions];
        manifest
    }

    #[test]
    fn memory_that_cannot_suffice_is_refused_and_the_message_says_the_minimum() {
        // A terabyte in nine hundred versions is no problem for the least.
        assert_eq!(for_tables(MEMORY_MIN, &index(130_000, 900)).expect("enough"), 7 << 20);
        // Nor are 100 TB in ten thousand for the default.
        let left = for_tables(MEMORY_DEFAULT, &index(13_000_000, 10_000)).expect("enough");
        assert_eq!(left, (42 << 20) - 13_000_000 - 8_000_000);
        let large = index(40_000_000, 10_000);
        let Err(PassError::TooLittleMemory { memory, needed }) = for_tables(MEMORY_DEFAULT, &large) else {
            panic!("refused");
        };
        assert_eq!(memory, MEMORY_DEFAULT as u64);
        // The minimum suffices, and a little less does not.
        let needed = usize::try_from(needed).expect("small");
        assert!(for_tables(needed, &large).expect("enough") >= 7 << 20);
        assert!(for_tables(needed - 64, &large).is_err());
        let message = for_tables(MEMORY_DEFAULT, &large).expect_err("refused").to_string();
        let expected = "a pass over this repository needs 61 MiB of memory for tables, and may take 48 MiB";
        assert!(message.starts_with(expected), "{message}");
    }
}
