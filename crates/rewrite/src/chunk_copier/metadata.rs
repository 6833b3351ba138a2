//! Metadata containers that a rewritten version leaves, and copies of their used parts.
//!
//! A segment with moved chunks is rewritten, and its old form stays dead in a metadata container.
//! The recipes continue to use the rest of this container, which is often little, for as long as
//! the version lives. So a task that rewrites recipes may leave such containers altogether. The
//! parts that the recipes still use are copied unchanged: every chunk is read and its fingerprint
//! computed.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use larder_chunking::Fingerprint;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::manifest::Manifest;
use larder_format::recipe::{Recipe, SegmentRef};
use larder_format::segment::{self, Segment};
use larder_format::{ChunkRef, DecodeError};
use larder_reader::{MetaChunks, RecipeReader, damaged};
use larder_store::RepositoryError;
use larder_writer::{DIFFERENCE_PERCENT, MetaSink, NodeWriter, RECORD_BYTES, uses_of};

use super::{ChunkCopier, RewriteError};

/// Number of remembered copies: a chunk that returns after more copies than this is copied again.
const REMEMBERED_MAX: usize = 1 << 16;

/// Containers to leave, and the copies out of them.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) containers: HashSet<ContainerId>,
    copies: HashMap<Fingerprint, ChunkRef>,
}

impl Left {
    pub(super) fn has(&self, container: &ContainerId) -> bool {
        self.containers.contains(container)
    }

    /// The nodes of a recipe that may be shared.
    pub(super) fn staying<'a>(&self, recipe: &'a Recipe) -> Cow<'a, Recipe> {
        if self.containers.is_empty() {
            return Cow::Borrowed(recipe);
        }
        let nodes = recipe.nodes.iter().filter(|node| !self.has(&node.chunk.container));
        Cow::Owned(Recipe { nodes: nodes.cloned().collect() })
    }

    /// The new place of a metadata chunk: the old one, or a copy.
    pub(super) fn redirect(
        &mut self,
        chunk: ChunkRef,
        chunks: &MetaChunks,
        sink: &mut MetaSink,
    ) -> Result<ChunkRef, RepositoryError> {
        if !self.has(&chunk.container) {
            return Ok(chunk);
        }
        if let Some(copy) = self.copies.get(&chunk.fingerprint) {
            return Ok(*copy);
        }
        let bytes = chunks.read(&chunk)?;
        if sink.fingerprint(&bytes) != chunk.fingerprint {
            let why = "it does not have its fingerprint";
            return Err(damaged(&chunk, DecodeError::Invalid { what: "metadata chunk", why }));
        }
        let copy = sink.push(chunk.fingerprint, &bytes)?;
        if self.copies.len() < REMEMBERED_MAX {
            self.copies.insert(chunk.fingerprint, copy);
        }
        Ok(copy)
    }

    /// Stores a segment whose records have new places: as a difference to its old chunks, if that
    /// is small and these stay.
    pub(super) fn store(
        &self,
        row: &mut SegmentRef,
        contents: &Segment,
        sink: &mut MetaSink,
    ) -> Result<(), RepositoryError> {
        let bytes = segment::encode(&contents.records, &contents.superchunks)?;
        let stored = sink.store_segment(contents, &bytes, Some(row), |container| self.has(container))?;
        (row.chunk, row.bases) = (stored.chunk, stored.bases);
        row.uses = uses_of(&contents.records);
        Ok(())
    }

    /// Keeps a segment as it is, but none of its chunks in containers to leave. When its whole
    /// segment must be copied anyway, its differences are merged into the copy.
    pub(super) fn keep(
        &mut self,
        row: &mut SegmentRef,
        chunks: &MetaChunks,
        sink: &mut MetaSink,
    ) -> Result<(), RepositoryError> {
        let leaves_whole = row.bases.first().is_some_and(|whole| self.has(&whole.container));
        if leaves_whole {
            return self.store(row, &chunks.segment(row)?, sink);
        }
        for base in &mut row.bases {
            *base = self.redirect(*base, chunks, sink)?;
        }
        row.chunk = self.redirect(row.chunk, chunks, sink)?;
        Ok(())
    }
}

impl ChunkCopier {
    /// The metadata containers that a version will use sparsely: less than `percent` says of each
    /// (of its bytes). This holds once its recipe was rewritten without the data containers that
    /// `retires` accepts. It is an estimate: a part that a recipe uses twice counts twice.
    pub fn sparse_metadata(
        &mut self,
        manifest: &Manifest,
        retires: impl Fn(&ContainerId) -> bool,
        percent: impl Fn(&ContainerId) -> u8,
    ) -> Result<HashSet<ContainerId>, RewriteError> {
        let of_metadata = |id: &ContainerId| id.kind == ContainerKind::Meta;
        let usages = manifest.containers.iter().filter(|usage| of_metadata(&usage.container));
        let mut used: HashMap<ContainerId, u64> =
            usages.clone().map(|usage| (usage.container, usage.bytes_used)).collect();
        let mut goes = |chunk: &ChunkRef| {
            if let Some(used) = used.get_mut(&chunk.container) {
                *used = used.saturating_sub(u64::from(chunk.size));
            }
        };
        let mut reader = RecipeReader::new(Arc::new(manifest.data.clone()), self.chunks.clone());
        for (number, node) in manifest.data.nodes.iter().enumerate() {
            self.stop_if_asked()?;
            let segments = reader.node(number)?;
            let mut moves = false;
            for segment in &segments.segments {
                let moving = segment.uses.iter().filter(|used| retires(&used.container));
                let moving: u64 = moving.map(|used| u64::from(used.chunks)).sum();
                moves |= moving > 0;
                if moving * 100 > u64::from(segment.chunks) * DIFFERENCE_PERCENT as u64 {
                    segment.chain().for_each(&mut goes);
                } else if moving > 0 {
                    // Few changes make a difference. It replaces those that are not much larger.
                    let replaced = |chunk: &&ChunkRef| u64::from(chunk.size) < moving * 2 * RECORD_BYTES as u64;
                    segment.chain().skip(1).skip_while(|chunk| !replaced(chunk)).for_each(&mut goes);
                }
            }
            if moves {
                goes(&node.chunk);
            }
        }
        let is_sparse = |id: &ContainerId, held: u64| {
            let used = u128::from(used.get(id).copied().unwrap_or(0));
            used * 100 < u128::from(held) * u128::from(percent(id))
        };
        let sparse = usages.filter(|usage| is_sparse(&usage.container, usage.bytes_held));
        Ok(sparse.map(|usage| usage.container).collect())
    }

    /// Lets rewritten recipes leave these metadata containers.
    pub fn leave_metadata(&mut self, containers: HashSet<ContainerId>) {
        self.left = Left { containers, copies: HashMap::new() };
    }

    /// Counts the bytes that a recipe uses of each container, and rewrites its parts in containers
    /// to leave.
    pub(super) fn rewrite_metadata(&mut self, recipe: &Recipe) -> Result<Recipe, RewriteError> {
        let mut nodes = NodeWriter::new(Some(&self.left.staying(recipe)));
        let mut reader = RecipeReader::new(Arc::new(recipe.clone()), self.chunks.clone());
        for number in 0..reader.segments() {
            let Some((mut reference, _)) = reader.segment_ref(number)? else { break };
            let moves = reference.uses.iter().any(|used| self.left.has(&used.container));
            let contents = if moves { reader.whole_segment(number)? } else { None };
            match contents {
                Some(mut contents) => {
                    for record in &mut contents.records {
                        record.chunk = self.left.redirect(record.chunk, &self.chunks, &mut self.sink)?;
                    }
                    self.left.store(&mut reference, &contents, &mut self.sink)?;
                }
                None => self.left.keep(&mut reference, &self.chunks, &mut self.sink)?,
            }
            nodes.push(reference, &mut self.sink)?;
        }
        Ok(nodes.finish(&mut self.sink)?)
    }
}
