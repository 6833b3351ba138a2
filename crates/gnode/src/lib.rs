//! The G-node: all work that runs offline and frees space.
//!
//! * [`maintenance`]: one round of all tasks, with retries and limits.
//! * [`daemon`]: rounds as long as the process runs.
//! * [`index_check`]: whether the index agrees with containers and versions.
//! * [`defragment`]: rewrites newest versions, so that they are read fast.
//! * [`first_seen`]: whether the store confirms the time that a version claims.
//! * [`forget`]: marks versions that a policy does not keep.
//! * [`reclaim`]: removes duplicate and unneeded chunks from containers that versions still name.
//! * [`ingest`]: adds the chunks of new containers to the index.
//! * [`pass`]: deletes objects that no version needs.
//! * [`proof`]: whether the newest index is right, for checks.
//! * [`repair`]: rebuilds the index from containers and versions alone.
//! * [`exclusive_bytes`]: the bytes that only one version uses.
//! * [`retention`]: which versions of a series a policy keeps. A pure decision.
//!
//! Passes and repairs share the index's knowledge of versions and containers (`known_versions`,
//! `lifespans`). They also share how its tables are read and written (`tables`).
//!
//! Any number of L-nodes and G-nodes may work on one repository at once; `docs/concurrency.md` says
//! why that is safe. Above: `cli`. Below: `lifecycle`, `rewrite`, `reader`, `writer`, `job`,
//! `index`, `store`, `format`.

pub mod daemon;
pub mod defragment;
mod error;
pub mod exclusive_bytes;
pub mod first_seen;
pub mod forget;
pub mod index_check;
pub mod ingest;
#[cfg(test)]
mod kind_tests;
mod known_versions;
mod lifespans;
pub mod maintenance;
pub mod mirror;
pub mod pass;
pub mod proof;
pub mod reclaim;
pub mod refused;
pub mod repair;
pub mod retention;
mod retries;
pub mod roll_back;
mod spilled;
mod tables;
