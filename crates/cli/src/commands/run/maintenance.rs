//! Maintenance of repositories in a run: `optimize`, `check`, copies from other repositories and
//! `drill`, as often as the repository says.

use std::time::Duration;

use larder_job::{Clock, SystemClock};
use larder_profile::config::{CopyFrom, Repository};
use larder_profile::duration;
use larder_profile::journal::Line;
use larder_profile::lock::{Attempt, Locked, RunLock};

use super::runner::{Runner, Step};

/// Something that a repository wants every now and then.
struct Duty<'a> {
    command: &'static str,
    copy: Option<&'a CopyFrom>,
    every: Duration,
}

/// All of them, in their order.
fn duties(repository: &Repository) -> Vec<Duty<'_>> {
    let verb = |command| {
        let every = repository.every.get(command).copied();
        every.map(|every| Duty { command, copy: None, every })
    };
    let copies = repository.copies.iter().map(|copy| Duty { command: "copy", copy: Some(copy), every: copy.every });
    let before = [verb("optimize"), verb("check")].into_iter().flatten();
    before.chain(copies).chain(verb("drill")).collect()
}

/// Those of them that have no `--dry-run`.
const WITHOUT_DRY_RUN: [&str; 2] = ["check", "drill"];

/// Runs start a little earlier or later than a day ago, so a tenth less counts, up to this.
const TOLERANCE_MAX: Duration = Duration::from_secs(3600);

impl Runner<'_> {
    /// Runs what is due on a repository. Another run may be at it. Then this one leaves it to that:
    /// a check can take hours, and profiles must not wait for it.
    pub(super) fn maintain(&mut self, repository: &Repository) {
        let mut lines = self.before.to_vec();
        let mut lock = None;
        if !self.dry_run && self.has_due(repository, &lines) {
            let Some(taken) = self.maintenance_lock(repository) else { return };
            lock = Some(taken);
            // Another run may have done it meanwhile.
            lines = self.journal.read().unwrap_or(lines);
        }
        for duty in duties(repository) {
            if self.is_stopped() {
                return;
            }
            let step = Step { profile: None, repository, command: duty.command, copy: duty.copy };
            let shown = step.shown();
            if !duty.is_due(repository, &lines) {
                let every = duration::show(duty.every);
                self.app.out.remark(&format!("== {shown} on {} is due every {every}: not yet", repository.name));
                continue;
            }
            if self.dry_run && WITHOUT_DRY_RUN.contains(&duty.command) {
                // An output that nobody reads is found when the run is reported.
                drop(self.app.out.info(format!("== {shown} on {} would run", repository.name)));
                continue;
            }
            self.step(&step);
        }
        drop(lock);
    }

    /// Whether something is due on a repository.
    pub(super) fn has_due(&self, repository: &Repository, lines: &[Line]) -> bool {
        duties(repository).iter().any(|duty| duty.is_due(repository, lines))
    }

    /// Whether copies into a repository are due.
    pub(super) fn has_due_copy(&self, repository: &Repository, lines: &[Line]) -> bool {
        duties(repository).iter().any(|duty| duty.copy.is_some() && duty.is_due(repository, lines))
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

impl Duty<'_> {
    fn is_due(&self, repository: &Repository, lines: &[Line]) -> bool {
        is_due(self.last(repository, lines), self.every, SystemClock.now_ms())
    }

    /// When it last succeeded on a repository (milliseconds since the epoch).
    fn last(&self, repository: &Repository, lines: &[Line]) -> Option<u64> {
        let now_ms = SystemClock.now_ms();
        let from = self.copy.map(|copy| &copy.from.value);
        let is_of = |line: &&Line| {
            let is_same = line.command == self.command && line.from.as_ref() == from;
            is_same && line.repository.as_ref() == Some(&repository.name) && line.is_success()
        };
        // A time in the future is one of a wrong clock.
        lines.iter().filter(is_of).map(|line| line.start_ms).filter(|start| *start <= now_ms).max()
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
