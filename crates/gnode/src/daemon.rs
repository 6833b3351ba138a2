//! Rounds of [`maintenance`] as long as the process runs.
//!
//! The daemon polls the marks and generations of versions. From these and from the time, `schedule`
//! decides whether a round is due. It is due after something was added or forgotten, after a failed
//! or unfinished round, and at intervals. A failure never ends the daemon, because the store may
//! come back and damage may be repaired.

mod schedule;

use std::time::Duration;

use larder_job::{Cancel, JobContext};
use larder_store::{Repository, RepositoryError, StoreStats};

use crate::maintenance::{self, MaintenanceError, MaintenanceOptions, MaintenanceReport, OnNotRewritten};
use schedule::{Schedule, Seen};

/// Within this time the daemon notices that it was asked to stop.
const NAP: Duration = Duration::from_millis(200);

/// How a daemon works.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    /// Time from the end of a round to the next one, if nothing else asks for it.
    pub every: Duration,
    /// Time between two looks at the repository.
    pub poll: Duration,
    /// How each round is done.
    pub maintenance: MaintenanceOptions,
}

/// Runs until the context is cancelled. Blocks.
///
/// `on_round` gets the result of every round, and every failure to look at the repository. The
/// requests of a round are those since the round before, so their sum is that of the process.
///
/// # Errors
///
/// An error of `on_round`, which ends the daemon.
pub fn run<E>(
    context: &JobContext,
    options: &DaemonOptions,
    on_not_rewritten: OnNotRewritten<'_>,
    mut on_round: impl FnMut(Result<MaintenanceReport, MaintenanceError>) -> Result<(), E>,
) -> Result<(), E> {
    let look = || context.executor.block_on(look(&context.repository));
    let mut schedule = Schedule::new(options.every, options.poll);
    let mut told = StoreStats::default();
    while !context.cancel.is_cancelled() {
        match look() {
            Ok(before) if schedule.is_due(context.clock.now_ms(), &before) => {
                let mut result = maintenance::run(context, &options.maintenance, on_not_rewritten);
                if let Ok(report) = &mut result {
                    let counted = report.requests;
                    report.requests = counted.since(&told);
                    told = counted;
                }
                match &result {
                    Ok(report) => {
                        let known = before.and(report.defragmented.generations.iter().copied());
                        match report.wants_retry() {
                            true => schedule.left(context.clock.now_ms(), known),
                            false => schedule.done(context.clock.now_ms(), known),
                        }
                    }
                    Err(_) if context.cancel.is_cancelled() => break,
                    // A failed round does not report the generations that it created. They must not
                    // ask for the next one.
                    Err(_) => {
                        let after = look().unwrap_or(before);
                        schedule.left(context.clock.now_ms(), after);
                    }
                }
                on_round(result)?;
            }
            Ok(_) => {}
            Err(error) => on_round(Err(MaintenanceError::Pass(error.into())))?,
        }
        nap(options.poll, &context.cancel);
    }
    Ok(())
}

async fn look(repository: &Repository) -> Result<Seen, RepositoryError> {
    let marks = repository.list_marks().await?;
    let registers = repository.list_registers().await?.into_iter();
    let generations =
        registers.flat_map(|(pin, numbers)| numbers.into_iter().map(move |number| (pin, number))).collect();
    Ok(Seen { marks, generations })
}

fn nap(time: Duration, cancel: &Cancel) {
    let mut left = time;
    while !cancel.is_cancelled() && !left.is_zero() {
        let nap = NAP.min(left);
        std::thread::sleep(nap);
        left -= nap;
    }
}
