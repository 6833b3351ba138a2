//! Data containers in cold storage, as one pass of a G-node knows them.
//!
//! A listing of classes costs a request for a thousand objects, and most repositories have nothing
//! cold. So a pass lists them when it needs them, and once. If the storage refuses, the pass knows
//! those that it has met.

use std::collections::{BTreeMap, HashMap, HashSet};

use larder_format::ErrorKind;
use larder_format::ids::ContainerId;
use larder_format::names;
use parking_lot::Mutex;

use crate::cold::{ClassedObject, Warmth};
use crate::repository::{Repository, RepositoryError};
use crate::survey::ListedContainer;

/// A data container in cold storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ColdContainer {
    bytes: u64,
    /// See [`ClassedObject::billed_until_ms`].
    billed_until_ms: u64,
}

/// See the module header.
#[derive(Debug, Default)]
pub struct ColdContainers {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    was_asked: bool,
    containers: BTreeMap<ContainerId, ColdContainer>,
}

impl ColdContainers {
    /// Lists the classes, unless it did before. Thawed containers count as cold if this view of the
    /// store [leaves](crate::Store::leaving_thawed) them.
    ///
    /// # Errors
    /// It was interrupted. If the storage refuses, nothing more is known.
    pub async fn look(&self, repository: &Repository) -> Result<(), RepositoryError> {
        if std::mem::replace(&mut self.known.lock().was_asked, true) {
            return Ok(());
        }
        let listed = match repository.store().list_classes(names::DATA).await {
            Ok(listed) => listed.unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error.into()),
            // Some storages have nothing cold, and do not know the request.
            Err(error) => {
                tracing::warn!(%error, "storage classes cannot be listed; cold containers are left out one by one");
                return Ok(());
            }
        };
        let leaves_thawed = repository.store().leaves_thawed();
        self.known.lock().containers.extend(listed.into_iter().filter_map(|object| cold(&object, leaves_thawed)));
        Ok(())
    }

    /// Whether the storage was asked for the classes, with or without success.
    pub fn was_asked(&self) -> bool {
        self.known.lock().was_asked
    }

    /// Notes a container that turned out to be cold.
    pub fn meet(&self, met: ListedContainer) {
        let cold = ColdContainer { bytes: met.bytes, billed_until_ms: 0 };
        self.known.lock().containers.entry(met.id).or_insert(cold);
    }

    /// Those that are known.
    pub fn ids(&self) -> HashSet<ContainerId> {
        self.known.lock().containers.keys().copied().collect()
    }

    /// All of them together. `unused` has the unused bytes of each that has any.
    pub fn left(&self, unused: &HashMap<ContainerId, u64>) -> ColdLeft {
        let mut left = ColdLeft::default();
        for (id, container) in &self.known.lock().containers {
            left.containers += 1;
            left.bytes += container.bytes;
            let unused = unused.get(id).copied().unwrap_or(0);
            if unused > 0 {
                left.unused_bytes += unused;
                left.billed_until_ms = left.billed_until_ms.max(container.billed_until_ms);
            }
        }
        left
    }
}

fn cold(object: &ClassedObject, leaves_thawed: bool) -> Option<(ContainerId, ColdContainer)> {
    let is_cold = match object.warmth {
        Warmth::Cold | Warmth::Thawing => true,
        Warmth::Thawed => leaves_thawed,
        Warmth::Warm => false,
    };
    let id = names::parse_container(&object.name).filter(|_| is_cold)?;
    Some((id, ColdContainer { bytes: object.size, billed_until_ms: object.billed_until_ms() }))
}

/// Containers in cold storage that a pass leaves as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ColdLeft {
    /// Their number.
    pub containers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes in them that are not used, uncompressed, as far as the pass knows.
    pub unused_bytes: u64,
    /// The time until which the last container with unused bytes is billed in any case,
    /// milliseconds since the epoch by the store's clock; 0: no such time is known.
    pub billed_until_ms: u64,
}

impl ColdLeft {
    /// The larger numbers of two looks at the same containers.
    #[must_use]
    pub fn or(self, later: Self) -> Self {
        Self {
            containers: self.containers.max(later.containers),
            bytes: self.bytes.max(later.bytes),
            unused_bytes: self.unused_bytes.max(later.unused_bytes),
            billed_until_ms: self.billed_until_ms.max(later.billed_until_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::{ContainerKind, JobId};

    fn object(seq: u32, warmth: Warmth) -> (ContainerId, ClassedObject) {
        let id = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq };
        let (name, class) = (names::container(id), "GLACIER".to_owned());
        (id, ClassedObject { name, size: 100, class, warmth, modified_ms: 1000 })
    }

    #[test]
    fn what_is_left_is_summed_over_all_and_thawed_ones_count_where_they_are_left() {
        let all = (0..).zip([Warmth::Cold, Warmth::Thawing, Warmth::Thawed, Warmth::Warm]);
        let all: Vec<_> = all.map(|(seq, warmth)| object(seq, warmth)).collect();
        let cold_of = |leaves| all.iter().filter_map(|(_, object)| cold(object, leaves)).collect::<BTreeMap<_, _>>();
        assert_eq!((cold_of(false).len(), cold_of(true).len()), (2, 3));

        let known = ColdContainers { known: Mutex::new(Known { was_asked: true, containers: cold_of(false) }) };
        let unused: HashMap<ContainerId, u64> = [(all[0].0, 30), (all[1].0, 40), (all[3].0, 50)].into();
        let left = known.left(&unused);
        assert_eq!((left.containers, left.bytes, left.unused_bytes), (2, 200, 70));
        assert_eq!(left.billed_until_ms, 1000 + 90 * 24 * 3600 * 1000);
        // Met, and not listed: it is unknown until when it is billed. Listed ones stay as they are.
        known.meet(ListedContainer { id: all[3].0, bytes: 5 });
        known.meet(ListedContainer { id: all[0].0, bytes: 5 });
        let left = known.left(&unused);
        assert_eq!((left.containers, left.bytes, left.unused_bytes), (3, 205, 120));
        assert!(known.ids().contains(&all[3].0));
    }
}
