//! What fails for a passing reason is repeated until a deadline; what fails for good is reported at once.

use std::time::Duration;

use bytes::Bytes;
use larder_store::{Store, StoreErrorKind, StoreOptions};
use larder_testkit::{Failure, Fault, FaultStore, Faults, Memory, OpKind, Times, When};
use tokio::time::Instant;

fn store(options: &StoreOptions) -> (Store, Faults, Memory) {
    let memory = Memory::new();
    let (faulty, faults) = FaultStore::new(memory.store());
    (Store::from_object_store(faulty, "", options).expect("opens"), faults, memory)
}

/// A store that holds `x` and has answered once, so that it is known to be there.
async fn known() -> (Store, Faults, Memory) {
    let (store, faults, memory) = store(&StoreOptions::default());
    store.create("x", Bytes::from_static(b"content")).await.expect("created");
    (store, faults, memory)
}

#[tokio::test(start_paused = true)]
async fn every_passing_failure_is_survived_by_every_request() {
    for failure in [
        Failure::Reset,
        Failure::Timeout,
        Failure::Connect,
        Failure::Status(429),
        Failure::Status(500),
        Failure::Status(503),
        Failure::Code(409, "ConditionalRequestConflict"),
        Failure::Code(400, "RequestTimeout"),
    ] {
        for fault in [Fault::FailBefore(failure), Fault::FailAfter(failure)] {
            let (store, faults, _) = known().await;
            for kind in [OpKind::Put, OpKind::Get, OpKind::Head, OpKind::List, OpKind::Delete] {
                faults.add(When::kind(kind), fault.clone(), Times::First(3));
            }
            assert_eq!(store.get("x").await.expect("read"), "content", "{fault:?}");
            assert_eq!(store.size("x").await.expect("looked up"), 7);
            assert_eq!(store.list("").await.expect("listed").len(), 1);
            store.create("y", Bytes::from_static(b"new")).await.expect("created");
            store.delete("x").await.expect("deleted");
            assert_eq!(store.list("").await.expect("listed").len(), 1);
            // Listings count their repetitions by themselves. A create that took effect meets itself at its second attempt.
            let expected = if matches!(fault, Fault::FailBefore(_)) { 3 * 4 } else { 3 * 3 + 1 };
            assert_eq!(store.stats().retries, expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lasting_failure_is_reported_at_once_and_by_its_kind() {
    for (failure, kind) in [
        (Failure::Status(401), StoreErrorKind::PermissionDenied),
        (Failure::Status(403), StoreErrorKind::PermissionDenied),
        (Failure::Denied, StoreErrorKind::PermissionDenied),
        (Failure::Status(404), StoreErrorKind::NotFound),
        (Failure::Status(412), StoreErrorKind::AlreadyExists),
        (Failure::Status(400), StoreErrorKind::Invalid),
        (Failure::Status(507), StoreErrorKind::Full),
        (Failure::Code(403, "QuotaExceeded"), StoreErrorKind::Full),
        (Failure::NoSpace, StoreErrorKind::Full),
        (Failure::ReadOnly, StoreErrorKind::ReadOnly),
        (Failure::Stopped, StoreErrorKind::Other),
    ] {
        let (store, faults, _) = known().await;
        faults.add(When::kind(OpKind::Put), Fault::FailBefore(failure), Times::Always);
        let began = Instant::now();
        let error = store.create("y", Bytes::from_static(b"new")).await.expect_err("fails");
        assert_eq!((error.kind, error.name.as_str()), (kind, "y"), "{failure:?}");
        assert!(!error.is_retryable());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_recovers_is_retired_at_the_deadline() {
    let (store, faults, _) = known().await;
    faults.add(When::any(), Fault::FailBefore(Failure::Status(503)), Times::Always);
    let began = Instant::now();
    let error = store.get("x").await.expect_err("fails");
    assert_eq!(error.kind, StoreErrorKind::Throttled);
    let took = began.elapsed();
    assert!(took <= Duration::from_secs(900) && took > Duration::from_secs(800), "{took:?}");
    // Pauses double up to half a minute: a quarter of an hour is some dozens of requests, not thousands.
    assert!((30..80).contains(&faults.count()), "{}", faults.count());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answered_is_retired_early() {
    let (store, faults, _) = store(&StoreOptions::default());
    faults.add(When::any(), Fault::FailBefore(Failure::Connect), Times::Always);
    let began = Instant::now();
    let error = store.get("config").await.expect_err("fails");
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    assert!(began.elapsed() <= Duration::from_secs(60));
    // One answer, even a refusal, and it is known to be there.
    faults.clear();
    assert_eq!(store.get("config").await.expect_err("empty").kind, StoreErrorKind::NotFound);
    faults.add(When::any(), Fault::FailBefore(Failure::Connect), Times::Always);
    let began = Instant::now();
    store.get("config").await.expect_err("fails");
    assert!(began.elapsed() > Duration::from_secs(800));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_left_and_asked_again() {
    for kind in [OpKind::Put, OpKind::Get, OpKind::Head, OpKind::List, OpKind::Delete] {
        for fault in [Fault::Hang, Fault::HangAfter] {
            let (store, faults, _) = known().await;
            faults.add(When::kind(kind), fault, Times::First(2));
            store.create("y", Bytes::from_static(b"new")).await.expect("created");
            assert_eq!(store.get("x").await.expect("read"), "content");
            assert_eq!(store.size("x").await.expect("looked up"), 7);
            assert_eq!(store.list("").await.expect("listed").len(), 2);
            store.delete("x").await.expect("deleted");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_upload_is_given_more_time_and_more_again() {
    let (store, faults, _) = known().await;
    // 8 MiB at 64 KiB a second take 128 seconds, after 30 for the answer.
    faults.add(When::any(), Fault::Delay(Duration::from_secs(150)), Times::First(1));
    store.create("slow", vec![1; 8 << 20].into()).await.expect("created");
    assert_eq!(store.stats().retries, 0);
    faults.add(When::kind(OpKind::Put), Fault::Delay(Duration::from_secs(500)), Times::Always);
    store.create("slower", vec![2; 8 << 20].into()).await.expect("created at the third attempt");
    assert_eq!(store.stats().retries, 2);
}

#[tokio::test(start_paused = true)]
async fn a_short_body_is_an_error_and_read_again() {
    for keep in [0, 1, 6] {
        let (store, faults, _) = known().await;
        faults.add(When::kind(OpKind::Get), Fault::Short(keep), Times::First(3));
        assert_eq!(store.get("x").await.expect("read"), "content");
        faults.add(When::kind(OpKind::Get), Fault::Short(keep), Times::Always);
        let error = store.get("x").await.expect_err("never whole");
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        let short = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(short, Some(format!("7 bytes expected, {keep} found")));
        assert_eq!(store.get_range("x", 0..0).await.expect("empty"), "");
        assert_eq!(store.get_range("x", 1..7).await.is_ok(), keep == 6);
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_breaks_off_is_completed_without_doubles() {
    let (store, faults, memory) = known().await;
    for number in 0..50 {
        memory.put(&format!("many/{number:02}"), "x").await;
    }
    faults.add(When::kind(OpKind::List), Fault::Short(7), Times::First(1));
    faults.add(When::kind(OpKind::List), Fault::Short(0), Times::First(1));
    faults.add(When::kind(OpKind::List), Fault::Short(30), Times::First(1));
    let listed = store.list("many/").await.expect("listed");
    assert_eq!(listed.len(), 50);
    assert!(listed.is_sorted());
    assert_eq!(store.stats().lists, 4);
}

#[tokio::test]
async fn bad_names_are_refused_before_anything_is_sent() {
    let (store, faults, _) = known().await;
    let before = faults.count();
    for name in ["", "/x", "../x", "a//b", "a b"] {
        assert_eq!(store.get(name).await.expect_err(name).kind, StoreErrorKind::Invalid);
        assert_eq!(store.create(name, Bytes::new()).await.expect_err(name).kind, StoreErrorKind::Invalid);
    }
    assert_eq!(store.list("../x").await.expect_err("outside").kind, StoreErrorKind::Invalid);
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = store.get_range("x", 5..1).await;
    assert_eq!(reversed.expect_err("reversed").kind, StoreErrorKind::Invalid);
    assert_eq!(faults.count(), before);
}
