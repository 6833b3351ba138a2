//! Rewrites versions: copies chunks into new containers, and rewrites recipes over them.
//!
//! The work of offline tasks with contents (SlimStore section V-B for sparse containers; rewriting
//! of stale containers). Everything written belongs to the job of the task; nothing here commits or
//! deletes. Called by passes, conversions and repairs.
//!
//! Invariants: a chunk is copied, or a record changed to another copy of it, only after its
//! fingerprint was computed again from the bytes there. So damage is found before another copy is
//! retired for this one. A rewritten recipe names the same chunks in the same order, with other
//! places.

mod copied_chunks;
mod copying;
mod metadata;
mod multi_writer;
mod reading;
mod recipe;
mod sharing;
mod verifying;
mod waiting;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use larder_chunking::Fingerprinter;
use larder_format::compress::Compression;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_format::manifest::Manifest;
use larder_format::recipe::Recipe;
use larder_format::{ChunkRef, ErrorKind};
use larder_job::{Cancel, JobContext};
use larder_reader::MetaChunks;
use larder_store::RepositoryError;
use larder_writer::{
    ContainerTotals, Destination, MetaSink, Packer, Pool, PoolHandle, Uploads, Usage, container_table, holdings,
};

pub use copied_chunks::CopiedChunks;
pub use multi_writer::Writer;
pub use sharing::{BatchEnd, CopyBatch, NumberedChunk, ShareCopies, SharedBatches, SharedCopying};
pub use verifying::{Unreadable, damaged_container};

/// Divisor of a job's memory that gives the part for chunks being copied.
const BATCH_ONE_IN: usize = 4;
/// Divisor of a job's memory that gives the part for new places of chunks.
const PLACES_ONE_IN: usize = 8;

/// A version could not be rewritten. Its earlier state has not changed.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// The repository failed, or the data to copy is damaged.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// No thread could be started for compressing.
    #[error("no thread could be started; is there a limit on threads or memory?")]
    NoThreads,
    /// A worker thread ended unexpectedly: a bug.
    #[error("a worker thread ended unexpectedly")]
    WorkerDied,
    /// Stopped on request.
    #[error("interrupted")]
    Interrupted,
    /// Another process copied for this job, and what it says is not true. The job is void, and
    /// another one has to copy alone.
    #[error("a worker did not copy what it says")]
    WorkerWrong,
}

impl RewriteError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Repository(error) => error.kind(),
            Self::NoThreads => ErrorKind::Resource,
            Self::WorkerDied => ErrorKind::Bug,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::WorkerWrong => ErrorKind::LostRace,
        }
    }
}

/// Containers that a task wrote, all acknowledged by the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// The size of each of them.
    pub containers: HashMap<ContainerId, ContainerTotals>,
    /// Bytes of all these objects.
    pub stored_bytes: u64,
}

/// A chunk with a new place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The container that it leaves.
    pub from: ContainerId,
    /// Its new place: a new copy, or one that existed.
    pub to: ChunkRef,
}

/// The fate of a chunk of a container that is retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placing {
    /// It is copied from here.
    Copy(ChunkRef),
    /// It is copied from here, into containers with chunks that other versions need too.
    CopyCommon(ChunkRef),
    /// Another copy is here, in a container of a version that the task has announced.
    At(ChunkRef),
    /// Another copy should be here, in such a container: it is read first, and the chunk is copied
    /// if it is unreadable.
    Shared(ChunkRef),
    /// It stays where it is.
    Stay,
}

/// A version whose recipe was rewritten.
#[derive(Debug)]
pub struct RewrittenRecipes {
    data: Recipe,
    metadata: Recipe,
    usage: Usage,
    /// Copied chunks, each once: in the order of the stream, those in common before the others. The
    /// first ones, as many as are remembered ([`ChunkCopier::remembering`]).
    pub moves: Vec<Move>,
    /// The number of copied chunks.
    pub moved_chunks: u64,
    /// Bytes of copied chunks.
    pub moved_bytes: u64,
    /// Chunks that use another copy from now on.
    pub shared_chunks: u64,
    /// Bytes of these.
    pub shared_bytes: u64,
    /// Containers that other processes wrote for the job.
    pub by_others: HashMap<ContainerId, ContainerTotals>,
}

impl RewrittenRecipes {
    /// The version's manifest over its new recipe. `attempt` must be new random bytes. `None` when
    /// a container is in neither table, which only damage explains.
    pub fn manifest(self, old: &Manifest, written: &Written, attempt: [u8; 16]) -> Option<Manifest> {
        self.manifest_beside(old, written, &HashMap::new(), attempt)
    }

    /// The same, with the known containers of other versions that the task has announced.
    pub fn manifest_beside(
        self,
        old: &Manifest,
        written: &Written,
        others: &HashMap<ContainerId, ContainerTotals>,
        attempt: [u8; 16],
    ) -> Option<Manifest> {
        let of_old = holdings(&old.containers);
        let held = |container: &ContainerId| {
            let fresh = written.containers.get(container).or_else(|| others.get(container));
            fresh.or_else(|| of_old.get(container)).copied()
        };
        let containers = container_table(&self.usage, held)?;
        let mut summary = old.summary.clone();
        summary.attempt = attempt;
        Some(Manifest { summary, data: self.data, metadata: self.metadata, containers })
    }
}

/// Writes the containers of one task. See the module header.
pub struct ChunkCopier {
    context: JobContext,
    fingerprinter: Arc<Fingerprinter>,
    chunks: MetaChunks,
    uploads: Arc<Uploads>,
    data: Packer,
    /// Writes the chunks that other versions need too, beside `data`.
    common: Option<Packer>,
    /// Stores metadata, and counts the uses of the current version.
    sink: MetaSink,
    /// The names of chunks to copy; `None`: their places.
    names: Option<MetaChunks>,
    /// The number of chunks whose moves are remembered.
    moves_max: usize,
    /// For data that exceeds memory.
    scratch: Option<PathBuf>,
    /// Metadata containers that recipes leave.
    left: metadata::Left,
    /// Further writers, beside `data`.
    writers: Vec<Packer>,
    /// Uncompressed bytes of frames that were copied whole.
    whole_bytes: u64,
    /// Opens read frames, and seals written ones.
    threads: PoolHandle,
    /// Last, so that it ends after the users of its threads.
    _pool: Pool,
}

impl std::fmt::Debug for ChunkCopier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkCopier").field("context", &self.context).finish_non_exhaustive()
    }
}

impl ChunkCopier {
    /// Begins to write under the id of a task, which has announced itself.
    pub fn new(context: &JobContext, job: JobId, compression: Compression) -> Result<Self, RewriteError> {
        let uploads = Uploads::new(context.repository.clone(), context.executor.clone(), Cancel::default());
        let pool = Pool::new(context, compression).map_err(|_| RewriteError::NoThreads)?;
        let handle = pool.handle().ok_or(RewriteError::WorkerDied)?;
        let destination = Destination::Store { pool: handle.clone(), uploads: uploads.clone() };
        let mut data = Packer::new(destination.clone(), ContainerKind::Data, job);
        data.guess_hint();
        let fingerprinter = Arc::new(Fingerprinter::new(context.repository.keys().fingerprint()));
        let chunks = MetaChunks::new(context);
        let sink = MetaSink::new(Packer::new(destination, ContainerKind::Meta, job), fingerprinter.clone());
        let of_base = chunks.clone();
        Ok(Self {
            context: context.clone(),
            fingerprinter,
            chunks,
            uploads,
            data,
            common: None,
            sink: sink.reading(Box::new(move |chunk| of_base.read(chunk))),
            names: None,
            moves_max: usize::MAX,
            scratch: Some(std::env::temp_dir()),
            left: metadata::Left::default(),
            writers: Vec::new(),
            whole_bytes: 0,
            threads: handle,
            _pool: pool,
        })
    }

    /// For versions that move completely: places of chunks without room in memory go to `folder`,
    /// and moves are not reported. The versions get this layout.
    pub fn for_whole_versions(mut self, layout: Layout, folder: Option<PathBuf>) -> Self {
        (self.moves_max, self.scratch) = (0, folder);
        self.data = self.data.for_layout(layout);
        self
    }

    /// Limits the remembered moves of a version to this number of chunks; each takes the bytes of a
    /// [`Move`]. Without it, all are remembered.
    pub fn remembering(mut self, moves_max: usize) -> Self {
        self.moves_max = moves_max;
        self
    }

    /// Closes the containers, waits until the store has acknowledged all of them, and requests each
    /// once more.
    pub fn finish(mut self) -> Result<Written, RewriteError> {
        self.data.close()?;
        if let Some(common) = &mut self.common {
            common.close()?;
        }
        self.close_writers()?;
        self.sink.finish()?;
        self.uploads.wait()?;
        self.uploads.confirm()?;
        let containers = self.uploads.stored();
        Ok(Written { containers, stored_bytes: self.uploads.stored_bytes() })
    }

    /// The same, numbering data containers from here on: a job that writes twice never reuses a
    /// name.
    pub fn numbered_from(mut self, next: u32) -> Self {
        self.data.number_from(next);
        self
    }

    /// The number that the next data container gets.
    pub fn next_number(&self) -> u32 {
        self.data.next_number()
    }

    /// Bytes, uncompressed, that were copied in whole frames, without compressing them again.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    fn batch_bytes(&self) -> usize {
        self.context.memory / BATCH_ONE_IN
    }

    fn stop_if_asked(&self) -> Result<(), RewriteError> {
        if self.context.cancel.is_cancelled() { Err(RewriteError::Interrupted) } else { Ok(()) }
    }
}
