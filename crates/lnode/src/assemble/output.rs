//! Where a job's containers go: threads that seal frames, and uploads.
//!
//! Invariant: the pool and the uploads live as long as any writer that uses them, and end with the
//! last one. So a writer may outlive the [`Output`] that made it.

use std::collections::HashMap;
use std::sync::Arc;

use larder_chunking::Fingerprinter;
use larder_format::compress::{Compression, ContentHint};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_format::lease::Done;
use larder_format::{ChunkRef, Fingerprint};
use larder_job::{Ending, JobContext};
use larder_reader::MetaChunks;
use larder_store::RepositoryError;
use larder_writer::{
    ContainerTotals, Cutting, Destination, MetaSink, Packer, Pool, PoolHandle, StopUploads, Uploads, WriteBudget,
};

use super::AssembleError;

/// Ends in this order: frames that are handed in are sealed, then uploads stop.
#[derive(Debug)]
struct Running {
    _pool: Pool,
    _uploads: StopUploads,
}

/// See the module header.
#[derive(Debug)]
pub struct Output {
    job: JobId,
    // Handles of the pool end before the pool.
    handle: PoolHandle,
    destination: Destination,
    uploads: Arc<Uploads>,
    running: Arc<Running>,
}

impl Output {
    /// The output of a job.
    ///
    /// # Errors
    /// The operating system starts no thread.
    pub fn new(context: &JobContext, job: JobId, compression: Compression) -> Result<Self, AssembleError> {
        Self::within(context, job, compression, WriteBudget::default())
    }

    /// The same with containers of these sizes.
    ///
    /// # Errors
    /// As with [`Self::new`].
    pub fn within(
        context: &JobContext,
        job: JobId,
        compression: Compression,
        budget: WriteBudget,
    ) -> Result<Self, AssembleError> {
        let JobContext { repository, executor, cancel, .. } = context;
        let uploads = Uploads::within(repository.clone(), executor.clone(), cancel.clone(), budget);
        let stop = StopUploads(uploads.clone());
        let pool = Pool::new(context, compression).map_err(|_| AssembleError::NoThreads)?;
        let handle = pool.handle().ok_or(AssembleError::NoThreads)?;
        let destination = Destination::Store { pool: handle.clone(), uploads: uploads.clone() };
        let running = Arc::new(Running { _pool: pool, _uploads: stop });
        Ok(Self { job, handle, destination, uploads, running })
    }

    /// The same for a dry run: nothing is stored.
    pub fn counting(self) -> Self {
        Self { destination: Destination::Nowhere, ..self }
    }

    /// The job that the containers belong to.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The threads.
    pub(crate) fn pool(&self) -> PoolHandle {
        self.handle.clone()
    }

    /// A writer of data containers for a layout. A job has at most one.
    pub fn data(&self, layout: Layout) -> DataWriter {
        let packer = Packer::new(self.destination.clone(), ContainerKind::Data, self.job).for_layout(layout);
        DataWriter { packer, uploads: self.uploads.clone(), _running: self.running.clone() }
    }

    /// A writer of the recipes of one version or of several, for versions of this job and of jobs
    /// that adopt it. A job has at most one, or a sink. `shared` bytes of memory find segments that
    /// versions have in common.
    pub fn recipes(&self, context: &JobContext, cutting: &Cutting, shared: usize) -> RecipeOutput {
        let chunks = MetaChunks::new(context);
        let of_base = chunks.clone();
        let sink = self.metadata(cutting.fingerprinter.clone()).reading(Box::new(move |chunk| of_base.read(chunk)));
        let (uploads, running) = (self.uploads.clone(), self.running.clone());
        RecipeOutput { sink: sink.sharing(shared), chunks, uploads, _running: running }
    }

    /// A sink of metadata containers. A job has at most one. It must end before this output.
    pub(crate) fn metadata(&self, fingerprinter: Arc<Fingerprinter>) -> MetaSink {
        MetaSink::new(Packer::new(self.destination.clone(), ContainerKind::Meta, self.job), fingerprinter)
    }

    /// Waits until the store has acknowledged every container that was begun. Writers must have
    /// closed theirs.
    ///
    /// # Errors
    /// An upload failed, or the job was asked to stop.
    pub fn wait(&self) -> Result<(), AssembleError> {
        wait(&self.uploads)
    }

    /// The size of each container that the store has acknowledged.
    pub fn stored(&self) -> HashMap<ContainerId, ContainerTotals> {
        self.uploads.stored()
    }

    /// Bytes of these containers.
    pub fn stored_bytes(&self) -> u64 {
        self.uploads.stored_bytes()
    }

    /// Adds the number of containers that the job created.
    pub(crate) fn with_containers(&self, done: Done) -> Done {
        let stored = self.stored();
        let count = |kind| u32::try_from(stored.keys().filter(|id| id.kind == kind).count()).unwrap_or(u32::MAX);
        done.with_containers(count(ContainerKind::Data), count(ContainerKind::Meta))
    }

    /// The ending of a job that committed nothing and creates nothing more. Afterwards nobody
    /// adopts it, and a pass may collect its containers.
    pub fn nothing_committed(&self) -> Ending {
        Ending::Closed(self.with_containers(Done::nothing()))
    }
}

fn wait(uploads: &Uploads) -> Result<(), AssembleError> {
    match uploads.wait_unless_cancelled()? {
        true => Ok(()),
        false => Err(AssembleError::Interrupted),
    }
}

/// Puts recipes into metadata containers of one job. Equal segments are stored once, for all of its
/// versions.
#[derive(Debug)]
pub struct RecipeOutput {
    pub(super) sink: MetaSink,
    /// Reads segments of bases.
    pub(super) chunks: MetaChunks,
    uploads: Arc<Uploads>,
    _running: Arc<Running>,
}

impl RecipeOutput {
    /// Closes the open container, also if a version failed in the middle, and waits until the store
    /// has acknowledged every container of the job.
    ///
    /// # Errors
    /// An upload failed, or the job was asked to stop.
    pub fn flush(&mut self) -> Result<(), AssembleError> {
        self.sink.close()?;
        wait(&self.uploads)
    }

    /// The size of each container of the job that the store has acknowledged.
    pub(super) fn stored(&self) -> HashMap<ContainerId, ContainerTotals> {
        self.uploads.stored()
    }

    /// Bytes of the metadata containers among them.
    pub(super) fn stored_bytes(&self) -> u64 {
        let stored = self.uploads.stored();
        let of_meta = stored.iter().filter(|(id, _)| id.kind == ContainerKind::Meta);
        of_meta.map(|(_, totals)| totals.object_bytes).sum()
    }
}

/// Puts new chunks into data containers of one job.
#[derive(Debug)]
pub struct DataWriter {
    packer: Packer,
    uploads: Arc<Uploads>,
    _running: Arc<Running>,
}

impl DataWriter {
    /// The chunks that come now are of this.
    pub fn expect(&mut self, hint: ContentHint) {
        self.packer.expect(hint);
    }

    /// Numbers containers from here on: for a job that goes on in another process.
    pub fn number_from(&mut self, next: u32) {
        self.packer.number_from(next);
    }

    /// Appends a chunk that is new, and says where it will be. Waits while memory for uploads is
    /// full.
    ///
    /// # Errors
    /// An upload failed, or the job was asked to stop.
    pub fn push(&mut self, fingerprint: Fingerprint, bytes: &[u8]) -> Result<ChunkRef, RepositoryError> {
        self.packer.push(fingerprint, bytes)
    }

    /// The watermark: the store has acknowledged all of this writer's containers with smaller
    /// numbers.
    pub fn acknowledged_below(&self) -> u32 {
        // Nothing else numbers containers of this kind, so none is begun in between.
        let next = self.packer.next_number();
        self.uploads.first_open(ContainerKind::Data).map_or(next, |open| open.seq)
    }

    /// Whether the store has acknowledged the container of a chunk.
    pub fn is_acknowledged(&self, chunk: &ChunkRef) -> bool {
        self.uploads.is_stored(chunk.container)
    }

    /// Closes the open container. Its upload goes on in the background.
    ///
    /// # Errors
    /// An upload failed.
    pub fn close(&mut self) -> Result<(), RepositoryError> {
        self.packer.close()
    }

    /// Closes the open container, and waits until the store has acknowledged every container.
    ///
    /// # Errors
    /// An upload failed, or the job was asked to stop.
    pub fn flush(&mut self) -> Result<(), AssembleError> {
        self.close()?;
        wait(&self.uploads)
    }
}
