//! The fault store does what it is told, to the operation it is told, and the same again for the same seed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use larder_testkit::{Failure, Fault, FaultStore, Faults, Memory, Op, OpKind, Stop, Times, When};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions};

fn store() -> (Arc<FaultStore>, Faults, Memory) {
    let memory = Memory::new();
    let (store, faults) = FaultStore::new(memory.store());
    (store, faults, memory)
}

async fn put(store: &FaultStore, path: &str) -> bool {
    let options = PutOptions::from(PutMode::Create);
    store.put_opts(&Path::from(path), Bytes::from_static(b"12345678").into(), options).await.is_ok()
}

async fn get(store: &FaultStore, path: &str) -> Result<Bytes, Error> {
    store.get(&Path::from(path)).await?.bytes().await
}

async fn list(store: &FaultStore) -> Result<usize, Error> {
    store.list(None).try_collect::<Vec<_>>().await.map(|listed| listed.len())
}

#[tokio::test]
async fn failing_before_has_no_effect_and_failing_after_has_one() {
    let (store, faults, memory) = store();
    faults.add(When::kind(OpKind::Put), Fault::FailBefore(Failure::Reset), Times::First(1));
    faults.add(When::kind(OpKind::Put), Fault::FailAfter(Failure::Timeout), Times::First(1));
    assert!(!put(&store, "a").await && !put(&store, "b").await && put(&store, "c").await);
    assert_eq!(memory.paths().await, ["b", "c"]);
}

/// What a store refuses to clients that may only create.
#[tokio::test]
async fn overwriting_is_told_from_creating() {
    let (store, faults, _) = store();
    faults.add(When::kind(OpKind::Overwrite), Fault::FailBefore(Failure::Status(403)), Times::Always);
    assert!(put(&store, "a").await && !put(&store, "a").await);
    for path in ["a", "b"] {
        let overwritten = store.put(&Path::from(path), Bytes::new().into()).await;
        assert!(matches!(overwritten, Err(Error::PermissionDenied { .. })), "{overwritten:?}");
    }
    assert_eq!(get(&store, "a").await.expect("there").len(), 8);
    assert_eq!(faults.counts()[&OpKind::Overwrite], 2);
}

#[tokio::test]
async fn a_stop_is_for_good_and_in_both_flavours() {
    for (stop, left) in [(Stop::Before, vec!["0"]), (Stop::After, vec!["0", "1"])] {
        let (store, faults, memory) = store();
        faults.stop_at(1, stop);
        for number in 0..4 {
            assert_eq!(put(&store, &number.to_string()).await, number == 0);
            assert_eq!(faults.stopped(), number > 0);
        }
        assert!(get(&store, "0").await.is_err() && list(&store).await.is_err());
        assert_eq!(memory.paths().await, left);
        assert_eq!(faults.count(), 6);
        // A sweep goes on with the state that the stop left behind.
        let (again, _) = FaultStore::new(memory.snapshot().store());
        assert!(put(&again, "9").await);
        assert_eq!(memory.paths().await, left);
    }
}

#[tokio::test]
async fn space_runs_out_and_read_only_refuses() {
    let (store, faults, _) = store();
    faults.space(20);
    assert!(put(&store, "a").await && put(&store, "b").await && !put(&store, "c").await);
    faults.clear();
    faults.read_only(true);
    assert!(!put(&store, "c").await && store.delete(&Path::from("a")).await.is_err());
    assert_eq!(get(&store, "a").await.expect("read"), "12345678");
    faults.read_only(false);
    assert!(put(&store, "c").await);
}

#[tokio::test]
async fn bodies_and_listings_are_spoiled() {
    let (store, faults, _) = store();
    for path in ["a", "b", "c"] {
        assert!(put(&store, path).await);
    }
    faults.add(When::kind(OpKind::Get).path("a"), Fault::Short(3), Times::First(1));
    faults.add(When::kind(OpKind::Get).path("a"), Fault::FlipBit(8 * 8 + 9), Times::First(1));
    assert_eq!(get(&store, "a").await.expect("read"), "123");
    assert_eq!(get(&store, "a").await.expect("read"), "10345678");
    assert_eq!(get(&store, "a").await.expect("read"), "12345678");
    faults.add(When::kind(OpKind::List), Fault::Stale(2), Times::First(1));
    faults.add(When::kind(OpKind::List), Fault::Short(1), Times::First(1));
    assert_eq!(list(&store).await.expect("listed"), 1);
    assert!(list(&store).await.is_err());
    assert_eq!(list(&store).await.expect("listed"), 3);
}

#[tokio::test(start_paused = true)]
async fn delays_and_hangs_are_on_tokios_clock() {
    let (store, faults, memory) = store();
    faults.add(When::any(), Fault::Delay(Duration::from_secs(3600)), Times::First(1));
    faults.add(When::any(), Fault::Hang, Times::First(1));
    faults.add(When::any(), Fault::HangAfter, Times::First(1));
    let began = tokio::time::Instant::now();
    assert!(put(&store, "a").await);
    assert_eq!(began.elapsed(), Duration::from_secs(3600));
    for path in ["b", "c"] {
        assert!(tokio::time::timeout(Duration::from_secs(1), put(&store, path)).await.is_err());
    }
    assert_eq!(memory.paths().await, ["a", "c"]);
}

async fn indices_of_faults(seed: u64) -> Vec<u64> {
    let (store, faults, _) = store();
    faults.add(When::any().from(10).chance(300, seed), Fault::FailBefore(Failure::Reset), Times::Always);
    for number in 0..200 {
        put(&store, &number.to_string()).await;
    }
    faults.log().into_iter().filter(|op| op.fault.is_some()).map(|op| op.index).collect()
}

#[tokio::test]
async fn chance_is_the_same_for_the_same_seed() {
    let first = indices_of_faults(1).await;
    assert_eq!(first, indices_of_faults(1).await);
    assert_ne!(first, indices_of_faults(2).await);
    assert!((30..90).contains(&first.len()) && first[0] >= 10, "{first:?}");
}

#[tokio::test]
async fn everything_is_logged() {
    let (store, faults, _) = store();
    put(&store, "a/b").await;
    store.head(&Path::from("a/b")).await.expect("there");
    list(&store).await.expect("listed");
    let log = faults.log();
    let kinds: Vec<_> = log.iter().map(|op| op.kind).collect();
    assert_eq!(kinds, [OpKind::Put, OpKind::Head, OpKind::List]);
    assert_eq!(log[0], Op { index: 0, kind: OpKind::Put, path: "a/b".into(), bytes: 8, fault: None });
    assert_eq!(faults.counts()[&OpKind::Put], 1);
}
