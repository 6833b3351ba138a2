//! Stages 2 and 5: what a host has collected is written by rising key, for the partitions.

use std::collections::HashSet;

use larder_format::fleet::{Placements, Requests, Stage, TaskId};
use larder_format::ids::JobId;
use larder_index::Sorter;

use crate::error::FleetError;
use crate::exchange::{Decided, Facts, Only, Outputs};
use crate::shared::Batch;

/// Sorts the questions of a host. Only images that were scanned ask.
/// `store` is the job that stores what is new: its lease is open.
pub(crate) fn send(
    batch: &Batch<'_>,
    host: u32,
    store: JobId,
    requests: Sorter,
    live: Vec<u32>,
) -> Result<Decided, FleetError> {
    let mut outputs = Outputs::begin(batch, TaskId { stage: Stage::Send, round: 0, number: host })?;
    let asks = |key: &[u8]| Requests::parse(key).is_ok_and(|(_, at)| live.binary_search(&at.image).is_ok());
    outputs.write::<Requests>(&mut Only::new(requests.finish()?, asks))?;
    outputs.done(Facts { live: Some(live), store: Some(store), ..Facts::default() })
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
    let tells = |key: &[u8]| Requests::parse(key).is_ok_and(|(_, at)| !gone.contains(&at.image));
    outputs.write::<Placements>(&mut Only::new(placements.finish()?, tells))?;
    outputs.done(Facts::default())
}
