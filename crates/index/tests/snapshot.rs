//! The newest index is found, and of all who contest a number one wins and the others know.

mod support;

use larder_format::names;
use larder_index::{IndexError, IndexSnapshot, Newest, Published, has_been_indexed, publish};
use larder_store::Repository;
use larder_testkit::{Failure, Fault, OpKind, Times, When};
use support::*;

async fn newest(repository: &Repository) -> Newest {
    IndexSnapshot::newest(repository).await.expect("can be read")
}

fn won(published: Published) -> bool {
    let Published::Won { snapshot, all_answered } = published else { panic!("{published:?}") };
    assert!(snapshot.number > 0);
    all_answered
}

#[tokio::test(start_paused = true)]
async fn a_repository_without_an_index_has_the_empty_one() {
    let (repository, _, _) = repository().await;
    let found = newest(&repository).await;
    assert_eq!((found.snapshot.clone(), found.highest), (IndexSnapshot::empty(), 0));
    assert_eq!(found.next_number().expect("1"), 1);
    assert_eq!(found.base().expect("nothing above it").number, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_published_is_the_newest() {
    let (repository, _, _) = repository().await;
    for number in 1..=11 {
        assert!(won(publish(&repository, number, manifest(number as u8)).await.expect("published")));
        let found = newest(&repository).await;
        assert_eq!((found.snapshot.number, found.snapshot.manifest.versions.len()), (number, number as usize));
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_has_one_winner() {
    let (repository, _, _) = repository().await;
    let (a, b) = tokio::join!(publish(&repository, 1, manifest(1)), publish(&repository, 1, manifest(2)));
    let outcomes = [a.expect("answered"), b.expect("answered")];
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Published::Lost)).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Published::Won { .. })).count(), 1);
}

/// A pass that slept while others published, and deleted the old numbers: its number is free again, and counts for nothing.
#[tokio::test(start_paused = true)]
async fn a_number_that_was_in_use_long_ago_is_no_victory() {
    let (repository, memory, _) = repository().await;
    for number in 1..=3 {
        won(publish(&repository, number, manifest(number as u8)).await.expect("published"));
    }
    memory.remove(&names::index(1)).await;
    memory.remove(&names::index(2)).await;
    let late = publish(&repository, 2, manifest(9)).await.expect("answered");
    assert!(matches!(late, Published::Overtaken { highest: 3 }), "{late:?}");
    assert_eq!(newest(&repository).await.snapshot.number, 3);
}

#[tokio::test(start_paused = true)]
async fn a_create_without_an_answer_is_settled_by_what_is_there() {
    let (repository, _, faults) = repository().await;
    faults.add(When::kind(OpKind::Put).path("index/"), Fault::FailAfter(Failure::Timeout), Times::First(1));
    assert!(
        won(publish(&repository, 1, manifest(1)).await.expect("published")),
        "the one attempt that was made is known"
    );
    // Every attempt is applied or not, and none is answered: the store gives up, the object tells.
    faults.add(When::kind(OpKind::Put).path("index/"), Fault::FailAfter(Failure::Denied), Times::First(1));
    assert!(!won(publish(&repository, 2, manifest(2)).await.expect("published")));
    faults.add(When::kind(OpKind::Put).path("index/"), Fault::FailBefore(Failure::Denied), Times::First(1));
    assert!(publish(&repository, 3, manifest(3)).await.is_err(), "nothing is there, and it may still come");
    assert_eq!(newest(&repository).await.snapshot.number, 2);
}

#[tokio::test(start_paused = true)]
async fn readers_pass_over_what_does_not_open_and_passes_do_not() {
    let (repository, memory, _) = repository().await;
    won(publish(&repository, 1, manifest(1)).await.expect("published"));
    won(publish(&repository, 2, manifest(2)).await.expect("published"));
    memory.put("index/7", &b"garbage"[..]).await;
    let copy = memory.get("index/1").await.expect("there");
    memory.put("index/5", copy).await;
    memory.put("index/notes", &b"not ours"[..]).await;
    let found = newest(&repository).await;
    assert_eq!((found.snapshot.number, found.highest, found.next_number().expect("8")), (2, 7, 8));
    assert_eq!(found.faulty.iter().map(|faulty| faulty.number).collect::<Vec<_>>(), [7, 5]);
    let error = found.base().expect_err("something lies above it");
    assert!(matches!(&error, IndexError::NewestUnreadable { source } if source.to_string().contains("index/7")));
    assert!(error.is_damage());
}

#[tokio::test(start_paused = true)]
async fn a_damaged_index_is_named() {
    let (repository, memory, _) = repository().await;
    won(publish(&repository, 1, manifest(1)).await.expect("published"));
    let valid = memory.get("index/1").await.expect("there");
    for damage in [0, 30, valid.len() / 2, valid.len() - 1] {
        memory.change("index/1", |bytes| bytes[damage] ^= 1).await;
        let found = newest(&repository).await;
        assert_eq!((found.snapshot.number, found.faulty.len()), (0, 1));
        assert!(found.faulty[0].error.to_string().contains("index/1"), "{}", found.faulty[0].error);
        memory.put("index/1", valid.clone()).await;
    }
    memory.put("index/1", valid.slice(..valid.len() - 3)).await;
    assert!(newest(&repository).await.base().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_planted_number_at_the_end_of_all_numbers_is_named() {
    let (repository, memory, _) = repository().await;
    memory.put(&names::index(u64::MAX), &b"garbage"[..]).await;
    let error = newest(&repository).await.next_number().expect_err("no number is left");
    assert!(error.to_string().contains("18446744073709551615"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_index_that_vanishes_after_the_listing_is_looked_for_again() {
    let (repository, memory, faults) = repository().await;
    won(publish(&repository, 1, manifest(1)).await.expect("published"));
    faults.add(When::kind(OpKind::Get).path("index/1"), Fault::FailBefore(Failure::Status(404)), Times::First(2));
    assert_eq!(newest(&repository).await.snapshot.number, 1);
    faults.add(When::kind(OpKind::Get).path("index/1"), Fault::FailBefore(Failure::Status(404)), Times::First(99));
    assert!(matches!(IndexSnapshot::newest(&repository).await, Err(IndexError::Unstable { attempts: 5 })));
    drop(memory);
}

/// The mark comes before the first index, and outlives it: whoever has found neither wins nothing once there is the mark, and a
/// rebuild does.
#[tokio::test(start_paused = true)]
async fn a_lost_index_can_be_told_from_none() {
    let (repository, memory, faults) = repository().await;
    assert!(!has_been_indexed(&repository).await.expect("answered"));
    faults.add(When::kind(OpKind::Put).path("index/"), Fault::FailBefore(Failure::Denied), Times::First(1));
    assert!(publish(&repository, 1, manifest(1)).await.is_err());
    assert!(has_been_indexed(&repository).await.expect("answered"), "it may still come");
    assert!(matches!(publish(&repository, 1, manifest(1)).await.expect("answered"), Published::Lost));
    assert_eq!(newest(&repository).await.highest, 0);
    let mut rebuilt = manifest(1);
    rebuilt.head.rebuilt = Some(0);
    assert!(won(publish(&repository, 1, rebuilt.clone()).await.expect("published")));
    assert!(won(publish(&repository, 2, manifest(2)).await.expect("published")), "it has a base");
    // A rebuild above what cannot be read, in a repository that has no mark.
    memory.remove(names::INDEXED).await;
    assert!(won(publish(&repository, 3, rebuilt).await.expect("published")));
    assert!(has_been_indexed(&repository).await.expect("answered"));
}
