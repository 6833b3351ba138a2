//! The part of what `larder optimize` says about series in the layout `lifecycle`.

use larder_gnode::arranging::Arranged;
use larder_gnode::pass::{Outcome, PassReport};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;
use crate::sizes;

pub(super) fn json(report: &PassReport) -> Value {
    let arranged = &report.arranged;
    let unreadable: Vec<_> = arranged.unreadable.iter().map(|id| larder_format::names::container(*id)).collect();
    json!({
        "snapshots": arranged.versions,
        "containers": arranged.given_up,
        "container_bytes": arranged.given_up_bytes.0,
        "moved_chunks": arranged.moved_chunks,
        "moved_bytes": arranged.moved_bytes.0,
        "containers_written": arranged.written,
        "stored_bytes": arranged.written_bytes.0,
        "unreadable_containers": unreadable,
    })
}

pub(super) fn print(report: &PassReport, out: &Output) -> Result<(), Failure> {
    let Arranged { versions, moved_bytes, given_up, given_up_bytes, written_bytes, unreadable, was_stopped, .. } =
        &report.arranged;
    for container in unreadable {
        let name = larder_format::names::container(*container);
        out.warn(&format!("{name} cannot be read and stays as it is; `larder check --read-data` says more"));
    }
    if *was_stopped {
        out.info("there was no time to arrange everything; the next pass goes on")?;
    }
    if *versions == 0 && *given_up == 0 || !matches!(report.outcome, Outcome::Published(_)) {
        return Ok(());
    }
    let (snapshots, containers) = (sizes::count(*versions, "snapshot"), sizes::count(*given_up, "container"));
    let (bytes, moved) = (sizes::show(given_up_bytes.0), sizes::show(moved_bytes.0));
    let stored = sizes::show(written_bytes.0);
    out.info(format!(
        "arranged {snapshots}: gave up {containers} ({bytes}), moved {moved} of them to their volumes ({stored} stored)"
    ))
}
