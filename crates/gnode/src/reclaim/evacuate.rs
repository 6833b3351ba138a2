//! Reads redirect targets, and copies chunks without another copy. Changes no object that others
//! know: new containers belong to the pass, and count when its index does.
//!
//! Containers are read by rising numbers, so one that [moves with](ChunkFate::MovedWith) another
//! comes after it. So the containers that were evacuated when time is up can go by themselves. At
//! least one is, or short passes would begin again for ever.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures::StreamExt;
use larder_format::ChunkRef;
use larder_format::container::ContainerIndex;
use larder_format::ids::ContainerId;
use larder_format::index_tables::ChunkPlace;
use larder_index::{Containers, Draft, IndexPass, LookupOptions};
use larder_rewrite::chunk_copier::{ChunkCopier, RewriteError, damaged_container};

use super::chunk_fates::{ChunkFate, ChunkFates};
use super::select::Selection;
use super::{ReclaimError, Work};

/// Tables of containers that are read at once.
const CONCURRENT_READS: usize = 8;
/// Bytes of containers (uncompressed) whose chunks are processed together: their records take a
/// fiftieth of that.
const BATCH_BYTES: u64 = 256 << 20;

/// The new places of chunks of containers that are retired.
#[derive(Debug, Default)]
pub(super) struct Evacuated {
    /// For each container the new places of its chunks.
    pub(super) forwards: BTreeMap<u32, Forwards>,
    pub(super) redirected_chunks: u64,
    pub(super) copied_chunks: u64,
    pub(super) copied_bytes: u64,
}

/// Containers that have the chunks of another.
#[derive(Debug, Default, Clone)]
pub(super) struct Forwards {
    /// That were there.
    pub(super) numbers: BTreeSet<u32>,
    /// That are new.
    pub(super) own: BTreeSet<ContainerId>,
}

/// The outcome.
#[derive(Debug)]
pub(super) enum Ended {
    /// Every chunk has its place.
    Done(Evacuated),
    /// This container cannot be read.
    Unreadable(ContainerId),
    /// This container is in cold storage.
    Cold(ContainerId),
    /// It was told to stop: the chunks of these containers, which have the lowest numbers, have
    /// their places.
    Stopped(Evacuated),
}

/// Executes the fates of chunks.
pub(super) fn evacuate(
    pass: &IndexPass,
    draft: &Draft<'_>,
    work: &Work,
    selection: &Selection,
    mut chunk_fates: ChunkFates,
    copier: &mut ChunkCopier,
) -> Result<Ended, ReclaimError> {
    let mut evacuation = Evacuation { pass, draft, copier, batch: Batch::default(), evacuated: Evacuated::default() };
    let mut follows = BTreeSet::new();
    let repository = &pass.io.repository;
    let reads = selection.containers.iter().map(|(number, candidate)| async move {
        (*number, *candidate, repository.read_container_index(candidate.id).await)
    });
    let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
    let mut was_stopped = false;
    while let Some((number, candidate, read)) = pass.io.executor.block_on(reads.next()) {
        if work.context.cancel.is_cancelled() && !evacuation.evacuated.forwards.is_empty() {
            was_stopped = true;
            break;
        }
        let index = match read {
            Ok(index) if index.chunks.len() == candidate.chunks as usize => index,
            Ok(_) => return Ok(Ended::Unreadable(candidate.id)),
            Err(error) if error.is_cold() => return Ok(Ended::Cold(candidate.id)),
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "a container cannot be read and is not retired");
                return Ok(Ended::Unreadable(candidate.id));
            }
            Err(error) => return Err(error.into()),
        };
        evacuation.evacuated.forwards.entry(number).or_default();
        // Of equal chunks in one container the first is listed, and stands for the others.
        let mut met = HashSet::new();
        for (chunk, reference) in (0u32..).zip(index.chunk_refs()) {
            let fate = chunk_fates.on(ChunkPlace { container: number, chunk })?;
            if !met.insert(reference.fingerprint) {
                continue;
            }
            match fate {
                Some(ChunkFate::Redirect(place)) => evacuation.batch.redirected.push((number, place, reference)),
                Some(ChunkFate::MovedWith(other)) => drop(follows.insert((number, other))),
                Some(ChunkFate::Drop) => {}
                None => evacuation.batch.copied.push((number, reference)),
            }
        }
        evacuation.batch.bytes += candidate.bytes;
        if evacuation.batch.bytes >= BATCH_BYTES
            && let Some(container) = evacuation.flush()?
        {
            return Ok(Ended::Unreadable(container));
        }
    }
    drop(reads);
    if let Some(container) = evacuation.flush()? {
        return Ok(Ended::Unreadable(container));
    }
    let mut evacuated = evacuation.evacuated;
    for (container, other) in follows {
        // It was not kept which of the containers with the other's chunks it is. Keeping them all
        // is safe.
        let own = evacuated.forwards.get(&other).map(|forwards| forwards.own.clone()).unwrap_or_default();
        evacuated.forwards.entry(container).or_default().own.extend(own);
    }
    Ok(if was_stopped { Ended::Stopped(evacuated) } else { Ended::Done(evacuated) })
}

/// Chunks that are processed together.
#[derive(Debug, Default)]
struct Batch {
    bytes: u64,
    /// The container, the place of the other copy, and the chunk.
    redirected: Vec<(u32, ChunkPlace, ChunkRef)>,
    copied: Vec<(u32, ChunkRef)>,
}

struct Evacuation<'a> {
    pass: &'a IndexPass,
    draft: &'a Draft<'a>,
    copier: &'a mut ChunkCopier,
    batch: Batch,
    evacuated: Evacuated,
}

impl Evacuation<'_> {
    /// Reads and copies the collected chunks. Returns a container that cannot be read.
    fn flush(&mut self) -> Result<Option<ContainerId>, ReclaimError> {
        let Batch { mut redirected, copied, .. } = std::mem::take(&mut self.batch);
        redirected.sort_unstable_by_key(|(_, place, _)| *place);
        if let Some(container) = self.check(&redirected)? {
            return Ok(Some(container));
        }
        for (number, place, _) in &redirected {
            self.evacuated.forwards.entry(*number).or_default().numbers.insert(place.container);
        }
        self.evacuated.redirected_chunks += redirected.len() as u64;
        let references: Vec<ChunkRef> = copied.iter().map(|(_, reference)| *reference).collect();
        let copies = match self.copier.copy(&references) {
            Ok(copies) => copies,
            Err(RewriteError::Repository(error)) if error.is_damage() => {
                tracing::warn!(%error, "a container cannot be read and is not retired");
                let container = damaged_container(&error);
                return container.map(Some).ok_or_else(|| RewriteError::Repository(error).into());
            }
            Err(error) => return Err(error.into()),
        };
        for ((number, _), copy) in copied.iter().zip(copies) {
            self.evacuated.forwards.entry(*number).or_default().own.insert(copy.container);
            self.evacuated.copied_chunks += 1;
            self.evacuated.copied_bytes += u64::from(copy.size);
        }
        Ok(None)
    }

    /// Reads the copies that chunks are redirected to. Returns a container that does not hold the
    /// expected chunks.
    fn check(&self, redirected: &[(u32, ChunkPlace, ChunkRef)]) -> Result<Option<ContainerId>, ReclaimError> {
        let mut numbers: Vec<u32> = redirected.iter().map(|(_, place, _)| place.container).collect();
        numbers.dedup();
        let table = self.draft.view::<Containers>(LookupOptions::default());
        let facts = self.pass.io.executor.block_on(table.get(&numbers))?;
        let ids: HashMap<u32, ContainerId> =
            numbers.iter().zip(facts).filter_map(|(number, facts)| Some((*number, facts?.id))).collect();
        let repository = &self.pass.io.repository;
        let reads = redirected.chunk_by(|(_, a, _), (_, b, _)| a.container == b.container).filter_map(|of_one| {
            let id = *ids.get(&of_one.first()?.1.container)?;
            Some(async move { (id, of_one, repository.read_container_index(id).await) })
        });
        let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
        let mut all = Vec::with_capacity(redirected.len());
        while let Some((id, of_one, index)) = self.pass.io.executor.block_on(reads.next()) {
            let index = match index {
                Ok(index) => index,
                Err(error) if error.is_unreadable() => {
                    tracing::warn!(%error, "a container cannot be read, so no copy of its chunks is retired");
                    return Ok(Some(id));
                }
                Err(error) => return Err(error.into()),
            };
            let Some(mut there) = found(of_one, &index) else { return Ok(Some(id)) };
            there.dedup();
            all.append(&mut there);
        }
        drop(reads);
        Ok(self.copier.unreadable_among(&all)?.pop_first())
    }
}

/// The chunks of a container that others are redirected to; `None` when one of them is another
/// chunk.
fn found(redirected: &[(u32, ChunkPlace, ChunkRef)], index: &ContainerIndex) -> Option<Vec<ChunkRef>> {
    let there: Vec<ChunkRef> = index.chunk_refs().collect();
    let find = |(_, place, chunk): &(u32, ChunkPlace, ChunkRef)| {
        let copy = there.get(place.chunk as usize).copied();
        copy.filter(|copy| (copy.fingerprint, copy.size) == (chunk.fingerprint, chunk.size))
    };
    redirected.iter().map(find).collect()
}
