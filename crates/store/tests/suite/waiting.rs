//! A store that does not answer: it is said after some seconds, and waiting for it ends when somebody asks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_store::{Store, StoreErrorKind, StoreOptions};
use larder_testkit::{Failure, Fault, FaultStore, Faults, Memory, OpKind, Times, When};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A store that holds `x`, and what it has said so far.
async fn known() -> (Store, Faults, Arc<Mutex<Vec<String>>>) {
    let (faulty, faults) = FaultStore::new(Memory::new().store());
    let store = Store::from_object_store(faulty, "", &StoreOptions::default()).expect("opens");
    store.create("x", Bytes::from_static(b"content")).await.expect("created");
    let said = Arc::new(Mutex::new(Vec::new()));
    let listener = said.clone();
    store.waiting().on_silence(move |text| listener.lock().push(text.to_owned()));
    (store, faults, said)
}

/// Ends waiting after this time.
fn end_after(store: &Store, time: Duration) {
    let waiting = store.waiting().clone();
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        waiting.end();
    });
}

async fn ask(store: &Store, kind: OpKind) -> Result<(), larder_store::StoreError> {
    match kind {
        OpKind::Put => store.create("y", Bytes::from_static(b"new")).await.map(drop),
        OpKind::Get => store.get("x").await.map(drop),
        OpKind::Head => store.size("x").await.map(drop),
        OpKind::List => store.list("").await.map(drop),
        _ => store.delete("x").await,
    }
}

const ALL: [OpKind; 5] = [OpKind::Put, OpKind::Get, OpKind::Head, OpKind::List, OpKind::Delete];

#[tokio::test(start_paused = true)]
async fn the_end_reaches_requests_that_hang_or_wait_to_be_repeated() {
    for kind in ALL {
        for fault in [Fault::Hang, Fault::FailBefore(Failure::Status(503)), Fault::FailBefore(Failure::Connect)] {
            let (store, faults, _) = known().await;
            faults.add(When::any(), fault.clone(), Times::Always);
            end_after(&store, Duration::from_secs(20));
            let began = Instant::now();
            let error = ask(&store, kind).await.expect_err("ended");
            assert_eq!(error.kind, StoreErrorKind::Interrupted, "{kind:?} {fault:?}");
            assert!(began.elapsed() < Duration::from_millis(20_100), "{kind:?} {fault:?}: {:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_end_a_store_that_answers_is_still_asked() {
    let (store, faults, _) = known().await;
    store.waiting().end();
    faults.add(When::any(), Fault::Delay(Duration::from_millis(500)), Times::Always);
    for kind in ALL {
        ask(&store, kind).await.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
    // A large object that is on its way has some seconds.
    faults.clear();
    faults.add(When::any(), Fault::Delay(Duration::from_secs(4)), Times::Always);
    store.create("large", vec![1; 8 << 20].into()).await.expect("created");
    // What fails is not repeated.
    faults.clear();
    faults.add(When::any(), Fault::FailBefore(Failure::Status(503)), Times::First(1));
    let began = Instant::now();
    assert_eq!(store.size("large").await.expect_err("once").kind, StoreErrorKind::Interrupted);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn after_the_end_a_silent_store_costs_one_second_in_all() {
    let (store, faults, said) = known().await;
    store.waiting().end();
    faults.add(When::any(), Fault::Hang, Times::Always);
    let began = Instant::now();
    let (one, two) = tokio::join!(store.get("x"), store.create("y", Bytes::from_static(b"new")));
    assert!(one.is_err() && two.is_err());
    for kind in ALL {
        assert_eq!(ask(&store, kind).await.expect_err("silent").kind, StoreErrorKind::Interrupted, "{kind:?}");
    }
    assert!(began.elapsed() <= Duration::from_millis(1100), "{:?}", began.elapsed());
    assert!(said.lock().is_empty(), "who ends it knows");
}

#[tokio::test(start_paused = true)]
async fn silence_is_said_after_three_seconds_and_so_is_its_end() {
    for kind in ALL {
        let (store, faults, said) = known().await;
        faults.add(When::kind(kind), Fault::Delay(Duration::from_millis(2500)), Times::First(1));
        ask(&store, kind).await.expect("slow");
        assert_eq!(*said.lock(), Vec::<String>::new(), "{kind:?}");
        let (store, faults, said) = known().await;
        faults.add(When::kind(kind), Fault::Delay(Duration::from_secs(20)), Times::First(1));
        let waiting = async {
            tokio::time::sleep(Duration::from_millis(3100)).await;
            assert_eq!(*said.lock(), ["the storage has not answered for 3 s, waiting"], "{kind:?}");
        };
        let (asked, ()) = tokio::join!(ask(&store, kind), waiting);
        asked.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert_eq!(said.lock()[1..], ["the storage answers again"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_failures_are_said_with_their_reason_and_not_too_often() {
    let (store, faults, said) = known().await;
    faults.add(When::any(), Fault::FailBefore(Failure::Status(503)), Times::Always);
    end_after(&store, Duration::from_secs(100));
    store.get("x").await.expect_err("ended");
    let said = said.lock();
    assert!((3..=5).contains(&said.len()), "{said:?}");
    let first = &said[0];
    assert!(
        first.starts_with("the storage has failed for ") && first.contains("cannot read x: the storage is"),
        "{first}"
    );
}

/// A server that refuses connections from the beginning: it is said after some seconds, and how long that will go on.
#[tokio::test(start_paused = true)]
async fn it_is_said_how_long_a_request_will_be_repeated() {
    let (faulty, faults) = FaultStore::new(Memory::new().store());
    faults.add(When::any(), Fault::FailBefore(Failure::Connect), Times::Always);
    let store = Store::from_object_store(faulty, "", &StoreOptions::default()).expect("opens");
    let said = Arc::new(Mutex::new(None));
    let (listener, began) = (said.clone(), Instant::now());
    store.waiting().on_silence(move |text| {
        listener.lock().get_or_insert((began.elapsed(), text.to_owned()));
    });
    store.get("x").await.expect_err("no connection");
    let (at, text) = said.lock().clone().expect("said");
    assert!(at < Duration::from_secs(8), "{at:?}");
    let left = text.split_once("trying for another ").and_then(|(_, rest)| rest.split_once(" s: ")).expect("a time").0;
    let (left, end) = (left.parse::<u64>().expect("a number"), StoreOptions::default().first_deadline.as_secs());
    assert!((end - 8..end).contains(&left), "{text}");
}

/// A large upload takes its time: a line of 8 Mbit/s is no silence.
#[tokio::test(start_paused = true)]
async fn an_upload_is_not_silence() {
    let (store, faults, said) = known().await;
    faults.add(When::any(), Fault::Delay(Duration::from_secs(15)), Times::First(1));
    store.create("large", vec![1; 8 << 20].into()).await.expect("created");
    assert!(said.lock().is_empty());
}
