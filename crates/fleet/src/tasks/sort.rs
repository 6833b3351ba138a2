//! Stages 2 and 5: what a host has collected is written by rising key, for the partitions.

use std::collections::HashSet;

use larder_format::fleet::{Placements, Requests, Stage, TaskId};
use larder_index::Sorter;

use crate::error::FleetError;
use crate::exchange::{Decided, Facts, Only, Outputs};
use crate::shared::Batch;

/// Sorts the questions of a host. Images that left the batch do not ask.
pub(crate) fn send(batch: &Batch<'_>, host: u32, requests: Sorter, gone: &HashSet<u32>) -> Result<Decided, FleetError> {
    let mut outputs = Outputs::begin(batch, TaskId { stage: Stage::Send, round: 0, number: host })?;
    outputs.write::<Requests>(&mut Only::new(requests.finish()?, is_of_others(gone)))?;
    outputs.done(Facts::default())
}

/// Sorts the places of a host. The store has acknowledged all of them (`PlacedWhenDurable`). Images
/// that left the batch have none: nobody waits for a version that may not be made.
pub(crate) fn place(
    batch: &Batch<'_>,
    round: u8,
    host: u32,
    placements: Sorter,
    gone: &HashSet<u32>,
) -> Result<Decided, FleetError> {
    let mut outputs = Outputs::begin(batch, TaskId { stage: Stage::Place, round, number: host })?;
    outputs.write::<Placements>(&mut Only::new(placements.finish()?, is_of_others(gone)))?;
    outputs.done(Facts::default())
}

/// Whether a question is of none of these images.
fn is_of_others(gone: &HashSet<u32>) -> impl Fn(&[u8]) -> bool {
    |key| Requests::parse(key).is_ok_and(|(_, at)| !gone.contains(&at.image))
}
