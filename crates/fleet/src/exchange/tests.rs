//! Outputs of many tasks are read within the memory of a batch.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::compress::Compression;
use larder_format::config::Config;
use larder_format::fleet::{At, FleetPlan, PlannedHost, Requests, Stage, TaskId};
use larder_format::ids::{JobId, RepositoryId};
use larder_format::index_tables::ChunkKey;
use larder_format::key_file::KeyFields;
use larder_index::{Cursor, IndexSnapshot};
use larder_job::{Cancel, Clock, Identity, JobContext, Machine, NoProgress};
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::Memory;
use larder_testkit::data::Rng;

use super::*;
use crate::report::FleetOptions;
use crate::shared::{Batch, KnownIndex};

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now_ms(&self) -> u64 {
        1
    }
}

fn context(runtime: &tokio::runtime::Runtime) -> JobContext {
    let repository = RepositoryId([7; 16]);
    let chunker = ChunkerParams::with_average(Algorithm::DEFAULT, 4096);
    let config = Config { repository, created_ms: 0, chunker, page_cuts: true };
    let store = Store::from_object_store(Memory::new().store(), "", &StoreOptions::default()).unwrap();
    let made = Repository::init(store, config, b"test", KeyFields::for_tests(), Arc::new(larder_testkit::entropy()));
    JobContext {
        repository: runtime.block_on(made).unwrap(),
        machine: Machine::for_tests(repository),
        executor: runtime.handle().into(),
        clock: Arc::new(Still),
        threads: NonZeroUsize::MIN,
        memory: 1 << 20,
        renew_every: larder_store::jobs::RENEW_EVERY,
        cancel: Cancel::default(),
        progress: Arc::new(NoProgress),
        identity: Identity { host: "host".to_owned(), program: "test".to_owned(), process: 1 },
    }
}

fn options(scratch: &Path, memory: usize) -> FleetOptions {
    FleetOptions {
        memory,
        write: larder_writer::WriteBudget::default(),
        read: larder_lnode::ReadBudget::default(),
        before_stage: None,
        scratch: scratch.to_owned(),
        compression: Compression::Off,
        user: String::new(),
        tags: Vec::new(),
        time_ms: None,
        program: String::new(),
        verify_every: None,
        force: false,
        partitions: None,
    }
}

/// Each host has asked for some thousand chunks. Few hosts are merged at once. The outputs of 64
/// are more than the batch may hold, whether this process wrote them, and so reads them whole, or
/// others did. They are sorted instead, and the records are the same.
#[test]
fn outputs_of_many_hosts_are_not_held_at_once() {
    const CHUNKS: u32 = 3000;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (context, folder) = (context(&runtime), tempfile::tempdir().unwrap());
    let options = options(folder.path(), 1 << 20);
    for (count, own, others) in [(4, true, true), (64, false, false)] {
        let host =
            |number: u32| PlannedHost { name: number.to_string(), store: JobId([1; 16]), is_any: None, round: None };
        let plan = FleetPlan {
            images: Vec::new(),
            hosts: (0..count).map(host).collect(),
            partitions: 1,
            index: 0,
            time_ms: 1,
            program: String::new(),
            shared: None,
        };
        let index = KnownIndex::new(IndexSnapshot::empty());
        let batch = Batch::new(&context, &options, JobId([count as u8; 16]), plan, index, Vec::new(), None, 1).unwrap();
        let mut rng = Rng::new(u64::from(count));
        let (mut expected, mut tasks) = (Vec::new(), Vec::new());
        for image in 0..count {
            let mut outputs = Outputs::begin(&batch, TaskId { stage: Stage::Send, round: 0, number: image }).unwrap();
            let mut questions = batch.sorter::<Requests>(1 << 20).unwrap();
            for number in 0..CHUNKS {
                let mut chunk = [0; 20];
                chunk[..8].copy_from_slice(&rng.below(u64::MAX).to_be_bytes());
                let key = Requests::key(&ChunkKey(chunk), At { image, number });
                questions.push(&key, Some(&[])).unwrap();
                expected.push(key.to_vec());
            }
            outputs.write::<Requests>(&mut questions.finish().unwrap()).unwrap();
            tasks.push(outputs.done(Facts::default()).unwrap());
        }
        expected.sort_unstable();
        for (is_at_once, is_own) in [(own, true), (others, false)] {
            tasks.iter_mut().filter(|_| !is_own).for_each(|task| task.digests = None);
            let mut merged = OutputCursor::merged::<Requests>(&batch, &tasks, 0..=u64::MAX).unwrap();
            assert_eq!(matches!(merged, Merged::AtOnce(_)), is_at_once, "{count} hosts, {is_own}");
            let mut keys = Vec::new();
            while merged.advance().unwrap() {
                keys.push(merged.key().to_vec());
            }
            assert!(keys == expected, "{count} hosts, {is_own}");
        }
    }
}
