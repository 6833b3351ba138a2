//! Uploads of batches that ended early. Their storing jobs are open until they look dead, so images
//! of the next batch adopt them as a backup adopts its predecessor, and store less.

use std::sync::Arc;

use larder_format::ids::{ContainerKind, JobId};
use larder_format::index_tables::ChunkKey;
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::names;
use larder_lnode::assemble::may_adopt;

use crate::error::FleetError;
use crate::left::Left;
use crate::shared::{Batch, STORE_SERIES};
use crate::tasks::tables::is_unusable;

/// Jobs that are adopted at most: the newest.
const JOBS_MAX: usize = 16;
/// Bytes that a chunk takes in memory, roughly.
const CHUNK_BYTES: usize = 64;

impl Batch<'_> {
    /// Uploads of batches that ended early.
    pub(super) fn left(&self) -> Result<Arc<Left>, FleetError> {
        let mut left = self.left.lock();
        if let Some(left) = &*left {
            return Ok(left.clone());
        }
        let own: Vec<JobId> = self.stores.lock().values().copied().collect();
        Ok(left.insert(Arc::new(list(self, &own)?)).clone())
    }
}

/// Looks for them. `own` are the storing jobs of this batch.
fn list(batch: &Batch<'_>, own: &[JobId]) -> Result<Left, FleetError> {
    let context = batch.context;
    let repository = &context.repository;
    let series = repository.keys().series_key(STORE_SERIES);
    let mut open = context.executor.block_on(repository.unfinished_jobs())?;
    open.retain(|other| {
        let is_store = other.lease.series == STORE_SERIES && may_adopt(context, Layout::Standard, &other.lease);
        is_store && !own.contains(&other.job)
    });
    open.sort_unstable_by_key(|other| std::cmp::Reverse(other.job));
    let most = batch.budget().tables / CHUNK_BYTES;
    let mut left = Left::default();
    for other in open.into_iter().take(JOBS_MAX) {
        let before = left.chunks.len();
        take(&mut left, batch, other.job, most)?;
        if left.chunks.len() > before {
            left.jobs.push(Pin { series, job: other.job });
        }
    }
    Ok(left)
}

fn take(left: &mut Left, batch: &Batch<'_>, job: JobId, most: usize) -> Result<(), FleetError> {
    let (executor, repository) = (&batch.context.executor, &batch.context.repository);
    let listed = executor.block_on(repository.store().list(&names::containers_of(ContainerKind::Data, job)))?;
    for id in listed.iter().filter_map(|object| names::parse_container(&object.name)) {
        if left.chunks.len() >= most {
            return Ok(());
        }
        let index = match executor.block_on(repository.read_container_index(id)) {
            Ok(index) => index,
            Err(error) if is_unusable(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        let container = left.containers.len() as u32;
        left.containers.push(id);
        for (number, chunk) in (0_u32..).zip(index.chunk_refs()) {
            left.chunks.entry(ChunkKey::of(&chunk.fingerprint)).or_insert((container, number));
        }
    }
    Ok(())
}
