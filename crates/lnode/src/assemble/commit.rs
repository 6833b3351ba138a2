//! The end of a job that writes a version: the manifest, and its create-if-absent.

use larder_format::content::ContentRoots;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_format::lease::{Done, Pin};
use larder_format::manifest::{Manifest, Origin, SourceKind, Statistics, Summary};
use larder_format::names;
use larder_format::recipe::Recipe;
use larder_format::sketch::Sketch;
use larder_job::{Ending, JobContext};
use larder_store::RepositoryError;
use larder_store::repository::random;
use larder_store::rules::Rule;
use larder_writer::{ContainerTotals, Usage, container_table};

use super::{AssembleError, Output};

/// What a version says of itself.
#[derive(Debug, Clone)]
pub struct Description {
    /// Name of the series.
    pub series: String,
    /// The layout of its containers.
    pub layout: Layout,
    /// The version it was deduplicated against first.
    pub base: Option<JobId>,
    /// Further versions that it was deduplicated against.
    pub more_bases: Vec<JobId>,
    /// Time of the version, milliseconds since the epoch.
    pub time_ms: u64,
    /// When the job began, milliseconds since the epoch.
    pub started_ms: u64,
    /// Host to record.
    pub host: String,
    /// User to record.
    pub user: String,
    /// Tags to record, in any order.
    pub tags: Vec<String>,
    /// The paths of the input, for people: absolute.
    pub paths: Vec<Vec<u8>>,
    /// Name and version of the program, to record.
    pub program: String,
    /// Tree or stream.
    pub source: SourceKind,
    /// The version of another repository of which this one is a copy.
    pub origin: Option<Origin>,
}

/// What a version holds.
#[derive(Debug, Clone)]
pub struct Contents {
    /// The data stream.
    pub data: Recipe,
    /// The metadata stream.
    pub metadata: Recipe,
    /// How much both use of each container.
    pub usage: Usage,
    /// The counts.
    pub statistics: Statistics,
    /// Samples of the data stream.
    pub sketch: Sketch,
}

/// The manifest of a version. `held` knows the containers that the job may use: its own, those of
/// versions that its lease names, and those of jobs that it adopts.
///
/// # Errors
/// A container is not among these.
pub fn manifest(
    context: &JobContext,
    job: JobId,
    description: Description,
    contents: Contents,
    held: impl Fn(&ContainerId) -> Option<ContainerTotals>,
) -> Result<Manifest, AssembleError> {
    let Contents { data, metadata, usage, statistics, sketch } = contents;
    let Some(containers) = container_table(&usage, &held) else {
        let unknown = usage.keys().find(|container| held(container).is_none());
        let container = unknown.copied().unwrap_or(ContainerId { kind: ContainerKind::Meta, job, seq: 0 });
        return Err(AssembleError::NotNamed { container });
    };
    let repository = &context.repository;
    let Description { mut tags, .. } = description;
    tags.sort();
    tags.dedup();
    let summary = Summary {
        id: job,
        series: description.series,
        base: description.base,
        time_ms: description.time_ms,
        started_ms: description.started_ms,
        ended_ms: context.clock.now_ms(),
        host: description.host,
        user: description.user,
        tags,
        paths: description.paths,
        program: description.program,
        source: description.source,
        statistics,
        attempt: random(repository.entropy())?,
        sketch,
        layout: description.layout,
        more_bases: description.more_bases,
        domain: repository.keys().domain(),
        is_signed: repository.keys().can_sign(),
        roots: ContentRoots::of(&data, &metadata),
        witness: None,
        domain_name: repository.keys().secrets().domain_name.clone(),
        domain_epoch: repository.keys().secrets().domain_epoch,
        origin: description.origin,
    };
    let summary = Summary { witness: context.machine.witness(&summary), ..summary };
    Ok(Manifest { summary, data, metadata, containers })
}

/// Creates the manifest in its job's commit register: that is the version. All containers must be
/// acknowledged ([`Output::wait`]). Returns how the job's lease ends.
///
/// # Errors
/// The job was declared dead, the domain was closed, or the store does not answer.
pub fn commit(context: &JobContext, manifest: &Manifest, output: &Output) -> Result<Ending, AssembleError> {
    commit_as(context, manifest, |done| output.with_containers(done))
}

/// The same for a job without containers of its own. Those of the jobs that it adopts must be
/// acknowledged.
///
/// # Errors
/// As with [`commit`].
pub fn commit_adopting(context: &JobContext, manifest: &Manifest) -> Result<Ending, AssembleError> {
    commit_as(context, manifest, |done| done)
}

fn commit_as(
    context: &JobContext,
    manifest: &Manifest,
    with_containers: impl FnOnce(Done) -> Done,
) -> Result<Ending, AssembleError> {
    let repository = &context.repository;
    let job = manifest.summary.id;
    let series = repository.keys().series_key(&manifest.summary.series);
    let done = with_containers(Done::committed(series));
    if !repository.keeps(Rule::CloseLast) {
        let mark = done
            .encode(repository.keys(), repository.keys().domain(), job, random(repository.entropy())?)
            .map_err(RepositoryError::from)?;
        let created = context.executor.block_on(repository.store().create(&names::lease_done(job), mark.into()));
        created.map_err(RepositoryError::from)?;
    }
    // It may have been closed while this job ran, and then the version would not count.
    context.executor.block_on(repository.expect_open_domain())?;
    let created = context.executor.block_on(repository.commit(series, manifest))?;
    context.machine.note_version(Pin { series, job });
    let is_answered = created.all_answered || !repository.keeps(Rule::CloseOnlyAnswered);
    Ok(Ending::closed_if(is_answered, done))
}
