//! Tags of versions change in the line of their pins, and neither replaces the other.

use larder_format::content::ContentRoots;
use larder_format::ids::{DomainId, JobId};
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::manifest::{Manifest, SourceKind, Statistics, Summary};
use larder_format::mark::Forgotten;
use larder_format::names;
use larder_format::recipe::Recipe;
use larder_format::sketch::Sketch;
use larder_store::Repository;
use larder_store::catalog::Version;
use larder_store::pins::PinError;
use larder_store::tags::TagChange;
use larder_testkit::{Faults, Memory, Stop};

use crate::support::faulty_repository;

struct Play {
    memory: Memory,
    repository: Repository,
    faults: Faults,
    version: Version,
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn add(tag: &str) -> TagChange {
    TagChange::AddRemove { add: texts(&[tag]), remove: Vec::new() }
}

impl Play {
    /// A repository with one version that has the tag `made`.
    async fn new() -> Self {
        let (memory, repository, faults) = faulty_repository().await;
        let (data, metadata) = (Recipe::default(), Recipe::default());
        let summary = Summary {
            id: JobId([4; 16]),
            series: "s".to_owned(),
            base: None,
            time_ms: 1,
            started_ms: 1,
            ended_ms: 1,
            host: "host".to_owned(),
            user: String::new(),
            tags: texts(&["made"]),
            paths: Vec::new(),
            program: String::new(),
            source: SourceKind::Tree,
            statistics: Statistics::default(),
            attempt: [0; 16],
            sketch: Sketch::default(),
            layout: Layout::Standard,
            more_bases: Vec::new(),
            roots: ContentRoots::of(&data, &metadata),
            witness: None,
            domain_name: String::new(),
            domain_epoch: 0,
            origin: None,
            domain: DomainId::DEFAULT,
            is_signed: true,
        };
        let series = repository.keys().series_key("s");
        let manifest = Manifest { summary, data, metadata, containers: Vec::new() };
        repository.commit(series, &manifest).await.expect("is committed");
        let version = repository.catalog().await.expect("is read").versions.remove(0);
        Self { memory, repository, faults, version }
    }

    fn pin(&self) -> Pin {
        Pin { series: self.version.series, job: self.version.id() }
    }

    async fn tag(&self, change: &TagChange) -> Result<Option<Vec<String>>, PinError> {
        self.repository.tag(&self.version, change, 2, "host", "why").await
    }

    async fn tags(&self) -> Vec<String> {
        self.repository.tagged_catalog().await.expect("is read").0.versions.remove(0).summary.tags
    }

    async fn is_pinned(&self) -> bool {
        self.repository.pinned().await.expect("is read").contains_key(&self.pin())
    }

    async fn forget(&self) -> Result<(), PinError> {
        let mark = Forgotten { time_ms: 3, host: "host".to_owned(), reason: "old".to_owned() };
        self.repository.forget(self.pin(), &mark).await
    }
}

#[tokio::test]
async fn tags_and_pins_outlive_each_other() {
    let play = Play::new().await;
    assert_eq!(play.tags().await, ["made"]);
    assert_eq!(play.tag(&add("later")).await.expect("is tagged"), Some(texts(&["later", "made"])));
    assert_eq!(play.tag(&add("later")).await.expect("it has it"), None);
    assert!(!play.is_pinned().await, "a tag is no pin");
    play.repository.pin(play.pin(), 2, "host", "wanted").await.expect("is pinned");
    assert_eq!(play.tags().await, ["later", "made"], "a pin changes no tags");
    let remove = TagChange::AddRemove { add: Vec::new(), remove: texts(&["made"]) };
    assert_eq!(play.tag(&remove).await.expect("is tagged"), Some(texts(&["later"])));
    assert!(play.is_pinned().await, "a tag unpins nothing");
    assert!(matches!(play.forget().await, Err(PinError::Pinned { .. })));
    play.repository.unpin(play.pin(), 2, "host", "").await.expect("is unpinned");
    assert_eq!(play.tag(&TagChange::Set(Vec::new())).await.expect("is tagged"), Some(Vec::new()));
    assert!(play.tags().await.is_empty(), "those of the manifest do not come back");
    play.repository.pin(play.pin(), 2, "host", "wanted").await.expect("is pinned");
    play.repository.unpin(play.pin(), 2, "host", "").await.expect("is unpinned");
    assert!(play.tags().await.is_empty());
    play.forget().await.expect("nothing forbids it");
    assert!(matches!(play.tag(&add("late")).await, Err(PinError::Forgotten { .. })));
    // The version itself never changed.
    let found = play.repository.catalog().await.expect("is read");
    assert!(found.versions.is_empty());
}

/// Between a decision by tags and its mark, somebody may tag the version so that it stays.
#[tokio::test]
async fn a_version_that_was_tagged_after_the_decision_stays() {
    let play = Play::new().await;
    let mark = Forgotten { time_ms: 3, host: "host".to_owned(), reason: "old".to_owned() };
    let decided = play.tags().await;
    play.tag(&add("keep")).await.expect("is tagged");
    let forgot = play.repository.forget_decided((&play.version).into(), &mark, Some(&decided)).await;
    assert!(matches!(forgot, Err(PinError::Retagged)));
    assert_eq!(play.tags().await, ["keep", "made"]);
    let decided = play.tags().await;
    play.repository.forget_decided((&play.version).into(), &mark, Some(&decided)).await.expect("is forgotten");
}

/// An object that does not open may have pinned the version, or tagged it.
#[tokio::test]
async fn unreadable_entries_keep_the_version_and_change_no_tags() {
    let play = Play::new().await;
    play.tag(&add("keep")).await.expect("is tagged");
    play.memory.put(&names::pin(play.version.series, play.version.id(), 7), "garbage").await;
    assert_eq!(play.tags().await, ["keep", "made"]);
    assert!(matches!(play.tag(&TagChange::Set(Vec::new())).await, Err(PinError::Unclear { .. })));
    assert!(play.is_pinned().await, "a policy forgets nothing whose tags are unclear");
    assert!(matches!(play.forget().await, Err(PinError::Unclear { .. })));
    play.repository.unpin(play.pin(), 2, "host", "").await.expect("somebody states the intention");
    assert_eq!(play.tags().await, ["keep", "made"]);
    play.tag(&add("more")).await.expect("is tagged");
}

#[tokio::test]
async fn of_many_changes_at_once_none_is_lost() {
    let play = Play::new().await;
    let changes: Vec<_> = ["a", "b", "c", "d"].map(add).into();
    let (a, b, c, d) =
        tokio::join!(play.tag(&changes[0]), play.tag(&changes[1]), play.tag(&changes[2]), play.tag(&changes[3]));
    for result in [a, b, c, d] {
        assert!(result.expect("is tagged").is_some());
    }
    assert_eq!(play.tags().await, ["a", "b", "c", "d", "made"]);
    let (tagged, forgot) = tokio::join!(play.tag(&changes[0]), play.forget());
    forgot.expect("is forgotten");
    assert!(matches!(tagged, Ok(None) | Err(PinError::Forgotten { .. })));
}

/// Tagging dies at each of its requests: the tags are the old or the new ones, and the pin stays.
#[tokio::test]
async fn an_interrupted_change_is_made_or_not() {
    for cut in 0.. {
        let mut died = false;
        for stop in [Stop::Before, Stop::After] {
            let play = Play::new().await;
            play.repository.pin(play.pin(), 2, "host", "wanted").await.expect("is pinned");
            play.faults.stop_at(play.faults.count() + cut, stop);
            let result = play.tag(&TagChange::Set(texts(&["new"]))).await;
            died |= play.faults.stopped();
            play.faults.clear();
            let tags = play.tags().await;
            assert!(tags == ["made"] || tags == ["new"], "cut {cut}, {stop:?}: {tags:?}");
            assert!(result.is_err() || tags == ["new"], "cut {cut}, {stop:?}");
            assert!(play.is_pinned().await, "cut {cut}, {stop:?}");
            play.tag(&TagChange::Set(texts(&["new"]))).await.expect("is tagged");
        }
        if !died {
            assert!(cut >= 2);
            break;
        }
    }
}

#[tokio::test]
async fn more_than_an_entry_holds_is_refused() {
    let play = Play::new().await;
    let long = TagChange::Set(vec!["x".repeat(13 << 10)]);
    assert!(matches!(play.tag(&long).await, Err(PinError::TooManyTags)));
    let fits = TagChange::Set((0..60).map(|number| format!("{number}{}", "x".repeat(190))).collect());
    play.tag(&fits).await.expect("fits");
    assert_eq!(play.tags().await.len(), 60);
}
