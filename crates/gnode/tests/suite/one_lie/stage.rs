//! Small repositories in which there is something to lose: versions with and without an index, forgotten ones, and a backup that is
//! about to commit.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_format::mark::Forgotten;
use larder_format::names;
use larder_testkit::Memory;

use crate::support::*;

/// A backup that is about to commit: its id, what it still creates, and what its version will hold.
type Running = (JobId, Vec<(String, Bytes)>, Contents);

/// A repository and what must stay of it.
pub(super) struct Stage {
    pub(super) scene: Scene,
    /// How it was before the last things happened.
    pub(super) before: Memory,
    /// What each version holds that nobody forgot.
    pub(super) whole: BTreeMap<JobId, Contents>,
    /// The backup that is about to commit.
    running: Option<Running>,
}

/// A version of a series in a layout: one file that it shares with others, one that never changes, one that always does.
pub(super) fn version(scene: &Scene, series: &str, layout: Layout, edition: u64) -> JobId {
    let salt = series.bytes().map(u64::from).sum::<u64>();
    scene.fill(series, &[("shared", 7, 9000), ("never", salt, 14_000), ("always", salt * 1000 + edition, 12_000)]);
    backup_with(&scene.context(), &scene.source(series), series, |options| options.layout = layout)
        .unwrap()
        .version
        .unwrap()
        .id
}

/// Who forgets, and why.
pub(super) fn mark() -> Forgotten {
    Forgotten { time_ms: 0, host: String::new(), reason: "test".to_owned() }
}

impl Scene {
    /// The ids of versions with a mark.
    pub(super) fn marked(&self) -> BTreeSet<JobId> {
        let repository = self.context().repository;
        self.runtime.block_on(repository.list_marks()).unwrap().into_iter().map(|pin| pin.job).collect()
    }
}

impl Stage {
    /// Three versions that no pass has seen, one of which is forgotten.
    pub(super) fn fresh(layout: Layout) -> Self {
        let scene = Scene::new();
        let first = version(&scene, "a", layout, 1);
        version(&scene, "b", Layout::Standard, 1);
        let before = scene.memory.snapshot();
        version(&scene, "a", layout, 2);
        scene.forget(first);
        Self::of(scene, before)
    }

    /// Passes have moved, retired and collected; since then there are new versions and new marks.
    pub(super) fn grown(layout: Layout) -> Self {
        let scene = Scene::new();
        // The same contents twice, stored twice: a pass retires one copy.
        for series in ["a", "b"] {
            scene.fill(
                series,
                &[("shared", 7, 9000), ("both", 8, 16_000), ("always", u64::from(series.as_bytes()[0]), 9000)],
            );
            backup_with(&scene.context(), &scene.source(series), series, |options| {
                options.layout = if series == "a" { layout } else { Layout::Standard };
                options.force = true;
                options.find_similar = false;
            })
            .unwrap();
        }
        let second = version(&scene, "a", layout, 2);
        version(&scene, "b", Layout::Standard, 2);
        scene.pass_with(&super::eager()).unwrap();
        let third = version(&scene, "a", layout, 3);
        scene.forget(second);
        scene.pass_with(&super::eager()).unwrap();
        let before = scene.memory.snapshot();
        version(&scene, "a", layout, 4);
        version(&scene, "b", Layout::Standard, 3);
        scene.forget(third);
        Self::of(scene, before)
    }

    /// Six versions of one series, two of another.
    pub(super) fn several(layout: Layout) -> Self {
        let scene = Scene::new();
        for edition in 1..3 {
            version(&scene, "a", layout, edition);
            version(&scene, "b", Layout::Standard, edition);
        }
        let before = scene.memory.snapshot();
        for edition in 3..7 {
            version(&scene, "a", layout, edition);
        }
        Self::of(scene, before)
    }

    /// These versions are forgotten besides.
    pub(super) fn forgotten(mut self, ids: &[JobId]) -> Self {
        for id in ids {
            self.scene.forget(*id);
            self.whole.remove(id);
        }
        self
    }

    /// The newest version of `b` has lost its data.
    pub(super) fn without_a_container(mut self) -> Self {
        let versions = self.scene.versions();
        let newest = versions.iter().rfind(|version| version.summary.series == "b").unwrap();
        let name = format!("data/{}/0", newest.id());
        assert!(self.scene.runtime.block_on(self.scene.memory.get(&name)).is_some());
        self.scene.runtime.block_on(self.scene.memory.remove(&name));
        self.whole.remove(&newest.id());
        self
    }

    fn of(scene: Scene, before: Memory) -> Self {
        let whole = scene.contents();
        Self { scene, before, whole, running: None }
    }

    /// With a backup that has uploaded everything and whose base is forgotten meanwhile.
    pub(super) fn with_a_running_backup(mut self, layout: Layout) -> Self {
        let base = *self.whole.keys().rfind(|id| self.series_of(id) == "a").unwrap();
        let id = version(&self.scene, "a", layout, 9);
        let contents = self.scene.contents().remove(&id).unwrap();
        let found = self.scene.versions().into_iter().find(|version| version.id() == id).unwrap();
        let mut ends = Vec::new();
        for name in [names::version(found.series, id, 0), names::lease_done(id)] {
            let bytes = self.scene.runtime.block_on(self.scene.memory.get(&name)).unwrap();
            self.scene.runtime.block_on(self.scene.memory.remove(&name));
            ends.push((name, bytes));
        }
        self.scene.forget(base);
        self.whole.remove(&base);
        self.running = Some((id, ends, contents));
        self
    }

    fn series_of(&self, id: &JobId) -> String {
        let versions = self.scene.versions();
        versions.iter().find(|version| version.id() == *id).unwrap().summary.series.clone()
    }

    /// The backup commits, unless it was aborted: what its version holds then.
    pub(super) fn commit(&self, scene: &Scene) -> Option<(JobId, Contents)> {
        let (id, ends, contents) = self.running.as_ref()?;
        let mut is_committed = true;
        for (place, (name, bytes)) in ends.iter().enumerate() {
            let is_taken = scene.runtime.block_on(scene.memory.get(name)).is_some();
            if !is_taken {
                scene.runtime.block_on(scene.memory.put(name, bytes.clone()));
            }
            is_committed &= place > 0 || !is_taken;
        }
        is_committed.then(|| (*id, contents.clone()))
    }
}
