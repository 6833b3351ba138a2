//! Maintenance of repositories in a run: `optimize`, `check` and `drill`, as often as the
//! repository says.

use std::time::Duration;

use larder_job::{Clock, SystemClock};
use larder_profile::config::Repository;
use larder_profile::duration;
use larder_profile::journal::Line;
use larder_profile::lock::{Attempt, Locked, RunLock};

use super::runner::Runner;

/// The verbs in their order.
const VERBS: [&str; 3] = ["optimize", "check", "drill"];

/// Those of them that have no `--dry-run`.
const WITHOUT_DRY_RUN: [&str; 2] = ["check", "drill"];

/// Runs start a little earlier or later than a day ago, so a tenth less counts, up to this.
const TOLERANCE_MAX: Duration = Duration::from_secs(3600);

impl Runner<'_> {
    /// Runs what is due on a repository. Another run may be at it. Then this one leaves it to that:
    /// a check can take hours, and profiles must not wait for it.
    pub(super) fn maintain(&mut self, repository: &Repository) {
        let is_due_now = |lines: &[Line]| {
            let due = |verb: &&str| {
                let every = repository.every.get(*verb)?;
                Some(is_due(last(lines, repository, verb), *every, SystemClock.now_ms()))
            };
            VERBS.iter().filter_map(due).any(|is_due| is_due)
        };
        let mut lines = self.before.to_vec();
        let mut lock = None;
        if !self.dry_run && is_due_now(&lines) {
            let Some(taken) = self.maintenance_lock(repository) else { return };
            lock = Some(taken);
            // Another run may have done it meanwhile.
            lines = self.journal.read().unwrap_or(lines);
        }
        for verb in VERBS {
            let Some(every) = repository.every.get(verb) else { continue };
            if self.is_stopped() {
                return;
            }
            if !is_due(last(&lines, repository, verb), *every, SystemClock.now_ms()) {
                let text = format!("== {verb} on {} is due every {}: not yet", repository.name, duration::show(*every));
                self.app.out.remark(&text);
                continue;
            }
            if self.dry_run && WITHOUT_DRY_RUN.contains(&verb) {
                // An output that nobody reads is found when the run is reported.
                drop(self.app.out.info(format!("== {verb} on {} would run", repository.name)));
                continue;
            }
            self.step(None, repository, verb);
        }
        drop(lock);
    }

    /// The lock of a repository's maintenance. `None`: another run has it, or it cannot be taken.
    fn maintenance_lock(&self, repository: &Repository) -> Option<RunLock> {
        let name = &repository.name;
        match RunLock::take(self.journal.folder(), Locked::Maintenance(name), SystemClock.now_ms()) {
            Ok(Attempt::Locked(lock)) => Some(lock),
            Ok(Attempt::Held(holder)) => {
                let process = holder.process.map_or_else(String::new, |process| format!(" (process {process})"));
                self.app.out.remark(&format!("== another run{process} maintains {name}"));
                None
            }
            Err(error) => {
                self.app.out.warn(&format!("{name} is not maintained, because it cannot be locked: {error}"));
                None
            }
        }
    }
}

/// When a verb last succeeded on a repository (milliseconds since the epoch).
fn last(lines: &[Line], repository: &Repository, verb: &str) -> Option<u64> {
    let now_ms = SystemClock.now_ms();
    let of_verb = lines
        .iter()
        .filter(|line| line.command == verb && line.repository.as_ref() == Some(&repository.name) && line.is_success());
    // A time in the future is one of a wrong clock.
    of_verb.map(|line| line.start_ms).filter(|start| *start <= now_ms).max()
}

fn is_due(last_ms: Option<u64>, every: Duration, now_ms: u64) -> bool {
    let tolerance = (every / 10).min(TOLERANCE_MAX);
    let wanted = u64::try_from((every - tolerance).as_millis()).unwrap_or(u64::MAX);
    // A time in the future is one of a wrong clock.
    last_ms.is_none_or(|last| last > now_ms || now_ms - last >= wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_a_little_early_is_in_time() {
        const MINUTE: u64 = 60_000;
        let day = Duration::from_secs(86_400);
        assert!(is_due(None, day, 0));
        assert!(is_due(Some(0), day, 23 * 60 * MINUTE));
        assert!(!is_due(Some(0), day, 22 * 60 * MINUTE));
        assert!(!is_due(Some(0), Duration::from_secs(600), 8 * MINUTE));
        assert!(is_due(Some(0), Duration::from_secs(600), 9 * MINUTE));
        assert!(is_due(Some(10), day, 5), "the clock was wrong");
    }
}
