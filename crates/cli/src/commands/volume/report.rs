//! The numbers of a store as `volume stats --json` prints them, and `/metrics` writes them.

use larder_volume::{CacheStats, FilterCounts, Phase, StoreStats, StoreUsage, TableStats};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::host::Host;

/// See `docs/json/volume_stats.schema.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Report {
    message_type: String,
    /// Milliseconds since the store was opened.
    pub(super) uptime_ms: u64,
    /// Connections of NBD clients; left out if the store is not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) connections: Option<u64>,
    pub(super) volumes: u64,
    pub(super) snapshots: u64,
    pub(super) logical_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) is_full: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<String>,
    /// What fails now: work in the background, damaged runs, blocks that cannot be committed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<String>,
    pub(super) requests: Requests,
    pub(super) commits: Commits,
    pub(super) memory: Memory,
    pub(super) log: LogUse,
    pub(super) runs: Runs,
    pub(super) caches: Caches,
    pub(super) replayed: Replayed,
    /// Filters of the chunk look-up, in their order.
    pub(super) filters: Vec<Filter>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) space: Option<Space>,
}

/// Requests of clients.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Requests {
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) writes: u64,
    pub(super) written_bytes: u64,
    /// Microseconds that writes and discards waited for room in the write buffer.
    pub(super) waited_micros: u64,
    pub(super) discards: u64,
    pub(super) discarded_bytes: u64,
    pub(super) flushes: u64,
}

/// What commits did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Commits {
    pub(super) commits: u64,
    pub(super) blocks: u64,
    pub(super) unchanged_blocks: u64,
    pub(super) cut_bytes: u64,
    pub(super) new_chunks: u64,
    pub(super) new_bytes: u64,
    pub(super) sealed_bytes: u64,
    pub(super) publishes: u64,
    /// Microseconds of each part of the work.
    pub(super) phases: Vec<PhaseTime>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PhaseTime {
    pub(super) name: String,
    pub(super) micros: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Memory {
    pub(super) waiting_bytes: u64,
    /// Size of the write buffer.
    pub(super) waiting_most_bytes: u64,
    pub(super) table_bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LogUse {
    pub(super) slots: u64,
    pub(super) slots_used: u64,
    pub(super) slot_bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Runs {
    pub(super) chunks: TableRuns,
    pub(super) blocks: TableRuns,
    pub(super) counts: TableRuns,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TableRuns {
    pub(super) runs: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Caches {
    pub(super) pages: Cache,
    pub(super) frames: Cache,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cache {
    pub(super) hits: u64,
    pub(super) misses: u64,
}

/// What opening the store did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Replayed {
    pub(super) commits: u64,
    pub(super) bytes: u64,
    pub(super) dropped: u64,
}

/// Counts of one filter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Filter {
    pub(super) name: String,
    pub(super) asked: u64,
    pub(super) existing: u64,
    pub(super) strong: u64,
    pub(super) weak: u64,
    pub(super) non_existing: u64,
    pub(super) micros: u64,
}

/// Space, which is measured only when it is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Space {
    pub(super) data_bytes: u64,
    pub(super) unique_bytes: u64,
    pub(super) stored_bytes: u64,
    pub(super) containers: u64,
    pub(super) volumes: Vec<VolumeSpace>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct VolumeSpace {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) data_bytes: u64,
}

fn filter(counts: FilterCounts) -> Filter {
    Filter {
        name: counts.name.to_owned(),
        asked: counts.asked,
        existing: counts.existing,
        strong: counts.strong,
        weak: counts.weak,
        non_existing: counts.non_existing,
        micros: counts.nanos / 1000,
    }
}

/// The numbers of a store now.
pub(super) fn of(host: &Host, usage: Option<&StoreUsage>) -> Value {
    serde_json::to_value(Report::of(host, usage)).unwrap_or_default()
}

impl Report {
    pub(super) fn of(host: &Host, usage: Option<&StoreUsage>) -> Self {
        let stats = host.store.stats();
        let uptime_ms = u64::try_from(host.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        Self {
            message_type: "volume_stats".to_owned(),
            uptime_ms,
            connections: host.clients.as_ref().map(|clients| clients()),
            volumes: stats.volumes,
            snapshots: stats.snapshots,
            logical_bytes: stats.logical_bytes,
            free_bytes: stats.free_bytes,
            is_full: stats.is_full,
            requests: Requests {
                reads: stats.reads,
                read_bytes: stats.read_bytes,
                writes: stats.writes,
                written_bytes: stats.written_bytes,
                waited_micros: stats.waited_nanos / 1000,
                discards: stats.discards,
                discarded_bytes: stats.discarded_bytes,
                flushes: stats.flushes,
            },
            commits: commits(&stats),
            memory: Memory {
                waiting_bytes: stats.waiting_bytes,
                waiting_most_bytes: stats.waiting_most,
                table_bytes: stats.table_bytes,
            },
            log: LogUse { slots: stats.log_slots, slots_used: stats.log_slots_used, slot_bytes: stats.log_slot_bytes },
            runs: Runs {
                chunks: runs(stats.chunk_runs),
                blocks: runs(stats.block_runs),
                counts: runs(stats.count_runs),
            },
            caches: Caches { pages: cache(stats.pages), frames: cache(stats.frames) },
            replayed: Replayed {
                commits: host.recovery.records,
                bytes: host.recovery.bytes,
                dropped: host.recovery.dropped,
            },
            filters: host.store.filter_counts().into_iter().map(filter).collect(),
            space: usage.map(space),
            stopped: stats.stopped,
            problems: stats.problems,
        }
    }
}

fn commits(stats: &StoreStats) -> Commits {
    let phases = Phase::ALL.iter().zip(stats.nanos);
    Commits {
        commits: stats.commits,
        blocks: stats.blocks,
        unchanged_blocks: stats.unchanged_blocks,
        cut_bytes: stats.cut_bytes,
        new_chunks: stats.new_chunks,
        new_bytes: stats.new_bytes,
        sealed_bytes: stats.sealed_bytes,
        publishes: stats.publishes,
        phases: phases
            .map(|(phase, nanos)| PhaseTime { name: phase.name().to_owned(), micros: nanos / 1000 })
            .collect(),
    }
}

fn runs(of: TableStats) -> TableRuns {
    TableRuns { runs: of.runs, records: of.records, bytes: of.bytes }
}

fn cache(of: CacheStats) -> Cache {
    Cache { hits: of.hits, misses: of.misses }
}

fn space(usage: &StoreUsage) -> Space {
    Space {
        data_bytes: usage.volumes.iter().map(|volume| volume.data_bytes).sum(),
        unique_bytes: usage.unique_bytes,
        stored_bytes: usage.stored_bytes,
        containers: usage.containers,
        volumes: usage
            .volumes
            .iter()
            .map(|volume| VolumeSpace {
                name: volume.name.clone(),
                size: volume.size,
                blocks: volume.blocks,
                data_bytes: volume.data_bytes,
            })
            .collect(),
    }
}
