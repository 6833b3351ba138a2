//! `larder fleet`: reads the inventory, opens images, and shows what became of a batch. The work is
//! `larder_fleet`.

mod images;
mod metrics;
mod plan;
mod several;
mod shared;
mod show;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use larder_fleet::inventory::{self, Listed};
use larder_fleet::{BatchReport, FleetImage, FleetOptions, Takes, WorkOptions, clean, coordinate, run as run_batch};
use larder_format::ErrorKind;
use larder_format::layout::Layout;
use larder_format::roles::Roles;
use larder_job::JobContext;
use larder_store::Repository;
use rustix::process::{Resource, getrlimit, setrlimit};

use self::images::Images;
use crate::app::App;
use crate::args::{FleetArgs, FleetCommand, FleetQueue, FleetRunArgs, PassArgs};
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machine;
use crate::output::{Meter, MeterKind, safe};
use crate::refs;
use crate::small_process;

pub(super) fn run(app: &App, args: &FleetArgs) -> Result<Exit, Failure> {
    match &args.command {
        FleetCommand::Run(args) => batch(app, args),
        FleetCommand::Plan(args) => plan::run(app, args),
        FleetCommand::Work(args) => several::run_worker(app, args),
        FleetCommand::Retry(args) => several::run_retry(app, args),
        FleetCommand::Abort(args) => several::run_abort(app, args),
        FleetCommand::Status(args) => show::status(app, args),
        FleetCommand::Clean => {
            let opened = app.open()?;
            let cleaned = clean(&opened.repository, &app.runtime().handle().into())?;
            show::cleaned(app, &cleaned)?;
            Ok(Exit::Done)
        }
    }
}

fn batch(app: &App, args: &FleetRunArgs) -> Result<Exit, Failure> {
    let patience = several::patience(&args.patience)?;
    let tags = refs::new_tags(&args.tag)?;
    let listed = inventory::read(&args.inventory)
        .map_err(|error| Failure::usage(error.to_string()).advise("`larder help fleet run` has the form"))?;
    let mut images = Images::of(app, &args.reading, args.verify_every, &listed)?;
    let opened = app.open()?;
    let repository = &opened.repository;
    repository.require(Roles::BACKUP, "a batch")?;
    expect_standard(app, repository, &listed)?;
    let rounds = plan::rounds(app, repository, &args.planner, &listed)?;
    let fleet = fleet_images(&listed, &environment::host(), &rounds);
    if args.dry_run {
        return show::plan(app, repository, &fleet);
    }
    if repository.keys().secrets().index.is_none() {
        app.out.remark(
            "note: this key does not open the index, so only duplicates within the batch, and those of each \
             image's last snapshot, are found",
        );
    }
    let options = options(app, tags, args.verify_every, args.force, args.partitions)?;
    let nats = several::connect(app, repository, &args.queue, &args.nats)?;
    open_many_files();
    let mut meter = Meter::start(MeterKind::Backup, &app.out);
    let context = app.context(repository.clone(), meter.progress());
    let context = JobContext { machine: machine::witness(&app.global, &app.out, repository), ..context };
    let mut sources = images.open_in(repository);
    let report = match &args.queue {
        FleetQueue::Memory => run_batch(&context, &fleet, &mut sources, &options),
        FleetQueue::Store | FleetQueue::Nats(_) => {
            let options = WorkOptions { fleet: options, host: environment::host(), poll: POLL, takes: BATCHES, nats };
            coordinate(&context, &fleet, &fleet, &mut sources, &options, patience)
        }
    };
    meter.stop();
    let report = report.map_err(|error| Failure::of(error.kind(), &error))?;
    show::report(app, &report, meter.elapsed())?;
    let is_shared = args.queue != FleetQueue::Memory;
    after(app, repository, &report, context.cancel.is_cancelled(), is_shared, args.no_pass)
}

/// After a batch: its exit code, and a pass. Where workers may still save an image, there is none:
/// it would remove what `fleet retry` needs.
fn after(
    app: &App,
    repository: &Repository,
    report: &BatchReport,
    is_cancelled: bool,
    is_shared: bool,
    no_pass: bool,
) -> Result<Exit, Failure> {
    let exit = exit_of(report, is_cancelled);
    if no_pass || exit == Exit::Interrupted || report.ended_by.is_some() {
        return Ok(exit);
    }
    if is_shared && report.images.iter().any(|image| image.result.is_err()) {
        app.out.remark("note: no pass was made, because it would remove what `larder fleet retry` needs");
        return Ok(exit);
    }
    Ok(match pass(app, repository)? {
        Exit::Done => exit,
        other if exit == Exit::Done => other,
        _ => exit,
    })
}

/// Images on shared storage that one process reads.
const OF_GROUP: usize = 4;
/// A process that plans a batch works on this one.
const BATCHES: Takes = Takes { batches: true, checks: false, passes: false };
/// How long processes wait before they look for work again.
pub(super) const POLL: Duration = Duration::from_secs(2);

/// `rounds` has the round of each image; empty: one for all.
fn fleet_images(listed: &[Listed], here: &str, rounds: &[u32]) -> Vec<FleetImage> {
    let mut shared = 0..;
    let image = |(number, listed): (usize, &Listed)| FleetImage {
        name: listed.name.clone(),
        host: match (&listed.host, listed.is_shared) {
            (_, true) => format!("shared/{}", shared.next().unwrap_or(0) / OF_GROUP),
            (Some(host), false) => host.clone(),
            (None, false) => here.to_owned(),
        },
        is_any: listed.is_shared,
        round: rounds.get(number).copied().unwrap_or(0),
        series: listed.series.clone(),
        source: listed.source.clone(),
    };
    listed.iter().enumerate().map(image).collect()
}

/// Series of the other layout share nothing with others, so they have no place in a batch.
fn expect_standard(app: &App, repository: &Repository, listed: &[Listed]) -> Result<(), Failure> {
    let versions = app.block_on(repository.newest_of_every_series())?;
    let layouts: BTreeMap<_, _> = versions.iter().map(|version| (version.series, version.summary.layout)).collect();
    for Listed { series, name, .. } in listed {
        let key = repository.keys().series_key(series);
        let layout = match layouts.get(&key) {
            Some(layout) => *layout,
            None => app.block_on(repository.settings(key))?.layout,
        };
        if layout != Layout::Standard {
            let message = format!("series {} of image {} is in the layout {layout}", safe(series), safe(name));
            return Err(Failure::new(Exit::Failed, message)
                .advise("back it up with `larder backup --image`, or name another series in the inventory"));
        }
    }
    Ok(())
}

fn options(
    app: &App,
    tags: Vec<String>,
    verify_every: u32,
    force: bool,
    partitions: Option<u32>,
) -> Result<FleetOptions, Failure> {
    let scratch = app.scratch().unwrap_or_else(std::env::temp_dir);
    make(&scratch)?;
    let (write, read) = small_process::budgets(app);
    Ok(FleetOptions {
        memory: app.global.memory() / 2,
        write,
        read,
        before_stage: app.global.total_memory.map(|_| small_process::page_out as fn()),
        scratch,
        compression: app.compression(),
        user: environment::user(),
        tags,
        time_ms: None,
        program: format!("larder {}", env!("CARGO_PKG_VERSION")),
        verify_every: NonZeroU32::new(verify_every),
        force,
        partitions: partitions.and_then(NonZeroU32::new),
    })
}

/// Each image needs two open files, and some more for a disk of QEMU.
fn open_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Otherwise, the limit is as it was.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn make(folder: &PathBuf) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::of(Exit::Failed, &error).while_doing(&format!("cannot create the folder {}", folder.display()))
    })
}

fn exit_of(report: &BatchReport, is_cancelled: bool) -> Exit {
    match &report.ended_by {
        _ if is_cancelled => Exit::Interrupted,
        Some(error) => error.kind().into(),
        None => {
            let errors = || report.images.iter().filter_map(|image| image.result.as_ref().err());
            let is_damage = |kind: ErrorKind| kind == ErrorKind::Damaged;
            match () {
                () if errors().any(|failure| failure.error.as_ref().is_some_and(|error| is_damage(error.kind()))) => {
                    Exit::Damage
                }
                () if errors().count() == report.images.len() => {
                    let first = errors().find_map(|failure| failure.error.as_ref());
                    first.map_or(Exit::Failed, |error| error.kind().into())
                }
                () if errors().next().is_some() || show::has_wrong_map(report) => Exit::Partly,
                () => Exit::Done,
            }
        }
    }
}

/// The options of a pass that are not given.
#[derive(Debug, Parser)]
struct Pass {
    #[command(flatten)]
    pass: PassArgs,
}

/// Adds the batch to the index, and removes what it left. A key that may not make passes leaves
/// this to others.
fn pass(app: &App, repository: &Repository) -> Result<Exit, Failure> {
    if repository.require(Roles::OPERATE, "a pass").is_err() {
        app.out.remark("note: this key makes no passes; the next batch finds this data after `larder optimize`");
        return Ok(Exit::Done);
    }
    let Pass { pass } = Pass::try_parse_from(["optimize"]).map_err(|error| Failure::usage(error.to_string()))?;
    let exit = super::optimize::pass(app, repository, &pass, false)?;
    clean(repository, &app.runtime().handle().into())?;
    Ok(exit)
}
