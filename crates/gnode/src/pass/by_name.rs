//! What a listing lacks is asked for by its name before anything rests on its absence.
//!
//! A store may answer one listing wrongly, or lag. So a container that versions need and that was not listed counts as missing only when
//! the store says so of its name too; else the listing was wrong, and the pass decides nothing (`AskedTwice`). And what a retired
//! container forwards to is seen in the store before the retired one is deleted (`ForwardsThere`): a copy of a repository may have the
//! index of one moment and the containers of another.

use std::collections::BTreeSet;

use futures::StreamExt;
use larder_format::ids::ContainerId;
use larder_format::names;
use larder_store::rules::Rule;
use larder_store::{Repository, RepositoryError, StoreErrorKind};

use super::decide::Proposal;
use super::error::PassError;
use super::ledger::Ledger;
use super::run::Pass;

/// Containers that are asked for at once.
const CONCURRENT_LOOKS: usize = 32;

/// What the store says of the name of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum There {
    Yes,
    No,
    /// It is, and cannot be read.
    Unreadable,
}

/// Asks for containers by their names, in order. `each` gets the answers, and may end it.
pub(crate) async fn ask<E: From<RepositoryError>>(
    repository: &Repository,
    containers: impl IntoIterator<Item = ContainerId>,
    mut each: impl FnMut(ContainerId, There) -> Result<(), E>,
) -> Result<(), E> {
    let store = repository.store().without_cache();
    let looks = containers.into_iter().map(|id| {
        let store = &store;
        async move {
            let there = match store.size(&names::container(id)).await {
                Ok(_) => There::Yes,
                Err(error) if error.kind == StoreErrorKind::NotFound => There::No,
                Err(error) => match RepositoryError::from(error) {
                    error if error.is_of_object() => There::Unreadable,
                    error => return Err(error),
                },
            };
            Ok((id, there))
        }
    });
    let mut looks = futures::stream::iter(looks).buffered(CONCURRENT_LOOKS);
    while let Some(look) = looks.next().await {
        let (id, there) = look?;
        each(id, there)?;
    }
    Ok(())
}

impl Pass<'_> {
    /// Asks for what retired containers forward to that are to be deleted: what is not there is missing.
    pub(super) async fn ask_for_forwards(&self, ledger: &Ledger, proposal: &mut Proposal) -> Result<(), PassError> {
        if !self.repository.keeps(Rule::ForwardsThere) {
            return Ok(());
        }
        let forwards: BTreeSet<ContainerId> = proposal.doomed_ids().flat_map(|id| ledger.forwards_of(&id)).collect();
        // What nobody needs any more may forward to what went.
        let needed: Vec<ContainerId> = match forwards.is_empty() {
            true => return Ok(()),
            false => ledger.used().filter(|id| forwards.contains(id)).collect(),
        };
        ask(&self.repository, needed, |id, there| {
            if there != There::Yes {
                proposal.miss(id);
            }
            Ok::<_, PassError>(())
        })
        .await
    }

    /// Asks for what is missing: what is there all the same was lacking in a listing.
    pub(super) async fn ask_for_missing(&self, proposal: &Proposal) -> Result<(), PassError> {
        if !self.repository.keeps(Rule::AskedTwice) {
            return Ok(());
        }
        let missing: BTreeSet<ContainerId> = proposal.missing_ids().copied().collect();
        ask(&self.repository, missing, |id, there| match there {
            There::Yes => Err(PassError::WrongListing { name: names::container(id) }),
            There::No | There::Unreadable => Ok(()),
        })
        .await
    }
}
