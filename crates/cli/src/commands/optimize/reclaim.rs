//! The part of the report of `larder optimize` about containers that were retired.

use larder_format::ids::ContainerId;
use larder_gnode::pass::{Outcome, PassReport};
use larder_gnode::reclaim::{ReclaimPlan, ReclaimReport};
use larder_store::cold_containers::ColdLeft;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;
use crate::{sizes, time};

/// The names of containers.
pub(super) fn names(containers: &[ContainerId]) -> Vec<String> {
    containers.iter().map(|id| larder_format::names::container(*id)).collect()
}

pub(super) fn json(report: &PassReport) -> Value {
    let ReclaimPlan { containers, container_bytes, copied_bytes, unused_bytes, data_bytes, is_exact, waits } =
        &report.plan.reclaimed;
    let reclaimed = &report.reclaimed;
    let unreadable = names(&reclaimed.unreadable);
    json!({
        "containers": containers,
        "container_bytes": container_bytes.0,
        "unused_bytes": unused_bytes.0,
        "data_bytes": data_bytes.0,
        "waits": waits,
        "planned_copied_bytes": copied_bytes.0,
        "exact": is_exact,
        "redirected_chunks": reclaimed.redirected_chunks,
        "copied_chunks": reclaimed.copied_chunks,
        "copied_bytes": reclaimed.copied_bytes.0,
        "whole_bytes": reclaimed.whole_bytes.0,
        "dropped_chunks": reclaimed.dropped_chunks,
        "containers_written": reclaimed.written,
        "stored_bytes": reclaimed.written_bytes.0,
        "unreadable_containers": unreadable,
        "cold_containers": reclaimed.cold.containers,
        "cold_bytes": reclaimed.cold.bytes,
    })
}

/// Unused data in cold storage, of both layouts, for JSON: bytes, and the end of the minimum time.
pub(super) fn cold_unused(report: &PassReport) -> (u64, Value) {
    let (reclaimed, arranged) = (&report.reclaimed.cold, &report.arranged.cold);
    let until_ms = reclaimed.billed_until_ms.max(arranged.billed_until_ms);
    let until = if until_ms == 0 { Value::Null } else { json!(time::rfc3339(until_ms)) };
    (reclaimed.unused_bytes + arranged.unused_bytes, until)
}

/// Says what is in cold storage, and what of it is unused.
pub(super) fn print_cold(cold: &ColdLeft, what: &str, out: &Output) {
    if cold.containers == 0 {
        return;
    }
    let (containers, bytes) = (sizes::count(cold.containers, "container"), sizes::show(cold.bytes));
    out.remark(&format!("note: {containers} ({bytes}) in cold storage {what}"));
    if cold.unused_bytes == 0 {
        return;
    }
    let unused = sizes::show(cold.unused_bytes);
    let until = match cold.billed_until_ms {
        0 => String::new(),
        until_ms => format!(", minimum storage time until {}", time::show_day(until_ms)),
    };
    out.remark(&format!("note: {unused} unused in cold storage{until}"));
}

pub(super) fn print(report: &PassReport, out: &Output) -> Result<(), Failure> {
    let ReclaimReport { copied_bytes, written_bytes, unreadable, was_stopped, .. } = &report.reclaimed;
    for name in names(unreadable) {
        out.warn(&format!(
            "{name} cannot be read; no copy of its chunks was retired, and `larder check --read-data` says more"
        ));
    }
    print_cold(&report.reclaimed.cold, "stay as they are", out);
    if *was_stopped {
        out.info("no time was left to retire containers; the next pass starts again")?;
    }
    let plan = &report.plan.reclaimed;
    if plan.waits && plan.unused_bytes.0 > 0 {
        let (unused, all) = (sizes::show(plan.unused_bytes.0), sizes::show(plan.data_bytes.0));
        out.info(format!(
            "{unused} of {all} in containers of older snapshots are unused: too little to copy the rest"
        ))?;
    }
    if plan.containers == 0 {
        return Ok(());
    }
    let (containers, bytes) = (sizes::count(plan.containers, "container"), sizes::show(plan.container_bytes.0));
    match report.outcome {
        Outcome::Planned => {
            let copied = sizes::show(plan.copied_bytes.0);
            out.info(format!(
                "would retire {containers} ({bytes}) used by older snapshots, and keep about {copied} of it"
            ))
        }
        Outcome::Published(_) => {
            let (copied, stored) = (sizes::show(copied_bytes.0), sizes::show(written_bytes.0));
            out.info(format!(
                "retired {containers} ({bytes}) used by older snapshots; kept {copied} of it ({stored} stored)"
            ))
        }
        Outcome::Nothing | Outcome::Lost | Outcome::Stopped => Ok(()),
    }
}
