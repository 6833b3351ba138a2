//! What `larder fleet` prints.

use std::ffi::OsString;
use std::time::Duration;

use larder_fleet::{
    BatchReport, BatchStatus, Cleaned, FleetImage, ImageReport, SharedStatus, StageId, StageStatus, WorkerStatus,
    batches, is_meant, shared_status, status as status_of,
};
use larder_format::fleet::{FleetPlan, Stage};
use larder_format::ids::JobId;
use larder_lnode::MapOutcome;
use larder_store::Repository;
use serde_json::{Map, Value, json};

use super::{POLL, shared};
use crate::app::App;
use crate::args::FleetStatusArgs;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{safe, summary};
use crate::{sizes, time};

/// Moves the cursor to the top of a terminal, and clears what is below.
const HOME: &str = "\x1b[H\x1b[J";

/// Whether a map left out a change.
pub(super) fn has_wrong_map(report: &BatchReport) -> bool {
    report.images.iter().any(|image| wrong_at(image).is_some() || image.remark.is_some())
}

fn wrong_at(image: &ImageReport) -> Option<u64> {
    match image.map.as_ref()?.outcome {
        MapOutcome::Wrong { offset } => Some(offset),
        MapOutcome::Used | MapOutcome::Unusable(_) => None,
    }
}

/// What would be backed up.
pub(super) fn plan(app: &App, repository: &Repository, images: &[FleetImage]) -> Result<Exit, Failure> {
    let newest = app.block_on(repository.newest_of_every_series())?;
    let is_one = images.iter().all(|image| image.round == 0);
    for image in images {
        let key = repository.keys().series_key(&image.series);
        let base = newest.iter().find(|version| version.series == key).map(|version| version.id());
        if app.out.is_json() {
            app.out.json(&json!({
                "message_type": "fleet_image",
                "name": image.name,
                "host": image.host,
                "series": image.series,
                "source": image.source,
                "round": image.round + 1,
                "parent": base.map(|id| id.to_string()),
                "dry_run": true,
            }))?;
            continue;
        }
        let compared = base.map_or_else(|| "first snapshot".to_owned(), |id| format!("compared with {}", id.short()));
        let (name, series) = (safe(&image.name), safe(&image.series));
        let of = if is_one { String::new() } else { format!("round {}, ", image.round + 1) };
        app.out.line(format!(
            "{name}: {of}series {series}, host {}, {}, {compared}",
            safe(&image.host),
            safe(&image.source)
        ))?;
    }
    app.out.info(format!("dry run: {} would be backed up", sizes::count(images.len() as u64, "image")))?;
    Ok(Exit::Done)
}

/// What became of a batch.
pub(super) fn report(app: &App, report: &BatchReport, took: Duration) -> Result<(), Failure> {
    for image in &report.images {
        one(app, image)?;
    }
    let saved: Vec<_> = report.images.iter().filter_map(|image| image.result.as_ref().ok()).collect();
    let sum = |of: fn(&larder_format::manifest::Statistics) -> u64| {
        saved.iter().map(|summary| of(&summary.statistics)).sum::<u64>()
    };
    let (logical, read, added) = (sum(|of| of.logical_bytes), sum(|of| of.read_bytes), sum(|of| of.added_bytes));
    let reread: u64 = report.images.iter().map(|image| image.reread_bytes).sum();
    let undecided = report.images.iter().filter(|image| image.is_undecided()).count();
    let failed = report.images.len() - saved.len() - undecided;
    if app.out.is_json() {
        app.out.json(&json!({
            "message_type": "fleet_summary",
            "batch": report.batch.to_string(),
            "images": report.images.len(),
            "images_saved": saved.len(),
            "images_failed": failed,
            "images_undecided": undecided,
            "total_bytes_processed": logical,
            "read_bytes": read,
            "reread_bytes": reread,
            "data_added": added,
            "data_added_packed": sum(|of| of.stored_bytes),
            "index_asked": report.asked_index,
            "memory_bytes": report.memory,
            "total_duration": took.as_secs_f64(),
        }))?;
    } else {
        let open = if undecided > 0 { format!(", {undecided} not decided yet") } else { String::new() };
        app.out.info(format!(
            "batch {}: {} of {} saved{open}",
            report.batch.short(),
            saved.len(),
            sizes::count(report.images.len() as u64, "image")
        ))?;
        app.out.info(format!(
            "{} of images, {} read, {} read again, {} new ({} stored) in {}",
            sizes::show(logical),
            sizes::show(read),
            sizes::show(reread),
            sizes::show(added),
            sizes::show(sum(|of| of.stored_bytes)),
            time::show_duration(took)
        ))?;
    }
    if let Some(error) = &report.ended_by {
        let ended = if undecided > 0 { "this process left the batch" } else { "the batch ended early" };
        app.out.warn(&format!("{ended}: {}", chain(error)));
    }
    Ok(())
}

/// What every message about an image begins with.
fn named(image: &ImageReport) -> Map<String, Value> {
    let FleetImage { name, host, series, source, .. } = &image.image;
    let fields =
        [("message_type", "fleet_image"), ("name", name), ("host", host), ("series", series), ("source", source)];
    fields.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

fn one(app: &App, image: &ImageReport) -> Result<(), Failure> {
    let name = safe(&image.image.name);
    let map = image.map.as_ref().map(|map| match map.outcome {
        MapOutcome::Used => "used",
        MapOutcome::Unusable(_) => "unusable",
        MapOutcome::Wrong { .. } => "wrong",
    });
    match &image.result {
        Ok(version) if app.out.is_json() => {
            let mut object = summary::statistics(&version.statistics);
            object.append(&mut named(image));
            let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
            put("snapshot_id", json!(version.id.to_string()));
            put("parent", json!(version.base.map(|id| id.to_string())));
            put("shares_with", json!(version.more_bases.len()));
            put("reread_bytes", json!(image.reread_bytes));
            map.into_iter().for_each(|map| put("map", json!(map)));
            wrong_at(image).into_iter().for_each(|at| put("map_wrong_at", json!(at)));
            app.out.json(&Value::Object(object))?;
        }
        Ok(version) => {
            let of = &version.statistics;
            app.out.info(format!(
                "{name}: snapshot {} in series {}, {} read, {} new",
                version.id.short(),
                safe(&image.image.series),
                sizes::show(of.read_bytes),
                sizes::show(of.added_bytes)
            ))?;
        }
        Err(failure) if image.is_undecided() => {
            if app.out.is_json() {
                let mut object = named(image);
                object.insert("undecided".to_owned(), json!(true));
                app.out.json(&Value::Object(object))?;
            }
            let why = failure.error.as_ref().map(|error| chain(error)).unwrap_or_default();
            app.out.warn(&format!("image {name} of host {}: {why}", safe(&image.image.host)));
        }
        Err(failure) => {
            let why = failure.error.as_ref().map_or_else(|| "the batch ended before".to_owned(), |error| chain(error));
            if app.out.is_json() {
                let mut object = named(image);
                object.insert("stage".to_owned(), json!(failure.stage.word()));
                object.insert("error".to_owned(), json!(why));
                app.out.json(&Value::Object(object))?;
            }
            app.out.warn(&format!(
                "image {name} of host {} was not saved (stage {}): {why}",
                safe(&image.image.host),
                failure.stage
            ));
        }
    }
    if let Some(remark) = &image.remark {
        app.out.warn(&format!("image {name}: {}", safe(remark)));
    }
    if let Some(why) = image.no_map {
        app.out.remark(&format!("note: image {name} was read as a whole, because {why}"));
    }
    if let Some(offset) = wrong_at(image) {
        app.out.warn(&format!(
            "image {name}: the map of changes is wrong: data at byte {offset} or behind it changed without being in the map. The whole image was read, so its snapshot is right"
        ));
    }
    Ok(())
}

/// What was removed.
pub(super) fn cleaned(app: &App, cleaned: &Cleaned) -> Result<(), Failure> {
    if app.out.is_json() {
        return app.out.json(&json!({
            "message_type": "fleet_cleaned",
            "batches": cleaned.batches,
            "objects": cleaned.objects,
            "open_batches": cleaned.open,
        }));
    }
    let (objects, batches) = (sizes::count(cleaned.objects, "object"), sizes::count(cleaned.batches, "batch"));
    app.out.info(format!("removed {objects} of {}", batches.replace("batchs", "batches")))?;
    if cleaned.open > 0 {
        app.out.info(format!(
            "{} still running, or killed: a pass ends it when it looks dead, after a day, or as `larder optimize \
             --dead-after` says",
            sizes::count(cleaned.open, "batch").replace("batchs", "batches")
        ))?;
    }
    Ok(())
}

/// No batch has this id.
pub(super) fn no_batch(id: &str) -> Failure {
    Failure::new(Exit::Failed, format!("no batch has left anything under {}", safe(id)))
        .advise("`larder fleet status` lists the batches; a pass or `fleet clean` removes what they left")
}

/// The stages of a batch, or of all batches, and the checks and passes that are shared.
pub(super) fn status(app: &App, args: &FleetStatusArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    if !args.watch {
        let all = wanted(app, &opened.repository, args.batch.as_ref())?;
        if app.out.is_json() {
            return app.out.json(&all.iter().map(Seen::json).collect::<Vec<_>>()).map(|()| Exit::Done);
        }
        if all.is_empty() {
            app.out.info("no batch has left anything")?;
        }
        all.iter().try_for_each(|seen| seen.print(app))?;
        return Ok(Exit::Done);
    }
    let cancel = app.interrupts.job_begins();
    while !cancel.is_cancelled() {
        let all = wanted(app, &opened.repository, args.batch.as_ref())?;
        if app.out.is_json() {
            app.out.json_now(&Value::from(all.iter().map(Seen::json).collect::<Vec<_>>()))?;
        } else {
            if app.out.stdout_is_terminal() {
                app.out.raw(HOME)?;
            }
            all.iter().try_for_each(|seen| seen.print(app))?;
            app.out.flush()?;
        }
        if all.iter().all(Seen::is_over) {
            break;
        }
        std::thread::sleep(POLL);
    }
    Ok(Exit::Done)
}

/// A batch that is shown.
enum Seen {
    Batch(Box<BatchStatus>),
    /// A check or a pass.
    Shared(SharedStatus),
    /// It is damaged, or of another domain: why it cannot be read.
    Unreadable(JobId, String),
}

impl Seen {
    fn is_over(&self) -> bool {
        match self {
            Self::Batch(status) => status.due.is_none(),
            Self::Shared(status) => !status.is_open,
            Self::Unreadable(..) => true,
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Batch(status) => status_json(status),
            Self::Shared(status) => shared::json(status),
            Self::Unreadable(batch, why) => json!({
                "message_type": "fleet_unreadable",
                "batch": batch.to_string(),
                "error": why,
            }),
        }
    }

    fn print(&self, app: &App) -> Result<(), Failure> {
        match self {
            Self::Batch(status) => print(app, status),
            Self::Shared(status) => shared::print(app, status),
            Self::Unreadable(batch, why) => app.out.line(format!("batch {batch} cannot be read: {}", safe(why))),
        }
    }
}

/// The state of the batches that are meant. Those that cannot be read leave the others.
fn wanted(app: &App, repository: &Repository, id: Option<&OsString>) -> Result<Vec<Seen>, Failure> {
    let executor = app.runtime().handle().into();
    let mut all = batches(repository, &executor)?;
    if let Some(text) = id {
        let text = text.to_string_lossy();
        all.retain(|batch: &JobId| is_meant(*batch, &text));
        match all.len() {
            0 => return Err(no_batch(&text)),
            1 => {}
            _ => return Err(Failure::usage(format!("several batches begin with {}", safe(&text)))),
        }
    }
    let mut found = Vec::new();
    for batch in all {
        match status_of(repository, &executor, batch) {
            Ok(Some(status)) => found.push(Seen::Batch(Box::new(status))),
            Ok(None) => found.extend(shared_status(repository, &executor, batch)?.map(Seen::Shared)),
            Err(error) if id.is_none() && (error.is_of_object() || error.is_foreign()) => {
                found.push(Seen::Unreadable(batch, chain(&error)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn status_json(status: &BatchStatus) -> Value {
    let stage = |(id, of): (&StageId, &StageStatus)| {
        json!({
            "stage": id.stage.word(),
            "round": id.round + 1,
            "waited": id.waited,
            "done": of.done,
            "aborted": of.aborted.iter().map(|(task, why)| json!({ "task": task.number, "why": why })).collect::<Vec<_>>(),
            "seconds": of.took_ms as f64 / 1000.0,
            "memory_bytes": of.memory,
            "read_bytes": of.read_bytes,
            "read_bytes_per_second": rate(of),
            "stored_bytes": of.stored_bytes,
            "output_bytes": of.output_bytes,
        })
    };
    json!({
        "message_type": "fleet_status",
        "batch": status.batch.to_string(),
        "time": time::rfc3339(status.plan.time_ms),
        "open": status.is_open,
        "images": status.plan.images.len(),
        "hosts": status.plan.hosts.len(),
        "partitions": status.plan.partitions,
        "rounds": status.plan.rounds(),
        "due": status.due.map(|due| due.stage.word()),
        "due_round": status.due.map(|due| due.round + 1),
        "due_tasks": status.due_tasks.len(),
        "waits_for": waited_for(status),
        "retries": status.retries,
        "workers": status.workers.iter().map(worker_json).collect::<Vec<_>>(),
        "stages": status.stages.iter().map(stage).collect::<Vec<_>>(),
    })
}

fn worker_json(worker: &WorkerStatus) -> Value {
    json!({
        "host": worker.host,
        "process": worker.process,
        "program": worker.program,
        "memory_bytes": worker.memory,
        "silent_seconds": worker.silent_ms as f64 / 1000.0,
        "tasks": worker.tasks,
    })
}

/// Names of those whose tasks are due: hosts, images, or partitions that any worker joins.
fn waited_for(status: &BatchStatus) -> Vec<String> {
    let BatchStatus { plan, due, due_tasks, .. } = status;
    let Some(StageId { stage, .. }) = due else { return Vec::new() };
    let name = |task: &u32| {
        let (host, image) = (plan.hosts.get(*task as usize), plan.images.get(*task as usize));
        match stage {
            Stage::Scan | Stage::Send | Stage::Place => host.map(|host| format!("host {}", host.name)),
            Stage::Store | Stage::Finish => image.map(|image| {
                let host = plan.hosts.get(image.host as usize).map_or("", |host| &host.name);
                format!("image {} of host {host}", image.name)
            }),
            Stage::Join | Stage::Resolve | Stage::Check | Stage::Copy | Stage::Mark => {
                Some(format!("partition {task}"))
            }
        }
    };
    due_tasks.iter().filter_map(name).collect()
}

/// Bytes of images that a task of a stage read in a second.
fn rate(of: &StageStatus) -> f64 {
    if of.took_ms == 0 { 0.0 } else { of.read_bytes as f64 * 1000.0 / of.took_ms as f64 }
}

/// Names that are shown of those that a batch waits for.
const NAMES_MAX: usize = 8;

/// Which round of a plan, if it has several.
fn of_round(plan: &FleetPlan, round: u32) -> String {
    match plan.rounds() {
        1 => String::new(),
        all => format!(" of round {} of {all}", round + 1),
    }
}

fn print(app: &App, status: &BatchStatus) -> Result<(), Failure> {
    let BatchStatus { batch, plan, stages, is_open, due, due_tasks, retries, workers } = status;
    let state = match due {
        None => "all tasks decided".to_owned(),
        Some(_) if !is_open => "over".to_owned(),
        Some(due) => {
            let tasks = sizes::count(due_tasks.len() as u64, "task");
            format!("open, {tasks} of stage {}{} due", due.stage, of_round(plan, due.round))
        }
    };
    let (images, hosts) =
        (sizes::count(plan.images.len() as u64, "image"), sizes::count(plan.hosts.len() as u64, "host"));
    app.out.line(format!("batch {batch}, {}, {images}, {hosts}, {state}", time::rfc3339(plan.time_ms)))?;
    if *is_open {
        let names = waited_for(status);
        let more = names.len().saturating_sub(NAMES_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let shown: Vec<_> = names.iter().take(NAMES_MAX).map(|name| safe(name)).collect();
        if !shown.is_empty() {
            app.out.line(format!("  waits for {}{more}", shown.join(", ")))?;
        }
    }
    for (StageId { round, stage, waited }, of) in stages {
        let again = if *waited > 0 { format!(" (again: {waited})") } else { String::new() };
        let again = format!("{}{again}", of_round(plan, *round));
        let took = time::show_duration(Duration::from_millis(of.took_ms));
        let rate = match rate(of) {
            0.0 => String::new(),
            rate => format!(" ({}/s)", sizes::show(rate as u64)),
        };
        app.out.line(format!(
            "  {stage}{again}: {} done, {} failed, {took}, {} read{rate}, {} new, {} for other tasks, {} memory",
            of.done,
            of.aborted.len(),
            sizes::show(of.read_bytes),
            sizes::show(of.stored_bytes),
            sizes::show(of.output_bytes),
            sizes::show(of.memory)
        ))?;
        for (task, why) in &of.aborted {
            let name = match task.stage {
                Stage::Send | Stage::Place => plan.hosts.get(task.number as usize).map_or("", |host| &host.name),
                _ => plan.images.get(task.number as usize).map_or("", |image| &image.name),
            };
            app.out.line(format!("    {}: {}", safe(name), safe(why)))?;
        }
    }
    for worker in workers {
        app.out.line(format!(
            "  worker {} on {}: {}, {} memory, silent for {}",
            worker.process,
            safe(&worker.host),
            sizes::count(worker.tasks, "task"),
            sizes::show(worker.memory),
            time::show_duration(Duration::from_millis(worker.silent_ms))
        ))?;
    }
    if *retries > 0 {
        app.out.line(format!("  {} taken over from workers that were silent", sizes::count(*retries, "task")))?;
    }
    Ok(())
}
