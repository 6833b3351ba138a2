//! The part of `larder optimize` that lays newest snapshots out anew.

use std::time::Instant;

use larder_gnode::compaction::{Compacted, CompactionError, CompactionOptions, compact, plans};
use larder_gnode::pass::cost::{Prices, Requests};
use larder_lnode::relayout::RelayoutError;
use larder_lnode::{Cancel, Context};
use larder_store::Repository;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::PassArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes;

/// What was copied together, or would be.
#[derive(Debug, Default)]
pub(super) struct CompactionReport {
    is_planned: bool,
    snapshots: u64,
    /// Containers that these snapshots do not use any more.
    containers: u64,
    bytes: u64,
    stored_bytes: u64,
    requests: Requests,
}

/// Compacts the newest snapshots. One that is damaged is left as it is, with a warning.
pub(super) fn compact_newest(
    app: &App,
    repository: &Repository,
    args: &PassArgs,
    is_dry: bool,
    cancel: &Cancel,
) -> Result<CompactionReport, Failure> {
    let started = Instant::now();
    let context = Context { cancel: cancel.clone(), ..app.reading(repository.clone()) };
    let options = CompactionOptions::default();
    let mut report = CompactionReport { is_planned: is_dry, ..CompactionReport::default() };
    for plan in plans(&context, &options)? {
        let is_late = args.max_duration.is_some_and(|most| started.elapsed() >= most);
        let is_too_much = args.max_rewrite.is_some_and(|most| report.bytes.saturating_add(plan.bytes) > most);
        if is_late || cancel.is_cancelled() {
            break;
        }
        if is_too_much {
            continue;
        }
        let (mut bytes, mut stored_bytes) = (plan.bytes, 0);
        if !is_dry {
            match compact(&context, &plan, &options) {
                Ok(Compacted::Done { bytes: copied, stored_bytes: stored, .. }) => {
                    (bytes, stored_bytes) = (copied, stored)
                }
                Ok(Compacted::Overtaken) => continue,
                Err(CompactionError::Relayout(RelayoutError::Interrupted)) => break,
                Err(error) => {
                    let failure = Failure::from(error);
                    let id = plan.version.id().short();
                    app.out.warn(&format!("snapshot {id} was not laid out anew: {}", failure.message));
                    continue;
                }
            }
        }
        report.snapshots += 1;
        report.containers += plan.containers.len() as u64;
        report.bytes += bytes;
        report.stored_bytes += stored_bytes;
        report.requests = report.requests.and(Requests::of_copying(plan.containers.len() as u64, bytes));
    }
    Ok(report)
}

impl CompactionReport {
    pub(super) fn json(&self, prices: &Prices) -> Value {
        json!({
            "snapshots": self.snapshots,
            "containers": self.containers,
            "bytes": self.bytes,
            "stored_bytes": self.stored_bytes,
            "requests": self.requests.count(),
            "cost": self.requests.price(prices),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.snapshots == 0
    }

    pub(super) fn print(&self, out: &Output, prices: &Prices) -> Result<(), Failure> {
        if self.is_empty() {
            return Ok(());
        }
        let (snapshots, bytes) = (sizes::count(self.snapshots, "snapshot"), sizes::show(self.bytes));
        let containers = sizes::count(self.containers, "container");
        match self.is_planned {
            true => {
                out.info(format!("would copy {bytes} together, so that {snapshots} will need {containers} less"))?;
                let (requests, cost) = (sizes::count(self.requests.count(), "request"), self.requests.price(prices));
                out.info(format!("{requests}: {cost:.4}"))
            }
            false => {
                let stored = sizes::show(self.stored_bytes);
                out.info(format!("copied {bytes} together ({stored} stored): {snapshots} will need {containers} less"))
            }
        }
    }
}
