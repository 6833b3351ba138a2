//! The counts of a job at one moment, as text and as JSON, and the rate behind them.

use std::time::{Duration, Instant};

use serde_json::json;

use super::MeterKind;
use crate::{sizes, time};

/// The time over which the shown rate is averaged.
const RATE_SECONDS: f64 = 5.0;

/// The rate of a job, averaged over the last seconds.
pub(super) struct Rate {
    bytes: u64,
    at: Instant,
    /// The average with the time before the start, when nothing was done, and the share of the time
    /// since then in it.
    average: f64,
    share: f64,
    pub(super) bytes_a_second: f64,
}

impl Rate {
    /// Nothing was done at `start`.
    pub(super) fn new(start: Instant) -> Self {
        Self { bytes: 0, at: start, average: 0.0, share: 0.0, bytes_a_second: 0.0 }
    }

    /// This much was done at `now`.
    pub(super) fn update(&mut self, bytes: u64, now: Instant) {
        let seconds = now.duration_since(self.at).as_secs_f64();
        if seconds < 0.05 {
            return;
        }
        let newest = bytes.saturating_sub(self.bytes) as f64 / seconds;
        let weight = 1.0 - (-seconds / RATE_SECONDS).exp();
        self.average += (newest - self.average) * weight;
        self.share += (1.0 - self.share) * weight;
        self.bytes_a_second = self.average / self.share;
        (self.bytes, self.at) = (bytes, now);
    }
}

/// The counts at one moment.
pub(super) struct Moment {
    pub(super) elapsed: Duration,
    pub(super) files_total: u64,
    pub(super) bytes_total: u64,
    pub(super) total_is_known: bool,
    pub(super) only_uploads_are_left: bool,
    pub(super) files_done: u64,
    pub(super) bytes_done: u64,
    pub(super) errors: u64,
    pub(super) current: String,
    pub(super) remaining: Option<Duration>,
    pub(super) bytes_a_second: f64,
}

impl Moment {
    fn share(&self) -> f64 {
        if self.bytes_total > 0 { (self.bytes_done as f64 / self.bytes_total as f64).min(1.0) } else { 0.0 }
    }

    /// One line for users.
    pub(super) fn text(&self) -> String {
        let mut text = format!("[{}] ", time::show_duration(self.elapsed));
        if self.total_is_known {
            text.push_str(&format!("{:.1}%  ", self.share() * 100.0));
        }
        text.push_str(&sizes::show(self.bytes_done));
        if self.bytes_total > self.bytes_done {
            text.push_str(&format!(" of {}", sizes::show(self.bytes_total)));
        }
        // A check counts bytes only.
        if self.files_total + self.files_done > 0 {
            text.push_str(&format!("  {}", sizes::count(self.files_done, "item")));
        }
        if self.files_total > self.files_done {
            text.push_str(&format!(" of {}", self.files_total));
        }
        if self.only_uploads_are_left {
            text.push_str("  waiting for uploads");
        } else {
            text.push_str(&format!("  {}/s", sizes::show(self.bytes_a_second as u64)));
        }
        if let Some(remaining) = self.remaining {
            text.push_str(&format!("  {} left", time::show_duration(remaining)));
        }
        if self.errors > 0 {
            text.push_str(&format!("  {}", sizes::count(self.errors, "error")));
        }
        text
    }

    /// One message for programs.
    pub(super) fn json(&self, kind: MeterKind) -> serde_json::Value {
        let mut status = json!({
            "message_type": "status",
            "seconds_elapsed": self.elapsed.as_secs(),
            "percent_done": self.share(),
            "total_files": self.files_total,
            "files_done": self.files_done,
            "total_bytes": self.bytes_total,
            "bytes_done": self.bytes_done,
            "error_count": self.errors,
        });
        if let Some(remaining) = self.remaining {
            status["seconds_remaining"] = json!(remaining.as_secs());
        }
        if self.only_uploads_are_left {
            status["is_uploading"] = json!(true);
        }
        if !self.current.is_empty() {
            status["current_files"] = json!([self.current]);
        }
        if kind == MeterKind::Restore {
            status["files_restored"] = json!(self.files_done);
            status["bytes_restored"] = json!(self.bytes_done);
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_slowly_and_without_jumps() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        for second in 1..=60 {
            rate.update(second * 1000, start + Duration::from_secs(second));
            assert!((999.0..=1001.0).contains(&rate.bytes_a_second), "{} at {second} s", rate.bytes_a_second);
        }
        rate.update(60_000, start + Duration::from_secs(61));
        assert!(rate.bytes_a_second > 700.0, "one second without progress is not the end");
    }
}
