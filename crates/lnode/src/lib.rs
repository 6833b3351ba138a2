//! The L-node: backup and restore. Its only state is in the bucket.
//!
//! * [`backup()`]: source, cutter, fingerprinter, duplicate filter, frames, containers, recipes,
//!   commit.
//! * [`assemble`]: the parts of a backup, for versions that are made of pieces stored before.
//! * [`restore()`]: recipe, plan, each container read once a window, its chunks written to all
//!   their places in the window.
//!
//! Inputs: an opened repository, a source or a target, options. Outputs: a report, and progress
//! while it runs. CPU work runs on plain threads, and requests to the store on the runtime of the
//! [`JobContext`](larder_job::JobContext). Every queue is bounded, so memory follows the options
//! and never the size of input or repository.
//!
//! Any number of L-nodes may work on one repository at once; `docs/concurrency.md` explains why
//! that is safe. Implements section IV of the SlimStore paper. Above: `rewrite`, `fleet`,
//! `cli`. Below:
//! `reader`, `writer`, `job`, `source`, `dedup`, `store`.

pub mod assemble;
pub mod backup;
#[cfg(test)]
mod kind_tests;
pub mod restore;
pub mod transfer;

pub use backup::{
    BackupError, BackupOptions, BackupReport, Base, CopyOf, EarlierRun, EntrySource, ExpectedWork, ImageInput,
    ImageReader, ImageScan, Input, MapOutcome, MapReport, MapTrust, ReadBudget, SourceError, Supplied, SuppliedEntry,
    WhyBase, backup, expected_work, scan_image,
};
pub use restore::{
    DeleteRefusal, PlannedFetches, RestoreError, RestoreOptions, RestoreReport, restore, restore_begun, restore_reading,
};
