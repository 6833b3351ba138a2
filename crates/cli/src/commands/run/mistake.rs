//! A run that a mistake of the configuration prevents: it is noted and reported as one that failed.

use std::time::Duration;

use larder_profile::config::Event;
use larder_profile::journal::{Line, RUN};
use serde_json::Map;

use super::runner::{Runner, StepEnd};
use crate::args::RunArgs;
use crate::exit::Exit;
use crate::failure::Failure;

/// How often `--due` reports a mistake.
const AGAIN_MS: u64 = 24 * 3_600_000;

/// Tells those who wait for a message, and notes the failure.
pub(super) fn tell(mut runner: Runner<'_>, args: &RunArgs, failure: &Failure, now_ms: u64) {
    let profiles = match super::chosen(runner.app, args, runner.config, runner.before, now_ms) {
        Ok(chosen) => chosen.into_iter().map(|profile| profile.name.clone()).collect(),
        Err(_) => args.profiles.clone(),
    };
    if args.due && !runner.config.profiles.is_empty() && profiles.is_empty() {
        return;
    }
    let mut names: Vec<_> = if profiles.is_empty() { vec![None] } else { profiles.into_iter().map(Some).collect() };
    if args.due {
        names.retain(|profile| !was_told(runner.before, profile.as_deref(), now_ms));
    }
    if names.is_empty() {
        return;
    }
    for profile in &names {
        runner.write_line(&Line {
            start_ms: now_ms,
            seconds: 0.0,
            profile: profile.clone(),
            repository: None,
            command: RUN.to_owned(),
            from: None,
            exit_code: failure.exit.code(),
            snapshot_id: None,
            numbers: Map::new(),
        });
        runner.ends.push(StepEnd {
            profile: profile.clone(),
            repository: None,
            command: "config",
            from: None,
            start_ms: now_ms,
            seconds: 0.0,
            exit: failure.exit,
            snapshot_id: None,
            error: Some(failure.message.clone()),
            summary: None,
        });
    }
    let summary = runner.json(0, Duration::ZERO, failure.exit);
    let names: Vec<_> = names.into_iter().flatten().collect();
    let names = if names.is_empty() { "configuration".to_owned() } else { names.join(", ") };
    runner.notify(&[Event::Failure], &names, Some(&summary), Some(failure.exit));
}

/// Whether this was noted not long ago.
fn was_told(before: &[Line], profile: Option<&str>, now_ms: u64) -> bool {
    let mut noted = before.iter().filter(|line| is_mistake(line) && line.profile.as_deref() == profile);
    noted.any(|line| line.start_ms <= now_ms && now_ms - line.start_ms < AGAIN_MS)
}

/// Whether a line notes a mistake. No run has begun then, so what was due still is.
pub(super) fn is_mistake(line: &Line) -> bool {
    line.command == RUN && line.exit_code == Exit::Usage.code() && line.seconds == 0.0
}
