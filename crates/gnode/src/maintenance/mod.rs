//! One round of maintenance: all tasks in their order, with retries, one time limit and one budget.
//!
//! 0. Versions that a closed domain refuses are forgotten, so that the pass collects them.
//! 1. Defragmentation rewrites newest versions. It is first, so that the pass deletes what they
//!    leave.
//! 2. A pass indexes, arranges, reclaims and deletes. If another pass is faster, it starts again.
//! 3. If the pass published an index and finished, defragmentation runs once more: duplicates
//!    between series show only in the new index. If it rewrites something, so does the pass.
//!
//! A round has one deadline. No task and no attempt starts after it, and the next round continues.
//! A round also has one budget: bytes that one task copied are not left for the next. A version
//! that cannot be rewritten is reported and left as it is.
//!
//! This module changes no object itself: [`defragment`](crate::defragment) and
//! [`pass`](crate::pass) keep the rules of `docs/concurrency.md`.
//!
//! * `options`: which tasks run, and how.
//! * `deadline`: the time that is left.
//! * `defragmentation`: step 1.
//! * `worth`: whether the backups pay for a rewrite.
//! * `report`: the result of a round, and how it ended.

mod deadline;
mod defragmentation;
mod options;
mod report;
mod worth;

use std::time::Duration;

use larder_format::ErrorKind;
use larder_format::ids::JobId;
use larder_job::JobContext;

use crate::defragment::DefragmentError;
use crate::error::PassError;
use crate::pass::cost::Requests;
use crate::pass::{Outcome, PassReport, run as run_pass};
use crate::refused::{Refused, forget_refused};
use crate::retries::until_won;
use crate::tables::{moving, remembering};
use deadline::Deadline;
use defragmentation::Defragmentation;

pub use defragmentation::{DefragmentReport, NotRewritten};
pub use options::{MaintenanceOptions, Task};
pub use report::{Ended, MaintenanceReport};
pub use worth::{Decision, Reason};

/// Called at once for every version that is not rewritten, with the reason.
pub type OnNotRewritten<'a> = &'a dyn Fn(JobId, &NotRewritten);

/// A round that failed.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// Newest versions could not be examined.
    #[error(transparent)]
    Defragment(#[from] DefragmentError),
    /// The pass failed.
    #[error(transparent)]
    Pass(#[from] PassError),
}

impl MaintenanceError {
    /// The action that a caller can take.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Defragment(error) => error.kind(),
            Self::Pass(error) => error.kind(),
        }
    }
}

/// Runs one round. Blocks until it ends.
///
/// # Errors
///
/// The repository or the index failed, damage stops every pass, or the round was interrupted.
/// Completed work stays done.
pub fn run(
    context: &JobContext,
    options: &MaintenanceOptions,
    on_not_rewritten: OnNotRewritten<'_>,
) -> Result<MaintenanceReport, MaintenanceError> {
    let clock = &*context.clock;
    let store = context.repository.store();
    let (started_ms, before) = (clock.now_ms(), store.stats());
    let deadline = Deadline::new(clock, started_ms, options.max_duration);
    let refused = match options.wants_pass() && !deadline.is_over() {
        true => forget_refused(context, &options.pass)?,
        false => Refused::default(),
    };
    // All steps read the same runs of the index.
    let remembering = context.through(&remembering(&context.repository, options.pass.memory));
    let moving = moving(context, options.pass.touch_cold);
    let mut defragmentation = Defragmentation::new(&moving, &remembering, options, &deadline, on_not_rewritten);
    if options.rewrites_newest() {
        defragmentation.run()?;
    }
    let mut report = PassReport::without_pass();
    if options.wants_pass() {
        let pass = |copied| {
            let attempt = async || pass_once(&remembering, options, &deadline, copied).await;
            context.executor.block_on(until_won(attempt, is_lost))
        };
        report = pass(defragmentation.report.bytes)?;
        let is_news = matches!(report.outcome, Outcome::Published(_)) && !report.is_unfinished;
        if is_news && options.rewrites_newest() && defragmentation.run()? {
            let copied = defragmentation.report.bytes + report.reclaimed.copied_bytes.0;
            report = report.followed_by(pass(copied)?);
        }
    }
    let requests = store.stats();
    Ok(MaintenanceReport {
        pass: report,
        refused,
        defragmented: defragmentation.report,
        elapsed: Duration::from_millis(clock.now_ms().saturating_sub(started_ms)),
        planning: if options.pass.dry_run { Requests::between(&before, &requests) } else { Requests::default() },
        requests,
        keeps_versions: store.keeps_versions(),
    })
}

/// One attempt at a pass, in the time that is left.
async fn pass_once(
    context: &JobContext,
    options: &MaintenanceOptions,
    deadline: &Deadline<'_>,
    copied: u64,
) -> Result<PassReport, PassError> {
    if deadline.is_over() {
        return Ok(PassReport::stopped());
    }
    match run_pass(context, &options.pass_after(copied, deadline.left())).await {
        // Its time was over before it published anything.
        Err(PassError::Interrupted) if !context.cancel.is_cancelled() => Ok(PassReport::stopped()),
        result => result,
    }
}

fn is_lost(result: &Result<PassReport, PassError>) -> bool {
    match result {
        Ok(report) => report.outcome == Outcome::Lost,
        Err(error) => matches!(error, PassError::Overtaken),
    }
}
