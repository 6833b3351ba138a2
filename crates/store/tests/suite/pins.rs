//! A version is never pinned and forgotten at once, whoever dies or is slow in between, and nothing is overwritten for it.

use larder_format::ids::{JobId, SeriesKey};
use larder_format::lease::Pin;
use larder_format::mark::Forgotten;
use larder_format::names;
use larder_store::Repository;
use larder_store::pins::PinError;
use larder_testkit::{Faults, Memory, OpKind, Stop};

use crate::support::faulty_repository;

const VERSION: Pin = Pin { series: SeriesKey([3; 16]), job: JobId([4; 16]) };

struct Play {
    memory: Memory,
    repository: Repository,
    faults: Faults,
}

impl Play {
    async fn new() -> Self {
        let (memory, repository, faults) = faulty_repository().await;
        let play = Self { memory, repository, faults };
        play.memory.put(&Self::register(), "only that it is there counts").await;
        play
    }

    async fn pin(&self) -> Result<(), PinError> {
        self.repository.pin(VERSION, 1, "host", "wanted").await
    }

    async fn unpin(&self) -> Result<(), PinError> {
        self.repository.unpin(VERSION, 2, "host", "no longer wanted").await
    }

    async fn forget(&self) -> Result<(), PinError> {
        let mark = Forgotten { time_ms: 3, host: "host".to_owned(), reason: "old".to_owned() };
        self.repository.forget(VERSION, &mark).await
    }

    async fn is_marked(&self) -> bool {
        self.repository.forgotten(VERSION).await.expect("can be read").is_some()
    }

    async fn is_pinned(&self) -> bool {
        self.repository.pinned().await.expect("can be read").contains_key(&VERSION)
    }

    fn register() -> String {
        names::version(VERSION.series, VERSION.job, 0)
    }

    fn entry(number: u32) -> String {
        names::pin(VERSION.series, VERSION.job, number)
    }
}

#[tokio::test]
async fn a_pinned_version_is_forgotten_only_after_it_was_unpinned() {
    let play = Play::new().await;
    assert!(!play.is_pinned().await);
    play.unpin().await.expect("it is not pinned anyway");
    play.pin().await.expect("pins");
    play.pin().await.expect("it is pinned already");
    assert!(play.is_pinned().await);
    assert!(matches!(play.forget().await, Err(PinError::Pinned { entry }) if entry.reason == "wanted"));
    assert!(!play.is_marked().await);
    play.unpin().await.expect("unpins");
    assert!(!play.is_pinned().await);
    play.pin().await.expect("pins again");
    play.unpin().await.expect("unpins again");
    play.forget().await.expect("forgets");
    assert!(play.is_marked().await);
    play.forget().await.expect("it is forgotten already");
    assert!(matches!(play.pin().await, Err(PinError::Forgotten { .. })));
    assert!(matches!(play.unpin().await, Err(PinError::Forgotten { .. })));
    assert!(!play.is_pinned().await);
    let overwritten = play.faults.log().iter().filter(|op| op.kind == OpKind::Delete).count();
    assert_eq!(overwritten, 0);
    // Four changes and the last one, and the mark: what is already so costs no object.
    assert_eq!(play.memory.paths().await.iter().filter(|path| path.starts_with("pins/")).count(), 5);
}

/// Forgetting, or pinning, dies at each of its requests, with and without effect; then somebody does the other.
#[tokio::test]
async fn whoever_dies_in_between_a_version_is_not_pinned_and_forgotten_at_once() {
    for forgetting_dies in [true, false] {
        for cut in 0.. {
            let mut died = false;
            for stop in [Stop::Before, Stop::After] {
                let play = Play::new().await;
                play.faults.stop_at(play.faults.count() + cut, stop);
                let result = if forgetting_dies { play.forget().await } else { play.pin().await };
                died |= play.faults.stopped();
                assert_eq!(result.is_err(), play.faults.stopped(), "cut {cut}, {stop:?}");
                play.faults.clear();
                let other = if forgetting_dies { play.pin().await } else { play.forget().await };
                let (marked, pinned) = (play.is_marked().await, play.is_pinned().await);
                assert!(!(marked && pinned), "cut {cut}, {stop:?}");
                let wanted = if forgetting_dies { pinned } else { marked };
                assert_eq!(other.is_ok(), wanted, "what succeeded has its effect: cut {cut}, {stop:?}");
                assert!(result.is_err() || other.is_err(), "only one of them succeeds: cut {cut}, {stop:?}");
                // Whatever happened, a person gets out of it.
                if pinned {
                    play.unpin().await.expect("unpins");
                }
                play.forget().await.expect("forgets");
                assert!(play.is_marked().await);
            }
            if !died {
                assert!(cut >= 2);
                break;
            }
        }
    }
}

#[tokio::test]
async fn of_many_at_once_forgetting_or_a_pin_wins_and_the_others_know() {
    for round in 0..20 {
        let play = Play::new().await;
        let (pin, forget) = if round % 2 == 0 {
            tokio::join!(play.pin(), play.forget())
        } else {
            let (forget, pin) = tokio::join!(play.forget(), play.pin());
            (pin, forget)
        };
        assert!(pin.is_ok() != forget.is_ok());
        assert_eq!(play.is_pinned().await, pin.is_ok());
        assert_eq!(play.is_marked().await, forget.is_ok());
    }
}

#[tokio::test]
async fn what_was_removed_cannot_be_pinned() {
    let play = Play::new().await;
    play.memory.remove(&Play::register()).await;
    assert!(matches!(play.pin().await, Err(PinError::Gone)));
}

/// Who may only create objects can keep a version from being forgotten until somebody says what holds, but pins and hides nothing.
#[tokio::test]
async fn planted_entries_are_not_believed_and_not_acted_against() {
    let play = Play::new().await;
    play.memory.put(&Play::entry(0), "garbage").await;
    assert!(matches!(play.forget().await, Err(PinError::Unclear { name }) if name == Play::entry(0)));
    play.unpin().await.expect("somebody with the key says what holds");
    play.memory.put(&Play::entry(7), "garbage").await;
    assert!(matches!(play.forget().await, Err(PinError::Unclear { .. })));
    play.pin().await.expect("goes above the garbage");
    assert!(play.is_pinned().await);
    play.unpin().await.expect("unpins");
    play.forget().await.expect("nothing is unclear");
    // Above the last entry of all anything may lie.
    play.memory.put(&Play::entry(99), "garbage").await;
    play.forget().await.expect("it is forgotten");
    assert!(matches!(play.pin().await, Err(PinError::Forgotten { .. })));
}

/// A program that dies in between leaves a pin. So a successor cannot be forgotten before its predecessor is marked.
#[tokio::test]
async fn a_held_version_is_not_forgotten_and_then_is_as_it_was() {
    for is_pinned in [false, true] {
        let play = Play::new().await;
        if is_pinned {
            play.pin().await.expect("pinned");
        }
        let hold = play.repository.hold(VERSION, 5, "host", "for a moment").await.expect("held");
        assert!(matches!(play.forget().await, Err(PinError::Pinned { .. })) && !play.is_marked().await);
        play.repository.release(hold, 6).await.expect("released");
        assert_eq!(play.is_pinned().await, is_pinned);
        let line = play.repository.pin_line(VERSION).await.expect("read");
        assert_eq!(line.last.expect("there").reason, if is_pinned { "wanted" } else { "held: for a moment" });
    }
    let play = Play::new().await;
    play.forget().await.expect("forgotten");
    assert!(matches!(play.repository.hold(VERSION, 5, "host", "too late").await, Err(PinError::Forgotten { .. })));
    let play = Play::new().await;
    play.memory.put(&Play::entry(0), "perhaps a pin").await;
    assert!(matches!(play.repository.hold(VERSION, 5, "host", "unclear").await, Err(PinError::Unclear { .. })));
}

#[tokio::test]
async fn a_change_while_a_version_is_held_outlasts_the_hold() {
    let hold = async |play: &Play| play.repository.hold(VERSION, 5, "host", "for a moment").await.expect("held");
    let release = async |play: &Play, hold| play.repository.release(hold, 6).await.expect("released");
    let play = Play::new().await;
    let held = hold(&play).await;
    play.pin().await.expect("pinned as well");
    release(&play, held).await;
    assert!(play.is_pinned().await, "somebody pinned it meanwhile");
    let held = hold(&play).await;
    play.unpin().await.expect("unpinned");
    release(&play, held).await;
    assert!(!play.is_pinned().await, "somebody unpinned it meanwhile");
    // Two programs hold it, and the first one ends first.
    let (first, second) = (hold(&play).await, hold(&play).await);
    release(&play, first).await;
    assert!(play.is_pinned().await, "the second one still holds it");
    release(&play, second).await;
}
