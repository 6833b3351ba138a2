//! The beginning of a job that writes: its lease, and *then* the looks at everything that the lease
//! names.

use futures::{StreamExt, TryStreamExt};
use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_format::lease::{JobKind, Lease, Pin};
use larder_format::manifest::Manifest;
use larder_job::{JobContext, LeaseKeeper};
use larder_reader::{Missing, missing_containers};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::rules::Rule;

/// Versions, and jobs to adopt, that are checked at once.
const CONCURRENT_CHECKS: usize = 16;

/// What a job wants to build on.
#[derive(Debug, Clone)]
pub struct Announcement<'a> {
    /// The series whose register the job may create.
    pub series: &'a str,
    /// The layout that the job writes.
    pub layout: Layout,
    /// Versions of any series whose containers it may use, as some listing had them.
    pub versions: Vec<Version>,
    /// Unfinished jobs of any series whose uploads it may use, and that [`may_adopt`].
    pub adopts: Vec<Pin>,
}

/// Whether a job that writes this layout may use the uploads of the job with this lease, if that
/// one stays open (`OneLayout`).
pub fn may_adopt(context: &JobContext, layout: Layout, lease: &Lease) -> bool {
    let repository = &context.repository;
    lease.kind == JobKind::Backup
        && lease.domain == repository.keys().domain()
        && (lease.layout == Some(layout) || !repository.keeps(Rule::OneLayout))
}

/// A job whose lease is written.
#[derive(Debug)]
pub struct Announced {
    /// For each version of the announcement its newest generation. `None`: it was forgotten, or it
    /// must not be built on. Its containers may be gone.
    pub versions: Vec<Option<Version>>,
    /// The jobs that may be adopted.
    pub adopts: Vec<Pin>,
    /// Keeps the lease.
    pub keeper: LeaseKeeper,
}

/// Writes the lease of a job that names these versions and jobs, and then looks at each of them.
///
/// # Errors
/// The lease cannot be written, or the store does not answer. The lease stays until it expires.
pub fn announce(
    context: &JobContext,
    job: JobId,
    announcement: Announcement<'_>,
) -> Result<Announced, RepositoryError> {
    let Announcement { series, layout, versions, adopts } = announcement;
    let repository = &context.repository;
    let pin = |version: &Version| Pin { series: version.series, job: version.id() };
    let lease = Lease {
        pins: versions.iter().map(pin).collect(),
        adopts: adopts.clone(),
        layout: Some(layout),
        ..context.lease(JobKind::Backup, series)
    };
    let mut keeper = None;
    if repository.keeps(Rule::LeaseFirst) {
        keeper = Some(LeaseKeeper::open(context, job, lease.clone())?);
    }
    // Only after the lease: earlier containers may have been retired meanwhile, but the present
    // ones stay.
    // The checks of each have their order; one does not wait for another.
    let versions = versions.into_iter().map(|version| async move {
        // The lease keeps the generation that is newest now. The listed one may have been
        // superseded before, by one in the other layout, with which this job shares nothing.
        let newest = match repository.keeps(Rule::GenerationAfterLease) {
            true => repository.retained_generation(&version).await?,
            false => repository.is_retained(pin(&version)).await?.then(|| Some(version.clone())),
        };
        let Some(newest) = newest else { return Ok(None) };
        if newest.is_none() {
            context.progress.note(&format!(
                "snapshot {} is not built on, because its newest manifest cannot be read or is gone; more is stored",
                version.id().short()
            ));
        }
        Ok::<_, RepositoryError>(newest.filter(|newest| newest.summary.layout == version.summary.layout))
    });
    let adoptable = adopts.into_iter().map(|pin| async move {
        let is_adoptable = repository.is_adoptable(pin).await?;
        Ok::<_, RepositoryError>(is_adoptable.then_some(pin))
    });
    let checked = async {
        let versions = futures::stream::iter(versions).buffered(CONCURRENT_CHECKS).try_collect::<Vec<_>>();
        let adoptable = futures::stream::iter(adoptable).buffered(CONCURRENT_CHECKS).try_collect::<Vec<_>>();
        futures::try_join!(versions, adoptable)
    };
    let (versions, adopts) = context.executor.block_on(checked)?;
    let keeper = match keeper {
        Some(keeper) => keeper,
        None => LeaseKeeper::open(context, job, lease)?,
    };
    Ok(Announced { versions, adopts: adopts.into_iter().flatten().collect(), keeper })
}

/// A version that may be built on, with its manifest.
#[derive(Debug)]
pub struct OpenVersion {
    /// The manifest: its container table says which containers may be used.
    pub manifest: Manifest,
    /// The containers that it names and that are missing. Chunks in them are no duplicates.
    pub missing: Missing,
}

impl OpenVersion {
    /// Whether none of its containers is known to be missing. No data of an incomplete base is
    /// reused unread.
    pub fn is_whole(&self) -> bool {
        self.missing.named.is_empty()
    }
}

/// Reads the manifest of a version that was announced. Damaged versions are not built on: `None`.
///
/// # Errors
/// The store does not answer.
pub fn open_version(context: &JobContext, version: &Version) -> Result<Option<OpenVersion>, RepositoryError> {
    match context.executor.block_on(context.repository.manifest(version)) {
        Ok(manifest) => {
            let missing = missing_containers(context, &manifest)?;
            Ok(Some(OpenVersion { manifest, missing }))
        }
        Err(error) if error.is_damage() => {
            tracing::warn!(%error, "a base version is damaged and not built on");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
