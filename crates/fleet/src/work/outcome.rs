//! What became of a batch, by its registers and versions.

use std::collections::{HashMap, HashSet};

use larder_format::fleet::{FleetPlan, Stage, TaskId, TaskRecord};
use larder_format::ids::JobId;
use larder_format::manifest::Summary;
use larder_job::JobContext;
use larder_store::catalog::Filter;

use super::Worked;
use super::part::Taken;
use crate::error::FleetError;
use crate::memory::high_water;
use crate::report::{BatchReport, FleetImage, ImageFailure, ImageReport};
use crate::situation::{Known, ROUNDS, Registers};
use crate::supervise;

/// Why an image has no version, by the first register that says so.
fn failure(plan: &FleetPlan, registers: &Registers, number: u32) -> Option<(Stage, String)> {
    let why = |stage: Stage, round: u8, number: u32| {
        let record = &registers.get(&TaskId { stage, round, number })?.record;
        record.attempt.is_none().then(|| (stage, record.why.clone().unwrap_or_default()))
    };
    let known = Known { plan, registers };
    if !known.scanned().contains(&number) {
        let of_host = why(Stage::Send, 0, plan.images[number as usize].host).map(|(_, why)| (Stage::Scan, why));
        return of_host.or_else(|| (0..=u8::MAX).rev().find_map(|epoch| why(Stage::Scan, epoch, number)));
    }
    (0..=ROUNDS).find_map(|round| why(Stage::Store, round, number)).or_else(|| why(Stage::Finish, 0, number))
}

fn finished(registers: &Registers, number: u32) -> Option<&TaskRecord> {
    let task = TaskId { stage: Stage::Finish, round: 0, number };
    registers.get(&task).map(|decided| &decided.record).filter(|record| record.attempt.is_some())
}

/// Images with a version among those of which a register cannot be read, or is removed already.
/// Their jobs are fenced, so that none has a version later.
fn saved_all_the_same(
    context: &JobContext,
    plan: &FleetPlan,
    registers: &Registers,
    is_late: bool,
) -> Result<HashSet<u32>, FleetError> {
    let is_unreadable = |stage: Stage, round: u8, number: u32| {
        registers.get(&TaskId { stage, round, number }).is_some_and(|decided| !decided.is_readable)
    };
    let mut saved = HashSet::new();
    for (number, planned) in (0_u32..).zip(&plan.images) {
        let of_image = || (0..=ROUNDS).any(|round| is_unreadable(Stage::Store, round, number));
        let is_open = is_unreadable(Stage::Send, 0, planned.host) || is_unreadable(Stage::Finish, 0, number);
        let is_missing = is_late && failure(plan, registers, number).is_none();
        let is_unknown = is_missing && finished(registers, number).is_none();
        if (is_open || of_image() || is_unknown) && supervise::is_committed(context, plan, number)? {
            saved.insert(number);
        }
    }
    Ok(saved)
}

/// The report about all images.
pub(super) fn report(
    context: &JobContext,
    batch: JobId,
    plan: &FleetPlan,
    registers: &Registers,
    mut taken: Taken,
) -> Result<BatchReport, FleetError> {
    let saved = saved_all_the_same(context, plan, registers, taken.is_late)?;
    let ids: Vec<String> = (0_u32..)
        .zip(&plan.images)
        .filter(|(number, _)| finished(registers, *number).is_some() || saved.contains(number))
        .map(|(_, image)| image.job.to_string())
        .collect();
    let mut summaries: HashMap<JobId, Summary> = HashMap::new();
    if !ids.is_empty() {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let found = context.executor.block_on(context.repository.catalog_for(&ids, &Filter::default()))?;
        summaries.extend(found.versions.into_iter().map(|version| (version.id(), version.summary)));
    }
    let stored_bytes = summaries.values().map(|summary| summary.statistics.stored_bytes).sum();
    let mut images = Vec::with_capacity(plan.images.len());
    for (number, planned) in (0_u32..).zip(&plan.images) {
        let own = taken.images.remove(&number).unwrap_or_default();
        let host = &plan.hosts[planned.host as usize];
        let image = FleetImage {
            name: planned.name.clone(),
            host: host.name.clone(),
            is_any: host.is_any == Some(true),
            round: host.round.unwrap_or(0),
            series: planned.series.clone(),
            source: planned.source.clone(),
        };
        let finished = finished(registers, number);
        let is_saved = finished.is_some() || saved.contains(&number);
        let summary = own.summary.or_else(|| summaries.remove(&planned.job)).filter(|_| is_saved);
        let remark = finished.and_then(|record| record.why.clone()).filter(|_| own.map.is_none());
        // That another process decided a task is no reason: its register has one.
        let own_failure = own.failure.filter(|failure| !matches!(failure.error, None | Some(FleetError::Taken { .. })));
        let result = match (summary, own_failure, failure(plan, registers, number)) {
            (Some(summary), ..) => Ok(summary),
            (None, Some(failure), _) => Err(failure),
            (None, None, Some((stage, why))) => Err(ImageFailure { stage, error: Some(FleetError::Elsewhere { why }) }),
            (None, None, None) if is_saved => {
                let why = "it was saved, but its snapshot was forgotten since, or cannot be read".to_owned();
                Err(ImageFailure { stage: Stage::Finish, error: Some(FleetError::Elsewhere { why }) })
            }
            (None, None, None) => {
                let error = match taken.is_late {
                    true => FleetError::BatchOver { is_closed: true },
                    false => FleetError::Undecided { batch },
                };
                Err(ImageFailure { stage: Stage::Finish, error: Some(error) })
            }
        };
        let stores = (0..=ROUNDS).map(|round| TaskId { stage: Stage::Store, round, number });
        let reread_bytes =
            stores.filter_map(|task| registers.get(&task)).map(|decided| decided.record.read_bytes).sum();
        let (map, no_map) = (own.map, own.no_map);
        images.push(ImageReport { image, job: planned.job, result, map, no_map, reread_bytes, remark });
    }
    let memory = registers.values().map(|decided| decided.record.memory).max().unwrap_or(0).max(high_water());
    let asked_index = context.repository.keys().secrets().index.is_some();
    Ok(BatchReport { batch, images, ended_by: taken.ended_by, stored_bytes, asked_index, memory })
}

/// What a worker tells.
pub(super) fn worked(plan: &FleetPlan, registers: &Registers, taken: Taken) -> Worked {
    let (mut saved, mut failed) = (Vec::new(), Vec::new());
    for (number, state) in taken.images {
        let name = plan.images[number as usize].name.clone();
        let is_saved = state.summary.is_some();
        if is_saved {
            saved.push(name)
        } else {
            let stage_why = failure(plan, registers, number);
            failed.push(match (&state.failure, stage_why) {
                (Some(failure), _) if failure.error.is_some() => {
                    let why = failure.error.as_ref().map(ToString::to_string).unwrap_or_default();
                    format!("{name} (stage {}): {why}", failure.stage)
                }
                (_, Some((stage, why))) => format!("{name} (stage {stage}): {why}"),
                _ => name,
            });
        }
    }
    Worked { saved, failed, ended_by: taken.ended_by }
}
