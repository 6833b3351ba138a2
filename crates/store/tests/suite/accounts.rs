//! What explains that a register is gone of which a closing mark speaks.

use larder_format::ids::{JobId, SeriesKey};
use larder_format::layout::Layout;
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::names;
use larder_store::Repository;
use larder_store::accounts::Account;
use larder_store::survey::Fenced;

use crate::support::faulty_repository;

const VERSION: Pin = Pin { series: SeriesKey([3; 16]), job: JobId([4; 16]) };
const TASK: JobId = JobId([5; 16]);

fn lease(kind: JobKind) -> Lease {
    Lease {
        kind,
        series: "series".to_owned(),
        pins: Vec::new(),
        adopts: Vec::new(),
        host: "host".to_owned(),
        process: 1,
        written_ms: 1,
        renew_seconds: 1,
        claims: None,
        generation: None,
        layout: None,
        ended: None,
        domain: Default::default(),
        is_signed: true,
    }
}

/// A task says that it made generation 1 of the version, which is not there.
async fn closed_task() -> Repository {
    let (_, repository, _) = faulty_repository().await;
    let lease = Lease { pins: vec![VERSION], generation: Some(1), ..lease(JobKind::Task) };
    let open = repository.open_lease(TASK, lease).await.expect("a lease");
    repository.close_lease(&open, Done::committed_generation(VERSION, 1)).await.expect("a closing mark");
    repository
}

#[tokio::test]
async fn a_generation_of_a_version_that_is_gone_is_accounted_for() {
    let repository = closed_task().await;
    assert_eq!(repository.account(TASK, VERSION, 1).await.expect("an answer"), Account::Explained);
}

/// A slow pass aborts the version's job once more after another one removed everything of it.
#[tokio::test]
async fn a_job_aborted_after_its_version_was_removed_brings_nothing_back() {
    let repository = closed_task().await;
    assert!(matches!(repository.fence(VERSION, 0).await.expect("an answer"), Fenced::Aborted));
    assert_eq!(repository.account(TASK, VERSION, 1).await.expect("an answer"), Account::Explained);
}

/// Of a version nothing is left but the word of its job.
#[tokio::test]
async fn a_first_generation_that_is_gone_is_lost() {
    let repository = closed_task().await;
    assert_eq!(repository.account(TASK, VERSION, 0).await.expect("an answer"), Account::Lost);
}

/// Everything of a job was removed, and then a renewal and the closing mark whose creation was unanswered are created once more.
#[tokio::test]
async fn a_closing_mark_that_comes_late_is_no_loss() {
    let repository = closed_task().await;
    let loses = async |repository: &Repository| repository.lost_registers().await.expect("an answer").len();
    // Nothing of the version exists: its own job would be lost, the task is explained.
    assert_eq!(loses(&repository).await, 0);
    let job = VERSION.job;
    let lease = Lease { layout: Some(Layout::Standard), ..lease(JobKind::Backup) };
    let mut open = repository.open_lease(job, lease).await.expect("a lease");
    repository.renew_lease(&mut open, 2).await.expect("a renewal");
    repository.close_lease(&open, Done::committed(VERSION.series)).await.expect("a closing mark");
    assert_eq!(loses(&repository).await, 1, "with the first lease object it is a loss");
    repository.store().delete(&names::lease(job, 0)).await.expect("removed");
    assert_eq!(loses(&repository).await, 0, "without it a pass removed the job");
}
