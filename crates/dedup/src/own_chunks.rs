//! The chunks that the running job has stored itself: duplicates within one version.
//!
//! Exact for the newest few gigabytes: two generations of a hash table, of which the older is dropped when the newer is full.
//! What was stored before that is stored again when it comes back, and found by the G-node later.

use std::collections::HashMap;

use larder_format::segment::ChunkRecord;
use larder_format::{ChunkRef, Fingerprint};

use crate::chain::{Chunk, Filter, Verdict};
use crate::sampled_index::entries_within;

/// See the module header.
#[derive(Debug)]
pub struct OwnChunks {
    young: HashMap<Fingerprint, ChunkRef>,
    old: HashMap<Fingerprint, ChunkRef>,
    generation_max: usize,
}

impl OwnChunks {
    /// Remembers as many chunks as about `budget` bytes hold.
    pub fn new(budget: usize) -> Self {
        let generation_max = entries_within::<(Fingerprint, ChunkRef)>(budget / 2);
        Self { young: HashMap::new(), old: HashMap::new(), generation_max }
    }

    /// Where this job has put a chunk with this fingerprint.
    pub fn find(&self, fingerprint: &Fingerprint) -> Option<&ChunkRef> {
        self.young.get(fingerprint).or_else(|| self.old.get(fingerprint))
    }

    /// Remembers a chunk that was just stored.
    pub fn insert(&mut self, chunk: ChunkRef) {
        if self.young.len() >= self.generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(chunk.fingerprint, chunk);
    }
}

impl<E> Filter<E> for OwnChunks {
    fn check(&mut self, chunk: &Chunk<'_>, _: Option<&ChunkRecord>) -> Result<Verdict, E> {
        let found = self.find(chunk.fingerprint).filter(|found| found.size == chunk.size());
        Ok(found.map_or(Verdict::WeakMaybe, |found| {
            // Whatever this job has stored itself is born with it.
            Verdict::StrongMaybe(ChunkRecord { chunk: *found, born: found.container.job })
        }))
    }

    fn update(&mut self, stored: &ChunkRecord) -> Result<(), E> {
        self.insert(stored.chunk);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::{ContainerId, ContainerKind, JobId};

    fn chunk(n: u32) -> ChunkRef {
        let mut fingerprint = [0; 32];
        fingerprint[..4].copy_from_slice(&n.to_le_bytes());
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq: 0 };
        ChunkRef { fingerprint: Fingerprint(fingerprint), container, offset: n, size: 1 }
    }

    #[test]
    fn the_newest_chunks_are_remembered_and_memory_is_bounded() {
        let mut own = OwnChunks::new(160 * 200);
        for n in 0..10_000 {
            own.insert(chunk(n));
        }
        for n in 9_900..10_000 {
            assert_eq!(own.find(&chunk(n).fingerprint), Some(&chunk(n)));
        }
        assert_eq!(own.find(&chunk(0).fingerprint), None);
        assert!(own.young.len() + own.old.len() <= 200);
    }
}
