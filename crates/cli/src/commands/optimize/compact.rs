//! The part of `larder optimize` that lays newest snapshots out anew.

use std::time::Instant;

use larder_format::container::CONTAINER_TARGET;
use larder_gnode::compaction::{Compacted, CompactionError, CompactionOptions, CompactionPlan, Compactor, plans};
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

/// What was copied together and shared, or would be.
#[derive(Debug, Default)]
pub(super) struct CompactionReport {
    is_planned: bool,
    snapshots: u64,
    /// Containers that these snapshots do not use any more.
    containers: u64,
    bytes: u64,
    stored_bytes: u64,
    requests: Requests,
    shared_bytes: u64,
}

/// Lays newest snapshots out anew, as often as there is something to do. One that is damaged is left as it is, with a warning.
pub(super) struct Compaction<'a> {
    app: &'a App,
    args: &'a PassArgs,
    is_dry: bool,
    context: Context,
    /// The same, remembering runs of the index, for plans. What is copied or shared is read from the store.
    looking: Context,
    options: CompactionOptions,
    started: Instant,
    pub(super) report: CompactionReport,
}

impl<'a> Compaction<'a> {
    pub(super) fn new(
        app: &'a App,
        repository: &Repository,
        remembering: &Repository,
        args: &'a PassArgs,
        is_dry: bool,
        cancel: &Cancel,
    ) -> Self {
        let context = Context { cancel: cancel.clone(), ..app.reading(repository.clone()) };
        let looking = Context { repository: remembering.clone(), ..context.clone() };
        let report = CompactionReport { is_planned: is_dry, ..CompactionReport::default() };
        Self {
            app,
            args,
            is_dry,
            context,
            looking,
            options: CompactionOptions::default(),
            started: Instant::now(),
            report,
        }
    }

    /// Says whether anything was done.
    pub(super) fn run(&mut self) -> Result<bool, Failure> {
        let mut has_done = false;
        loop {
            let before = self.report.snapshots;
            let plans = plans(&self.looking, &self.options)?;
            let mut compactor = Compactor::new(&self.context, &self.options);
            for plan in &plans.plans {
                let is_late = self.args.max_duration.is_some_and(|most| self.started.elapsed() >= most);
                if is_late || self.context.cancel.is_cancelled() || !self.compact(&mut compactor, plan)? {
                    return Ok(has_done || self.report.snapshots > before);
                }
            }
            let is_done = self.report.snapshots > before;
            has_done |= is_done;
            // What memory could not hold is found when the rest of it is gone.
            if self.is_dry || !is_done || !plans.has_more {
                return Ok(has_done);
            }
        }
    }

    /// Says whether to go on.
    fn compact(&mut self, compactor: &mut Compactor, plan: &CompactionPlan) -> Result<bool, Failure> {
        let report = &mut self.report;
        let after = report.bytes.saturating_add(plan.bytes);
        // Whatever needs no copy is within any limit.
        if plan.bytes > 0 && self.args.max_rewrite.is_some_and(|most| after > most) {
            return Ok(true);
        }
        let (mut bytes, mut stored_bytes, mut shared_bytes) = (plan.bytes, 0, plan.shared_bytes);
        if !self.is_dry {
            match compactor.compact(plan) {
                Ok(Compacted::Done { bytes: copied, stored_bytes: stored, shared_bytes: shared, .. }) => {
                    (bytes, stored_bytes, shared_bytes) = (copied, stored, shared);
                }
                Ok(Compacted::Overtaken) => return Ok(true),
                Err(CompactionError::Relayout(RelayoutError::Interrupted)) => return Ok(false),
                Err(error) => {
                    let failure = Failure::from(error);
                    let id = plan.version.id().short();
                    self.app.out.warn(&format!("snapshot {id} was not laid out anew: {}", failure.message));
                    return Ok(true);
                }
            }
        }
        report.snapshots += 1;
        report.containers += plan.containers.len() as u64;
        report.bytes += bytes;
        report.stored_bytes += stored_bytes;
        report.shared_bytes += shared_bytes;
        // What is shared is read once.
        let read = plan.containers.len() as u64 + shared_bytes.div_ceil(CONTAINER_TARGET as u64);
        report.requests = report.requests.and(Requests::of_copying(read, bytes));
        Ok(true)
    }
}

impl CompactionReport {
    pub(super) fn json(&self, prices: &Prices) -> Value {
        json!({
            "snapshots": self.snapshots,
            "containers": self.containers,
            "bytes": self.bytes,
            "stored_bytes": self.stored_bytes,
            "shared_bytes": self.shared_bytes,
            "requests": self.requests.count(),
            "cost": self.requests.price(prices),
        })
    }

    /// Bytes that were copied, or would be.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
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
        let shared = sizes::show(self.shared_bytes);
        match self.is_planned {
            true => {
                let shared = match self.shared_bytes {
                    0 => String::new(),
                    _ => format!(" and share {shared} with others"),
                };
                out.info(format!(
                    "would copy {bytes} together{shared}, so that {snapshots} will need {containers} less"
                ))?;
                let (requests, cost) = (sizes::count(self.requests.count(), "request"), self.requests.price(prices));
                out.info(format!("{requests}: {cost:.4}"))
            }
            false => {
                let stored = sizes::show(self.stored_bytes);
                let copied = format!("copied {bytes} together ({stored} stored)");
                match self.shared_bytes {
                    0 => out.info(format!("{copied}: {snapshots} will need {containers} less")),
                    _ => out.info(format!(
                        "{copied}, shared {shared} with others: {snapshots} will need {containers} less"
                    )),
                }
            }
        }
    }
}
