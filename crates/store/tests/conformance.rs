//! Every transport keeps every promise, and the suite notices a store that does not.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use larder_store::conformance::{self, CheckResult, Extent, Guarantee};
use larder_store::{Location, Store, StoreOptions};
use larder_testkit::{Fault, FaultStore, Faults, Memory, OpKind, Times, When};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

async fn run(store: &Store, extent: Extent) -> Vec<CheckResult> {
    let mut reported = 0;
    let results = conformance::check(store, "t1", extent, &mut |_| reported += 1).await;
    assert_eq!(reported, results.len());
    assert_eq!(store.list("validation").await.expect("can be listed"), []);
    results
}

fn assert_kept(results: &[CheckResult]) {
    for result in results {
        let outcome = result.outcome.as_ref().map_err(|failure| failure.to_string());
        assert_eq!(outcome, Ok(&()), "{}", result.guarantee);
    }
    assert!(results.len() >= 11);
}

fn broken(results: &[CheckResult]) -> Vec<Guarantee> {
    results.iter().filter(|result| result.outcome.is_err()).map(|result| result.guarantee).collect()
}

fn over(store: Arc<dyn ObjectStore>) -> Store {
    Store::from_object_store(store, "some/prefix", &StoreOptions::default()).expect("opens")
}

fn faulty() -> (Store, Faults) {
    let (store, faults) = FaultStore::new(Memory::new().store());
    (over(store), faults)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_folder_keeps_every_promise() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let store = Store::open(&Location::Local(folder.path().join("repo")), &StoreOptions::default()).expect("opens");
    assert_kept(&run(&store, Extent { many: 100, large: 16 << 20 }).await);
    let left: Vec<_> = std::fs::read_dir(folder.path().join("repo")).expect("made").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn memory_keeps_every_promise() {
    assert_kept(&run(&over(Memory::new().store()), Extent::FULL).await);
    let store = Store::open(&Location::Memory, &StoreOptions::default()).expect("opens");
    assert_kept(&run(&store, Extent::QUICK).await);
}

/// `LARDER_TEST_S3` is `s3:http://host:port/bucket`; keys come from the usual variables. The continuous integration sets
/// it; without it there is no server to ask.
#[tokio::test(flavor = "multi_thread")]
async fn an_s3_server_keeps_every_promise() {
    let Ok(location) = std::env::var("LARDER_TEST_S3") else { return };
    let location: Location = format!("{location}/conformance").parse().expect("LARDER_TEST_S3 is a location");
    let store = Store::open(&location, &StoreOptions::default()).expect("opens");
    assert_kept(&run(&store, Extent::FULL).await);
}

#[tokio::test(start_paused = true)]
async fn a_flaky_store_still_keeps_every_promise() {
    let (store, faults) = faulty();
    for (kind, failure) in [
        (OpKind::Put, Fault::FailAfter(larder_testkit::Failure::Timeout)),
        (OpKind::Put, Fault::FailBefore(larder_testkit::Failure::Reset)),
        (OpKind::Get, Fault::FailBefore(larder_testkit::Failure::Status(503))),
        (OpKind::List, Fault::Short(3)),
        (OpKind::Delete, Fault::FailAfter(larder_testkit::Failure::Reset)),
    ] {
        faults.add(When::kind(kind).chance(100, 5), failure, Times::Always);
    }
    assert_kept(&run(&store, Extent::QUICK).await);
    assert!(store.stats().retries > 20, "{:?}", store.stats());
}

#[tokio::test(start_paused = true)]
async fn a_stale_listing_is_found_out() {
    let (store, faults) = faulty();
    faults.add(When::kind(OpKind::List), Fault::Stale(1), Times::First(12));
    let found = broken(&run(&store, Extent::QUICK).await);
    assert!(found.contains(&Guarantee::ListAfterCreate), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_flipped_bit_is_found_out() {
    let (store, faults) = faulty();
    faults.add(When::kind(OpKind::Get).path("ranges"), Fault::FlipBit(12_345), Times::Always);
    assert_eq!(broken(&run(&store, Extent::QUICK).await), [Guarantee::RangeReads]);
}

/// A store that takes every put for an unconditional one, as old S3 servers do with a header they do not know.
#[derive(Debug)]
struct Overwriting(Arc<dyn ObjectStore>);

impl fmt::Display for Overwriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Overwriting")
    }
}

#[async_trait]
impl ObjectStore for Overwriting {
    async fn put_opts(&self, location: &Path, payload: PutPayload, _: PutOptions) -> Result<PutResult> {
        self.0.put_opts(location, payload, PutMode::Overwrite.into()).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn a_store_that_ignores_the_condition_is_found_out() {
    let store = over(Arc::new(Overwriting(Memory::new().store())));
    let found = broken(&run(&store, Extent::QUICK).await);
    assert!(found.contains(&Guarantee::CreateIfAbsent) && found.contains(&Guarantee::OneWinner), "{found:?}");
}

#[tokio::test]
async fn other_repositories_beside_the_prefix_are_never_seen() {
    let memory = Memory::new();
    memory.put("some/prefix2/config", "other").await;
    memory.put("some/other/config", "other").await;
    memory.put("some/prefix/with space", "foreign").await;
    let store = over(memory.store());
    store.create("config", Bytes::from_static(b"ours")).await.expect("created");
    let listed = store.list("").await.expect("listed");
    assert_eq!(listed.iter().map(|object| object.name.as_str()).collect::<Vec<_>>(), ["config"]);
    assert_eq!(memory.get("some/prefix/config").await.as_deref(), Some(&b"ours"[..]));
}
