//! `larder optimize`, and the pass of `larder forget --prune`: shows the results of
//! `larder_gnode::maintenance`.

mod arrange;
mod defragment;
mod reclaim;
mod refused;
mod report;
mod shared;

use std::sync::Arc;

use larder_fleet::SharedPass;
use larder_format::ids::JobId;
use larder_format::roles::Roles;
use larder_gnode::maintenance::{Ended, MaintenanceOptions, MaintenanceReport, NotRewritten, run as run_round};
use larder_job::JobContext;
use larder_store::Repository;

use crate::app::App;
use crate::args::{OptimizeArgs, PassArgs};
use crate::durations;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::machine;
use crate::output::{Estimate, Output};
use report::Shown;

pub(super) fn run(app: &App, args: &OptimizeArgs) -> Result<Exit, Failure> {
    let opened = if args.estimate { app.rehearse()? } else { app.open()? };
    opened.repository.require(Roles::OPERATE, "a pass")?;
    let options = MaintenanceOptions { when_worth: args.auto, ..args.pass.options(&app.global, args.dry_run) };
    if args.estimate {
        return rehearse(app, &opened.repository, options, durations::OPTIMIZE);
    }
    round(app, &opened.repository, &args.pass, options, shared::of(args))
}

/// Runs a round of maintenance with all that its options allow, and reports it.
pub(super) fn pass(app: &App, repository: &Repository, args: &PassArgs, dry_run: bool) -> Result<Exit, Failure> {
    round(app, repository, args, args.options(&app.global, dry_run), None)
}

fn round(
    app: &App,
    repository: &Repository,
    args: &PassArgs,
    mut options: MaintenanceOptions,
    shared: Option<SharedPass>,
) -> Result<Exit, Failure> {
    let context = app.maintaining(repository, &app.interrupts.job_begins());
    if let Some(shared) = &shared {
        options.pass.sharing = Some(Arc::new(shared.clone()));
    }
    let options = allowed(app, repository, options)?;
    let report = run_round(&context, &options, &|id, why| warn_not_rewritten(&app.out, id, why))?;
    let shared = shared.map(|shared| shared.report());
    Shown { report: &report, options: &options, args, prices: app.prices(), shared }.show(&app.out)?;
    Ok(exit_of(report.ended(context.cancel.is_cancelled())))
}

fn exit_of(ended: Ended) -> Exit {
    match ended {
        Ended::Done => Exit::Done,
        Ended::Incomplete => Exit::Partly,
        Ended::Lost => Exit::Busy,
        Ended::Damage => Exit::Damage,
        Ended::Interrupted => Exit::Interrupted,
    }
}

/// Runs a round on a repository that is opened for a rehearsal, and shows what all of it took.
/// `kind` says which runs tell the time.
pub(super) fn rehearse(
    app: &App,
    repository: &Repository,
    options: MaintenanceOptions,
    kind: &str,
) -> Result<Exit, Failure> {
    let machine = machine::remembering(&app.global, &app.out, repository).only_looking();
    let cancel = app.interrupts.job_begins();
    let context = JobContext { cancel, machine, ..app.reading(repository.clone()) };
    let options = allowed(app, repository, options)?;
    let report = run_round(&context, &options, &|id, why| warn_not_rewritten(&app.out, id, why))?;
    let exit = exit_of(report.ended(context.cancel.is_cancelled()));
    if exit == Exit::Interrupted {
        return Ok(exit);
    }
    if !app.out.is_json() {
        report::say_rehearsed(&report, &app.out)?;
    }
    let seconds = durations::expected(app, repository, &[kind], [&report.requests; 2]);
    Estimate { seconds, ..Estimate::rehearsed(report.requests) }.show(&app.out, app.prices().as_ref())?;
    Ok(exit)
}

/// What the key in use may do of a round. One without contents forgets and collects.
pub(super) fn allowed(
    app: &App,
    repository: &Repository,
    options: MaintenanceOptions,
) -> Result<MaintenanceOptions, Failure> {
    let needs = repository.require(Roles::RESTORE, "moving chunks");
    let Err(error) = needs else { return Ok(options) };
    let options = options.without_contents().ok_or(error)?;
    app.out.remark("this key reads no contents: nothing is moved, and only unused objects are deleted");
    Ok(options)
}

/// Reports the plan and the result of a round.
pub(super) fn show(
    app: &App,
    report: &MaintenanceReport,
    options: &MaintenanceOptions,
    args: &PassArgs,
) -> Result<(), Failure> {
    Shown { report, options, args, prices: app.prices(), shared: None }.show(&app.out)
}

/// Reports that a snapshot stays as it is.
pub(super) fn warn_not_rewritten(out: &Output, id: JobId, why: &NotRewritten) {
    out.warn(&format!("snapshot {} was not rewritten: {}", id.short(), chain(why)));
}
