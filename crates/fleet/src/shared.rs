//! What every task of a batch knows.

use std::collections::HashMap;
use std::sync::Arc;

use larder_format::fleet::{FleetPlan, PlannedHost, PlannedImage};
use larder_format::ids::{JobId, SeriesKey};
use larder_index::IndexSnapshot;
use larder_job::JobContext;
use larder_store::catalog::Version;
use larder_writer::Cutting;

use crate::memory::Budget;
use crate::report::FleetOptions;

/// The series of the jobs that store for batches. It never has a version.
pub const STORE_SERIES: &str = "larder:fleet";

/// What every task of a batch knows. It does not change.
pub(crate) struct Batch<'a> {
    pub(crate) context: &'a JobContext,
    pub(crate) options: &'a FleetOptions,
    pub(crate) id: JobId,
    pub(crate) plan: FleetPlan,
    pub(crate) index: IndexSnapshot,
    /// Series and number of the versions in the index.
    pub(crate) numbers: HashMap<JobId, (SeriesKey, u32)>,
    /// The newest version of every series whose containers may be shared.
    pub(crate) newest: Vec<Version>,
    pub(crate) cutting: Arc<Cutting>,
}

impl Batch<'_> {
    pub(crate) fn image(&self, number: u32) -> &PlannedImage {
        &self.plan.images[number as usize]
    }

    pub(crate) fn host(&self, number: u32) -> &PlannedHost {
        &self.plan.hosts[number as usize]
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget::of(self.options.memory, self.plan.hosts.len())
    }
}
