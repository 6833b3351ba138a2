//! Numbers of a worker in the text format of Prometheus.
//!
//! Those of requests and memory are of the moment of the scrape. The others are of batches that
//! have ended.

use larder_fleet::Worked;
use larder_store::StoreStats;

use crate::commands::metrics_text::{Kind, MetricsText, labels};

/// What a worker did since it began.
#[derive(Debug)]
pub(super) struct Done {
    start_ms: u64,
    /// Batches that are over, and those that it left early.
    batches: [u64; 2],
    /// Images of this worker, with a snapshot and without.
    images: [u64; 2],
    last_end_ms: u64,
    is_at_work: bool,
}

impl Done {
    /// Nothing yet, at this time (milliseconds since the epoch).
    pub(super) fn new(start_ms: u64) -> Self {
        Self { start_ms, batches: [0; 2], images: [0; 2], last_end_ms: 0, is_at_work: false }
    }

    /// A batch begins.
    pub(super) fn begins(&mut self) {
        self.is_at_work = true;
    }

    /// A batch has ended now.
    pub(super) fn ended(&mut self, worked: &Worked, now_ms: u64) {
        self.batches[usize::from(worked.ended_by.is_some())] += 1;
        self.images[0] += worked.saved.len() as u64;
        self.images[1] += worked.failed.len() as u64;
        (self.last_end_ms, self.is_at_work) = (now_ms, false);
    }

    /// All metrics. `memory` is the most memory of the process so far, in bytes; `is_told` whether
    /// a NATS server is connected, if there is one.
    pub(super) fn render(&self, requests: &StoreStats, memory: u64, is_told: Option<bool>) -> String {
        let mut text = MetricsText::new("larder_fleet_worker_");
        let seconds = |ms: u64| [(String::new(), ms as f64 / 1000.0)];
        let version = labels(&[("version", env!("CARGO_PKG_VERSION"))]);
        text.metric("build_info", "The version of the program, as a label.", Kind::Gauge, &[(version, 1.0)]);
        text.metric("start_timestamp_seconds", "When the worker began.", Kind::Gauge, &seconds(self.start_ms));
        let by_result = |results: [&str; 2], counts: [u64; 2]| {
            let sample = |(name, count): (&str, u64)| (labels(&[("result", name)]), count as f64);
            results.into_iter().zip(counts).map(sample).collect::<Vec<_>>()
        };
        let batches = by_result(["over", "left"], self.batches);
        text.metric("batches_total", "Batches that are over, or that this worker left.", Kind::Counter, &batches);
        let images = by_result(["saved", "failed"], self.images);
        text.metric("images_total", "Images of this worker by their result.", Kind::Counter, &images);
        let help = "When the last batch ended; 0: none has.";
        text.metric("last_batch_timestamp_seconds", help, Kind::Gauge, &seconds(self.last_end_ms));
        text.gauge("at_work", "1 while a batch is not over.", u64::from(self.is_at_work));
        text.gauge("memory_peak_bytes", "The most memory of this process so far.", memory);
        if let Some(is_told) = is_told {
            text.gauge("nats_up", "1 while the NATS server is connected.", u64::from(is_told));
        }
        text.requests(requests);
        text.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_counts_batches_and_images() {
        let mut done = Done::new(1500);
        let requests = StoreStats { reads: 3, sizes: 1, ..StoreStats::default() };
        let has = |text: &str, lines: &[&str]| {
            for line in lines {
                assert!(text.lines().any(|found| found == *line), "{line} in {text}");
            }
        };
        done.begins();
        let text = done.render(&requests, 7, None);
        has(&text, &["larder_fleet_worker_at_work 1", "larder_fleet_worker_memory_peak_bytes 7"]);
        assert!(!text.contains("nats_up"), "there is no server: {text}");
        let saved = vec!["a".to_owned(), "b".to_owned()];
        done.ended(&Worked { saved, failed: vec!["c".to_owned()], ended_by: None }, 2500);
        let text = done.render(&requests, 7, Some(false));
        has(
            &text,
            &[
                "larder_fleet_worker_batches_total{result=\"over\"} 1",
                "larder_fleet_worker_batches_total{result=\"left\"} 0",
                "larder_fleet_worker_images_total{result=\"saved\"} 2",
                "larder_fleet_worker_images_total{result=\"failed\"} 1",
                "larder_fleet_worker_last_batch_timestamp_seconds 2.5",
                "larder_fleet_worker_at_work 0",
                "larder_fleet_worker_nats_up 0",
                "larder_fleet_worker_requests_total{kind=\"read\"} 4",
            ],
        );
    }
}
