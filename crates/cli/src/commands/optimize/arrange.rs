//! The part of the report of `larder optimize` about series in the layout `lifecycle`.

use larder_gnode::pass::{Outcome, PassReport};
use larder_lifecycle::arrange::{ArrangePlan, Arranged};
use serde_json::{Value, json};

use super::reclaim::{names, print_cold};
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes;

pub(super) fn json(report: &PassReport) -> Value {
    let arranged = &report.arranged;
    let planned = &report.plan.arranging;
    json!({
        "snapshots": arranged.versions,
        "containers": arranged.reclaimed,
        "container_bytes": arranged.retired_bytes.0,
        "moved_chunks": arranged.moved_chunks,
        "moved_bytes": arranged.moved_bytes.0,
        "containers_written": arranged.written,
        "stored_bytes": arranged.written_bytes.0,
        "unreadable_containers": names(&arranged.unreadable),
        "cold_containers": arranged.cold.containers,
        "damaged_series": arranged.damaged_series + planned.damaged_series,
        "planned_snapshots": planned.versions,
        "planned_containers": planned.containers,
        "planned_container_bytes": planned.container_bytes.0,
        "planned_moved_bytes": planned.moved_bytes.0,
    })
}

pub(super) fn print(report: &PassReport, out: &Output) -> Result<(), Failure> {
    let Arranged { versions, moved_bytes, reclaimed, retired_bytes, written_bytes, unreadable, was_stopped, .. } =
        &report.arranged;
    for name in names(unreadable) {
        out.warn(&format!("{name} cannot be read and stays as it is; `larder check --read-data` says more"));
    }
    print_cold(&report.arranged.cold, "are not arranged", out);
    if *was_stopped {
        out.info("no time was left to arrange everything; the next pass continues")?;
    }
    let planned = &report.plan.arranging;
    let damaged_series = report.arranged.damaged_series + planned.damaged_series;
    if damaged_series > 0 {
        out.warn(&format!("damage keeps {damaged_series} series from being arranged; `larder check` says more"));
    }
    if !planned.is_empty() {
        print_planned(planned, out)?;
    }
    if *versions == 0 && *reclaimed == 0 || !matches!(report.outcome, Outcome::Published(_)) {
        return Ok(());
    }
    let (snapshots, containers) = (sizes::count(*versions, "snapshot"), sizes::count(*reclaimed, "container"));
    let (bytes, moved) = (sizes::show(retired_bytes.0), sizes::show(moved_bytes.0));
    let stored = sizes::show(written_bytes.0);
    if *reclaimed == 0 {
        return out.info(format!("arranged {snapshots}"));
    }
    out.info(format!(
        "arranged {snapshots}: retired {containers} ({bytes}), moved {moved} of them into volumes ({stored} stored)"
    ))
}

fn print_planned(planned: &ArrangePlan, out: &Output) -> Result<(), Failure> {
    let (snapshots, containers) =
        (sizes::count(planned.versions, "snapshot"), sizes::count(planned.containers, "container"));
    let (bytes, moved) = (sizes::show(planned.container_bytes.0), sizes::show(planned.moved_bytes.0));
    out.info(format!(
        "would arrange {snapshots} of series in the layout lifecycle: retire {containers} ({bytes}), and move {moved} of them into volumes"
    ))?;
    match planned.versions {
        0 => Ok(()),
        _ => out.info("what moves of containers that only new snapshots have is not in this plan: it shows when they are in the index"),
    }
}
