//! The job's own chunks against a plain list of everything that was stored.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use larder_format::ids::{ContainerKind, JobId};
use proptest::prelude::*;

use super::*;
use crate::bloom::Bloom;
use crate::chain;
use crate::group_filter::Group;
use crate::sampled_index::NoteGroups;

fn chunk(n: u32) -> ChunkRef {
    let mut fingerprint = [0; 32];
    let mut x = (u64::from(n) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    fingerprint[..8].copy_from_slice(&(x ^ (x >> 27)).to_le_bytes());
    fingerprint[8..12].copy_from_slice(&n.to_le_bytes());
    let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq: n / 2000 };
    ChunkRef { fingerprint: Fingerprint(fingerprint), container, offset: n, size: 1 }
}

/// Keeps groups in memory, or makes them again when they are asked for.
#[derive(Default)]
struct Kept {
    groups: Vec<Group>,
    /// Chunks come in rising order from 0 on: only the count is kept.
    count: u32,
    is_counting: bool,
    loads: usize,
}

impl LoadGroup for Kept {
    type Error = Infallible;

    fn groups(&self) -> u32 {
        self.count
    }

    fn load(&mut self, group: u32) -> Result<Group, Infallible> {
        self.loads += 1;
        let size = OWN_GROUP as u32;
        let born = JobId([1; 16]);
        Ok(match self.is_counting {
            true => {
                Arc::new((group * size..(group + 1) * size).map(|n| ChunkRecord { chunk: chunk(n), born }).collect())
            }
            false => self.groups[group as usize].clone(),
        })
    }

    fn fill(&mut self, _: &mut dyn NoteGroups) -> Result<(), Infallible> {
        Ok(())
    }
}

impl KeepGroups for Kept {
    fn keep(&mut self, group: &[ChunkRecord]) -> Result<(), Infallible> {
        assert_eq!(group.len(), OWN_GROUP);
        self.count += 1;
        if !self.is_counting {
            self.groups.push(Arc::new(group.to_vec()));
        }
        Ok(())
    }
}

struct Job {
    bloom: Bloom,
    own: OwnChunks,
    older: OlderChunks<Kept>,
}

impl Job {
    fn find(&mut self, n: u32) -> Option<ChunkRecord> {
        let asked = chunk(n);
        let asked = Chunk { fingerprint: &asked.fingerprint, bytes: &[0] };
        let filters: [&mut dyn Filter<Infallible>; 3] = [&mut self.bloom, &mut self.own, &mut self.older];
        let Ok(found) = chain::find(filters, &asked);
        found
    }

    fn store(&mut self, n: u32) {
        let stored = ChunkRecord { chunk: chunk(n), born: JobId([1; 16]) };
        let filters: [&mut dyn Filter<Infallible>; 3] = [&mut self.bloom, &mut self.own, &mut self.older];
        let Ok(()) = chain::update(filters, &stored);
        if let Some(group) = self.own.take_leaving() {
            let Ok(()) = self.older.keep(&group);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// With room for the index nothing that was stored is ever stored again, in memory or not, and
    /// nothing else is found.
    #[test]
    fn everything_stored_is_found_and_nothing_else(
        stream in prop::collection::vec(prop_oneof![3 => 0u32..100_000, 1 => 0u32..3000], 0..9000),
        bloom in 0usize..20_000,
    ) {
        let mut job =
            Job { bloom: Bloom::new(bloom), own: OwnChunks::new(0), older: OlderChunks::new(Kept::default(), 1 << 20, 1 << 18) };
        let mut stored = HashMap::new();
        for n in stream {
            let found = job.find(n);
            prop_assert_eq!(found.map(|record| record.chunk), stored.get(&n).copied());
            if found.is_none() {
                job.store(n);
                stored.insert(n, chunk(n));
            }
        }
    }
}

/// Goal: memory does not follow the job's stored data, and stored chunks are still found. Method:
/// 50 million new chunks through small budgets, some looked for again in runs.
#[test]
fn fifty_million_new_chunks_take_no_more_memory_than_the_budgets() {
    // In the dev profile a tenth of it is enough to see whether memory follows.
    const CHUNKS: u32 = if cfg!(debug_assertions) { 5_000_000 } else { 50_000_000 };
    let kept = Kept { is_counting: true, ..Kept::default() };
    let mut job = Job {
        bloom: Bloom::new(1 << 20),
        own: OwnChunks::new(2 << 20),
        older: OlderChunks::new(kept, 1 << 20, 1 << 20),
    };
    let newest = job.own.capacity() as u32 - OWN_GROUP as u32;
    for n in 0..CHUNKS {
        job.store(n);
    }
    assert!(
        (CHUNKS - newest..CHUNKS).all(|n| job.find(n).is_some_and(|found| found.chunk == chunk(n))),
        "the newest, exactly"
    );
    let mut found = 0;
    for run in 0..50 {
        let from = run * (CHUNKS / 60);
        found += (from..from + 10_000).filter(|n| job.find(*n).is_some_and(|found| found.chunk == chunk(*n))).count();
    }
    assert!(found > 45 * 10_000, "{found} of 500000 found in runs");
    let Held { records, places, samples } = job.older.held();
    assert!(records <= 20 * OWN_GROUP && places <= records && samples <= 100_000, "{records} {places} {samples}");
    assert!(job.find(CHUNKS + 5).is_none());
}

#[test]
fn chunks_of_another_job_are_not_remembered() {
    let mut own = OwnChunks::new(0);
    own.insert(chunk(1));
    let mut other = chunk(2);
    other.container.job = JobId([2; 16]);
    own.insert(other);
    assert_eq!((own.find(&chunk(1).fingerprint), own.find(&other.fingerprint)), (Some(chunk(1)), None));
}
