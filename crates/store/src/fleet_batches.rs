//! What fleet batches have left for their own tasks, and which batches are over.
//!
//! No version needs any of these objects. A batch that runs would fail without them, so they go
//! when its lease is closed or gone. A batch creates its lease before its first object. So the
//! objects are listed before the leases.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::ids::JobId;
use larder_format::names::{self, FleetObject, LeaseObject};

use crate::repository::{Repository, RepositoryError};

/// The batches that have left anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetBatches {
    /// Batches that are over, with the names of their objects: tasks of checks and passes first.
    pub over: BTreeMap<JobId, Vec<String>>,
    /// Batches whose lease is open.
    pub open: BTreeSet<JobId>,
}

impl Repository {
    /// Lists what batches have left. Names alone decide, so batches of other domains are among
    /// them.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn fleet_batches(&self) -> Result<FleetBatches, RepositoryError> {
        let store = self.store.without_cache();
        let mut found = FleetBatches::default();
        for object in store.list(names::FLEET).await? {
            if let Some((batch, _)) = names::parse_fleet(&object.name) {
                found.over.entry(batch).or_default().push(object.name);
            }
        }
        if found.over.is_empty() {
            return Ok(found);
        }
        let (mut leases, mut closed) = (BTreeSet::new(), BTreeSet::new());
        for object in store.list(names::JOBS).await? {
            match names::parse_lease(&object.name) {
                Some((job, LeaseObject::Renewal(_))) => drop(leases.insert(job)),
                Some((job, LeaseObject::Done)) => drop(closed.insert(job)),
                None => {}
            }
        }
        found.open =
            found.over.keys().filter(|batch| leases.contains(batch) && !closed.contains(batch)).copied().collect();
        found.over.retain(|batch, _| !found.open.contains(batch));
        for objects in found.over.values_mut() {
            // No task without its claims, or a late worker would claim it again.
            objects.sort_by_key(|name| !matches!(names::parse_fleet(name), Some((_, FleetObject::Range(_)))));
        }
        Ok(found)
    }

    /// Names of the objects of batches that are over. Any program may delete them at any time.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn left_by_fleet(&self) -> Result<Vec<String>, RepositoryError> {
        Ok(self.fleet_batches().await?.over.into_values().flatten().collect())
    }
}
