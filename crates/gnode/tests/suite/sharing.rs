//! Newest versions share what other newest versions have too: duplicates between series go, nobody ever needs the index for a newest
//! version, and whatever happens meanwhile, every version stays what it is.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod in_parts;
mod interrupted;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::*;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::index_tables::{ChunkKey, ChunkPlace, ContainerState};
use larder_format::names;
use larder_gnode::defragment::{
    self, Budget, DefragmentError, DefragmentOptions, DefragmentPlan, Defragmented, Defragmenter,
};
use larder_gnode::pass::{self, PassOptions};
use larder_index::{
    Chunks, Containers, Copies, Current, Draft, IndexIo, IndexPass, IndexSnapshot, LookupOptions, PassRuns, Published,
    publish,
};
use larder_job::JobContext;
use larder_reader::VersionReader;
use larder_store::catalog::Version;
use larder_testkit::{Stop, data};

/// As exact as can be: every duplicate counts, and nothing is too much.
const EXACT: DefragmentOptions = DefragmentOptions {
    held_percent: u8::MAX,
    cheap_percent: u8::MAX,
    sparse_percent: 0,
    small_bytes: 0,
    budget: Budget::of_version(100),
    duplicate_percent: 0,
    dense_percent: 0,
    excess_percent: 100.0,
    compression: larder_format::compress::Compression::DEFAULT,
    unused_percent: None,
    manifest_least: 1 << 20,
};

const NEVER: Duration = Duration::from_secs(1 << 30);

impl Scene {
    /// Writes the files of a series: some that others have too, some of its own.
    fn files(&self, series: &str, common: &[u64], own: &[u64]) {
        let root = self.source(series);
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        for seed in common.iter().chain(own) {
            std::fs::write(root.join(format!("file{seed}")), data::random(*seed, 60_000)).unwrap();
        }
    }

    /// A version that knows of nothing that is there.
    fn alone_with(&self, series: &str, common: &[u64], own: &[u64]) -> JobId {
        self.files(series, common, own);
        backup_alone(&self.context(), &self.source(series), series).version.unwrap().id
    }

    /// A version on the one before.
    fn next(&self, series: &str, common: &[u64], own: &[u64]) -> JobId {
        self.files(series, common, own);
        backup_with(&self.context(), &self.source(series), series, |options| options.find_similar = false)
            .unwrap()
            .version
            .unwrap()
            .id
    }

    fn plans(&self, options: &DefragmentOptions) -> Vec<DefragmentPlan> {
        defragment::plans(&self.context(), options).unwrap().plans
    }

    fn compact_all(&self, options: &DefragmentOptions) -> usize {
        let context = self.context();
        let mut compactor = Defragmenter::new(&context, options);
        let plans = defragment::plans(&context, options).unwrap().plans;
        let done = plans.iter().map(|plan| compactor.compact(plan).unwrap());
        done.filter(|done| matches!(done, Defragmented::Done { .. })).count()
    }

    fn collect(&self) {
        self.pass_with(&PassOptions {
            dead_after: NEVER,
            min_age: std::time::Duration::ZERO,
            ..PassOptions::default()
        })
        .unwrap();
    }

    /// The same, and containers of older versions stay, so that these need no index either.
    fn collect_only(&self) {
        let options = PassOptions {
            dead_after: NEVER,
            reclaim: None,
            min_age: std::time::Duration::ZERO,
            ..PassOptions::default()
        };
        self.pass_with(&options).unwrap();
    }

    fn newest(&self, series: &str) -> Version {
        self.versions().into_iter().rfind(|version| version.summary.series == series).unwrap()
    }

    fn data_of_version(&self, version: &Version) -> BTreeSet<ContainerId> {
        let context = self.context();
        let reader = VersionReader::open(&context, version).unwrap();
        let data = reader.manifest().containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data);
        data.map(|usage| usage.container).collect()
    }

    /// How many bytes of chunks there are in data containers, and how many when each chunk counts once.
    fn held(&self) -> (u64, u64) {
        let repository = self.repository(self.memory.store());
        let (mut all, mut chunks) = (0, BTreeMap::new());
        for container in self.runtime.block_on(repository.list_containers()).unwrap() {
            if container.id.kind == ContainerKind::Data {
                let table = self.runtime.block_on(repository.read_container_index(container.id)).unwrap();
                all += u64::from(table.payload_len);
                chunks
                    .extend(table.chunk_refs().map(|chunk| (ChunkKey::of(&chunk.fingerprint), u64::from(chunk.size))));
            }
        }
        (all, chunks.into_values().sum())
    }

    /// That newest versions need no index, and the others nothing but that.
    #[track_caller]
    fn is_whole(&self, contents: &BTreeMap<JobId, Contents>, at: &str) {
        assert!(self.contents() == *contents, "{at}");
        let fork = self.fork();
        for name in self.runtime.block_on(fork.memory.paths()) {
            if name.starts_with("index/") {
                self.runtime.block_on(fork.memory.remove(&name));
            }
        }
        let series: BTreeSet<String> = self.versions().into_iter().map(|version| version.summary.series).collect();
        for newest in series.iter().map(|series| fork.newest(series)) {
            assert!(contents_of(&fork.context(), &newest) == contents[&newest.id()], "{at}");
        }
    }

    /// What versions hold, read when there is no index at all.
    fn contents_without_index(&self) -> BTreeMap<JobId, Contents> {
        let fork = self.fork();
        for name in self.runtime.block_on(fork.memory.paths()) {
            if name.starts_with("index/") {
                self.runtime.block_on(fork.memory.remove(&name));
            }
        }
        fork.contents()
    }
}

/// Two series that do not know of each other and have most in common, taken into the index.
fn two_series() -> Scene {
    let scene = Scene::new();
    let common: Vec<u64> = (1..6).collect();
    scene.alone_with("a", &common, &[10]);
    // Of what one pass takes in together the numbers are in the order of the keys of series, which are random.
    scene.collect();
    scene.alone_with("b", &common, &[20]);
    scene.collect();
    scene
}

#[test]
fn what_two_series_have_is_shared_by_their_newest_versions() {
    let scene = two_series();
    let contents = scene.contents();
    let (held, exact) = scene.held();
    assert!(held > exact + 290_000, "{held} {exact}");
    let default = DefragmentOptions { budget: Budget::of_version(20), ..DefragmentOptions::default() };
    let plans = scene.plans(&default);
    // The container with the higher number stays.
    assert_eq!(plans.len(), 1);
    let plan = &plans[0];
    assert_eq!(plan.version.summary.series, "a");
    // Without room for what the tables have in common they are joined again and again.
    let little = JobContext { memory: 20_000, ..scene.context() };
    let [again] = &defragment::plans(&little, &default).unwrap().plans[..] else { panic!() };
    assert_eq!((again.bytes, again.shared_bytes), (plan.bytes, plan.shared_bytes));
    assert_eq!(plan.others.iter().map(Version::id).collect::<Vec<_>>(), [scene.newest("b").id()]);
    assert_eq!((plan.bytes, plan.shared_bytes), (60_000, 300_000));
    match defragment::compact(&scene.context(), plan, &default).unwrap() {
        Defragmented::Done { generation: 1, bytes: 60_000, shared_bytes: 300_000, .. } => {}
        other => panic!("{other:?}"),
    }
    assert!(scene.contents() == contents);
    scene.collect();
    assert_eq!(scene.held(), (exact, exact), "what generation 0 alone used is gone");
    assert!(scene.contents_without_index() == contents);
    assert!(scene.plans(&EXACT).is_empty());

    // The other series can go: what is shared stays.
    scene.forget(scene.newest("b").id());
    scene.collect();
    let left = scene.contents_without_index();
    assert_eq!(left.len(), 1);
    assert!(left.iter().all(|(id, was)| contents[id] == *was));
    // And the version can be built on, and goes like any other.
    let newest = scene.newest("a").id();
    scene.next("a", &[1, 2, 3], &[11]);
    scene.forget(newest);
    scene.collect();
    assert!(scene.contents_without_index() == scene.contents());
}

#[test]
fn what_is_below_the_threshold_or_above_the_budget_stays() {
    let scene = Scene::new();
    scene.alone_with("a", &[1], &(10..18).collect::<Vec<_>>());
    scene.collect();
    scene.alone_with("b", &[1], &(20..28).collect::<Vec<_>>());
    scene.collect();
    let all =
        DefragmentOptions { budget: Budget::of_version(100), excess_percent: 100.0, ..DefragmentOptions::default() };
    assert!(scene.plans(&all).is_empty(), "a ninth is not enough");
    let tenth = DefragmentOptions { duplicate_percent: 10, ..all };
    assert!(scene.plans(&tenth).is_empty(), "one more container of which it would use little");
    let tenth = DefragmentOptions { dense_percent: 10, ..tenth };
    assert_eq!(scene.plans(&tenth).len(), 1);
    assert!(
        scene.plans(&DefragmentOptions { budget: Budget::of_version(80), ..tenth }).is_empty(),
        "eight ninths must be copied"
    );
    assert!(scene.plans(&DefragmentOptions { duplicate_percent: 101, ..EXACT }).is_empty());
}

/// A container is left by all newest versions that use it or by none, and its rest is copied once.
#[test]
fn what_several_leave_is_copied_once() {
    let scene = two_series();
    // Two more series that were once copies of the first.
    scene.files("a", &(1..6).collect::<Vec<_>>(), &[10]);
    for series in ["c", "d"] {
        let base = scene.newest("a").id();
        let report = backup_with(&scene.context(), &scene.source("a"), series, |options| options.base = Some(base));
        assert!(report.unwrap().version.is_some());
    }
    scene.collect();
    let contents = scene.contents();
    let (_, exact) = scene.held();
    assert_eq!(scene.data_of_version(&scene.newest("c")), scene.data_of_version(&scene.newest("a")));
    let plans = scene.plans(&DefragmentOptions { budget: Budget::of_version(20), ..DefragmentOptions::default() });
    assert_eq!(plans.len(), 3);
    assert!(
        scene.plans(&DefragmentOptions { budget: Budget::of_version(10), ..DefragmentOptions::default() }).is_empty()
    );
    assert_eq!(scene.compact_all(&EXACT), 3);
    scene.collect();
    assert!(scene.contents_without_index() == contents);
    assert_eq!(scene.held(), (exact, exact));
}

/// What one series rewrites is not taken back by another, and it comes to an end.
#[test]
fn series_that_share_do_not_go_to_and_fro() {
    let scene = Scene::new();
    let of = |range: std::ops::Range<u64>| range.collect::<Vec<_>>();
    for (series, common, own) in
        [("a", of(1..9), of(20..24)), ("b", of(3..12), of(30..33)), ("c", of(1..6), of(40..41))]
    {
        scene.alone_with(series, &common, &own);
    }
    for edition in 0..3u64 {
        scene.next("a", &of(1..9 - edition), &of(20..24 + edition));
        scene.next("b", &of(3 + edition..12), &of(30..33));
        scene.collect_only();
        let contents = scene.contents();
        for options in [DefragmentOptions { budget: Budget::of_version(50), ..DefragmentOptions::default() }, EXACT] {
            let mut rounds = 0;
            while scene.compact_all(&options) > 0 {
                scene.collect_only();
                rounds += 1;
                assert!(rounds <= 4, "edition {edition}: it does not come to an end");
                scene.is_whole(&contents, &format!("edition {edition}"));
            }
        }
    }
    // When only the newest are left, nothing is there twice.
    let newest: Vec<JobId> = ["a", "b", "c"].map(|series| scene.newest(series).id()).to_vec();
    for version in scene.versions().iter().filter(|version| !newest.contains(&version.id())) {
        scene.forget(version.id());
    }
    scene.collect();
    while scene.compact_all(&EXACT) > 0 {
        scene.collect();
    }
    let (held, exact) = scene.held();
    assert_eq!(held, exact);
}

/// A container that is sparse for one series and dense for another stays where it is: to copy out of it would store things twice.
#[test]
fn what_is_dense_for_another_series_is_not_left_for_being_sparse() {
    let scene = Scene::new();
    scene.alone_with("a", &(1..11).collect::<Vec<_>>(), &[]);
    let first = scene.newest("a").id();
    scene.files("b", &(1..11).collect::<Vec<_>>(), &[]);
    backup_with(&scene.context(), &scene.source("b"), "b", |options| options.base = Some(first)).unwrap();
    scene.next("a", &[1, 2, 3], &(100..110).collect::<Vec<_>>());
    scene.next("a", &[1], &(100..103).chain(200..210).collect::<Vec<_>>());
    let options =
        DefragmentOptions { sparse_percent: 40, budget: Budget::of_version(100), ..DefragmentOptions::default() };
    // Two containers hold little of the newest version of `a`: that of the first version, and that of the second.
    let newest = scene.newest("a");
    assert_eq!(scene.data_of_version(&newest).len(), 3);
    let manifest = VersionReader::open(&scene.context(), &newest).unwrap().manifest().clone();
    assert_eq!(defragment::plan(&newest, &manifest, &options).unwrap().containers.len(), 2);
    let first = scene.data_of_version(&scene.newest("b"));
    let left = |plans: Vec<DefragmentPlan>| -> Vec<_> {
        plans.iter().flat_map(|plan| &plan.containers).map(|usage| usage.container).collect()
    };
    let one = left(scene.plans(&options));
    assert!(one.len() == 1 && !first.contains(&one[0]), "but the first is dense for `b`: {one:?}");
    scene.forget(scene.newest("b").id());
    assert_eq!(left(scene.plans(&options)).len(), 2);
}

/// With a limit on what is unused: containers that an older version uses stay, and all others go whatever the budget is.
#[test]
fn what_is_unused_goes_when_no_older_version_needs_it() {
    let scene = Scene::new();
    scene.alone_with("a", &(1..11).collect::<Vec<_>>(), &[]);
    let first = scene.newest("a").id();
    scene.next("a", &(1..10).collect::<Vec<_>>(), &[]);
    let options = |percent| DefragmentOptions { unused_percent: Some(percent), budget: Budget::of_version(0), ..EXACT };
    assert!(scene.plans(&options(0.0)).is_empty(), "the older version may need all of it");
    scene.forget(first);
    scene.collect_only();
    let contents = scene.contents();
    assert!(scene.plans(&options(20.0)).is_empty(), "a tenth is unused");
    assert_eq!(scene.compact_all(&options(0.0)), 1);
    scene.collect_only();
    scene.is_whole(&contents, "rewritten");
    assert!(scene.plans(&options(0.0)).is_empty(), "nothing is unused");
    let (held, exact) = scene.held();
    assert_eq!(held, exact);
}

#[test]
fn what_cannot_be_read_is_not_shared() {
    let scene = two_series();
    let contents = scene.contents();
    let plan = scene.plans(&EXACT).pop().unwrap();
    let lender = *scene.data_of_version(&scene.newest("b")).first().unwrap();
    let name = names::container(lender);
    for damage in ["a byte", "gone"] {
        let fork = scene.fork();
        match damage {
            // In the first frame; its tables lie at the end.
            "a byte" => assert!(scene.runtime.block_on(fork.memory.change(&name, |bytes| bytes[100] ^= 1))),
            _ => scene.runtime.block_on(fork.memory.remove(&name)),
        }
        match defragment::compact(&fork.context(), &plan, &EXACT).unwrap() {
            Defragmented::Done { bytes, .. } => assert!(bytes > 60_000, "{damage}: {bytes}"),
            other => panic!("{damage}: {other:?}"),
        }
        let newest = fork.newest("a");
        assert_eq!(newest.generation, 1);
        assert!(contents_of(&fork.context(), &newest) == contents[&newest.id()], "{damage}");
    }
}

/// `OwnersNamed`: while it runs, the lease names every version of whose containers the generation will reference some.
#[test]
fn the_lease_names_all_whose_containers_are_referenced() {
    let scene = two_series();
    scene.alone_with("c", &[], &[10, 50, 51, 52]);
    scene.collect();
    let plan = scene.plans(&EXACT).pop().unwrap();
    assert_eq!(plan.version.summary.series, "a");
    assert_eq!(plan.others.len(), 2);
    let seen = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let leases = seen.clone();
    at_every_operation(
        &scene,
        move |scene| {
            let jobs = scene.runtime.block_on(scene.repository(scene.memory.store()).unfinished_jobs()).unwrap();
            leases.lock().extend(jobs.into_iter().filter(|other| other.lease.generation.is_some()));
        },
        |scene, store| defragment::compact(&scene.context_at(store), &plan, &EXACT).unwrap(),
        |scene, _, at| {
            let named: BTreeSet<_> =
                ["b", "c"].iter().flat_map(|series| scene.data_of_version(&scene.newest(series))).collect();
            let newest = scene.newest("a");
            let used = scene.data_of_version(&newest);
            assert!(used.iter().filter(|container| named.contains(container)).count() == 2, "{at}");
        },
    );
    let seen = seen.lock();
    assert!(!seen.is_empty());
    for other in seen.iter() {
        let pins: BTreeSet<JobId> = other.lease.pins.iter().map(|pin| pin.job).collect();
        let all: BTreeSet<JobId> = ["a", "b", "c"].map(|series| scene.newest(series).id()).into();
        assert_eq!(pins, all);
        assert_eq!(other.lease.pins[0].job, scene.newest("a").id(), "the register is a generation of the first");
    }
}

#[test]
fn an_index_that_lags_or_is_damaged_does_no_harm() {
    let scene = two_series();
    let plan = scene.plans(&EXACT).pop().unwrap();
    let contents = scene.contents();
    // The plan is old: meanwhile there is another index, without the other version.
    let fork = scene.fork();
    fork.forget(fork.newest("b").id());
    fork.collect();
    assert_eq!(defragment::compact(&fork.context(), &plan, &EXACT).unwrap(), Defragmented::Overtaken);
    // Damaged runs: nothing is planned, and nothing fails.
    let fork = scene.fork();
    let paths = scene.runtime.block_on(fork.memory.paths());
    for name in paths.iter().filter(|name| name.starts_with("index/")) {
        scene.runtime.block_on(fork.memory.change(name, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }));
    }
    assert!(fork.plans(&EXACT).is_empty());
    assert!(fork.contents() == contents);
}

/// Publishes an index that differs from the newest.
fn publish_changed(scene: &Scene, change: impl FnOnce(&IndexPass, &mut Draft<'_>)) {
    let repository = scene.repository(scene.memory.store());
    let base = scene.runtime.block_on(IndexSnapshot::newest(&repository)).unwrap().snapshot;
    let io = IndexIo { repository: repository.clone(), executor: scene.runtime.handle().into() };
    let ids = PassRuns::new(JobId::new(1, [base.number as u8; 10]));
    let pass = IndexPass::new(io, ids, 2.try_into().unwrap(), 4 << 20, scene.dir.path().to_owned());
    let mut draft = Draft::new(&pass, &base);
    change(&pass, &mut draft);
    let turn = scene.runtime.block_on(Current::settle(&repository)).unwrap().turn().unwrap();
    let published = scene.runtime.block_on(publish(&repository, &turn, draft.manifest)).unwrap();
    assert!(matches!(published, Published::Won { .. }));
}

/// A container of a newest version was retired for another one's copies, such as when the versions after it were forgotten. It is
/// rewritten, and needs the index no more.
#[test]
fn a_newest_version_does_not_need_the_index_for_long() {
    let scene = Scene::new();
    let common: Vec<u64> = (1..6).collect();
    scene.alone_with("a", &common, &[]);
    scene.collect();
    scene.alone_with("b", &common, &[20]);
    scene.collect();
    let contents = scene.contents();
    let reclaimed = *scene.data_of_version(&scene.newest("a")).first().unwrap();
    publish_changed(&scene, |pass, draft| {
        // Every chunk is now where its copy was.
        let (mut entries, mut copies) = (pass.changes::<Chunks>().unwrap(), pass.changes::<Copies>().unwrap());
        let mut others = BTreeSet::new();
        for record in draft.view::<Copies>(LookupOptions::default()).scan(0..=u64::MAX, 1 << 20) {
            let (key, chunk) = record.unwrap();
            others.insert(key.container);
            entries.put(&key.chunk, &ChunkPlace { container: key.container, chunk: chunk.unwrap() }).unwrap();
            copies.remove(&key).unwrap();
        }
        let mut changes = pass.changes::<Containers>().unwrap();
        for record in draft.view::<Containers>(LookupOptions::default()).scan(0..=u64::MAX, 1 << 20) {
            let (number, facts) = record.unwrap();
            let mut facts = facts.unwrap();
            if facts.id == reclaimed {
                facts.state = ContainerState::Gone;
                (facts.retired_chunks, facts.retired_bytes) = (facts.chunks, facts.bytes);
                facts.forwards = others.iter().copied().collect();
                changes.put(&number, &facts).unwrap();
            }
        }
        draft.apply(changes).unwrap();
        draft.apply(entries).unwrap();
        draft.apply(copies).unwrap();
    });
    scene.runtime.block_on(scene.memory.remove(&names::container(reclaimed)));
    assert!(scene.contents() == contents, "through the index");
    let plans = scene.plans(&EXACT);
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0].containers.iter().map(|usage| usage.container).collect::<Vec<_>>(), [reclaimed]);
    assert_eq!(scene.compact_all(&EXACT), 1);
    assert!(scene.contents_without_index() == contents);
}

/// `RebuiltKeepsCopies`: of what a rebuilt index found, a delete may be under way that nobody remembers.
#[test]
fn nothing_is_led_to_what_a_rebuilt_index_found() {
    let scene = two_series();
    assert_eq!(scene.plans(&EXACT).len(), 1);
    publish_changed(&scene, |_, draft| draft.manifest.head.rebuilt = Some(draft.manifest.head.next_container));
    assert!(scene.plans(&EXACT).is_empty());
    // What comes later can be relied on again.
    scene.next("b", &(1..6).collect::<Vec<_>>(), &[21]);
    scene.alone_with("c", &(1..6).collect::<Vec<_>>(), &[30]);
    scene.collect();
    let contents = scene.contents();
    let plans = scene.plans(&EXACT);
    assert_eq!(plans.len(), 2);
    assert!(plans.iter().all(|plan| plan.others.iter().all(|other| other.summary.series == "c")));
    assert_eq!(scene.compact_all(&EXACT), 2);
    assert!(scene.contents_without_index() == contents);
}
