//! A pass that was made: what is said of it, and how the command ends.

use std::time::Duration;

use larder_format::lease::{JobKind, Pin};
use larder_gnode::pass::cost::{Requests, saved_monthly};
use larder_gnode::pass::{AbortedJob, Kept, OpenUploads, Outcome, PassReport};
use larder_store::StoreStats;
use serde_json::{Map, Value, json};

use super::defragment::DefragmentReport;
use super::{arrange, reclaim};
use crate::args::PassArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, safe, summary};
use crate::{sizes, time};

/// A pass that was made.
pub(in crate::commands) struct Made {
    pub(in crate::commands) report: PassReport,
    pub(super) compacted: DefragmentReport,
    pub(super) elapsed: Duration,
    /// Bytes of memory for the tables of the index.
    pub(super) table_memory: u64,
    /// What a dry run took to find everything out.
    pub(super) planning: Requests,
    pub(super) requests: StoreStats,
    /// Whether the store keeps what is deleted.
    pub(super) keeps_versions: bool,
}

impl Made {
    /// Whether something is left that another pass can do.
    pub(in crate::commands) fn is_unfinished(&self) -> bool {
        self.report.is_unfinished || self.compacted.was_stopped
    }

    /// Gives out the generations that it made.
    pub(in crate::commands) fn take_generations(&mut self) -> Vec<(Pin, u32)> {
        std::mem::take(&mut self.compacted.generations)
    }

    /// How the command ends. Time or a budget that is used up was asked for; what is lost or damaged must not end as if all were well.
    pub(in crate::commands) fn exit(&self, is_cancelled: bool) -> Exit {
        let has_damage = self.report.found_damage() || self.compacted.found_damage();
        match self.report.outcome {
            _ if is_cancelled && self.is_unfinished() => Exit::Interrupted,
            _ if has_damage => Exit::Damage,
            Outcome::Lost => Exit::Busy,
            _ if self.compacted.failures() > 0 || !self.report.undeleted.is_empty() => Exit::Partly,
            _ => Exit::Done,
        }
    }

    /// Says what was planned and done.
    pub(in crate::commands) fn show(&self, out: &Output, args: &PassArgs) -> Result<(), Failure> {
        if out.is_json() { out.json_now(&self.json(args)) } else { self.print(out, args) }
    }

    fn json(&self, args: &PassArgs) -> Map<String, Value> {
        let PassReport { outcome, plan, done, kept, live_jobs, manifests_read, .. } = &self.report;
        let prices = args.prices.unwrap_or_default();
        let requests = Requests::of(plan);
        let (outcome, index) = match outcome {
            Outcome::Planned => ("planned", None),
            Outcome::Nothing if self.compacted.was_stopped && self.compacted.is_empty() => ("stopped", None),
            Outcome::Nothing => ("nothing_to_do", None),
            Outcome::Published(number) => ("done", Some(number)),
            Outcome::Lost => ("lost", None),
            Outcome::Stopped => ("stopped", None),
        };
        let fenced: Vec<_> = plan.fenced.iter().map(|aborted| aborted.job.to_string()).collect();
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
        let undeleted = self.report.undeleted.iter();
        put("keeps_versions", json!(self.keeps_versions));
        put("undeleted", undeleted.map(|object| json!({ "object": object.name, "error": object.why })).collect());
        put("reclaimed", reclaim::json(&self.report));
        put("arranged", arrange::json(&self.report));
        put("missing_containers", json!(self.report.missing_containers));
        let waiting = self.report.waiting;
        let until_ms = Some(waiting.until_ms).filter(|until_ms| waiting.containers > 0 && *until_ms < u64::MAX);
        put("waiting", json!({ "containers": waiting.containers, "bytes": waiting.bytes.0, "until_ms": until_ms }));
        put("open_uploads", self.report.open_uploads.iter().map(open_json).collect());
        put("unlisted_containers", json!(reclaim::names(&self.report.unlisted)));
        put("index_rebuilt", json!(self.report.rebuilt));
        put("table_bytes", json!(self.report.table_bytes));
        put("defragmented", self.compacted.json(&prices));
        put("unfinished", json!(self.is_unfinished()));
        put("kept", json!(kept.iter().map(kept_json).collect::<Vec<_>>()));
        put("live_jobs", json!(live_jobs));
        put("manifests_read", json!(manifests_read));
        put("total_duration", json!(self.elapsed.as_secs_f64()));
        summary::put_requests(&mut object, &self.requests);
        object
    }

    fn print(&self, out: &Output, args: &PassArgs) -> Result<(), Failure> {
        let PassReport { outcome, plan, done, .. } = &self.report;
        if *outcome == Outcome::Stopped && self.compacted.is_empty() {
            return out.info("stopped before a decision: nothing was deleted; the next pass continues");
        }
        self.compacted.print(out, &args.prices.unwrap_or_default())?;
        for AbortedJob { job, has_ended } in &plan.fenced {
            let what = if *outcome == Outcome::Planned { "would abort" } else { "aborted" };
            let why = match has_ended {
                true => "it ended without a snapshot".to_owned(),
                false => format!("no heartbeat for {}", time::show_duration(args.dead_after)),
            };
            out.info(format!("{what} job {}: {why}", job.short()))?;
        }
        for kept in &self.report.kept {
            let (id, by) = (kept.version.job.short(), doing(kept));
            out.info(format!("forgotten snapshot {id} stays for now: {by} on {} needs it", safe(&kept.host)))?;
        }
        if let Some(number) = self.report.rebuilt {
            out.warn(&format!("the index was missing; index {number} was rebuilt from snapshots and containers first"));
        }
        if self.report.missing_containers > 0 {
            let missing = sizes::count(self.report.missing_containers, "container");
            out.warn(&format!(
                "{missing} that snapshots need cannot be found; `larder repair index` may find their chunks elsewhere"
            ));
        }
        print_waiting(&self.report, out)?;
        print_open(&self.report, args, out)?;
        if self.report.table_bytes > self.table_memory {
            let table = sizes::show(self.report.table_bytes);
            out.warn(&format!("the table of containers took about {table} of memory, in addition to --memory"));
        }
        for name in reclaim::names(&self.report.unlisted) {
            out.warn(&format!("{name} cannot be read and is not in the index; `larder check --read-data` says more"));
        }
        reclaim::print(&self.report, out)?;
        arrange::print(&self.report, out)?;
        let reclaimed = &plan.reclaimed;
        let bytes = plan.container_bytes.0 + reclaimed.container_bytes.0 + plan.arranging.container_bytes.0;
        let bytes = sizes::show(bytes);
        let containers = plan.data_containers + plan.meta_containers + reclaimed.containers + plan.arranging.containers;
        let containers = sizes::count(containers, "container");
        let others = sizes::count(plan.entries + plan.index_objects, "other object");
        match outcome {
            Outcome::Nothing if self.compacted.was_stopped => return Ok(()),
            Outcome::Nothing if self.compacted.is_empty() => return out.info("nothing to do"),
            Outcome::Nothing => return Ok(()),
            Outcome::Stopped => {
                return out.info("stopped before a decision: nothing was deleted; the next pass continues");
            }
            Outcome::Lost => {
                out.warn("other passes were faster every time; this pass did nothing");
                return Ok(());
            }
            Outcome::Planned if plan.is_empty() && self.compacted.is_empty() => {
                return out.info("nothing to do");
            }
            Outcome::Planned if plan.is_empty() => return Ok(()),
            Outcome::Planned => {
                let prices = args.prices.unwrap_or_default();
                let requests = Requests::of(plan);
                if plan.versions_ingested > 0 {
                    let snapshots = sizes::count(plan.versions_ingested, "new snapshot");
                    let new = sizes::count(plan.new_containers, "container");
                    out.info(format!("would index {snapshots} with {new}"))?;
                    // What lies twice shows when their chunks are listed, and a dry run writes no list.
                    out.info(
                        "duplicates in these snapshots are not in this plan: they show once the snapshots are indexed",
                    )?;
                }
                out.info(format!("would delete {containers} ({bytes}) and {others}"))?;
                let count = requests.count();
                let (cost, saved) = (requests.price(&prices), saved_monthly(plan, &prices));
                out.info(format!(
                    "this takes {} ({cost:.4}) and saves {saved:.4} per month",
                    sizes::count(count, "request")
                ))?;
                let (count, cost) = (self.planning.count(), self.planning.price(&prices));
                return out.info(format!(
                    "planning took {} ({cost:.4}); the run itself needs about as many again",
                    sizes::count(count, "request")
                ));
            }
            Outcome::Published(_) => {}
        }
        let (bytes, containers) = (sizes::show(done.container_bytes.0), sizes::count(done.containers, "container"));
        let (others, duration) = (sizes::count(done.entries, "other object"), time::show_duration(self.elapsed));
        out.info(format!("deleted {containers} ({bytes}) and {others} in {duration}"))?;
        if self.keeps_versions && done.containers > 0 {
            out.warn(
                "the bucket keeps old versions of objects: what was deleted takes space until a lifecycle rule for noncurrent versions removes it",
            );
        }
        if let Some(first) = self.report.undeleted.first() {
            let objects = sizes::count(self.report.undeleted.len() as u64, "object");
            out.warn(&format!("{objects} could not be deleted ({}); the next pass tries again", first.why));
        } else if self.report.is_unfinished {
            out.info("stopped early; the next pass continues")?;
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

/// Says how much space of interrupted jobs waits, until when, and how it is freed now.
fn print_waiting(report: &PassReport, out: &Output) -> Result<(), Failure> {
    let waiting = &report.waiting;
    if waiting.containers == 0 {
        return Ok(());
    }
    let containers = sizes::count(waiting.containers, "container");
    let bytes = sizes::show(waiting.bytes.0);
    let until = match waiting.until_ms {
        u64::MAX => String::new(),
        until_ms => format!(" until {}", time::show(until_ms)),
    };
    out.info(format!(
        "uploads of interrupted backups stay{until}: {containers} ({bytes}); `--min-age 0` frees them now"
    ))
}

/// Says what backups uploaded that run or were killed: a lease does not tell which.
fn print_open(report: &PassReport, args: &PassArgs, out: &Output) -> Result<(), Failure> {
    let dead_after_ms = u64::try_from(args.dead_after.as_millis()).unwrap_or(u64::MAX);
    for uploads in &report.open_uploads {
        let containers = sizes::count(uploads.containers, "container");
        let (bytes, host) = (sizes::show(uploads.bytes.0), safe(&uploads.host));
        let until = time::show(uploads.renewed_ms.saturating_add(dead_after_ms));
        out.info(format!(
            "a backup on {host} has not ended: {containers} ({bytes}); it is aborted if it shows no heartbeat until {until}"
        ))?;
        out.info(
            "if it was killed, `--dead-after 15m --min-age 0` frees its space 15 minutes after its last heartbeat",
        )?;
    }
    Ok(())
}

fn open_json(uploads: &OpenUploads) -> Value {
    json!({
        "job": uploads.job.to_string(),
        "host": uploads.host,
        "containers": uploads.containers,
        "bytes": uploads.bytes.0,
        "heartbeat_ms": uploads.renewed_ms,
    })
}
