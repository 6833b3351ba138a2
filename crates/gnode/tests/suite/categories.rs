//! What categories say is what passes do: forgetting versions of a series in the layout `lifecycle` frees what was said, to the byte.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::HashSet;

use crate::support::*;
use larder_format::ids::{ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_lifecycle::lifecycle_map::{Categories, Freed, Last, Progress, categories};
use larder_lnode::BackupOptions;

/// A version of which some changes every time, some every second time, and some never.
fn version(scene: &Scene, series: &str, edition: u64) -> JobId {
    scene.fill(
        series,
        &[
            ("always", 1000 + edition, 120_000),
            ("every second", 2000 + edition / 2, 150_000),
            ("every third", 3000 + edition / 3, 90_000),
            ("never", 1, 200_000),
        ],
    );
    let report =
        backup_with(&scene.context(), &scene.source(series), series, |options| options.layout = Layout::Lifecycle);
    report.unwrap().version.unwrap().id
}

fn read(scene: &Scene) -> Categories {
    let repository = scene.context().repository;
    let all = scene.runtime.block_on(categories(&repository, &scene.versions())).unwrap();
    assert_eq!(all.len(), 1, "other series have no categories");
    all.into_values().next().unwrap()
}

fn stored(scene: &Scene) -> u64 {
    let listed = scene.runtime.block_on(scene.context().repository.list_containers()).unwrap();
    let data = listed.iter().filter(|container| container.id.kind == ContainerKind::Data);
    data.map(|container| container.bytes).sum()
}

#[test]
fn forgetting_frees_what_was_said() {
    let scene = Scene::new();
    scene.version("standard", 0);
    let ids: Vec<JobId> = (0..7).map(|edition| version(&scene, "a", edition)).collect();
    let before = read(&scene);
    assert_eq!((before.index, before.is_arranged()), (0, false));
    assert!(before.versions.iter().all(|version| version.progress == Progress::Committed));
    scene.pass().unwrap();
    scene.pass().unwrap();
    let mut left: Vec<JobId> = ids.clone();
    // The oldest, some in between, the newest.
    for forgotten in [&[0][..], &[1], &[3, 4], &[6]] {
        let now = read(&scene);
        assert!(now.is_arranged() && now.index > 0);
        assert_eq!(now.versions.iter().map(|version| version.id).collect::<Vec<_>>(), left);
        let gone: HashSet<JobId> = forgotten.iter().map(|at| ids[*at]).collect();
        let said = now.freed(&gone);
        let had = stored(&scene);
        gone.iter().for_each(|id| scene.forget(*id));
        left.retain(|id| !gone.contains(id));
        let report = scene.pass().unwrap();
        // What is left of containers may be copied as well.
        let freed = had + report.arranged.written_bytes.0 - report.arranged.retired_bytes.0 - stored(&scene);
        assert_eq!(freed, said.object_bytes.0, "{forgotten:?}: {said:?}");
        assert!(said.bytes.0 > 100_000);
    }
    let end = read(&scene);
    assert!(end.freed(&HashSet::new()) == Freed::default());
    let triangle = end.triangle();
    assert!(triangle.keys().any(|category| category.last == Last::Open));
    assert!(triangle.values().all(|size| size.needed == size.bytes), "nothing is left over: {triangle:?}");
}

/// Before the first pass manifests say what is shared.
#[test]
fn without_an_index_what_only_the_newest_stored_is_free() {
    let scene = Scene::new();
    let ids: Vec<JobId> = (0..3).map(|edition| version(&scene, "a", edition)).collect();
    let newest = HashSet::from([ids[2]]);
    let said = read(&scene).freed(&newest);
    assert!(said.bytes.0 > 120_000 && said.bytes.0 < 500_000, "{said:?}");
    let had = stored(&scene);
    scene.forget(ids[2]);
    let arranged = scene.pass().unwrap().arranged;
    assert_eq!(had + arranged.written_bytes.0 - arranged.retired_bytes.0 - stored(&scene), said.object_bytes.0);
}

/// Two lines of contents, taken in turn: the base has nothing of what a version needs, and the version before the base has it all.
#[test]
fn a_version_that_was_not_arranged_keeps_what_any_of_its_bases_uses() {
    let scene = Scene::new();
    // So many chunks that some are among the samples by which it is noticed that the base has nothing.
    let version = |edition: u64| {
        scene.fill("a", &[("line", 1000 + edition % 2, 8 * 400_000), ("own", 2000 + edition, 8 * 100_000)]);
        let options = |options: &mut BackupOptions| options.layout = Layout::Lifecycle;
        backup_with(&scene.context(), &scene.source("a"), "a", options).unwrap()
    };
    let mut reports: Vec<_> = (0..5).map(version).collect();
    scene.pass().unwrap();
    scene.pass().unwrap();
    reports.push(version(5));
    let last = reports.last().unwrap();
    assert!(last.bases.len() > 1 && last.statistics.added_bytes < 8 * 150_000, "{last:?}");
    let ids: Vec<JobId> = reports.iter().map(|report| report.version.as_ref().unwrap().id).collect();
    // Of the line of 5 its base, 4, has nothing; 3 has it, which 5 finds there and nobody else keeps.
    let now = read(&scene);
    assert_eq!(now.versions[5].progress, Progress::Committed);
    let gone = HashSet::from([ids[1], ids[3]]);
    let said = now.freed(&gone);
    assert!((8 * 200_000..8 * 300_000).contains(&said.bytes.0), "what is their own, and not their line: {said:?}");
    gone.iter().for_each(|id| scene.forget(*id));
    for _ in 0..2 {
        scene.pass().unwrap();
    }
    let after = read(&scene);
    assert!(after.is_arranged());
    let needed = |categories: &Categories| categories.triangle().values().map(|size| size.needed.0).sum::<u64>();
    assert_eq!(needed(&now) - needed(&after), said.bytes.0);
}

/// A version that no pass has seen uses of what was arranged only what its base does, so it keeps nobody's volume.
#[test]
fn a_version_that_was_not_arranged_keeps_only_what_its_base_uses() {
    let scene = Scene::new();
    let ids: Vec<JobId> = (0..4).map(|edition| version(&scene, "a", edition)).collect();
    scene.pass().unwrap();
    scene.pass().unwrap();
    version(&scene, "a", 4);
    version(&scene, "a", 5);
    let now = read(&scene);
    let progress: Vec<Progress> = now.versions.iter().map(|version| version.progress).collect();
    assert_eq!(progress[3..], [Progress::Arranged, Progress::Committed, Progress::Committed]);
    let gone = HashSet::from([ids[0], ids[1]]);
    let said = now.freed(&gone);
    assert!(said.bytes.0 > 350_000, "{said:?}");
    let had = stored(&scene);
    gone.iter().for_each(|id| scene.forget(*id));
    // The first one takes in what it does not know and keeps all that it may need, the second one knows better. What goes because
    // nobody needs it may go as what was retired.
    let (mut written, mut reclaimed) = (0, 0);
    for _ in 0..2 {
        let arranged = scene.pass().unwrap().arranged;
        written += arranged.written_bytes.0;
        reclaimed += arranged.retired_bytes.0;
    }
    let went = had + written - stored(&scene);
    assert!((said.object_bytes.0..=said.object_bytes.0 + reclaimed).contains(&went), "{said:?} {went} {reclaimed}");
    // All of it is gone that was said, and nothing else changed for those that are left.
    let after = read(&scene);
    assert!(after.triangle().values().all(|size| size.needed == size.bytes));
    assert!(after.is_arranged());
}
