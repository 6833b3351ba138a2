//! Look-ups of many keys at once, and the memory of the filters.

use std::sync::Arc;

use larder_format::volume_map::Place;

use super::generation::Runs;
use super::run_file::{PageCache, RunFile};
use super::tables::{block_key, place_of};
use super::view::View;
use crate::error::VolumeError;

impl Runs {
    /// Whether a chunk may be in a run, as far as filters in memory tell.
    pub(crate) fn admits_chunk(&self, key: &[u8; 20]) -> bool {
        self.chunks.iter().any(|run| run.admits(key))
    }

    /// Looks for the chunks that have no place yet. The newest run is asked first; what it has is
    /// not asked of older ones.
    pub(crate) fn find_chunks(
        &self,
        cache: &PageCache,
        keys: &[[u8; 20]],
        places: &mut [Option<Place>],
    ) -> Result<(), VolumeError> {
        for run in self.chunks.iter().rev() {
            let open: Vec<usize> = (0..keys.len()).filter(|at| places[*at].is_none()).collect();
            if open.is_empty() {
                return Ok(());
            }
            let prefixes: Vec<&[u8]> = open.iter().map(|at| &keys[*at][..]).collect();
            for (at, value) in open.into_iter().zip(run.find_many(cache, &prefixes)?) {
                places[at] = value.and_then(|value| place_of(&value));
            }
        }
        Ok(())
    }

    /// Reads the pages of these blocks into the cache, those of a run at once. Later look-ups of
    /// single blocks find them there. Gives the blocks that no run has.
    pub(crate) fn read_ahead(&self, cache: &PageCache, view: View, blocks: Vec<u64>) -> Result<Vec<u64>, VolumeError> {
        let Some(newest) = view.below.checked_sub(1) else { return Ok(blocks) };
        let keys = blocks.into_iter().map(|block| (block, block_key(view.volume, block, newest)));
        let mut open: Vec<(u64, [u8; 20])> = keys.collect();
        for run in self.blocks.iter().rev() {
            // The newest run that has a block answers; older ones are not asked.
            let (here, others): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, key)| run.admits(key));
            let here: Vec<&[u8]> = here.iter().map(|(_, key)| &key[..]).collect();
            run.read_ahead(cache, &here)?;
            open = others;
        }
        Ok(open.into_iter().map(|(block, _)| block).collect())
    }

    /// Drops the largest filters until the others take at most `memory` bytes. Nobody looks for
    /// single counts, so their runs need none.
    pub(crate) fn keep_filters(&self, memory: usize) {
        self.counts.iter().for_each(|run| run.drop_filter());
        let mut runs: Vec<(usize, &Arc<RunFile>)> =
            self.chunks.iter().chain(&self.blocks).map(|run| (run.filter_bytes(), run)).collect();
        runs.sort_by_key(|(bytes, _)| *bytes);
        let mut held: usize = runs.iter().map(|(bytes, _)| bytes).sum();
        while held > memory {
            let Some((bytes, run)) = runs.pop() else { return };
            run.drop_filter();
            held -= bytes;
        }
    }
}
