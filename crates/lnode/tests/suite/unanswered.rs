//! A lease is closed only when nothing of its job can still arrive: rule `CloseOnlyAnswered` of `docs/concurrency.md`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use crate::support::*;
use larder_store::{Store, StoreOptions};
use larder_testkit::{Failure, Fault, FaultStore, Memory, OpKind, Times, When};

/// Backs up a small folder over a store whose first put below `folder` gets no answer and is not applied. Whether the lease was
/// closed afterwards.
fn closes(folder: &str, faulty: bool) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let memory = Memory::new();
    let (inner, faults) = FaultStore::new(memory.store());
    let store = Store::from_object_store(inner, "", &StoreOptions::default()).unwrap();
    let context = context(&runtime, init(&runtime, store));
    std::fs::write(dir.path().join("file"), b"content").unwrap();
    if faulty {
        faults.add(When::kind(OpKind::Put).path(folder), Fault::FailBefore(Failure::Timeout), Times::First(1));
    }
    let report = backup(&context, dir.path()).unwrap();
    let job = report.version.unwrap().id;
    runtime.block_on(memory.get(&format!("jobs/{job}/done"))).is_some()
}

#[test]
fn a_job_of_which_something_may_still_arrive_stays_open() {
    assert!(closes("versions/", false));
    assert!(!closes("versions/", true), "a late commit would bring a version back that was collected");
    assert!(!closes("jobs/", true), "a late lease would make a cleaned-up job look adoptable");
    assert!(closes("data/", true), "a late container is an orphan like any other");
}
