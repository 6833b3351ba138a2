//! `larder optimize`, and the pass that `larder forget --prune` makes.

mod arrange;
mod deadline;
mod defragment;
mod reclaim;
mod report;

use std::time::Instant;

use larder_gnode::pass::cost::Requests;
use larder_gnode::pass::{Outcome, PassError, PassOptions, PassReport, remembering, run as run_pass};
use larder_job::{Cancel, JobContext};
use larder_store::Repository;

use crate::app::App;
use crate::args::{OptimizeArgs, PassArgs, TaskName};
use crate::exit::Exit;
use crate::failure::Failure;
use deadline::Deadline;
use defragment::Compaction;
pub(super) use report::Made;

/// How often a pass that lost against another one begins again.
const TRIES: u32 = 5;

pub(super) fn run(app: &App, args: &OptimizeArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    pass(app, &opened.repository, &args.pass, args.dry_run)
}

/// Makes a pass and says what it did.
pub(super) fn pass(app: &App, repository: &Repository, args: &PassArgs, dry_run: bool) -> Result<Exit, Failure> {
    let cancel = app.interrupts.job_begins();
    let made = make(app, repository, args, dry_run, &cancel)?;
    made.show(&app.out, args)?;
    Ok(made.exit(cancel.is_cancelled()))
}

/// Lays snapshots out again and makes a pass.
pub(super) fn make(
    app: &App,
    repository: &Repository,
    args: &PassArgs,
    dry_run: bool,
    cancel: &Cancel,
) -> Result<Made, Failure> {
    let started = Instant::now();
    let deadline = Deadline::new(started, args.max_duration);
    let before = repository.store().stats();
    let options = |copied| PassOptions { dry_run, ..args.options(&app.global, copied) };
    // For one after the other: each of these reads the same runs of the index.
    let remembering = remembering(repository, options(0).memory);
    let mut compaction = Compaction::new(app, repository, &remembering, args, dry_run, cancel, deadline);
    // First, so that what is left by it is collected by the pass.
    if args.wants(TaskName::Defragment) {
        compaction.run()?;
    }
    let mut report = PassReport::without_pass();
    if [TaskName::Collect, TaskName::Dedup, TaskName::Exact, TaskName::Arrange].into_iter().any(|task| args.wants(task))
    {
        let context = app.maintaining(&remembering, cancel);
        report = pass_once(app, &context, options(compaction.report.bytes()), deadline)?;
        // And again when the pass has taken something in: what lies twice shows only then.
        let is_news = matches!(report.outcome, Outcome::Published(_)) && !report.is_unfinished;
        if is_news && args.wants(TaskName::Defragment) && compaction.run()? {
            let copied = compaction.report.bytes() + report.reclaimed.copied_bytes.0;
            report = report.followed_by(pass_once(app, &context, options(copied), deadline)?);
        }
    }
    let requests = repository.store().stats();
    let planning = if dry_run { Requests::between(&before, &requests) } else { Requests::default() };
    let keeps_versions = repository.store().keeps_versions();
    Ok(Made {
        report,
        compacted: compaction.report,
        elapsed: started.elapsed(),
        table_memory: app.global.table_memory() as u64,
        planning,
        requests,
        keeps_versions,
    })
}

/// Makes a pass of the collector in the time that is left; tries again when others are faster.
fn pass_once(app: &App, context: &JobContext, options: PassOptions, deadline: Deadline) -> Result<PassReport, Failure> {
    for attempt in 1.. {
        if deadline.is_over() {
            return Ok(PassReport::stopped());
        }
        let options = PassOptions { max_duration: deadline.left(), ..options.clone() };
        let result = app.block_on(run_pass(context, &options));
        let is_lost = match &result {
            Ok(report) => report.outcome == Outcome::Lost,
            Err(error) => matches!(error, PassError::Overtaken),
        };
        if is_lost && attempt < TRIES {
            tracing::info!(attempt, "another pass was faster; this one begins again");
            continue;
        }
        return match result {
            // Nobody interrupted it: its time was over before it published anything.
            Err(PassError::Interrupted) if !context.cancel.is_cancelled() => Ok(PassReport::stopped()),
            result => Ok(result?),
        };
    }
    unreachable!("the last attempt returns")
}
