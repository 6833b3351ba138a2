//! Checks and passes that are shared with workers, in `larder fleet status`.

use std::time::Duration;

use larder_fleet::{SharedStatus, WorkerStatus};
use larder_format::fleet::Stage;
use serde_json::{Value, json};

use crate::app::App;
use crate::failure::Failure;
use crate::output::safe;
use crate::{sizes, time};

fn name_of(status: &SharedStatus) -> &'static str {
    if status.stage == Stage::Check { "check" } else { "pass" }
}

pub(super) fn json(status: &SharedStatus) -> Value {
    let worker = |worker: &WorkerStatus| {
        json!({
            "host": worker.host,
            "process": worker.process,
            "program": worker.program,
            "silent_seconds": worker.silent_ms as f64 / 1000.0,
        })
    };
    json!({
        "message_type": "fleet_shared",
        "of": name_of(status),
        "batch": status.batch.to_string(),
        "open": status.is_open,
        "tasks": status.tasks,
        "tasks_done": status.done,
        "retries": status.retries,
        "workers": status.workers.iter().map(worker).collect::<Vec<_>>(),
    })
}

pub(super) fn print(app: &App, status: &SharedStatus) -> Result<(), Failure> {
    let SharedStatus { batch, tasks, done, retries, workers, is_open, .. } = status;
    let state = if *is_open { "open" } else { "over" };
    let tasks = sizes::count(*tasks, "task");
    app.out.line(format!("{} {batch}, {state}, {done} of {tasks} done", name_of(status)))?;
    for worker in workers {
        app.out.line(format!(
            "  process {} on {}, silent for {}",
            worker.process,
            safe(&worker.host),
            time::show_duration(Duration::from_millis(worker.silent_ms))
        ))?;
    }
    if *retries > 0 {
        app.out.line(format!("  {} taken over from workers that were silent", sizes::count(*retries, "task")))?;
    }
    Ok(())
}
