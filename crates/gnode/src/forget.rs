//! Forgetting by a policy: decides which versions go, for the caller to show, and then marks them.
//!
//! Forgetting marks versions and deletes nothing: a pass frees the space. It may run beside
//! everything else, and needs no more rights than a backup.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::StreamExt;
use jiff::tz::TimeZone;
use larder_format::ids::{ByteCount, JobId, SeriesKey};
use larder_format::lease::Pin;
use larder_format::mark::Forgotten;
use larder_job::JobContext;
use larder_lifecycle::lifecycle_map::{Categories, categories};
use larder_store::catalog::Version;
use larder_store::forget_marks::OwnedVersion;
use larder_store::pins::{PinError, PinLine};
use larder_store::rules::Rule;
use larder_store::{Repository, RepositoryError};

use crate::exclusive_bytes::{SharesBudget, exclusive_bytes};
use crate::first_seen::unconfirmed;
use crate::retention::{Candidate, GroupBy, GroupKey, Policy, Reason, judge};

/// Marks that are made at once.
const CONCURRENT_MARKS: usize = 16;

/// Versions that are asked for at once.
const CONCURRENT_LOOKS: usize = 64;

/// A version and the policy's decision about it.
#[derive(Debug, Clone)]
pub struct Judged {
    /// The version.
    pub version: Version,
    /// Why it is kept; empty: it goes.
    pub reasons: Vec<Reason>,
}

impl Judged {
    /// Whether it stays.
    pub fn is_kept(&self) -> bool {
        !self.reasons.is_empty()
    }

    /// Whether nothing confirms the time that it claims, so that it is kept in addition.
    pub fn is_unconfirmed(&self) -> bool {
        self.reasons.contains(&Reason::Unconfirmed)
    }
}

/// The decision of a policy about the versions of one group.
#[derive(Debug, Clone)]
pub struct JudgedGroup {
    /// The key that they share.
    pub key: GroupKey,
    /// They, oldest first.
    pub versions: Vec<Judged>,
}

impl JudgedGroup {
    /// Whether no version of the group would be left, which is hardly the purpose of a policy. One
    /// that claims an unconfirmed time does not stand for the others.
    pub fn loses_all(&self) -> bool {
        let mut judged = self.versions.iter().filter(|judged| !judged.is_unconfirmed()).peekable();
        judged.peek().is_some() && judged.all(|judged| !judged.is_kept())
    }
}

/// Everything a decision needs to know besides the versions.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The criteria of grouping.
    pub group_by: GroupBy,
    /// Whose calendar counts.
    pub zone: TimeZone,
    /// The time.
    pub now_ms: u64,
    /// The limits of finding out sizes.
    pub budget: SharesBudget,
}

/// The version as leases, marks and pins name it.
pub fn pin_of(version: &Version) -> Pin {
    Pin { series: version.series, job: version.id() }
}

/// Decides which of the versions go. Changes nothing.
///
/// A rule counts versions and lets the others go. A listing that lacks a mark would count a
/// forgotten version, and let another one go instead. Every version that is kept beside others that
/// go is therefore asked for by name (`AskedTwice`). Without those that are forgotten or gone the
/// policy decides again.
pub async fn decide(
    repository: &Repository,
    question: &Question<'_>,
    mut versions: Vec<Version>,
    pinned: &BTreeMap<Pin, PinLine>,
) -> Result<Vec<JudgedGroup>, RepositoryError> {
    let unconfirmed = unconfirmed(repository, &versions, question.now_ms).await?;
    loop {
        let judged = decide_on(repository, question, versions.clone(), pinned, &unconfirmed).await?;
        let goes = |group: &&JudgedGroup| group.versions.iter().any(|judged| !judged.is_kept());
        let kept = judged.iter().filter(goes).flat_map(|group| &group.versions).filter(|judged| judged.is_kept());
        let gone = gone(repository, kept.map(|judged| pin_of(&judged.version)).collect()).await?;
        if gone.is_empty() {
            return Ok(judged);
        }
        versions.retain(|version| !gone.contains(&pin_of(version)));
    }
}

/// Which of these versions are forgotten or gone, asked of each by its name. One whose mark cannot
/// be read counts as forgotten: nothing goes for its sake.
async fn gone(repository: &Repository, versions: Vec<Pin>) -> Result<BTreeSet<Pin>, RepositoryError> {
    if !repository.keeps(Rule::AskedTwice) {
        return Ok(BTreeSet::new());
    }
    let looks = versions.into_iter().map(|version| async move {
        let is_gone = match repository.forgotten(version).await {
            Ok(Some(_)) => true,
            Ok(None) => !repository.has_register(version, 0).await?,
            Err(error) if error.is_of_object() => true,
            Err(error) => return Err(error),
        };
        Ok(is_gone.then_some(version))
    });
    let looks: Vec<_> = futures::stream::iter(looks).buffer_unordered(CONCURRENT_LOOKS).collect().await;
    looks.into_iter().filter_map(Result::transpose).collect()
}

async fn decide_on(
    repository: &Repository,
    question: &Question<'_>,
    versions: Vec<Version>,
    pinned: &BTreeMap<Pin, PinLine>,
    unconfirmed: &HashSet<Pin>,
) -> Result<Vec<JudgedGroup>, RepositoryError> {
    let arranged = match question.policy.size {
        Some(_) => Some(categories(repository, &versions).await?),
        None => None,
    };
    let mut groups: BTreeMap<GroupKey, Vec<Version>> = BTreeMap::new();
    for version in versions {
        groups.entry(question.group_by.key(&version.summary)).or_default().push(version);
    }
    let mut judged = Vec::new();
    for (key, mut versions) in groups {
        versions.sort_by_key(|version| std::cmp::Reverse(version.rank()));
        let is_confirmed = |version: &Version| !unconfirmed.contains(&pin_of(version));
        let mut sizes = match &arranged {
            Some(arranged) => {
                let counted: Vec<Version> = versions.iter().filter(|version| is_confirmed(version)).cloned().collect();
                sizes(repository, &counted, arranged, question.budget).await?.into_iter()
            }
            None => Vec::new().into_iter(),
        };
        let candidates: Vec<_> = versions
            .iter()
            .map(|version| Candidate {
                id: version.id(),
                // A time in the future counts as that of the start of its job, as for `latest`.
                time_ms: version.rank().0,
                tags: &version.summary.tags,
                is_confirmed: is_confirmed(version),
                is_pinned: pinned.contains_key(&pin_of(version)),
                series: version.series,
                is_complete: version.summary.statistics.errors == 0,
                bytes: if is_confirmed(version) { sizes.next().unwrap_or_default() } else { ByteCount::default() },
            })
            .collect();
        let reasons = judge(question.policy, &question.zone, question.now_ms, &candidates);
        let mut versions: Vec<_> =
            versions.into_iter().zip(reasons).map(|(version, reasons)| Judged { version, reasons }).collect();
        versions.reverse();
        judged.push(JudgedGroup { key, versions });
    }
    Ok(judged)
}

/// Bytes that each of these versions uses and none of those before it in the list. Data in the
/// layout `lifecycle` counts by byte, all else by whole containers.
async fn sizes(
    repository: &Repository,
    versions: &[Version],
    arranged: &BTreeMap<SeriesKey, Categories>,
    budget: SharesBudget,
) -> Result<Vec<ByteCount>, RepositoryError> {
    let each: Vec<Option<usize>> = (0..versions.len()).map(Some).collect();
    let shares = exclusive_bytes(repository, versions, &each, versions.len(), budget).await?;
    let mut sizes: Vec<ByteCount> = shares.each.into_iter().map(|share| share.added).collect();
    for (series, categories) in arranged {
        let places = || (0..versions.len()).filter(|place| versions[*place].series == *series);
        let ids: Vec<JobId> = places().map(|place| versions[place].id()).collect();
        for (place, added) in places().zip(categories.added(&ids)) {
            sizes[place].0 += added.0;
        }
    }
    Ok(sizes)
}

/// The outcome of forgetting versions.
#[derive(Debug, Default)]
pub struct Forgot {
    /// Those that are forgotten now.
    pub done: Vec<JobId>,
    /// Those that are not forgotten, with the reason: pinned since the decision, or the store
    /// failed.
    pub failed: Vec<(JobId, PinError)>,
}

/// Forgets versions, several at once. A failure of one does not stop the others.
pub async fn create_marks(repository: &Repository, versions: Vec<(OwnedVersion, Forgotten)>) -> Forgot {
    create_decided(repository, versions.into_iter().map(|(owned, mark)| (owned, mark, None)).collect()).await
}

/// The same after a decision by the tags that each version had then. A version whose tags have
/// changed since stays.
pub async fn create_decided(
    repository: &Repository,
    versions: Vec<(OwnedVersion, Forgotten, Option<Vec<String>>)>,
) -> Forgot {
    let marks = versions.into_iter().map(|(owned, mark, tags)| async move {
        (owned.version.job, repository.forget_decided(owned, &mark, tags.as_deref()).await)
    });
    let mut marks = futures::stream::iter(marks).buffered(CONCURRENT_MARKS);
    let mut forgot = Forgot::default();
    while let Some((job, result)) = marks.next().await {
        match result {
            Ok(()) => forgot.done.push(job),
            Err(error) => forgot.failed.push((job, error)),
        }
    }
    forgot
}

/// A version to forget, and its successor.
#[derive(Debug, Clone)]
pub struct Replaced {
    /// The version.
    pub old: OwnedVersion,
    /// The one that was made of it.
    pub new: OwnedVersion,
    /// The tags of the old one, which the new one has as well.
    pub tags: Vec<String>,
}

/// The outcome of forgetting versions that have successors.
#[derive(Debug, Default)]
pub struct Replacement {
    /// The old versions.
    pub forgot: Forgot,
    /// Old versions that stay because their successors could not be held, with the reason.
    pub unheld: Vec<(JobId, PinError)>,
}

/// Forgets versions that have successors. `stands` looks at the successors, and names the old
/// versions that may go. Nobody can forget a successor between that look and the mark of its
/// predecessor: it is held meanwhile.
///
/// # Errors
/// `stands` fails, and nothing was forgotten.
pub fn replace<E>(
    context: &JobContext,
    replaced: &[Replaced],
    mark: &Forgotten,
    stands: impl FnOnce() -> Result<HashSet<JobId>, E>,
) -> Result<Replacement, E> {
    let repository = &context.repository;
    let mut replacement = Replacement::default();
    let (mut held, mut holds) = (Vec::new(), Vec::new());
    for one in replaced {
        match context.executor.block_on(repository.hold(one.new, mark.time_ms, &mark.host, &mark.reason)) {
            Ok(hold) => {
                holds.push(hold);
                held.push(one);
            }
            Err(error) => replacement.unheld.push((one.old.version.job, error)),
        }
    }
    let standing = stands();
    if let Ok(standing) = &standing {
        let goes = held.iter().filter(|one| standing.contains(&one.old.version.job));
        let marks = goes.map(|one| (one.old, mark.clone(), Some(one.tags.clone()))).collect();
        replacement.forgot = context.executor.block_on(create_decided(repository, marks));
    }
    for hold in holds {
        if let Err(error) = context.executor.block_on(repository.release(hold, context.clock.now_ms())) {
            tracing::warn!(%error, "a snapshot stays pinned that was made of another one");
        }
    }
    standing.map(|_| replacement)
}
