//! The choice of the versions that a backup builds on.
//!
//! The first base is *followed*: files that look as they did there are taken over unread, and so is
//! data whose MAC it knows. Everybody with a key of the domain could have made it, so only a
//! version of this machine is followed (`WitnessedOnly`), or one that the user names. The chunks of
//! other versions are found by their fingerprints.

use std::collections::HashSet;

use larder_format::ids::JobId;
use larder_format::lease::Pin;
use larder_format::manifest::Summary;
use larder_job::{JobContext, RolledBack};
use larder_store::catalog::{Filter, Version};
use larder_store::named_versions::NewestInSeries;
use larder_store::rules::Rule;
use larder_writer::{Cutting, Merge};

use super::layout_policy::{self, LayoutPolicy};
use super::similar::{Sampled, find_similar};
use super::skip_duplicates::is_too_much;
use super::{BackupError, BackupOptions, Input, WhyBase};

/// A version that may be built on.
pub(super) struct Candidate {
    pub(super) version: Version,
    pub(super) why: WhyBase,
    /// Whether it may be followed.
    pub(super) is_trusted: bool,
}

/// The possible bases of the job.
pub(super) struct Bases {
    /// The requested version, else the newest of the series and the newest that this machine made,
    /// else similar ones of other series.
    pub(super) candidates: Vec<Candidate>,
    /// The version before the base, if it can serve.
    pub(super) before: Option<Version>,
    /// The chunks of which runs are merged.
    pub(super) merge: Option<Merge>,
    /// The storage of the series in containers.
    pub(super) policy: &'static dyn LayoutPolicy,
    pub(super) input: Sampled,
    /// Versions of the series in a row that were not read as a whole, from the newest one on.
    pub(super) since_full: usize,
}

/// Finds the versions to build on.
pub(super) fn find_bases(
    context: &JobContext,
    options: &BackupOptions,
    job: JobId,
    input: Input,
    cutting: &Cutting,
) -> Result<Bases, BackupError> {
    let repository = &context.repository;
    context.executor.block_on(repository.expect_open_domain())?;
    // Another machine saw what a copy from another repository holds.
    let own_id = repository.config().repository;
    let is_own = |version: &Version| {
        let summary = &version.summary;
        !summary.is_copy_in(own_id) && context.machine.made(summary) || !repository.keeps(Rule::WitnessedOnly)
    };
    let counts_full = matches!(input, Input::Image(_));
    let suffices = |versions: &[Version]| {
        let Some(newest) = versions.first() else { return false };
        let policy = layout_policy::of(newest.summary.layout);
        let born_before = options.merge_after.map_or(0, |times| times.saturating_sub(2));
        // A machine without a witness finds none of its own.
        // A copy names its base, or follows none.
        let follows = !options.trust_newest && options.copy_of.is_none() && policy.follows_older();
        let needs_own = follows && context.machine.has_witness();
        versions.len() > born_before.max(policy.bases_before())
            && (!needs_own || versions.iter().any(is_own))
            && (!counts_full || since_full(versions.iter()) < versions.len())
    };
    let id = options.base.map(|id| id.to_string());
    let asked = async {
        match &id {
            Some(id) => Ok(repository.catalog_for(&[id], &Filter::default()).await?.versions),
            None => Ok(Vec::new()),
        }
    };
    let of_series = repository.newest_in_series(&options.series, suffices);
    let set = async {
        match options.layout_of_settings {
            true => Ok(repository.settings(repository.keys().series_key(&options.series)).await?.layout),
            false => Ok(options.layout),
        }
    };
    let (found, asked, set) = context.executor.block_on(async { futures::try_join!(of_series, asked, set) })?;
    // In the order of their jobs; `--time` may state any time.
    let NewestInSeries { listed, catalog } = found;
    for damaged in &catalog.damaged {
        tracing::warn!(object = %damaged.name, error = %damaged.error, "a version cannot be read and is not built on");
    }
    warn_of_roll_back(context, options, &listed)?;
    let of_series = || catalog.versions.iter().filter(|version| version.summary.series == options.series);
    // A chunk found again by this version is duplicate once more than there are versions since its
    // birth.
    // The series may have been forgotten between the two listings.
    let named = asked.iter().filter(|version| version.summary.series == options.series);
    let newest = of_series().chain(named).next();
    let policy = layout_policy::of(newest.map_or(set, |newest| newest.summary.layout));
    let merge = options.merge_after.and_then(|times| match times {
        0 => Some(Merge::All),
        1 => Some(Merge::BornBefore(job)),
        times => of_series().map(Version::id).nth(times - 2).map(Merge::BornBefore),
    });
    let newest_own = catalog.versions.iter().find(|version| is_own(version)).cloned();
    let since_full = since_full(of_series());
    let mut versions = catalog.versions.into_iter();
    // Anybody can give a version the id of another one. A copy follows one that this machine made,
    // or none.
    let series = repository.keys().series_key(&options.series);
    let is_proved = |version: &Version| {
        let is_own = version.series == series && context.machine.made(&version.summary);
        is_own && expect_shared(&version.summary, &options.series, policy).is_ok()
    };
    let asked: Vec<Version> =
        asked.into_iter().filter(|version| options.copy_of.is_none() || is_proved(version)).collect();
    let base = options.base.filter(|_| options.copy_of.is_none() || !asked.is_empty());
    let own = match base {
        Some(id) => {
            let mut asked = asked.into_iter();
            let version = asked.find(|version| version.id() == id).ok_or(BackupError::NoSuchBase { id })?;
            if version.summary.domain != repository.keys().domain() {
                return Err(BackupError::ForeignBase { id });
            }
            expect_shared(&version.summary, &options.series, policy)?;
            vec![Candidate { version, why: WhyBase::Asked, is_trusted: true }]
        }
        None => match versions.next() {
            None => Vec::new(),
            Some(version) => {
                let is_trusted = options.trust_newest || is_own(&version);
                let followed = newest_own.filter(|_| !is_trusted && policy.follows_older());
                let followed = followed.filter(|own| own.summary.layout == version.summary.layout);
                let followed = followed.map(|version| Candidate { version, why: WhyBase::Own, is_trusted: true });
                followed.into_iter().chain([Candidate { version, why: WhyBase::Newest, is_trusted }]).collect()
            }
        },
    };
    if !own.is_empty() || !policy.finds_similar(options) {
        let mut older = versions.take(if base.is_none() { policy.bases_before() } else { 0 });
        let before = older.next();
        let mut candidates = own;
        // The loss of the newest, or of the one before, tells the loss to expect.
        let newest = candidates.iter().map(|candidate| &candidate.version);
        let is_needed = newest.chain(&before).any(|version| is_too_much(&version.summary.statistics));
        let before = match is_needed {
            true => {
                let more = before.into_iter().chain(older);
                candidates.extend(more.map(|version| {
                    let is_trusted = is_own(&version);
                    Candidate { version, why: WhyBase::Before, is_trusted }
                }));
                None
            }
            false => before,
        };
        let input = Sampled::untouched(input);
        return Ok(Bases { candidates, before, merge, policy, input, since_full });
    }
    let (similar, input) = find_similar(context, input, cutting, options.index_memory)?;
    let similar = similar.into_iter().map(|version| {
        let is_trusted = is_own(&version);
        Candidate { version, why: WhyBase::Similar, is_trusted }
    });
    Ok(Bases { candidates: similar.collect(), before: None, merge, policy, input, since_full })
}

/// The number of versions, the newest first, before one of which all was read.
fn since_full<'a>(versions: impl Iterator<Item = &'a Version>) -> usize {
    let statistics = versions.map(|version| &version.summary.statistics);
    statistics.take_while(|statistics| statistics.read_bytes < statistics.stream_bytes).count()
}

/// Tells when the newest version that this machine made of the series is gone. `listed`: those that
/// have a register.
fn warn_of_roll_back(
    context: &JobContext,
    options: &BackupOptions,
    listed: &HashSet<JobId>,
) -> Result<(), BackupError> {
    let series = context.repository.keys().series_key(&options.series);
    let Some(job) = context.machine.newest_of(series).filter(|job| !listed.contains(job)) else { return Ok(()) };
    let lost = context.executor.block_on(context.lost_among([Pin { series, job }]))?;
    for version in lost {
        context.machine.note_missed(version);
        context.progress.note(&RolledBack::Version { version }.to_string());
    }
    Ok(())
}

/// An error when a requested version has no chunks that one of this series may share.
fn expect_shared(base: &Summary, series: &str, policy: &dyn LayoutPolicy) -> Result<(), BackupError> {
    if base.layout == policy.layout() && policy.shares_with(base, series) {
        return Ok(());
    }
    Err(BackupError::UnsharedBase {
        id: base.id,
        series: base.series.clone(),
        layout: base.layout,
        wanted: series.to_owned(),
        wanted_layout: policy.layout(),
    })
}
