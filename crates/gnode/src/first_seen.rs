//! When the store first had a version: the test of the time that a version claims.
//!
//! A client states the time of its version. Without an operator's signature, that time alone is the
//! word of a machine that may only back up, and forged times would displace real versions. The
//! store's time of generation 0 is not in the client's hands, and nobody can replace that object.
//! The id states a time, too, and a version counts as no newer than that ([`Version::rank`]). So
//! both times have to be confirmed.
//!
//! An operator may state any time, but the clock of its machine may be wrong. A signed version says
//! when its backup ended. If the store got it more than a day after that, its clock was behind, and
//! its time is confirmed by nothing. Nor is a time of the future: the clock was ahead. The store's
//! time does not show that, because the clock of a small server may be behind.
//!
//! Somebody may copy the whole repository, and then all its objects are young. The index is copied
//! with them, and its rows have the times that earlier passes saw. So the earliest one counts.
//!
//! A time of 0 is no time, everywhere here.

use std::collections::{BTreeMap, HashSet};

use larder_format::lease::Pin;
use larder_format::manifest::Summary;
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

/// Whether the clock of a signed version's machine was behind: by its own clock it was complete
/// more than a day before the store first had it. Without a time of the store, nothing tells.
fn was_behind(ended_ms: u64, seen_ms: impl IntoIterator<Item = u64>) -> bool {
    earliest(seen_ms).is_some_and(|first_ms| ended_ms.saturating_add(CLAIM_MAX_MS) < first_ms)
}

/// Those of these versions that claim a time which neither a signature nor the store confirms, or
/// which were made by a clock that was wrong. The index is only read if the times of the store do
/// not tell. `now_ms`: the time, milliseconds since the epoch.
pub async fn unconfirmed(
    repository: &Repository,
    versions: &[Version],
    now_ms: u64,
) -> Result<HashSet<Pin>, RepositoryError> {
    // The index knows earlier times only, which can but confirm a signed version.
    let is_in_doubt = |version: &&Version| match version.summary.is_signed {
        true => was_behind(version.summary.ended_ms, [version.made_ms]) || version.is_of_the_future(now_ms),
        false => true,
    };
    let in_doubt: Vec<&Version> = versions.iter().filter(is_in_doubt).collect();
    if in_doubt.is_empty() {
        return Ok(HashSet::new());
    }
    let seen = seen_by_passes(repository).await?;
    let is_unconfirmed = |version: &&Version| {
        let by_passes = seen.get(&OwnedVersion::from(*version).version).copied();
        let seen_ms = by_passes.into_iter().chain([version.made_ms]);
        let (counted_ms, _) = version.rank();
        let Summary { is_signed, time_ms, ended_ms, .. } = version.summary;
        let is_refuted = match is_signed {
            true => was_behind(ended_ms, seen_ms),
            // Its maker chose the id as well, and policies judge by the earlier one of the two.
            false => [time_ms, counted_ms].into_iter().any(|time_ms| !is_confirmed(time_ms, seen_ms.clone())),
        };
        is_refuted || version.is_of_the_future(now_ms)
    };
    Ok(in_doubt.into_iter().filter(is_unconfirmed).map(|version| OwnedVersion::from(version).version).collect())
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

    #[test]
    fn a_clock_was_behind_if_the_store_had_the_version_a_day_after_its_end() {
        let (day, later) = (CLAIM_MAX_MS, NOON + CLAIM_MAX_MS + 1);
        assert!(was_behind(NOON, [later]) && was_behind(0, [NOON]) && was_behind(NOON, [later, later + day]));
        // A copied bucket is young, and the index tells when the version came.
        assert!(!was_behind(NOON, [NOON + 30 * day, NOON]));
        for seen_ms in [NOON, NOON + day, NOON - 400 * day, 0] {
            assert!(!was_behind(NOON, [seen_ms]), "{seen_ms}");
        }
        assert!(!was_behind(NOON, []) && !was_behind(u64::MAX, [NOON]));
    }
}
