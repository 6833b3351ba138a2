//! Whether the repository is older than this machine remembers it, for a check of the repository.

use std::collections::BTreeSet;

use larder_format::index_manifest::VersionState;
use larder_format::lease::Pin;
use larder_index::{Current, IndexSnapshot, State};
use larder_job::{JobContext, RolledBack};
use larder_state::SeenIndex;
use larder_store::Repository;

use crate::error::PassError;

/// What this machine remembers and the repository has no trace of. Reads a listing of the versions,
/// and the newest index where the key opens it; nothing if this machine remembers nothing.
///
/// # Errors
/// The store fails. A damaged index is left to those who read it.
pub async fn rolled_back(context: &JobContext) -> Result<Vec<RolledBack>, PassError> {
    let repository = context.repository.through(context.repository.store().without_cache());
    let seen = context.machine.seen();
    let mut found = Vec::new();
    // Keys of one domain do not see what others read.
    if repository.keys().is_for_all_domains() {
        let closed = repository.closed_domains().await?;
        found.extend(seen.opened_again(|domain| closed.contains(domain)));
        context.machine.note_closed(closed.ids());
    }
    if seen.newest().next().is_some() {
        let registers = repository.list_registers().await?;
        let is_there = |version: &Pin| registers.get(version).is_some_and(|all| all.first() == Some(&0));
        let lost = context.lost_versions(is_there).await?;
        found.extend(lost.into_iter().map(|version| RolledBack::Version { version }));
    }
    if seen.index.is_some() && repository.keys().secrets().index.is_some() {
        // One that is known to be missing is another finding.
        let current = Current::look(&repository).await?;
        if matches!(current.state, State::Whole) {
            found.extend(seen.lost_index(seen_as(&current.snapshot)));
        }
    }
    Ok(found)
}

/// Versions without a manifest that nobody has forgotten: those that this machine remembers, and
/// those that the index has, where the key opens it.
///
/// # Errors
/// The store fails. A damaged index is left to those who read it.
pub async fn lost_versions(context: &JobContext) -> Result<Vec<Pin>, PassError> {
    let remembered = rolled_back(context).await?.into_iter().filter_map(|lost| match lost {
        RolledBack::Version { version } => Some(version),
        RolledBack::Index { .. } | RolledBack::Closing { .. } => None,
    });
    let mut lost: BTreeSet<Pin> = remembered.collect();
    let repository = context.repository.through(context.repository.store().without_cache());
    if repository.keys().secrets().index.is_some() {
        let (marks, registers) = (repository.list_marks().await?, repository.list_registers().await?);
        let is_lost = |version: &Pin| {
            !marks.contains(version) && registers.get(version).is_none_or(|all| all.first() != Some(&0))
        };
        let mut indexed = retained(&repository).await?;
        indexed.retain(is_lost);
        // One that was forgotten and collected meanwhile is not retained any more.
        if !indexed.is_empty() {
            let now = retained(&repository).await?;
            let marks = repository.list_marks().await?;
            lost.extend(indexed.into_iter().filter(|version| now.contains(version) && !marks.contains(version)));
        }
    }
    Ok(lost.into_iter().collect())
}

/// The retained versions of the newest index. None if it is damaged.
async fn retained(repository: &Repository) -> Result<BTreeSet<Pin>, PassError> {
    let current = Current::look(repository).await?;
    if !matches!(current.state, State::Whole) {
        return Ok(BTreeSet::new());
    }
    let versions = current.snapshot.manifest.versions.iter();
    let retained = versions.filter(|version| version.state == VersionState::Retained);
    Ok(retained.map(|version| Pin { series: version.series, job: version.job }).collect())
}

/// Takes the repository as it is: this machine no longer remembers what is gone.
///
/// # Errors
/// The store fails.
pub async fn accept(context: &JobContext, found: &[RolledBack]) -> Result<(), PassError> {
    let versions = found.iter().filter_map(|lost| match lost {
        RolledBack::Version { version } => Some(*version),
        RolledBack::Index { .. } | RolledBack::Closing { .. } => None,
    });
    context.machine.forget_series(versions.collect::<Vec<Pin>>());
    let domains = found.iter().filter_map(|lost| match lost {
        RolledBack::Closing { domain } => Some(*domain),
        RolledBack::Version { .. } | RolledBack::Index { .. } => None,
    });
    context.machine.forget_closed(domains.collect());
    if found.iter().any(|lost| matches!(lost, RolledBack::Index { .. })) {
        let newest = seen_as(&Current::look(&context.repository).await?.snapshot);
        context.machine.change(|seen| seen.index = Some(newest));
    }
    Ok(())
}

/// An index, as a machine remembers it.
pub(crate) fn seen_as(index: &IndexSnapshot) -> SeenIndex {
    SeenIndex { number: index.number, attempt: index.manifest.head.attempt, is_own: false }
}
