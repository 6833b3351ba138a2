//! A create whose outcome is not known is settled: the caller learns whether the object is its own.
//!
//! The commit register of a version stands on this. Told "taken" about its own object, a job would abort a version that is
//! committed; told "created" about another's, it would commit references to what the other has released.

use bytes::Bytes;
use larder_store::{Created, Store, StoreError, StoreErrorKind, StoreOptions};
use larder_testkit::{Failure, Fault, FaultStore, Faults, Memory, OpKind, Times, When};

fn store() -> (Store, Faults, Memory) {
    let memory = Memory::new();
    let (faulty, faults) = FaultStore::new(memory.store());
    (Store::from_object_store(faulty, "", &StoreOptions::default()).expect("opens"), faults, memory)
}

fn kind(outcome: Result<Created, StoreError>) -> Option<StoreErrorKind> {
    outcome.err().map(|error| error.kind)
}

const OURS: Bytes = Bytes::from_static(b"attempt 1 of job A");
const THEIRS: Bytes = Bytes::from_static(b"attempt 1 of job B");

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_create_that_won_is_success() {
    for lost in [Fault::FailAfter(Failure::Timeout), Fault::FailAfter(Failure::Status(500)), Fault::HangAfter] {
        let (store, faults, memory) = store();
        faults.add(When::kind(OpKind::Put), lost, Times::First(1));
        assert_eq!(kind(store.create("register", OURS).await), None);
        assert_eq!(memory.get("register").await, Some(OURS));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_create_that_lost_is_a_lost_race() {
    for lost in [Fault::FailBefore(Failure::Timeout), Fault::FailBefore(Failure::Status(503)), Fault::Hang] {
        let (store, faults, memory) = store();
        memory.put("register", THEIRS).await;
        faults.add(When::kind(OpKind::Put), lost, Times::First(1));
        assert_eq!(kind(store.create("register", OURS).await), Some(StoreErrorKind::AlreadyExists));
        assert_eq!(memory.get("register").await, Some(THEIRS));
    }
}

#[tokio::test(start_paused = true)]
async fn a_clear_refusal_is_believed_without_reading_back() {
    let (store, faults, memory) = store();
    // Equal bytes, but this create never failed: whoever wrote them, it was not us.
    memory.put("register", OURS).await;
    assert_eq!(kind(store.create("register", OURS).await), Some(StoreErrorKind::AlreadyExists));
    assert_eq!(faults.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn reading_back_survives_failures_too() {
    let (store, faults, _) = store();
    faults.add(When::kind(OpKind::Put), Fault::FailAfter(Failure::Reset), Times::First(1));
    faults.add(When::kind(OpKind::Get), Fault::FailBefore(Failure::Status(503)), Times::First(2));
    faults.add(When::kind(OpKind::Get), Fault::Short(3), Times::First(1));
    assert_eq!(kind(store.create("register", OURS).await), None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_back_is_not_claimed_either_way() {
    let (store, faults, _) = store();
    faults.add(When::kind(OpKind::Put), Fault::FailAfter(Failure::Reset), Times::First(1));
    faults.add(When::kind(OpKind::Get), Fault::FailBefore(Failure::Status(403)), Times::Always);
    assert_eq!(kind(store.create("register", OURS).await), Some(StoreErrorKind::PermissionDenied));
}

/// The object that was met is deleted before it is read back. It may have been ours, and deleted on the strength of being
/// there: a commit register that comes back would be a version without containers.
#[tokio::test(start_paused = true)]
async fn a_name_that_became_free_meanwhile_is_not_taken_again() {
    let (store, faults, memory) = store();
    memory.put("register", THEIRS).await;
    faults.add(When::kind(OpKind::Put), Fault::FailBefore(Failure::Reset), Times::First(1));
    faults.add(When::kind(OpKind::Get), Fault::FailBefore(Failure::Reset), Times::First(1));
    let create = tokio::spawn({
        let store = store.clone();
        async move { store.create("register", OURS).await }
    });
    while faults.count() < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    memory.remove("register").await;
    assert_eq!(kind(create.await.expect("joins")), Some(StoreErrorKind::AlreadyExists));
    assert_eq!(memory.get("register").await, None);
}

/// What may land later is known to the caller: after a success only an attempt without answer can.
#[tokio::test(start_paused = true)]
async fn attempts_that_may_still_land_are_told() {
    let lost = || Fault::FailBefore(Failure::Timeout);
    let applied = || Fault::FailAfter(Failure::Timeout);
    for (faults_in_order, all_answered) in [
        (vec![], true),
        // The first got no answer and the second was the one that counted: the first may come any time.
        (vec![lost()], false),
        // The first got no answer but was applied, as reading back shows; the second was refused.
        (vec![applied()], true),
        // One of two was applied; nobody knows about the other.
        (vec![lost(), applied()], false),
    ] {
        let (store, faults, _) = store();
        for fault in &faults_in_order {
            faults.add(When::kind(OpKind::Put), fault.clone(), Times::First(1));
        }
        let created = store.create("register", OURS).await.ok();
        assert_eq!(created, Some(Created { all_answered }), "{faults_in_order:?}");
    }
}

/// Amazon answers 409 to a conditional put that met another one under way: nobody has won yet.
#[tokio::test(start_paused = true)]
async fn a_conflict_under_way_is_no_lost_race() {
    let (store, faults, _) = store();
    let conflict = Fault::FailBefore(Failure::Code(409, "ConditionalRequestConflict"));
    faults.add(When::kind(OpKind::Put), conflict, Times::First(2));
    assert_eq!(kind(store.create("register", OURS).await), None);
}
