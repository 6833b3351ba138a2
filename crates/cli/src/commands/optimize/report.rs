//! The report of a round of maintenance.

use larder_fleet::SharedPassReport;
use larder_format::lease::JobKind;
use larder_gnode::maintenance::{MaintenanceOptions, MaintenanceReport};
use larder_gnode::pass::cost::{Requests, saved_monthly};
use larder_gnode::pass::{AbortedJob, Kept, OpenUploads, Outcome, PassReport, Unproved, WhyUnproved};
use larder_store::prices::Prices;
use serde_json::{Map, Value, json};

use super::{arrange, defragment, reclaim, refused, shared};
use crate::args::PassArgs;
use crate::failure::Failure;
use crate::output::{Output, safe, summary};
use crate::{sizes, time};

/// A round of maintenance and the options that shape its report.
pub(super) struct Shown<'a> {
    pub(super) report: &'a MaintenanceReport,
    pub(super) options: &'a MaintenanceOptions,
    pub(super) args: &'a PassArgs,
    /// `None`: the prices of the storage are unknown.
    pub(super) prices: Option<Prices>,
    /// The part of workers, if it was shared.
    pub(super) shared: Option<SharedPassReport>,
}

impl Shown<'_> {
    /// Prints the plan and the result.
    pub(super) fn show(&self, out: &Output) -> Result<(), Failure> {
        if out.is_json() {
            return out.json_now(&self.json());
        }
        out.keep_summary(|| Value::Object(self.json()));
        self.print(out)
    }

    fn json(&self) -> Map<String, Value> {
        let MaintenanceReport { pass, refused, defragmented, planning, .. } = self.report;
        let PassReport { outcome, plan, done, kept, live_jobs, manifests_read, .. } = pass;
        let prices = self.prices.as_ref();
        let requests = Requests::of(plan);
        let (outcome, index) = match outcome {
            Outcome::Planned => ("planned", None),
            Outcome::Nothing if defragmented.was_stopped && defragmented.is_empty() => ("stopped", None),
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
                "cost": prices.map(|prices| requests.price(prices)),
                "planning_requests": planning.count(),
                "planning_cost": prices.map(|prices| planning.price(prices)),
                "saved_monthly": prices.map(|prices| saved_monthly(plan, prices)),
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
        let undeleted = pass.undeleted.iter();
        put("keeps_versions", json!(self.report.keeps_versions));
        put("undeleted", undeleted.map(|object| json!({ "object": object.name, "error": object.why })).collect());
        put("reclaimed", reclaim::json(pass));
        put("arranged", arrange::json(pass));
        put("shared", shared::json(self.shared.as_ref()));
        put("missing_containers", json!(pass.missing_containers));
        put("unproved", pass.unproved.iter().map(unproved_json).collect());
        let waiting = pass.waiting;
        let until_ms = Some(waiting.until_ms).filter(|until_ms| waiting.containers > 0 && *until_ms < u64::MAX);
        put("waiting", json!({ "containers": waiting.containers, "bytes": waiting.bytes.0, "until_ms": until_ms }));
        put("open_uploads", pass.open_uploads.iter().map(open_json).collect());
        put("unlisted_containers", json!(reclaim::names(&pass.unlisted)));
        put("cold_unlisted_containers", json!(pass.cold_unlisted));
        let (cold_unused, cold_until) = reclaim::cold_unused(pass);
        put("cold_unused_bytes", json!(cold_unused));
        put("cold_until", cold_until);
        put("index_rebuilt", json!(pass.rebuilt));
        put("table_bytes", json!(pass.table_bytes));
        put("refused", refused::json(refused));
        put("defragmented", defragment::json(defragmented, prices));
        put("unfinished", json!(self.report.is_unfinished()));
        put("kept", json!(kept.iter().map(kept_json).collect::<Vec<_>>()));
        put("live_jobs", json!(live_jobs));
        put("manifests_read", json!(manifests_read));
        put("total_duration", json!(self.report.elapsed.as_secs_f64()));
        summary::put_requests(&mut object, &self.report.requests);
        object
    }

    fn print(&self, out: &Output) -> Result<(), Failure> {
        let MaintenanceReport { pass, refused, defragmented, planning, .. } = self.report;
        let PassReport { outcome, plan, done, .. } = pass;
        refused::print(refused, self.options.pass.dry_run, out)?;
        if *outcome == Outcome::Stopped && defragmented.is_empty() {
            return out.info("stopped before a decision: nothing was deleted; the next pass continues");
        }
        let args = self.args;
        let prices = self.prices.as_ref();
        defragment::print(defragmented, self.options.pass.dry_run, out, prices)?;
        for AbortedJob { job, has_ended } in &plan.fenced {
            let what = if *outcome == Outcome::Planned { "would abort" } else { "aborted" };
            let why = match has_ended {
                true => "it ended without a snapshot".to_owned(),
                false => format!("no heartbeat for {}", time::show_duration(args.dead_after)),
            };
            out.info(format!("{what} job {}: {why}", job.short()))?;
        }
        for kept in &pass.kept {
            let (id, by) = (kept.version.job.short(), doing(kept));
            out.info(format!("forgotten snapshot {id} stays for now: {by} on {} needs it", safe(&kept.host)))?;
        }
        if let Some(number) = pass.rebuilt {
            out.warn(&format!("the index was missing; index {number} was rebuilt from snapshots and containers first"));
        }
        if pass.missing_containers > 0 {
            let missing = sizes::count(pass.missing_containers, "container");
            out.warn(&format!(
                "{missing} that snapshots need cannot be found; `larder repair index` may find their chunks elsewhere"
            ));
        }
        print_unproved(pass, out)?;
        print_waiting(pass, out)?;
        print_open(pass, args, out)?;
        for name in reclaim::names(&pass.unlisted) {
            out.warn(&format!("{name} cannot be read and is not in the index; `larder check --read-data` says more"));
        }
        if pass.cold_unlisted > 0 {
            let containers = sizes::count(pass.cold_unlisted, "new container");
            out.remark(&format!(
                "note: {containers} in cold storage: their chunks are not in the index, and are not shared"
            ));
        }
        reclaim::print(pass, out)?;
        shared::print(self.shared.as_ref(), out)?;
        arrange::print(pass, out)?;
        let reclaimed = &plan.reclaimed;
        let bytes = plan.container_bytes.0 + reclaimed.container_bytes.0 + plan.arranging.container_bytes.0;
        let bytes = sizes::show(bytes);
        let containers = plan.data_containers + plan.meta_containers + reclaimed.containers + plan.arranging.containers;
        let containers = sizes::count(containers, "container");
        let others = sizes::count(plan.entries + plan.index_objects, "other object");
        match outcome {
            Outcome::Nothing if defragmented.was_stopped => return Ok(()),
            Outcome::Nothing if defragmented.is_empty() => return out.info("nothing to do"),
            Outcome::Nothing => return Ok(()),
            Outcome::Stopped => {
                return out.info("stopped before a decision: nothing was deleted; the next pass continues");
            }
            Outcome::Lost => {
                out.warn("other passes were faster every time; this pass did nothing");
                return Ok(());
            }
            Outcome::Planned if plan.is_empty() && defragmented.is_empty() => {
                return out.info("nothing to do");
            }
            Outcome::Planned if plan.is_empty() => return Ok(()),
            Outcome::Planned => {
                let requests = Requests::of(plan);
                if plan.versions_ingested > 0 {
                    let snapshots = sizes::count(plan.versions_ingested, "new snapshot");
                    let new = sizes::count(plan.new_containers, "container");
                    out.info(format!("would index {snapshots} with {new}"))?;
                    // Duplicates are found when their chunks are listed, and a dry run writes no
                    // list.
                    out.info(
                        "duplicates in these snapshots are not in this plan: they show once the snapshots are indexed",
                    )?;
                }
                out.info(format!("would delete {containers} ({bytes}) and {others}"))?;
                let count = sizes::count(requests.count(), "request");
                out.info(match prices {
                    Some(prices) => {
                        let (cost, saved) = (requests.price(prices), saved_monthly(plan, prices));
                        let currency = &prices.currency;
                        format!("this takes {count} ({cost:.4} {currency}) and saves {saved:.4} {currency} per month")
                    }
                    None => format!("this takes {count}"),
                })?;
                let count = sizes::count(planning.count(), "request");
                let cost = prices
                    .map_or_else(String::new, |prices| format!(" ({:.4} {})", planning.price(prices), prices.currency));
                return out.info(format!("planning took {count}{cost}; the run itself needs about as many again"));
            }
            Outcome::Published(_) => {}
        }
        let (bytes, containers) = (sizes::show(done.container_bytes.0), sizes::count(done.containers, "container"));
        let (others, duration) = (sizes::count(done.entries, "other object"), time::show_duration(self.report.elapsed));
        out.info(format!("deleted {containers} ({bytes}) and {others} in {duration}"))?;
        if self.report.keeps_versions && done.containers > 0 {
            out.warn(
                "the bucket keeps old versions of objects: what was deleted takes space until a lifecycle rule for noncurrent versions removes it",
            );
        }
        if let Some(first) = pass.undeleted.first() {
            let objects = sizes::count(pass.undeleted.len() as u64, "object");
            out.warn(&format!("{objects} could not be deleted ({}); the next pass tries again", first.why));
        } else if pass.is_unfinished {
            out.info("stopped early; the next pass continues")?;
        }
        Ok(())
    }
}

/// What a run would do, for people.
pub(super) fn say_rehearsed(report: &MaintenanceReport, out: &Output) -> Result<(), Failure> {
    let PassReport { done, reclaimed, .. } = &report.pass;
    let containers = sizes::count(done.containers, "container");
    let (bytes, others) = (sizes::show(done.container_bytes.0), sizes::count(done.entries, "other object"));
    let moved = reclaimed.copied_bytes.0 + report.defragmented.bytes;
    out.info(format!("would delete {containers} ({bytes}) and {others}, and move {}", sizes::show(moved)))
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

fn unproved_json(unproved: &Unproved) -> Value {
    let Unproved { version, generation, why } = unproved;
    let name = larder_format::names::version(version.series, version.job, *generation);
    let why = match why {
        WhyUnproved::Waiting { bytes } => json!({ "waits_for_bytes": bytes }),
        WhyUnproved::NeedsContents => json!({ "needs_role": "restore" }),
        WhyUnproved::Refuted { why } => json!({ "error": why }),
    };
    json!({ "id": version.job.to_string(), "object": name, "reason": why })
}

/// Snapshots that another process rewrote, and whose earlier form stays.
fn print_unproved(pass: &PassReport, out: &Output) -> Result<(), Failure> {
    for Unproved { version, generation, why } in &pass.unproved {
        let id = version.job.short();
        match why {
            WhyUnproved::Waiting { bytes } => {
                let bytes = sizes::show(*bytes);
                out.info(format!(
                    "another process rewrote snapshot {id}; its earlier data stays until {bytes} were read (--prove-max)"
                ))?;
            }
            WhyUnproved::NeedsContents => out.info(format!(
                "another process rewrote snapshot {id}; its earlier data stays until a pass with the roles restore+operate compared both"
            ))?,
            WhyUnproved::Refuted { why } => {
                let name = larder_format::names::version(version.series, version.job, *generation);
                out.warn(&format!("{name} is not used, and the earlier data of snapshot {id} stays: {why}"));
            }
        }
    }
    Ok(())
}

/// Prints how much space waits for its age, until when, and how to free it now.
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
        "{containers} ({bytes}) that no snapshot needs: young objects stay{until}; `larder optimize --min-age 0` deletes them now"
    ))
}

/// Prints uploads of backups that run or were killed: a lease does not tell which.
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
