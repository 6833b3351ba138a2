//! The L-node: everything that runs online and keeps no state but what is in the bucket.
//!
//! * [`backup()`]: source, cutter, fingerprinter, duplicate filter, frames, containers, recipes, commit.
//! * [`restore()`]: recipe, plan, containers read once each, files written wherever their chunks go.
//! * [`version`]: reading a version's entries and contents, for listings, searches, comparisons and dumps.
//! * [`relayout`]: chunks copied and recipes written again, for the tasks of the G-node.
//! * [`references`]: every chunk that versions name, for exact collection.
//! * [`check()`] and [`stats`]: what is in the repository, and whether it is whole.
//! * [`repair`]: what was lost put back, or what is left saved.
//!
//! What flows in: an opened repository, a source or a target, options. What flows out: a report, and progress while it
//! runs. CPU work is done on plain threads, requests to the store on the runtime of the [`JobContext`](larder_job::JobContext); every queue is
//! bounded, so memory follows the options and never the size of input or repository.
//!
//! Any number of L-nodes may work on one repository at once; `docs/concurrency.md` says why that is safe. Carries
//! sections IV and V of the SlimStore paper. Above: `cli`. Below: `source`, `dedup`, `store`.

pub mod backup;
pub mod check;
pub mod relayout;
pub mod repair;
pub mod restore;

pub use backup::{BackupError, BackupOptions, BackupReport, Base, Input, WhyBase, backup};
pub use check::{CheckOptions, CheckReport, check};
pub use restore::{RestoreError, RestoreOptions, RestoreReport, restore};
