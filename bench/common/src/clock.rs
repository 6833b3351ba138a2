//! Time: the real CPU time of this thread, and the modelled time of a slow store.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time this thread has taken. Unlike wall time it does not grow while others have the core.
#[must_use]
pub fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Adds the CPU time of `work` to `total`.
pub fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = cpu();
    let result = work();
    *total += cpu().saturating_sub(start);
    result
}

/// A store as the paper's object store was: every request waits, then the bytes come at the rate of one stream. Simulated.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Seconds until the first byte.
    pub latency: f64,
    /// Bytes a second of one stream.
    pub rate: f64,
}

impl Link {
    /// 30 ms and 90 MB/s a stream.
    pub const SLOW: Self = Self { latency: 0.030, rate: 90e6 };

    /// Seconds that requests take one after the other.
    #[must_use]
    pub fn seconds(self, traffic: Traffic) -> f64 {
        traffic.requests as f64 * self.latency + traffic.bytes as f64 / self.rate
    }
}

/// What was read from the store.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Requests made.
    pub requests: u64,
    /// Bytes that they brought.
    pub bytes: u64,
}

impl Traffic {
    /// Counts a request.
    pub fn add(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes += bytes as u64;
    }
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

impl std::ops::Sub for Traffic {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { requests: self.requests - other.requests, bytes: self.bytes - other.bytes }
    }
}
