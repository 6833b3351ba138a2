//! Executes plans: each rewrite of a version is a job with a lease. Its register is the generation
//! that it creates.
//!
//! Chunks of a large plan may be given to other processes, which copy them for that job. If one of
//! them is wrong, the job ends without a generation, and another one copies alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use larder_format::ids::{ContainerId, JobId};
use larder_format::lease::{Done, JobKind, Lease};
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_reader::{look_at, pin_of};
use larder_rewrite::chunk_copier::{ChunkCopier, RewriteError, SharedBatches, SharedCopying};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::jobs::CommitError;
use larder_store::repository::random;

use super::choice::{Leave, Why};
use super::sharing::{Copied, Sharing};
use super::{DefragmentError, DefragmentOptions, DefragmentPlan, Defragmented};
use crate::reclaim::SharePass;

/// A fifth of dead bytes is enough in its own metadata, as in data that is retired.
const OWN_METADATA_PERCENT: u8 = 80;
/// As of data in the paper (SlimStore section V-B).
const OLD_METADATA_PERCENT: u8 = 30;

/// Executes a plan by itself. The version is whole before and after, in every case.
pub fn compact(
    context: &JobContext,
    plan: &DefragmentPlan,
    options: &DefragmentOptions,
) -> Result<Defragmented, DefragmentError> {
    Defragmenter::new(context, options).compact(plan)
}

/// Executes plans one after the other. Copies for one version are shared by the next that leaves
/// the same container.
#[derive(Debug)]
pub struct Defragmenter {
    context: JobContext,
    options: DefragmentOptions,
    copied: Copied,
    sharing: Option<Arc<dyn SharePass>>,
}

impl Defragmenter {
    /// Begins.
    pub fn new(context: &JobContext, options: &DefragmentOptions) -> Self {
        let copied = Copied::new(context.memory);
        Self { context: context.clone(), options: *options, copied, sharing: None }
    }

    /// Gives chunks of large plans to other processes.
    pub fn shared_with(self, sharing: Option<Arc<dyn SharePass>>) -> Self {
        Self { sharing, ..self }
    }

    /// Executes a plan. The version is whole before and after, in every case.
    pub fn compact(&mut self, plan: &DefragmentPlan) -> Result<Defragmented, DefragmentError> {
        match self.attempt(plan) {
            // By another job: nothing names what was written for the first one.
            Err(DefragmentError::ChunkCopier(RewriteError::WorkerWrong)) => {
                self.sharing = None;
                self.attempt(plan)
            }
            result => result,
        }
    }

    fn attempt(&mut self, plan: &DefragmentPlan) -> Result<Defragmented, DefragmentError> {
        let context = self.context.clone();
        let repository = &context.repository;
        let mut others = plan.others.clone();
        let gathers = plan.leaves.iter().any(|leave| leave.why == Why::Scattered);
        others.extend(self.copied.owners_of(&plan.containers, &plan.version, gathers));
        others.sort_by_key(|other| (other.series, other.id()));
        others.dedup_by_key(|other| (other.series, other.id()));
        // The version itself comes first: the register is one of its generations. All versions
        // whose containers are referenced are named.
        let pins = std::iter::once(&plan.version).chain(&others).map(pin_of).collect();
        let pin = pin_of(&plan.version);
        // The number is chosen before the lease, which has to name it. If it is taken by then, the
        // work is void.
        let generation = context.executor.block_on(repository.next_generation(pin))?;
        let lease = Lease {
            pins,
            generation: Some(generation),
            domain: plan.version.summary.domain,
            ..context.lease(JobKind::Task, &plan.version.summary.series)
        };
        let job = JobId::new(lease.written_ms, random(repository.entropy())?);
        let keeper = LeaseKeeper::open(&context, job, lease)?;
        let defragmented = self.compact_announced(plan, &others, job, generation);
        // Uploads of a task are never adopted, so a failed task may be over too. It is not over
        // while its generation may still appear.
        keeper.end(match &defragmented {
            Ok((Defragmented::Done { .. }, true)) => Ending::Closed(Done::committed_generation(pin, generation)),
            // A wrong worker is found before the generation is created.
            Ok((_, true)) | Err(DefragmentError::ChunkCopier(RewriteError::WorkerWrong)) => {
                Ending::Closed(Done::nothing())
            }
            Err(_) => Ending::Ended,
            _ => Ending::Open,
        });
        defragmented.map(|(defragmented, _)| defragmented)
    }

    /// The outcome, and whether the task will create nothing any more.
    fn compact_announced(
        &mut self,
        plan: &DefragmentPlan,
        others: &[Version],
        job: JobId,
        generation: u32,
    ) -> Result<(Defragmented, bool), DefragmentError> {
        let context = &self.context;
        let (repository, pin) = (&context.repository, pin_of(&plan.version));
        let newest = context.executor.block_on(look_at(repository, &plan.version))?;
        let Some(version) = newest.filter(|newest| newest.generation == plan.version.generation) else {
            return Ok((Defragmented::Overtaken, true));
        };
        let manifest = context.executor.block_on(repository.manifest(&version))?;
        let sharing = Sharing::announced(context, &manifest, others, &plan.duplicates)?;
        let stays = |leave: &&Leave| !sharing.may_leave(leave);
        if plan.leaves.iter().filter(stays).count() == plan.leaves.len() {
            return Ok((Defragmented::Overtaken, true));
        }
        let leaves: HashMap<_, _> =
            plan.leaves.iter().filter(|leave| !stays(leave)).map(|leave| (leave.usage.container, leave)).collect();
        let mut copier = ChunkCopier::new(context, job, self.options.compression)?.remembering(self.copied.room());
        let share = |container: &ContainerId| metadata_percent(container, &plan.version, &plan.others_metadata);
        let sparse = copier.sparse_metadata(&manifest, |container| leaves.contains_key(container), share)?;
        copier.leave_metadata(sparse);
        let elsewhere = |chunk: &larder_format::ChunkRef| {
            let may_lead_to = |other: &ContainerId| {
                sharing.holds(other) && leaves.get(&chunk.container).is_none_or(|leave| leave.may_lead_to(other))
            };
            let found = plan.duplicates.elsewhere(chunk).filter(|other| may_lead_to(&other.container));
            found.or_else(|| self.copied.elsewhere(chunk).filter(|other| sharing.holds(&other.container)))
        };
        let (retires, is_common) = (
            |container: &ContainerId| leaves.contains_key(container),
            |chunk: &larder_format::ChunkRef| plan.duplicates.is_common(chunk),
        );
        let mut shared = self.begin_sharing(plan, job, generation);
        let batches = shared.as_mut().map(|(copying, bytes)| SharedBatches { copying: &mut **copying, bytes: *bytes });
        let rewritten = copier.rewrite_gathering(&manifest, retires, elsewhere, is_common, batches);
        if let Some((mut copying, _)) = shared {
            if rewritten.is_err() {
                copying.abandon(true);
            }
            // Containers that nobody names are those of a job that is over: a pass lists them.
            copying.end();
        }
        let mut rewritten = rewritten?;
        let by_others = std::mem::take(&mut rewritten.by_others);
        let written = match copier.finish() {
            Ok(mut written) => {
                written.stored_bytes += by_others.values().map(|totals| totals.object_bytes).sum::<u64>();
                written.containers.extend(by_others);
                written
            }
            // A pass considered this task dead, and its containers with it.
            Err(_) if context.executor.block_on(repository.is_fenced(pin, generation)) => {
                return Ok((Defragmented::Overtaken, true));
            }
            Err(error) => return Err(error.into()),
        };
        let moves = std::mem::take(&mut rewritten.moves);
        let done = Defragmented::Done {
            generation,
            chunks: rewritten.moved_chunks,
            bytes: rewritten.moved_bytes,
            stored_bytes: written.stored_bytes,
            shared_chunks: rewritten.shared_chunks,
            shared_bytes: rewritten.shared_bytes,
        };
        let attempt = random(repository.entropy())?;
        let rewritten = rewritten.manifest_beside(&manifest, &written, sharing.containers(), attempt);
        let rewritten = rewritten.ok_or_else(|| RepositoryError::Damaged {
            name: larder_format::names::version(pin.series, pin.job, version.generation),
            source: larder_format::DecodeError::Invalid {
                what: "version manifest",
                why: "its recipe uses containers that its table does not have",
            },
        })?;
        match context.executor.block_on(repository.commit_generation(
            pin.series,
            &rewritten,
            generation,
            version.generation,
        )) {
            Ok(created) => {
                self.copied.remember(&plan.version, &moves);
                Ok((done, created.all_answered))
            }
            Err(CommitError::Fenced) => Ok((Defragmented::Overtaken, true)),
            Err(CommitError::Repository(error)) => Err(error.into()),
        }
    }
}

impl Defragmenter {
    /// Begins to give chunks to others, if there is more than a batch of them. Also returns the
    /// bytes of a batch.
    fn begin_sharing(
        &self,
        plan: &DefragmentPlan,
        job: JobId,
        generation: u32,
    ) -> Option<(Box<dyn SharedCopying>, u64)> {
        let sharing = self.sharing.as_ref()?;
        let all = plan.bytes.saturating_add(plan.shared_bytes);
        let bytes = sharing.batch_bytes(all);
        let is_worth_it = all > bytes;
        let begin = || sharing.begin(&self.context, job, u64::from(generation), self.options.compression);
        Some((is_worth_it.then(begin)??, bytes))
    }
}

/// A rewritten version leaves a metadata container of which it would use less than this share of
/// its bytes. As a rule only it uses metadata of its own backup, so leaving such a container frees
/// the dead bytes. Metadata of other backups must be mostly dead, because other versions may use
/// the rest.
fn metadata_percent(container: &ContainerId, version: &Version, others: &HashSet<ContainerId>) -> u8 {
    match (others.contains(container), container.job == version.id()) {
        (true, _) => 0,
        (false, true) => OWN_METADATA_PERCENT,
        (false, false) => OLD_METADATA_PERCENT,
    }
}
