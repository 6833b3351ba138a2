//! Outputs of many tasks are read within the memory of a batch.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::ErrorKind;
use larder_format::compress::Compression;
use larder_format::config::Config;
use larder_format::fleet::{At, FleetPlan, Placements, PlannedHost, Requests, Stage, TaskId};
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

fn batch<'a>(context: &'a JobContext, options: &'a FleetOptions, hosts: u32) -> Batch<'a> {
    let host = |number: u32| PlannedHost { name: number.to_string(), store: JobId([1; 16]), is_any: None, round: None };
    let plan = FleetPlan {
        images: Vec::new(),
        hosts: (0..hosts).map(host).collect(),
        partitions: 1,
        index: 0,
        time_ms: 1,
        program: String::new(),
        shared: None,
    };
    let index = KnownIndex::new(IndexSnapshot::empty());
    Batch::new(context, options, JobId([hosts as u8; 16]), plan, index, Vec::new(), None, 1).unwrap()
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
        let batch = batch(&context, &options, count);
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

/// Many hosts tell a place of the same chunk and owner, which honest ones never do. Merging and
/// sorting take the one of the first host.
#[test]
fn of_equal_keys_the_first_host_counts() {
    const HOSTS: u32 = 64;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (context, folder) = (context(&runtime), tempfile::tempdir().unwrap());
    let (little, much) = (options(folder.path(), 1 << 20), options(folder.path(), 64 << 20));
    let of_little = batch(&context, &little, HOSTS);
    let keys: Vec<[u8; 28]> = (0..3000u32)
        .map(|number| {
            let mut chunk = [7; 20];
            chunk[..4].copy_from_slice(&number.to_be_bytes());
            Requests::key(&ChunkKey(chunk), At { image: 0, number })
        })
        .collect();
    let mut rng = Rng::new(1);
    let tasks: Vec<Decided> = (1..=HOSTS)
        .map(|host| {
            let task = TaskId { stage: Stage::Place, round: 0, number: host };
            let mut outputs = Outputs::begin(&of_little, task).unwrap();
            let mut writer = outputs.writer::<Placements>();
            let mut value = [host as u8; 28];
            for key in &keys {
                (1..28).step_by(9).for_each(|at| value[at..][..8].copy_from_slice(&rng.below(u64::MAX).to_le_bytes()));
                writer.push(key, &value).unwrap();
            }
            writer.finish().unwrap();
            outputs.done(Facts::default()).unwrap()
        })
        .collect();
    for (options, is_at_once) in [(&little, false), (&much, true)] {
        let batch = batch(&context, options, HOSTS);
        let mut merged = OutputCursor::merged::<Placements>(&batch, &tasks, 0..=u64::MAX).unwrap();
        assert_eq!(matches!(merged, Merged::AtOnce(_)), is_at_once);
        for key in &keys {
            assert!(merged.advance().unwrap());
            let host = merged.value().map(|value| value[0]);
            assert_eq!((merged.key(), host), (&key[..], Some(1)), "at once: {is_at_once}");
        }
        assert!(!merged.advance().unwrap());
    }
}

/// Outputs are written and read object by object. A batch that is cancelled stops at the next one.
#[test]
fn a_cancelled_batch_stops_between_objects() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (context, folder) = (context(&runtime), tempfile::tempdir().unwrap());
    let options = options(folder.path(), 1 << 20);
    let batch = batch(&context, &options, 1);
    let task = TaskId { stage: Stage::Send, round: 0, number: 0 };
    let key = |number: u32| Requests::key(&ChunkKey([7; 20]), At { image: 0, number });
    let mut outputs = Outputs::begin(&batch, task).unwrap();
    let mut writer = outputs.writer::<Requests>();
    (0..100_000).for_each(|number| writer.push(&key(number), &[]).unwrap());
    writer.finish().unwrap();
    let sent = outputs.done(Facts::default()).unwrap();
    assert!(sent.record.outputs.len() > 3);
    let mut reading = OutputCursor::new::<Requests>(&batch, &sent, 0..=u64::MAX);
    assert!(reading.advance().unwrap());

    context.cancel.cancel();
    let mut read = 1;
    let error = loop {
        match reading.advance() {
            Ok(more) => assert!(more, "all was read"),
            Err(error) => break error,
        }
        read += 1;
    };
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert_eq!(read, sent.record.outputs[0].records, "those of the object at hand");
    assert!(OutputCursor::merged::<Requests>(&batch, [&sent], 0..=u64::MAX).unwrap().advance().is_err());
    let mut outputs = Outputs::begin(&batch, task).unwrap();
    let mut writer = outputs.writer::<Requests>();
    let error = (0..100_000).find_map(|number| writer.push(&key(number), &[]).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
}
