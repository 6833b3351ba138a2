//! The promise of the exact filters: every chunk of the version before, and every one that the job has stored itself, is found
//! when it comes back, in whatever order and with however little memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use larder_dedup::{
    Asked, Group, GroupFilter, KeepGroups, LoadGroup, NewFile, NoteGroups, OWN_GROUP, OlderChunks, OwnChunks,
    SpillingIndex, chain, sample,
};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::segment::ChunkRecord;
use larder_format::{ChunkRef, Fingerprint};
use proptest::prelude::*;

fn fingerprint(n: u32) -> Fingerprint {
    let mut bytes = [0; 32];
    for (place, word) in bytes.chunks_exact_mut(8).enumerate() {
        let mut x = (u64::from(n) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (place as u64) << 56;
        x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word.copy_from_slice(&(x ^ (x >> 27)).to_le_bytes());
    }
    Fingerprint(bytes)
}

fn record(n: u32, job: u8, place: u32) -> ChunkRecord {
    let container = ContainerId { kind: ContainerKind::Data, job: JobId([job; 16]), seq: place };
    let chunk = ChunkRef { fingerprint: fingerprint(n), container, offset: 0, size: 100 + n % 50 };
    ChunkRecord { chunk, born: container.job }
}

#[derive(Debug, Default)]
struct Groups(Vec<Group>);

impl LoadGroup for Groups {
    type Error = Infallible;

    fn groups(&self) -> u32 {
        self.0.len() as u32
    }

    fn load(&mut self, group: u32) -> Result<Group, Infallible> {
        Ok(self.0[group as usize].clone())
    }

    fn fill(&mut self, index: &mut dyn NoteGroups) -> Result<(), Infallible> {
        for (number, group) in self.0.iter().enumerate() {
            group.iter().for_each(|record| index.note(sample(&record.chunk.fingerprint), number as u32));
        }
        Ok(())
    }
}

impl KeepGroups for Groups {
    fn keep(&mut self, group: &[ChunkRecord]) -> Result<(), Infallible> {
        self.0.push(Arc::new(group.to_vec()));
        Ok(())
    }
}

fn files() -> NewFile {
    Box::new(tempfile::tempfile)
}

/// Streams that follow the version for a while, jump, repeat themselves, and have chunks of their own.
fn stream() -> impl Strategy<Value = Vec<u32>> {
    let run = prop_oneof![
        3 => (0u32..3000, 1u32..200).prop_map(|(from, count)| (from..from + count).collect::<Vec<_>>()),
        1 => prop::collection::vec(0u32..6000, 1..60),
        1 => (3000u32..6000, 1u32..200).prop_map(|(from, count)| (from..from + count).collect()),
    ];
    prop::collection::vec(run, 0..40).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_chunk_of_the_version_before_is_found(
        before in stream(),
        now in stream(),
        group in 1usize..200,
        (index, loaded) in prop_oneof![Just((0usize, 0usize)), (0usize..60_000, 0usize..60_000), Just((1 << 20, 1 << 20))],
    ) {
        let records: Vec<_> = before.iter().zip(0..).map(|(n, place)| record(*n, 1, place)).collect();
        let groups = Groups(records.chunks(group).map(|group| Arc::new(group.to_vec())).collect());
        let mut oracle: HashMap<u32, Vec<ChunkRecord>> = HashMap::new();
        before.iter().zip(&records).for_each(|(n, record)| oracle.entry(*n).or_default().push(*record));
        let mut filter = GroupFilter::exact(groups, SpillingIndex::new(index, files(), Asked::Afterwards), loaded);
        for n in now {
            let found = filter.find(&fingerprint(n), 100 + n % 50).unwrap();
            match oracle.get(&n) {
                None => prop_assert_eq!(found, None),
                Some(records) => prop_assert!(found.is_some_and(|found| records.contains(&found)), "{} is missed", n),
            }
        }
    }

    #[test]
    fn every_chunk_that_the_job_has_stored_is_found(
        now in stream(),
        (newest, index, loaded) in (0usize..9000, 0usize..30_000, 0usize..30_000),
    ) {
        let mut newest = OwnChunks::new(newest);
        let mut older = OlderChunks::exact(Groups::default(), SpillingIndex::new(index, files(), Asked::Meanwhile), loaded);
        let mut oracle = HashMap::new();
        let repeated = now.iter().chain((0..4 * OWN_GROUP as u32).map(|_| &0)).copied();
        let many = (10_000..10_000 + 3 * OWN_GROUP as u32).chain(repeated.collect::<Vec<_>>());
        for (n, place) in many.chain(10_000..10_000 + 3 * OWN_GROUP as u32).zip(0..) {
            let record = record(n, 2, place);
            let bytes = vec![0; record.chunk.size as usize];
            let chunk = chain::Chunk { fingerprint: &record.chunk.fingerprint, bytes: &bytes };
            let filters: [&mut dyn chain::Filter<Infallible>; 2] = [&mut newest, &mut older];
            let found = chain::find(filters, &chunk).unwrap();
            prop_assert_eq!(found, oracle.get(&n).copied());
            if found.is_none() {
                oracle.insert(n, record);
                newest.insert(record.chunk);
                if let Some(group) = newest.take_leaving() {
                    older.keep(&group).unwrap();
                }
            }
        }
    }
}
