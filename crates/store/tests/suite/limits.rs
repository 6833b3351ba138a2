//! Bandwidth and concurrency stay within what was asked for, and a limit alone never makes a request fail.

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use futures::future::join_all;
use larder_store::{Store, StoreOptions};
use larder_testkit::{Fault, FaultStore, Faults, Memory, Times, When};
use tokio::time::Instant;

fn store(options: &StoreOptions) -> (Store, Faults) {
    let (faulty, faults) = FaultStore::new(Memory::new().store());
    (Store::from_object_store(faulty, "", options).expect("opens"), faults)
}

#[tokio::test(start_paused = true)]
async fn bytes_go_each_way_at_no_more_than_the_limit() {
    let options = StoreOptions {
        upload_limit: NonZeroU64::new(1000),
        download_limit: NonZeroU64::new(500),
        ..StoreOptions::default()
    };
    let (store, _) = store(&options);
    let began = Instant::now();
    join_all((0..10).map(|n| {
        let store = store.clone();
        async move { store.create(&format!("x{n}"), vec![1; 2000].into()).await.expect("created") }
    }))
    .await;
    // The last of ten objects leaves when nine have been paid for.
    assert_eq!(began.elapsed().as_secs(), 18);
    let began = Instant::now();
    for n in 0..10 {
        store.get(&format!("x{n}")).await.expect("read");
    }
    // Requests without bytes wait for nobody's bytes.
    assert_eq!(began.elapsed().as_secs(), 36);
    let began = Instant::now();
    store.size("x1").await.expect("looked up");
    store.list("").await.expect("listed");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn idle_time_is_not_saved_up() {
    let (store, _) = store(&StoreOptions { upload_limit: NonZeroU64::new(1000), ..StoreOptions::default() });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let began = Instant::now();
    for n in 0..5 {
        store.create(&format!("x{n}"), vec![1; 1000].into()).await.expect("created");
    }
    assert_eq!(began.elapsed().as_secs(), 4);
}

/// A body that waits for bandwidth far longer than an attempt may be silent.
#[tokio::test(start_paused = true)]
async fn a_low_limit_is_not_mistaken_for_a_hanging_server() {
    let options = StoreOptions {
        upload_limit: NonZeroU64::new(10),
        download_limit: NonZeroU64::new(10),
        attempt_timeout: Duration::from_secs(5),
        ..StoreOptions::default()
    };
    let (store, _) = store(&options);
    for n in 0..3 {
        store.create(&format!("x{n}"), vec![n; 10_000].into()).await.expect("created");
    }
    for n in 0..3 {
        assert_eq!(store.get(&format!("x{n}")).await.expect("read").len(), 10_000);
    }
    assert_eq!(store.stats().retries, 0);
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_under_way_than_allowed() {
    let options = StoreOptions { concurrency: NonZeroUsize::new(3).expect("not zero"), ..StoreOptions::default() };
    let (store, faults) = store(&options);
    faults.add(When::any(), Fault::Delay(Duration::from_secs(1)), Times::Always);
    let began = Instant::now();
    join_all((0..9).map(|n| {
        let store = store.clone();
        async move { store.create(&format!("x{n}"), vec![1; 10].into()).await.expect("created") }
    }))
    .await;
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

/// With one turn in all, a listing that held it would wait for its reader, who waits for a turn.
#[tokio::test(start_paused = true)]
async fn objects_can_be_read_while_a_listing_is_open() {
    use futures::TryStreamExt;
    let options = StoreOptions { concurrency: NonZeroUsize::MIN, ..StoreOptions::default() };
    let (store, _) = store(&options);
    for n in 0..5 {
        store.create(&format!("x{n}"), vec![1; n].into()).await.expect("created");
    }
    let mut listing = store.list_stream("");
    while let Some(object) = listing.try_next().await.expect("listed") {
        assert_eq!(store.get(&object.name).await.expect("read").len() as u64, object.size);
    }
}

#[tokio::test]
async fn requests_and_bytes_are_counted() {
    let (store, _) = store(&StoreOptions::default());
    let clone = store.clone();
    store.create("x", vec![1; 100].into()).await.expect("created");
    store.create("x", vec![2; 100].into()).await.expect_err("taken");
    clone.get("x").await.expect("read");
    clone.get_range("x", 10..20).await.expect("read");
    store.size("x").await.expect("looked up");
    store.list("").await.expect("listed");
    store.delete("x").await.expect("deleted");
    store.get("x").await.expect_err("gone");
    let stats = store.stats();
    assert_eq!((stats.creates, stats.reads, stats.sizes, stats.lists, stats.deletes), (2, 3, 1, 1, 1));
    assert_eq!((stats.bytes_up, stats.bytes_down, stats.retries, stats.failures), (200, 110, 0, 0));
    assert_eq!(stats.requests(), 8);
}
