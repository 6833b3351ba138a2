//! What every task of a batch knows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use larder_format::fleet::{FleetPlan, PlannedHost, PlannedImage};
use larder_format::ids::{AttemptId, JobId, SeriesKey};
use larder_index::IndexSnapshot;
use larder_job::JobContext;
use larder_store::catalog::Version;
use larder_writer::Cutting;
use parking_lot::Mutex;

use crate::error::FleetError;
use crate::left::Left;
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
    pub(crate) index: Mutex<Arc<KnownIndex>>,
    /// The newest version of every series whose containers may be shared.
    pub(crate) newest: Vec<Version>,
    pub(crate) cutting: Arc<Cutting>,
    /// The jobs that store for hosts, by the registers of their questions. That they are what they
    /// are called is a hint, as everything of other hosts.
    pub(crate) stores: Mutex<BTreeMap<u32, JobId>>,
    /// Uploads of batches that ended early, when somebody asked.
    pub(crate) left: Mutex<Option<Arc<Left>>>,
    /// This process among the workers of the batch. `None`: it does everything.
    pub(crate) worker: Option<AttemptId>,
    /// Hosts whose images this process may read in one round.
    pub(crate) hosts_here: usize,
}

/// An index, and its versions.
pub(crate) struct KnownIndex {
    pub(crate) snapshot: IndexSnapshot,
    /// Series and number of its versions.
    pub(crate) numbers: HashMap<JobId, (SeriesKey, u32)>,
}

impl KnownIndex {
    pub(crate) fn new(snapshot: IndexSnapshot) -> Self {
        let versions = snapshot.manifest.versions.iter();
        let numbers = versions.map(|version| (version.job, (version.series, version.number))).collect();
        Self { snapshot, numbers }
    }
}

impl<'a> Batch<'a> {
    #[expect(clippy::too_many_arguments, reason = "each is a part of the batch")]
    pub(crate) fn new(
        context: &'a JobContext,
        options: &'a FleetOptions,
        id: JobId,
        plan: FleetPlan,
        index: KnownIndex,
        newest: Vec<Version>,
        worker: Option<AttemptId>,
        hosts_here: usize,
    ) -> Result<Self, FleetError> {
        let repository = &context.repository;
        let cutting =
            Cutting::new(repository.config(), repository.keys()).ok_or(larder_lnode::BackupError::WorkerDied)?;
        let (index, stores, left) = (Mutex::new(Arc::new(index)), Mutex::default(), Mutex::default());
        Ok(Self { context, options, id, plan, index, newest, cutting, stores, left, worker, hosts_here })
    }
}

impl Batch<'_> {
    /// The index that is asked. Numbers of containers in answers are those of this one.
    pub(crate) fn index(&self) -> Arc<KnownIndex> {
        self.index.lock().clone()
    }

    /// Takes the newest index from now on.
    pub(crate) fn look_up_index(&self) -> Result<(), FleetError> {
        let newest = self.context.executor.block_on(IndexSnapshot::newest(&self.context.repository))?;
        self.use_index(newest.snapshot);
        Ok(())
    }

    /// Takes this index from now on.
    pub(crate) fn use_index(&self, snapshot: IndexSnapshot) {
        *self.index.lock() = Arc::new(KnownIndex::new(snapshot));
    }

    pub(crate) fn image(&self, number: u32) -> &PlannedImage {
        &self.plan.images[number as usize]
    }

    pub(crate) fn host(&self, number: u32) -> &PlannedHost {
        &self.plan.hosts[number as usize]
    }

    /// The job that stores for a host; `None`: the host left the batch.
    pub(crate) fn store_of(&self, host: u32) -> Option<JobId> {
        self.stores.lock().get(&host).copied()
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget::of(self.options.memory, self.hosts_here)
    }
}
