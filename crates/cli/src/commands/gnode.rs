//! `larder gnode`: shows the rounds of the daemon of `larder_gnode::daemon`.

mod metrics;

use std::sync::Arc;

use larder_format::roles::Roles;
use larder_gnode::daemon::{self, DaemonOptions};
use larder_gnode::maintenance::MaintenanceOptions;
use larder_store::Repository;
use parking_lot::Mutex;

use super::metrics_server::{self, MetricsServer};
use super::optimize::{allowed, show, warn_not_rewritten};
use super::repository_numbers::Numbers;
use crate::app::App;
use crate::args::GnodeArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use metrics::Rounds;

pub(super) fn run(app: &App, args: &GnodeArgs) -> Result<Exit, Failure> {
    let address = args.metrics.as_deref().map(metrics_server::parse_address).transpose()?;
    let opened = app.open()?;
    opened.repository.require(Roles::OPERATE, "the daemon")?;
    let context = app.maintaining(&opened.repository, &app.interrupts.job_begins());
    let rounds = Arc::new(Mutex::new(Rounds::new(context.clock.now_ms())));
    let serve = |address| {
        let (store, rounds) = (opened.repository.store().clone(), rounds.clone());
        let server = MetricsServer::start(address, Arc::new(move || rounds.lock().render(&store.stats())))?;
        app.out.remark(&format!("metrics are at http://{}/metrics", server.address));
        Ok::<_, Failure>(server)
    };
    let counts = address.is_some();
    let _server = address.map(serve).transpose()?;
    app.out.remark("waiting for new or forgotten snapshots; stop it with Ctrl-C or SIGTERM");
    let options = MaintenanceOptions { when_worth: args.auto, ..args.pass.options(&app.global, false) };
    let maintenance = allowed(app, &opened.repository, options)?;
    let options = DaemonOptions { every: args.every, poll: args.poll, maintenance };
    let warn = |id, why: &_| warn_not_rewritten(&app.out, id, why);
    daemon::run(&context, &options, &warn, |round| {
        match round {
            Ok(report) => {
                rounds.lock().ended(&report, context.clock.now_ms());
                show(app, &report, &options.maintenance, &args.pass)?;
                app.out.flush()?;
                if counts {
                    count(app, &opened.repository, &rounds, context.clock.now_ms());
                }
            }
            Err(error) => {
                rounds.lock().failed(context.clock.now_ms());
                app.out.warn(&complaint(&Failure::from(error)));
            }
        }
        Ok::<_, Failure>(())
    })?;
    Ok(Exit::Done)
}

/// Counts what the repository has, for metrics.
fn count(app: &App, repository: &Repository, rounds: &Mutex<Rounds>, now_ms: u64) {
    let before = rounds.lock().numbers().cloned();
    match Numbers::count(app, repository, before.as_ref(), now_ms) {
        Ok(numbers) => rounds.lock().counted(numbers),
        Err(failure) => {
            app.out.warn(&format!("metrics have no new numbers of the repository: {}", failure.message));
        }
    }
}

fn complaint(failure: &Failure) -> String {
    match &failure.advice {
        Some(advice) => format!("{}; {advice}", failure.message),
        None => failure.message.clone(),
    }
}
