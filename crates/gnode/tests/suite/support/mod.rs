//! A repository in memory, small trees with several versions, passes, and a store that lets something else happen in between.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_imports,
    reason = "every test uses its own part"
)]

mod between;
mod exact;
mod forging;
mod lifecycle;

pub use between::{Between, at_every_operation};
pub use exact::{thorough, twins};
pub use forging::{forge, forge_over};
pub use lifecycle::{Laid, arranging, every, pieces, thoroughly};

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::{ContainerId, ContainerKind, JobId, RepositoryId};
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::key_file::KeyFields;
use larder_format::lease::{Done, JobKind, Lease};
use larder_format::mark::Forgotten;
use larder_format::names;
use larder_gnode::forget::pin_of;
use larder_gnode::pass::{self, Listing, PassError, PassOptions, PassReport};
use larder_index::{Containers, IndexIo, IndexSnapshot, LookupOptions, TableView};
use larder_job::{Cancel, Clock, Ending, Identity, JobContext, LeaseKeeper, Machine, NoProgress};
use larder_lnode::{BackupError, BackupOptions, BackupReport, Input};
use larder_reader::{ReadError, VersionReader};
use larder_rewrite::chunk_copier::ChunkCopier;
use larder_source::{Roots, Walk, WalkOptions};
use larder_store::catalog::Version;
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::{FaultStore, Faults, Memory, data};
use object_store::ObjectStore;

pub const PASSWORD: &[u8] = b"a password for tests";

/// Moves by a second at every look.
#[derive(Debug)]
struct Ticking;

static NOW_MS: AtomicU64 = AtomicU64::new(4_000_000_000_000);

impl Clock for Ticking {
    fn now_ms(&self) -> u64 {
        NOW_MS.fetch_add(1000, Ordering::Relaxed)
    }
}

/// What the files of a version hold, by path.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything a test needs, with a repository in memory.
pub struct Scene {
    pub dir: Arc<tempfile::TempDir>,
    pub runtime: Arc<tokio::runtime::Runtime>,
    pub memory: Memory,
}

pub fn store_options() -> StoreOptions {
    // What is stopped for good is not asked for long.
    let soon = Duration::from_millis(1);
    StoreOptions { retry_deadline: soon, first_deadline: soon, ..StoreOptions::default() }
}

pub fn store_over(store: Arc<dyn ObjectStore>) -> Store {
    Store::from_object_store(store, "", &store_options()).unwrap()
}

impl Scene {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let memory = Memory::new();
        let config = Config {
            repository: RepositoryId([7; 16]),
            created_ms: 0,
            chunker: ChunkerParams::with_average(Algorithm::DEFAULT, 4096),
            page_cuts: true,
        };
        let fields = KeyFields::for_tests();
        let made =
            Repository::init(store_over(memory.store()), config, PASSWORD, fields, Arc::new(larder_testkit::entropy()));
        runtime.block_on(made).unwrap();
        Self { dir: Arc::new(tempfile::tempdir().unwrap()), runtime: Arc::new(runtime), memory }
    }

    /// The same with a copy of the repository.
    pub fn fork(&self) -> Self {
        Self { dir: self.dir.clone(), runtime: self.runtime.clone(), memory: self.memory.snapshot() }
    }

    /// The very same, for a thread of its own.
    pub fn same(&self) -> Self {
        Self { dir: self.dir.clone(), runtime: self.runtime.clone(), memory: self.memory.clone() }
    }

    /// The same scene at another store.
    pub fn repository(&self, store: Arc<dyn ObjectStore>) -> Repository {
        let opened = Repository::open(store_over(store), PASSWORD, Arc::new(larder_testkit::entropy()));
        self.runtime.handle().block_on(opened).unwrap()
    }

    pub fn context_at(&self, store: Arc<dyn ObjectStore>) -> JobContext {
        self.context_of(self.repository(store))
    }

    pub fn context_of(&self, repository: Repository) -> JobContext {
        JobContext {
            machine: Machine::for_tests(repository.config().repository),
            repository,
            executor: self.runtime.handle().into(),
            clock: Arc::new(Ticking),
            threads: NonZeroUsize::new(2).unwrap(),
            memory: 32 << 20,
            renew_every: larder_store::jobs::RENEW_EVERY,
            cancel: Cancel::default(),
            progress: Arc::new(NoProgress),
            identity: Identity { host: "host".to_owned(), program: "test".to_owned(), process: 1 },
        }
    }

    pub fn context(&self) -> JobContext {
        self.context_at(self.memory.store())
    }

    pub fn faulty(&self, memory: &Memory) -> (JobContext, Faults) {
        let (store, faults) = FaultStore::new(memory.store());
        (self.context_at(store), faults)
    }

    pub fn source(&self, series: &str) -> PathBuf {
        self.dir.path().join(series)
    }

    /// Writes an edition of the source of a series: some of it changes every time, some now and then, some never.
    pub fn write(&self, series: &str, edition: u64) {
        let root = self.source(series);
        std::fs::create_dir_all(root.join("folder")).unwrap();
        let salt = series.bytes().map(u64::from).sum::<u64>();
        std::fs::write(root.join("always"), data::random(salt * 1000 + edition, 60_000)).unwrap();
        std::fs::write(root.join("sometimes"), data::random(salt * 1000 + 500 + edition / 3, 80_000)).unwrap();
        std::fs::write(root.join("folder/never"), data::random(salt, 120_000)).unwrap();
        std::fs::write(root.join("shared"), data::random(7, 50_000)).unwrap();
        std::fs::write(root.join("folder/edition"), edition.to_string()).unwrap();
    }

    pub fn backup(&self, context: &JobContext, series: &str) -> Result<BackupReport, BackupError> {
        backup(context, &self.source(series), series)
    }

    /// A new edition and a version of it.
    pub fn version(&self, series: &str, edition: u64) -> JobId {
        self.write(series, edition);
        self.backup(&self.context(), series).unwrap().version.unwrap().id
    }

    pub fn pass(&self) -> Result<PassReport, PassError> {
        self.runtime.block_on(pass::run(&self.context(), &pass_options()))
    }

    pub fn pass_with(&self, options: &PassOptions) -> Result<PassReport, PassError> {
        self.runtime.block_on(pass::run(&self.context(), options))
    }

    pub fn versions(&self) -> Vec<Version> {
        versions(&self.context())
    }

    /// The same version by its newest generation that counts.
    pub fn now(&self, version: &Version) -> Version {
        self.versions().into_iter().find(|newest| newest.id() == version.id()).unwrap()
    }

    /// That there is nothing but what visible versions need, and the registers of those that were rewritten.
    #[track_caller]
    pub fn is_clean_but_registers(&self, at: &str) {
        let versions: BTreeMap<JobId, u32> =
            self.versions().iter().map(|version| (version.id(), version.generation)).collect();
        let superseded = |name: &String| {
            names::parse_version(name).is_some_and(|(_, job, generation)| {
                generation == 0 && versions.get(&job).is_some_and(|newest| *newest > 0)
            })
        };
        let garbage: Vec<_> = self.garbage().into_iter().filter(|name| !superseded(name)).collect();
        assert!(garbage.is_empty(), "{at}: {garbage:?}");
    }

    pub fn forget(&self, id: JobId) {
        let repository = self.repository(self.memory.store());
        self.runtime.block_on(forget(&repository, id));
    }

    /// Jobs that failed did not come to say that they ended.
    pub fn as_if_killed(&self) {
        for name in self.runtime.block_on(self.memory.paths()) {
            if name.starts_with("jobs/") && name.ends_with("/1") {
                self.runtime.block_on(self.memory.remove(&name));
            }
        }
    }

    /// What each visible version holds.
    pub fn contents(&self) -> BTreeMap<JobId, Contents> {
        contents(&self.context())
    }

    /// That there is nothing that no visible version needs, and everything that they need.
    #[track_caller]
    pub fn is_clean(&self, at: &str) {
        let garbage = self.garbage();
        assert_eq!(garbage, BTreeSet::new(), "{at}");
    }

    /// What the newest index says of containers, by their numbers.
    pub fn facts(&self) -> BTreeMap<u32, ContainerFacts> {
        let repository = self.repository(self.memory.store());
        let newest = self.runtime.block_on(IndexSnapshot::newest(&repository)).unwrap().snapshot;
        let io = IndexIo { repository, executor: self.runtime.handle().into() };
        let table: TableView<Containers> = TableView::new(io, &newest.manifest.runs, LookupOptions::default());
        let records = table.scan(0..=u64::MAX, 1 << 20).map(|record| record.unwrap());
        records.map(|(number, facts)| (number, facts.unwrap())).collect()
    }

    /// Containers that were retired, by the newest index, and where their chunks went.
    pub fn reclaimed(&self) -> BTreeMap<ContainerId, Vec<ContainerId>> {
        let facts = self.facts();
        let gone = facts.values().filter(|facts| facts.state == ContainerState::Gone);
        gone.map(|gone| (gone.id, gone.forwards.iter().map(|forward| facts[forward].id).collect())).collect()
    }

    /// Writes files of random bytes as the source of a series, and nothing else: by name, seed and length.
    pub fn fill(&self, series: &str, files: &[(&str, u64, usize)]) {
        let root = self.source(series);
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        for (name, seed, len) in files {
            std::fs::write(root.join(name), data::random(*seed, *len)).unwrap();
        }
    }

    /// A version of these files that knows of nothing that is there.
    pub fn alone(&self, series: &str, files: &[(&str, u64, usize)]) -> JobId {
        self.fill(series, files);
        backup_alone(&self.context(), &self.source(series), series).version.unwrap().id
    }

    /// Objects without use when no job runs.
    pub fn garbage(&self) -> BTreeSet<String> {
        let context = self.context();
        let mut useful = BTreeSet::from([names::CONFIG.to_owned()]);
        let reclaimed = self.reclaimed();
        for version in versions(&context) {
            let manifest = self.runtime.block_on(context.repository.manifest(&version)).unwrap();
            for usage in &manifest.containers {
                match reclaimed.get(&usage.container) {
                    Some(forwards) => useful.extend(forwards.iter().map(|id| names::container(*id))),
                    None => drop(useful.insert(names::container(usage.container))),
                }
            }
            useful.insert(names::version(version.series, version.id(), version.generation));
            useful.insert(names::lease_done(version.id()));
        }
        let objects = self.runtime.block_on(self.memory.contents());
        let numbers: BTreeSet<u64> = objects.keys().filter_map(|name| names::parse_index(name)).collect();
        useful.extend(numbers.iter().rev().take(2).map(|number| names::index(*number)));
        useful.extend(numbers.iter().rev().take(2).map(|number| names::indexed(*number)));
        // Runs of the newest index and of the one before it.
        for number in numbers.iter().rev().take(2) {
            let bytes = &objects[&names::index(*number)];
            let keys = context.repository.keys();
            let index = larder_format::index_manifest::IndexManifest::decode(keys, *number, bytes).unwrap();
            useful.extend(index.runs.iter().map(|run| names::run(run.id)));
        }
        for name in &useful {
            let may_be_gone = name.starts_with("jobs/") || name.starts_with(names::INDEXED);
            assert!(objects.contains_key(name) || may_be_gone, "{name} is missing");
        }
        objects.into_keys().filter(|name| !useful.contains(name) && !name.starts_with(names::KEYS)).collect()
    }
}

/// As everybody has them, but a pass lists no more than it must, however small the repository is.
pub fn pass_options() -> PassOptions {
    PassOptions { listing: Listing::New, min_age: Duration::ZERO, ..PassOptions::default() }
}

pub async fn forget(repository: &Repository, id: JobId) {
    let catalog = repository.catalog().await.unwrap();
    let Some(version) = catalog.versions.iter().find(|version| version.id() == id) else { return };
    let mark = Forgotten { time_ms: 0, host: String::new(), reason: "test".to_owned() };
    repository.forget(pin_of(version), &mark).await.unwrap();
}

pub fn versions(context: &JobContext) -> Vec<Version> {
    context.executor.block_on(context.repository.catalog()).unwrap().versions
}

pub fn contents(context: &JobContext) -> BTreeMap<JobId, Contents> {
    versions(context).iter().map(|version| (version.id(), contents_of(context, version))).collect()
}

/// Reads a version from the store alone.
pub fn contents_of(context: &JobContext, version: &Version) -> Contents {
    let reader = VersionReader::open(context, version).unwrap();
    let mut contents = Contents::new();
    reader
        .visit_contents::<larder_store::RepositoryError>(b"", |entry, content| {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).expect("what is retained can be read");
            contents.insert(entry.path.clone(), bytes);
            Ok(())
        })
        .unwrap();
    contents
}

/// Reads a version as a job that announces itself.
pub fn read_announced(context: &JobContext, version: &Version) -> Result<Contents, ReadError> {
    let (reader, reading) = VersionReader::announce(context, version)?;
    let mut contents = Contents::new();
    reader.visit_contents::<larder_store::RepositoryError>(b"", |entry, content| {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(content, &mut bytes).unwrap();
        contents.insert(entry.path.clone(), bytes);
        Ok(())
    })?;
    reading.end();
    Ok(contents)
}

pub fn backup(context: &JobContext, path: &Path, series: &str) -> Result<BackupReport, BackupError> {
    backup_with(context, path, series, |_| ())
}

/// A version that knows of nothing that is there: it has no base and looks for no similar stream.
pub fn backup_alone(context: &JobContext, path: &Path, series: &str) -> BackupReport {
    backup_with(context, path, series, |options| {
        options.force = true;
        options.find_similar = false;
    })
    .unwrap()
}

pub fn backup_with(
    context: &JobContext,
    path: &Path,
    series: &str,
    change: impl FnOnce(&mut BackupOptions),
) -> Result<BackupReport, BackupError> {
    use std::os::unix::ffi::OsStrExt;
    let roots = Roots::new([path.as_os_str().as_bytes()], b"/").unwrap();
    let mut options = BackupOptions {
        host: "host".to_owned(),
        user: "user".to_owned(),
        paths: vec![path.as_os_str().as_bytes().to_vec()],
        program: "test".to_owned(),
        ..BackupOptions::new(series)
    };
    change(&mut options);
    larder_lnode::backup(context, Input::Tree(Walk::new(roots, WalkOptions::default())), &options)
}

/// Lays a version out again with a container of its own for everything.
pub fn relay_all(context: &JobContext, version: &Version) {
    rewrite(context, version, |container| container.kind == ContainerKind::Data);
}

/// Lays a version out again without these containers.
pub fn rewrite(context: &JobContext, version: &Version, leaves: impl Fn(&ContainerId) -> bool) {
    let manifest = VersionReader::open(context, version).unwrap().manifest().clone();
    let pin = pin_of(version);
    let generation = context.executor.block_on(context.repository.next_generation(pin)).unwrap();
    let lease = Lease {
        pins: vec![pin],
        generation: Some(generation),
        ..context.lease(JobKind::Task, &version.summary.series)
    };
    let job = JobId::new(lease.written_ms, data::random(generation.into(), 10).try_into().unwrap());
    let keeper = LeaseKeeper::open(context, job, lease).unwrap();
    let mut copier = ChunkCopier::new(context, job, larder_format::compress::Compression::DEFAULT).unwrap();
    let rewritten = copier.rewrite(&manifest, leaves).unwrap();
    let written = copier.finish().unwrap();
    let rewritten = rewritten.manifest(&manifest, &written, [3; 16]).unwrap();
    context
        .executor
        .block_on(context.repository.commit_generation(version.series, &rewritten, generation, version.generation))
        .unwrap();
    keeper.end(Ending::Closed(Done::committed_generation(pin, generation)));
}
