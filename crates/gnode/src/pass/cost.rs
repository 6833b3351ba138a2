//! The cost and the savings of a plan at a store's prices.

use larder_format::container::{CONTAINER_TARGET, TAIL_GUESS};
use larder_store::StoreStats;
use larder_store::prices::Prices;

use super::plan::Plan;
use crate::reclaim::ReclaimPlan;

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

    /// Their price, without that of the bytes that they bring.
    pub fn price(&self, prices: &Prices) -> f64 {
        let Self { creates, reads, deletes } = *self;
        prices.of(&StoreStats { creates, reads, deletes, ..StoreStats::default() })
    }
}

/// The monthly savings of a plan.
pub fn saved_monthly(plan: &Plan, prices: &Prices) -> f64 {
    let ReclaimPlan { container_bytes, copied_bytes, .. } = plan.reclaimed;
    let arranging = plan.arranging;
    // Copies are compressed as well as their sources, or better.
    let reclaimed = container_bytes.0.saturating_sub(copied_bytes.0);
    let arranged = arranging.container_bytes.0.saturating_sub(arranging.moved_bytes.0);
    prices.monthly(plan.container_bytes.0 + reclaimed + arranged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::ByteCount;

    #[test]
    fn a_plan_has_its_price() {
        let plan = Plan {
            data_containers: 1990,
            meta_containers: 8,
            container_bytes: ByteCount(2_000_000_000),
            ..Plan::default()
        };
        let prices: Prices = "creates=5,reads=1,deletes=2,storage=0.25".parse().expect("a list");
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
