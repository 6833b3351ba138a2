//! The choice of the versions that a backup builds on.
//!
//! The first base is *followed*: files that look as they did there are taken over unread, and so is
//! data whose MAC it knows. Everybody with a key of the domain could have made it, so only a
//! version of this machine is followed (`WitnessedOnly`), or one that the user names. The chunks of
//! other versions are found by their fingerprints.

use larder_format::ids::JobId;
use larder_format::lease::Pin;
use larder_format::manifest::Summary;
use larder_job::{JobContext, RolledBack};
use larder_store::catalog::{Catalog, Version};
use larder_store::rules::Rule;
use larder_writer::Cutting;

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

impl Candidate {
    pub(super) fn pin(&self) -> Pin {
        Pin { series: self.version.series, job: self.version.id() }
    }
}

/// The possible bases of the job.
pub(super) struct Bases {
    /// The requested version, else the newest of the series and the newest that this machine made,
    /// else similar ones of other series.
    pub(super) candidates: Vec<Candidate>,
    /// The version before the base, if it can serve.
    pub(super) before: Option<Version>,
    /// Chunks born before this version are merged.
    pub(super) merge_before: Option<JobId>,
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
    let mut catalog = match options.base {
        Some(_) => context.executor.block_on(repository.catalog())?,
        None => context.executor.block_on(repository.catalog_of_series(&options.series))?,
    };
    for damaged in &catalog.damaged {
        tracing::warn!(object = %damaged.name, error = %damaged.error, "a version cannot be read and is not built on");
    }
    warn_of_roll_back(context, options, &catalog)?;
    // The newest by the start of its job; `--time` may state any time.
    catalog.versions.sort_by_key(|version| std::cmp::Reverse(version.id()));
    let of_series = catalog.versions.iter().filter(|version| version.summary.series == options.series);
    // A chunk found again by this version is duplicate once more than there are versions since its
    // birth.
    let policy = layout_policy::of(of_series.clone().next().map_or(options.layout, |newest| newest.summary.layout));
    let merge_before = policy.merge_after(options).and_then(|times| match times.get() {
        1 => Some(job),
        times => of_series.clone().map(Version::id).nth(times - 2),
    });
    let is_own = |version: &Version| context.machine.made(&version.summary) || !repository.keeps(Rule::WitnessedOnly);
    let newest_own = catalog.versions.iter().find(|version| is_own(version)).cloned();
    let since_full = since_full(of_series.map(|version| &version.summary));
    let mut versions = catalog.versions.into_iter();
    let own = match options.base {
        Some(id) => {
            let version = versions.find(|version| version.id() == id).ok_or(BackupError::NoSuchBase { id })?;
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
        let mut older = versions.take(if options.base.is_none() { policy.bases_before() } else { 0 });
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
        return Ok(Bases { candidates, before, merge_before, policy, input, since_full });
    }
    let (similar, input) = find_similar(context, input, cutting, options.index_memory)?;
    let similar = similar.into_iter().map(|version| {
        let is_trusted = is_own(&version);
        Candidate { version, why: WhyBase::Similar, is_trusted }
    });
    Ok(Bases { candidates: similar.collect(), before: None, merge_before, policy, input, since_full })
}

/// The number of versions, the newest first, before one of which all was read.
fn since_full<'a>(versions: impl Iterator<Item = &'a Summary>) -> usize {
    versions.take_while(|summary| summary.statistics.read_bytes < summary.statistics.stream_bytes).count()
}

/// Tells when the newest version that this machine made of the series is gone.
fn warn_of_roll_back(context: &JobContext, options: &BackupOptions, catalog: &Catalog) -> Result<(), BackupError> {
    let series = context.repository.keys().series_key(&options.series);
    let Some(job) = context.machine.newest_of(series) else { return Ok(()) };
    let (versions, damaged) = (catalog.versions.iter().map(Version::id), catalog.damaged.iter().map(|found| found.id));
    if versions.chain(damaged).any(|id| id == job) {
        return Ok(());
    }
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
