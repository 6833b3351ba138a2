//! Rewrites a version's recipe, with chunks of some containers at other places: new copies, or
//! copies that existed.
//!
//! Segments without chunks in these containers are shared with the old recipe. So are nodes with
//! only shared segments, unless they are in metadata containers that are left as well (`metadata`).

use std::collections::HashSet;
use std::sync::Arc;

use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::manifest::Manifest;
use larder_reader::RecipeReader;
use larder_writer::{NodeWriter, Sunk};

use super::sharing::{BatchEnd, CopyBatch, SharedBatches};
use super::waiting::{Batch, Rewriting, WAITING_SEGMENTS, Waiting};
use super::{ChunkCopier, CopiedChunks, PLACES_ONE_IN, Placing, RewriteError, RewrittenRecipes};

/// Of the memory for batches, one part in this number holds those that are away.
const AWAY_ONE_IN: usize = 2;

impl ChunkCopier {
    /// Copies the chunks of a version in the containers that `retires` accepts, in the order of its
    /// stream, and rewrites its recipe over the copies. Memory: that of the context, and that of
    /// [remembered](Self::remembering) moves.
    pub fn rewrite(
        &mut self,
        manifest: &Manifest,
        retires: impl Fn(&ContainerId) -> bool,
    ) -> Result<RewrittenRecipes, RewriteError> {
        self.rewrite_to(manifest, retires, |chunk| Placing::Copy(*chunk), None)
    }

    /// The same, but a chunk that `elsewhere` finds in a staying container is not copied. The
    /// recipe then names that other copy, once it was read and has the chunk's fingerprint.
    pub fn rewrite_sharing(
        &mut self,
        manifest: &Manifest,
        retires: impl Fn(&ContainerId) -> bool,
        elsewhere: impl Fn(&ChunkRef) -> Option<ChunkRef>,
    ) -> Result<RewrittenRecipes, RewriteError> {
        self.rewrite_gathering(manifest, retires, elsewhere, |_| false, None)
    }

    /// The same. Chunks that `is_common` accepts are copied into containers of their own. So
    /// another version that needs them reads nothing else with them. All other chunks may be
    /// verified and copied by others, if they are `shared`.
    ///
    /// # Errors
    /// Also if another process was wrong ([`RewriteError::WorkerWrong`]).
    pub fn rewrite_gathering(
        &mut self,
        manifest: &Manifest,
        retires: impl Fn(&ContainerId) -> bool,
        elsewhere: impl Fn(&ChunkRef) -> Option<ChunkRef>,
        is_common: impl Fn(&ChunkRef) -> bool,
        shared: Option<SharedBatches<'_>>,
    ) -> Result<RewrittenRecipes, RewriteError> {
        let retires = &retires;
        let place = |chunk: &ChunkRef| match elsewhere(chunk).filter(|other| !retires(&other.container)) {
            Some(other) => Placing::Shared(other),
            None if is_common(chunk) => Placing::CopyCommon(*chunk),
            None => Placing::Copy(*chunk),
        };
        self.rewrite_to(manifest, retires, place, shared)
    }

    /// The same, where not every chunk of these containers is copied from its present place.
    pub(crate) fn rewrite_to(
        &mut self,
        manifest: &Manifest,
        retires: impl Fn(&ContainerId) -> bool,
        place: impl Fn(&ChunkRef) -> Placing,
        mut shared: Option<SharedBatches<'_>>,
    ) -> Result<RewrittenRecipes, RewriteError> {
        // An earlier version that failed may have counted uses.
        drop(self.sink.take());
        self.sink.change_domain(manifest.summary.domain)?;
        let nodes = NodeWriter::new(Some(&self.left.staying(&manifest.data)));
        let places = CopiedChunks::new(self.context.memory / PLACES_ONE_IN, self.scratch.clone());
        let mut rewriting = Rewriting::new(nodes, places, self.moves_max);
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
            rewriting.wait(reference, contents, leaves, &place);
            if self.is_full(&rewriting, shared.as_ref()) {
                self.flush(&mut rewriting, &leaves, &mut shared)?;
            }
        }
        self.hand_over(&mut rewriting, &mut shared)?;
        while !rewriting.away.is_empty() {
            self.fold(&mut rewriting, &leaves, &mut shared)?;
        }
        let Rewriting { nodes, moves, moved_chunks, moved_bytes, shared_chunks, shared_bytes, by_others, .. } =
            rewriting;
        let data = nodes.finish(&mut self.sink)?;
        let metadata = self.rewrite_metadata(&manifest.metadata)?;
        let Sunk { usage, .. } = self.sink.take();
        let copied = RewrittenRecipes {
            data,
            metadata,
            usage,
            moves,
            moved_chunks,
            moved_bytes,
            shared_chunks,
            shared_bytes,
            by_others,
        };
        Ok(copied)
    }

    /// Whether the collected batch is to be copied, or given away.
    fn is_full(&self, rewriting: &Rewriting, shared: Option<&SharedBatches<'_>>) -> bool {
        let batch = &rewriting.batch;
        batch.waiting.len() >= WAITING_SEGMENTS
            || match shared {
                None => batch.bytes() >= self.batch_bytes(),
                // Half of the memory at least is for others.
                Some(shared) => batch.bytes_to_give() >= shared.bytes || batch.bytes_away() >= self.away_bytes() / 2,
            }
    }

    /// Bytes of memory for batches that are away.
    fn away_bytes(&self) -> usize {
        self.batch_bytes() / AWAY_ONE_IN
    }

    /// Copies the chunks of the collected batch, or gives them away.
    fn hand_over(
        &mut self,
        rewriting: &mut Rewriting,
        shared: &mut Option<SharedBatches<'_>>,
    ) -> Result<(), RewriteError> {
        let mut batch = rewriting.next_batch();
        let given = match shared {
            Some(shared) if batch.is_worth_giving(shared.bytes) => self.to_give(&batch)?,
            _ => None,
        };
        match (given, &mut *shared) {
            (Some(given), Some(shared)) => {
                // These stay here: they are not many.
                batch.copies_in_common = self.copy_in_common(&batch)?;
                shared.copying.offer(given);
                rewriting.away.push_back(batch);
            }
            _ => self.copy_here(rewriting, batch)?,
        }
        Ok(())
    }

    /// The same, and then writes the segments that need not wait any longer.
    fn flush(
        &mut self,
        rewriting: &mut Rewriting,
        leaves: &impl Fn(&ContainerId) -> bool,
        shared: &mut Option<SharedBatches<'_>>,
    ) -> Result<(), RewriteError> {
        self.hand_over(rewriting, shared)?;
        loop {
            let is_there = rewriting.away.front().is_some_and(|first| first.copies.is_some());
            let is_full = shared.as_ref().is_some_and(|shared| shared.copying.is_full());
            if !is_there && !is_full && rewriting.bytes_away() < self.away_bytes() || rewriting.away.is_empty() {
                return Ok(());
            }
            self.fold(rewriting, leaves, shared)?;
        }
    }

    /// What others are asked to do for a batch; `None`: only this process can find all of it.
    fn to_give(&self, batch: &Batch) -> Result<Option<CopyBatch>, RewriteError> {
        let others: Vec<ChunkRef> = batch.shared.iter().map(|(_, other)| *other).collect();
        let (verify, copy) = (self.numbered(&others)?, self.numbered(&batch.wanted)?);
        Ok(verify.zip(copy).map(|(verify, copy)| CopyBatch { verify, copy }))
    }

    fn copy_in_common(&mut self, batch: &Batch) -> Result<Vec<ChunkRef>, RewriteError> {
        match batch.wanted_in_common.is_empty() {
            true => Ok(Vec::new()),
            false => self.copy_common(&batch.wanted_in_common),
        }
    }

    /// Verifies and copies a batch in this process.
    fn copy_here(&mut self, rewriting: &mut Rewriting, mut batch: Batch) -> Result<(), RewriteError> {
        self.verify_shared(&mut batch)?;
        batch.copies_in_common = self.copy_in_common(&batch)?;
        batch.copies = Some(self.copy(&batch.wanted)?);
        rewriting.away.push_back(batch);
        Ok(())
    }

    /// Chunks whose other copies cannot be read are copied.
    fn verify_shared(&mut self, batch: &mut Batch) -> Result<(), RewriteError> {
        let mut others: Vec<_> = batch.shared.iter().map(|(_, other)| *other).collect();
        self.place(&mut others)?;
        let unreadable = self.unreadable_among(&others)?;
        for ((chunk, other), place) in std::mem::take(&mut batch.shared).into_iter().zip(others) {
            match unreadable.contains_key(&place.container) {
                false => batch.shared.push((chunk, other)),
                true => batch.wanted.push(chunk),
            }
        }
        Ok(())
    }

    /// Writes the segments of the first batch, when its chunks are copied.
    fn fold(
        &mut self,
        rewriting: &mut Rewriting,
        leaves: &impl Fn(&ContainerId) -> bool,
        shared: &mut Option<SharedBatches<'_>>,
    ) -> Result<(), RewriteError> {
        let Some(mut batch) = rewriting.away.pop_front() else { return Ok(()) };
        if let (None, Some(shared)) = (&batch.copies, shared) {
            match shared.copying.next(self, false)? {
                Some(BatchEnd::Here(copies)) => batch.copies = Some(copies),
                Some(BatchEnd::Elsewhere { places, written, whole_bytes }) => {
                    batch.copies = Some(places);
                    rewriting.by_others.extend(written);
                    self.whole_bytes += whole_bytes;
                }
                Some(BatchEnd::WorkerWrong) => return Err(RewriteError::WorkerWrong),
                // This process finds what can be read, and says why the rest cannot.
                Some(BatchEnd::Unreadable(..) | BatchEnd::Stopped) | None => {}
            }
        }
        if batch.copies.is_none() {
            self.verify_shared(&mut batch)?;
            batch.copies = Some(self.copy(&batch.wanted)?);
        }
        rewriting.settle(&mut batch);
        for Waiting { mut reference, contents } in batch.waiting {
            if let Some(mut contents) = contents {
                for record in contents.records.iter_mut().filter(|record| leaves(&record.chunk.container)) {
                    if let Some(place) = rewriting.place_of(&record.chunk.fingerprint) {
                        record.chunk = place;
                    }
                }
                // Its bytes have not changed, so its samples, its proof and its superchunks hold.
                self.left.store(&mut reference, &contents, &mut self.sink)?;
            } else {
                self.left.keep(&mut reference, &self.chunks, &mut self.sink)?;
            }
            rewriting.nodes.push(reference, &mut self.sink)?;
        }
        rewriting.is_written(batch.number);
        Ok(())
    }
}
