//! Settings of series: the last entry that opens counts, changes at once are all made, nothing is overwritten, and what others took the
//! place of may be cleaned up at any time.

use std::time::Duration;

use larder_format::ids::{SeriesKey, SettingsOf};
use larder_format::layout::Layout;
use larder_format::names;
use larder_store::settings::{Settings, SettingsChange};
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::{Fault, FaultStore, Faults, Memory, OpKind, Stop, Times, When};

use crate::support::faulty_repository;

const OWN: Option<&str> = Some("host:/home");
const DEFAULT: Option<&str> = None;

const LIFECYCLE: SettingsChange =
    SettingsChange { layout: Some(Layout::Lifecycle), holes_percent: None, arrange_every: None };

fn holes(percent: u8) -> SettingsChange {
    SettingsChange { holes_percent: Some(percent), ..SettingsChange::default() }
}

struct Play {
    memory: Memory,
    repository: Repository,
    faults: Faults,
}

impl Play {
    async fn new() -> Self {
        let (memory, repository, faults) = faulty_repository().await;
        Self { memory, repository, faults }
    }

    async fn set(&self, of: Option<&str>, change: SettingsChange) {
        self.repository.set_settings(of, change, 1, "host").await.expect("set");
    }

    fn key(&self) -> SeriesKey {
        self.repository.keys().series_key("host:/home")
    }

    fn entry(&self, number: u32) -> String {
        names::settings(SettingsOf::Series(self.key()), number)
    }

    async fn holds(&self) -> (Layout, u8) {
        let Settings { layout, holes_percent, .. } = self.repository.settings(self.key()).await.expect("can be read");
        (layout, holes_percent)
    }

    async fn entries(&self) -> Vec<String> {
        let mut paths = self.memory.paths().await;
        paths.retain(|path| path.starts_with("settings/"));
        paths
    }
}

#[tokio::test]
async fn what_is_set_for_a_series_holds_before_what_is_set_for_all() {
    let play = Play::new().await;
    assert_eq!(play.holds().await, (Layout::Standard, 20));
    play.set(DEFAULT, LIFECYCLE).await;
    play.set(DEFAULT, holes(5)).await;
    assert_eq!(play.holds().await, (Layout::Lifecycle, 5));
    play.set(OWN, SettingsChange { layout: Some(Layout::Standard), ..SettingsChange::default() }).await;
    assert_eq!(play.holds().await, (Layout::Standard, 5));
    play.set(OWN, holes(0)).await;
    assert_eq!(play.holds().await, (Layout::Standard, 0));
    let others = play.repository.settings(SeriesKey([4; 16])).await.expect("can be read");
    assert_eq!((others.layout, others.holes_percent), (Layout::Lifecycle, 5));
    let all = play.repository.all_settings().await.expect("can be read");
    let all: Vec<_> = all.into_iter().map(|(of, set)| (of, set.layout, set.holes_percent, set.series)).collect();
    let default = (SettingsOf::Default, Some(Layout::Lifecycle), Some(5), String::new());
    let own = (SettingsOf::Series(play.key()), Some(Layout::Standard), Some(0), "host:/home".to_owned());
    assert_eq!(all, [default, own]);
    // What is so already costs no object, and nothing is ever removed.
    play.set(OWN, holes(0)).await;
    assert_eq!(play.entries().await.len(), 4);
    assert!(play.faults.log().iter().all(|op| op.kind != OpKind::Delete));
}

#[tokio::test]
async fn what_does_not_open_does_not_count_and_is_in_nobody_s_way() {
    let play = Play::new().await;
    play.memory.put(&play.entry(0), "planted").await;
    assert_eq!(play.holds().await, (Layout::Standard, 20));
    play.set(OWN, LIFECYCLE).await;
    play.memory.put(&play.entry(7), "planted").await;
    play.memory.put("settings/default/07", "no name of ours").await;
    assert_eq!(play.holds().await, (Layout::Lifecycle, 20));
    play.set(OWN, holes(1)).await;
    assert_eq!(play.holds().await, (Layout::Lifecycle, 1));
    assert!(play.entries().await.contains(&play.entry(8)));
    // An entry of one series says nothing about another, wherever it is put.
    let bytes = play.memory.get(&play.entry(8)).await.expect("it is there");
    play.memory.put(&names::settings(SettingsOf::Default, 8), bytes).await;
    let others = play.repository.settings(SeriesKey([4; 16])).await.expect("can be read");
    assert_eq!((others.layout, others.holes_percent), (Layout::Standard, 20));
    // Whoever takes the last number keeps others from changes, and nothing else.
    play.memory.put(&play.entry(u32::MAX), "planted").await;
    assert!(play.repository.set_settings(OWN, holes(2), 1, "host").await.is_err());
    assert_eq!(play.holds().await, (Layout::Lifecycle, 1));
}

#[tokio::test]
async fn changes_at_once_are_all_made() {
    for _ in 0..20 {
        let play = Play::new().await;
        tokio::join!(play.set(OWN, LIFECYCLE), play.set(OWN, holes(3)), play.set(OWN, LIFECYCLE));
        assert_eq!(play.holds().await, (Layout::Lifecycle, 3));
        assert_eq!(play.entries().await.len(), 2);
    }
}

/// A change dies at each of its requests, with and without effect; it is made or it is not, and can be made again.
#[tokio::test]
async fn a_change_that_dies_is_made_or_not() {
    for cut in 0.. {
        let mut died = false;
        for stop in [Stop::Before, Stop::After] {
            let play = Play::new().await;
            play.set(OWN, holes(3)).await;
            play.faults.stop_at(play.faults.count() + cut, stop);
            let result = play.repository.set_settings(OWN, LIFECYCLE, 1, "host").await;
            died |= play.faults.stopped();
            assert_eq!(result.is_err(), play.faults.stopped(), "cut {cut}, {stop:?}");
            play.faults.clear();
            let held = play.holds().await;
            assert!(result.is_err() || held == (Layout::Lifecycle, 3), "cut {cut}, {stop:?}");
            assert!([(Layout::Standard, 3), (Layout::Lifecycle, 3)].contains(&held), "cut {cut}, {stop:?}");
            play.set(OWN, LIFECYCLE).await;
            assert_eq!(play.holds().await, (Layout::Lifecycle, 3));
            assert_eq!(play.entries().await.len(), 2);
        }
        if !died {
            assert!(cut >= 2);
            break;
        }
    }
}

/// A repository over the same objects, through a store that makes the first operation of a kind on settings late by a second, and another
/// through one that does not.
fn slow_and_quick(play: &Play, kind: OpKind) -> (Repository, Repository) {
    let (store, faults) = FaultStore::new(play.memory.store());
    let late = Fault::Delay(Duration::from_secs(1));
    faults.add(When::kind(kind).path("settings/"), late, Times::First(1));
    let options = StoreOptions::default();
    let slow = Store::from_object_store(store, "", &options).expect("opens");
    let quick = Store::from_object_store(play.memory.store(), "", &options).expect("opens");
    (play.repository.through(slow), play.repository.through(quick))
}

async fn clean_up(repository: &Repository) -> Vec<String> {
    let superseded = repository.superseded_settings().await.expect("listed");
    for name in &superseded {
        repository.store().delete(name).await.expect("deleted");
    }
    superseded
}

#[tokio::test]
async fn what_a_higher_entry_took_the_place_of_may_go_and_nothing_else() {
    let play = Play::new().await;
    for percent in 1..=3 {
        play.set(OWN, holes(percent)).await;
    }
    play.set(DEFAULT, holes(50)).await;
    // Another program may be able to read it.
    play.memory.put(&play.entry(7), "planted").await;
    assert_eq!(clean_up(&play.repository).await, [play.entry(0), play.entry(1)]);
    assert_eq!(play.holds().await, (Layout::Standard, 3));
    let faulty = play.repository.faulty_settings().await.expect("listed");
    assert_eq!(faulty.into_iter().map(|entry| entry.name).collect::<Vec<_>>(), [play.entry(7)]);
    play.set(OWN, LIFECYCLE).await;
    assert!(play.repository.faulty_settings().await.expect("listed").is_empty());
    assert_eq!(clean_up(&play.repository).await, [play.entry(2), play.entry(7)]);
    assert_eq!(clean_up(&play.repository).await, [""; 0]);
    assert_eq!(play.holds().await, (Layout::Lifecycle, 3));
    let mut left = [names::settings(SettingsOf::Default, 0), play.entry(8)];
    left.sort();
    let mut entries = play.entries().await;
    entries.sort();
    assert_eq!(entries, left);
}

/// A reader has listed; before it reads, the entry that it is about to read is superseded and deleted.
#[tokio::test(start_paused = true)]
async fn a_reader_finds_what_holds_while_others_clean_up() {
    let play = Play::new().await;
    play.set(OWN, holes(3)).await;
    let (slow, quick) = slow_and_quick(&play, OpKind::Get);
    let others = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        quick.set_settings(OWN, holes(4), 1, "host").await.expect("set");
        assert_eq!(clean_up(&quick).await, [play.entry(0)]);
    };
    let (read, ()) = tokio::join!(slow.settings_of(SettingsOf::Series(play.key())), others);
    assert_eq!(read.expect("can be read").holes_percent, Some(4));
}

/// Somebody who changes settings sleeps before the entry is created; its number is used and deleted meanwhile.
#[tokio::test(start_paused = true)]
async fn a_change_that_wins_a_number_which_was_used_long_ago_is_made_all_the_same() {
    let play = Play::new().await;
    play.set(OWN, holes(3)).await;
    let (slow, quick) = slow_and_quick(&play, OpKind::Put);
    let others = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        for percent in [4, 5] {
            quick.set_settings(OWN, holes(percent), 1, "host").await.expect("set");
        }
        assert_eq!(clean_up(&quick).await, [play.entry(0), play.entry(1)]);
    };
    let (set, ()) = tokio::join!(slow.set_settings(OWN, LIFECYCLE, 1, "host"), others);
    let set = set.expect("set");
    assert_eq!((set.layout, set.holes_percent), (Some(Layout::Lifecycle), Some(5)));
    assert_eq!(play.holds().await, (Layout::Lifecycle, 5));
}
