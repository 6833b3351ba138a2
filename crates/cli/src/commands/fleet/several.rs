//! Batches of several processes: `fleet work`, `fleet retry` and `fleet abort`.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use larder_fleet::{
    Answer, Copied, FleetError, FleetImage, FleetOptions, Nats, NatsOptions, OpenedImage, Patience, Sources, Takes,
    WorkEvent, WorkOptions, Worked, abort, coordinate, find, inventory, read_plan, resume, to_retry, work,
};
use larder_format::fleet::FleetPlan;
use larder_format::ids::JobId;
use larder_format::roles::Roles;
use larder_job::{Clock, JobContext, SystemClock};
use larder_store::Repository;
use parking_lot::Mutex;
use serde_json::json;

use super::images::Images;
use super::metrics::Done;
use super::{BATCHES, POLL, after, fleet_images, options, show};
use crate::app::App;
use crate::args::{FleetBatchArgs, FleetNatsArgs, FleetPatienceArgs, FleetQueue, FleetRetryArgs, FleetWorkArgs};
use crate::commands::metrics_server::{self, MetricsServer};
use crate::environment;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::machine;
use crate::output::{Meter, MeterKind, safe};
use crate::sizes;
use crate::small_process::{self, Peak};

/// Nobody's tasks may be ended before another worker can take them over.
pub(super) fn patience(args: &FleetPatienceArgs) -> Result<Patience, Failure> {
    let FleetPatienceArgs { claim_timeout: claim, task_timeout: task } = *args;
    match task < claim {
        true => Err(Failure::usage("--task-timeout must not be less than --claim-timeout")),
        false => Ok(Patience { claim, task }),
    }
}

/// The images of this process are none.
struct Elsewhere;

impl Sources for Elsewhere {
    fn open(&mut self, _number: usize, _job: JobId) -> Result<OpenedImage, String> {
        Err("workers read the images".to_owned())
    }

    fn remark(&mut self, _number: usize, _remark: &str) {}
}

pub(super) fn run_worker(app: &App, args: &FleetWorkArgs) -> Result<Exit, Failure> {
    let listed = args.inventory.as_ref().map(|file| {
        inventory::read(file)
            .map_err(|error| Failure::usage(error.to_string()).advise("`larder help fleet run` has the form"))
    });
    let (batches, listed) = (listed.is_some(), listed.transpose()?.unwrap_or_default());
    let mut images = Images::of(app, &args.reading, 10, &listed)?;
    if args.queue == FleetQueue::Memory {
        return Err(Failure::usage("--queue memory is of one process alone; a worker needs store or nats://HOST:PORT"));
    }
    let address = args.metrics.as_deref().map(metrics_server::parse_address).transpose()?;
    let opened = app.open()?;
    let repository = &opened.repository;
    match batches {
        true => repository.require(Roles::BACKUP, "a batch")?,
        false => repository.require(Roles::RESTORE, "reading for checks")?,
    }
    let host = args.host.clone().unwrap_or_else(environment::host);
    let fleet = fleet_images(&listed, &host, &[]);
    let ours = fleet.iter().filter(|image| image.is_any || image.host == host).count();
    app.out.remark(&match batches {
        true => format!("host {}: {} to read", safe(&host), sizes::count(ours as u64, "image")),
        false => format!("host {}: works for checks and passes", safe(&host)),
    });
    let nats = connect(app, repository, &args.queue, &args.nats)?;
    let done = Arc::new(Mutex::new(Done::new(SystemClock.now_ms())));
    let serve = |address| {
        let (store, done, nats) = (repository.store().clone(), done.clone(), nats.clone());
        let render = move || {
            let is_told = nats.as_ref().map(|nats| nats.is_connected());
            done.lock().render(&store.stats(), larder_fleet::memory_peak(), is_told)
        };
        let server = MetricsServer::start(address, Arc::new(render))?;
        app.out.remark(&format!("metrics are at http://{}/metrics", server.address));
        Ok::<_, Failure>(server)
    };
    let _server = address.map(serve).transpose()?;
    if app.global.total_memory.is_some() {
        small_process::page_out();
    }
    super::open_many_files();
    // Copies for passes count only with an operator's signature.
    let operates = repository.keys().roles().holds(Roles::OPERATE);
    // A check or a pass may take days, and batches do not wait.
    let takes = Takes { batches, checks: !batches, passes: !batches && operates };
    let options = WorkOptions { fleet: options(app, Vec::new(), 10, false, None)?, host, poll: POLL, takes, nats };
    let meter = Meter::start(MeterKind::Backup, &app.out);
    let context = app.context(repository.clone(), meter.progress());
    let identity = larder_job::Identity { host: options.host.clone(), ..context.identity };
    let context = JobContext { machine: machine::witness(&app.global, &app.out, repository), identity, ..context };
    let mut result = Ok(());
    let ended = work(&context, &fleet, &mut images.open_in(repository), &options, args.once, &mut |event| {
        match &event {
            WorkEvent::Begins(..) => done.lock().begins(),
            WorkEvent::Ends(_, worked) => done.lock().ended(worked, context.clock.now_ms()),
            WorkEvent::Checked(..) | WorkEvent::Copied(..) | WorkEvent::LeavesAlone(_) => {}
        }
        if result.is_ok() {
            result = told(app, &event);
        }
    });
    drop(meter);
    result?;
    match ended {
        Ok(()) => Ok(Exit::Done),
        Err(_) if context.cancel.is_cancelled() => Ok(Exit::Interrupted),
        Err(error) => Err(Failure::of(error.kind(), &error)),
    }
}

fn told(app: &App, event: &WorkEvent<'_>) -> Result<(), Failure> {
    match event {
        WorkEvent::Begins(batch, plan) => {
            let images = sizes::count(plan.images.len() as u64, "image");
            app.out.remark(&format!("batch {}: {images}, planned by {}", batch.short(), safe(&plan.program)));
            Ok(())
        }
        WorkEvent::LeavesAlone(error) => {
            app.out.warn(&chain(*error));
            Ok(())
        }
        WorkEvent::Ends(batch, worked) => ended(app, *batch, worked),
        WorkEvent::Checked(check, answer) => checked(app, *check, answer),
        WorkEvent::Copied(pass, copied) => has_copied(app, *pass, copied),
    }
}

/// What this worker read for a check.
fn checked(app: &App, check: JobId, answer: &Answer) -> Result<(), Failure> {
    let Answer { ranges, containers, not_whole } = *answer;
    if app.out.is_json() {
        return app.out.json_now(&json!({
            "message_type": "fleet_checked",
            "check": check.to_string(),
            "ranges": ranges,
            "containers_read": containers,
            "containers_not_whole": not_whole,
        }));
    }
    let read = sizes::count(containers, "container");
    app.out.info(format!("check {}: {read} read here, {not_whole} not whole", check.short()))?;
    app.out.flush()
}

/// What this worker copied for a pass.
fn has_copied(app: &App, pass: JobId, done: &Copied) -> Result<(), Failure> {
    let Copied { tasks, segments, verified, chunks, bytes, failed } = *done;
    if app.out.is_json() {
        return app.out.json_now(&json!({
            "message_type": "fleet_copied",
            "pass": pass.to_string(),
            "tasks": tasks,
            "segments_read": segments,
            "chunks_verified": verified,
            "chunks_copied": chunks,
            "bytes_copied": bytes,
            "tasks_failed": failed,
        }));
    }
    let (tasks, bytes) = (sizes::count(tasks, "task"), sizes::show(bytes));
    let what = match segments {
        0 => format!("{bytes} copied"),
        _ => format!("{} of recipes read", sizes::count(segments, "segment")),
    };
    app.out.info(format!("pass {}: {tasks} done here, {what}", pass.short()))?;
    if failed > 0 {
        app.out.warn(&format!("{} failed; the pass does them itself", sizes::count(failed, "task")));
    }
    app.out.flush()
}

fn ended(app: &App, batch: JobId, worked: &Worked) -> Result<(), Failure> {
    let Worked { saved, failed, ended_by } = worked;
    if app.out.is_json() {
        app.out.json_now(&json!({
            "message_type": "fleet_work",
            "batch": batch.to_string(),
            "saved": saved,
            "failed": failed,
            "error": ended_by.as_ref().map(|error| chain(error)),
            "memory_bytes": larder_fleet::memory_peak(),
        }))?;
    } else {
        app.out.info(format!("batch {}: {} saved here", batch.short(), sizes::count(saved.len() as u64, "image")))?;
        app.out.flush()?;
    }
    failed.iter().for_each(|image| app.out.warn(&format!("image {} was not saved", safe(image))));
    if let Some(error) = ended_by {
        app.out.warn(&format!("this worker left batch {}: {}", batch.short(), chain(error)));
    }
    if let Some(warning) = app.global.total_memory.and_then(Peak::of).and_then(|peak| peak.warning()) {
        app.out.warn(&warning);
    }
    Ok(())
}

/// The batch that is meant, with its plan.
fn meant(context: &JobContext, args: &FleetBatchArgs) -> Result<(JobId, FleetPlan), Failure> {
    let failed = |error: FleetError| Failure::of(error.kind(), &error);
    let batch = match &*find(context, &args.batch).map_err(failed)? {
        [] => return Err(show::no_batch(&args.batch)),
        [batch] => *batch,
        _ => return Err(Failure::usage(format!("several batches begin with {}", safe(&args.batch)))),
    };
    let plan = read_plan(context, batch).map_err(failed)?;
    let plan = plan.ok_or_else(|| Failure::new(Exit::Failed, format!("batch {batch} has no plan")))?;
    if plan.shared.is_none() {
        return Err(Failure::new(Exit::Failed, format!("batch {batch} is of one process alone"))
            .advise("run the inventory again with `larder fleet run`"));
    }
    Ok((batch, plan))
}

fn work_options(of: FleetOptions, nats: Option<Arc<Nats>>) -> WorkOptions {
    WorkOptions { fleet: of, host: environment::host(), poll: POLL, takes: BATCHES, nats }
}

/// The connection to the NATS server that a queue names, if it names one.
pub(super) fn connect(
    app: &App,
    repository: &Repository,
    queue: &FleetQueue,
    args: &FleetNatsArgs,
) -> Result<Option<Arc<Nats>>, Failure> {
    let FleetQueue::Nats(address) = queue else {
        let is_given = args.nats_credentials.is_some() || args.nats_cacert.is_some();
        return match is_given {
            true => Err(Failure::usage("options of NATS need --queue nats://HOST:PORT")),
            false => Ok(None),
        };
    };
    if let Some(path) = &args.nats_credentials {
        let shown = path.display();
        let metadata = std::fs::metadata(path)
            .map_err(|error| Failure::of(Exit::Failed, &error).while_doing(&format!("cannot read {shown}")))?;
        if metadata.mode() & 0o077 != 0 {
            let mode = metadata.mode() & 0o7777;
            return Err(Failure::usage(format!("{shown} can be read by others (mode {mode:04o})")));
        }
    }
    let options = NatsOptions {
        address: address.clone(),
        credentials: args.nats_credentials.clone(),
        authorities: args.nats_cacert.clone(),
        now: std::time::Instant::now,
    };
    let nats = Nats::connect(&app.runtime().handle().into(), repository, &options);
    nats.map(|nats| Some(Arc::new(nats))).map_err(|error| Failure::of(error.kind(), &error))
}

pub(super) fn run_abort(app: &App, args: &FleetBatchArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    let context = app.reading(opened.repository.clone());
    let (batch, plan) = meant(&context, args)?;
    let options = work_options(options(app, Vec::new(), 0, false, None)?, None);
    let tasks = abort(&context, batch, plan, &options).map_err(|error| Failure::of(error.kind(), &error))?;
    if app.out.is_json() {
        app.out.json(&json!({ "message_type": "fleet_aborted", "batch": batch.to_string(), "tasks": tasks }))?;
    } else {
        app.out.info(format!("batch {} is over: {} ended", batch.short(), sizes::count(tasks, "task")))?;
    }
    Ok(Exit::Done)
}

pub(super) fn run_retry(app: &App, args: &FleetRetryArgs) -> Result<Exit, Failure> {
    let patience = patience(&args.patience)?;
    let opened = app.open()?;
    let repository = &opened.repository;
    repository.require(Roles::BACKUP, "a batch")?;
    let mut meter = Meter::start(MeterKind::Backup, &app.out);
    let context = context(app, repository, &meter);
    let (batch, plan) = meant(&context, &args.batch)?;
    let shared = plan.shared.clone();
    let of = shared.as_ref().map(|shared| (shared.tags.clone(), shared.verify_every, shared.force));
    let (tags, verify_every, force) = of.unwrap_or_default();
    let nats = connect(app, repository, &args.queue, &args.nats)?;
    let options = work_options(options(app, tags, verify_every, force, None)?, nats);
    let failed = |error: FleetError| Failure::of(error.kind(), &error);
    let mut report = resume(&context, batch, plan.clone(), &[], &mut Elsewhere, &options).map_err(failed)?;
    let again: Vec<FleetImage> = to_retry(&report, &plan);
    let mut has_wrong_map = false;
    if report.ended_by.is_none() && !again.is_empty() {
        meter.stop();
        show::report(app, &report, meter.elapsed())?;
        app.out.remark(&format!("{} again", sizes::count(again.len() as u64, "image")));
        meter = Meter::start(MeterKind::Backup, &app.out);
        has_wrong_map = show::has_wrong_map(&report);
        report = coordinate(&context, &again, &[], &mut Elsewhere, &options, patience).map_err(failed)?;
    }
    meter.stop();
    show::report(app, &report, meter.elapsed())?;
    // What was wrong in the first of two batches is not forgotten.
    Ok(match after(app, repository, &report, context.cancel.is_cancelled(), true, args.no_pass)? {
        Exit::Done if has_wrong_map => Exit::Partly,
        exit => exit,
    })
}

fn context(app: &App, repository: &Repository, meter: &Meter) -> JobContext {
    let context = app.context(repository.clone(), meter.progress());
    JobContext { machine: machine::witness(&app.global, &app.out, repository), ..context }
}
