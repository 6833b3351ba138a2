//! The part of workers in a pass (`--workers`).

use std::num::NonZeroU32;
use std::time::Duration;

use larder_fleet::{SharedPass, SharedPassOptions, SharedPassReport};
use serde_json::{Value, json};

use crate::args::OptimizeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes;

/// How long the pass waits at most before it looks for results again.
const POLL: Duration = Duration::from_secs(2);

/// How the pass is shared; `None`: it is not.
pub(super) fn of(args: &OptimizeArgs) -> Option<SharedPass> {
    let workers = args.workers.and_then(NonZeroU32::new)?;
    let (claim, batch_bytes) = (args.claim_timeout, args.batch_size);
    Some(SharedPass::new(SharedPassOptions { workers, claim, poll: POLL, batch_bytes }))
}

pub(super) fn json(report: Option<&SharedPassReport>) -> Value {
    let Some(report) = report else { return Value::Null };
    json!({
        "workers": report.workers.len(),
        "tasks": report.tasks,
        "tasks_of_workers": report.tasks_of_others,
        "segments_read_by_workers": report.segments_of_others,
        "chunks_copied_by_workers": report.chunks_of_others,
        "bytes_copied_by_workers": report.bytes_of_others,
        "worker_was_wrong": report.worker_was_wrong,
    })
}

pub(super) fn print(report: Option<&SharedPassReport>, out: &Output) -> Result<(), Failure> {
    let Some(report) = report else { return Ok(()) };
    if report.tasks_of_others > 0 {
        let (workers, bytes) = (report.workers.len() as u64, sizes::show(report.bytes_of_others));
        let tasks = format!("{} of {} tasks", report.tasks_of_others, report.tasks);
        let recipes = match report.segments_of_others {
            0 => String::new(),
            segments => format!(", read {} of recipes", sizes::count(segments, "segment")),
        };
        out.info(format!("{} did {tasks}{recipes}, and copied {bytes}", sizes::count(workers, "worker")))?;
    }
    if report.worker_was_wrong {
        out.warn("a worker was wrong, so no result of workers counts; the pass did everything alone");
    }
    Ok(())
}
