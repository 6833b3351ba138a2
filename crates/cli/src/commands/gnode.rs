//! `larder gnode`: passes for as long as the process runs.

mod schedule;

use std::time::{Duration, Instant};

use larder_gnode::pass::Outcome;
use larder_job::Cancel;
use larder_store::{Repository, RepositoryError};

use super::optimize;
use crate::app::App;
use crate::args::GnodeArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use schedule::{Schedule, Seen};

/// How long a wish to stop may go unheard.
const NAP: Duration = Duration::from_millis(200);

pub(super) fn run(app: &App, args: &GnodeArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    let repository = opened.repository;
    let cancel = app.interrupts.job_begins();
    app.out.remark("waiting for snapshots that are new or forgotten; SIGTERM or Ctrl-C ends this");
    let mut schedule = Schedule::new(args.every, args.poll);
    while !cancel.is_cancelled() {
        match app.block_on(seen(&repository)) {
            Ok(before) if schedule.is_due(Instant::now(), &before) => {
                match optimize::make(app, &repository, &args.pass, false, &cancel) {
                    Ok(mut made) => {
                        made.show(&app.out, &args.pass)?;
                        app.out.flush()?;
                        let own = made.take_generations();
                        match made.is_unfinished() || made.report.outcome == Outcome::Lost {
                            true => schedule.left(Instant::now(), before.and(own)),
                            false => schedule.done(Instant::now(), before.and(own)),
                        }
                    }
                    Err(_) if cancel.is_cancelled() => break,
                    // The store may come back, and what cannot be read be repaired: a daemon goes on.
                    Err(failure) => {
                        app.out.warn(&complaint(&failure));
                        // What it made before it failed is nobody else's work, and it is made again in any case.
                        let after = app.block_on(seen(&repository)).unwrap_or(before);
                        schedule.left(Instant::now(), after);
                    }
                }
            }
            Ok(_) => {}
            Err(error) => app.out.warn(&complaint(&Failure::from(error))),
        }
        nap(args.poll, &cancel);
    }
    Ok(Exit::Done)
}

fn complaint(failure: &Failure) -> String {
    match &failure.advice {
        Some(advice) => format!("{}; {advice}", failure.message),
        None => failure.message.clone(),
    }
}

async fn seen(repository: &Repository) -> Result<Seen, RepositoryError> {
    let marks = repository.list_marks().await?;
    let registers = repository.list_registers().await?.into_iter();
    let generations =
        registers.flat_map(|(pin, numbers)| numbers.into_iter().map(move |number| (pin, number))).collect();
    Ok(Seen { marks, generations })
}

fn nap(time: Duration, cancel: &Cancel) {
    let end = Instant::now() + time;
    while !cancel.is_cancelled() && Instant::now() < end {
        std::thread::sleep(NAP.min(end.saturating_duration_since(Instant::now())));
    }
}
