//! Data containers in cold storage, as one pass of a G-node knows them.
//!
//! A listing of classes costs a request for a thousand objects, and most repositories have nothing
//! cold. So a pass lists them when it needs them, and once. If the storage refuses, the pass knows
//! those that it has met.
//!
//! Most of a repository may be cold. So they are rows in pages: in memory as far as their share
//! allows, and the rest in a file without a name.

use std::io;
use std::path::Path;

use larder_format::ErrorKind;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::names;
use larder_spill::{KeyedPages, KeyedRow, Row, RowReader, RowWriter};
use parking_lot::Mutex;

use crate::cold::{ClassedObject, Warmth};
use crate::repository::{Repository, RepositoryError};
use crate::survey::ListedContainer;

/// A data container in cold storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ColdContainer {
    job: JobId,
    seq: u32,
    bytes: u64,
    /// See [`ClassedObject::billed_until_ms`].
    billed_until_ms: u64,
}

impl ColdContainer {
    fn new(id: ContainerId, bytes: u64, billed_until_ms: u64) -> Self {
        Self { job: id.job, seq: id.seq, bytes, billed_until_ms }
    }

    fn id(&self) -> ContainerId {
        ContainerId { kind: ContainerKind::Data, job: self.job, seq: self.seq }
    }
}

impl Row for ColdContainer {
    const BYTES: usize = 36;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.bytes(&self.job.0);
        row.u32(self.seq);
        row.u64(self.bytes);
        row.u64(self.billed_until_ms);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { job: JobId(row.bytes()), seq: row.u32(), bytes: row.u64(), billed_until_ms: row.u64() }
    }
}

impl KeyedRow for ColdContainer {
    type Key = (JobId, u32);

    fn key(&self) -> (JobId, u32) {
        (self.job, self.seq)
    }
}

/// See the module header.
#[derive(Debug)]
pub struct ColdContainers {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    was_asked: bool,
    rows: KeyedPages<ColdContainer>,
    containers: u64,
    bytes: u64,
    /// How many of them were met.
    met: u64,
}

impl Known {
    fn find(&mut self, id: &ContainerId) -> io::Result<Option<ColdContainer>> {
        if self.containers == 0 || id.kind != ContainerKind::Data {
            return Ok(None);
        }
        self.rows.settle();
        self.rows.find((id.job, id.seq))
    }

    /// Adds a container that is not there.
    fn add(&mut self, cold: ColdContainer) -> io::Result<()> {
        self.containers += 1;
        self.bytes += cold.bytes;
        self.rows.push(cold)
    }
}

/// Cold containers could not be found out, or not be kept.
#[derive(Debug, thiserror::Error)]
pub enum ColdError {
    /// It was interrupted.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The temporary file failed.
    #[error("a temporary file of cold containers cannot be used")]
    Scratch(#[from] io::Error),
}

impl ColdContainers {
    /// None is known. They take about `memory` bytes of memory at most; the file is in `folder`.
    pub fn new(folder: &Path, memory: usize) -> Self {
        let rows = KeyedPages::new(folder, memory);
        Self { known: Mutex::new(Known { was_asked: false, rows, containers: 0, bytes: 0, met: 0 }) }
    }

    /// Lists the classes, unless it did before. Thawed containers count as cold if this view of the
    /// store [leaves](crate::Store::leaving_thawed) them.
    ///
    /// # Errors
    /// It was interrupted, or the temporary file failed. If the storage refuses, only what it said
    /// before is known.
    pub async fn look(&self, repository: &Repository) -> Result<(), ColdError> {
        if std::mem::replace(&mut self.known.lock().was_asked, true) {
            return Ok(());
        }
        let leaves_thawed = repository.store().leaves_thawed();
        let mut noted = Ok(());
        let note = |object| {
            if let Some(cold) = cold(&object, leaves_thawed)
                && noted.is_ok()
            {
                noted = self.note(cold);
            }
        };
        match repository.store().list_classes(names::DATA, note).await {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(RepositoryError::from(error).into()),
            // Some storages have nothing cold, and do not know the request.
            Err(error) => {
                tracing::warn!(%error, "storage classes cannot be listed; cold containers are left out one by one");
            }
        }
        noted?;
        // Each look-up would search several runs, whose pages do not fit into memory.
        Ok(self.known.lock().rows.merge()?)
    }

    /// Whether the storage was asked for the classes, with or without success.
    pub fn was_asked(&self) -> bool {
        self.known.lock().was_asked
    }

    /// Notes a container that turned out to be cold.
    ///
    /// # Errors
    /// The temporary file failed.
    pub fn meet(&self, met: ListedContainer) -> io::Result<()> {
        let mut known = self.known.lock();
        if known.find(&met.id)?.is_some() {
            return Ok(());
        }
        known.met += 1;
        known.add(ColdContainer::new(met.id, met.bytes, 0))
    }

    /// Notes a container of the listing. The listing knows more than was met before it.
    fn note(&self, cold: ColdContainer) -> io::Result<()> {
        let mut known = self.known.lock();
        // To look for each of many would sort them each time.
        if known.met > 0
            && let Some(met) = known.find(&cold.id())?
        {
            known.containers -= 1;
            known.bytes -= met.bytes;
        }
        known.add(cold)
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.known.lock().containers == 0
    }

    /// A container, if it is known to be cold.
    ///
    /// # Errors
    /// The temporary file failed.
    pub fn find(&self, id: &ContainerId) -> io::Result<Option<ColdContainer>> {
        self.known.lock().find(id)
    }
}

/// The container of an object that is cold.
fn cold(object: &ClassedObject, leaves_thawed: bool) -> Option<ColdContainer> {
    let is_cold = match object.warmth {
        Warmth::Cold | Warmth::Thawing => true,
        Warmth::Thawed => leaves_thawed,
        Warmth::Warm => false,
    };
    let id = names::parse_container(&object.name).filter(|_| is_cold)?;
    Some(ColdContainer::new(id, object.size, object.billed_until_ms()))
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
    /// The same, of all these containers.
    #[must_use]
    pub fn of(self, cold: &ColdContainers) -> Self {
        let known = cold.known.lock();
        Self { containers: known.containers, bytes: known.bytes, ..self }
    }

    /// Counts the unused bytes of one of them.
    pub fn add_unused(&mut self, container: &ColdContainer, unused: u64) {
        if unused > 0 {
            self.unused_bytes += unused;
            self.billed_until_ms = self.billed_until_ms.max(container.billed_until_ms);
        }
    }

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

    fn object(seq: u32, warmth: Warmth) -> (ContainerId, ClassedObject) {
        let id = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq };
        let (name, class) = (names::container(id), "GLACIER".to_owned());
        (id, ClassedObject { name, size: 100, class, warmth, modified_ms: 1000 })
    }

    /// What is left, when these containers have unused bytes.
    fn left(known: &ColdContainers, unused: &[(ContainerId, u64)]) -> ColdLeft {
        let mut left = ColdLeft::default();
        for (id, unused) in unused {
            if let Some(cold) = known.find(id).expect("in memory") {
                left.add_unused(&cold, *unused);
            }
        }
        left.of(known)
    }

    #[test]
    fn what_is_left_is_summed_over_all_and_thawed_ones_count_where_they_are_left() {
        let all = (0..).zip([Warmth::Cold, Warmth::Thawing, Warmth::Thawed, Warmth::Warm]);
        let all: Vec<_> = all.map(|(seq, warmth)| object(seq, warmth)).collect();
        let cold_of = |leaves: bool| -> Vec<_> { all.iter().filter_map(|(_, object)| cold(object, leaves)).collect() };
        assert_eq!((cold_of(false).len(), cold_of(true).len()), (2, 3));

        let folder = tempfile::tempdir().expect("a folder");
        let known = ColdContainers::new(folder.path(), 1 << 20);
        assert!(known.is_empty() && !known.was_asked());
        cold_of(false).into_iter().try_for_each(|cold| known.note(cold)).expect("in memory");
        let unused = [(all[0].0, 30), (all[1].0, 40), (all[3].0, 50)];
        let sum = left(&known, &unused);
        assert_eq!((sum.containers, sum.bytes, sum.unused_bytes), (2, 200, 70));
        assert_eq!(sum.billed_until_ms, 1000 + 90 * 24 * 3600 * 1000);
        // Met, and not listed: it is unknown until when it is billed. Listed ones stay as they are.
        known.meet(ListedContainer { id: all[3].0, bytes: 5 }).expect("in memory");
        known.meet(ListedContainer { id: all[0].0, bytes: 5 }).expect("in memory");
        let sum = left(&known, &unused);
        assert_eq!((sum.containers, sum.bytes, sum.unused_bytes), (3, 205, 120));
        assert!(known.find(&all[3].0).expect("in memory").is_some() && !known.is_empty());
        // The listing comes after that.
        let listed = ColdContainer::new(all[3].0, 100, 7);
        known.note(listed).expect("in memory");
        let sum = left(&known, &[(all[3].0, 50)]);
        assert_eq!((sum.containers, sum.bytes, sum.billed_until_ms), (3, 300, 7));
    }

    /// Most of a large repository is cold.
    #[test]
    fn a_hundred_thousand_take_little_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = 256 << 10;
        let known = ColdContainers::new(folder.path(), memory);
        let id = |seq: u32| ContainerId { kind: ContainerKind::Data, job: JobId([(seq % 7) as u8; 16]), seq };
        for seq in 0..100_000 {
            known.note(ColdContainer::new(id(seq), 3, 0)).expect("written");
        }
        let in_memory = known.known.lock().rows.bytes_in_memory();
        assert!(in_memory <= memory, "{in_memory}");
        let sum = left(&known, &[(id(0), 5), (id(77_777), 6), (id(100_000), 7)]);
        assert_eq!((sum.containers, sum.bytes, sum.unused_bytes), (100_000, 300_000, 11));
    }
}
