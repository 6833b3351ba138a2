//! `restore --plan` and `restore --thaw`: data in cold storage.
//!
//! A restore with `--thaw` runs several times over the same snapshot, under one lease. The first
//! run restores what can be read while the storage thaws the rest. The later ones find what is
//! right already, and read what was thawed. An interrupted one is continued in the same way.
//!
//! * `plan`: what has to be thawed, and what that takes.

mod plan;

use std::collections::BTreeSet;

use larder_format::ids::ContainerId;
use larder_lnode::{RestoreError, RestoreReport};
use larder_source::target::{Target, TargetOptions};
use larder_store::{ClassedObject, ThawTier, Warmth};

use super::{Restore, Stopped};
use crate::args::{RestoreArgs, ThawTierName};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{sizes, time};

pub(super) use plan::Plan;

/// Runs in which nothing more can be read, although the storage says that everything is thawed.
const VAIN_RUNS_MAX: u32 = 3;

/// Restores with thawing. The report is of all runs together.
pub(super) fn run(restore: &Restore<'_>, target: &Target, options: TargetOptions) -> Result<RestoreReport, Stopped> {
    let mut dry = options;
    dry.dry_run = true;
    let dry = Target::open(&restore.args.target, dry).map_err(|error| Stopped::Restore(error.into()))?;
    let mut waits_for = restore.plan(&dry).map_err(Stopped::Restore)?.needed;
    drop(dry);
    let mut whole: Option<RestoreReport> = None;
    let (mut vain_runs, mut is_thawed) = (0, false);
    loop {
        ask(restore, &waits_for).map_err(Stopped::Thaw)?;
        let report = restore.once(target).map_err(Stopped::Restore)?;
        let has_gained = report.files_restored > 0 || whole.as_ref().is_none_or(|whole| report.cold != whole.cold);
        vain_runs = if has_gained || !is_thawed { 0 } else { vain_runs + 1 };
        let report = match whole.take() {
            Some(earlier) => together(earlier, report),
            None => report,
        };
        if report.cold.is_empty() || restore.args.no_wait {
            return Ok(report);
        }
        if vain_runs >= VAIN_RUNS_MAX {
            let why = "the storage says that everything is thawed, and refuses to give it";
            return Err(Stopped::Thaw(Failure::new(Exit::Failed, why).advise("run the command again later")));
        }
        waits_for.clone_from(&report.cold);
        whole = Some(report);
        // Those that it found on the way, and those whose days are over.
        ask(restore, &waits_for).map_err(Stopped::Thaw)?;
        is_thawed = wait(restore, &waits_for)?;
    }
}

/// The report of a run after an earlier one.
fn together(earlier: RestoreReport, later: RestoreReport) -> RestoreReport {
    RestoreReport {
        files_restored: earlier.files_restored + later.files_restored,
        files_up_to_date: earlier.files_up_to_date,
        files_kept: earlier.files_kept,
        others: earlier.others,
        bytes_restored: earlier.bytes_restored + later.bytes_restored,
        deleted: earlier.deleted + later.deleted,
        ..later
    }
}

/// Asks for those of these containers that are cold.
fn ask(restore: &Restore<'_>, containers: &BTreeSet<ContainerId>) -> Result<(), Failure> {
    let (app, args) = (restore.app, restore.args);
    let store = restore.context.repository.store();
    let plan = Plan::read(app, &restore.context.repository, containers)?;
    let cold: Vec<&ClassedObject> = plan.of_warmth(Warmth::Cold).collect();
    if cold.is_empty() {
        return Ok(());
    }
    let asked = app.block_on(store.thaw(cold.iter().copied(), tier(args), args.thaw_days))?;
    let bytes = cold.iter().map(|object| object.size).sum();
    app.out.info(format!(
        "asked for {} ({}) in cold storage, of which {asked} had not been asked for",
        sizes::count(cold.len() as u64, "object"),
        sizes::show(bytes)
    ))
}

fn tier(args: &RestoreArgs) -> ThawTier {
    match args.thaw_tier {
        ThawTierName::Bulk => ThawTier::Bulk,
        ThawTierName::Standard => ThawTier::Standard,
        ThawTierName::Expedited => ThawTier::Expedited,
    }
}

/// Waits until all of these containers can be read. `false`: some storages do not tell, so a run
/// has to find out.
fn wait(restore: &Restore<'_>, containers: &BTreeSet<ContainerId>) -> Result<bool, Stopped> {
    let app = restore.app;
    let store = restore.context.repository.store();
    let mut told = None;
    loop {
        let plan = Plan::read(app, &restore.context.repository, containers).map_err(Stopped::Thaw)?;
        let (thawing, cold) = (plan.of_warmth(Warmth::Thawing).count(), plan.of_warmth(Warmth::Cold).count());
        let left = (thawing + cold) as u64;
        if left == 0 {
            return Ok(true);
        }
        if told != Some(left) {
            let (objects, every) = (sizes::count(left, "object"), time::show_duration(restore.args.thaw_poll));
            let text = format!("waiting for {objects} to be thawed, asking every {every}");
            app.out.info(text).map_err(Stopped::Thaw)?;
            told = Some(left);
        }
        if !app.block_on(store.waiting().sleep(restore.args.thaw_poll)) {
            return Err(Stopped::Restore(RestoreError::Interrupted));
        }
        restore.reading.expect_lease().map_err(|lost| Stopped::Thaw(Failure::of(lost.kind(), &lost)))?;
        if thawing == 0 {
            return Ok(false);
        }
    }
}
