//! `larder gnode`: passes for as long as the process runs.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use larder_lnode::Cancel;
use larder_store::{Repository, RepositoryError};

use super::optimize;
use crate::app::App;
use crate::args::GnodeArgs;
use crate::exit::Exit;
use crate::failure::Failure;

/// How long a wish to stop may go unheard.
const NAP: Duration = Duration::from_millis(200);
/// After so long a pass that failed is tried again: the store may be back.
const RETRY: Duration = Duration::from_secs(300);

pub(super) fn run(app: &App, args: &GnodeArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    let repository = opened.repository;
    let cancel = app.interrupts.job_begins();
    app.out.remark("waiting for snapshots that are new or forgotten; SIGTERM or Ctrl-C ends this");
    let mut last: Option<(Instant, u64)> = None;
    let mut every = args.every;
    while !cancel.is_cancelled() {
        match app.block_on(state(&repository)) {
            Ok(state) if is_due(last, state, every) => {
                match optimize::make(app, &repository, &args.pass, false, &cancel) {
                    Ok(made) => {
                        made.show(&app.out, &args.pass)?;
                        app.out.flush()?;
                        // What a pass out of time left over is work for the next one, at once.
                        last = (!made.report.is_unfinished).then(|| (Instant::now(), state));
                        every = args.every;
                    }
                    Err(_) if cancel.is_cancelled() => break,
                    // The store may come back, and what cannot be read be repaired: a daemon goes on.
                    Err(failure) => {
                        app.out.warn(&complaint(&failure));
                        last = Some((Instant::now(), state));
                        every = args.every.min(RETRY);
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

fn is_due(last: Option<(Instant, u64)>, state: u64, every: Duration) -> bool {
    last.is_none_or(|(when, known)| known != state || when.elapsed() >= every)
}

/// A number that changes with the versions that there are and the marks on them.
async fn state(repository: &Repository) -> Result<u64, RepositoryError> {
    let mut hasher = DefaultHasher::new();
    repository.list_marks().await?.hash(&mut hasher);
    repository.list_registers().await?.hash(&mut hasher);
    Ok(hasher.finish())
}

fn nap(time: Duration, cancel: &Cancel) {
    let end = Instant::now() + time;
    while !cancel.is_cancelled() && Instant::now() < end {
        std::thread::sleep(NAP.min(end.saturating_duration_since(Instant::now())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_due_when_something_changed_or_much_time_went_by() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        assert!(is_due(None, 1, hour));
        assert!(!is_due(Some((now, 1)), 1, hour));
        assert!(is_due(Some((now, 1)), 2, hour));
        assert!(is_due(Some((now, 1)), 1, Duration::ZERO));
    }
}
