//! Asks by name for objects that a listing lacks, before a decision rests on their absence.
//!
//! A store may answer one listing wrongly, or lag. So a needed container that was not listed counts
//! as missing only when the store says so of its name too. Otherwise the listing was wrong, and the
//! pass decides nothing (`AskedTwice`). Before a retired container is deleted, its forward targets
//! are seen in the store (`ForwardsThere`). A copy of a repository may have the index of one moment
//! and the containers of another.

use std::collections::BTreeSet;

use larder_format::ids::ContainerId;
use larder_format::names;
use larder_store::Repository;
use larder_store::presence::Presence;
use larder_store::rules::Rule;

use super::decide::Proposal;
use crate::error::PassError;
use crate::ingest::Numbers;
use crate::known_versions::KnownVersions;

/// Containers that are held and asked for at once.
const BATCH: usize = 4096;

/// Asks for the forward targets of retired containers that are to be deleted. Those that are not
/// there are missing.
pub(super) async fn ask_for_forwards(
    repository: &Repository,
    known_versions: &KnownVersions,
    proposal: &mut Proposal,
) -> Result<(), PassError> {
    if !repository.keeps(Rule::ForwardsThere) {
        return Ok(());
    }
    let mut forwards = Numbers::default();
    proposal.each_doomed(|id| {
        known_versions.forward_numbers(&id)?.into_iter().for_each(|number| forwards.insert(number));
        Ok(())
    })?;
    if forwards.is_empty() {
        return Ok(());
    }
    // A container that is no longer needed may forward to one that is gone.
    let is_one = |used: &Result<(u32, ContainerId), PassError>| {
        used.as_ref().map_or(true, |(number, _)| forwards.contains(*number))
    };
    let mut needed = known_versions.used()?.filter(is_one);
    loop {
        let batch = needed.by_ref().take(BATCH).map(|used| used.map(|(_, id)| id));
        let batch: Vec<ContainerId> = batch.collect::<Result<_, _>>()?;
        if batch.is_empty() {
            return Ok(());
        }
        let look = repository.look_for_containers(batch, |id, presence| {
            if presence != Presence::Present {
                proposal.miss(id);
            }
            Ok::<_, PassError>(())
        });
        look.await?;
    }
}

/// Asks for missing containers. If one is there all the same, a listing lacked it.
pub(super) async fn ask_for_missing(repository: &Repository, proposal: &Proposal) -> Result<(), PassError> {
    if !repository.keeps(Rule::AskedTwice) {
        return Ok(());
    }
    let missing: BTreeSet<ContainerId> = proposal.missing_ids().copied().collect();
    let look = repository.look_for_containers(missing, |id, presence| match presence {
        Presence::Present => Err(PassError::WrongListing { name: names::container(id) }),
        Presence::Absent | Presence::Unreadable => Ok(()),
    });
    look.await
}
