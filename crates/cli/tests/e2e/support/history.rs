//! Repositories with many snapshots of small trees, made in memory by the same code as the binary's: a process for each would take longer
//! than the tests.

use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::RepositoryId;
use larder_format::key_file::{KdfCost, KeyFields};
use larder_gnode::maintenance::{self, MaintenanceOptions};
use larder_job::{Cancel, Clock, Identity, JobContext, Machine, NoProgress};
use larder_lnode::{BackupOptions, Input};
use larder_source::{Roots, Walk, WalkOptions};
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::{Memory, data};

use super::PASSWORD;

/// One hour between two looks, from 2025-09-01 on.
#[derive(Debug)]
struct Hours(AtomicU64);

impl Clock for Hours {
    fn now_ms(&self) -> u64 {
        1_756_684_800_000 + self.0.fetch_add(1, Ordering::Relaxed) * 3_600_000
    }
}

/// A repository that grows.
pub(crate) struct History {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    memory: Memory,
    clock: Arc<Hours>,
    versions: u64,
}

impl History {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads start");
        let memory = Memory::new();
        let config = Config {
            repository: RepositoryId([7; 16]),
            created_ms: 0,
            chunker: ChunkerParams::with_average(Algorithm::DEFAULT, 4096),
            page_cuts: true,
        };
        let fields = KeyFields { cost: Some(KdfCost::TEST), ..KeyFields::for_tests() };
        let made =
            Repository::init(store(&memory), config, PASSWORD.as_bytes(), fields, Arc::new(larder_testkit::entropy()));
        runtime.block_on(made).expect("a repository");
        let dir = tempfile::tempdir().expect("a folder");
        Self { dir, runtime, memory, clock: Arc::new(Hours(AtomicU64::new(0))), versions: 0 }
    }

    fn context(&self, memory: &Memory) -> JobContext {
        let opened = Repository::open(store(memory), PASSWORD.as_bytes(), Arc::new(larder_testkit::entropy()));
        let repository = self.runtime.block_on(opened).expect("it opens");
        JobContext {
            machine: Machine::for_tests(repository.config().repository),
            repository,
            executor: self.runtime.handle().into(),
            clock: self.clock.clone(),
            threads: NonZeroUsize::MIN,
            memory: 32 << 20,
            renew_every: larder_store::jobs::RENEW_EVERY,
            cancel: Cancel::default(),
            progress: Arc::new(NoProgress),
            identity: Identity { host: "testhost".to_owned(), program: "test".to_owned(), process: 1 },
        }
    }

    /// The folder that is backed up.
    pub(crate) fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    /// Backs up edition after edition until there are this many snapshots: every fourth is of the series `other`, the rest of `main`.
    pub(crate) fn grow_to(&mut self, versions: u64) {
        let context = self.context(&self.memory);
        while self.versions < versions {
            self.versions += 1;
            let edition = self.versions;
            let series = if edition.is_multiple_of(4) { "other" } else { "main" };
            let root = self.source();
            std::fs::create_dir_all(root.join("folder")).expect("made");
            std::fs::write(root.join("always"), data::random(1000 + edition, 20_000)).expect("written");
            std::fs::write(root.join("sometimes"), data::random(5000 + edition / 5, 30_000)).expect("written");
            std::fs::write(root.join("folder/never"), data::random(1, 40_000)).expect("written");
            std::fs::write(root.join("folder/edition"), edition.to_string()).expect("written");
            let roots = Roots::new([root.as_os_str().as_bytes()], b"/").expect("one root");
            let options = BackupOptions {
                host: "testhost".to_owned(),
                user: "user".to_owned(),
                paths: vec![root.as_os_str().as_bytes().to_vec()],
                program: "test".to_owned(),
                ..BackupOptions::new(series)
            };
            let input = Input::Tree(Walk::new(roots, WalkOptions::default()));
            larder_lnode::backup(&context, input, &options).expect("a backup");
        }
    }

    /// Writes the repository to a folder as it is after all maintenance.
    pub(crate) fn write_maintained(&self, folder: &Path) {
        let memory = self.memory.snapshot();
        let context = self.context(&memory);
        maintenance::run(&context, &MaintenanceOptions::default(), &|_, _| ()).expect("maintenance");
        self.write_out(&memory, folder);
    }

    /// Writes the repository to a folder as backups left it.
    pub(crate) fn write(&self, folder: &Path) {
        self.write_out(&self.memory, folder);
    }

    fn write_out(&self, memory: &Memory, folder: &Path) {
        for (name, bytes) in self.runtime.block_on(memory.contents()) {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, bytes).expect("written");
        }
    }
}

fn store(memory: &Memory) -> Store {
    Store::from_object_store(memory.store(), "", &StoreOptions::default()).expect("a store")
}
