//! Stage 3: questions about a range of fingerprints are merged with the index and with each other.
//!
//! Of those who ask for one unknown chunk, the first by image and number is the *owner*: it stores
//! the chunk, and the others wait for it. So repeated runs elect the same one. Who has no answer
//! stores its chunk, and nobody waits.

use std::ops::RangeInclusive;

use larder_format::ErrorKind;
use larder_format::fleet::{Answer, Answers, At, FleetRecord, Requests, Stage, TaskId, Waiter, Waiters};
use larder_format::index_manifest::Table;
use larder_format::index_tables::{ChunkKey, ChunkPlace};
use larder_index::{Cursor, IndexError, IndexSnapshot, LookupOptions, SortedLookup, Sorter, TableReader};
use larder_store::{RepositoryError, StoreError, StoreErrorKind, StoreOp};

use super::placed::PlacesByChunk;
use crate::error::FleetError;
use crate::exchange::{Decided, Facts, OutputCursor, Outputs};
use crate::shared::Batch;

/// The most that is read of the index at once with little memory.
const SPAN_FEW: usize = 256 << 10;

/// Lookups of rising keys within some memory. If that is little, there is one request at a time for
/// half of it, and not several for a block each.
fn with_few_requests(budget: usize) -> LookupOptions {
    let usual = LookupOptions::streaming(budget);
    let span = usual.span.max((budget / 2).min(SPAN_FEW) as u64);
    let requests = usual.requests.min((budget / 2 / span as usize).max(1));
    LookupOptions { span, requests, ..usual }
}

/// Questions after which a join looks whether the batch was cancelled. They may all be at hand.
const LOOKS_EACH: u64 = 1 << 16;

/// The first 8 bytes of fingerprints in a partition.
pub(crate) fn range_of(partition: u32, partitions: u32) -> RangeInclusive<u64> {
    let (partition, count) = (u128::from(partition), u128::from(partitions.max(1)));
    let begin = |number: u128| number * (1 << 64) / count;
    begin(partition) as u64..=(begin(partition + 1) - 1) as u64
}

/// Questions as keys of the table of chunks, with who asks as the value.
struct Questions<C>(C);

impl<C: Cursor> Cursor for Questions<C> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        self.0.advance()
    }

    fn key(&self) -> &[u8] {
        self.0.key().get(..20).unwrap_or_default()
    }

    fn value(&self) -> Option<&[u8]> {
        self.0.key().get(20..)
    }
}

/// Answers the questions of a partition, which `senders` sent. The partitions of all rounds have
/// numbers. `before` has the places of chunks that earlier rounds stored: who asks for one of these
/// waits for its owner, too, which has told its place already.
pub(crate) fn join(
    batch: &Batch<'_>,
    partition: u32,
    senders: &[&Decided],
    before: &[&Decided],
) -> Result<Decided, FleetError> {
    let mut outputs = Outputs::begin(batch, TaskId { stage: Stage::Join, round: 0, number: partition })?;
    let election = match elect(batch, partition, senders, before, &batch.index().snapshot) {
        // An index that cannot be read, or whose runs were merged meanwhile, costs space alone.
        Err(FleetError::Index(error)) if error.kind() == ErrorKind::Damaged => {
            tracing::warn!(%error, "the index cannot be asked; only duplicates within the batch are found");
            batch.context.progress.note("the index cannot be asked, so only duplicates within the batch are found");
            elect(batch, partition, senders, before, &IndexSnapshot::empty())?
        }
        elected => elected?,
    };
    let Election { answers, waiters, .. } = election;
    outputs.write::<Answers>(&mut answers.finish()?)?;
    outputs.write::<Waiters>(&mut waiters.finish()?)?;
    outputs.done(Facts::default())
}

fn elect(
    batch: &Batch<'_>,
    partition: u32,
    senders: &[&Decided],
    before: &[&Decided],
    index: &IndexSnapshot,
) -> Result<Election, FleetError> {
    let budget = batch.budget();
    let mut election = Election {
        answers: batch.sorter::<Answers>(budget.partition)?,
        waiters: batch.sorter::<Waiters>(budget.partition)?,
        group: None,
    };
    let range = range_of(partition % batch.plan.partitions, batch.plan.partitions);
    let mut stored = PlacesByChunk::of(batch, before.iter().copied(), range.clone())?;
    let mut questions = Questions(OutputCursor::merged::<Requests>(batch, senders.iter().copied(), range)?);
    let options = with_few_requests(budget.lookup / 2);
    let table = TableReader::of(batch.context.repository.clone(), index, Table::Chunks, options);
    let mut lookup = SortedLookup::new(table, batch.context.executor.clone(), budget.lookup / 2);
    let mut asked = 0u64;
    lookup.join(&mut questions, |key, asks, found| {
        asked += 1;
        if asked.is_multiple_of(LOOKS_EACH) && batch.context.cancel.is_cancelled() {
            let (op, kind, name) = (StoreOp::Read, StoreErrorKind::Interrupted, "the index".to_owned());
            return Err(StoreError { op, name, kind, source: None }.into());
        }
        let wrong = |source| IndexError::WrongRecord { table: Table::Chunks, key: key.to_vec(), source };
        let at = At::decode(asks.unwrap_or_default()).map_err(wrong)?;
        let chunk = ChunkKey(key.try_into().unwrap_or_default());
        let found = found.map(ChunkPlace::decode).transpose().map_err(wrong)?;
        if found.is_none() {
            election.knows(chunk, stored.first(&chunk)?);
        }
        election.asks(chunk, at, found)
    })?;
    Ok(election)
}

/// Those who ask for one chunk, which the index does not know.
struct Group {
    chunk: ChunkKey,
    owner: At,
    /// Whether the owner was told that others wait.
    is_told: bool,
}

/// Answers questions by rising chunk, and for each by rising image and number.
struct Election {
    answers: Sorter,
    waiters: Sorter,
    group: Option<Group>,
}

impl Election {
    fn answer(&mut self, at: At, answer: Answer) -> Result<(), IndexError> {
        self.answers.push(&at.encode(), Some(&answer.encode()))
    }

    /// Who stored a chunk in an earlier round.
    fn knows(&mut self, chunk: ChunkKey, owner: Option<At>) {
        if let Some(owner) = owner
            && self.group.as_ref().is_none_or(|group| group.chunk != chunk)
        {
            // It has told its place, so nobody need ask it to.
            self.group = Some(Group { chunk, owner, is_told: true });
        }
    }

    fn asks(&mut self, chunk: ChunkKey, at: At, found: Option<ChunkPlace>) -> Result<(), IndexError> {
        if let Some(place) = found {
            return self.answer(at, Answer::Stored(place));
        }
        let Some(group) = self.group.as_mut().filter(|group| group.chunk == chunk) else {
            self.group = Some(Group { chunk, owner: at, is_told: false });
            return Ok(());
        };
        let owner = group.owner;
        // An image knows by itself where it stored a chunk.
        if owner.image != at.image {
            let tells = !std::mem::replace(&mut group.is_told, true);
            self.waiters.push(&Requests::key(&chunk, at), Some(&Waiter { owner }.encode()))?;
            if tells {
                self.answer(owner, Answer::Owner)?;
            }
        }
        self.answer(at, Answer::Waits(owner))
    }
}

impl Batch<'_> {
    /// A sorter of records of one kind.
    pub(crate) fn sorter<R: FleetRecord>(&self, budget: usize) -> Result<Sorter, FleetError> {
        Ok(Sorter::new(&self.context.repository, R::LAYOUT, budget, &self.options.scratch)?)
    }
}

/// A damaged record of a task, as an error of the repository.
pub(super) fn damaged_record(what: &'static str) -> impl Fn(larder_format::DecodeError) -> FleetError {
    move |source| RepositoryError::Damaged { name: what.to_owned(), source }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is under way is never more than half of the memory, but for one block.
    #[test]
    fn little_memory_is_used_for_few_requests() {
        for (budget, span, requests) in [(1, 64 << 10, 1), (440 << 10, 220 << 10, 1), (1 << 20, 256 << 10, 2)] {
            let options = with_few_requests(budget);
            assert_eq!((options.span, options.requests), (span, requests), "{budget}");
        }
        for budget in [4 << 20, 64 << 20] {
            let (options, usual) = (with_few_requests(budget), LookupOptions::streaming(budget));
            assert_eq!((options.span, options.requests), (usual.span, usual.requests), "{budget}");
        }
    }

    #[test]
    fn partitions_cover_all_fingerprints_once() {
        for count in [1, 2, 3, 7, 400] {
            let mut next = Some(0);
            for partition in 0..count {
                let range = range_of(partition, count);
                assert_eq!(Some(*range.start()), next, "{count}");
                next = range.end().checked_add(1);
            }
            assert_eq!(next, None, "{count}");
        }
    }
}
