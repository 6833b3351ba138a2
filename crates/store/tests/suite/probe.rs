//! A store that ignores conditional creation is refused before anything is uploaded (rule `ProbedFirst`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use larder_format::ids::JobId;
use larder_format::lease::{JobKind, Lease};
use larder_store::{Repository, RepositoryError, Store, StoreErrorKind, StoreOptions};
use larder_testkit::{Failure, Fault, FaultStore, Memory, OpKind, Times, When};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::support::{PASSWORD, config, key_fields, repository};

/// A store that takes so many puts for unconditional ones.
#[derive(Debug)]
struct Overwriting {
    inner: Arc<dyn ObjectStore>,
    ignores: AtomicU32,
}

impl fmt::Display for Overwriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Overwriting")
    }
}

#[async_trait]
impl ObjectStore for Overwriting {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let left = self.ignores.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let options = if left.is_ok() { PutMode::Overwrite.into() } else { options };
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn overwriting(ignores: u32) -> (Memory, Arc<Overwriting>, Store) {
    let memory = Memory::new();
    let bad = Arc::new(Overwriting { inner: memory.store(), ignores: AtomicU32::new(ignores) });
    let store = Store::from_object_store(bad.clone(), "", &StoreOptions::default()).expect("opens");
    (memory, bad, store)
}

fn lease(kind: JobKind) -> Lease {
    Lease {
        kind,
        series: String::new(),
        pins: Vec::new(),
        adopts: Vec::new(),
        host: "h".to_owned(),
        process: 1,
        written_ms: 1,
        renew_seconds: 60,
        claims: None,
        generation: None,
        layout: None,
        ended: None,
        domain: Default::default(),
        is_signed: true,
    }
}

#[tokio::test]
async fn init_refuses_such_a_store_and_leaves_nothing() {
    let (memory, _, store) = overwriting(u32::MAX);
    let made = Repository::init(store, config(), PASSWORD, key_fields(), Arc::new(larder_testkit::entropy())).await;
    let Err(RepositoryError::Store(error)) = made else { panic!("the store was taken for a good one") };
    assert_eq!(error.kind, StoreErrorKind::Unconditional);
    assert!(error.to_string().contains("would lose data"), "{error}");
    assert_eq!(memory.paths().await, Vec::<String>::new());
}

/// A store may become bad after `init`: another version of it, another gateway before it.
#[tokio::test]
async fn every_writing_job_refuses_it_before_it_uploads() {
    let (memory, bad, store) = overwriting(0);
    let repository = repository(store).await;
    repository.open_lease(JobId([1; 16]), lease(JobKind::Backup)).await.expect("a good store");
    bad.ignores.store(u32::MAX, Ordering::Relaxed);
    let before = memory.paths().await.len();
    for (number, kind) in [JobKind::Backup, JobKind::Task].into_iter().enumerate() {
        let job = JobId([10 + number as u8; 16]);
        let error = repository.open_lease(job, lease(kind)).await.expect_err("refused");
        assert!(matches!(error, RepositoryError::Store(error) if error.kind == StoreErrorKind::Unconditional));
    }
    assert_eq!(memory.paths().await.len(), before + 2, "only leases");
    repository.open_lease(JobId([20; 16]), lease(JobKind::Read)).await.expect("a reader replaces nothing");
}

/// A probe whose first attempt got no answer is settled by the next one, and the lease then is not closed: the attempt may land.
#[tokio::test(start_paused = true)]
async fn a_probe_without_an_answer_is_asked_again() {
    let memory = Memory::new();
    let (store, faults) = FaultStore::new(memory.store());
    let repository = repository(Store::from_object_store(store, "", &StoreOptions::default()).expect("opens")).await;
    let when = || When::kind(OpKind::Put).path("jobs/");
    faults.add(when(), Fault::FailAfter(Failure::Reset), Times::First(3));
    let open = repository.open_lease(JobId([1; 16]), lease(JobKind::Backup)).await.expect("a good store");
    drop(open);
    assert_eq!(memory.paths().await.iter().filter(|path| path.starts_with("jobs/")).count(), 1);
}

/// A pass removes the lease of a task whose number is taken between its two creates: the second one succeeds, and the store is good.
#[tokio::test]
async fn a_lease_that_is_removed_in_between_is_proved_once_more() {
    let (memory, bad, store) = overwriting(0);
    let repository = repository(store).await;
    // To create the lease twice is what a removal in between looks like.
    for creates in 2..=4 {
        bad.ignores.store(creates, Ordering::Relaxed);
        let job = JobId([creates as u8; 16]);
        repository.open_lease(job, lease(JobKind::Task)).await.expect("a good store");
        assert_eq!(bad.ignores.load(Ordering::Relaxed), 0);
    }
    assert_eq!(memory.paths().await.iter().filter(|path| path.starts_with("jobs/")).count(), 3);
}
