//! The bytes that only one version uses, by the container tables of the manifests. For retired
//! containers, the index says where their chunks are, and those containers count instead. For
//! arranged data, [`lifecycle_map`](larder_lifecycle::lifecycle_map) counts single bytes.
//!
//! Memory is bounded by the caller's budget, not by the number of containers. When the table of
//! containers is too large, the half with one more bit of a hash is set aside. It is counted later
//! by reading the manifests again, which is the main cost.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::pin::pin;

use futures::StreamExt;
use larder_format::ids::{ByteCount, ContainerId};
use larder_format::index_tables::ContainerState;
use larder_index::{Containers, Executor, IndexError, IndexIo, IndexSnapshot, LookupOptions, TableView};
use larder_store::catalog::Version;
use larder_store::manifests::ManifestWindow;
use larder_store::{Repository, RepositoryError};

/// Bytes of memory that one container takes in the table, with the table's room to grow.
const BYTES_OF_ENTRY: usize = 112;

/// Bytes of memory for reading the table of containers.
const SCAN_MEMORY: usize = 4 << 20;

/// Bytes of memory for ends of runs while that table is read. A small run is one end.
const TAILS_MEMORY: usize = 4 << 20;

/// Fewer entries than this are never set aside, or every manifest would be read for a handful.
const ENTRIES_MIN: usize = 64;

/// The use of containers by one version, or by one group of versions, of a list. Bytes are those of
/// whole containers, as stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Containers that it uses and none of the versions before it in the list.
    pub added: ByteCount,
    /// Containers that it uses and no other version of the list: the bytes that are freed when only
    /// it is forgotten.
    pub alone: ByteCount,
}

/// The shares of groups of versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    /// That of each group.
    pub each: Vec<Share>,
    /// Containers that the groups use and no version outside of them: the bytes that are freed when
    /// all groups are forgotten.
    pub together: ByteCount,
}

/// The limits of the work.
#[derive(Debug, Clone, Copy)]
pub struct SharesBudget {
    /// Bytes of memory for the table of containers, about.
    pub memory: usize,
    /// Manifests that are read ahead.
    pub window: ManifestWindow,
}

impl SharesBudget {
    /// This number of bytes for the table, and the usual window of manifests beside it.
    pub fn of_memory(memory: usize) -> Self {
        Self { memory, window: ManifestWindow::default() }
    }
}

/// The use of a container, while manifests are read.
struct Use {
    /// `None`: a version of no group.
    first: Option<usize>,
    is_shared: bool,
    /// Whether a version of no group uses it.
    is_outside: bool,
    bytes: u64,
}

/// Containers whose hash ends with these bits.
#[derive(Clone, Copy)]
struct Part {
    bits: u32,
    ending: u64,
}

impl Part {
    fn holds(self, id: &ContainerId) -> bool {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(id);
        hash & ((1 << self.bits) - 1) == self.ending
    }

    /// Keeps its first half and returns the other.
    fn split(&mut self) -> Self {
        let other = Self { bits: self.bits + 1, ending: self.ending | 1 << self.bits };
        self.bits += 1;
        other
    }
}

/// The share of each of `count` groups of versions. `groups` says for each version in which group
/// it is; `None`: in none. Data of versions in the layout `lifecycle` is not included:
/// [`lifecycle_map`](larder_lifecycle::lifecycle_map) counts it.
pub async fn exclusive_bytes(
    repository: &Repository,
    versions: &[Version],
    groups: &[Option<usize>],
    count: usize,
    budget: SharesBudget,
) -> Result<Shares, RepositoryError> {
    let moved = match moved(repository).await {
        Ok(moved) => moved,
        Err(IndexError::Repository(error)) if !error.is_damage() => return Err(error),
        Err(error) => {
            tracing::warn!(%error, "the index cannot be read: retired containers count as present");
            HashMap::new()
        }
    };
    let entries_max = (budget.memory / BYTES_OF_ENTRY).max(ENTRIES_MIN);
    let mut shares = Shares { each: vec![Share::default(); count], together: ByteCount::default() };
    let mut waiting = vec![Part { bits: 0, ending: 0 }];
    while let Some(mut part) = waiting.pop() {
        let mut uses: HashMap<ContainerId, Use> = HashMap::new();
        let mut manifests = pin!(repository.manifests(versions, budget.window));
        let mut numbers = groups.iter().copied();
        while let Some(manifest) = manifests.next().await {
            let number = numbers.next().flatten();
            let manifest = manifest?;
            for usage in larder_reader::objects_of(&manifest) {
                let whole = [(usage.container, usage.object_bytes)];
                for (container, bytes) in moved.get(&usage.container).map_or(&whole[..], Vec::as_slice) {
                    if !part.holds(container) {
                        continue;
                    }
                    let is_outside = number.is_none();
                    let first = Use { first: number, is_shared: false, is_outside, bytes: *bytes };
                    uses.entry(*container)
                        .and_modify(|known| {
                            known.is_shared |= known.first != number;
                            known.is_outside |= is_outside;
                        })
                        .or_insert(first);
                    while uses.len() > entries_max && part.bits < u64::BITS - 1 {
                        waiting.push(part.split());
                        uses.retain(|id, _| part.holds(id));
                    }
                }
            }
        }
        for known in uses.into_values() {
            if !known.is_outside {
                shares.together.0 += known.bytes;
            }
            let Some(share) = known.first.and_then(|first| shares.each.get_mut(first)) else { continue };
            share.added.0 += known.bytes;
            if !known.is_shared {
                share.alone.0 += known.bytes;
            }
        }
    }
    Ok(shares)
}

/// Of each retired container, those that have its chunks, with their bytes.
async fn moved(repository: &Repository) -> Result<HashMap<ContainerId, Vec<(ContainerId, u64)>>, IndexError> {
    let repository = &repository.through(repository.store().remembering_tails(TAILS_MEMORY));
    let snapshot = IndexSnapshot::newest(repository).await?.snapshot;
    let read = move |io: IndexIo| {
        let table: TableView<Containers> =
            TableView::new(io.clone(), &snapshot.manifest.runs, LookupOptions::default());
        let mut gone = Vec::new();
        for record in table.scan(0..=u64::MAX, SCAN_MEMORY) {
            if let (_, Some(facts)) = record?
                && facts.state != ContainerState::Live
            {
                gone.push((facts.id, facts.forwards));
            }
        }
        let mut numbers: Vec<u32> = gone.iter().flat_map(|(_, forwards)| forwards).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let facts = io.executor.block_on(table.get(&numbers))?;
        let there: HashMap<u32, (ContainerId, u64)> = numbers
            .into_iter()
            .zip(facts)
            .filter_map(|(number, facts)| facts.map(|facts| (number, (facts.id, facts.object_bytes))))
            .collect();
        let of = |forwards: Vec<u32>| forwards.iter().filter_map(|number| there.get(number).copied()).collect();
        Ok::<_, IndexError>(gone.into_iter().map(|(id, forwards)| (id, of(forwards))).collect())
    };
    Executor::threads().run(repository, read).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::{ContainerKind, JobId};

    #[test]
    fn the_parts_of_a_split_hold_everything_once() {
        let mut parts = vec![Part { bits: 0, ending: 0 }];
        for _ in 0..4 {
            let others: Vec<_> = parts.iter_mut().map(Part::split).collect();
            parts.extend(others);
        }
        for seq in 0..1000 {
            let id = ContainerId { kind: ContainerKind::Data, job: JobId([seq as u8; 16]), seq };
            assert_eq!(parts.iter().filter(|part| part.holds(&id)).count(), 1);
        }
    }
}
