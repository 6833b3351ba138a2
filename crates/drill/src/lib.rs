//! Drills: restores of a sample of a version, to find out before an emergency whether restores
//! work.
//!
//! * [`Sample`], `sampler`: which files are restored. They are chosen at random, and a seed repeats
//!   the choice.
//! * [`drill()`]: restores them into a scratch folder by the ordinary restore. Or it only reads
//!   them.
//! * `compare`: reads the restored files back, and compares them with recipes and with live files.
//! * [`estimate()`]: counts what a drill would take.
//! * [`SnapshotReport`]: what was found, and what it took.
//!
//! A drill never changes the repository, except for leases, and never the live files. Its memory is
//! bounded by that of the context. Above: `cli`. Below: `lnode`, `reader`, `source`.

mod compare;
mod error;
mod estimate;
mod live;
mod report;
mod run;
mod sample;
mod sampler;
mod scratch;
#[cfg(test)]
mod tests;

pub use error::{DrillError, NoRoom};
pub use estimate::{ExpectedDrill, estimate};
pub use report::{Amount, Finding, FindingKind, SnapshotReport};
pub use run::{DrillOptions, drill};
pub use sample::{ParseSampleError, Sample};
