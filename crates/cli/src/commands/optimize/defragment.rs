//! The part of `larder optimize` that lays newest snapshots out again.

use std::collections::BTreeMap;

use larder_format::container::CONTAINER_TARGET;
use larder_format::ids::JobId;
use larder_format::lease::Pin;
use larder_gnode::defragment::{DefragmentError, DefragmentOptions, DefragmentPlan, Defragmented, Defragmenter, plans};
use larder_gnode::forget::pin_of;
use larder_gnode::pass::cost::{Prices, Requests};
use larder_job::{Cancel, JobContext};
use larder_rewrite::chunk_copier::RewriteError;
use larder_store::Repository;
use serde_json::{Value, json};

use super::deadline::Deadline;
use crate::app::App;
use crate::args::PassArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes;

/// What was copied together and shared, or would be.
#[derive(Debug, Default)]
pub(super) struct DefragmentReport {
    is_planned: bool,
    snapshots: u64,
    /// Containers that these snapshots do not use any more.
    containers: u64,
    bytes: u64,
    stored_bytes: u64,
    requests: Requests,
    shared_bytes: u64,
    /// Those that were not rewritten, and the exit codes of why.
    failed: BTreeMap<JobId, Exit>,
    /// How often somebody else was faster.
    overtaken: u64,
    /// Whether it ended before everything was done, because it was told to or had no more time.
    pub(super) was_stopped: bool,
    /// Whether it was known that something was left then.
    has_left: bool,
    /// The generations that it made.
    pub(super) generations: Vec<(Pin, u32)>,
}

/// Lays newest snapshots out again, as often as there is something to do. One that is damaged is left as it is, with a warning.
pub(super) struct Compaction<'a> {
    app: &'a App,
    args: &'a PassArgs,
    is_dry: bool,
    context: JobContext,
    /// The same, remembering runs of the index, for plans. What is copied or shared is read from the store.
    looking: JobContext,
    options: DefragmentOptions,
    deadline: Deadline,
    pub(super) report: DefragmentReport,
}

impl<'a> Compaction<'a> {
    pub(super) fn new(
        app: &'a App,
        repository: &Repository,
        remembering: &Repository,
        args: &'a PassArgs,
        is_dry: bool,
        cancel: &Cancel,
        deadline: Deadline,
    ) -> Self {
        let context = JobContext { cancel: cancel.clone(), ..app.reading(repository.clone()) };
        let looking = JobContext { repository: remembering.clone(), ..context.clone() };
        let report = DefragmentReport { is_planned: is_dry, ..DefragmentReport::default() };
        Self { app, args, is_dry, context, looking, options: args.compaction(&app.global), deadline, report }
    }

    /// Says whether anything was done.
    pub(super) fn run(&mut self) -> Result<bool, Failure> {
        let mut has_done = false;
        loop {
            let before = self.report.snapshots;
            if self.must_stop() {
                return Ok(has_done);
            }
            let plans = plans(&self.looking, &self.options)?;
            for version in &plans.unreadable {
                self.failed(version.id(), Exit::Damage, "its manifest cannot be read");
            }
            let mut compactor = Defragmenter::new(&self.context, &self.options);
            for plan in &plans.plans {
                let must_stop = self.must_stop();
                self.report.has_left |= must_stop;
                if must_stop || !self.compact(&mut compactor, plan)? {
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

    fn must_stop(&mut self) -> bool {
        let must_stop = self.deadline.is_over() || self.context.cancel.is_cancelled();
        self.report.was_stopped |= must_stop;
        must_stop
    }

    fn failed(&mut self, id: JobId, exit: Exit, why: &str) {
        if self.report.failed.insert(id, exit).is_none() {
            self.app.out.warn(&format!("snapshot {} was not rewritten: {why}", id.short()));
        }
    }

    /// Says whether to go on.
    fn compact(&mut self, compactor: &mut Defragmenter, plan: &DefragmentPlan) -> Result<bool, Failure> {
        let (report, id) = (&mut self.report, plan.version.id());
        if report.failed.contains_key(&id) {
            return Ok(true);
        }
        let after = report.bytes.saturating_add(plan.bytes);
        // Whatever needs no copy is within any limit.
        if plan.bytes > 0 && self.args.max_rewrite.is_some_and(|most| after > most) {
            return Ok(true);
        }
        let (mut bytes, mut stored_bytes, mut shared_bytes) = (plan.bytes, 0, plan.shared_bytes);
        if !self.is_dry {
            match compactor.compact(plan) {
                Ok(Defragmented::Done {
                    generation,
                    bytes: copied,
                    stored_bytes: stored,
                    shared_bytes: shared,
                    ..
                }) => {
                    report.generations.push((pin_of(&plan.version), generation));
                    (bytes, stored_bytes, shared_bytes) = (copied, stored, shared);
                }
                Ok(Defragmented::Overtaken) => {
                    report.overtaken += 1;
                    return Ok(true);
                }
                Err(DefragmentError::ChunkCopier(RewriteError::Interrupted)) => {
                    report.was_stopped = true;
                    report.has_left = true;
                    return Ok(false);
                }
                Err(error) => {
                    let failure = Failure::from(error);
                    self.failed(id, failure.exit, &failure.message);
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

impl DefragmentReport {
    pub(super) fn json(&self, prices: &Prices) -> Value {
        json!({
            "snapshots": self.snapshots,
            "containers": self.containers,
            "bytes": self.bytes,
            "stored_bytes": self.stored_bytes,
            "shared_bytes": self.shared_bytes,
            "failed": self.failed.len(),
            "overtaken": self.overtaken,
            "requests": self.requests.count(),
            "cost": self.requests.price(prices),
        })
    }

    /// Bytes that were copied, or would be.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Snapshots that were not rewritten because something failed.
    pub(super) fn failures(&self) -> usize {
        self.failed.len()
    }

    /// Whether damage kept a snapshot from being rewritten.
    pub(super) fn found_damage(&self) -> bool {
        self.failed.values().any(|exit| *exit == Exit::Damage)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.snapshots == 0
    }

    pub(super) fn print(&self, out: &Output, prices: &Prices) -> Result<(), Failure> {
        if self.has_left {
            out.info("no time was left to rewrite all snapshots; the next pass continues")?;
        } else if self.was_stopped {
            out.info("the time limit was reached before all snapshots were examined; the next pass continues")?;
        }
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
                out.info(format!("would rewrite {bytes}{shared}, so that {snapshots} would span {containers} fewer"))?;
                let (requests, cost) = (sizes::count(self.requests.count(), "request"), self.requests.price(prices));
                out.info(format!("{requests}: {cost:.4}"))
            }
            false => {
                let stored = sizes::show(self.stored_bytes);
                let copied = format!("rewrote {bytes} ({stored} stored)");
                let span = if self.snapshots == 1 { "spans" } else { "span" };
                match self.shared_bytes {
                    0 => out.info(format!("{copied}: {snapshots} now {span} {containers} fewer")),
                    _ => out.info(format!(
                        "{copied}, shared {shared} with others: {snapshots} now {span} {containers} fewer"
                    )),
                }
            }
        }
    }
}
