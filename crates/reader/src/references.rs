//! Every chunk that versions name, reading each distinct segment of their recipes once: the marks
//! of exact collection.
//!
//! Versions share nearly all their nodes and segments, so the amount read grows with their contents
//! and hardly with their number. The index redirects nothing here: chunks are named as the recipes
//! have them. Called by the G-node.

use std::collections::HashSet;
use std::sync::Arc;

use larder_format::recipe::{Recipe, SegmentRef};
use larder_format::{ChunkRef, Fingerprint};
use larder_job::JobContext;
use larder_store::RepositoryError;

use crate::recipe_reader::{MetaChunks, RecipeReader};

/// Walks data streams. Memory: 50 bytes for each distinct segment, beside the caches of the
/// context's memory.
pub struct References {
    chunks: MetaChunks,
    seen: HashSet<Fingerprint>,
    /// Segments that were visited.
    pub segments: u64,
}

impl std::fmt::Debug for References {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("References").field("segments", &self.segments).finish_non_exhaustive()
    }
}

impl References {
    /// None seen yet.
    pub fn new(context: &JobContext) -> Self {
        Self { chunks: MetaChunks::new(context), seen: HashSet::new(), segments: 0 }
    }

    /// Reads the segments that [`Self::segments`] gives.
    pub fn chunks(&self) -> MetaChunks {
        self.chunks.clone()
    }

    /// Calls `each` for the chunks of a data stream, except those of segments that were visited
    /// before.
    pub fn visit<E: From<RepositoryError>>(
        &mut self,
        data: &Recipe,
        mut each: impl FnMut(&ChunkRef) -> Result<(), E>,
    ) -> Result<(), E> {
        let chunks = self.chunks();
        self.segments(data, |row| {
            for record in &chunks.segment(row)?.records {
                each(&record.chunk)?;
            }
            Ok(())
        })
    }

    /// Calls `each` for the segments of a data stream, except those that were visited before. They
    /// are not read.
    pub fn segments<E: From<RepositoryError>>(
        &mut self,
        data: &Recipe,
        each: impl FnMut(&SegmentRef) -> Result<(), E>,
    ) -> Result<(), E> {
        self.segments_where(data, |_| true, each)
    }

    /// The same for those with a row that `is_wanted`. A row that is not wanted does not make its
    /// segment a visited one: rows of other versions may say something else about it.
    pub fn segments_where<E: From<RepositoryError>>(
        &mut self,
        data: &Recipe,
        is_wanted: impl Fn(&SegmentRef) -> bool,
        mut each: impl FnMut(&SegmentRef) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut reader = RecipeReader::new(Arc::new(data.clone()), self.chunks.clone());
        let mut next = 0;
        for node in 0..data.nodes.len() {
            let segments = next..reader.segments_through(node);
            next = segments.end;
            let fingerprint = data.nodes[node].chunk.fingerprint;
            // Equal bytes name the same places, so everything below was visited as well.
            if self.seen.contains(&fingerprint) {
                continue;
            }
            let mut is_read = false;
            for number in segments {
                let Some((reference, _)) = reader.segment_ref(number)? else { break };
                is_read = true;
                if !is_wanted(&reference) || !self.seen.insert(reference.chunk.fingerprint) {
                    continue;
                }
                self.segments += 1;
                each(&reference)?;
            }
            // Anybody can say that a node of others has no segments.
            if is_read {
                self.seen.insert(fingerprint);
            }
        }
        Ok(())
    }
}
