//! Which containers a pass lists: those of jobs that may have containers which no index knows. All
//! others are in the index.
//!
//! A container is found without a listing as long as the index has a record of it. A pass keeps the
//! record until the container is unneeded and may go. So these containers are listed:
//! * those of jobs that have leases, or a closing mark and no version in the index. A container of
//!   a settled job has a record or goes before the job's leases do
//!   ([`Proposal::decide`](super::decide::Proposal::decide));
//! * those in the queue of the index, because the pass that published it may not have deleted all.
//!
//! Two kinds of containers are in none of these: those that a store applied late, and those that a
//! fenced job uploaded before it noticed. No version needs them, and a full listing finds them. It
//! is due at intervals ([`WHOLE_EVERY`]), after an index was lost or rebuilt, when it costs no
//! more, or on request. Safety does not depend on the listing, but only listed containers can be
//! deleted by mistake.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_format::ids::JobId;
use larder_format::index_manifest::{IndexManifest, QueuedObject};
use larder_format::lease::Pin;
use larder_store::survey::ListedJob;

/// Of the indexes that ingest something, one of this number is made with a full listing.
pub(super) const WHOLE_EVERY: u64 = 32;

/// Names in the answer to one listing request.
const PAGE: u64 = 1000;

/// The containers that a pass lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Listing {
    /// Containers that may be unknown to the index; all when that is due or costs no more.
    #[default]
    Auto,
    /// Everything.
    Whole,
    /// Containers that may be unknown to the index, unless there is no index.
    New,
}

/// The chosen scope.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) is_whole: bool,
    /// Jobs whose containers may be unknown to the index.
    pub(super) jobs: BTreeSet<JobId>,
}

/// Facts about a repository that decide which containers its index may not know.
pub(super) struct Seen<'a> {
    pub(super) base: &'a IndexManifest,
    pub(super) number: u64,
    pub(super) jobs: &'a BTreeMap<JobId, ListedJob>,
    pub(super) registers: &'a BTreeMap<Pin, Vec<u32>>,
    pub(super) marks: &'a BTreeSet<Pin>,
}

impl Scope {
    pub(super) fn of(listing: Listing, seen: &Seen<'_>) -> Self {
        let Seen { base, jobs, .. } = seen;
        let known: HashSet<JobId> = base.versions.iter().map(|version| version.job).collect();
        let may_have_new = |(job, listed): &(&JobId, &ListedJob)| !listed.renewals.is_empty() || !known.contains(job);
        let of_jobs = jobs.iter().filter(may_have_new).map(|(job, _)| *job);
        let queued = base.queue.iter().filter_map(|queued| match queued.what {
            QueuedObject::Container(container) => Some(container.job),
            _ => None,
        });
        let jobs: BTreeSet<JobId> = of_jobs.chain(queued).collect();
        // A rebuilt index knows no earlier forgotten versions.
        let is_rebuilt =
            base.head.rebuilt.is_some_and(|below| below == base.head.next_container || base.queue.is_empty());
        let knows_little = base.head.number == 0 || is_rebuilt;
        let is_whole = match listing {
            Listing::Whole => true,
            Listing::New => knows_little,
            Listing::Auto => knows_little || (!jobs.is_empty() && seen.costs_no_more(jobs.len())) || seen.is_due(),
        };
        Self { is_whole, jobs }
    }
}

impl Seen<'_> {
    /// Whether a full listing takes no more requests than listing this number of jobs, data and
    /// metadata each.
    fn costs_no_more(&self, jobs: usize) -> bool {
        2 + self.base.head.statistics.containers / PAGE <= 2 * jobs as u64
    }

    /// Whether a full listing is due, and there is any work for the pass.
    fn is_due(&self) -> bool {
        let known: BTreeSet<Pin> =
            self.base.versions.iter().map(|version| Pin { series: version.series, job: version.job }).collect();
        let has_new = || self.registers.keys().any(|pin| !known.contains(pin) && !self.marks.contains(pin));
        self.number.is_multiple_of(WHOLE_EVERY) && (has_new() || known.iter().any(|pin| self.marks.contains(pin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::{ContainerId, ContainerKind, SeriesKey};
    use larder_format::index_manifest::{IndexedVersion, Queued, Reason, VersionState};
    use larder_format::layout::Layout;
    use larder_index::IndexSnapshot;

    fn job(number: u8) -> JobId {
        JobId([number; 16])
    }

    fn pin(number: u8) -> Pin {
        Pin { series: SeriesKey([0; 16]), job: job(number) }
    }

    fn listed(renewals: &[u32], has_done: bool) -> ListedJob {
        ListedJob { renewals: renewals.to_vec(), has_done, renewed_ms: 0 }
    }

    /// An index that knows version 1 of a hundred thousand containers, and left one of job 9 to be
    /// deleted.
    fn base() -> IndexManifest {
        let mut base = (*IndexSnapshot::empty().manifest).clone();
        (base.head.number, base.head.next_container) = (6, 100_000);
        base.head.statistics.containers = 100_000;
        let Pin { series, job: version } = pin(1);
        base.versions.push(IndexedVersion {
            number: 1,
            series,
            job: version,
            generation: 0,
            state: VersionState::Retained,
            layout: Layout::Standard,
            is_arranged: false,
            is_carried: false,
            is_proved: false,
            is_settled: true,
            seen_ms: 0,
        });
        let container = ContainerId { kind: ContainerKind::Data, job: job(9), seq: 0 };
        base.queue.push(Queued { what: QueuedObject::Container(container), reason: Reason::Collected, decided: 6 });
        base
    }

    fn scope(listing: Listing, base: &IndexManifest, number: u64, marked: &[u8]) -> (bool, Vec<u8>) {
        let jobs = [(1, listed(&[], true)), (2, listed(&[0, 1], false)), (3, listed(&[], true))];
        let jobs: BTreeMap<JobId, ListedJob> = jobs.into_iter().map(|(number, listed)| (job(number), listed)).collect();
        let registers = BTreeMap::from([(pin(1), vec![0])]);
        let marks = marked.iter().map(|number| pin(*number)).collect();
        let seen = Seen { base, number, jobs: &jobs, registers: &registers, marks: &marks };
        let Scope { is_whole, jobs } = Scope::of(listing, &seen);
        (is_whole, jobs.into_iter().map(|job| job.0[0]).collect())
    }

    #[test]
    fn jobs_with_leases_or_unknown_marks_and_the_queue_are_listed() {
        assert_eq!(scope(Listing::Auto, &base(), 7, &[]), (false, vec![2, 3, 9]));
        assert_eq!(scope(Listing::New, &base(), 7, &[]), (false, vec![2, 3, 9]));
        assert!(scope(Listing::Whole, &base(), 7, &[]).0);
    }

    #[test]
    fn everything_is_listed_without_an_index_after_a_rebuild_now_and_then_and_when_it_is_cheap() {
        let empty = (*IndexSnapshot::empty().manifest).clone();
        assert!(scope(Listing::New, &empty, 1, &[]).0);
        let mut rebuilt = base();
        rebuilt.head.rebuilt = Some(rebuilt.head.next_container);
        assert!(scope(Listing::New, &rebuilt, 7, &[]).0);
        rebuilt.head.next_container += 1;
        assert!(!scope(Listing::New, &rebuilt, 7, &[]).0);
        let mut small = base();
        small.head.statistics.containers = 4_000;
        assert!(scope(Listing::Auto, &small, 7, &[]).0);
        assert!(!scope(Listing::New, &small, 7, &[]).0);
        // Due, but nothing has changed; then the version that is known is forgotten.
        assert!(!scope(Listing::Auto, &base(), WHOLE_EVERY, &[]).0);
        assert!(scope(Listing::Auto, &base(), WHOLE_EVERY, &[1]).0);
        assert!(!scope(Listing::Auto, &base(), WHOLE_EVERY + 1, &[1]).0);
    }
}
