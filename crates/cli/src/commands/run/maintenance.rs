//! Maintenance of repositories in a run: `optimize` and `check`, as often as the repository says.

use std::time::Duration;

use larder_job::{Clock, SystemClock};
use larder_profile::config::Repository;
use larder_profile::duration;
use larder_profile::lock::{Attempt, Locked, RunLock};

use super::LOOK_EVERY;
use super::runner::Runner;

/// The verbs in their order.
const VERBS: [&str; 2] = ["optimize", "check"];

/// Runs start a little earlier or later than a day ago, so a tenth less counts, up to this.
const TOLERANCE_MAX: Duration = Duration::from_secs(3600);

impl Runner<'_> {
    /// Runs what is due on a repository. Another run may be at it: this one waits, and then finds
    /// it done.
    pub(super) fn maintain(&mut self, repository: &Repository) {
        if repository.every.is_empty() {
            return;
        }
        let lock = if self.dry_run { None } else { self.maintenance_lock(repository) };
        if self.is_stopped() {
            return;
        }
        let lines = match &lock {
            Some(_) => self.journal.read().unwrap_or_default(),
            None => self.before.to_vec(),
        };
        for verb in VERBS {
            let Some(every) = repository.every.get(verb) else { continue };
            if self.is_stopped() {
                return;
            }
            let now_ms = SystemClock.now_ms();
            let of_verb = lines.iter().filter(|line| {
                line.command == verb && line.repository.as_ref() == Some(&repository.name) && line.is_success()
            });
            // A time in the future is one of a wrong clock.
            let of_verb = of_verb.filter(|line| line.start_ms <= now_ms);
            let last = of_verb.map(|line| line.start_ms).max();
            if !is_due(last, *every, now_ms) {
                let text = format!("== {verb} on {} is due every {}: not yet", repository.name, duration::show(*every));
                self.app.out.remark(&text);
                continue;
            }
            if self.dry_run && verb == "check" {
                // An output that nobody reads is found when the run is reported.
                drop(self.app.out.info(format!("== check on {} would run", repository.name)));
                continue;
            }
            self.step(None, repository, verb);
        }
    }

    /// Waits for the lock of a repository's maintenance. `None`: it cannot be taken, and two runs
    /// may do the same.
    fn maintenance_lock(&self, repository: &Repository) -> Option<RunLock> {
        let what = Locked::Maintenance(&repository.name);
        let mut is_told = false;
        while !self.is_stopped() {
            match RunLock::take(self.journal.folder(), what, SystemClock.now_ms()) {
                Ok(Attempt::Locked(lock)) => return Some(lock),
                Ok(Attempt::Held(holder)) if !is_told => {
                    let process = holder.process.map_or_else(String::new, |process| format!(" (process {process})"));
                    let name = &repository.name;
                    self.app.out.remark(&format!("another run{process} maintains {name}; waiting for its end"));
                    is_told = true;
                }
                Ok(Attempt::Held(_)) => std::thread::sleep(LOOK_EVERY),
                Err(error) => {
                    let name = &repository.name;
                    self.app.out.warn(&format!("the maintenance of {name} cannot be locked: {error}"));
                    return None;
                }
            }
        }
        None
    }
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
