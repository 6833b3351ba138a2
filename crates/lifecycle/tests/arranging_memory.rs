//! The promise: a series is arranged within the memory of its pass, however many containers it has,
//! and with the same result. One test, because it looks at the memory of its process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::extents::{Extent, Extents};
use larder_format::ids::{ByteCount, ContainerId, ContainerKind, JobId, RepositoryId, SeriesKey};
use larder_format::index_manifest::{IndexedVersion, VersionState};
use larder_format::index_tables::{ContainerFacts, ContainerState, Lifespan, SeriesLifespans};
use larder_format::key_file::KeyFields;
use larder_format::layout::Layout;
use larder_index::{ContainerExtents, Containers, Draft, IndexIo, IndexPass, LookupOptions, PassRuns};
use larder_job::{Cancel, Clock, Identity, JobContext, Machine, NoProgress};
use larder_lifecycle::arrange::{ArrangeOptions, Arranged, ContainerRetention, Unarranged, Work, arrange};
use larder_store::cold_containers::ColdContainers;
use larder_store::{Repository, Store, StoreOptions};

const SERIES: SeriesKey = SeriesKey([5; 16]);
const VERSIONS: u32 = 100;
/// The others are forgotten.
const RETAINED: std::ops::RangeInclusive<u32> = 51..=VERSIONS;
/// A container that a version stored and that arranging emptied is used until this number of
/// versions later.
const USED_FOR: u32 = 10;
const BYTES: u32 = 1 << 20;

#[derive(Debug)]
struct Now;

impl Clock for Now {
    fn now_ms(&self) -> u64 {
        1
    }
}

/// Everything may go.
struct Free;

impl ContainerRetention for Free {
    fn is_free(&self, _: &ContainerId) -> bool {
        true
    }

    fn is_held(&self, _: &ContainerId) -> bool {
        false
    }

    fn is_apart(&self, _: &ContainerFacts) -> bool {
        false
    }

    fn rebuilt(&self) -> u32 {
        0
    }
}

fn id(job: u32, seq: u32) -> ContainerId {
    ContainerId { kind: ContainerKind::Data, job: JobId([job as u8; 16]), seq }
}

fn facts(id: ContainerId, is_live: bool, lifespan: (u32, Option<u32>), forwards: Vec<u32>) -> ContainerFacts {
    let (chunks, bytes) = (100, u64::from(BYTES));
    let (state, retired) = if is_live { (ContainerState::Live, 0) } else { (ContainerState::Arranged, 1) };
    let lifespans = vec![Lifespan { first: lifespan.0, last: lifespan.1 }];
    ContainerFacts {
        id,
        state,
        layout: Layout::Lifecycle,
        chunks,
        bytes,
        object_bytes: bytes,
        retired_chunks: chunks * retired,
        retired_bytes: bytes * u64::from(retired),
        users: vec![SeriesLifespans { series: SERIES, lifespans }],
        forwards,
    }
}

/// The tables of a series: for each three containers, one as it was stored and used, one that was
/// emptied, and the one of a volume that has its bytes.
fn fill(pass: &IndexPass, draft: &mut Draft<'_>, containers: u32) {
    let mut table = pass.changes::<Containers>().unwrap();
    let mut records = pass.changes::<ContainerExtents>().unwrap();
    for triple in 0..containers / 3 {
        let (version, number) = (triple * VERSIONS / (containers / 3) + 1, triple * 3);
        let last = Some(version + USED_FOR).filter(|last| *last <= VERSIONS);
        let (used, emptied, volume) = (id(version, 2 * triple), id(version, 2 * triple + 1), id(200, triple));
        table.put(&number, &facts(used, true, (version, None), Vec::new())).unwrap();
        table.put(&(number + 1), &facts(emptied, false, (version, last), vec![number + 2])).unwrap();
        table.put(&(number + 2), &facts(volume, true, (version, last), Vec::new())).unwrap();
        let extent = Extent { from: 0, length: BYTES, last, to: Some((volume, 0)) };
        records.put(&emptied, &Extents(vec![extent])).unwrap();
        records.put(&volume, &Extents::default()).unwrap();
    }
    draft.apply(table).unwrap();
    draft.apply(records).unwrap();
    draft.manifest.head.next_container = containers;
    draft.manifest.versions = RETAINED.map(version).collect();
}

fn version(number: u32) -> IndexedVersion {
    IndexedVersion {
        number,
        series: SERIES,
        job: JobId([number as u8; 16]),
        generation: 0,
        state: VersionState::Retained,
        layout: Layout::Lifecycle,
        is_arranged: true,
        is_carried: true,
        is_proved: false,
        is_settled: true,
        seen_ms: 0,
    }
}

/// A line of the memory of this process, in bytes.
fn memory_of_process(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|found| found.starts_with(line)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// The result, a digest of the table of containers after it, and the bytes that the process grew by
/// meanwhile.
fn arranged(containers: u32, memory: usize) -> (Arranged, u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let context = context(&runtime, &folder.path().join("repository"));
    let io = IndexIo { repository: context.repository.clone(), executor: context.executor.clone() };
    let (job, threads) = (JobId([250; 16]), NonZeroUsize::MIN);
    let mut pass = IndexPass::new(io, PassRuns::new(job), threads, memory, folder.path().to_owned());
    pass.object_target = ByteCount(256 << 10);
    let mut draft = Draft::empty(&pass);
    fill(&pass, &mut draft, containers);
    let unarranged = Unarranged {
        series: SERIES,
        versions: draft.manifest.versions.clone(),
        has_left: true,
        has_lost: true,
        is_wanted: true,
        holes_percent: 20.0,
        every: 1,
    };
    let (options, cold) = (ArrangeOptions::default(), Arc::new(ColdContainers::new(folder.path(), memory / 16)));
    let work = Work { options, context, cold, job, retention: Box::new(Free), series: vec![unarranged] };
    // From here on, the peak is that of arranging.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = memory_of_process("VmRSS");
    let (arranged, mut retired) = arrange(&pass, &mut draft, &work, 0).unwrap();
    let grown = memory_of_process("VmHWM").saturating_sub(before);
    let mut digest = DefaultHasher::new();
    for batch in retired.batches() {
        for container in batch.unwrap() {
            format!("{container:?}").hash(&mut digest);
        }
    }
    for record in draft.view::<Containers>(LookupOptions::default()).scan(0..=u64::MAX, 1 << 20) {
        format!("{:?}", record.unwrap()).hash(&mut digest);
    }
    assert_eq!(retired.len(), arranged.reclaimed);
    (arranged, digest.finish(), grown)
}

fn context(runtime: &tokio::runtime::Runtime, folder: &Path) -> JobContext {
    let store = Store::open(&folder.to_str().unwrap().parse().unwrap(), &StoreOptions::default()).unwrap();
    let config = Config {
        repository: RepositoryId([7; 16]),
        created_ms: 0,
        chunker: ChunkerParams::with_average(Algorithm::DEFAULT, 4096),
        page_cuts: true,
    };
    let entropy = Arc::new(larder_testkit::entropy());
    let init = Repository::init(store, config, b"a password", KeyFields::for_tests(), entropy);
    let repository = runtime.block_on(init).unwrap();
    JobContext {
        machine: Machine::for_tests(repository.config().repository),
        repository,
        executor: runtime.handle().into(),
        clock: Arc::new(Now),
        threads: NonZeroUsize::MIN,
        memory: 1 << 20,
        renew_every: larder_store::jobs::RENEW_EVERY,
        cancel: Cancel::default(),
        progress: Arc::new(NoProgress),
        identity: Identity { host: "host".to_owned(), program: "test".to_owned(), process: 1 },
    }
}

#[test]
fn a_series_of_many_containers_is_arranged_in_little_memory() {
    const CONTAINERS: u32 = 60_000;
    // The process takes its buffers once.
    arranged(300, 1 << 20);
    let (little, digest, grown) = arranged(CONTAINERS, 1 << 20);
    // Volumes up to version 40 were used until version 50 at most.
    assert_eq!(little.reclaimed, u64::from(CONTAINERS / 3 * 40 / VERSIONS), "{little:?}");
    println!("{grown} bytes more, digest {digest}");
    assert!(grown < 16 << 20, "{grown} bytes more");
    let (plenty, other, _) = arranged(CONTAINERS, 1 << 30);
    assert_eq!((little, digest), (plenty, other));
}

/// Prints the memory of the process with a million containers, which took 735 MB more when all of a
/// series was in memory. `cargo test --workspace --test
/// arranging_memory -- --ignored --nocapture`
#[test]
#[ignore = "takes a minute"]
fn what_a_million_containers_take() {
    arranged(300, 1 << 20);
    for memory in [(7 << 20) / 2, (42 << 20) / 2, (56 << 20) / 2] {
        let began = std::time::Instant::now();
        let (arranged, _, grown) = arranged(1_000_000, memory);
        let peak = memory_of_process("VmHWM");
        println!("{memory}: {grown} more, peak {peak}, {} retired, {:?}", arranged.reclaimed, began.elapsed());
        assert!(grown < 64 << 20, "{memory}: {grown} bytes more");
    }
}
