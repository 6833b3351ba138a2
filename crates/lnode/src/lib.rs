//! The L-node: backup and restore. It keeps no state but what is in the bucket.
//!
//! * [`backup()`]: source, cutter, fingerprinter, duplicate filter, frames, containers, recipes, commit.
//! * [`restore()`]: recipe, plan, containers read once each, files written wherever their chunks go.
//!
//! What flows in: an opened repository, a source or a target, options. What flows out: a report, and progress while it
//! runs. CPU work is done on plain threads, requests to the store on the runtime of the [`JobContext`](larder_job::JobContext);
//! every queue is bounded, so memory follows the options and never the size of input or repository.
//!
//! Any number of L-nodes may work on one repository at once; `docs/concurrency.md` says why that is safe. Carries section IV of
//! the SlimStore paper. Above: `rewrite`, `cli`. Below: `reader`, `writer`, `job`, `source`, `dedup`, `store`.

pub mod backup;
#[cfg(test)]
mod kind_tests;
pub mod restore;

pub use backup::{BackupError, BackupOptions, BackupReport, Base, Input, WhyBase, backup};
pub use restore::{RestoreError, RestoreOptions, RestoreReport, restore};
