//! The result of a round, and how it ended.

use std::time::Duration;

use larder_store::StoreStats;

use super::DefragmentReport;
use crate::pass::cost::Requests;
use crate::pass::{Outcome, PassReport};
use crate::refused::Refused;

/// A round that came to its end.
#[derive(Debug)]
pub struct MaintenanceReport {
    /// The pass, or all passes as one. [`PassReport::without_pass`] if none was wanted.
    pub pass: PassReport,
    /// Versions of closed domains that were forgotten.
    pub refused: Refused,
    /// Newest versions that were rewritten.
    pub defragmented: DefragmentReport,
    /// How long the round took.
    pub elapsed: Duration,
    /// Of a dry run, the requests that it took.
    pub planning: Requests,
    /// All requests that the store got when the round had ended, those before it included.
    pub requests: StoreStats,
    /// Whether the store keeps old versions of deleted objects.
    pub keeps_versions: bool,
}

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All is done, or as much as time and budget allow.
    Done,
    /// Some objects could not be deleted, or some versions not be rewritten. The next round tries
    /// again.
    Incomplete,
    /// Other passes were faster every time.
    Lost,
    /// Something is needed and is gone, or cannot be read.
    Damage,
    /// It was asked to stop, and something is left.
    Interrupted,
}

impl MaintenanceReport {
    /// Whether something is left that another round can do.
    pub fn is_unfinished(&self) -> bool {
        self.pass.is_unfinished || self.defragmented.was_stopped
    }

    /// Whether it has to be repeated soon: something is left, or the pass lost.
    pub fn wants_retry(&self) -> bool {
        self.is_unfinished() || self.pass.outcome == Outcome::Lost
    }

    /// How the round ended. `is_cancelled`: it was asked to stop.
    ///
    /// A limit that is used up is no failure, because the caller set it. Damage must not look like
    /// success.
    pub fn ended(&self, is_cancelled: bool) -> Ended {
        if is_cancelled && self.is_unfinished() {
            return Ended::Interrupted;
        }
        if self.pass.found_damage() || self.defragmented.found_damage() {
            return Ended::Damage;
        }
        if self.pass.outcome == Outcome::Lost {
            return Ended::Lost;
        }
        match self.defragmented.failed.is_empty() && self.refused.failed.is_empty() && self.pass.undeleted.is_empty() {
            true => Ended::Done,
            false => Ended::Incomplete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defragment::DefragmentError;
    use crate::maintenance::NotRewritten;
    use crate::pass::Undeleted;
    use larder_format::ids::JobId;
    use larder_rewrite::chunk_copier::RewriteError;

    fn report(pass: PassReport) -> MaintenanceReport {
        MaintenanceReport {
            pass,
            refused: Refused::default(),
            defragmented: DefragmentReport::default(),
            elapsed: Duration::ZERO,
            planning: Requests::default(),
            requests: StoreStats::default(),
            keeps_versions: false,
        }
    }

    fn failed(why: NotRewritten) -> MaintenanceReport {
        let mut report = report(PassReport::without_pass());
        report.defragmented.failed.insert(JobId([1; 16]), why);
        report
    }

    #[test]
    fn a_limit_that_is_used_up_is_no_failure_and_an_interruption_is() {
        let mut stopped = report(PassReport::stopped());
        assert!(stopped.is_unfinished() && stopped.wants_retry());
        assert_eq!([false, true].map(|is_cancelled| stopped.ended(is_cancelled)), [Ended::Done, Ended::Interrupted]);
        stopped.pass = PassReport::without_pass();
        assert!(!stopped.wants_retry());
        assert_eq!(stopped.ended(true), Ended::Done, "asked too late to stop anything");
        stopped.defragmented.was_stopped = true;
        assert!(stopped.wants_retry());
        assert_eq!(stopped.ended(true), Ended::Interrupted);
    }

    #[test]
    fn damage_comes_before_all_else() {
        let lost = || PassReport { outcome: Outcome::Lost, ..PassReport::without_pass() };
        assert!(report(lost()).wants_retry() && !report(lost()).is_unfinished());
        assert_eq!(report(lost()).ended(false), Ended::Lost);
        assert_eq!(report(PassReport { missing_containers: 1, ..lost() }).ended(false), Ended::Damage);
        let undeleted = vec![Undeleted { name: "data/x".to_owned(), why: "refused".to_owned() }];
        let undeleted = PassReport { undeleted, ..PassReport::without_pass() };
        assert_eq!(report(undeleted).ended(false), Ended::Incomplete);
        assert_eq!(failed(NotRewritten::UnreadableManifest).ended(false), Ended::Damage);
        let no_threads = DefragmentError::ChunkCopier(RewriteError::NoThreads);
        assert_eq!(failed(NotRewritten::Failed(no_threads)).ended(false), Ended::Incomplete);
    }
}
