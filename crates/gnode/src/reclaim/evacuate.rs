//! Reads redirect targets, and copies chunks without another copy. Changes no object that others
//! know: new containers belong to the pass, and count when its index does.
//!
//! Containers are read by rising numbers, so one that [moves with](ChunkFate::MovedWith) another
//! comes after it. So the containers that were evacuated when time is up can go by themselves. At
//! least one is, or short passes would begin again for ever.
//!
//! Batches may be given to workers ([`SharedCopying`]). They come back in order.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use futures::StreamExt;
use larder_format::ChunkRef;
use larder_format::container::ContainerIndex;
use larder_format::ids::ContainerId;
use larder_format::index_tables::ChunkPlace;
use larder_index::{Containers, Draft, IndexPass, LookupOptions};
use larder_rewrite::chunk_copier::{BatchEnd, ChunkCopier, CopyBatch, NumberedChunk, SharedCopying, Unreadable};
use larder_writer::ContainerTotals;

use super::chunk_fates::{ChunkFate, ChunkFates};
use super::select::Selection;
use super::{ReclaimError, Work};

/// Tables of containers that are read at once.
const CONCURRENT_READS: usize = 8;
/// Bytes of containers (uncompressed) whose chunks are processed together: their records take a
/// fiftieth of that.
const BATCH_BYTES: u64 = 256 << 20;
/// Of the memory for tables, one part in this number looks up containers.
const LOOKUPS_ONE_IN: usize = 8;

/// The new places of chunks of containers that are retired.
#[derive(Debug, Default)]
pub(super) struct Evacuated {
    /// For each container the new places of its chunks.
    pub(super) forwards: BTreeMap<u32, Forwards>,
    pub(super) redirected_chunks: u64,
    pub(super) copied_chunks: u64,
    pub(super) copied_bytes: u64,
    /// Containers that workers wrote.
    pub(super) written: HashMap<ContainerId, ContainerTotals>,
    /// Of the copied bytes, those that workers copied in whole frames.
    pub(super) whole_bytes: u64,
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
    /// A worker was wrong, so that no result of workers counts.
    WorkerWrong,
}

impl Ended {
    fn without(container: ContainerId, why: Unreadable) -> Self {
        match why {
            Unreadable::Damaged => Self::Unreadable(container),
            Unreadable::Cold => Self::Cold(container),
        }
    }
}

/// Executes the fates of chunks.
pub(super) fn evacuate(
    pass: &IndexPass,
    draft: &Draft<'_>,
    work: &Work,
    selection: &Selection,
    mut chunk_fates: ChunkFates,
    copier: &mut ChunkCopier,
    shared: Option<&mut (dyn SharedCopying + 'static)>,
) -> Result<Ended, ReclaimError> {
    let batch_bytes = match &work.sharing {
        Some(sharing) if shared.is_some() => {
            let all = selection.containers.values().map(|candidate| candidate.bytes).sum();
            sharing.batch_bytes(all).min(BATCH_BYTES)
        }
        _ => BATCH_BYTES,
    };
    let mut evacuation = Evacuation {
        pass,
        draft,
        work,
        copier,
        shared,
        batch: Batch::default(),
        away: VecDeque::new(),
        follows: Vec::new(),
        evacuated: Evacuated::default(),
    };
    let reads = selection.containers.iter().map(|(number, candidate)| {
        let (repository, number, candidate) = (work.context.repository.clone(), *number, *candidate);
        // They go on while chunks are copied.
        pass.io.executor.beside(async move { (number, candidate, repository.read_container_index(candidate.id).await) })
    });
    let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
    let is_stopped = || work.context.cancel.is_cancelled();
    let mut was_stopped = false;
    while let Some((number, candidate, read)) = pass.io.executor.block_on(reads.next()) {
        if is_stopped() && evacuation.has_any() {
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
        evacuation.batch.numbers.push(number);
        // Of equal chunks in one container the first is listed, and stands for the others.
        let mut met = HashSet::new();
        for (chunk, reference) in (0u32..).zip(index.chunk_refs()) {
            let fate = chunk_fates.on(ChunkPlace { container: number, chunk })?;
            if !met.insert(reference.fingerprint) {
                continue;
            }
            match fate {
                Some(ChunkFate::Redirect(place)) => evacuation.batch.redirected.push((number, place, reference)),
                Some(ChunkFate::MovedWith(other)) => evacuation.batch.follows.push((number, other)),
                Some(ChunkFate::Drop) => {}
                None => {
                    evacuation.batch.copied.push((number, NumberedChunk { number: chunk, chunk: reference }));
                }
            }
        }
        evacuation.batch.follows.dedup();
        evacuation.batch.bytes += candidate.bytes;
        if evacuation.batch.bytes >= batch_bytes
            && let Some(ended) = evacuation.flush(false)?
        {
            return Ok(ended);
        }
    }
    drop(reads);
    // Those that are away are done all the same, unless it is to stop.
    let mut is_last = !was_stopped || evacuation.away.is_empty();
    if is_last && let Some(ended) = evacuation.flush(was_stopped)? {
        return Ok(ended);
    }
    while !evacuation.away.is_empty() {
        let may_stop = !evacuation.evacuated.forwards.is_empty();
        match evacuation.fold(may_stop)? {
            Folded::Done => {}
            Folded::Ended(ended) => return Ok(ended),
            Folded::Stopped => {
                is_last = false;
                break;
            }
        }
        if is_stopped() && !evacuation.away.is_empty() {
            is_last = false;
            break;
        }
    }
    let Evacuation { follows, mut evacuated, .. } = evacuation;
    for (container, other) in follows {
        // It was not kept which of the containers with the other's chunks it is. Keeping them all
        // is safe.
        let own = evacuated.forwards.get(&other).map(|forwards| forwards.own.clone()).unwrap_or_default();
        evacuated.forwards.entry(container).or_default().own.extend(own);
    }
    Ok(if was_stopped || !is_last { Ended::Stopped(evacuated) } else { Ended::Done(evacuated) })
}

/// Chunks that are processed together.
#[derive(Debug, Default)]
struct Batch {
    bytes: u64,
    /// The containers that go.
    numbers: Vec<u32>,
    /// The container, the place of the other copy, and the chunk.
    redirected: Vec<(u32, ChunkPlace, ChunkRef)>,
    copied: Vec<(u32, NumberedChunk)>,
    /// A container, and another one from which chunks of it are copied.
    follows: Vec<(u32, u32)>,
}

/// What remains to be noted when the chunks of a batch have their places.
#[derive(Debug, Default)]
struct Away {
    numbers: Vec<u32>,
    /// Containers, and those that their chunks are redirected to, each pair once.
    redirects: Vec<(u32, u32)>,
    redirected_chunks: u64,
    /// The container of each copied chunk, and its bytes.
    copied: Vec<(u32, u32)>,
    follows: Vec<(u32, u32)>,
}

/// How the first batch that was away came back.
enum Folded {
    Done,
    Ended(Ended),
    Stopped,
}

struct Evacuation<'a> {
    pass: &'a IndexPass,
    draft: &'a Draft<'a>,
    work: &'a Work,
    copier: &'a mut ChunkCopier,
    shared: Option<&'a mut (dyn SharedCopying + 'static)>,
    batch: Batch,
    /// Batches that were given to `shared`, in order.
    away: VecDeque<Away>,
    follows: Vec<(u32, u32)>,
    evacuated: Evacuated,
}

impl Evacuation<'_> {
    /// Whether any container was read.
    fn has_any(&self) -> bool {
        !self.batch.numbers.is_empty() || !self.away.is_empty() || !self.evacuated.forwards.is_empty()
    }

    /// Verifies and copies the collected chunks, or gives them away. `is_own`: they are not given
    /// away.
    fn flush(&mut self, is_own: bool) -> Result<Option<Ended>, ReclaimError> {
        let Batch { numbers, mut redirected, copied, follows, .. } = std::mem::take(&mut self.batch);
        if numbers.is_empty() {
            return Ok(None);
        }
        redirected.sort_unstable_by_key(|(_, place, _)| *place);
        let verify = match self.targets(&redirected)? {
            Ok(verify) => verify,
            Err((container, why)) => return Ok(Some(Ended::without(container, why))),
        };
        let mut redirects: Vec<_> = redirected.iter().map(|(number, place, _)| (*number, place.container)).collect();
        redirects.sort_unstable();
        redirects.dedup();
        let away = Away {
            numbers,
            redirects,
            redirected_chunks: redirected.len() as u64,
            copied: copied.iter().map(|(number, copied)| (*number, copied.chunk.size)).collect(),
            follows,
        };
        let batch = CopyBatch { verify, copy: copied.into_iter().map(|(_, chunk)| chunk).collect() };
        let has_work = !batch.verify.is_empty() || !batch.copy.is_empty();
        let is_away = !is_own && has_work;
        if let Some(shared) = self.shared.as_mut().filter(|_| is_away) {
            shared.offer(batch);
            self.away.push_back(away);
            while self.shared.as_ref().is_some_and(|shared| shared.is_full()) {
                if let Folded::Ended(ended) = self.fold(false)? {
                    return Ok(Some(ended));
                }
            }
            return Ok(None);
        }
        // Those before it come first.
        while !self.away.is_empty() {
            if let Folded::Ended(ended) = self.fold(false)? {
                return Ok(Some(ended));
            }
        }
        let end = self.copier.copy_batch(&batch)?;
        Ok(match self.note(away, end) {
            Folded::Ended(ended) => Some(ended),
            Folded::Done | Folded::Stopped => None,
        })
    }

    /// Takes the first batch back that is away.
    fn fold(&mut self, may_stop: bool) -> Result<Folded, ReclaimError> {
        let (Some(shared), Some(away)) = (&mut self.shared, self.away.pop_front()) else { return Ok(Folded::Done) };
        Ok(match shared.next(self.copier, may_stop)? {
            Some(end) => self.note(away, end),
            None => Folded::Stopped,
        })
    }

    /// The chunks of a batch have their places.
    fn note(&mut self, away: Away, end: BatchEnd) -> Folded {
        let evacuated = &mut self.evacuated;
        let places = match end {
            BatchEnd::Here(places) => places,
            BatchEnd::Elsewhere { places, written, whole_bytes } => {
                evacuated.written.extend(written);
                evacuated.whole_bytes += whole_bytes;
                places
            }
            BatchEnd::Unreadable(container, why) => return Folded::Ended(Ended::without(container, why)),
            BatchEnd::WorkerWrong => return Folded::Ended(Ended::WorkerWrong),
            BatchEnd::Stopped => return Folded::Stopped,
        };
        for number in away.numbers {
            evacuated.forwards.entry(number).or_default();
        }
        for (number, target) in away.redirects {
            evacuated.forwards.entry(number).or_default().numbers.insert(target);
        }
        evacuated.redirected_chunks += away.redirected_chunks;
        for ((number, size), place) in away.copied.iter().zip(places) {
            evacuated.forwards.entry(*number).or_default().own.insert(place.container);
            evacuated.copied_chunks += 1;
            evacuated.copied_bytes += u64::from(*size);
        }
        self.follows.extend(away.follows);
        Folded::Done
    }

    /// The copies that chunks are redirected to, which have to be read. An error is a container
    /// that does not hold the expected chunks.
    fn targets(
        &self,
        redirected: &[(u32, ChunkPlace, ChunkRef)],
    ) -> Result<Result<Vec<NumberedChunk>, (ContainerId, Unreadable)>, ReclaimError> {
        let mut numbers: Vec<u32> = redirected.iter().map(|(_, place, _)| place.container).collect();
        numbers.dedup();
        let options = LookupOptions::streaming(self.pass.memory / LOOKUPS_ONE_IN);
        let table = self.draft.view::<Containers>(options);
        let facts = self.pass.io.executor.block_on(table.get(&numbers))?;
        let ids: HashMap<u32, ContainerId> =
            numbers.iter().zip(facts).filter_map(|(number, facts)| Some((*number, facts?.id))).collect();
        let repository = &self.work.context.repository;
        let reads = redirected.chunk_by(|(_, a, _), (_, b, _)| a.container == b.container).filter_map(|of_one| {
            let id = *ids.get(&of_one.first()?.1.container)?;
            Some(async move { (id, of_one, repository.read_container_index(id).await) })
        });
        let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
        let mut all = Vec::with_capacity(redirected.len());
        while let Some((id, of_one, index)) = self.pass.io.executor.block_on(reads.next()) {
            let index = match index {
                Ok(index) => index,
                Err(error) if error.is_cold() => return Ok(Err((id, Unreadable::Cold))),
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, "a container cannot be read, so no copy of its chunks is retired");
                    return Ok(Err((id, Unreadable::Damaged)));
                }
                Err(error) => return Err(error.into()),
            };
            let Some(mut there) = found(of_one, &index) else { return Ok(Err((id, Unreadable::Damaged))) };
            there.dedup();
            all.append(&mut there);
        }
        Ok(Ok(all))
    }
}

/// The chunks of a container that others are redirected to; `None` when one of them is another
/// chunk.
fn found(redirected: &[(u32, ChunkPlace, ChunkRef)], index: &ContainerIndex) -> Option<Vec<NumberedChunk>> {
    let there: Vec<ChunkRef> = index.chunk_refs().collect();
    let find = |(_, place, chunk): &(u32, ChunkPlace, ChunkRef)| {
        let copy = there.get(place.chunk as usize).copied();
        let copy = copy.filter(|copy| (copy.fingerprint, copy.size) == (chunk.fingerprint, chunk.size));
        copy.map(|chunk| NumberedChunk { number: place.chunk, chunk })
    };
    redirected.iter().map(find).collect()
}
