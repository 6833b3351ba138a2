//! [`Runs`]: the runs of one manifest. Readers hold them while they use what they name.
//!
//! A manifest makes files superfluous: runs that were merged, containers without live chunks. They
//! are removed when nobody can name them any more, so not before the last reader of the runs
//! before ends.

use std::sync::{Arc, OnceLock};

use larder_format::page_run::VolumeTable;
use larder_format::volume_map::Mapping;

use super::ranges::Ranges;
use super::removal::Removals;
use super::run_file::{PageCache, RunFile};
use super::tables::block_key;
use super::view::View;
use crate::error::VolumeError;

/// The runs of a manifest, the oldest of each table first.
#[derive(Default)]
pub(crate) struct Runs {
    pub(crate) chunks: Vec<Arc<RunFile>>,
    pub(crate) blocks: Vec<Arc<RunFile>>,
    pub(crate) counts: Vec<Arc<RunFile>>,
    /// Containers that nothing names any more.
    pub(crate) retired: Ranges,
    superseded: OnceLock<Superseded>,
}

/// What happens when nobody reads a manifest's runs any more.
struct Superseded {
    removals: Arc<Removals>,
    files: Vec<String>,
    /// Its files must stay as long as readers of older ones are there: they are in use here too.
    _next: Arc<Runs>,
}

impl Drop for Superseded {
    fn drop(&mut self) {
        self.files.iter().for_each(|file| self.removals.remove(file));
    }
}

impl Runs {
    /// The same runs, for a manifest that changes some.
    pub(crate) fn copy(&self) -> Self {
        Self {
            chunks: self.chunks.clone(),
            blocks: self.blocks.clone(),
            counts: self.counts.clone(),
            retired: self.retired.clone(),
            superseded: OnceLock::new(),
        }
    }

    /// Others count from now on. These files are removed when nobody reads these runs any more.
    pub(crate) fn supersede(&self, removals: Arc<Removals>, files: Vec<String>, next: Arc<Self>) {
        // Only a publication does this, once.
        drop(self.superseded.set(Superseded { removals, files, _next: next }));
    }

    pub(crate) fn of(&self, table: VolumeTable) -> &[Arc<RunFile>] {
        match table {
            VolumeTable::Chunks => &self.chunks,
            VolumeTable::Blocks => &self.blocks,
            VolumeTable::Counts => &self.counts,
        }
    }

    pub(crate) fn of_mut(&mut self, table: VolumeTable) -> &mut Vec<Arc<RunFile>> {
        match table {
            VolumeTable::Chunks => &mut self.chunks,
            VolumeTable::Blocks => &mut self.blocks,
            VolumeTable::Counts => &mut self.counts,
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<RunFile>> {
        VolumeTable::ALL.into_iter().flat_map(|table| self.of(table))
    }

    /// What a view sees of a block: runs are ordered by version, so the first one that has
    /// something has it.
    pub(crate) fn block(&self, cache: &PageCache, view: View, block: u64) -> Result<Option<Mapping>, VolumeError> {
        let Some(newest) = view.below.checked_sub(1) else { return Ok(None) };
        let key = block_key(view.volume, block, newest);
        for run in self.blocks.iter().rev() {
            if let Some(value) = run.find(cache, &key)? {
                let mapping = Mapping::decode(&value).map_err(VolumeError::damaged(format!("runs/{}", run.id())))?;
                return Ok(Some(mapping));
            }
        }
        Ok(None)
    }
}
