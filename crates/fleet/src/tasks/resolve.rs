//! Stage 6: those who wait get the places of their chunks.
//!
//! If an owner has no place to tell, its image left the batch. Then the first that waits is
//! *promoted*: it stores the chunk, and the others wait for it once more. In the last round nobody
//! waits any longer, and each stores its own copy.

use std::collections::HashSet;

use larder_format::fleet::{At, Requests, Resolution, Resolutions, Stage, TaskId, Waiter, Waiters};
use larder_format::index_tables::ChunkKey;
use larder_index::{Cursor, Sorter};

use super::join::{damaged_record, range_of};
use super::placed::PlacesByChunk;
use crate::error::FleetError;
use crate::exchange::{Decided, Facts, OutputCursor, Outputs};
use crate::shared::Batch;

/// Whether anybody may wait once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastRound {
    Yes,
    No,
}

const WAITER: &str = "record of one that waits";

/// Resolves those who wait in a partition. `waiting` has them, and `placed` the places.
pub(crate) fn resolve(
    batch: &Batch<'_>,
    round: u8,
    partition: u32,
    waiting: &Decided,
    placed: &[&Decided],
    gone: &HashSet<u32>,
    last: LastRound,
) -> Result<Decided, FleetError> {
    let mut outputs = Outputs::begin(batch, TaskId { stage: Stage::Resolve, round, number: partition })?;
    let range = range_of(partition % batch.plan.partitions, batch.plan.partitions);
    let mut waiters = OutputCursor::merged::<Waiters>(batch, [waiting], range.clone())?;
    let mut places = PlacesByChunk::of(batch, placed.iter().copied(), range)?;
    let budget = batch.budget();
    let mut resolved: Sorter = batch.sorter::<Resolutions>(budget.partition)?;
    let mut again: Sorter = batch.sorter::<Waiters>(budget.partition)?;
    let mut promoted: Option<(ChunkKey, At)> = None;
    while waiters.advance()? {
        let (chunk, at) = Requests::parse(waiters.key()).map_err(damaged_record(WAITER))?;
        let Waiter { owner } = Waiter::decode(waiters.value().unwrap_or_default()).map_err(damaged_record(WAITER))?;
        if gone.contains(&at.image) {
            continue;
        }
        let resolution = match places.told_by(&chunk, owner)? {
            Some(placement) => Resolution::Placed(placement),
            None => match promoted.filter(|(of, _)| *of == chunk && last == LastRound::No) {
                Some((_, owner)) => {
                    again.push(&Requests::key(&chunk, at), Some(&Waiter { owner }.encode()))?;
                    Resolution::Again
                }
                None => {
                    promoted = Some((chunk, at));
                    Resolution::Promoted
                }
            },
        };
        resolved.push(&at.encode(), Some(&resolution.encode()))?;
    }
    outputs.write::<Resolutions>(&mut resolved.finish()?)?;
    outputs.write::<Waiters>(&mut again.finish()?)?;
    outputs.done(Facts::default())
}
