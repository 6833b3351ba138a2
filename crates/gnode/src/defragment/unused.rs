//! Which containers newest versions leave because no version uses some of their bytes.
//!
//! By default, versions leave sparse containers only, within a budget. Here the user has said how
//! much may stay unused, so whole versions may be copied. A container that an older version uses
//! stays, because only all recipes tell which of its bytes are unused.

use std::cmp::Reverse;
use std::collections::HashSet;

use futures::StreamExt;
use larder_format::ids::{ContainerId, JobId};
use larder_format::manifest::ContainerUsage;
use larder_job::JobContext;
use larder_store::RepositoryError;
use larder_store::catalog::Version;

use super::newest::{Newest, Uses};

/// Manifests that are read ahead. One of a terabyte has some ten megabytes.
const MANIFESTS_AHEAD: usize = 4;

/// The candidates that only newest versions use; `None` if that cannot be known.
///
/// Each other manifest is read, until no candidate is left. The youngest come first: they have most
/// in common with the newest versions.
pub(super) fn exclusive(
    context: &JobContext,
    newest: &[Newest],
    candidates: HashSet<ContainerId>,
) -> Result<Option<HashSet<ContainerId>>, RepositoryError> {
    let (repository, executor) = (&context.repository, &context.executor);
    let catalog = executor.block_on(repository.catalog())?;
    let newest: HashSet<JobId> = newest.iter().map(|newest| newest.version.id()).collect();
    let mut others: Vec<&Version> = catalog.versions.iter().filter(|version| !newest.contains(&version.id())).collect();
    // An id begins with the time.
    others.sort_unstable_by_key(|version| Reverse(version.id()));
    let mut exclusive = candidates;
    let mut manifests =
        futures::stream::iter(others.into_iter().map(|version| repository.manifest(version))).buffered(MANIFESTS_AHEAD);
    while !exclusive.is_empty()
        && let Some(manifest) = executor.block_on(manifests.next())
    {
        match manifest {
            Ok(manifest) => {
                for usage in &manifest.containers {
                    exclusive.remove(&usage.container);
                }
            }
            Err(error) if error.is_damage() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(catalog.damaged.is_empty().then_some(exclusive))
}

/// Of each version the containers that it leaves, the worst first. The limit is the share (percent)
/// of bytes in all containers of newest versions that may stay unused. All versions leave a
/// container, or none does. `taken` are left anyway.
pub(super) fn unused(
    newest: &[Newest],
    uses: &Uses,
    exclusive: &HashSet<ContainerId>,
    taken: &HashSet<ContainerId>,
    percent: f64,
) -> Vec<Vec<ContainerUsage>> {
    let mut rows: Vec<(f64, u64, ContainerId)> = Vec::new();
    let mut held_bytes = 0;
    for container in uses.containers() {
        let held = uses.of(&container).first().map_or(0, |used| used.usage.bytes_held);
        held_bytes += held;
        let unused = uses.unused_bytes(&container);
        if unused > 0 && exclusive.contains(&container) && !taken.contains(&container) {
            rows.push((unused as f64 / held as f64, unused, container));
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
    let mut left: u64 = rows.iter().map(|(_, unused, _)| unused).sum();
    let mut leaves = vec![Vec::new(); newest.len()];
    for (_, unused, container) in rows {
        if left as f64 * 100.0 <= held_bytes as f64 * percent {
            break;
        }
        left -= unused;
        for used in uses.of(&container) {
            leaves[used.version].push(used.usage);
        }
    }
    leaves
}
