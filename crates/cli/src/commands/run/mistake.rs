//! A run that a mistake of the configuration prevents: it is noted and reported as one that failed.

use std::time::Duration;

use larder_profile::config::Event;
use larder_profile::journal::{Line, RUN};
use serde_json::Map;

use super::runner::{Runner, StepEnd};
use crate::args::RunArgs;
use crate::failure::Failure;

/// How often `--due` reports a file that cannot be read: what is due is not known.
const AGAIN_MS: u64 = 24 * 3_600_000;

/// Tells those who wait for a message, and notes the failure.
pub(super) fn tell(mut runner: Runner<'_>, args: &RunArgs, failure: &Failure, now_ms: u64) {
    let profiles = match super::chosen(runner.app, args, runner.config, runner.before, now_ms) {
        Ok(chosen) => chosen.into_iter().map(|profile| profile.name.clone()).collect(),
        Err(_) => args.profiles.clone(),
    };
    let is_read = !runner.config.profiles.is_empty();
    if args.due && (if is_read { profiles.is_empty() } else { was_told(runner.before, now_ms) }) {
        return;
    }
    let names: Vec<_> = if profiles.is_empty() { vec![None] } else { profiles.into_iter().map(Some).collect() };
    for profile in &names {
        runner.write_line(&Line {
            start_ms: now_ms,
            seconds: 0.0,
            profile: profile.clone(),
            repository: None,
            command: RUN.to_owned(),
            exit_code: failure.exit.code(),
            snapshot_id: None,
            numbers: Map::new(),
        });
        runner.ends.push(StepEnd {
            profile: profile.clone(),
            repository: None,
            command: "config",
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
fn was_told(before: &[Line], now_ms: u64) -> bool {
    let mut of_no_profile = before.iter().filter(|line| line.command == RUN && line.profile.is_none());
    of_no_profile.any(|line| line.start_ms <= now_ms && now_ms - line.start_ms < AGAIN_MS)
}
