//! Repair of versions: restores lost data from sources that still have it, or saves the rest.
//!
//! * [`heal()`]: restores chunks of damaged or missing data containers from files that still have
//!   them. A healed version gets a new generation of its manifest, as by defragmenting.
//! * [`salvage()`]: saves the rest of a damaged version as a new version of its series, as by a
//!   backup.
//!
//! Both begin with a check, and both only add: nothing is deleted, no object is overwritten, and
//! irreparable versions stay as they are. A pass deletes damaged containers when nothing needs them
//! any more. Both may be interrupted anywhere and run again. `docs/concurrency.md` explains why
//! they may run beside all other jobs.
//!
//! Not here: the index (`gnode`), and manifests that do not open, because their contents are
//! unknown.

mod heal;
mod holes;
mod salvage;
mod sharing;

pub use heal::{HealOptions, HealOutcome, HealReport, HealedVersion, heal};
pub use salvage::{
    Losses, SalvageOptions, SalvageOutcome, SalvageReport, SalvagedVersion, is_saved_from, replaced, salvage,
};

pub use crate::error::RepairError;

/// Why a version is left alone whose id another one has too.
const SHARED_ID: &str = "several snapshots have this id, and somebody made one of them on purpose";

/// Tag of versions that hold the saved rest of others.
pub const TAG_REPAIRED: &str = "repaired";
