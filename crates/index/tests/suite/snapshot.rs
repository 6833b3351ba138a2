//! The newest index is found, of all who contest a number one wins and the others know, and an index that was lost is missed.

use crate::support::*;
use larder_format::index_mark::IndexMark;
use larder_format::names;
use larder_index::{Current, IndexError, IndexSnapshot, Newest, Published, State, Turn, publish};
use larder_store::Repository;
use larder_testkit::{Failure, Fault, OpKind, Stop, Times, When};

async fn newest(repository: &Repository) -> Newest {
    IndexSnapshot::newest(repository).await.expect("can be read")
}

async fn settled(repository: &Repository) -> Current {
    Current::settle(repository).await.expect("can be read")
}

async fn turn(repository: &Repository) -> Turn {
    settled(repository).await.turn().expect("there is a number")
}

/// Publishes what a pass decided that begins now.
async fn publish_next(repository: &Repository, pass: u8) -> Result<Published, IndexError> {
    publish(repository, &turn(repository).await, manifest(pass)).await
}

fn won(published: Published) -> bool {
    let Published::Won { snapshot, all_answered } = published else { panic!("{published:?}") };
    assert!(snapshot.number > 0);
    all_answered
}

fn mark(repository: &Repository, number: u64, mark: IndexMark) -> bytes::Bytes {
    mark.encode(repository.keys(), number, [3; 32]).expect("fits").into()
}

#[tokio::test(start_paused = true)]
async fn a_repository_without_an_index_has_the_empty_one() {
    let (repository, _, _) = repository().await;
    let found = newest(&repository).await;
    assert_eq!((found.snapshot.clone(), found.highest), (IndexSnapshot::empty(), 0));
    let current = settled(&repository).await;
    assert_eq!(current.turn().expect("1").number, 1);
    assert_eq!(current.base().expect("nothing was lost").number, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_published_is_the_newest_and_marked() {
    let (repository, memory, _) = repository().await;
    for number in 1..=11 {
        assert!(won(publish_next(&repository, number as u8).await.expect("published")));
        let found = newest(&repository).await;
        assert_eq!((found.snapshot.number, found.snapshot.manifest.versions.len()), (number, number as usize));
        let bytes = memory.get(&names::indexed(number)).await.expect("there");
        let attempt = found.snapshot.manifest.head.attempt;
        assert_eq!(IndexMark::decode(repository.keys(), number, &bytes), Ok(IndexMark::Counts(attempt)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_has_one_winner() {
    let (repository, _, _) = repository().await;
    let turn = turn(&repository).await;
    let (a, b) = tokio::join!(publish(&repository, &turn, manifest(1)), publish(&repository, &turn, manifest(2)));
    let outcomes = [a.expect("answered"), b.expect("answered")];
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Published::Lost)).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Published::Won { .. })).count(), 1);
}

/// A pass that slept while others published, and deleted the old numbers: its number is free again, and counts for nothing. Also when
/// the indexes above it were lost and only their marks are left.
#[tokio::test(start_paused = true)]
async fn a_number_that_was_in_use_long_ago_is_no_victory() {
    let (repository, memory, _) = repository().await;
    won(publish_next(&repository, 1).await.expect("published"));
    let late = turn(&repository).await;
    for number in 2..=3 {
        won(publish_next(&repository, number).await.expect("published"));
    }
    for number in 1..=2 {
        memory.remove(&names::index(number)).await;
        memory.remove(&names::indexed(number)).await;
    }
    let published = publish(&repository, &late, manifest(9)).await.expect("answered");
    assert!(matches!(published, Published::Overtaken { highest: 3 }), "{published:?}");
    assert_eq!(newest(&repository).await.snapshot.number, 3);
    memory.remove(&names::index(2)).await;
    memory.remove(&names::index(3)).await;
    let published = publish(&repository, &late, manifest(9)).await.expect("answered");
    assert!(matches!(published, Published::Overtaken { highest: 3 }), "{published:?}");
    assert!(matches!(settled(&repository).await.state, State::Lost { number: 3 }));
}

#[tokio::test(start_paused = true)]
async fn a_create_without_an_answer_is_settled_by_what_is_there() {
    let (repository, _, faults) = repository().await;
    faults.add(When::kind(OpKind::Put).path("index/"), Fault::FailAfter(Failure::Timeout), Times::First(1));
    assert!(won(publish_next(&repository, 1).await.expect("published")), "the one attempt that was made is known");
    // Every attempt is applied or not, and none is answered: the store fails, the object tells.
    faults.add(When::kind(OpKind::Put).path("index/"), Fault::FailAfter(Failure::Denied), Times::First(1));
    assert!(!won(publish_next(&repository, 2).await.expect("published")));
    faults.add(When::kind(OpKind::Put).path("indexed/"), Fault::FailAfter(Failure::Denied), Times::First(1));
    won(publish_next(&repository, 3).await.expect("published"));
    faults.add(When::kind(OpKind::Put).path("index/"), Fault::FailBefore(Failure::Denied), Times::First(1));
    assert!(publish_next(&repository, 4).await.is_err(), "nothing is there, and it may still come");
    assert_eq!(newest(&repository).await.snapshot.number, 3);
    faults.add(When::kind(OpKind::Put).path("indexed/"), Fault::FailBefore(Failure::Denied), Times::First(1));
    assert!(publish_next(&repository, 5).await.is_err(), "the index is there, and its mark may still come");
    assert_eq!(settled(&repository).await.snapshot.number, 4, "who builds on it marks it");
}

/// What does not open and has no mark is made void, whatever its number, and the next number follows the index that counts.
#[tokio::test(start_paused = true)]
async fn garbage_costs_a_void_mark() {
    let (repository, memory, faults) = repository().await;
    won(publish_next(&repository, 1).await.expect("published"));
    won(publish_next(&repository, 2).await.expect("published"));
    memory.put("index/7", &b"garbage"[..]).await;
    memory.put(&names::index(u64::MAX), &b"garbage"[..]).await;
    let copy = memory.get("index/1").await.expect("there");
    memory.put("index/3", copy).await;
    memory.put("index/notes", &b"not ours"[..]).await;
    let found = newest(&repository).await;
    assert_eq!((found.snapshot.number, found.highest), (2, u64::MAX));
    assert_eq!(found.faulty.iter().map(|faulty| faulty.number).collect::<Vec<_>>(), [u64::MAX, 7, 3]);
    let looked = Current::look(&repository).await.expect("can be read").base().expect("it is nothing");
    assert_eq!(looked.number, 2);
    assert!(memory.get("indexed/7").await.is_none(), "a look changes nothing");
    assert_eq!(turn(&repository).await.number, 4, "3 is taken");
    for number in [3, 7, u64::MAX] {
        let bytes = memory.get(&names::indexed(number)).await.expect("it is void");
        assert_eq!(IndexMark::decode(repository.keys(), number, &bytes), Ok(IndexMark::Void));
    }
    let before = faults.count();
    won(publish_next(&repository, 4).await.expect("published"));
    assert_eq!(settled(&repository).await.snapshot.number, 4);
    assert!(faults.count() - before < 20);
    // And a mark that was planted beside it changes nothing, far above all others; close to them it may have been genuine.
    memory.put(&names::index(u64::MAX - 1), &b"garbage"[..]).await;
    memory.put(&names::indexed(u64::MAX - 1), &b"garbage"[..]).await;
    assert_eq!(turn(&repository).await.number, 5);
    memory.put("index/6", &b"garbage"[..]).await;
    memory.put("indexed/6", &b"garbage"[..]).await;
    let current = settled(&repository).await;
    assert!(current.turn_of_rebuild(0).expect("there is one").number > 7);
    let error = current.base().expect_err("it may have counted");
    assert!(matches!(&error, IndexError::NewestUnreadable { source } if source.to_string().contains("index/6")));
    assert!(error.is_damage());
}

/// Its maker wakes after its number was made void: it has lost.
#[tokio::test(start_paused = true)]
async fn a_void_index_counts_for_nothing() {
    let (repository, memory, faults) = repository().await;
    won(publish_next(&repository, 1).await.expect("published"));
    let slow = turn(&repository).await;
    // It sleeps before its mark, and what it published cannot be read just then.
    faults.add(When::kind(OpKind::Put).path("indexed/2"), Fault::FailBefore(Failure::Denied), Times::First(1));
    assert!(publish(&repository, &slow, manifest(2)).await.is_err());
    memory.change("index/2", |bytes| bytes[40] ^= 1).await;
    assert_eq!(settled(&repository).await.snapshot.number, 1);
    memory.change("index/2", |bytes| bytes[40] ^= 1).await;
    let bytes = memory.get("indexed/2").await.expect("there");
    assert_eq!(IndexMark::decode(repository.keys(), 2, &bytes), Ok(IndexMark::Void));
    let current = settled(&repository).await;
    assert_eq!((current.snapshot.number, current.turn().expect("3").number), (1, 3));
    assert_eq!(newest(&repository).await.snapshot.number, 2, "to readers it is good enough");
    won(publish_next(&repository, 3).await.expect("published"));
    assert_eq!(settled(&repository).await.snapshot.number, 3);
}

/// Who skips a number sees to it that nobody can win it afterwards.
#[tokio::test(start_paused = true)]
async fn a_number_that_was_skipped_is_void() {
    let (repository, memory, faults) = repository().await;
    won(publish_next(&repository, 1).await.expect("published"));
    let slow = turn(&repository).await;
    memory.remove("index/1").await;
    let current = settled(&repository).await;
    assert!(matches!(current.state, State::Lost { number: 1 }));
    let rebuild = current.turn_of_rebuild(2).expect("there is one");
    assert_eq!((slow.number, rebuild.number), (2, 3));
    faults.add(When::kind(OpKind::Put).path("indexed/2"), Fault::FailBefore(Failure::Denied), Times::First(1));
    assert!(publish(&repository, &slow, manifest(2)).await.is_err(), "it sleeps before its mark");
    won(publish(&repository, &rebuild, manifest(3)).await.expect("published"));
    let bytes = memory.get("indexed/2").await.expect("there");
    assert_eq!(IndexMark::decode(repository.keys(), 2, &bytes), Ok(IndexMark::Void));
    assert_eq!(settled(&repository).await.snapshot.number, 3);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_index_is_named() {
    let (repository, memory, _) = repository().await;
    won(publish_next(&repository, 1).await.expect("published"));
    let valid = memory.get("index/1").await.expect("there");
    for damage in [0, 30, valid.len() / 2, valid.len() - 1] {
        memory.change("index/1", |bytes| bytes[damage] ^= 1).await;
        let found = newest(&repository).await;
        assert_eq!((found.snapshot.number, found.faulty.len()), (0, 1));
        assert!(found.faulty[0].error.to_string().contains("index/1"), "{}", found.faulty[0].error);
        let error = settled(&repository).await.base().expect_err("it counts");
        assert!(matches!(&error, IndexError::NewestUnreadable { source } if source.to_string().contains("index/1")));
        memory.put("index/1", valid.clone()).await;
    }
    memory.put("index/1", valid.slice(..valid.len() - 3)).await;
    assert!(settled(&repository).await.base().is_err());
}

/// The newest alone is gone, or another attempt has its name: nobody takes the one before it for the truth.
#[tokio::test(start_paused = true)]
async fn a_lost_index_is_missed() {
    let (repository, memory, faults) = repository().await;
    won(publish_next(&repository, 1).await.expect("published"));
    let copy = memory.get("index/1").await.expect("there");
    let older = turn(&repository).await;
    won(publish_next(&repository, 2).await.expect("published"));
    let two = memory.get("index/2").await.expect("there");
    memory.remove("index/2").await;
    for current in [Current::look(&repository).await, Current::settle(&repository).await] {
        let current = current.expect("can be read");
        assert!(matches!(current.state, State::Lost { number: 2 }), "{current:?}");
        assert_eq!(current.snapshot.number, 1, "for its counters");
        assert_eq!(current.turn_of_rebuild(0).expect("3").number, 3);
        let error = current.base().expect_err("it is lost");
        assert!(error.is_damage() && error.to_string().contains("index/2"), "{error}");
    }
    // Somebody who slept publishes under its name.
    assert!(matches!(publish(&repository, &older, manifest(9)).await.expect("answered"), Published::Lost));
    assert!(matches!(settled(&repository).await.state, State::Lost { number: 2 }));
    // A listing that lacks it is not enough.
    memory.put("index/2", two).await;
    assert_eq!(settled(&repository).await.snapshot.number, 2);
    faults.add(When::kind(OpKind::Get).path("index/2"), Fault::FailBefore(Failure::Status(404)), Times::First(1));
    assert_eq!(settled(&repository).await.snapshot.number, 2, "nor is one answer");
    // All are gone, and so is one of the marks.
    for name in ["index/1", "index/2", "indexed/1"] {
        memory.remove(name).await;
    }
    assert!(matches!(settled(&repository).await.state, State::Lost { number: 2 }));
    // What counts is the highest mark; an unreadable one counts when it is not far above.
    memory.put("index/1", copy).await;
    memory.put("indexed/2", &b"garbage"[..]).await;
    assert!(matches!(settled(&repository).await.state, State::Lost { number: 2 }));
    memory.remove("indexed/2").await;
    memory.put(&names::indexed(1 << 40), &b"garbage"[..]).await;
    let current = settled(&repository).await;
    assert_eq!((current.turn().expect("2").number, current.base().expect("it is there").number), (2, 1));
    memory.put("indexed/2", mark(&repository, 2, IndexMark::Void)).await;
    assert_eq!(turn(&repository).await.number, 3);
}

/// Dies at any operation of publication: whoever comes next finds the index before it or the new one, whole, and goes on.
#[tokio::test(start_paused = true)]
async fn publication_may_be_cut_at_any_operation() {
    for stop in [Stop::Before, Stop::After] {
        let mut outcomes = Vec::new();
        for operation in 0..8 {
            let (repository, memory, faults) = repository().await;
            won(publish_next(&repository, 1).await.expect("published"));
            let turn = turn(&repository).await;
            let before = faults.count();
            faults.stop_at(before + operation, stop);
            let published = publish(&repository, &turn, manifest(2)).await;
            let is_over = matches!(published, Ok(Published::Won { .. }));
            let engine = other(&memory).await;
            let current = settled(&engine).await;
            assert!(matches!(current.state, State::Whole), "after {operation} operations: {:?}", current.state);
            outcomes.push((is_over, current.snapshot.number));
            assert!(won(publish_next(&engine, 3).await.expect("published")));
            if is_over {
                break;
            }
        }
        assert_eq!(outcomes.last(), Some(&(true, 2)), "{outcomes:?}");
        assert!(outcomes.iter().any(|(is_over, number)| !is_over && *number == 2), "{outcomes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_that_vanishes_after_the_listing_is_looked_for_again() {
    let (repository, memory, faults) = repository().await;
    won(publish_next(&repository, 1).await.expect("published"));
    faults.add(When::kind(OpKind::Get).path("index/1"), Fault::FailBefore(Failure::Status(404)), Times::First(2));
    assert_eq!(newest(&repository).await.snapshot.number, 1);
    faults.add(When::kind(OpKind::Get).path("index/1"), Fault::FailBefore(Failure::Status(404)), Times::First(99));
    assert!(matches!(IndexSnapshot::newest(&repository).await, Err(IndexError::Unstable { attempts: 5 })));
    drop(memory);
}
