//! Numbers of the daemon in the text format of Prometheus.
//!
//! Those of requests come from the store at each scrape. The others are of rounds that have ended.

use larder_gnode::maintenance::{Ended, MaintenanceReport};
use larder_gnode::pass::Outcome;
use larder_store::StoreStats;

use crate::commands::metrics_text::{Kind, MetricsText, labels};
use crate::commands::repository_numbers::{self, Numbers};

/// Results of rounds, in the order of their counts.
const RESULTS: [&str; 5] = ["done", "incomplete", "lost", "damage", "failed"];

/// What the rounds of this process did.
#[derive(Debug)]
pub(super) struct Rounds {
    start_ms: u64,
    /// One count for each of [`RESULTS`].
    results: [u64; 5],
    last_end_ms: u64,
    last_success_ms: u64,
    last_seconds: f64,
    index: u64,
    deleted_containers: u64,
    deleted_bytes: u64,
    rewritten_bytes: u64,
    undeleted: u64,
    missing_containers: u64,
    waiting_bytes: u64,
    live_jobs: u64,
    is_unfinished: bool,
    /// The numbers of the repository, once they were counted.
    numbers: Option<Numbers>,
}

impl Rounds {
    /// None yet, at this time (milliseconds since the epoch).
    pub(super) fn new(start_ms: u64) -> Self {
        Self {
            start_ms,
            results: [0; 5],
            last_end_ms: 0,
            last_success_ms: 0,
            last_seconds: 0.0,
            index: 0,
            deleted_containers: 0,
            deleted_bytes: 0,
            rewritten_bytes: 0,
            undeleted: 0,
            missing_containers: 0,
            waiting_bytes: 0,
            live_jobs: 0,
            is_unfinished: false,
            numbers: None,
        }
    }

    /// The numbers of the repository that were counted last.
    pub(super) fn numbers(&self) -> Option<&Numbers> {
        self.numbers.as_ref()
    }

    /// Takes new numbers of the repository.
    pub(super) fn counted(&mut self, numbers: Numbers) {
        self.numbers = Some(numbers);
    }

    /// Counts a round that has ended now.
    pub(super) fn ended(&mut self, report: &MaintenanceReport, now_ms: u64) {
        let result = match report.ended(false) {
            Ended::Done | Ended::Interrupted => 0,
            Ended::Incomplete => 1,
            Ended::Lost => 2,
            Ended::Damage => 3,
        };
        self.results[result] += 1;
        self.last_end_ms = now_ms;
        if result == 0 {
            self.last_success_ms = now_ms;
        }
        self.last_seconds = report.elapsed.as_secs_f64();
        let pass = &report.pass;
        if let Outcome::Published(number) = pass.outcome {
            self.index = number;
        }
        self.deleted_containers += pass.done.containers;
        self.deleted_bytes += pass.done.container_bytes.0;
        self.rewritten_bytes += report.defragmented.stored_bytes;
        self.undeleted = pass.undeleted.len() as u64;
        self.missing_containers = pass.missing_containers;
        self.waiting_bytes = pass.waiting.bytes.0;
        self.live_jobs = pass.live_jobs;
        self.is_unfinished = report.is_unfinished();
    }

    /// Counts a round, or a look at the repository, that failed.
    pub(super) fn failed(&mut self, now_ms: u64) {
        self.results[4] += 1;
        self.last_end_ms = now_ms;
    }

    /// All metrics.
    pub(super) fn render(&self, requests: &StoreStats) -> String {
        let mut text = MetricsText::new("larder_gnode_");
        let one = |value: f64| [(String::new(), value)];
        let seconds = |ms: u64| one(ms as f64 / 1000.0);
        let version = labels(&[("version", env!("CARGO_PKG_VERSION"))]);
        text.metric("build_info", "The version of the program, as a label.", Kind::Gauge, &[(version, 1.0)]);
        let help = "When the daemon began.";
        text.metric("start_timestamp_seconds", help, Kind::Gauge, &seconds(self.start_ms));
        let results: Vec<_> =
            RESULTS.iter().zip(self.results).map(|(name, count)| (labels(&[("result", name)]), count as f64)).collect();
        text.metric("rounds_total", "Rounds of maintenance by their result.", Kind::Counter, &results);
        let help = "When the last round ended; 0: none has.";
        text.metric("last_round_timestamp_seconds", help, Kind::Gauge, &seconds(self.last_end_ms));
        let help = "When the last round that did everything ended; 0: none has.";
        text.metric("last_success_timestamp_seconds", help, Kind::Gauge, &seconds(self.last_success_ms));
        let help = "Time that the last round took.";
        text.metric("last_round_duration_seconds", help, Kind::Gauge, &one(self.last_seconds));
        text.gauge("index_number", "Number of the newest index of this process; 0: none.", self.index);
        text.gauge("unfinished", "1 if the last round left something to the next.", u64::from(self.is_unfinished));
        text.counter("deleted_containers_total", "Containers that were deleted.", self.deleted_containers);
        text.counter("deleted_bytes_total", "Bytes of these containers.", self.deleted_bytes);
        text.counter("rewritten_bytes_total", "Bytes stored to rewrite newest snapshots.", self.rewritten_bytes);
        text.gauge("undeleted_objects", "Objects that the last round could not delete.", self.undeleted);
        let help = "Containers that snapshots need and the last round did not find.";
        text.gauge("missing_containers", help, self.missing_containers);
        text.gauge("waiting_bytes", "Uploads of interrupted backups that wait for their age.", self.waiting_bytes);
        text.gauge("live_jobs", "Jobs that ran beside the last round.", self.live_jobs);
        text.requests(requests);
        let numbers = self.numbers.iter().map(|numbers| (String::new(), numbers.clone()));
        repository_numbers::render(&mut text, &numbers.collect());
        text.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_without_rounds_has_all_metrics() {
        let mut rounds = Rounds::new(1500);
        let requests = StoreStats { lists: 2, reads: 3, sizes: 1, ..StoreStats::default() };
        let text = rounds.render(&requests);
        for line in [
            "larder_gnode_start_timestamp_seconds 1.5",
            "larder_gnode_rounds_total{result=\"failed\"} 0",
            "larder_gnode_last_success_timestamp_seconds 0",
            "larder_gnode_requests_total{kind=\"read\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        rounds.failed(2000);
        let text = rounds.render(&requests);
        assert!(
            text.contains("rounds_total{result=\"failed\"} 1\n") && text.contains("last_round_timestamp_seconds 2\n")
        );
    }
}
