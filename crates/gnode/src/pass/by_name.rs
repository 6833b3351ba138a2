//! What a listing lacks is asked for by its name before anything rests on its absence.
//!
//! A store may answer one listing wrongly, or lag. So a container that versions need and that was
//! not listed counts as missing only when the store says so of its name too; else the listing was
//! wrong, and the pass decides nothing (`AskedTwice`). And what a retired container forwards to is
//! seen in the store before the retired one is deleted (`ForwardsThere`): a copy of a repository
//! may have the index of one moment and the containers of another.

use std::collections::BTreeSet;

use larder_format::ids::ContainerId;
use larder_format::names;
use larder_store::Repository;
use larder_store::presence::Presence;
use larder_store::rules::Rule;

use super::decide::Proposal;
use crate::error::PassError;
use crate::known_versions::Ledger;

/// Asks for what retired containers forward to that are to be deleted: what is not there is
/// missing.
pub(super) async fn ask_for_forwards(
    repository: &Repository,
    ledger: &Ledger,
    proposal: &mut Proposal,
) -> Result<(), PassError> {
    if !repository.keeps(Rule::ForwardsThere) {
        return Ok(());
    }
    let forwards: BTreeSet<ContainerId> = proposal.doomed_ids().flat_map(|id| ledger.forwards_of(&id)).collect();
    // What nobody needs any more may forward to what went.
    let needed: Vec<ContainerId> = match forwards.is_empty() {
        true => return Ok(()),
        false => ledger.used().filter(|id| forwards.contains(id)).collect(),
    };
    let look = repository.look_for_containers(needed, |id, presence| {
        if presence != Presence::Present {
            proposal.miss(id);
        }
        Ok::<_, PassError>(())
    });
    look.await
}

/// Asks for what is missing: what is there all the same was lacking in a listing.
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
