//! The first half of a batch: which blocks it has, and their chunks.
//!
//! It changes nothing but the list of what waits, and needs nothing of the batch before. So it is
//! done beside the second half of that one.

use std::ops::Range;

use super::batch::{Changing, Progress};
use super::cut::Chunks;
use super::streams::Stream;
use crate::counters::Phase;
use crate::store::{State, Store};

/// What a commit does with writes that arrive while it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Later {
    /// They wait for another commit.
    Wait,
    /// If they are enough for another commit, and nobody else waits for the committer, they are
    /// committed at once. So no time is lost between two commits.
    Join,
}

/// A batch whose blocks are cut.
pub(super) struct CutBatch {
    pub(super) blocks: Vec<Changing>,
    pub(super) streams: Vec<Stream>,
    /// By stream.
    pub(super) chunks: Vec<Chunks>,
    /// The bytes of all streams, and room behind them.
    pub(super) room: Vec<u8>,
}

impl CutBatch {
    /// Ranges of all chunks in `room`, by stream.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.streams.iter().zip(&self.chunks).flat_map(|(stream, chunks)| {
            let mut at = stream.range.start;
            chunks.lengths.iter().map(move |length| {
                let from = at;
                at += *length as usize;
                from..at
            })
        })
    }
}

impl Store {
    /// Whether a commit has another batch, as far as it is known.
    pub(super) fn goes_on(&self, progress: &Progress, later: Later) -> bool {
        !progress.is_last || later == Later::Join && self.state.lock().active.bytes >= self.options.commit_at
    }

    /// The next batch. `room` is memory for its bytes. `None`: no block is left.
    pub(super) fn cut_next(
        &self,
        record_room: usize,
        progress: &mut Progress,
        later: Later,
        mut room: Vec<u8>,
    ) -> Option<CutBatch> {
        let time = self.counters.time(Phase::Mappings);
        let mut blocks = self.next_batch(record_room, progress);
        if blocks.is_empty() && later == Later::Join && self.take_more(progress) {
            blocks = self.next_batch(record_room, progress);
        }
        drop(time);
        if blocks.is_empty() {
            return None;
        }
        self.counters.blocks.add(blocks.len() as u64);
        self.counters.unchanged_blocks.add(blocks.iter().filter(|block| block.is_unchanged).count() as u64);
        let _time = self.counters.time(Phase::Cutting);
        let (streams, bytes) = self.streams(&blocks, &mut room);
        self.counters.cut_bytes.add(bytes.len() as u64);
        let chunks = self.cut(bytes, &streams, self.options.threads);
        Some(CutBatch { blocks, streams, chunks, room })
    }

    /// Takes what was written since the commit began into it, if that is enough for another one.
    ///
    /// Blocks of the last batches may still be under way. Their old content is not known yet, so
    /// nothing is taken while one of them was written again.
    fn take_more(&self, progress: &mut Progress) -> bool {
        // An error is reported by the next commit.
        if self.committer.is_wanted() || self.look_at_space().is_err() {
            return false;
        }
        let mut state = self.state.lock();
        let State { active, sealing, accepted, stopped, .. } = &mut *state;
        let is_enough = active.bytes >= self.options.commit_at && stopped.is_none();
        if !is_enough || sealing.blocks.keys().any(|key| active.blocks.contains_key(key)) {
            return false;
        }
        // What is under way, and what could not be read.
        progress.left = sealing.blocks.keys().copied().collect();
        sealing.add(std::mem::take(active));
        (progress.after, progress.is_last, progress.upto) = (None, false, *accepted);
        true
    }
}
