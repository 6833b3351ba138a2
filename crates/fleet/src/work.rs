//! Batches that several processes work on: planning one, working on those that are open, and what
//! became of them.
//!
//! Every process that takes part is equal. It reads images that its own inventory names, joins
//! partitions, and ends tasks of workers that are silent. So no process is needed to the end. The
//! one that planned the batch also keeps its lease, and tells people what became of it.

mod idle;
mod outcome;
mod part;
mod presence;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use larder_format::ErrorKind;
use larder_format::fleet::{FLEET_RULES, FleetPlan, PLAN_MAX, SharedWork};
use larder_format::ids::JobId;
use larder_format::lease::Done;
use larder_format::names;
use larder_job::{Ending, JobContext};
use larder_store::{RepositoryError, StoreErrorKind};

use crate::begin::{self, Begun, Planned};
use crate::check::{Answer, Left, answer};
use crate::error::FleetError;
use crate::passes::{self, Copied, LeftPass};
use crate::queue::Nats;
use crate::report::{BatchReport, FleetImage, FleetOptions, Sources};
use crate::work::idle::Idle;
use crate::work::part::Part;
use crate::work::presence::Presence;

/// How a process takes part in batches of several processes.
#[derive(Debug, Clone)]
pub struct WorkOptions {
    /// As for a batch of one process. Tags, the use of maps and the time are those of the plan.
    pub fleet: FleetOptions,
    /// The host whose images it reads.
    pub host: String,
    /// How long it waits before it looks again, if there was something to do.
    pub poll: Duration,
    /// What it works on.
    pub takes: Takes,
    /// The server that gives tasks away. `None`: the store alone.
    pub nats: Option<Arc<Nats>>,
}

/// What a worker works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// Batches of images.
    pub batches: bool,
    /// Checks: ranges of containers are read and verified.
    pub checks: bool,
    /// Passes: recipes are read, chunks are verified and copied. It takes a key that reads contents
    /// and signs.
    pub passes: bool,
}

/// The time that workers have.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Without a sign of life for so long, the claim of a worker is taken over. At least a second.
    pub claim: Duration,
    /// Without a sign of life for so long, the tasks of a worker are ended. At least the time for
    /// claims.
    pub task: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { claim: Duration::from_secs(60), task: Duration::from_secs(600) }
    }
}

/// What a worker tells about its work.
#[derive(Debug)]
pub enum WorkEvent<'a> {
    /// It takes part in a batch.
    Begins(JobId, &'a FleetPlan),
    /// A batch is over for it: its images, and why it left early.
    Ends(JobId, &'a Worked),
    /// It read ranges of a check.
    Checked(JobId, Answer),
    /// It read recipes, or copied chunks, for a pass.
    Copied(JobId, Copied),
    /// It leaves a batch alone: why.
    LeavesAlone(&'a FleetError),
}

/// What a worker did for a batch.
#[derive(Debug)]
pub struct Worked {
    /// Images that it saved.
    pub saved: Vec<String>,
    /// Images of it that were not saved.
    pub failed: Vec<String>,
    /// Why it left the batch early.
    pub ended_by: Option<FleetError>,
}

/// Plans a batch for several processes, takes part in it until it is over, and reports what became
/// of it. `own` are the images of this process's own inventory, which `sources` opens. The others
/// are read by workers.
///
/// # Errors
/// The batch could not begin. Everything else is in the report.
pub fn coordinate(
    context: &JobContext,
    images: &[FleetImage],
    own: &[FleetImage],
    sources: &mut dyn Sources,
    options: &WorkOptions,
    patience: Patience,
) -> Result<BatchReport, FleetError> {
    let of = &options.fleet;
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1);
    let shared = SharedWork {
        rules: FLEET_RULES,
        claim_seconds: seconds(patience.claim),
        task_seconds: seconds(patience.task),
        tags: of.tags.clone(),
        force: of.force,
        verify_every: of.verify_every.map_or(0, NonZeroU32::get),
    };
    let begun = begin::begin(context, images, of.partitions, &of.program, Some(shared))?;
    let Begun { keeper, may_have_plan, planned } = begun;
    let result = planned.and_then(|Planned { id, plan, .. }| {
        context.progress.expect(images.len() as u64, 0);
        resume(context, id, plan, own, sources, options)
    });
    keeper.end(match &result {
        Ok(report) if report.ended_by.is_none() => Ending::Closed(Done::nothing()),
        // Workers go on, also where only this process cannot. They renew the lease as long as they
        // need it.
        _ if may_have_plan => Ending::Open,
        _ => Ending::Ended,
    });
    result
}

/// Takes part in a batch until it is over, and reports what became of it. `images` are those that
/// this process could read.
///
/// # Errors
/// The batch is not for this program, or what became of it cannot be read.
pub fn resume(
    context: &JobContext,
    id: JobId,
    plan: FleetPlan,
    images: &[FleetImage],
    sources: &mut dyn Sources,
    options: &WorkOptions,
) -> Result<BatchReport, FleetError> {
    let part = Part::new(context, id, plan, images, options)?.offering();
    let (taken, registers) = part.until_over(sources)?;
    outcome::report(context, id, &part.plan, &registers, taken)
}

/// Works on the batches and checks that are open, and on those to come, until it is stopped.
/// `once`: until one batch or check is over.
///
/// # Errors
/// The store does not answer. A batch that fails is told to `watch`.
pub fn work(
    context: &JobContext,
    images: &[FleetImage],
    sources: &mut dyn Sources,
    options: &WorkOptions,
    once: bool,
    watch: &mut dyn FnMut(WorkEvent<'_>),
) -> Result<(), FleetError> {
    let mut done = HashSet::new();
    // Passes for which it read recipes. They may have chunks to copy later.
    let mut marked = HashSet::new();
    // The process that makes a check waits for nobody, and has no news.
    let mut idle = Idle::new(context, options.poll, options.takes.batches, options.nats.clone());
    loop {
        let open = open_batches(context)?;
        done.retain(|batch| open.contains(batch));
        if once && marked.iter().any(|pass| !open.contains(pass)) {
            return Ok(());
        }
        for batch in open.into_iter().filter(|batch| !done.contains(batch)).collect::<Vec<_>>() {
            done.insert(batch);
            let plan = match read_plan(context, batch) {
                Ok(plan) => plan,
                Err(error) => {
                    leave_alone(error, watch)?;
                    continue;
                }
            };
            let Some(plan) = plan else {
                // A check or a pass, which may ask for more.
                done.remove(&batch);
                match copies(context, batch, options) {
                    Ok(LeftPass::Nothing) => {}
                    Ok(LeftPass::Silent(copied)) => {
                        done.insert(batch);
                        if copied != Copied::default() {
                            watch(WorkEvent::Copied(batch, copied));
                        }
                        continue;
                    }
                    // Others did all that there was.
                    Ok(LeftPass::Done(copied)) if copied == Copied::default() => continue,
                    Ok(LeftPass::Done(copied)) => {
                        watch(WorkEvent::Copied(batch, copied));
                        // A round has many rewrites and a pass, one after the other.
                        idle.is_soon_busy();
                        if copied.segments > 0 {
                            marked.insert(batch);
                        } else if once {
                            return Ok(());
                        }
                        continue;
                    }
                    Err(error) => {
                        leave_alone(error, watch)?;
                        done.insert(batch);
                        continue;
                    }
                }
                match checks(context, batch, options) {
                    Ok(Left::Nothing) => {}
                    Ok(Left::Silent(answer)) => {
                        // It reads the rest itself, if it continues.
                        done.insert(batch);
                        if answer.ranges > 0 {
                            watch(WorkEvent::Checked(batch, answer));
                        }
                    }
                    Ok(Left::Read(answer)) => {
                        watch(WorkEvent::Checked(batch, answer));
                        if once {
                            return Ok(());
                        }
                    }
                    Err(error) => {
                        leave_alone(error, watch)?;
                        done.insert(batch);
                    }
                }
                continue;
            };
            // One process does the others.
            if plan.shared.is_none() || !options.takes.batches {
                continue;
            }
            let part = match Part::new(context, batch, plan, images, options) {
                Ok(part) => part,
                Err(error) => {
                    leave_alone(error, watch)?;
                    continue;
                }
            };
            match part.is_over() {
                Ok(false) => {}
                // Also one that is removed at the moment.
                Ok(true) | Err(FleetError::BatchOver { .. }) => continue,
                Err(error) => {
                    leave_alone(error, watch)?;
                    continue;
                }
            }
            watch(WorkEvent::Begins(batch, &part.plan));
            idle.was_busy();
            let _presence = match once {
                // It comes to no other.
                true => None,
                false => Some(Presence::begin(context, images, &options.host, done.clone(), part.looks_every())),
            };
            let (taken, registers) = match part.until_over(sources) {
                Ok(ended) => ended,
                Err(error) => {
                    leave_alone(error, watch)?;
                    continue;
                }
            };
            let worked = outcome::worked(&part.plan, &registers, taken);
            watch(WorkEvent::Ends(batch, &worked));
            match worked.ended_by {
                Some(error) if context.cancel.is_cancelled() => return Err(error),
                Some(error) if once => return Err(error),
                _ if once => return Ok(()),
                _ => {}
            }
        }
        idle.wait()?;
    }
}

/// Tells of a batch that is not for this program, or that meets damage; other errors are returned.
fn leave_alone(error: FleetError, watch: &mut dyn FnMut(WorkEvent<'_>)) -> Result<(), FleetError> {
    if !matches!(error, FleetError::NotForUs { .. }) && error.kind() != ErrorKind::Damaged {
        return Err(error);
    }
    watch(WorkEvent::LeavesAlone(&error));
    Ok(())
}

/// Reads ranges of a check, if the batch is one.
fn checks(context: &JobContext, batch: JobId, options: &WorkOptions) -> Result<Left, FleetError> {
    match options.takes.checks {
        true => answer(context, batch, options.poll),
        false => Ok(Left::Nothing),
    }
}

/// Copies chunks for a pass, if the batch is one.
fn copies(context: &JobContext, batch: JobId, options: &WorkOptions) -> Result<LeftPass, FleetError> {
    match options.takes.passes {
        true => passes::answer(context, batch, options.poll),
        false => Ok(LeftPass::Nothing),
    }
}

/// The batches whose lease is open and that have left anything, the oldest first.
fn open_batches(context: &JobContext) -> Result<Vec<JobId>, FleetError> {
    let found = context.executor.block_on(context.repository.fleet_batches())?;
    Ok(found.open.into_iter().collect())
}

/// The plan of a batch; `None`: it has none.
///
/// # Errors
/// It cannot be read, because of the store, or with this key or program.
pub fn read_plan(context: &JobContext, batch: JobId) -> Result<Option<FleetPlan>, FleetError> {
    let (repository, name) = (&context.repository, names::fleet_plan(batch));
    let bytes = match context.executor.block_on(repository.store().get_up_to(&name, PLAN_MAX)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let error = match FleetPlan::decode(repository.keys(), batch, &bytes) {
        Ok(plan) => return Ok(Some(plan)),
        Err(source) => RepositoryError::Damaged { name, source },
    };
    let why = format!("its plan cannot be read with this key or by this program ({error})");
    let why = format!("{why}; use a key of its domain and the same version of larder on all hosts");
    Err(FleetError::NotForUs { batch, why })
}

/// The batches that left anything and that are meant by a part of an id.
///
/// # Errors
/// The store does not answer.
pub fn find(context: &JobContext, id: &str) -> Result<Vec<JobId>, FleetError> {
    let found = context.executor.block_on(context.repository.fleet_batches())?;
    let all = found.over.into_keys().chain(found.open);
    Ok(all.filter(|batch| is_meant(*batch, id)).collect())
}

/// Whether a text means a batch: a part of its id, as [`JobId::fits`] has it.
pub fn is_meant(batch: JobId, text: &str) -> bool {
    batch.fits(text)
}

/// Ends a batch: nothing of it is done any more. Versions that exist remain. Returns the number of
/// tasks that were ended.
///
/// # Errors
/// The batch is not for this program, or the store does not answer.
pub fn abort(context: &JobContext, id: JobId, plan: FleetPlan, options: &WorkOptions) -> Result<u64, FleetError> {
    Part::new(context, id, plan, &[], options)?.abort("the batch was aborted")
}

/// The images of a batch without a version, to be tried again.
pub fn to_retry(report: &BatchReport, plan: &FleetPlan) -> Vec<FleetImage> {
    let is_any: HashMap<&str, bool> =
        plan.hosts.iter().map(|host| (host.name.as_str(), host.is_any == Some(true))).collect();
    let failed = report.images.iter().filter(|image| image.result.is_err()).map(|image| image.image.clone());
    failed.map(|image| FleetImage { is_any: is_any.get(image.host.as_str()) == Some(&true), ..image }).collect()
}
