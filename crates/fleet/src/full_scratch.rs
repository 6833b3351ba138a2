//! What an error of a full folder for temporary files says: where it was, and what to do.

use std::sync::Arc;

use larder_format::fleet::{Stage, TaskId};
use larder_index::IndexError;

use crate::error::{FleetError, FullScratch, is_full};
use crate::shared::Batch;

/// Bytes of temporary files for each chunk that is asked for: a question, its answer, its place,
/// and what sorting takes in addition.
const CHUNK_BYTES: u64 = 80;

impl Batch<'_> {
    /// Says of an error of a full folder for temporary files where it was, and what to do. `chunks`
    /// are those that the work in hand asks for.
    pub(crate) fn located(&self, error: FleetError, task: TaskId, chunks: u64) -> FleetError {
        let source = match error {
            FleetError::Scratch { source } | FleetError::Index(IndexError::Spill { source, .. })
                if is_full(&source) =>
            {
                source
            }
            other => return other,
        };
        let folder = &self.options.scratch;
        let free = rustix::fs::statvfs(folder).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let (host, at) = match task.stage {
            Stage::Scan | Stage::Store | Stage::Finish => {
                let image = self.image(task.number);
                (self.host(image.host).name.clone(), format!("image {}", image.name))
            }
            Stage::Send | Stage::Place => (self.host(task.number).name.clone(), "all its images".to_owned()),
            Stage::Join | Stage::Resolve | Stage::Check | Stage::Copy | Stage::Mark => {
                (self.context.identity.host.clone(), format!("range {} of fingerprints", task.number))
            }
        };
        let (free, needed) = (free >> 20, mib(chunks.saturating_mul(CHUNK_BYTES)));
        let folder = folder.display().to_string();
        FleetError::ScratchFull(Arc::new(FullScratch { host, at, stage: task.stage, folder, free, needed, source }))
    }
}
