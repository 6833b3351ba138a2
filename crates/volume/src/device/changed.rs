//! Blocks that changed between two snapshots, straight from the block table.
//!
//! Every change of a block is a record with a version. So the blocks that changed are those that
//! have a record from one snapshot's bound to the other's. Merges keep of each block what the later
//! snapshot sees, so no change is missed. A block that was written with its old content is
//! contained too. A scan reads all records of the volume: pages do not say which versions they
//! have.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::ops::Range;

use crate::error::VolumeError;
use crate::index::{View, block_key, block_of_key};
use crate::store::Store;

type Source = Peekable<Box<dyn Iterator<Item = Result<u64, VolumeError>> + Send>>;

/// Ranges of numbers of blocks that changed, rising, with unchanged blocks between them.
pub struct ChangedBlocks {
    sources: Vec<Source>,
    end: u64,
}

impl std::fmt::Debug for ChangedBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangedBlocks").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl Store {
    /// The blocks of a volume that changed since a snapshot of it (`None`: since it was created)
    /// until a later snapshot of it (`None`: now, with what waits for a commit). Content that comes
    /// from a parent of the volume is no change. Blocks behind the end are not contained.
    pub fn changed_blocks(
        &self,
        volume: u32,
        since: Option<u32>,
        until: Option<u32>,
    ) -> Result<ChangedBlocks, VolumeError> {
        let catalog = self.catalog();
        let mut size = catalog.volume(volume)?.size;
        let bound = |id: u32| {
            let snapshot = catalog.snapshot(id)?;
            if snapshot.volume != volume {
                return Err(VolumeError::BadRequest("the snapshot is one of another volume".into()));
            }
            Ok((snapshot.version, snapshot.size))
        };
        let since = since.map(bound).transpose()?.map_or(0, |(version, _)| version);
        let mut below = u64::MAX;
        if let Some(until) = until {
            (below, size) = bound(until)?;
        }
        if since > below {
            return Err(VolumeError::BadRequest("the later snapshot is older than the other one".into()));
        }
        let end = size.div_ceil(super::BLOCK);
        Ok(self.changed_within(View { volume, below }, since, 0..end))
    }

    /// The same within a range of blocks, for versions from `since` on that a view sees.
    pub(super) fn changed_within(&self, view: View, since: u64, blocks: Range<u64>) -> ChangedBlocks {
        let (volume, from) = (view.volume, blocks.start);
        let (mut memory, runs) = {
            let state = self.state.lock();
            let records = state.tables.blocks_from(volume, from).map(|(key, _)| key);
            let of_range = records.take_while(|key| key.0 == volume && key.1 < blocks.end);
            let memory: BTreeSet<u64> =
                of_range.filter(|key| (since..view.below).contains(&key.2)).map(|key| key.1).collect();
            let mut memory = memory;
            if view == View::live(volume) {
                for waiting in [&state.active, &state.sealing] {
                    let range = waiting.blocks.range((volume, from)..(volume, blocks.end.max(from)));
                    memory.extend(range.map(|(key, _)| key.1));
                }
            }
            (memory, state.runs.clone())
        };
        memory.retain(|block| blocks.contains(block));
        let memory: Box<dyn Iterator<Item = Result<u64, VolumeError>> + Send> = Box::new(memory.into_iter().map(Ok));
        let mut sources = vec![memory.peekable()];
        for run in &runs.blocks {
            let end = blocks.end;
            let scan = run.scan(&block_key(volume, from, u64::MAX));
            let keys = scan.map(|record| record.map(|(key, _)| block_of_key(&key)));
            let in_range =
                keys.take_while(move |key| !matches!(key, Ok(Some((of, block, _))) if *of != volume || *block >= end));
            let found = in_range.filter_map(move |key| match key {
                Ok(Some((_, block, version))) if (since..view.below).contains(&version) => Some(Ok(block)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            });
            let found: Box<dyn Iterator<Item = Result<u64, VolumeError>> + Send> = Box::new(found);
            sources.push(found.peekable());
        }
        ChangedBlocks { sources, end: blocks.end }
    }
}

impl ChangedBlocks {
    /// The next block that changed, and all sources behind it.
    fn next_block(&mut self) -> Option<Result<u64, VolumeError>> {
        let mut least = None;
        for source in &mut self.sources {
            match source.peek() {
                Some(Ok(block)) if least.is_none_or(|least| *block < least) => least = Some(*block),
                Some(Err(_)) => {
                    let error = source.next();
                    self.sources.clear();
                    return error;
                }
                _ => {}
            }
        }
        let least = least.filter(|least| *least < self.end)?;
        self.pass(least);
        Some(Ok(least))
    }

    fn pass(&mut self, block: u64) {
        for source in &mut self.sources {
            while matches!(source.peek(), Some(Ok(next)) if *next == block) {
                source.next();
            }
        }
    }

    fn has(&mut self, block: u64) -> bool {
        block < self.end
            && self.sources.iter_mut().any(|source| matches!(source.peek(), Some(Ok(next)) if *next == block))
    }
}

impl Iterator for ChangedBlocks {
    type Item = Result<Range<u64>, VolumeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = match self.next_block()? {
            Ok(block) => block,
            Err(error) => return Some(Err(error)),
        };
        let mut end = start + 1;
        while self.has(end) {
            self.pass(end);
            end += 1;
        }
        Some(Ok(start..end))
    }
}
