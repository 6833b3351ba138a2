//! One object that cannot be read is damage of that object; a store that cannot be used is not.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use larder_store::{Store, StoreErrorKind, StoreOptions};
use larder_testkit::{Failure, Fault, FaultStore, Faults, Memory, OpKind, Times, When};
use tokio::time::Instant;

const OBJECTS: [&str; 5] = ["config", "data/a/0", "data/a/1", "data/b/0", "keys/k"];

async fn known() -> (Store, Faults) {
    let (faulty, faults) = FaultStore::new(Memory::new().store());
    let store = Store::from_object_store(faulty, "", &StoreOptions::default()).expect("opens");
    for name in OBJECTS {
        store.create(name, Bytes::from_static(b"content")).await.expect("created");
    }
    (store, faults)
}

const FAILURES: [Failure; 3] = [Failure::Status(500), Failure::Status(502), Failure::Status(403)];

#[tokio::test(start_paused = true)]
async fn an_object_that_fails_for_ever_is_unreadable_and_the_others_are_not() {
    for failure in FAILURES {
        let (store, faults) = known().await;
        faults.add(When::any().path("data/a/1"), Fault::FailBefore(failure), Times::Always);
        let began = Instant::now();
        let error = store.get("data/a/1").await.expect_err("never");
        assert_eq!(error.kind, StoreErrorKind::Unreadable, "{failure:?}");
        assert!(began.elapsed() <= Duration::from_secs(61), "{failure:?}: {:?}", began.elapsed());
        assert!(error.source().is_some_and(|said| said.to_string().contains("the server answered")), "{error:?}");
        for name in OBJECTS.iter().filter(|name| **name != "data/a/1") {
            store.get(name).await.unwrap_or_else(|error| panic!("{failure:?} {name}: {error}"));
        }
        // It is known now, and not waited for again.
        let began = Instant::now();
        assert_eq!(store.get_range("data/a/1", 0..3).await.expect_err("never").kind, StoreErrorKind::Unreadable);
        assert_eq!(began.elapsed(), Duration::ZERO);
        faults.clear();
        assert_eq!(store.get("data/a/1").await.expect("again"), "content");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_not_an_object() {
    for (failure, kind) in [
        (Failure::Status(500), StoreErrorKind::Unreachable),
        (Failure::Status(503), StoreErrorKind::Throttled),
        (Failure::Connect, StoreErrorKind::Unreachable),
        (Failure::Status(403), StoreErrorKind::PermissionDenied),
    ] {
        let (store, faults) = known().await;
        faults.add(When::kind(OpKind::Get), Fault::FailBefore(failure), Times::Always);
        let error = store.get("data/a/1").await.expect_err("never");
        assert_eq!(error.kind, kind, "{failure:?}");
    }
}

/// A policy that keeps somebody from a whole folder says nothing of its objects.
#[tokio::test(start_paused = true)]
async fn a_folder_that_is_denied_is_not_damaged() {
    let (store, faults) = known().await;
    faults.add(When::any().path("data/"), Fault::FailBefore(Failure::Status(403)), Times::Always);
    let error = store.get("data/a/1").await.expect_err("denied");
    assert_eq!(error.kind, StoreErrorKind::PermissionDenied);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_fails_for_half_a_minute_is_read_in_the_end() {
    let (store, faults) = known().await;
    faults.add(When::any().path("data/a/1"), Fault::FailBefore(Failure::Status(500)), Times::First(6));
    assert_eq!(store.get("data/a/1").await.expect("read"), "content");
}

#[tokio::test(start_paused = true)]
async fn what_was_archived_says_so_at_once() {
    let (store, faults) = known().await;
    let archived = Failure::Code(403, "InvalidObjectState");
    faults.add(When::any().path("data/"), Fault::FailBefore(archived), Times::Always);
    let error = store.get("data/a/1").await.expect_err("archived");
    assert_eq!(error.kind, StoreErrorKind::Cold);
    let said = error.source().map(ToString::to_string).unwrap_or_default();
    assert!(said.starts_with("it was archived: thaw it"), "{said}");
}

/// A proxy that cuts bodies or puts pages in their place: what is not what it should be is read again, and kept as it came then.
#[tokio::test]
async fn a_body_that_is_not_sound_is_read_again() {
    let is_sound = |bytes: &[u8]| bytes == b"content";
    let (store, faults) = known().await;
    for bad in 0..6 {
        faults.add(When::kind(OpKind::Get), Fault::FlipBit(3), Times::First(bad));
        let found = store.get_sound("keys/k", 100, is_sound).await.expect("read");
        assert_eq!(is_sound(&found), bad < 4, "{bad} bad answers");
        faults.clear();
    }
}
