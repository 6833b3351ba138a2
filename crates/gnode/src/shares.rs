//! How much of the repository each version has to itself, by the container tables of the manifests alone.
//!
//! Memory is bounded by the caller's budget, not by the number of containers: when the table of containers outgrows it, the half
//! with one more bit of a hash is set aside and counted by reading the manifests once more. Reading them is what this costs.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use futures::StreamExt;
use larder_format::ids::{ByteCount, ContainerId};
use larder_store::catalog::Version;
use larder_store::{Repository, RepositoryError};

/// Manifests that are read ahead. One of a terabyte has some ten megabytes.
const MANIFESTS_AHEAD: usize = 4;

/// Bytes of memory that one container takes in the table, with the table's room to grow.
const BYTES_OF_ENTRY: usize = 112;

/// Fewer entries than this are never set aside, or every manifest would be read for a handful.
const ENTRIES_MIN: usize = 64;

/// What one of a list of versions, or of groups of them, uses. Bytes are those of whole containers, as stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Containers that it uses and none of the versions before it in the list.
    pub added: ByteCount,
    /// Containers that it uses and no other version of the list: what is free when it alone is forgotten.
    pub alone: ByteCount,
}

/// What is known of a container while manifests are read.
struct Use {
    first: usize,
    is_shared: bool,
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

    /// Becomes its first half; gives the other.
    fn split(&mut self) -> Self {
        let other = Self { bits: self.bits + 1, ending: self.ending | 1 << self.bits };
        self.bits += 1;
        other
    }
}

/// The share of each version of a list, in about `memory` bytes.
pub async fn shares(
    repository: &Repository,
    versions: &[Version],
    memory: usize,
) -> Result<Vec<Share>, RepositoryError> {
    let each: Vec<usize> = (0..versions.len()).collect();
    shares_of_groups(repository, versions, &each, versions.len(), memory).await
}

/// The same for groups of versions: `groups` says of each version in which of `count` groups it is.
pub async fn shares_of_groups(
    repository: &Repository,
    versions: &[Version],
    groups: &[usize],
    count: usize,
    memory: usize,
) -> Result<Vec<Share>, RepositoryError> {
    let entries_max = (memory / BYTES_OF_ENTRY).max(ENTRIES_MIN);
    let mut shares = vec![Share::default(); count];
    let mut waiting = vec![Part { bits: 0, ending: 0 }];
    while let Some(mut part) = waiting.pop() {
        let mut uses: HashMap<ContainerId, Use> = HashMap::new();
        let reads = versions.iter().map(|version| repository.manifest(version));
        let mut manifests = futures::stream::iter(reads).buffered(MANIFESTS_AHEAD);
        let mut numbers = groups.iter().copied();
        while let Some(manifest) = manifests.next().await {
            let number = numbers.next().unwrap_or(count);
            for usage in manifest?.containers {
                if !part.holds(&usage.container) {
                    continue;
                }
                let first = Use { first: number, is_shared: false, bytes: usage.object_bytes };
                uses.entry(usage.container)
                    .and_modify(|known| known.is_shared |= known.first != number)
                    .or_insert(first);
                while uses.len() > entries_max && part.bits < u64::BITS - 1 {
                    waiting.push(part.split());
                    uses.retain(|id, _| part.holds(id));
                }
            }
        }
        for known in uses.into_values() {
            let Some(share) = shares.get_mut(known.first) else { continue };
            share.added.0 += known.bytes;
            if !known.is_shared {
                share.alone.0 += known.bytes;
            }
        }
    }
    Ok(shares)
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
