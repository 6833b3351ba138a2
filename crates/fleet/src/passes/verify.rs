//! Which results of other processes count.

use std::collections::{BTreeMap, HashMap};

use futures::StreamExt;
use larder_format::fleet::{CopyResult, TaskId};
use larder_format::ids::{ContainerId, JobId};
use larder_format::{ChunkRef, Fingerprint, names};
use larder_job::JobContext;
use larder_rewrite::chunk_copier::{BatchEnd, ChunkCopier, CopyBatch, NumberedChunk, RewriteError, Unreadable};
use larder_store::repository::random;
use larder_writer::ContainerTotals;

use super::given_away::{Verified, not_done};

/// Tables of containers that are read at once.
const AT_ONCE: usize = 8;

/// Compares a result with what the store has. `ticket` is that of its task.
///
/// Every chunk that was to be copied has to be in the table of a new container. One chunk of each
/// new container is read, and one of those that were only verified: its frame, by chance.
pub(super) fn verify(
    context: &JobContext,
    (pass, task): (JobId, TaskId),
    ticket: [u8; 16],
    batch: &CopyBatch,
    result: &CopyResult,
    own: &ChunkCopier,
) -> Result<Verified<BatchEnd>, RewriteError> {
    if let Some(why) = not_done(result, ticket) {
        return Ok(Verified::NotDone(why));
    }
    let Some(containers) = result.containers(pass, task) else {
        return Ok(Verified::Wrong("it names containers that are not its own".to_owned()));
    };
    let wanted: HashMap<Fingerprint, u32> = batch.copy.iter().map(of).collect();
    let (mut copies, mut written) = (HashMap::<Fingerprint, ChunkRef>::new(), HashMap::new());
    let repository = &context.repository;
    let reads = containers.iter().map(|id| async move { (*id, repository.read_container_index(*id).await) });
    let mut reads = futures::stream::iter(reads).buffered(AT_ONCE);
    while let Some((id, index)) = context.executor.block_on(reads.next()) {
        let index = match index {
            Ok(index) => index,
            Err(error) if error.is_cold() => return Ok(Verified::NotDone(error.to_string())),
            Err(error) if error.is_damage() => return Ok(Verified::Wrong(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        written.insert(id, ContainerTotals::of_index(&index));
        for chunk in index.chunk_refs() {
            if wanted.get(&chunk.fingerprint) != Some(&chunk.size) {
                return Ok(Verified::Wrong("a container has other chunks than were to be copied".to_owned()));
            }
            copies.insert(chunk.fingerprint, chunk);
        }
    }
    let places: Option<Vec<ChunkRef>> =
        batch.copy.iter().map(|of| copies.get(&of.chunk.fingerprint).copied()).collect();
    let Some(places) = places else {
        return Ok(Verified::Wrong("chunks that were to be copied are in none of its containers".to_owned()));
    };
    let mut by_container: BTreeMap<ContainerId, Vec<ChunkRef>> = BTreeMap::new();
    for place in &places {
        by_container.entry(place.container).or_default().push(*place);
    }
    let verified: Vec<ChunkRef> = batch.verify.iter().map(|of| of.chunk).collect();
    let mut sample = Vec::new();
    for chunks in by_container.values().chain([&verified]).filter(|chunks| !chunks.is_empty()) {
        let drawn = random(repository.entropy()).map(u64::from_le_bytes)?;
        sample.push(chunks[(drawn % chunks.len() as u64) as usize]);
    }
    let unreadable = own.unreadable_among(&sample)?;
    if let Some((container, why)) = unreadable.first_key_value() {
        let message = format!("{} cannot be read by this process", names::container(*container));
        return Ok(match why {
            Unreadable::Cold => Verified::NotDone(message),
            Unreadable::Damaged => Verified::Wrong(message),
        });
    }
    Ok(Verified::Counts(BatchEnd::Elsewhere { places, written, whole_bytes: result.whole_bytes }))
}

fn of(numbered: &NumberedChunk) -> (Fingerprint, u32) {
    (numbered.chunk.fingerprint, numbered.chunk.size)
}
