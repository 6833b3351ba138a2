//! The G-node: everything that runs offline and makes room.
//!
//! * [`maintenance`]: one round of all tasks, with retries and limits.
//! * [`daemon`]: rounds as long as the process runs.
//! * [`index_check`]: whether the index agrees with containers and versions.
//! * [`defragment`]: newest versions rewritten, so that they are read fast.
//! * [`forget`]: marks versions that a policy does not keep.
//! * [`reclaim`]: chunks that are stored twice, or needed no more, leave containers that versions still name.
//! * [`ingest`]: the chunks of new containers, taken into the index.
//! * [`pass`]: collects what no version needs.
//! * [`proof`]: whether the newest index is right, for checks.
//! * [`repair`]: the index rebuilt from containers and versions alone.
//! * [`exclusive_bytes`]: how much each version has to itself.
//! * [`retention`]: which versions of a series a policy keeps. A pure decision.
//!
//! Passes and repairs share what the index knows of versions and containers (`known_versions`, `lifespans`) and how its tables are read and
//! written (`tables`).
//!
//! Any number of L-nodes and G-nodes may work on one repository at once; `docs/concurrency.md` says why that is safe.
//! Above: `cli`. Below: `lifecycle`, `rewrite`, `reader`, `writer`, `job`, `index`, `store`, `format`.

pub mod daemon;
pub mod defragment;
mod error;
pub mod exclusive_bytes;
pub mod forget;
pub mod index_check;
pub mod ingest;
#[cfg(test)]
mod kind_tests;
mod known_versions;
mod lifespans;
pub mod maintenance;
pub mod pass;
pub mod proof;
pub mod reclaim;
pub mod repair;
pub mod retention;
mod retries;
mod tables;
