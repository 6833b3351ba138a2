//! `larder gnode`: shows the rounds of the daemon of `larder_gnode::daemon`.

use larder_format::roles::Roles;
use larder_gnode::daemon::{self, DaemonOptions};
use larder_gnode::maintenance::MaintenanceOptions;

use super::optimize::{allowed, show, warn_not_rewritten};
use crate::app::App;
use crate::args::GnodeArgs;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn run(app: &App, args: &GnodeArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    opened.repository.require(Roles::OPERATE, "the daemon")?;
    let context = app.maintaining(&opened.repository, &app.interrupts.job_begins());
    app.out.remark("waiting for snapshots that are new or forgotten; SIGTERM or Ctrl-C ends this");
    let options = MaintenanceOptions { when_worth: args.auto, ..args.pass.options(&app.global, false) };
    let maintenance = allowed(app, &opened.repository, options)?;
    let options = DaemonOptions { every: args.every, poll: args.poll, maintenance };
    let warn = |id, why: &_| warn_not_rewritten(&app.out, id, why);
    daemon::run(&context, &options, &warn, |round| {
        match round {
            Ok(report) => {
                show(&app.out, &report, &options.maintenance, &args.pass)?;
                app.out.flush()?;
            }
            Err(error) => app.out.warn(&complaint(&Failure::from(error))),
        }
        Ok::<_, Failure>(())
    })?;
    Ok(Exit::Done)
}

fn complaint(failure: &Failure) -> String {
    match &failure.advice {
        Some(advice) => format!("{}; {advice}", failure.message),
        None => failure.message.clone(),
    }
}
