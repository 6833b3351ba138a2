//! The cost and the savings of a plan at a store's prices.

use larder_format::container::{CONTAINER_TARGET, TAIL_GUESS};
use larder_store::StoreStats;

use super::plan::Plan;
use crate::reclaim::ReclaimPlan;

/// Prices of a store, in some currency. The defaults are those of Amazon S3 Standard in its
/// cheapest regions, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// A thousand creates or listings.
    pub creates: f64,
    /// A thousand reads.
    pub reads: f64,
    /// A thousand deletions.
    pub deletes: f64,
    /// A gigabyte (10^9 bytes) kept for a month.
    pub storage: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self { creates: 0.005, reads: 0.0004, deletes: 0.0, storage: 0.023 }
    }
}

/// Text that is no list of prices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a list of prices such as creates=0.005,reads=0.0004,deletes=0,storage=0.023")]
pub struct ParsePricesError {
    /// The text.
    pub text: String,
}

impl std::str::FromStr for Prices {
    type Err = ParsePricesError;

    fn from_str(text: &str) -> Result<Self, ParsePricesError> {
        let wrong = || ParsePricesError { text: text.to_owned() };
        let mut prices = Self { creates: 0.0, reads: 0.0, deletes: 0.0, storage: 0.0 };
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let value: f64 = value.trim().parse().map_err(|_| wrong())?;
            if !value.is_finite() || value < 0.0 {
                return Err(wrong());
            }
            *match name.trim() {
                "creates" => &mut prices.creates,
                "reads" => &mut prices.reads,
                "deletes" => &mut prices.deletes,
                "storage" => &mut prices.storage,
                _ => return Err(wrong()),
            } = value;
        }
        Ok(prices)
    }
}

/// Tables to which new versions add.
const TABLES: u64 = 4;
/// Manifest, lists and recipes of a version that is rewritten.
const LOOKS: u64 = 6;

/// Requests to a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Creates and listings.
    pub creates: u64,
    /// Reads.
    pub reads: u64,
    /// Deletions.
    pub deletes: u64,
}

impl Requests {
    /// The requests of a plan besides looking: the lease and its end, the index and a look at its
    /// number, the fences. For new versions, also a run of each table, and the tables of new
    /// containers. Merges of large tables are extra.
    pub fn of(plan: &Plan) -> Self {
        let deletes = plan.deletions();
        if plan.is_empty() {
            return Self::default();
        }
        // Of a retired container, the tables and the chunks to be copied are read, and about as
        // many copies of its others. Copies are stored in new containers, whose tables are read
        // again, and change two runs of each table.
        let in_containers = |bytes: u64| bytes.div_ceil(CONTAINER_TARGET as u64);
        let written = in_containers(plan.reclaimed.copied_bytes.0);
        let runs = if plan.versions_ingested > 0 { TABLES } else { 0 };
        let moved = if plan.reclaimed.containers > 0 { 3 } else { 0 };
        // A small container is read whole with its tables.
        let reclaimed = plan.reclaimed;
        let each = if reclaimed.container_bytes.0 < reclaimed.containers * TAIL_GUESS as u64 { 2 } else { 4 };
        // Arranging reads the same of containers that it retires. It writes the rest into at least
        // one container for each category.
        let arranging = plan.arranging;
        let arranged = in_containers(arranging.moved_bytes.0).max(arranging.containers.min(1));
        let tables = if arranging.is_empty() { 0 } else { 2 };
        let creates = 4 + plan.fenced.len() as u64 + written + runs + moved + arranged + tables;
        let reads = plan.new_containers + each * reclaimed.containers + written + 4 * arranging.containers;
        // Runs that are merged at once go at once.
        Self { creates, reads, deletes: deletes + 2 + moved }
    }

    /// The requests to a store between two looks at its counters.
    pub fn between(before: &StoreStats, after: &StoreStats) -> Self {
        let creates = |stats: &StoreStats| stats.creates + stats.lists;
        let reads = |stats: &StoreStats| stats.reads + stats.sizes;
        Self {
            creates: creates(after).saturating_sub(creates(before)),
            reads: reads(after).saturating_sub(reads(before)),
            deletes: after.deletes.saturating_sub(before.deletes),
        }
    }

    /// The requests for copying this number of bytes from this number of containers together. They
    /// are the lease and its end, a look at the version, the new containers of data and metadata,
    /// and the generation.
    pub fn of_copying(containers: u64, bytes: u64) -> Self {
        Self { creates: 5 + bytes.div_ceil(CONTAINER_TARGET as u64), reads: containers + LOOKS, deletes: 0 }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            creates: self.creates + other.creates,
            reads: self.reads + other.reads,
            deletes: self.deletes + other.deletes,
        }
    }

    /// How many they are.
    pub fn count(&self) -> u64 {
        self.creates + self.reads + self.deletes
    }

    /// Their price.
    pub fn price(&self, prices: &Prices) -> f64 {
        let thousands = |count: u64, price: f64| count as f64 / 1000.0 * price;
        thousands(self.creates, prices.creates)
            + thousands(self.reads, prices.reads)
            + thousands(self.deletes, prices.deletes)
    }
}

/// The monthly savings of a plan.
pub fn saved_monthly(plan: &Plan, prices: &Prices) -> f64 {
    let ReclaimPlan { container_bytes, copied_bytes, .. } = plan.reclaimed;
    let arranging = plan.arranging;
    // Copies are compressed as well as their sources, or better.
    let reclaimed = container_bytes.0.saturating_sub(copied_bytes.0);
    let arranged = arranging.container_bytes.0.saturating_sub(arranging.moved_bytes.0);
    (plan.container_bytes.0 + reclaimed + arranged) as f64 / 1e9 * prices.storage
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::ByteCount;

    #[test]
    fn prices_are_read() {
        let all: Prices = "creates=1,reads=2, deletes=3,storage=0.5".parse().expect("valid");
        assert_eq!(all, Prices { creates: 1.0, reads: 2.0, deletes: 3.0, storage: 0.5 });
        for bad in ["", "creates", "creates=x", "gets=1", "storage=-1", "storage=inf"] {
            assert!(bad.parse::<Prices>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_plan_has_its_price() {
        let plan = Plan {
            data_containers: 1990,
            meta_containers: 8,
            container_bytes: ByteCount(2_000_000_000),
            ..Plan::default()
        };
        let prices = Prices { creates: 5.0, reads: 1.0, deletes: 2.0, storage: 0.25 };
        assert_eq!(Requests::of(&plan), Requests { creates: 4, reads: 0, deletes: 2000 });
        assert!((Requests::of(&plan).price(&prices) - 4.02).abs() < 1e-9);
        assert!((saved_monthly(&plan, &prices) - 0.5).abs() < 1e-9);
        assert_eq!(Requests::of(&Plan::default()), Requests::default());
        let new = Plan { versions_ingested: 1, new_containers: 20, ..Plan::default() };
        assert_eq!(Requests::of(&new), Requests { creates: 8, reads: 20, deletes: 2 });
        let copied = Requests::of_copying(10, 17 << 20);
        assert_eq!(copied, Requests { creates: 8, reads: 16, deletes: 0 });
        assert_eq!(copied.and(Requests::of(&new)).count(), 54);
    }
}
