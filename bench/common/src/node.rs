//! The real L-node and G-node on a repository of their own: backups, forgetting, passes, restores, as the crates make them.
//!
//! Contents are not compressed, so that bytes are those of chunks and containers are as large as those of the rivals. Randomness and
//! clock are seeded: every node has the same keys, and so the same cuts and names.

use std::io::Cursor;
use std::num::NonZeroUsize;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, path};

use anyhow::Context as _;
use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::ChunkRef;
use larder_format::compress::Compression;
use larder_format::config::Config;
use larder_format::ids::RepositoryId;
use larder_format::key_file::KeyFields;
use larder_format::mark::Forgotten;
use larder_format::recipe::decode_node;
use larder_gnode::defragment::{DefragmentOptions, compact, plans};
use larder_gnode::forget::pin_of;
use larder_gnode::pass::{self, PassOptions, PassReport};
use larder_job::{Cancel, Clock, Identity, JobContext, Machine, NoProgress};
use larder_lnode::{BackupOptions, Input, RestoreOptions, backup, restore};
use larder_reader::FetchReport;
use larder_source::target::{Target, TargetOptions};
use larder_store::catalog::Version;
use larder_store::chunk_reader::ChunkReader;
use larder_store::repository::Entropy;
use larder_store::{Repository, RepositoryError, Store, StoreOptions};
use object_store::memory::InMemory;

use crate::rng::Rng;

/// Password of the repository. It is no secret.
pub const PASSWORD: &str = "measuring";
/// The only file of every version.
const PATH: &str = "tables";
/// Memory of jobs, as the program has it.
const MEMORY: usize = 96 << 20;
/// What readers of recipes keep at hand.
const META_MEMORY: NonZeroUsize = NonZeroUsize::new(32 << 20).unwrap();
const THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// A second later at every look.
#[derive(Debug)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1000, Ordering::Relaxed)
    }
}

/// The same "random" bytes in every run.
struct Repeatable(Mutex<Rng>);

impl Entropy for Repeatable {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RepositoryError> {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_le_bytes()[..word.len()]);
        }
        Ok(())
    }
}

/// What a task asked of the store.
#[derive(Debug, Default, Clone, Copy)]
pub struct Cost {
    /// Requests of all kinds.
    pub requests: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes read.
    pub read: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.written += other.written;
        self.read += other.read;
    }
}

/// See the module header.
pub struct Node {
    // Before the runtime, so that it goes first.
    /// What jobs are given.
    pub context: JobContext,
    /// What they run on.
    pub runtime: tokio::runtime::Runtime,
}

impl Node {
    /// A new repository in memory.
    ///
    /// # Errors
    /// When a node or the store fails.
    pub fn in_memory(algorithm: Algorithm, average: u32, seed: u64) -> anyhow::Result<Self> {
        let store = Store::from_object_store(Arc::new(InMemory::new()), "", &StoreOptions::default())?;
        Self::over(store, algorithm, average, seed)
    }

    /// A new repository in a store. Its password is the real programs', from which a key is derived with next to no work.
    ///
    /// # Errors
    /// When a node or the store fails.
    pub fn over(store: Store, algorithm: Algorithm, average: u32, seed: u64) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let config = Config {
            repository: RepositoryId([9; 16]),
            created_ms: 0,
            chunker: ChunkerParams::with_average(algorithm, average),
            page_cuts: true,
        };
        let fields = KeyFields::for_tests();
        let entropy = Arc::new(Repeatable(Mutex::new(Rng::new(seed))));
        let repository = runtime.block_on(Repository::init(store, config, PASSWORD.as_bytes(), fields, entropy))?;
        let context = JobContext {
            machine: Machine::for_tests(repository.config().repository),
            repository,
            executor: runtime.handle().into(),
            clock: Arc::new(Ticking(AtomicU64::new(1_600_000_000_000))),
            threads: THREADS,
            memory: MEMORY,
            renew_every: larder_store::jobs::RENEW_EVERY,
            cancel: Cancel::default(),
            progress: Arc::new(NoProgress),
            identity: Identity { host: "bench".to_owned(), program: "bench".to_owned(), process: 1 },
        };
        Ok(Self { context, runtime })
    }

    /// A version of the stream, next in a series. Nothing is compressed; `change` sees the options before they are used.
    ///
    /// # Errors
    /// When the node fails.
    pub fn back_up(
        &self,
        series: &str,
        stream: &Arc<[u8]>,
        change: impl FnOnce(&mut BackupOptions),
    ) -> anyhow::Result<()> {
        let mut options = BackupOptions { compression: Compression::Off, ..BackupOptions::new(series) };
        change(&mut options);
        let reader = Box::new(Cursor::new(stream.clone()));
        let input = Input::Stream { path: PATH.into(), reader, size: Some(stream.len() as u64) };
        backup(&self.context, input, &options)?;
        Ok(())
    }

    /// The first half of `larder optimize`: newest versions are rewritten.
    ///
    /// # Errors
    /// When the nodes fail.
    pub fn compact(&self, options: &DefragmentOptions) -> anyhow::Result<Cost> {
        let (_, cost) = self.measured(|| {
            loop {
                let found = plans(&self.context, options)?;
                for plan in &found.plans {
                    compact(&self.context, plan, options)?;
                }
                if found.plans.is_empty() || !found.has_more {
                    return Ok(());
                }
            }
        })?;
        Ok(cost)
    }

    /// The second half: a pass. Says also what it did.
    ///
    /// # Errors
    /// When the nodes fail.
    pub fn pass(&self, options: &PassOptions) -> anyhow::Result<(PassReport, Cost)> {
        // Nobody else works on the repository: what a pass decides to delete need not wait for its age.
        let options = PassOptions { min_age: Duration::ZERO, ..options.clone() };
        self.measured(|| Ok(self.runtime.block_on(pass::run(&self.context, &options))?))
    }

    fn measured<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Cost)> {
        let store = self.context.repository.store();
        let start = store.stats();
        let done = work()?;
        let end = store.stats();
        let requests = end.requests() - start.requests();
        Ok((done, Cost { requests, written: end.bytes_up - start.bytes_up, read: end.bytes_down - start.bytes_down }))
    }

    /// Forgets all versions but the newest ones.
    ///
    /// # Errors
    /// When a node or the store fails.
    pub fn keep_newest(&self, count: usize) -> anyhow::Result<()> {
        let versions = self.versions()?;
        for version in &versions[..versions.len().saturating_sub(count)] {
            self.forget(version)?;
        }
        Ok(())
    }

    /// Marks a version.
    ///
    /// # Errors
    /// When a node or the store fails.
    pub fn forget(&self, version: &Version) -> anyhow::Result<()> {
        let mark = Forgotten { time_ms: 0, host: String::new(), reason: "bench".to_owned() };
        Ok(self.runtime.block_on(self.context.repository.forget(pin_of(version), &mark))?)
    }

    /// The versions, oldest first.
    ///
    /// # Errors
    /// When a node or the store fails.
    pub fn versions(&self) -> anyhow::Result<Vec<Version>> {
        let mut versions = self.runtime.block_on(self.context.repository.catalog())?.versions;
        versions.sort_by_key(Version::id);
        Ok(versions)
    }

    /// The newest version.
    ///
    /// # Errors
    /// When a node or the store fails.
    pub fn newest(&self) -> anyhow::Result<Version> {
        self.versions()?.pop().context("no version")
    }

    /// The stream of a version, chunk by chunk, as its recipe has it.
    ///
    /// # Errors
    /// When a node or the store fails.
    pub fn recipe(&self, version: &Version) -> anyhow::Result<Vec<ChunkRef>> {
        let repository = &self.context.repository;
        self.runtime.block_on(async {
            let manifest = repository.manifest(version).await?;
            let reader = ChunkReader::new(repository.clone(), META_MEMORY, META_MEMORY);
            let mut chunks = Vec::new();
            for node in &manifest.data.nodes {
                for segment in decode_node(&reader.read(&node.chunk).await?)? {
                    let mut chain = Vec::new();
                    for chunk in segment.chain() {
                        chain.push(reader.read(chunk).await?);
                    }
                    let segment = segment.decode(&chain).map_err(|(_, error)| error)?;
                    chunks.extend(segment.records.iter().map(|record| record.chunk));
                }
            }
            Ok(chunks)
        })
    }

    /// Restores a version into a folder, compares it, and says what was fetched.
    ///
    /// # Errors
    /// When a node or the store fails.
    pub fn restore(&self, version: &Version, expected: &[u8]) -> anyhow::Result<FetchReport> {
        Ok(self.restore_timed(version, expected)?.0)
    }

    /// The same, and how long restoring took, without the comparison.
    ///
    /// # Errors
    /// When a node or the store fails.
    pub fn restore_timed(&self, version: &Version, expected: &[u8]) -> anyhow::Result<(FetchReport, Duration)> {
        let memory = path::Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        let folder = tempfile::tempdir_in(folder)?;
        let target = Target::open(folder.path(), TargetOptions::default())?;
        let began = Instant::now();
        let report = restore(&self.context, version, &target, &RestoreOptions::default())?;
        let took = began.elapsed();
        let got = fs::read(folder.path().join(PATH))?;
        anyhow::ensure!(got == expected, "version {} came back different", version.id());
        Ok((report.fetched, took))
    }
}
