//! Whether the repository is older than this machine remembers it, for a check of the repository.

use larder_format::lease::Pin;
use larder_index::{Current, IndexSnapshot, State};
use larder_job::{JobContext, RolledBack};
use larder_state::SeenIndex;

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
