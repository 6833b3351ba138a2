//! Sparse container compaction: what the newest version of a series uses of containers that hold little of it is copied together,
//! in the order of the version's stream, and the version gets a new generation of its manifest over the copies (SlimStore section
//! V-B; the budget is that of HAR).
//!
//! Every version that is laid out anew is a job of its own, whose register is the generation it creates (`OwnRegister` of
//! `docs/concurrency.md`). The containers that it gives up stay for the versions before it; nothing is deleted here.

use std::collections::HashSet;

use larder_format::compress::Compression;
use larder_format::ids::{ContainerKind, JobId};
use larder_format::lease::{JobKind, Lease, Pin};
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_lnode::Context;
use larder_lnode::lease::LeaseKeeper;
use larder_lnode::relayout::{Relayout, RelayoutError};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::jobs::CommitError;
use larder_store::repository::random;

/// When a container is sparse, and how much may be written about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionOptions {
    /// A container is sparse when a version uses less than this share of its bytes (percent).
    pub sparse_percent: u8,
    /// Of a version's bytes, at most so many percent are copied; the sparsest containers come first.
    pub budget_percent: u8,
    /// How the copies are compressed.
    pub compression: Compression,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        Self { sparse_percent: 30, budget_percent: 5, compression: Compression::DEFAULT }
    }
}

/// A version that would be read faster if it were laid out anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionPlan {
    /// The version.
    pub version: Version,
    /// What it uses of the containers that it would give up, the sparsest first.
    pub containers: Vec<ContainerUsage>,
    /// Bytes that would be copied, uncompressed.
    pub bytes: u64,
}

/// What became of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compacted {
    /// There is a new generation.
    Done {
        /// Its number.
        generation: u32,
        /// Chunks that were copied.
        chunks: u64,
        /// Their bytes, uncompressed.
        bytes: u64,
        /// Bytes of the containers that were written.
        stored_bytes: u64,
    },
    /// The version was forgotten, or somebody else has laid it out anew: nothing was done, or what was done is void.
    Overtaken,
}

/// A version could not be laid out anew. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// Copying failed.
    #[error(transparent)]
    Relayout(#[from] RelayoutError),
}

/// What is worth doing for a version, if anything.
pub fn plan(version: &Version, manifest: &Manifest, options: &CompactionOptions) -> Option<CompactionPlan> {
    let is_sparse = |usage: &&ContainerUsage| {
        usage.container.kind == ContainerKind::Data
            && u128::from(usage.bytes_used) * 100 < u128::from(usage.bytes_held) * u128::from(options.sparse_percent)
    };
    let mut sparse: Vec<_> = manifest.containers.iter().filter(is_sparse).copied().collect();
    let share = |usage: &ContainerUsage| u128::from(usage.bytes_used) * (1 << 32) / u128::from(usage.bytes_held).max(1);
    sparse.sort_by_key(|usage| (share(usage), usage.container));
    let budget = (u128::from(manifest.data.bytes()) * u128::from(options.budget_percent) / 100) as u64;
    let mut bytes = 0u64;
    let fits = |usage: &&ContainerUsage| {
        bytes = bytes.saturating_add(usage.bytes_used);
        bytes <= budget
    };
    let containers: Vec<_> = sparse.iter().take_while(fits).copied().collect();
    // One container in the place of another is no gain.
    (containers.len() > 1).then(|| CompactionPlan {
        version: version.clone(),
        bytes: containers.iter().map(|usage| usage.bytes_used).sum(),
        containers,
    })
}

/// Plans for the newest version of every series, unless it was laid out anew before: the budget is for a version's whole life.
/// Versions that cannot be read are left as they are.
pub fn plans(context: &Context, options: &CompactionOptions) -> Result<Vec<CompactionPlan>, RepositoryError> {
    let repository = &context.repository;
    let mut plans = Vec::new();
    let newest = context.runtime.block_on(repository.newest_of_every_series())?;
    for version in newest.into_iter().filter(|version| version.generation == 0) {
        match context.runtime.block_on(repository.manifest(&version)) {
            Ok(manifest) => plans.extend(plan(&version, &manifest, options)),
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "a version cannot be read and is not compacted");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(plans)
}

/// Carries out a plan. Whatever happens, the version is whole before and after.
pub fn compact(
    context: &Context,
    plan: &CompactionPlan,
    options: &CompactionOptions,
) -> Result<Compacted, CompactionError> {
    let repository = &context.repository;
    let now_ms = context.clock.now_ms();
    let job = JobId::new(now_ms, random(repository.entropy())?);
    let pin = Pin { series: plan.version.series, job: plan.version.id() };
    // The number is chosen before the lease, which has to name it. If it is taken by then, so is the work.
    let generation = context.runtime.block_on(repository.next_generation(pin))?;
    let lease = Lease {
        kind: JobKind::Task,
        series: plan.version.summary.series.clone(),
        pins: vec![pin],
        adopts: Vec::new(),
        host: context.host.clone(),
        process: std::process::id(),
        written_ms: now_ms,
        renew_seconds: u32::try_from(context.renew_every.as_secs()).unwrap_or(u32::MAX).max(1),
        claims: None,
        generation: Some(generation),
    };
    let keeper = LeaseKeeper::open(context, job, lease)?;
    let compacted = compact_announced(context, plan, options, job, pin, generation);
    // Uploads of a task are never adopted, so also a task that failed may be over; but not while its generation may still appear.
    let is_over = matches!(compacted, Ok((_, true)));
    keeper.end(is_over);
    compacted.map(|(compacted, _)| compacted)
}

/// The outcome, and whether the task will create nothing any more.
fn compact_announced(
    context: &Context,
    plan: &CompactionPlan,
    options: &CompactionOptions,
    job: JobId,
    pin: Pin,
    generation: u32,
) -> Result<(Compacted, bool), CompactionError> {
    let repository = &context.repository;
    let newest = context.runtime.block_on(async {
        if !repository.is_retained(pin).await? {
            return Ok(None);
        }
        repository.newest_generation(&plan.version).await
    })?;
    let Some(version) = newest.filter(|newest| newest.generation == plan.version.generation) else {
        return Ok((Compacted::Overtaken, true));
    };
    let manifest = context.runtime.block_on(repository.manifest(&version))?;
    let given_up: HashSet<_> = plan.containers.iter().map(|usage| usage.container).collect();
    let mut relayout = Relayout::new(context, job, options.compression)?;
    let relaid = relayout.relay(&manifest, |container| given_up.contains(container))?;
    let written = relayout.finish()?;
    let (chunks, bytes) = (relaid.moves.len() as u64, relaid.moved_bytes);
    let attempt = random(repository.entropy())?;
    let relaid = relaid.manifest(&manifest, &written, attempt).ok_or_else(|| RepositoryError::Damaged {
        name: larder_format::names::version(pin.series, pin.job, version.generation),
        source: larder_format::DecodeError::Invalid {
            what: "version manifest",
            why: "its recipe uses containers that its table does not have",
        },
    })?;
    match context.runtime.block_on(repository.commit_generation(pin.series, &relaid, generation)) {
        Ok(created) => {
            let done = Compacted::Done { generation, chunks, bytes, stored_bytes: written.stored_bytes };
            Ok((done, created.all_answered))
        }
        Err(CommitError::Fenced) => Ok((Compacted::Overtaken, true)),
        Err(CommitError::Repository(error)) => Err(error.into()),
    }
}
