//! `larder optimize`, and the pass that `larder forget --prune` makes.

mod arranging;
mod compact;
mod giving_up;

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_format::lease::JobKind;
use larder_gnode::pass::cost::{Requests, saved_monthly};
use larder_gnode::pass::{
    Executor, Kept, Listing, Outcome, PassError, PassOptions, PassReport, Surroundings, remembering, run as run_pass,
};
use larder_lnode::{Cancel, Clock, SystemClock};
use larder_store::{Repository, StoreStats};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::{OptimizeArgs, PassArgs, TaskName};
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, safe, summary};
use crate::{sizes, time};
use compact::{Compaction, CompactionReport};

/// How often a pass that lost against another one begins again.
const TRIES: u32 = 5;

pub(super) fn run(app: &App, args: &OptimizeArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    pass(app, &opened.repository, &args.pass, args.dry_run)
}

/// Makes a pass and says what it did.
pub(super) fn pass(app: &App, repository: &Repository, args: &PassArgs, dry_run: bool) -> Result<Exit, Failure> {
    let cancel = app.interrupts.job_begins();
    let made = make(app, repository, args, dry_run, &cancel)?;
    made.show(&app.out, args)?;
    Ok(if cancel.is_cancelled() && made.report.is_unfinished { Exit::Interrupted } else { Exit::Done })
}

/// A pass that was made.
pub(super) struct Made {
    pub(super) report: PassReport,
    compacted: CompactionReport,
    elapsed: Duration,
    /// What a dry run took to find everything out.
    planning: Requests,
    requests: StoreStats,
}

/// Lays snapshots out anew and makes a pass.
pub(super) fn make(
    app: &App,
    repository: &Repository,
    args: &PassArgs,
    dry_run: bool,
    cancel: &Cancel,
) -> Result<Made, Failure> {
    let started = Instant::now();
    let before = repository.store().stats();
    // For one after the other: each of these reads the same runs of the index.
    let remembering = remembering(repository, table_memory(args));
    let mut compaction = Compaction::new(app, repository, &remembering, args, dry_run, cancel);
    // First, so that what is left by it is collected by the pass.
    if args.wants(TaskName::Compact) {
        compaction.run()?;
    }
    let mut report = PassReport::without_pass();
    if [TaskName::Collect, TaskName::Dedup, TaskName::Exact, TaskName::Arrange].into_iter().any(|task| args.wants(task))
    {
        report = pass_once(app, &remembering, args, compaction.report.bytes(), dry_run, cancel)?;
        // And again when the pass has taken something in: what lies twice shows only then.
        let is_news = matches!(report.outcome, Outcome::Published(_)) && !report.is_unfinished;
        if is_news && args.wants(TaskName::Compact) && compaction.run()? {
            let copied = compaction.report.bytes() + report.given_up.copied_bytes.0;
            report = report.followed_by(pass_once(app, &remembering, args, copied, dry_run, cancel)?);
        }
    }
    let requests = repository.store().stats();
    let planning = if dry_run { Requests::between(&before, &requests) } else { Requests::default() };
    Ok(Made { report, compacted: compaction.report, elapsed: started.elapsed(), planning, requests })
}

fn table_memory(args: &PassArgs) -> usize {
    usize::try_from(args.memory).unwrap_or(usize::MAX)
}

/// Makes a pass of the collector after so many bytes were copied; tries again when others are faster.
fn pass_once(
    app: &App,
    repository: &Repository,
    args: &PassArgs,
    copied: u64,
    dry_run: bool,
    cancel: &Cancel,
) -> Result<PassReport, Failure> {
    let surroundings = surroundings(repository, cancel);
    let options = PassOptions {
        dead_after: args.dead_after,
        dry_run,
        max_duration: args.max_duration,
        memory: table_memory(args),
        listing: if args.list_all { Listing::Whole } else { Listing::Auto },
        give_up: args.give_up(copied),
        arrange: args.arrange(),
        ..PassOptions::default()
    };
    for attempt in 1.. {
        let result = app.block_on(run_pass(&surroundings, &options));
        let is_lost = match &result {
            Ok(report) => report.outcome == Outcome::Lost,
            Err(error) => matches!(error, PassError::Overtaken),
        };
        if is_lost && attempt < TRIES {
            tracing::info!(attempt, "another pass was faster; this one begins again");
            continue;
        }
        return Ok(result?);
    }
    unreachable!("the last attempt returns")
}

/// What passes need of the world.
pub(super) fn surroundings(repository: &Repository, cancel: &Cancel) -> Surroundings {
    let stop = cancel.clone();
    Surroundings {
        repository: repository.clone(),
        now_ms: Arc::new(|| SystemClock.now_ms()),
        stop: Arc::new(move || stop.is_cancelled()),
        host: environment::host(),
        program: format!("larder {}", env!("CARGO_PKG_VERSION")),
        process: std::process::id(),
        executor: Executor::Threads,
    }
}

impl Made {
    /// Says what was planned and done.
    pub(super) fn show(&self, out: &Output, args: &PassArgs) -> Result<(), Failure> {
        if out.is_json() { out.json_now(&self.json(args)) } else { self.print(out, args) }
    }

    fn json(&self, args: &PassArgs) -> Map<String, Value> {
        let PassReport { outcome, plan, done, is_unfinished, kept, live_jobs, manifests_read, .. } = &self.report;
        let prices = args.prices.unwrap_or_default();
        let requests = Requests::of(plan);
        let (outcome, index) = match outcome {
            Outcome::Planned => ("planned", None),
            Outcome::Nothing => ("nothing_to_do", None),
            Outcome::Published(number) => ("done", Some(number)),
            Outcome::Lost => ("lost", None),
        };
        let fenced: Vec<_> = plan.fenced.iter().map(ToString::to_string).collect();
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("message_type", json!("summary"));
        put("outcome", json!(outcome));
        put("index", json!(index));
        put(
            "plan",
            json!({
                "data_containers": plan.data_containers,
                "meta_containers": plan.meta_containers,
                "container_bytes": plan.container_bytes.0,
                "snapshots": plan.versions,
                "entries": plan.entries,
                "index_objects": plan.index_objects,
                "deletions": plan.deletions(),
                "fenced_jobs": fenced,
                "snapshots_ingested": plan.versions_ingested,
                "new_containers": plan.new_containers,
                "requests": requests.count(),
                "cost": requests.price(&prices),
                "planning_requests": self.planning.count(),
                "planning_cost": self.planning.price(&prices),
                "saved_monthly": saved_monthly(plan, &prices),
            }),
        );
        put(
            "done",
            json!({
                "containers": done.containers,
                "container_bytes": done.container_bytes.0,
                "entries": done.entries,
            }),
        );
        put("given_up", giving_up::json(&self.report));
        put("arranged", arranging::json(&self.report));
        put("missing_containers", json!(self.report.missing_containers));
        put("index_made_anew", json!(self.report.rebuilt));
        put("table_bytes", json!(self.report.table_bytes));
        put("compacted", self.compacted.json(&prices));
        put("unfinished", json!(is_unfinished));
        put("kept", json!(kept.iter().map(kept_json).collect::<Vec<_>>()));
        put("live_jobs", json!(live_jobs));
        put("manifests_read", json!(manifests_read));
        put("total_duration", json!(self.elapsed.as_secs_f64()));
        summary::put_requests(&mut object, &self.requests);
        object
    }

    fn print(&self, out: &Output, args: &PassArgs) -> Result<(), Failure> {
        let PassReport { outcome, plan, done, .. } = &self.report;
        self.compacted.print(out, &args.prices.unwrap_or_default())?;
        for job in &plan.fenced {
            let what = if *outcome == Outcome::Planned { "would be" } else { "was" };
            out.info(format!("job {} is thought dead and {what} fenced off", job.short()))?;
        }
        for kept in &self.report.kept {
            let (id, by) = (kept.version.job.short(), doing(kept));
            out.info(format!("forgotten snapshot {id} stays for now: {by} on {} needs it", safe(&kept.host)))?;
        }
        if let Some(number) = self.report.rebuilt {
            out.warn(&format!("the index was gone; index {number} was made anew from snapshots and containers first"));
        }
        if self.report.missing_containers > 0 {
            let missing = sizes::count(self.report.missing_containers, "container");
            out.warn(&format!(
                "{missing} that snapshots need are gone; `larder repair index` may find their chunks elsewhere"
            ));
        }
        if self.report.table_bytes > args.memory {
            let (table, memory) = (sizes::show(self.report.table_bytes), sizes::show(args.memory));
            out.warn(&format!(
                "the table of containers took about {table} of memory, beside the {memory} that --memory says"
            ));
        }
        giving_up::print(&self.report, out)?;
        arranging::print(&self.report, out)?;
        let given_up = &plan.given_up;
        let bytes = sizes::show(plan.container_bytes.0 + given_up.container_bytes.0);
        let containers = plan.data_containers + plan.meta_containers + given_up.containers;
        let containers = sizes::count(containers, "container");
        let others = sizes::count(plan.entries + plan.index_objects, "other object");
        match outcome {
            Outcome::Nothing if self.compacted.is_empty() => return out.info("there is nothing to do"),
            Outcome::Nothing => return Ok(()),
            Outcome::Lost => return out.info("another pass was faster, again and again; this one did nothing"),
            Outcome::Planned if plan.is_empty() && self.compacted.is_empty() => {
                return out.info("there would be nothing to do");
            }
            Outcome::Planned if plan.is_empty() => return Ok(()),
            Outcome::Planned => {
                let prices = args.prices.unwrap_or_default();
                let requests = Requests::of(plan);
                if plan.versions_ingested > 0 {
                    let snapshots = sizes::count(plan.versions_ingested, "new snapshot");
                    let new = sizes::count(plan.new_containers, "container");
                    out.info(format!("would take {snapshots} with {new} into the index"))?;
                    // What lies twice shows when their chunks are listed, and a dry run writes no list.
                    out.info(
                        "what these store a second time is not in this plan: it shows when they are in the index",
                    )?;
                }
                out.info(format!("would delete {containers} ({bytes}) and {others}"))?;
                let count = requests.count();
                let (cost, saved) = (requests.price(&prices), saved_monthly(plan, &prices));
                out.info(format!(
                    "carrying this out takes {} ({cost:.4}) and saves {saved:.4} a month",
                    sizes::count(count, "request")
                ))?;
                let (count, cost) = (self.planning.count(), self.planning.price(&prices));
                return out.info(format!(
                    "planning it took {} ({cost:.4}), and takes about as many again",
                    sizes::count(count, "request")
                ));
            }
            Outcome::Published(_) => {}
        }
        let (bytes, containers) = (sizes::show(done.container_bytes.0), sizes::count(done.containers, "container"));
        let (others, duration) = (sizes::count(done.entries, "other object"), time::show_duration(self.elapsed));
        out.info(format!("deleted {containers} ({bytes}) and {others} in {duration}"))?;
        if self.report.is_unfinished {
            out.info("stopped before everything was done; the next pass goes on")?;
        }
        Ok(())
    }
}

fn doing(kept: &Kept) -> &'static str {
    match kept.kind {
        JobKind::Backup => "a backup",
        JobKind::Read => "a restore or check",
        JobKind::Task => "a pass",
    }
}

fn kept_json(kept: &Kept) -> Value {
    let kind = match kept.kind {
        JobKind::Backup => "backup",
        JobKind::Read => "read",
        JobKind::Task => "task",
    };
    json!({"snapshot": kept.version.job.to_string(), "job": kept.by.to_string(), "kind": kind, "host": kept.host})
}
