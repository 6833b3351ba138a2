//! How long commands took on this machine, for the time of `--estimate`.
//!
//! A run that ends well is noted in the state folder, if there is one. Backups are not, because
//! their snapshots say the same.

use larder_format::ids::RepositoryId;
use larder_state::{MeasuredRun, StateFolder};
use larder_store::{Repository, StoreStats};

use crate::app::App;
use crate::args::Command;
use crate::environment;
use crate::exit::Exit;

/// Runs that count for an estimate: those whose work was most like the planned one.
const RUNS_LIKE: usize = 3;
/// A run counts if it did at least this part of the planned work. Less says nothing about more.
const LIKE_SHARE: u64 = 100;

pub(crate) const RESTORE: &str = "restore";
pub(crate) const CHECK: &str = "check";
pub(crate) const DRILL: &str = "drill";
pub(crate) const FORGET: &str = "forget";
pub(crate) const FORGET_AND_PRUNE: &str = "forget --prune";
pub(crate) const OPTIMIZE: &str = "optimize";
pub(crate) const COPY: &str = "copy";

/// The name under which a command is noted. Commands that change nothing, wait for a storage to
/// thaw, or work with other processes have none.
pub(crate) fn kind(command: &Command) -> Option<&'static str> {
    match command {
        Command::Restore(args) if !(args.dry_run || args.estimate || args.plan || args.thaw) => Some(RESTORE),
        Command::Check(args) if !args.estimate && args.workers.is_none() => Some(CHECK),
        Command::Drill(args) if !args.estimate => Some(DRILL),
        Command::Forget(args) if !(args.dry_run || args.estimate) => {
            Some(if args.prune { FORGET_AND_PRUNE } else { FORGET })
        }
        Command::Optimize(args) if !(args.dry_run || args.estimate) && args.workers.is_none() => Some(OPTIMIZE),
        Command::Copy(args) if !(args.dry_run || args.estimate) => Some(COPY),
        _ => None,
    }
}

/// Notes a command that has ended.
pub(crate) fn note(app: &App, kind: &str, exit: Exit) {
    let Some(began) = app.began.lock().take().filter(|_| matches!(exit, Exit::Done | Exit::Partly)) else { return };
    let Some(folder) = folder(app, began.repository) else { return };
    let took_ms = u64::try_from(began.at.elapsed().as_millis()).unwrap_or(u64::MAX);
    let run = MeasuredRun { took_ms, ..work(&began.store.stats()) };
    if let Err(error) = folder.add_measured(kind, run) {
        tracing::debug!(%error, "the duration is not remembered");
    }
}

/// The seconds that a command takes, from earlier runs of the first of these kinds that has any.
pub(crate) fn expected(
    app: &App,
    repository: &Repository,
    kinds: &[&str],
    bounds: [&StoreStats; 2],
) -> Option<(f64, f64)> {
    let measured = folder(app, repository.config().repository)?.measured();
    kinds.iter().find_map(|kind| between(measured.of(kind), bounds.map(work)))
}

/// The state folder of a repository. Nothing is left where there is none.
fn folder(app: &App, repository: RepositoryId) -> Option<StateFolder> {
    StateFolder::open(&environment::state_dir(&app.global)?, repository).ok().flatten()
}

fn work(stats: &StoreStats) -> MeasuredRun {
    MeasuredRun { took_ms: 0, requests: stats.requests(), bytes: stats.bytes_up + stats.bytes_down }
}

/// Bounds for work between these two. A part of each run takes the same time whatever it does, so
/// less work takes up to the same time, and more work at least the same.
fn between(runs: &[MeasuredRun], [low, high]: [MeasuredRun; 2]) -> Option<(f64, f64)> {
    let times = |of: u64, run: u64| of as f64 / run.max(1) as f64;
    let mut like: Vec<_> = runs
        .iter()
        .filter(|run| run.bytes >= high.bytes / LIKE_SHARE && run.requests >= high.requests / LIKE_SHARE)
        .map(|run| {
            let least = times(low.bytes, run.bytes).min(times(low.requests, run.requests)).min(1.0);
            let most = times(high.bytes, run.bytes).max(times(high.requests, run.requests)).max(1.0);
            let took = run.took_ms as f64 / 1000.0;
            (most / least.max(f64::MIN_POSITIVE), took * least, took * most)
        })
        .collect();
    // The narrower the bounds of a run, the more its work was like this one. The sort is stable, so
    // of equal ones the last runs count.
    like.sort_by(|one, other| one.0.total_cmp(&other.0));
    let like = like.into_iter().take(RUNS_LIKE).map(|(_, low, high)| (low, high));
    like.reduce(|(low, high), (l, h)| (low.min(l), high.max(h)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(took_ms: u64, requests: u64, bytes: u64) -> MeasuredRun {
        MeasuredRun { took_ms, requests, bytes }
    }

    #[test]
    fn equal_work_takes_equal_time_and_other_work_has_bounds() {
        let planned = [run(0, 10, 1000); 2];
        assert_eq!(between(&[], planned), None);
        assert_eq!(between(&[run(4000, 10, 1000), run(6000, 10, 1000)], planned), Some((4.0, 6.0)));
        assert_eq!(between(&[run(4000, 5, 500)], planned), Some((4.0, 8.0)), "twice the work");
        assert_eq!(between(&[run(4000, 40, 2000)], planned), Some((1.0, 4.0)), "a part of the work");
    }

    #[test]
    fn runs_count_that_did_something_like_it() {
        let planned = [run(0, 1000, 1_000_000), run(0, 2000, 2_000_000)];
        assert_eq!(between(&[run(1, 1000, 10_000), run(1, 10, 1_000_000)], planned), None, "far too little work");
        let like = [run(1000, 1000, 1_000_000), run(2000, 2000, 2_000_000), run(3000, 2000, 2_000_000)];
        let runs = [&[run(90_000, 90_000, 90_000_000)], &like[..]].concat();
        assert_eq!(between(&runs, planned), between(&like, planned), "the three that are most like it");
    }
}
