//! What a batch would take: hours, bytes, requests and money, and in which rounds. Pure: nothing is
//! read here.
//!
//! The model of costs is that of multi-stage deduplication, with our sizes of records and with what
//! our stages read (`plan::cost`). Images are frozen from the beginning of their round, and what
//! guests overwrite meanwhile is copied ([`PlannedImage::overwritten`]). More rounds freeze less,
//! and take longer. [`plan()`] takes as many rounds as the limit of time allows (`plan::rounds`).

mod cost;
mod rounds;

pub use cost::{Rates, Stages};
pub use rounds::{Limits, Packing, plan, plan_by};

/// An image, as the planner sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedImage {
    /// Its host: a number below [`Fleet::hosts`].
    pub host: usize,
    /// Bytes of data, without holes.
    pub bytes: u64,
    /// Bytes that the scan reads: all, unless there is a map of changes.
    pub read_bytes: u64,
    /// Bytes in chunks that are looked up.
    pub changed_bytes: u64,
    /// Bytes that the guest writes in a second.
    pub write_rate: f64,
    /// Bytes that the guest writes again and again: more is never copied.
    pub hot_bytes: u64,
    /// Whether its series has no snapshot yet. Such images get rounds of their own.
    pub is_first: bool,
}

impl PlannedImage {
    /// Bytes that the guest overwrites, and that are copied, when the image is frozen for this
    /// number of seconds. Writes come at any time, and hit each hot place with the same
    /// probability.
    pub fn overwritten(&self, seconds: f64) -> f64 {
        let hot = self.hot_bytes as f64;
        if hot > 0.0 { hot * (1.0 - (-self.write_rate * seconds / hot).exp()) } else { 0.0 }
    }
}

/// All images of a batch, and what their hosts can do.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// The images.
    pub images: Vec<PlannedImage>,
    /// The number of hosts, all alike.
    pub hosts: usize,
    /// What a host can do, and what the data is like.
    pub rates: Rates,
}

impl Fleet {
    /// The same images on this number of hosts: the largest first, each on the host with the least
    /// to do.
    #[must_use]
    pub fn on_hosts(mut self, hosts: usize) -> Self {
        self.hosts = hosts.max(1);
        let mut work = vec![0_u64; self.hosts];
        let mut order: Vec<usize> = (0..self.images.len()).collect();
        order.sort_by_key(|number| std::cmp::Reverse(self.images[*number].read_bytes));
        for number in order {
            let host = (0..self.hosts).min_by_key(|host| work[*host]).unwrap_or_default();
            work[host] = work[host].saturating_add(self.images[number].read_bytes.max(1));
            self.images[number].host = host;
        }
        self
    }
}

/// Requests to the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Those that create or list objects.
    pub writes: u64,
    /// Those that read.
    pub reads: u64,
}

/// One round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Round {
    /// Numbers of its images, in rising order.
    pub images: Vec<usize>,
    /// The seconds of each stage.
    pub stages: Stages,
    /// Bytes that guests overwrite while its images are frozen.
    pub overwritten_bytes: f64,
    /// Bytes that its scans read.
    pub read_bytes: u64,
    /// Bytes of new chunks, before compression.
    pub new_bytes: u64,
    /// Bytes of temporary objects, which hosts write and read.
    pub exchanged_bytes: u64,
    /// Requests to the store.
    pub requests: Requests,
}

/// The rounds of a batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The rounds, one after the other.
    pub rounds: Vec<Round>,
    /// Whether the limits hold. Otherwise this is one round, or the least that is overwritten.
    pub fits: bool,
}

impl Plan {
    /// Seconds of all rounds.
    pub fn seconds(&self) -> f64 {
        self.rounds.iter().map(|round| round.stages.sum()).sum()
    }

    /// Bytes that guests overwrite while images are frozen.
    pub fn overwritten_bytes(&self) -> f64 {
        self.rounds.iter().map(|round| round.overwritten_bytes).sum()
    }

    /// Bytes of new chunks.
    pub fn new_bytes(&self) -> u64 {
        self.rounds.iter().map(|round| round.new_bytes).sum()
    }

    /// Requests to the store.
    pub fn requests(&self) -> Requests {
        self.rounds.iter().fold(Requests::default(), |sum, round| Requests {
            writes: sum.writes + round.requests.writes,
            reads: sum.reads + round.requests.reads,
        })
    }

    /// The price of all requests, and of storing the new bytes for a month.
    pub fn price(&self, rates: &Rates) -> f64 {
        let Requests { writes, reads } = self.requests();
        let stored = self.new_bytes() as f64 / 1e9 * rates.month_price;
        (writes as f64 * rates.write_price + reads as f64 * rates.read_price) / 1000.0 + stored
    }
}

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;
