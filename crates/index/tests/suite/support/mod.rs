//! What the tests of this crate share.

#![allow(dead_code, unreachable_pub, reason = "every user of this module uses a part of it")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::Arc;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::{ByteCount, JobId, RepositoryId, SeriesKey};
use larder_format::index_manifest::{
    IndexHead, IndexManifest, IndexedVersion, PassStatistics, RunRef, Table, VersionState,
};
use larder_format::key_file::KeyFields;
use larder_index::{
    Cursor, Draft, IndexError, IndexIo, IndexPass, LookupOptions, Merge, PassRuns, Readahead, RunScan, RunWriter,
    TableReader, Tombstones,
};
use larder_store::{CacheOptions, Repository, Store, StoreOptions};
use larder_testkit::{FaultStore, Faults, Memory};

const PASSWORD: &[u8] = b"a password";
pub const PASS: JobId = JobId([7; 16]);

/// A repository in memory, behind a store that fails on demand.
pub async fn repository() -> (Repository, Memory, Faults) {
    let memory = Memory::new();
    let (inner, faults) = FaultStore::new(memory.store());
    let store = Store::from_object_store(inner, "", &StoreOptions::default()).expect("opens");
    let config = Config {
        repository: RepositoryId([7; 16]),
        created_ms: 0,
        chunker: ChunkerParams::with_average(Algorithm::DEFAULT, 4096),
        page_cuts: true,
    };
    let fields = KeyFields::for_tests();
    let repository =
        Repository::init(store, config, PASSWORD, fields, Arc::new(larder_testkit::entropy())).await.expect("is made");
    (repository, memory, faults)
}

/// The same repository, opened by somebody else.
pub async fn other(memory: &Memory) -> Repository {
    let store = Store::from_object_store(memory.store(), "", &StoreOptions::default()).expect("opens");
    Repository::open(store, PASSWORD, Arc::new(larder_testkit::entropy())).await.expect("opens")
}

/// A manifest with as many versions as its pass's id says.
pub fn manifest(pass: u8) -> IndexManifest {
    let version = |number: u8| IndexedVersion {
        number: u32::from(number),
        series: SeriesKey([1; 16]),
        job: JobId([number; 16]),
        generation: 0,
        state: VersionState::Retained,
        layout: larder_format::layout::Layout::Standard,
        is_arranged: false,
        is_carried: false,
        is_proved: false,
        is_settled: true,
        seen_ms: 0,
    };
    let head = IndexHead {
        number: 0,
        pass: JobId([pass; 16]),
        attempt: [0; 16],
        time_ms: 5,
        host: "host".to_owned(),
        program: "test".to_owned(),
        next_version: u32::from(pass),
        next_container: 0,
        next_age: 0,
        statistics: PassStatistics::default(),
        rebuilt: None,
        dropped: None,
        missing: None,
        left: None,
        searched: None,
        unlisted: None,
        unread: None,
    };
    IndexManifest { head, versions: (0..pass).map(version).collect(), runs: Vec::new(), queue: Vec::new() }
}

/// A runtime for requests; the tests themselves run beside it.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("starts")
}

/// A key of the table of chunks: uniform, and the same for the same number.
pub fn chunk_key(number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(24);
    let mut state = number;
    while key.len() < 20 {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        key.extend_from_slice(&(word ^ (word >> 31)).to_be_bytes());
    }
    key.truncate(20);
    key
}

/// What a table is to hold.
pub type Oracle = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What of it counts: without tombstones.
pub fn living(oracle: &Oracle) -> BTreeMap<Vec<u8>, Vec<u8>> {
    oracle.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect()
}

/// A cursor over records in memory.
pub struct InMemory {
    records: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    next: usize,
}

impl InMemory {
    pub fn new(oracle: &Oracle) -> Self {
        Self { records: oracle.iter().map(|(key, value)| (key.clone(), value.clone())).collect(), next: 0 }
    }
}

impl Cursor for InMemory {
    fn advance(&mut self) -> Result<bool, IndexError> {
        self.next += 1;
        Ok(self.next <= self.records.len())
    }

    fn key(&self) -> &[u8] {
        &self.records[self.next - 1].0
    }

    fn value(&self) -> Option<&[u8]> {
        self.records[self.next - 1].1.as_deref()
    }
}

/// All records of a cursor, which must rise.
pub fn collect(cursor: &mut impl Cursor) -> Oracle {
    let mut records = Oracle::new();
    while cursor.advance().expect("can be read") {
        let is_new = records.last_key_value().is_none_or(|(last, _)| last.as_slice() < cursor.key());
        assert!(is_new, "keys rise");
        records.insert(cursor.key().to_vec(), cursor.value().map(<[u8]>::to_vec));
    }
    records
}

/// An engine over a repository in memory.
pub struct Engine {
    pub runtime: tokio::runtime::Runtime,
    pub io: IndexIo,
    pub memory: Memory,
    pub faults: Faults,
    pub pass: IndexPass,
    pub folder: tempfile::TempDir,
}

impl Engine {
    pub fn new() -> Self {
        let runtime = runtime();
        let (repository, memory, faults) = runtime.block_on(repository());
        Self::of(runtime, repository, memory, faults)
    }

    /// Over a store that has a repository already.
    pub fn over(memory: &Memory) -> Self {
        Self::beside(memory, None)
    }

    /// The same with a cache on disk, as an L-node has it.
    pub fn beside(memory: &Memory, cache: Option<CacheOptions>) -> Self {
        Self::through(memory, &StoreOptions { cache, ..StoreOptions::default() })
    }

    /// The same with these limits of the store.
    pub fn through(memory: &Memory, options: &StoreOptions) -> Self {
        let runtime = runtime();
        let (inner, faults) = FaultStore::new(memory.store());
        let store = Store::from_object_store(inner, "", options).expect("opens");
        let opened =
            runtime.block_on(Repository::open(store, PASSWORD, Arc::new(larder_testkit::entropy()))).expect("opens");
        let cached = opened.store().with_cache_of(RepositoryId([7; 16]));
        let mut engine = Self::of(runtime, opened.through(cached), memory.clone(), faults);
        // A pass that comes after another is a new job.
        engine.pass.ids = PassRuns::new(JobId([8; 16]));
        engine
    }

    fn of(runtime: tokio::runtime::Runtime, repository: Repository, memory: Memory, faults: Faults) -> Self {
        let io = IndexIo { repository, executor: runtime.handle().into() };
        let folder = tempfile::tempdir().expect("temporary folder");
        let threads = NonZeroUsize::new(2).expect("not 0");
        let ids = PassRuns::new(PASS);
        let pass = IndexPass::new(io.clone(), ids, threads, 1 << 20, folder.path().to_owned());
        Self { runtime, io, memory, faults, pass, folder }
    }

    /// The same with so much memory, and objects of such a size.
    pub fn with(memory: usize, object_target: ByteCount) -> Self {
        let mut engine = Self::new();
        (engine.pass.memory, engine.pass.object_target) = (memory, object_target);
        engine
    }

    /// A draft of an index with these runs.
    pub fn draft(&self, runs: &[RunRef]) -> Draft<'_> {
        let mut draft = Draft::empty(&self.pass);
        draft.add(runs.to_vec());
        draft
    }

    pub fn write(&self, table: Table, age: u64, target: ByteCount, records: &Oracle) -> Vec<RunRef> {
        let mut writer = RunWriter::new(&self.io, &self.pass.ids, table, age, target);
        writer.push_all(&mut InMemory::new(records)).expect("sorted");
        writer.finish().expect("stored")
    }

    /// A merge of all ages.
    pub fn scan(&self, runs: &[RunRef], range: RangeInclusive<u64>, tombstones: Tombstones) -> Merge<RunScan> {
        let mut ages: Vec<u64> = runs.iter().map(|run| run.age).collect();
        ages.sort_unstable();
        ages.dedup();
        let of_age = |age: &u64| {
            let mut runs: Vec<RunRef> = runs.iter().filter(|run| run.age == *age).copied().collect();
            runs.sort_by_key(|run| run.first);
            RunScan::new(&self.io, &runs, range.clone(), Readahead { span: 100 << 10, requests: 2 })
        };
        Merge::new(ages.iter().rev().map(of_age).collect(), tombstones)
    }

    pub fn reader(&self, runs: &[RunRef], options: LookupOptions) -> TableReader {
        TableReader::new(self.io.repository.clone(), runs, options)
    }

    /// Looks up sorted keys.
    pub fn lookup(&self, reader: &TableReader, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, IndexError> {
        let mut found = vec![None; keys.len()];
        let put = |place: usize, value: &[u8]| {
            assert!(found[place].replace(value.to_vec()).is_none(), "found once");
        };
        self.runtime.block_on(reader.lookup(keys, put))?;
        Ok(found)
    }
}
