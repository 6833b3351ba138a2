//! Whether rewriting a newest version is worth its cost yet.
//!
//! Restores of the newest version read all of its containers, so what they hold beside it costs
//! time. Copying costs about as much as a backup of new data. If a round follows each backup, it
//! could cost more than the backups. So a rewrite waits until the backups since the last one pay
//! for it: those of the same series, of which one later than the last has no later generation. It
//! does not wait if the version has become slow to read.
//!
//! The figures are estimates from statistics of versions. Their writers may have made them up. Then
//! rewrites come too late or too early, within the budgets of defragmentation.

use larder_format::container::CONTAINER_TARGET;
use larder_format::ids::JobId;
use larder_format::manifest::Statistics;
use larder_job::JobContext;
use larder_store::RepositoryError;
use larder_store::catalog::Version;

use crate::defragment::DefragmentPlan;

/// Above this share of what the version uses (percent), its containers hold too much to wait.
const SLOW_PERCENT: u64 = 150;
/// More containers than half as many again as full ones would be, and this number, are too many to
/// wait: each costs a request.
const MANY_CONTAINERS: u64 = 8;
/// Copying this many bytes costs less than the requests of a decision.
const CHEAP_BYTES: u64 = 1 << 20;
/// To read and compare an old byte costs a backup one part in this number of what a new one costs.
const READ_ONE_IN: u64 = 4;
/// One copied byte for this number of new ones: some 1.6 times the cost of a new one, of which a
/// fifth of a backup's cost may be spent. Older versions get as much.
const PAID_ONE_IN: u64 = 8;

/// Why a version is rewritten, or not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its containers hold far more than it uses.
    Slow,
    /// It uses many more containers than it would fill.
    Many,
    /// The backups since the last rewrite pay for it.
    Paid,
    /// It shares data with others, or needs the index. The cost does not matter.
    Needed,
    /// The backups since the last rewrite do not pay for it yet.
    Waits,
}

/// A version for which a rewrite was considered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The version.
    pub id: JobId,
    /// The name of its series.
    pub series: String,
    /// Bytes that its data containers hold, uncompressed.
    pub held_bytes: u64,
    /// Bytes of these that it uses.
    pub used_bytes: u64,
    /// Data containers that it uses.
    pub containers: u64,
    /// Bytes that the rewrite copies, at most.
    pub copied_bytes: u64,
    /// Bytes that the backups since the last rewrite pay for.
    pub paid_bytes: u64,
    /// The number of these backups.
    pub backups: u64,
    /// The decision.
    pub reason: Reason,
}

impl Decision {
    /// Whether the version is rewritten.
    pub fn is_worth_it(&self) -> bool {
        self.reason != Reason::Waits
    }

    /// What its containers hold, by what it uses of them (percent).
    pub fn held_percent(&self) -> u64 {
        percent(self.held_bytes, self.used_bytes)
    }
}

/// Decides about a plan.
pub(super) fn decide(context: &JobContext, plan: &DefragmentPlan) -> Result<Decision, RepositoryError> {
    let version = &plan.version;
    let mut decision = Decision {
        id: version.id(),
        series: version.summary.series.clone(),
        held_bytes: plan.held_bytes,
        used_bytes: plan.used_bytes,
        containers: plan.used_containers,
        copied_bytes: plan.bytes,
        paid_bytes: 0,
        backups: 0,
        reason: Reason::Needed,
    };
    if !plan.is_for_reading() {
        return Ok(decision);
    }
    let is_rewritten = |version: &Version| version.generation > 0;
    let newest = context.repository.newest_of_series_key(version.series, |found| found.iter().any(is_rewritten));
    let newest = context.executor.block_on(newest)?.catalog.versions;
    let since: Vec<_> = newest.iter().take_while(|version| !is_rewritten(version)).collect();
    decision.backups = since.len() as u64;
    decision.paid_bytes = paid(since.iter().map(|version| &version.summary.statistics));
    decision.reason = reason(&decision);
    Ok(decision)
}

/// Bytes to copy that these backups pay for.
fn paid<'a>(backups: impl Iterator<Item = &'a Statistics>) -> u64 {
    let of_one = |of: &Statistics| of.added_bytes.saturating_add(of.read_bytes / READ_ONE_IN);
    backups.map(of_one).fold(0, u64::saturating_add) / PAID_ONE_IN
}

fn reason(of: &Decision) -> Reason {
    match () {
        () if percent(of.held_bytes, of.used_bytes) > SLOW_PERCENT => Reason::Slow,
        () if of.containers > of.used_bytes.div_ceil(CONTAINER_TARGET as u64) * 3 / 2 + MANY_CONTAINERS => Reason::Many,
        () if of.copied_bytes <= of.paid_bytes.max(CHEAP_BYTES) => Reason::Paid,
        () => Reason::Waits,
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn decided(held_bytes: u64, copied_bytes: u64, backups: &[(u64, u64)]) -> Reason {
        let backups: Vec<_> = backups
            .iter()
            .map(|(added_bytes, read_bytes)| Statistics {
                added_bytes: *added_bytes,
                read_bytes: *read_bytes,
                ..Statistics::default()
            })
            .collect();
        reason(&Decision {
            id: JobId([1; 16]),
            series: String::new(),
            held_bytes,
            used_bytes: 600 * MB,
            containers: 80,
            copied_bytes,
            paid_bytes: paid(backups.iter()),
            backups: backups.len() as u64,
            reason: Reason::Waits,
        })
    }

    #[test]
    fn a_rewrite_waits_until_backups_pay_for_it() {
        // A database of 600 MB, of which a tenth is new each time.
        let backup = (60 * MB, 600 * MB);
        let copied = 50 * MB;
        assert_eq!(decided(800 * MB, copied, &[backup]), Reason::Waits);
        assert_eq!(decided(800 * MB, copied, &[backup; 2]), Reason::Paid);
        // Nothing was read of a tree that did not change.
        assert_eq!(decided(800 * MB, copied, &[(MB, MB); 10]), Reason::Waits);
        assert_eq!(decided(800 * MB, MB, &[]), Reason::Paid, "that costs next to nothing");
    }

    #[test]
    fn a_slow_version_does_not_wait() {
        assert_eq!(decided(900 * MB, 500 * MB, &[]), Reason::Waits);
        assert_eq!(decided(907 * MB, 500 * MB, &[]), Reason::Slow);
    }

    #[test]
    fn small_containers_do_not_wait_for_ever() {
        let of = |containers| Decision {
            id: JobId([1; 16]),
            series: String::new(),
            held_bytes: 4 * MB,
            used_bytes: 4 * MB,
            containers,
            copied_bytes: 2 * MB,
            paid_bytes: 0,
            backups: 9,
            reason: Reason::Waits,
        };
        assert_eq!([9, 10].map(|containers| reason(&of(containers))), [Reason::Waits, Reason::Many]);
    }

    #[test]
    fn invented_statistics_overflow_nothing() {
        assert_eq!(decided(u64::MAX, u64::MAX, &[(u64::MAX, u64::MAX); 3]), Reason::Slow);
        assert_eq!(decided(0, u64::MAX, &[(u64::MAX, u64::MAX); 3]), Reason::Waits);
    }
}
