//! The beginning of a batch: its lease, and then its plan.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;

use larder_format::fleet::{FleetPlan, PlannedHost, PlannedImage, SharedWork};
use larder_format::ids::JobId;
use larder_format::lease::{JobKind, Lease, Pin};
use larder_format::names;
use larder_index::IndexSnapshot;
use larder_job::{JobContext, LeaseKeeper};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::repository::random;

use crate::error::FleetError;
use crate::report::FleetImage;
use crate::shared::STORE_SERIES;

/// Versions that the lease of a batch names at most.
const PINS_MAX: usize = 15_000;

/// A batch that has a plan.
pub(crate) struct Planned {
    pub(crate) id: JobId,
    pub(crate) plan: FleetPlan,
    pub(crate) newest: Vec<Version>,
    pub(crate) index: IndexSnapshot,
}

/// A batch that is announced.
pub(crate) struct Begun {
    /// The caller ends it, whatever became of the plan.
    pub(crate) keeper: LeaseKeeper,
    /// Others may find a plan, also where its creation was not answered.
    pub(crate) may_have_plan: bool,
    pub(crate) planned: Result<Planned, FleetError>,
}

/// Announces a batch and plans it. The lease keeps what the index may find, until the lease of each
/// image names it.
pub(crate) fn begin(
    context: &JobContext,
    images: &[FleetImage],
    partitions: Option<NonZeroU32>,
    program: &str,
    shared: Option<SharedWork>,
) -> Result<Begun, FleetError> {
    let repository = &context.repository;
    context.executor.block_on(repository.expect_open_domain())?;
    let time_ms = context.clock.now_ms();
    let id = JobId::new(time_ms, random(repository.entropy())?);
    let mut newest = context.executor.block_on(repository.newest_of_every_series())?;
    // The bases of these images first.
    let own: HashSet<_> = images.iter().map(|image| repository.keys().series_key(&image.series)).collect();
    newest.sort_by_key(|version| !own.contains(&version.series));
    let pins = newest.iter().take(PINS_MAX).map(|version| Pin { series: version.series, job: version.id() });
    let lease = Lease { pins: pins.collect(), ..context.lease(JobKind::Read, STORE_SERIES) };
    let keeper = LeaseKeeper::open(context, id, lease)?;
    let mut may_have_plan = false;
    let planned = (|| {
        let index = context.executor.block_on(IndexSnapshot::newest(repository))?.snapshot;
        let program = program.to_owned();
        let plan = of(
            context,
            images,
            FleetPlan {
                images: Vec::with_capacity(images.len()),
                hosts: Vec::new(),
                partitions: 1,
                index: index.number,
                time_ms,
                program,
                shared,
            },
            partitions,
        )?;
        let salt = random(repository.entropy())?;
        let bytes = plan.encode(repository.keys(), id, salt).map_err(RepositoryError::from)?;
        may_have_plan = true;
        context.executor.block_on(repository.store().create(&names::fleet_plan(id), bytes.into()))?;
        Ok(Planned { id, plan, newest, index })
    })();
    Ok(Begun { keeper, may_have_plan, planned })
}

/// The hosts of the round that has the most.
pub(crate) fn hosts_at_once<'a>(hosts: impl IntoIterator<Item = &'a PlannedHost>) -> usize {
    let mut of_round: HashMap<u32, usize> = HashMap::new();
    hosts.into_iter().for_each(|host| *of_round.entry(host.round.unwrap_or(0)).or_default() += 1);
    of_round.into_values().max().unwrap_or(0)
}

/// Adds images, hosts and partitions to a plan. Images of any host are groups: what one process
/// reads.
fn of(
    context: &JobContext,
    images: &[FleetImage],
    mut plan: FleetPlan,
    partitions: Option<NonZeroU32>,
) -> Result<FleetPlan, FleetError> {
    let repository = &context.repository;
    let new_job = || Ok::<_, RepositoryError>(JobId::new(plan.time_ms, random(repository.entropy())?));
    let mut hosts: Vec<PlannedHost> = Vec::new();
    let mut planned = Vec::new();
    for image in images {
        let host = match hosts.iter().position(|host| host.name == image.host && host.round.unwrap_or(0) == image.round)
        {
            Some(host) => host,
            None => {
                let is_any = image.is_any.then_some(true);
                let round = Some(image.round).filter(|round| *round > 0);
                hosts.push(PlannedHost { name: image.host.clone(), store: new_job()?, is_any, round });
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
    // One process needs no partitions; several share the work of joining.
    let usual = if plan.shared.is_some() { hosts_at_once(&hosts) as u32 } else { 1 };
    plan.partitions = partitions.map_or(usual.max(1), NonZeroU32::get);
    (plan.images, plan.hosts) = (planned, hosts);
    Ok(plan)
}
