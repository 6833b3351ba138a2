//! A repository, a context and short calls for tests of the pipelines.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "every test uses its own part"
)]

pub mod arranging;
pub mod scene;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::RepositoryId;
use larder_format::key_file::KeyFields;
use larder_job::{Cancel, Clock, Identity, JobContext, Machine, NoProgress, Problem, Progress};
use larder_lnode::{BackupError, BackupOptions, BackupReport, Input, RestoreError, RestoreOptions, RestoreReport};
use larder_source::target::{Target, TargetOptions};
use larder_source::{Roots, Walk, WalkOptions};
use larder_store::catalog::Version;
use larder_store::{Repository, Store, StoreOptions};

pub const PASSWORD: &[u8] = b"a password for tests";

/// A clock that moves by a second at every look and is shared by all contexts of a test program, so that versions have
/// different times in the order in which they were made.
#[derive(Debug)]
pub struct Ticking;

/// Far in the future: files written by the test are older than any base.
static NOW_MS: AtomicU64 = AtomicU64::new(4_000_000_000_000);

impl Clock for Ticking {
    fn now_ms(&self) -> u64 {
        NOW_MS.fetch_add(1000, Ordering::Relaxed)
    }
}

/// A folder with an empty `source` and a repository, for restores into it. They wait for its file system: in memory that takes no
/// time, whatever else the disk has to do.
pub fn restore_scene() -> (tempfile::TempDir, JobContext, tokio::runtime::Runtime) {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let runtime = runtime();
    let context = context(&runtime, init(&runtime, local(&dir.path().join("repository"))));
    std::fs::create_dir(dir.path().join("source")).unwrap();
    (dir, context, runtime)
}

pub fn clock() -> Arc<dyn Clock> {
    Arc::new(Ticking)
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub fn config() -> Config {
    Config {
        repository: RepositoryId([7; 16]),
        created_ms: 0,
        chunker: ChunkerParams::with_average(Algorithm::DEFAULT, 4096),
        page_cuts: true,
    }
}

pub fn key_fields() -> KeyFields {
    KeyFields::for_tests()
}

pub fn init(runtime: &tokio::runtime::Runtime, store: Store) -> Repository {
    runtime
        .block_on(Repository::init(store, config(), PASSWORD, key_fields(), Arc::new(larder_testkit::entropy())))
        .unwrap()
}

pub fn local(path: &Path) -> Store {
    Store::open(&path.to_str().unwrap().parse().unwrap(), &StoreOptions::default()).unwrap()
}

pub fn context(runtime: &tokio::runtime::Runtime, repository: Repository) -> JobContext {
    JobContext {
        machine: Machine::for_tests(repository.config().repository),
        repository,
        executor: runtime.handle().into(),
        clock: clock(),
        threads: NonZeroUsize::new(2).unwrap(),
        memory: 32 << 20,
        renew_every: larder_store::jobs::RENEW_EVERY,
        cancel: Cancel::default(),
        progress: Arc::new(NoProgress),
        identity: Identity { host: "host".to_owned(), program: "test".to_owned(), process: 1 },
    }
}

/// Remembers problems.
#[derive(Debug, Default)]
pub struct Problems(pub parking_lot::Mutex<Vec<Problem>>);

impl Progress for Problems {
    fn problem(&self, problem: &Problem) {
        self.0.lock().push(problem.clone());
    }
}

pub fn options(series: &str) -> BackupOptions {
    let named = |text: &str| text.to_owned();
    BackupOptions { host: named("host"), user: named("user"), program: named("test"), ..BackupOptions::new(series) }
}

pub fn walk(path: &Path) -> Input {
    use std::os::unix::ffi::OsStrExt;
    let roots = Roots::new([path.as_os_str().as_bytes()], b"/").unwrap();
    Input::Tree(Walk::new(roots, WalkOptions::default()))
}

pub fn backup(context: &JobContext, path: &Path) -> Result<BackupReport, BackupError> {
    use std::os::unix::ffi::OsStrExt;
    let options = BackupOptions { paths: vec![path.as_os_str().as_bytes().to_vec()], ..options("series") };
    larder_lnode::backup(context, walk(path), &options)
}

pub fn versions(context: &JobContext) -> Vec<Version> {
    context.executor.block_on(context.repository.catalog()).unwrap().versions
}

/// Restores the folder `source` of a version into `target`.
pub fn restore(
    context: &JobContext,
    version: &Version,
    source: &Path,
    target: &Path,
) -> Result<RestoreReport, RestoreError> {
    use std::os::unix::ffi::OsStrExt;
    let subpath = source.as_os_str().as_bytes()[1..].to_vec();
    let options = RestoreOptions { subpath: Some(subpath), ..RestoreOptions::default() };
    larder_lnode::restore(context, version, &Target::open(target, TargetOptions::default())?, &options)
}

/// Differences between two trees, by rsync, which shares nothing with this project.
pub fn differences(a: &Path, b: &Path) -> String {
    let output = std::process::Command::new("rsync")
        .args(["-naHAXcS", "--delete", "--itemize-changes"])
        .arg(format!("{}/", a.display()))
        .arg(format!("{}/", b.display()))
        .output()
        .expect("rsync is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    // The root itself is the test's own folder.
    lines.lines().filter(|line| !line.ends_with(" ./")).collect::<Vec<_>>().join("\n")
}

/// The beginning of a database, as far as it is looked at: whatever follows it in whole pages of 4096 bytes is cut at pages.
pub fn database_header() -> [u8; 101] {
    let mut header = [0; 101];
    header[..16].copy_from_slice(b"SQLite format 3\0");
    header[16..24].copy_from_slice(&[16, 0, 1, 1, 0, 64, 32, 32]);
    header[100] = 13;
    header
}

/// Bytes that do not compress and do not repeat.
pub fn pseudo_random(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
