//! The coordinator: one process does every task of a batch.
//!
//! A failure of one image leaves the others. The image leaves the batch, with a register that says
//! so, and those who wait for its chunks store them. Only failures of the store or of the folder
//! for temporary files, and interruptions, end the batch.

mod state;

use std::sync::Arc;

use larder_format::fleet::{FleetPlan, PlannedHost, PlannedImage};
use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::names;
use larder_index::IndexSnapshot;
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::repository::random;
use larder_writer::Cutting;
use parking_lot::Mutex;

use crate::error::FleetError;
use crate::memory::high_water;
use crate::report::{BatchReport, FleetImage, FleetOptions, Sources};
use crate::shared::{Batch, KnownIndex, STORE_SERIES};
use state::State;

/// Versions that the lease of a batch names at most.
const PINS_MAX: usize = 15_000;

/// Backs up these images as one batch.
///
/// # Errors
/// The batch could not begin. Everything else is in the report.
pub fn run(
    context: &JobContext,
    images: &[FleetImage],
    sources: &mut dyn Sources,
    options: &FleetOptions,
) -> Result<BatchReport, FleetError> {
    let repository = &context.repository;
    let cutting = Cutting::new(repository.config(), repository.keys()).ok_or(larder_lnode::BackupError::WorkerDied)?;
    context.executor.block_on(repository.expect_open_domain())?;
    let time_ms = context.clock.now_ms();
    let id = JobId::new(time_ms, random(repository.entropy())?);
    let newest = context.executor.block_on(repository.newest_of_every_series())?;
    let keeper = announce(context, id, &newest)?;
    let result = begin(context, images, options, id, time_ms, newest, cutting).map(|batch| {
        context.progress.expect(images.len() as u64, 0);
        let mut state = State::new(&batch, sources);
        let ended_by = state.run().err();
        state.report(images, ended_by)
    });
    let is_over = result.as_ref().is_ok_and(|report| report.ended_by.is_none());
    keeper.end(if is_over { Ending::Closed(Done::nothing()) } else { Ending::Ended });
    result
}

/// The lease of a batch keeps what the index may find, until the lease of each image names it.
fn announce(context: &JobContext, id: JobId, newest: &[Version]) -> Result<LeaseKeeper, RepositoryError> {
    let pins = newest.iter().take(PINS_MAX).map(|version| Pin { series: version.series, job: version.id() });
    LeaseKeeper::open(context, id, Lease { pins: pins.collect(), ..context.lease(JobKind::Read, STORE_SERIES) })
}

fn begin<'a>(
    context: &'a JobContext,
    images: &[FleetImage],
    options: &'a FleetOptions,
    id: JobId,
    time_ms: u64,
    mut newest: Vec<Version>,
    cutting: Arc<Cutting>,
) -> Result<Batch<'a>, FleetError> {
    let repository = &context.repository;
    let index = context.executor.block_on(IndexSnapshot::newest(repository))?.snapshot;
    newest.retain(|version| version.summary.layout == Layout::Standard);
    let new_job = || Ok::<_, RepositoryError>(JobId::new(time_ms, random(repository.entropy())?));
    let mut hosts: Vec<PlannedHost> = Vec::new();
    let mut planned = Vec::with_capacity(images.len());
    for image in images {
        let host = match hosts.iter().position(|host| host.name == image.host) {
            Some(host) => host,
            None => {
                hosts.push(PlannedHost { name: image.host.clone(), store: new_job()? });
                hosts.len() - 1
            }
        };
        planned.push(PlannedImage {
            name: image.name.clone(),
            series: image.series.clone(),
            host: host as u32,
            job: new_job()?,
            source: image.source.clone(),
        });
    }
    let partitions = options.partitions.map_or(1, std::num::NonZeroU32::get);
    let program = options.program.clone();
    let plan = FleetPlan { images: planned, hosts, partitions, index: index.number, time_ms, program };
    let salt = random(repository.entropy())?;
    let bytes = plan.encode(repository.keys(), id, salt).map_err(RepositoryError::from)?;
    context.executor.block_on(repository.store().create(&names::fleet_plan(id), bytes.into()))?;
    let index = Mutex::new(Arc::new(KnownIndex::new(index)));
    Ok(Batch { context, options, id, plan, index, newest, cutting })
}

impl BatchReport {
    /// The most memory that the process had so far.
    pub(crate) fn memory_now() -> u64 {
        high_water()
    }
}
