//! The real L-node and G-node on a repository in memory: backups, forgetting, `larder optimize`, restores, as the crates make them.
//!
//! A [`Node`] owns one repository. What the figures need to know of it is read from the store itself ([`Holdings`]): tables of
//! containers, the recipe of a version. Contents are not compressed, so that bytes are those of chunks and containers are as large as
//! those of the rivals. Randomness and clock are seeded: every node has the same keys, and so the same cuts and names.

mod crowd;
mod holdings;

use std::io::Cursor;
use std::num::NonZeroUsize;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, fs, path};

use anyhow::Context as _;
use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::ChunkRef;
use larder_format::compress::Compression;
use larder_format::config::Config;
use larder_format::ids::RepositoryId;
use larder_format::key_file::{KdfCost, KeyFields};
use larder_format::mark::Forgotten;
use larder_format::recipe::decode_node;
use larder_format::segment;
use larder_gnode::compaction::{CompactionOptions, compact, plans};
use larder_gnode::forget::pin_of;
use larder_gnode::giving_up::{Exact, GiveUpOptions, Unused};
use larder_gnode::pass::{self, PassOptions, Surroundings};
use larder_index::IndexSnapshot;
use larder_lnode::{
    BackupOptions, Cancel, Clock, Context, FetchReport, Input, NoProgress, RestoreOptions, backup, restore,
};
use larder_source::target::{Target, TargetOptions};
use larder_store::catalog::Version;
use larder_store::container_reader::ChunkReader;
use larder_store::repository::Entropy;
use larder_store::{Repository, RepositoryError, Store, StoreOptions};
use object_store::memory::InMemory;

pub(crate) use crowd::CHUNKS_EACH;
pub(crate) use holdings::{Holdings, Writer};

use crate::Offline;
use crate::real::PASSWORD;
use crate::rng::Rng;

/// The only file of every version.
const PATH: &str = "tables";
/// Memory of jobs, as the program has it.
const MEMORY: usize = 96 << 20;
/// What readers of recipes keep at hand.
const META_MEMORY: NonZeroUsize = NonZeroUsize::new(32 << 20).unwrap();
const THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// Versions in a row before chunks are merged, as the program has it.
const MERGE_AFTER: Option<NonZeroUsize> = NonZeroUsize::new(5);

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
pub(crate) struct Cost {
    pub(crate) requests: u64,
    /// Bytes written.
    pub(crate) written: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.written += other.written;
    }
}

/// See the module header.
pub(crate) struct Node {
    // Before the runtime, so that it goes first.
    context: Context,
    runtime: tokio::runtime::Runtime,
}

impl Node {
    /// A new repository in memory.
    pub(crate) fn in_memory(algorithm: Algorithm, average: u32, seed: u64) -> anyhow::Result<Self> {
        let store = Store::from_object_store(Arc::new(InMemory::new()), "", &StoreOptions::default())?;
        Self::over(store, algorithm, average, seed)
    }

    /// A new repository in a store. Its password is the real programs', from which a key is derived with next to no work.
    pub(crate) fn over(store: Store, algorithm: Algorithm, average: u32, seed: u64) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let config = Config {
            repository: RepositoryId([9; 16]),
            created_ms: 0,
            chunker: ChunkerParams::with_average(algorithm, average),
            page_cuts: true,
        };
        let fields =
            KeyFields { cost: KdfCost::TEST, salt: [0; 32], user: String::new(), host: String::new(), created_ms: 0 };
        let entropy = Arc::new(Repeatable(Mutex::new(Rng::new(seed))));
        let repository = runtime.block_on(Repository::init(store, config, PASSWORD.as_bytes(), fields, entropy))?;
        let context = Context {
            repository,
            runtime: runtime.handle().into(),
            clock: Arc::new(Ticking(AtomicU64::new(1_600_000_000_000))),
            threads: THREADS,
            memory: MEMORY,
            renew_every: larder_store::jobs::RENEW_EVERY,
            cancel: Cancel::default(),
            progress: Arc::new(NoProgress),
            host: "bench".to_owned(),
        };
        Ok(Self { context, runtime })
    }

    /// A version of the stream, next in a series.
    pub(crate) fn back_up(&self, series: &str, stream: &Arc<[u8]>, find_similar: bool) -> anyhow::Result<()> {
        let options = BackupOptions {
            compression: Compression::Off,
            merge_after: MERGE_AFTER,
            find_similar,
            ..BackupOptions::new(series)
        };
        let reader = Box::new(Cursor::new(stream.clone()));
        let input = Input::Stream { path: PATH.into(), reader, size: Some(stream.len() as u64) };
        backup(&self.context, input, &options)?;
        Ok(())
    }

    /// The first half of `larder optimize`: newest versions are laid out anew.
    pub(crate) fn compact(&self, offline: Offline) -> anyhow::Result<Cost> {
        let mut options = CompactionOptions { compression: Compression::Off, ..CompactionOptions::default() };
        options.sparse_percent = offline.sparse_percent.unwrap_or(options.sparse_percent);
        options.budget_percent = offline.budget_percent.unwrap_or(options.budget_percent);
        self.measured(|| {
            loop {
                let found = plans(&self.context, &options)?;
                for plan in &found.plans {
                    compact(&self.context, plan, &options)?;
                }
                if found.plans.is_empty() || !found.has_more {
                    return Ok(());
                }
            }
        })
    }

    /// The second half: a pass with all its tasks.
    pub(crate) fn pass(&self, offline: Offline) -> anyhow::Result<Cost> {
        let mut give_up = GiveUpOptions { compression: Compression::Off, ..GiveUpOptions::default() };
        give_up.unused = offline.max_unused.map_or(give_up.unused, Unused::OfRepository);
        give_up.exact = if offline.exact { Exact::Always } else { give_up.exact };
        let options = PassOptions { give_up: Some(give_up), ..PassOptions::default() };
        let clock = self.context.clock.clone();
        let surroundings = Surroundings {
            repository: self.context.repository.clone(),
            now_ms: Arc::new(move || clock.now_ms()),
            stop: Arc::new(|| false),
            host: "bench".to_owned(),
            program: "bench".to_owned(),
            process: 1,
            executor: pass::Executor::Threads,
        };
        self.measured(|| {
            self.runtime.block_on(pass::run(&surroundings, &options))?;
            Ok(())
        })
    }

    fn measured(&self, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Cost> {
        let store = self.context.repository.store();
        let start = store.stats();
        work()?;
        let end = store.stats();
        Ok(Cost { requests: end.requests() - start.requests(), written: end.bytes_up - start.bytes_up })
    }

    /// Forgets all versions but the newest ones.
    pub(crate) fn keep_newest(&self, count: usize) -> anyhow::Result<()> {
        let versions = self.versions()?;
        for version in &versions[..versions.len().saturating_sub(count)] {
            self.forget(version)?;
        }
        Ok(())
    }

    /// Marks a version.
    pub(crate) fn forget(&self, version: &Version) -> anyhow::Result<()> {
        let mark = Forgotten { time_ms: 0, host: String::new(), reason: "bench".to_owned() };
        Ok(self.runtime.block_on(self.context.repository.forget(pin_of(version), &mark))?)
    }

    /// Different chunks that the index has, objects it consists of, and their bytes.
    pub(crate) fn index(&self) -> anyhow::Result<(u64, usize, u64)> {
        let index = self.runtime.block_on(IndexSnapshot::newest(&self.context.repository))?.base()?;
        let runs = &index.manifest.runs;
        Ok((index.manifest.head.statistics.chunks, runs.len(), runs.iter().map(|run| run.object_bytes).sum()))
    }

    /// The versions, oldest first.
    pub(crate) fn versions(&self) -> anyhow::Result<Vec<Version>> {
        let mut versions = self.runtime.block_on(self.context.repository.catalog())?.versions;
        versions.sort_by_key(Version::id);
        Ok(versions)
    }

    /// The newest version.
    pub(crate) fn newest(&self) -> anyhow::Result<Version> {
        self.versions()?.pop().context("no version")
    }

    /// The stream of a version, chunk by chunk, as its recipe has it.
    pub(crate) fn recipe(&self, version: &Version) -> anyhow::Result<Vec<ChunkRef>> {
        let repository = &self.context.repository;
        self.runtime.block_on(async {
            let manifest = repository.manifest(version).await?;
            let reader = ChunkReader::new(repository.clone(), META_MEMORY, META_MEMORY);
            let mut chunks = Vec::new();
            for node in &manifest.data.nodes {
                for segment in decode_node(&reader.read(&node.chunk).await?)? {
                    let segment = segment::decode(&reader.read(&segment.chunk).await?)?;
                    chunks.extend(segment.records.iter().map(|record| record.chunk));
                }
            }
            Ok(chunks)
        })
    }

    /// Restores a version into a folder, compares it, and says what was fetched.
    pub(crate) fn restore(&self, version: &Version, expected: &[u8]) -> anyhow::Result<FetchReport> {
        let memory = path::Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        let folder = tempfile::tempdir_in(folder)?;
        let target = Target::open(folder.path(), TargetOptions::default())?;
        let report = restore(&self.context, version, &target, &RestoreOptions::default())?;
        let got = fs::read(folder.path().join(PATH))?;
        anyhow::ensure!(got == expected, "version {} came back different", version.id());
        Ok(report.fetched)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::sdb::{Duplication, SDb, Spec};

    /// The figures stand on this: nothing that a version names is missing, little is there twice, and what is forgotten goes.
    #[test]
    fn what_is_held_is_what_versions_name() -> anyhow::Result<()> {
        let duplication = Duplication::Fixed(0.8);
        let mut sdb = SDb::new(Spec { files: 1, file_bytes: 3 << 20, duplication, self_reference: 0.2, seed: 5 });
        let node = Node::in_memory(Algorithm::MinCdc, 4096, 1)?;
        let (mut holdings, mut named, mut streams) = (Holdings::default(), HashMap::new(), Vec::new());
        for version in 0..3 {
            let stream: Arc<[u8]> = sdb.files().collect::<Vec<_>>().concat().into();
            node.back_up("a", &stream, true)?;
            holdings.look(&node, Writer::Version(version))?;
            let recipe = node.recipe(&node.newest()?)?;
            assert_eq!(recipe.iter().map(|chunk| chunk.size as usize).sum::<usize>(), stream.len());
            named.extend(recipe.iter().map(|chunk| (chunk.fingerprint, u64::from(chunk.size))));
            let catalogue = holdings.catalogue(&recipe);
            assert!(recipe.iter().all(|chunk| catalogue.contains(chunk)), "a chunk is not where its recipe says");
            streams.push(stream);
            sdb.advance();
        }
        let exact: u64 = named.values().sum();
        assert!((exact..exact * 11 / 10).contains(&holdings.bytes()), "{} held of {exact}", holdings.bytes());
        let first = holdings.bytes_since(0);
        assert!(first > 2 << 20 && first < holdings.bytes());

        let mut rng = Rng::new(7);
        let other: Arc<[u8]> = (0..1 << 20).map(|_| rng.next_u64() as u8).collect();
        node.back_up("b", &other, true)?;
        let before = holdings.bytes();
        holdings.look(&node, Writer::Version(3))?;
        assert_eq!(holdings.bytes(), before + other.len() as u64);
        node.forget(&node.newest()?)?;
        assert!(node.pass(Offline::default())?.requests > 0);
        holdings.look(&node, Writer::Pass)?;
        assert_eq!(holdings.bytes(), before);

        for (version, stream) in node.versions()?.iter().zip(&streams) {
            assert!(node.restore(version, stream)?.containers > 0);
        }
        node.keep_newest(1)?;
        assert_eq!(node.versions()?.len(), 1);
        Ok(())
    }
}
