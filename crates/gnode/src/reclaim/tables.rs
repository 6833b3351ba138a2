//! The changes in the index when containers are retired.

use std::collections::BTreeMap;

use larder_format::ids::{ByteCount, ContainerId};
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::layout::Layout;
use larder_index::{Containers, Draft, IndexError, IndexPass, LookupOptions};
use larder_rewrite::chunk_copier::Written;
use larder_store::rules::Rule;
use larder_store::survey::ListedContainer;
use larder_writer::ContainerTotals;

use super::ReclaimReport;
use super::chunk_fates::TableChanges;
use super::evacuate::{Evacuated, Forwards};
use super::select::Selection;
use crate::ingest::{Known, ingest, merge_tables};

/// Changes the draft.
pub(super) fn apply(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    selection: &Selection,
    evacuated: &Evacuated,
    written: &Written,
    changes: TableChanges,
    reclaimed: &mut ReclaimReport,
) -> Result<(), IndexError> {
    let first_new = draft.manifest.head.next_container;
    let mut numbers: BTreeMap<ContainerId, u32> = BTreeMap::new();
    // Nothing of a failed attempt is kept: containers without a record are collected.
    let mut own: Vec<ContainerId> = evacuated.forwards.values().flat_map(|forwards| &forwards.own).copied().collect();
    own.sort_unstable();
    own.dedup();
    for id in own {
        let next = draft.manifest.head.next_container;
        numbers.insert(id, next);
        draft.manifest.head.next_container = next.checked_add(1).ok_or_else(IndexError::container_numbers_exhausted)?;
    }
    draft.manifest.head.statistics.chunks = draft.manifest.head.statistics.chunks.saturating_sub(changes.forgotten);
    draft.apply(changes.chunks)?;
    draft.apply(changes.copies)?;
    let forwards: BTreeMap<u32, Vec<u32>> =
        evacuated.forwards.iter().map(|(number, forwards)| (*number, numbers_of(forwards, &numbers))).collect();
    change_containers(pass, draft, selection, &forwards, &numbers, written)?;
    // The copies replace the chunks whose containers no longer count.
    let known = Known::read(pass, draft, first_new)?;
    // Not those that could not be read before: they wait for the next pass.
    let own: Vec<_> = known.new.into_iter().filter(|(number, _)| *number >= first_new).collect();
    let ingested = ingest(pass, draft, &known.numbers, &own)?;
    if let Some((_, error)) = ingested.unreadable.into_iter().next() {
        return Err(error.into());
    }
    merge_tables(draft)?;
    reclaimed.written = numbers.len() as u64;
    let stored = numbers.keys().filter_map(|id| written.containers.get(id)).map(|holding| holding.object_bytes);
    reclaimed.written_bytes = ByteCount(stored.sum());
    reclaimed.containers =
        selection.containers.values().map(|gone| ListedContainer { id: gone.id, bytes: gone.object_bytes }).collect();
    let statistics = &mut draft.manifest.head.statistics;
    statistics.chunks_moved += reclaimed.redirected_chunks + reclaimed.copied_chunks;
    statistics.containers_written += reclaimed.written;
    statistics.bytes_written += reclaimed.written_bytes.0;
    Ok(())
}

fn numbers_of(forwards: &Forwards, own: &BTreeMap<ContainerId, u32>) -> Vec<u32> {
    let mut numbers = forwards.numbers.clone();
    numbers.extend(forwards.own.iter().filter_map(|id| own.get(id)));
    numbers.into_iter().collect()
}

/// Records of retired containers stay, as long as versions name them (`LaterReferencesInherit`),
/// and name their forward targets. Records that forwarded to them forward to the same targets
/// (`OneHop`).
fn change_containers(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    selection: &Selection,
    forwards: &BTreeMap<u32, Vec<u32>>,
    own: &BTreeMap<ContainerId, u32>,
    written: &Written,
) -> Result<(), IndexError> {
    let mut changes = pass.changes::<Containers>()?;
    let table = draft.view::<Containers>(LookupOptions::default());
    for record in table.scan(0..=u64::MAX, pass.memory / 4) {
        let (number, Some(mut facts)) = record? else { continue };
        let goes = selection.containers.contains_key(&number);
        let led_on = pass.io.repository.keeps(Rule::OneHop)
            && facts.forwards.iter().any(|forward| selection.containers.contains_key(forward));
        if !goes && !led_on {
            continue;
        }
        let mut all: Vec<u32> = Vec::new();
        for forward in &facts.forwards {
            match forwards.get(forward) {
                Some(further) => all.extend(further),
                None => all.push(*forward),
            }
        }
        if goes {
            all.extend(forwards.get(&number).into_iter().flatten());
            facts.state = ContainerState::Gone;
            (facts.retired_chunks, facts.retired_bytes) = (facts.chunks, facts.bytes);
        }
        all.sort_unstable();
        all.dedup();
        facts.forwards = all;
        changes.put(&number, &facts)?;
    }
    for (id, number) in own {
        let Some(holding) = written.containers.get(id) else { continue };
        changes.put(number, &new_facts(*id, *holding))?;
    }
    draft.apply(changes)
}

fn new_facts(id: ContainerId, holding: ContainerTotals) -> ContainerFacts {
    ContainerFacts {
        id,
        state: ContainerState::Live,
        layout: Layout::Standard,
        chunks: holding.chunks,
        bytes: holding.bytes,
        object_bytes: holding.object_bytes,
        retired_chunks: 0,
        retired_bytes: 0,
        users: Vec::new(),
        forwards: Vec::new(),
    }
}
