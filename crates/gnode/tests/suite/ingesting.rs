//! What passes take into the index agrees with containers and versions, whatever happens between them, and so does an index rebuilt.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use crate::support::*;
use larder_format::ids::{ContainerId, JobId};
use larder_format::index_manifest::Table;
use larder_format::index_tables::{ChunkKey, ChunkPlace};
use larder_format::{names, sketch::Sketch};
use larder_gnode::index_check::{IndexCheck, IndexFinding};
use larder_gnode::ingest::{self, Numbers};
use larder_gnode::pass::{self, Outcome, PassError, PassOptions};
use larder_gnode::repair;
use larder_index::{
    Chunks, Containers, Copies, Current, Draft, IndexIo, IndexPass, IndexSnapshot, LookupOptions, PassRuns, Published,
    Streams, TableView, publish,
};
use larder_testkit::{Failure, Fault, OpKind, Stop, Times, When};
use proptest::prelude::*;

impl Scene {
    fn index_check(&self) -> IndexCheck {
        self.runtime.block_on(repair::compare(&self.context())).unwrap().1
    }

    /// Nothing is wrong, and nothing is missing; says what was compared.
    #[track_caller]
    fn agrees(&self, at: &str) -> IndexCheck {
        let check = self.index_check();
        assert_eq!(check.disagreements, [], "{at}");
        assert_eq!((check.count, check.not_ingested, check.outlived), (0, 0, 0), "{at}");
        check
    }

    fn newest_index(&self) -> IndexSnapshot {
        self.runtime.block_on(IndexSnapshot::newest(&self.repository(self.memory.store()))).unwrap().snapshot
    }

    fn io(&self) -> IndexIo {
        IndexIo { repository: self.repository(self.memory.store()), executor: self.runtime.handle().into() }
    }

    fn index_pass(&self) -> IndexPass {
        let ids = PassRuns::new(JobId::new(1, [self.newest_index().number as u8; 10]));
        IndexPass::new(self.io(), ids, 2.try_into().unwrap(), 4 << 20, self.dir.path().to_owned())
    }

    fn table<T: larder_index::TypedTable>(&self) -> TableView<T> {
        TableView::new(self.io(), &self.newest_index().manifest.runs, LookupOptions::default())
    }

    fn records<T: larder_index::TypedTable>(&self) -> Vec<(T::Key, T::Value)> {
        self.table::<T>()
            .scan(0..=u64::MAX, 1 << 20)
            .map(|record| record.map(|(k, v)| (k, v.unwrap())).unwrap())
            .collect()
    }

    /// Everything an index says, without its numbers.
    fn said(&self) -> Said {
        let manifest = self.newest_index().manifest;
        let jobs: BTreeMap<u32, JobId> =
            manifest.versions.iter().map(|version| (version.number, version.job)).collect();
        let containers: BTreeMap<u32, _> = self.records::<Containers>().into_iter().collect();
        let mut uses = BTreeSet::new();
        for facts in containers.values() {
            for (number, job) in &jobs {
                let series = manifest.versions.iter().find(|version| version.number == *number).unwrap().series;
                let spans = facts.users.iter().filter(|user| user.series == series).flat_map(|user| &user.lifespans);
                if spans.into_iter().any(|span| span.contains(*number)) {
                    uses.insert((facts.id, *job));
                }
            }
        }
        let mut copies = BTreeSet::new();
        let entries = self.records::<Chunks>().into_iter();
        let others = self.records::<Copies>().into_iter();
        let others = others.map(|(key, chunk)| (key.chunk, ChunkPlace { container: key.container, chunk }));
        for (key, place) in entries.chain(others) {
            if let Some(facts) = containers.get(&place.container) {
                copies.insert((key, facts.id, place.chunk));
            }
        }
        Said { uses, copies }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Said {
    uses: BTreeSet<(ContainerId, JobId)>,
    copies: BTreeSet<(ChunkKey, ContainerId, u32)>,
}

#[test]
fn every_chunk_of_every_container_is_known_after_a_pass() {
    let scene = Scene::new();
    for edition in 0..4 {
        scene.version("a", edition);
        scene.version("b", edition);
    }
    scene.pass().unwrap();
    let check = scene.agrees("after the first pass");
    assert_eq!(check.versions, 8);
    assert!(check.chunks > 200 && check.containers >= 16, "{check:?}");
    let statistics = scene.newest_index().manifest.head.statistics.clone();
    assert_eq!((statistics.chunks, statistics.chunks_ingested), (check.different_chunks, check.chunks));
    assert_eq!(statistics.containers_ingested, check.containers);
    // The samples of the newest version of each series lead to it.
    let (context, manifest) = (scene.context(), scene.newest_index().manifest);
    let newest = scene.runtime.block_on(context.repository.newest_of_every_series()).unwrap();
    let streams: BTreeMap<_, _> = scene.records::<Streams>().into_iter().collect();
    let mut samples = 0;
    for version in newest {
        let number = manifest.versions.iter().find(|row| row.job == version.id()).unwrap().number;
        for sample in version.summary.sketch.samples() {
            let key = larder_format::index_tables::StreamKey { sample: *sample, series: version.series };
            assert_eq!(streams.get(&key), Some(&number));
            samples += 1;
        }
    }
    assert!(samples > 2);
}

/// The same data in two series that do not know of each other, written at once: both copies are listed.
#[test]
fn copies_are_listed_and_take_the_place_of_what_goes() {
    let scene = Scene::new();
    let [a, b] = ["a", "b"].map(|series| {
        scene.write("a", 0);
        backup_alone(&scene.context(), &scene.source("a"), series).version.unwrap().id
    });
    scene.pass().unwrap();
    let check = scene.agrees("twins");
    let copies = scene.records::<Copies>();
    assert!(copies.len() > 20, "{} copies of {check:?}", copies.len());
    assert_eq!(check.chunks, check.different_chunks + copies.len() as u64);
    // New versions, so that far less than a quarter is of no use when the one goes to whose copies the entries lead.
    scene.version("b", 1);
    for series in ["c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"] {
        scene.version(series, 1);
    }
    scene.pass().unwrap();
    scene.forget(a);
    scene.pass().unwrap();
    let left = scene.agrees("the first twin is gone");
    assert!(scene.contents().contains_key(&b) && !scene.contents().contains_key(&a));
    // Whether it is worth a sweep by now depends on how much is listed twice in runs of different ages.
    let expected = left.different_chunks;
    assert_eq!(left.chunks, expected, "of the twins one copy is left: {left:?}");
    // Most others, and it is worth a sweep.
    for gone in scene.versions().iter().rev().take(10) {
        scene.forget(gone.id());
    }
    scene.version("b", 2);
    scene.pass().unwrap();
    let swept = scene.agrees("swept");
    assert_eq!(swept.waiting, 0);
    assert_eq!(scene.records::<Chunks>().len() as u64, swept.different_chunks);
}

/// Of all containers a pass reads the tables of the new ones; of the tables of chunks what it needs.
#[test]
fn a_pass_costs_what_is_new() {
    let scene = Scene::new();
    for edition in 0..20 {
        scene.version(if edition % 4 == 0 { "b" } else { "a" }, edition);
    }
    scene.pass().unwrap();
    let before = scene.records::<Containers>().len();
    scene.version("a", 20);
    let (context, faults) = scene.faulty(&scene.memory);
    let opened = faults.count() as usize;
    scene.runtime.block_on(pass::run(&context, &pass_options())).unwrap();
    let log = faults.log().split_off(opened);
    let count = |kind, prefix: &str| log.iter().filter(|op| op.kind == kind && op.path.starts_with(prefix)).count();
    let new = scene.records::<Containers>().len() - before;
    assert_eq!(count(OpKind::Get, "data/") + count(OpKind::Get, "meta/"), new);
    let (read, written) = (count(OpKind::Get, "index/runs/"), count(OpKind::Put, "index/runs/"));
    assert!(new >= 2 && read <= 16 && written <= 6, "{new} containers, {read} reads, {written} runs: {log:#?}");
}

/// A rebuild that is cut off at any request leaves the old index or the new one, and whoever comes next goes on.
#[test]
fn a_rebuild_that_is_cut_off_harms_nothing() {
    let scene = Scene::new();
    let ids: Vec<_> = (0..3).map(|edition| scene.version("a", edition)).collect();
    scene.pass().unwrap();
    // Nothing of what is forgotten: an index rebuilt keeps all copies of what is needed (`RebuiltKeepsCopies`).
    scene.version("b", 0);
    scene.forget(ids[1]);
    let expected = scene.contents();
    let run = |scene: &Scene, cut: Option<(u64, Stop)>| {
        let (context, faults) = scene.faulty(&scene.memory);
        let opened = faults.count();
        if let Some((n, stop)) = cut {
            faults.stop_at(opened + n, stop);
        }
        let result = scene.runtime.block_on(repair::rebuild(&context));
        (result, faults.count() - opened)
    };
    let (undisturbed, operations) = run(&scene.fork(), None);
    assert!(undisturbed.unwrap().number == Some(2) && operations > 15, "{operations}");
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            let cut = scene.fork();
            assert!(run(&cut, Some((n, stop))).0.is_err(), "{at}");
            assert_eq!(cut.index_check().disagreements, [], "{at}");
            cut.pass().unwrap();
            cut.pass().unwrap();
            cut.agrees(&at);
            assert!(cut.contents() == expected, "{at}");
            cut.is_clean(&at);
        }
    }
}

/// Passes that only collect write nothing about chunks.
#[test]
fn forgetting_costs_nothing_here() {
    let scene = Scene::new();
    let ids: Vec<_> = (0..5).map(|edition| scene.version("a", edition)).collect();
    scene.pass().unwrap();
    let before = scene.newest_index();
    scene.forget(ids[1]);
    assert!(matches!(scene.pass().unwrap().outcome, Outcome::Published(_)));
    let after = scene.newest_index();
    for table in [Table::Chunks, Table::Copies, Table::Streams] {
        assert_eq!(before.runs_of(table), after.runs_of(table));
    }
    scene.agrees("one less");
}

#[test]
fn an_index_made_anew_says_the_same() {
    let scene = Scene::new();
    let ids: Vec<_> = (0..6).flat_map(|edition| [scene.version("a", edition), scene.version("b", edition)]).collect();
    scene.pass().unwrap();
    scene.forget(ids[3]);
    scene.forget(ids[8]);
    scene.version("a", 7);
    scene.pass().unwrap();
    let (expected, old) = (scene.said(), scene.newest_index());
    let rebuilt = scene.rebuild();
    let new = scene.newest_index();
    assert_eq!((rebuilt.number, new.number), (Some(old.number + 1), old.number + 1));
    assert_eq!(rebuilt.versions, 11);
    assert!(scene.said() == expected);
    // No number means two things, and nothing is ever led to what may have been retired.
    assert!(scene.records::<Containers>().iter().all(|(number, _)| *number >= old.manifest.head.next_container));
    assert_eq!(new.manifest.head.rebuilt, Some(new.manifest.head.next_container));
    scene.agrees("rebuilt");
    // The next pass goes on with it, keeps what it says of itself, and cleans up.
    scene.version("b", 7);
    scene.pass().unwrap();
    scene.agrees("the pass after");
    assert_eq!(scene.newest_index().manifest.head.rebuilt, new.manifest.head.rebuilt);
    scene.pass().unwrap();
    scene.is_clean("in the end");
}

#[test]
fn an_index_that_cannot_be_read_is_made_anew() {
    let scene = Scene::new();
    let ids: Vec<_> = (0..3).map(|edition| scene.version("a", edition)).collect();
    scene.pass().unwrap();
    let newest = scene.newest_index().number;
    scene.runtime.block_on(async {
        scene.memory.remove(&names::index(newest)).await;
        let store = store_over(scene.memory.store());
        store.create(&names::index(newest), b"not an index".to_vec().into()).await.unwrap();
    });
    assert!(matches!(scene.pass(), Err(PassError::Index(_))));
    let rebuilt = scene.rebuild();
    assert_eq!((rebuilt.number, rebuilt.versions), (Some(newest + 1), 3));
    assert!(rebuilt.unreadable_versions.is_empty() && rebuilt.unreadable_containers.is_empty());
    scene.agrees("rebuilt");
    scene.forget(ids[0]);
    scene.pass().unwrap();
    assert_eq!(scene.contents().len(), 2);
}

/// What cannot be read is named, and everything else is in the index.
#[test]
fn a_rebuild_goes_around_damage() {
    let scene = Scene::new();
    for edition in 0..3 {
        scene.version("a", edition);
    }
    let broken = scene.version("b", 0);
    scene.version("b", 1);
    let objects = scene.runtime.block_on(scene.memory.contents());
    let manifest = objects.keys().find(|name| names::parse_version(name).is_some_and(|(_, job, _)| job == broken));
    let container = objects.keys().find(|name| name.starts_with("data/")).unwrap().clone();
    scene.runtime.block_on(async {
        scene.memory.remove(manifest.unwrap()).await;
        let store = store_over(scene.memory.store());
        store.create(manifest.unwrap(), b"garbage".to_vec().into()).await.unwrap();
        scene.memory.remove(&container).await;
    });
    let rebuilt = scene.rebuild();
    let unreadable: Vec<_> = rebuilt.unreadable_versions.iter().map(|(id, _)| *id).collect();
    assert_eq!((rebuilt.versions, unreadable), (4, vec![broken]));
    let gone: Vec<_> = rebuilt.unreadable_containers.iter().map(|(id, _)| names::container(*id)).collect();
    assert!(gone.len() == 1 && gone[0] == container, "{gone:?}");
    let check = scene.index_check();
    let found = &check.disagreements[..];
    assert!(matches!(found, [IndexFinding::ContainerUnreadable { container: named, .. }] if *named == container));
}

/// The proof can fail: each way in which an index may be wrong is seen.
#[test]
fn what_is_wrong_is_seen() {
    let scene = Scene::new();
    for edition in 0..3 {
        scene.version("a", edition);
    }
    scene.pass().unwrap();
    scene.agrees("before");
    let began = scene;
    let spoiled = |spoil: &dyn Fn(&IndexPass, &mut Draft<'_>, &Scene)| {
        let scene = began.fork();
        let (pass, base) = (scene.index_pass(), scene.newest_index());
        let mut draft = Draft::new(&pass, &base);
        spoil(&pass, &mut draft, &scene);
        let repository = scene.repository(scene.memory.store());
        let turn = scene.runtime.block_on(Current::settle(&repository)).unwrap().turn().unwrap();
        let published = scene.runtime.block_on(publish(&repository, &turn, draft.manifest)).unwrap();
        assert!(matches!(published, Published::Won { .. }));
        scene.index_check().disagreements
    };
    let first = |scene: &Scene| scene.records::<Chunks>()[0];
    // An entry less.
    let found = spoiled(&|pass, draft, scene| {
        let mut changes = pass.changes::<Chunks>().unwrap();
        changes.remove(&first(scene).0).unwrap();
        draft.apply(changes).unwrap();
    });
    assert!(matches!(&found[..], [IndexFinding::ChunkUnknown { .. }]), "{found:?}");
    // One that leads elsewhere.
    let found = spoiled(&|pass, draft, scene| {
        let mut changes = pass.changes::<Chunks>().unwrap();
        let (key, place) = first(scene);
        changes.put(&key, &ChunkPlace { chunk: place.chunk + 1, ..place }).unwrap();
        draft.apply(changes).unwrap();
    });
    assert!(matches!(&found[..], [IndexFinding::WrongPlace { .. }, IndexFinding::ChunkUnknown { .. }]), "{found:?}");
    // One that is listed as a copy as well.
    let found = spoiled(&|pass, draft, scene| {
        let mut changes = pass.changes::<Copies>().unwrap();
        let (chunk, place) = first(scene);
        let key = larder_format::index_tables::CopyKey { chunk, container: place.container };
        changes.put(&key, &place.chunk).unwrap();
        draft.apply(changes).unwrap();
    });
    assert!(matches!(&found[..], [IndexFinding::ListedTwice { .. }]), "{found:?}");
    // A container whose use ended too early, one that says something else, and one that is not known.
    let facts = |spoil: fn(&mut larder_format::index_tables::ContainerFacts)| {
        spoiled(&|pass, draft, scene| {
            let (number, mut facts) = scene.records::<Containers>()[0].clone();
            spoil(&mut facts);
            let mut changes = pass.changes::<Containers>().unwrap();
            changes.put(&number, &facts).unwrap();
            draft.apply(changes).unwrap();
        })
    };
    let found = facts(|facts| facts.users.clear());
    assert!(found.iter().any(|found| matches!(found, IndexFinding::UseUnknown { .. })), "{found:?}");
    let found = facts(|facts| facts.object_bytes += 1);
    assert!(found.iter().any(|found| matches!(found, IndexFinding::WrongFacts { .. })), "{found:?}");
    let found = facts(|facts| facts.id.seq += 100);
    assert!(found.iter().any(|found| matches!(found, IndexFinding::ContainerUnreadable { .. })), "{found:?}");
    let found = facts(|facts| facts.users[0].lifespans[0].last = None);
    assert!(found.is_empty() || found.iter().all(|found| matches!(found, IndexFinding::NotUsed { .. })), "{found:?}");
}

#[derive(Debug, Clone)]
enum Step {
    Backup(usize, u64),
    Twin(usize, u64),
    Forget(usize),
    Pass,
    Rebuild,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..3, 0u64..6).prop_map(|(series, edition)| Step::Backup(series, edition)),
        1 => (0usize..3, 0u64..6).prop_map(|(series, edition)| Step::Twin(series, edition)),
        3 => (0usize..8).prop_map(Step::Forget),
        4 => Just(Step::Pass),
        1 => Just(Step::Rebuild),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    /// After any history the index agrees with what is there, and so does one that is rebuilt; both say the same.
    #[test]
    fn any_history_leaves_an_index_that_agrees(steps in proptest::collection::vec(step(), 1..14)) {
        let scene = Scene::new();
        let series = ["a", "b", "c"];
        let mut ids = Vec::new();
        for step in steps {
            match step {
                Step::Backup(number, edition) => ids.push(scene.version(series[number], edition)),
                // What another series holds, without knowing of it: everything is stored twice.
                Step::Twin(number, edition) => {
                    scene.write(series[number], edition);
                    let context = scene.context();
                    let twin = backup_alone(&context, &scene.source(series[number]), series[(number + 1) % 3]);
                    ids.extend(twin.version.map(|version| version.id));
                }
                Step::Forget(number) if !ids.is_empty() => scene.forget(ids.remove(number % ids.len())),
                Step::Forget(_) => {}
                Step::Pass => {
                    scene.pass().unwrap();
                    prop_assert_eq!(scene.index_check().disagreements, []);
                }
                Step::Rebuild => {
                    scene.rebuild();
                    scene.agrees("rebuilt");
                }
            }
        }
        scene.pass().unwrap();
        scene.agrees("in the end");
        let said = scene.said();
        scene.rebuild();
        scene.agrees("rebuilt in the end");
        prop_assert!(scene.said() == said);
        prop_assert_eq!(scene.contents().len(), ids.len());
    }
}

/// Ingestion alone, over containers that are there already: what sorts in little memory, and sweeps in parts, is the same.
#[test]
fn sweeps_keep_what_counts() {
    let scene = Scene::new();
    for edition in 0..3 {
        scene.version("a", edition);
    }
    scene.pass().unwrap();
    let (pass, base) = (scene.index_pass(), scene.newest_index());
    let mut draft = Draft::new(&pass, &base);
    let known: Numbers = scene.records::<Containers>().iter().map(|(number, _)| *number).collect();
    let before: Vec<_> = scene.records::<Chunks>();
    let swept = ingest::sweep(&pass, &mut draft, &known).unwrap();
    assert_eq!((swept.chunks, swept.dropped, swept.promoted), (before.len() as u64, 0, 0));
    let view = draft.view::<Chunks>(LookupOptions::default());
    let after: Vec<_> = view.scan(0..=u64::MAX, 1 << 20).map(|r| r.map(|(k, v)| (k, v.unwrap())).unwrap()).collect();
    assert_eq!(before, after);
    // Without containers nothing is left.
    let swept = ingest::sweep(&pass, &mut draft, &Numbers::default()).unwrap();
    assert_eq!((swept.chunks, swept.dropped), (0, before.len() as u64));
    assert_eq!(draft.manifest.runs_of(Table::Chunks), []);
    // Of one series the newest version holds.
    let (series, sketch) = (larder_format::ids::SeriesKey([1; 16]), Sketch::new(vec![5, 6]));
    ingest::ingest_streams(&pass, &mut draft, [(series, 7, &sketch), (series, 3, &sketch)]).unwrap();
    let streams = scene.runtime.block_on(draft.view::<Streams>(LookupOptions::default()).streams_of(&[5])).unwrap();
    assert_eq!(streams.iter().map(|(_, version)| *version).collect::<Vec<_>>(), [7]);
}

/// A container that could not be read once is taken in by the next pass; one that cannot be read for longer is told every time.
#[test]
fn what_could_not_be_read_once_is_taken_in_by_the_next_pass() {
    let scene = Scene::new();
    for n in 0..3 {
        scene.alone("a", &[("file", n, 60_000)]);
    }
    let options = PassOptions { reclaim: None, ..pass_options() };
    let run_with_faults = |times| {
        let (context, faults) = scene.faulty(&scene.memory);
        faults.add(When::kind(OpKind::Get).path("data/"), Fault::FailBefore(Failure::Status(404)), times);
        scene.runtime.block_on(pass::run(&context, &options)).unwrap()
    };
    let report = run_with_faults(Times::Always);
    assert_eq!((report.outcome, report.unlisted.len()), (Outcome::Published(1), 3));
    // The index says what it does not list yet, so nothing disagrees.
    let check = scene.index_check();
    assert_eq!((check.unlisted, check.count), (3, 0), "{:?}", check.disagreements);
    let report = run_with_faults(Times::First(1));
    assert_eq!((report.outcome, report.unlisted.len()), (Outcome::Published(2), 1));
    let report = run_with_faults(Times::Always);
    assert_eq!((report.outcome, report.unlisted.len()), (Outcome::Nothing, 1), "it is told again");
    let report = scene.pass_with(&options).unwrap();
    assert_eq!((report.outcome, report.unlisted.len()), (Outcome::Published(3), 0));
    assert_eq!(scene.agrees("afterwards").unlisted, 0);
    assert_eq!(scene.pass_with(&options).unwrap().outcome, Outcome::Nothing);
}
