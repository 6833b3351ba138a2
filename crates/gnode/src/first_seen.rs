//! When the store first had a version: the test of the time that a version claims.
//!
//! A client states the time of its version. Without an operator's signature, that time alone is the
//! word of a machine that may only back up, and forged times would displace real versions. The
//! store's time of generation 0 is not in the client's hands, and nobody can replace that object.
//! Somebody may copy the whole repository, and then all its objects are young. The index is copied
//! with them, and its rows have the times that earlier passes saw. So the earliest one counts.
//!
//! A time of 0 is no time, everywhere here.

use std::collections::{BTreeMap, HashSet};

use larder_format::lease::Pin;
use larder_index::{IndexError, IndexSnapshot};
use larder_store::catalog::Version;
use larder_store::forget_marks::OwnedVersion;
use larder_store::{Repository, RepositoryError};

/// How far the claimed time of a version may be from the time when the store first had it,
/// milliseconds: a backup may take a while, and clocks differ.
pub const CLAIM_MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// The earliest of several times that are none or milliseconds since the epoch.
pub(crate) fn earliest(times: impl IntoIterator<Item = u64>) -> Option<u64> {
    times.into_iter().filter(|time_ms| *time_ms > 0).min()
}

/// Whether a version without an operator's signature is judged by the time that it claims.
/// `seen_ms`: the times when the store, or a pass, first saw it. Without any, it is not.
pub(crate) fn is_confirmed(claimed_ms: u64, seen_ms: impl IntoIterator<Item = u64>) -> bool {
    earliest(seen_ms).is_some_and(|first_ms| claimed_ms.abs_diff(first_ms) <= CLAIM_MAX_MS)
}

/// Those of these versions that claim a time which neither a signature nor the store confirms. The
/// index is only read if some are not signed.
pub async fn unconfirmed(repository: &Repository, versions: &[Version]) -> Result<HashSet<Pin>, RepositoryError> {
    let unsigned: Vec<&Version> = versions.iter().filter(|version| !version.summary.is_signed).collect();
    if unsigned.is_empty() {
        return Ok(HashSet::new());
    }
    let seen = seen_by_passes(repository).await?;
    let is_unconfirmed = |version: &&Version| {
        let by_passes = seen.get(&OwnedVersion::from(*version).version).copied();
        !is_confirmed(version.summary.time_ms, by_passes.into_iter().chain([version.made_ms]))
    };
    Ok(unsigned.into_iter().filter(is_unconfirmed).map(|version| OwnedVersion::from(version).version).collect())
}

/// The times in the rows of the newest index. Without an index that can be read, there are none.
async fn seen_by_passes(repository: &Repository) -> Result<BTreeMap<Pin, u64>, RepositoryError> {
    let newest = match IndexSnapshot::newest(repository).await {
        Ok(newest) => newest,
        Err(IndexError::Repository(error)) => return Err(error),
        Err(error) => {
            tracing::warn!(%error, "the index does not tell when the store first had a snapshot");
            return Ok(BTreeMap::new());
        }
    };
    let rows = newest.snapshot.manifest.versions.iter();
    Ok(rows.map(|row| (Pin { series: row.series, job: row.job }, row.seen_ms)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_790_000_000_000;

    #[test]
    fn a_claim_counts_within_a_day_of_the_first_time() {
        for near in [NOON, NOON - CLAIM_MAX_MS, NOON + CLAIM_MAX_MS] {
            assert!(is_confirmed(near, [NOON]), "{near}");
        }
        for far in [0, 1, NOON - CLAIM_MAX_MS - 1, NOON + CLAIM_MAX_MS + 1, u64::MAX] {
            assert!(!is_confirmed(far, [NOON]), "{far}");
        }
    }

    #[test]
    fn the_earliest_time_counts_and_0_is_none() {
        let month = 30 * CLAIM_MAX_MS;
        // The bucket was copied a month later, and the index says when the version came.
        assert!(is_confirmed(NOON, [NOON + month, NOON]));
        assert!(!is_confirmed(NOON + month, [NOON + month, NOON]));
        assert!(is_confirmed(NOON, [0, NOON]) && is_confirmed(NOON, [NOON, 0]));
        // Without any time, nothing confirms a claim, not even one of the epoch.
        assert!(!is_confirmed(NOON, [0, 0]) && !is_confirmed(0, [0]) && !is_confirmed(NOON, []));
    }
}
