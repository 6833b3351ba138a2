//! Rewrites a version's recipe, with chunks of some containers at other places: new copies, or
//! copies that existed.
//!
//! Segments without chunks in these containers are shared with the old recipe. So are nodes with
//! only shared segments, unless they are in metadata containers that are left as well (`metadata`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use larder_chunking::Fingerprint;
use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::manifest::Manifest;
use larder_format::recipe::SegmentRef;
use larder_format::segment::Segment;
use larder_reader::RecipeReader;
use larder_writer::{NodeWriter, Sunk};

use super::{ChunkCopier, CopiedChunks, Move, PLACES_ONE_IN, Placing, RewriteError, RewrittenRecipes};

/// Segments that wait for the copies of their chunks.
const WAITING_SEGMENTS: usize = 1024;
/// Bytes of the memory for batches that a record of a waiting segment takes.
const WAITING_RECORD: usize = 256;

/// A segment that is written when the chunks before it are copied.
struct Waiting {
    reference: SegmentRef,
    /// Its records, if some of them move.
    contents: Option<Segment>,
}

/// The rewrite of one recipe.
struct Rewriting {
    nodes: NodeWriter,
    waiting: Vec<Waiting>,
    /// Chunks to copy for waiting segments, in stream order.
    wanted: Vec<ChunkRef>,
    /// Those that other versions need too.
    wanted_in_common: Vec<ChunkRef>,
    /// Chunks of the waiting segments that have another copy, and that copy.
    shared: Vec<(ChunkRef, ChunkRef)>,
    /// Bytes of both, and of the records of waiting segments.
    waiting_bytes: usize,
    /// The new places of the waiting segments' chunks, copied or shared; `None` until the next
    /// batch is copied. By fingerprint: of several left copies one is enough.
    batch: HashMap<Fingerprint, Option<ChunkRef>>,
    /// The new places of the chunks of all earlier batches.
    places: CopiedChunks,
    moves: Vec<Move>,
    moved_chunks: u64,
    moved_bytes: u64,
    shared_chunks: u64,
    shared_bytes: u64,
}

impl ChunkCopier {
    /// Copies the chunks of a version in the containers that `retires` accepts, in the order of its
    /// stream, and rewrites its recipe over the copies. Memory: that of the context, and that of
    /// [remembered](Self::remembering) moves.
    pub fn rewrite(
        &mut self,
        manifest: &Manifest,
        retires: impl Fn(&ContainerId) -> bool,
    ) -> Result<RewrittenRecipes, RewriteError> {
        self.rewrite_to(manifest, retires, |chunk| Placing::Copy(*chunk))
    }

    /// The same, but a chunk that `elsewhere` finds in a staying container is not copied. The
    /// recipe then names that other copy, once it was read and has the chunk's fingerprint.
    pub fn rewrite_sharing(
        &mut self,
        manifest: &Manifest,
        retires: impl Fn(&ContainerId) -> bool,
        elsewhere: impl Fn(&ChunkRef) -> Option<ChunkRef>,
    ) -> Result<RewrittenRecipes, RewriteError> {
        let retires = &retires;
        self.rewrite_to(manifest, retires, |chunk| match elsewhere(chunk).filter(|other| !retires(&other.container)) {
            Some(other) => Placing::Shared(other),
            None => Placing::Copy(*chunk),
        })
    }

    /// The same, but chunks that `is_common` accepts are copied into containers of their own. So
    /// another version that needs them reads nothing else with them.
    pub fn rewrite_gathering(
        &mut self,
        manifest: &Manifest,
        retires: impl Fn(&ContainerId) -> bool,
        elsewhere: impl Fn(&ChunkRef) -> Option<ChunkRef>,
        is_common: impl Fn(&ChunkRef) -> bool,
    ) -> Result<RewrittenRecipes, RewriteError> {
        let retires = &retires;
        self.rewrite_to(manifest, retires, |chunk| match elsewhere(chunk).filter(|other| !retires(&other.container)) {
            Some(other) => Placing::Shared(other),
            None if is_common(chunk) => Placing::CopyCommon(*chunk),
            None => Placing::Copy(*chunk),
        })
    }

    /// The same, where not every chunk of these containers is copied from its present place.
    pub(crate) fn rewrite_to(
        &mut self,
        manifest: &Manifest,
        retires: impl Fn(&ContainerId) -> bool,
        place: impl Fn(&ChunkRef) -> Placing,
    ) -> Result<RewrittenRecipes, RewriteError> {
        // An earlier version that failed may have counted uses.
        drop(self.sink.take());
        self.sink.change_domain(manifest.summary.domain)?;
        let mut rewriting = Rewriting {
            nodes: NodeWriter::new(Some(&self.left.staying(&manifest.data))),
            waiting: Vec::new(),
            wanted: Vec::new(),
            wanted_in_common: Vec::new(),
            shared: Vec::new(),
            waiting_bytes: 0,
            batch: HashMap::new(),
            places: CopiedChunks::new(self.context.memory / PLACES_ONE_IN, self.scratch.clone()),
            moves: Vec::new(),
            moved_chunks: 0,
            moved_bytes: 0,
            shared_chunks: 0,
            shared_bytes: 0,
        };
        self.names.get_or_insert_with(|| self.chunks.for_reading(manifest));
        let known: HashSet<_> = manifest.containers.iter().map(|usage| usage.container).collect();
        // A redirect target of the index is not this version's: it may be retired later.
        let leaves = |container: &ContainerId| retires(container) || !known.contains(container);
        let mut reader = RecipeReader::new(Arc::new(manifest.data.clone()), self.chunks.clone());
        for number in 0..reader.segments() {
            self.stop_if_asked()?;
            let Some((reference, _)) = reader.segment_ref(number)? else { break };
            let moves = reference.uses.iter().any(|used| retires(&used.container));
            let contents = if moves { reader.whole_segment(number)? } else { None };
            rewriting.waiting_bytes += contents.as_ref().map_or(0, |segment| segment.records.len() * WAITING_RECORD);
            for record in contents.iter().flat_map(|segment| &segment.records) {
                if leaves(&record.chunk.container) {
                    rewriting.place(record.chunk, || place(&record.chunk));
                }
            }
            rewriting.waiting.push(Waiting { reference, contents });
            if rewriting.waiting_bytes >= self.batch_bytes() || rewriting.waiting.len() >= WAITING_SEGMENTS {
                self.flush(&mut rewriting, &leaves)?;
            }
        }
        self.flush(&mut rewriting, &leaves)?;
        let Rewriting { nodes, moves, moved_chunks, moved_bytes, shared_chunks, shared_bytes, .. } = rewriting;
        let data = nodes.finish(&mut self.sink)?;
        let metadata = self.rewrite_metadata(&manifest.metadata)?;
        let Sunk { usage, .. } = self.sink.take();
        Ok(RewrittenRecipes { data, metadata, usage, moves, moved_chunks, moved_bytes, shared_chunks, shared_bytes })
    }

    /// Copies the requested chunks, then writes the segments that wait for them.
    fn flush(&mut self, rewriting: &mut Rewriting, leaves: &impl Fn(&ContainerId) -> bool) -> Result<(), RewriteError> {
        let mut others: Vec<_> = rewriting.shared.iter().map(|(_, other)| *other).collect();
        self.place(&mut others)?;
        let unreadable = self.unreadable_among(&others)?;
        for ((chunk, other), place) in rewriting.shared.drain(..).zip(others) {
            if !unreadable.contains_key(&place.container) {
                rewriting.batch.insert(chunk.fingerprint, Some(other));
                rewriting.places.insert(other);
                rewriting.shared_chunks += 1;
                rewriting.shared_bytes += u64::from(chunk.size);
            } else {
                rewriting.wanted.push(chunk);
            }
        }
        let mut copies = match rewriting.wanted_in_common.is_empty() {
            true => Vec::new(),
            false => self.copy_common(&rewriting.wanted_in_common)?,
        };
        copies.extend(self.copy(&rewriting.wanted)?);
        for (from, to) in rewriting.wanted_in_common.drain(..).chain(rewriting.wanted.drain(..)).zip(copies) {
            rewriting.batch.insert(from.fingerprint, Some(to));
            rewriting.places.insert(to);
            rewriting.moved_bytes += u64::from(to.size);
            rewriting.moved_chunks += 1;
            if rewriting.moves.len() < self.moves_max {
                rewriting.moves.push(Move { from: from.container, to });
            }
        }
        rewriting.waiting_bytes = 0;
        for Waiting { mut reference, contents } in rewriting.waiting.drain(..) {
            if let Some(mut contents) = contents {
                for record in contents.records.iter_mut().filter(|record| leaves(&record.chunk.container)) {
                    if let Some(Some(place)) = rewriting.batch.get(&record.chunk.fingerprint) {
                        record.chunk = *place;
                    }
                }
                // Its bytes have not changed, so its samples, its proof and its superchunks hold.
                self.left.store(&mut reference, &contents, &mut self.sink)?;
            } else {
                self.left.keep(&mut reference, &self.chunks, &mut self.sink)?;
            }
            rewriting.nodes.push(reference, &mut self.sink)?;
        }
        rewriting.batch.clear();
        Ok(())
    }
}

impl Rewriting {
    fn place(&mut self, chunk: ChunkRef, placing: impl FnOnce() -> Placing) {
        let std::collections::hash_map::Entry::Vacant(place) = self.batch.entry(chunk.fingerprint) else { return };
        if let Some(there) = self.places.get(&chunk.fingerprint) {
            place.insert(Some(there));
            return;
        }
        match placing() {
            Placing::Copy(from) => {
                place.insert(None);
                self.wanted.push(from);
            }
            Placing::CopyCommon(from) => {
                place.insert(None);
                self.wanted_in_common.push(from);
            }
            Placing::Shared(other) => {
                place.insert(None);
                self.shared.push((chunk, other));
            }
            Placing::At(there) => {
                place.insert(Some(there));
                return;
            }
            Placing::Stay => return,
        }
        self.waiting_bytes += chunk.size as usize;
    }
}
