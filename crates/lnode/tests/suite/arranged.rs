//! Versions of the layout `lifecycle`: what recipes name is found where the index says that it is now, by every reader.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::support::arranging::{Arranger, Known, data_containers};
use crate::support::*;
use larder_format::compress::Compression;
use larder_format::layout::Layout;
use larder_format::manifest::Statistics;
use larder_format::names;
use larder_job::{JobContext, Progress};
use larder_lnode::{BackupOptions, RestoreOptions, RestoreReport};
use larder_reader::{FetchOptions, FetchReport, VersionReader, stats};
use larder_rewrite::check::ReadData;
use larder_rewrite::repair::{HealOptions, HealedVersion, heal};
use larder_rewrite::{CheckOptions, CheckReport};
use larder_source::target::{Target, TargetOptions};
use larder_source::{Roots, Walk, WalkOptions};
use larder_store::catalog::Version;
use larder_store::{RepositoryError, Store, StoreOptions};
use larder_testkit::{FaultStore, Faults, Memory, OpKind, data};

type Files = BTreeMap<String, Vec<u8>>;

struct Scene {
    dir: tempfile::TempDir,
    faults: Faults,
    memory: Memory,
    context: JobContext,
    arranger: Arranger,
    /// The files of each version.
    history: Vec<Files>,
    // Last: what runs on it must be gone before.
    _runtime: tokio::runtime::Runtime,
}

impl Scene {
    /// A large file that changes in places, and small ones that come, go and return.
    fn new(versions: u64, large: usize) -> Self {
        let (dir, runtime, memory) = (tempfile::tempdir().unwrap(), runtime(), Memory::new());
        let (store, faults) = FaultStore::new(memory.store());
        let store = Store::from_object_store(store, "", &StoreOptions::default()).unwrap();
        let context = context(&runtime, init(&runtime, store));
        fs::create_dir(dir.path().join("source")).unwrap();
        let arranger = Arranger::default();
        let mut scene = Self { dir, faults, memory, context, arranger, history: Vec::new(), _runtime: runtime };
        let mut content = data::random(1, large);
        for version in 0..versions {
            for place in (version as usize * 77_000..content.len() - 200_000).step_by(700_000) {
                content[place..place + 100_000].copy_from_slice(&data::random(version << 32 | place as u64, 100_000));
            }
            let mut files: Files = (0..6)
                .filter(|number| (number + version) % 4 != 0)
                .map(|number| (format!("small{number}"), data::random(900 + number + version / 2, 30_000)))
                .collect();
            files.insert("large".into(), content.clone());
            scene.back_up(files);
        }
        scene
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn subpath(&self) -> Vec<u8> {
        self.source().as_os_str().as_bytes()[1..].to_vec()
    }

    fn back_up(&mut self, files: Files) {
        self.back_up_as(files, false);
    }

    fn back_up_as(&mut self, files: Files, paranoid: bool) -> Statistics {
        let _ = fs::remove_dir_all(self.source());
        fs::create_dir(self.source()).unwrap();
        for (name, content) in &files {
            fs::write(self.source().join(name), content).unwrap();
        }
        let paths = vec![self.source().as_os_str().as_bytes().to_vec()];
        let options =
            BackupOptions { paths, layout: Layout::Lifecycle, paranoid, force: paranoid, ..options("series") };
        let report = larder_lnode::backup(&self.context, walk(&self.source()), &options).unwrap();
        self.history.push(files);
        report.statistics
    }

    fn versions(&self) -> Vec<Version> {
        versions(&self.context)
    }

    fn take_in(&mut self) {
        self.arranger.take_in(&self.context, &self.versions());
    }

    /// The paper's layout: everything lies with what has the same last version.
    fn arrange(&mut self, moves: impl Fn(&Known) -> bool) {
        self.take_in();
        let newest = self.history.len() - 1;
        self.arranger.pass(&self.context, newest, moves);
    }

    fn restore(&self, number: usize, fetch: &FetchOptions) -> (Files, RestoreReport) {
        let target = tempfile::tempdir_in(self.dir.path()).unwrap();
        let options =
            RestoreOptions { subpath: Some(self.subpath()), fetch: fetch.clone(), ..RestoreOptions::default() };
        let opened = Target::open(target.path(), TargetOptions::default()).unwrap();
        let report = larder_lnode::restore(&self.context, &self.versions()[number], &opened, &options).unwrap();
        let files = fs::read_dir(target.path()).unwrap().map(|entry| entry.unwrap());
        let files = files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()));
        (files.collect(), report)
    }

    /// What a pipe gets.
    fn dump(&self, number: usize, fetch: &FetchOptions) -> (Files, FetchReport) {
        let reader = VersionReader::open(&self.context, &self.versions()[number]).unwrap().fetching(fetch.clone());
        (dumped(&reader, &self.subpath()), reader.fetched())
    }

    fn check(&self) -> CheckReport {
        larder_rewrite::check(&self.context, &CheckOptions { read_data: ReadData::All, ..CheckOptions::default() })
            .unwrap()
    }

    fn reads_of_data(&self) -> Vec<String> {
        let log = self.faults.log();
        let reads = log.iter().filter(|op| op.kind == OpKind::Get && op.path.starts_with("data/"));
        reads.map(|op| op.path.clone()).collect()
    }

    fn assert_all_readable(&self) {
        for (number, files) in self.history.iter().enumerate() {
            let (restored, report) = self.restore(number, &FetchOptions::default());
            assert_eq!((report.errors, report.damaged), (0, 0), "version {number}");
            assert!(restored == *files, "version {number}");
            assert!(self.dump(number, &FetchOptions::default()).0 == *files, "version {number} in order");
        }
        let report = self.check();
        assert_eq!((report.damages, report.unused_containers), (vec![], 0));
    }
}

fn dumped(reader: &VersionReader, path: &[u8]) -> Files {
    let mut files = Files::new();
    let visited = reader.visit_contents(path, |entry, content| {
        let name = String::from_utf8(entry.path.rsplit(|byte| *byte == b'/').next().unwrap().to_vec()).unwrap();
        if name != "source" {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).unwrap();
            files.insert(name, bytes);
        }
        Ok::<_, RepositoryError>(())
    });
    visited.unwrap();
    files
}

fn everything(_: &Known) -> bool {
    true
}

#[test]
fn every_version_is_read_from_where_it_was_arranged() {
    let mut scene = Scene::new(4, 10 << 20);
    scene.assert_all_readable();
    let named = data_containers(&scene.context);
    scene.arrange(everything);
    assert!(data_containers(&scene.context).is_disjoint(&named), "nothing is where it was");
    scene.assert_all_readable();
    // Only what no version but the first uses, and every third chunk: extents are split, and some stay where they are.
    let files = scene.history[1].clone();
    scene.back_up(files);
    scene.arrange(|known| known.last == 0 || known.chunk.offset % 3 == 0);
    scene.assert_all_readable();
    let names = data_containers(&scene.context);
    scene.arrange(everything);
    assert!(data_containers(&scene.context).is_disjoint(&names));
    scene.assert_all_readable();
}

/// No request is for a container that is not there, and each container of the category order is read once, forward.
#[test]
fn nothing_is_asked_for_where_it_is_not_and_containers_are_read_in_order() {
    let mut scene = Scene::new(3, 20 << 20);
    let named: BTreeSet<String> = data_containers(&scene.context).iter().map(|id| names::container(*id)).collect();
    scene.arrange(everything);
    for number in 0..3 {
        let before = scene.reads_of_data().len();
        let (files, report) = scene.restore(number, &FetchOptions { prefetch: 1, ..FetchOptions::default() });
        assert!(files == scene.history[number]);
        let mut reads = scene.reads_of_data().split_off(before);
        assert!(reads.iter().all(|path| !named.contains(path)), "{reads:?}");
        assert_eq!(reads.len() as u64, report.fetched.requests);
        assert_eq!(report.fetched.again, 0);
        reads.dedup();
        let read: Vec<_> = reads.iter().filter_map(|path| names::parse_container(path)).collect();
        assert!(read.len() == reads.len() && read.is_sorted_by(|a, b| a < b), "each once, forward: {read:?}");
        assert!(report.fetched.per_byte() < 1.15, "{report:?}");
        // In order, with room for the containers, and with room for pieces of them.
        for (cache_memory, most) in [(64 << 20, 1.15), (12 << 20, 1.2), (6 << 20, 1.2)] {
            let fetch = FetchOptions { cache_memory: Some(cache_memory), ..FetchOptions::default() };
            let (files, fetched) = scene.dump(number, &fetch);
            assert!(files == scene.history[number]);
            // Where memory is short, a container on the border of two pieces may be asked for again.
            assert!(fetched.again == 0 || cache_memory < 64 << 20, "{fetched:?}");
            // What is not wanted of the containers on the border of the wanted categories, frames on borders, and tables.
            assert!(fetched.per_byte() < most, "{cache_memory}: {fetched:?}");
        }
    }
}

/// Deletes what is over as soon as something of it was read: whoever goes on must look again.
#[test]
fn what_is_moved_while_it_is_read_is_found_again() {
    let mut scene = Scene::new(3, 12 << 20);
    scene.arrange(|known| known.chunk.offset % 2 == 0);
    let version = scene.versions()[0].clone();
    // In order: the second pass runs when the first file was read.
    let fetch = FetchOptions { prefetch: 0, cache_memory: Some(0), ..FetchOptions::default() };
    let reader = VersionReader::open(&scene.context, &version).unwrap().fetching(fetch);
    let (path, expected) = (scene.subpath(), scene.history[0].clone());
    let mut seen = 0;
    let visited = reader.visit_contents(&path, |entry, content| {
        let name = String::from_utf8(entry.path.rsplit(|byte| *byte == b'/').next().unwrap().to_vec()).unwrap();
        let Some(expected) = expected.get(&name) else { return Ok::<_, RepositoryError>(()) };
        let mut bytes = vec![0; expected.len().min(1 << 20)];
        content.read_exact(&mut bytes).unwrap();
        if seen == 0 {
            scene.arranger.pass(&scene.context, 2, everything);
        }
        content.read_to_end(&mut bytes).unwrap();
        assert!(bytes == *expected, "{name}");
        seen += 1;
        Ok(())
    });
    visited.unwrap();
    assert_eq!(seen, expected.len());
    // What the index had said is kept by a reader, and everything is elsewhere again.
    scene.arranger.pass(&scene.context, 2, everything);
    assert!(dumped(&reader, &path) == expected);
    scene.assert_all_readable();
}

#[test]
fn a_restore_finds_what_moves_before_it_comes_there() {
    let mut scene = Scene::new(3, 12 << 20);
    scene.arrange(everything);
    let (before, reads) = (data_containers(&scene.context), scene.reads_of_data().len());
    // The pass runs when the restore says that its first file is done: its plan was made before.
    struct Passing(parking_lot::Mutex<Option<(Arranger, JobContext)>>);
    impl Progress for Passing {
        fn current(&self, _: &[u8]) {
            if let Some((mut arranger, context)) = self.0.lock().take() {
                arranger.pass(&context, 2, everything);
            }
        }
    }
    let arranger = std::mem::take(&mut scene.arranger);
    let passing = Arc::new(Passing(parking_lot::Mutex::new(Some((arranger, scene.context.clone())))));
    scene.context.progress = passing.clone();
    scene.context.threads = std::num::NonZeroUsize::MIN;
    let fetch = FetchOptions { prefetch: 0, ..FetchOptions::default() };
    let (files, report) = scene.restore(0, &fetch);
    assert!(passing.0.lock().is_none());
    assert_eq!((report.errors, files == scene.history[0]), (0, true));
    let after = data_containers(&scene.context);
    let reads = scene.reads_of_data().split_off(reads);
    let of =
        |ids: &BTreeSet<_>| reads.iter().filter_map(|path| names::parse_container(path)).any(|id| ids.contains(&id));
    assert!(before.is_disjoint(&after) && of(&before) && of(&after), "it began with what was there before");
    scene.assert_all_readable();
}

#[test]
fn parts_are_read_without_the_rest() {
    let mut scene = Scene::new(4, 12 << 20);
    scene.arrange(everything);
    for number in 0..4 {
        let reader = VersionReader::open(&scene.context, &scene.versions()[number]).unwrap();
        let name = scene.history[number].keys().rfind(|name| name.starts_with("small")).unwrap().clone();
        let path = [scene.subpath(), format!("/{name}").into_bytes()].concat();
        let mut seen = Vec::new();
        reader
            .visit_contents(&path, |_, content| {
                content.read_to_end(&mut seen).unwrap();
                Ok::<_, RepositoryError>(())
            })
            .unwrap();
        assert!(seen == scene.history[number][&name]);
        let fetched = reader.fetched();
        assert!(fetched.bytes < 2 << 20, "{fetched:?}");
        let options = RestoreOptions { subpath: Some(path), ..RestoreOptions::default() };
        let target = tempfile::tempdir_in(scene.dir.path()).unwrap();
        let opened = Target::open(target.path(), TargetOptions::default()).unwrap();
        let report = larder_lnode::restore(&scene.context, &scene.versions()[number], &opened, &options).unwrap();
        assert_eq!((report.files_restored, report.errors), (1, 0));
        assert!(fs::read(target.path().join(&name)).unwrap() == scene.history[number][&name]);
        assert!(report.fetched.bytes < 2 << 20, "{:?}", report.fetched);
    }
}

#[test]
fn damage_to_a_volume_is_named_with_the_versions_that_need_it() {
    let mut scene = Scene::new(3, 6 << 20);
    scene.arrange(everything);
    // The volume of the oldest version is needed by that one alone.
    let oldest = scene.arranger.chunks.values().find(|known| known.last == 0).unwrap().now.container;
    let newest =
        scene.arranger.chunks.values().find(|known| known.last == 2 && known.first == 0).unwrap().now.container;
    let runtime = scene.context.executor.clone();
    for (victim, suffering) in [(oldest, vec![0]), (newest, vec![0, 1, 2])] {
        let name = names::container(victim);
        let whole = runtime.block_on(scene.context.repository.store().get_up_to(&name, u64::MAX)).unwrap();
        for is_gone in [false, true] {
            match is_gone {
                true => runtime.block_on(scene.context.repository.store().delete(&name)).unwrap(),
                false => runtime.block_on(scene.memory.change(&name, |bytes| bytes[1000] ^= 1)).then_some(()).unwrap(),
            }
            let report = scene.check();
            assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
            assert_eq!(report.damages[0].object, name);
            let ids: Vec<_> = scene.versions().iter().map(Version::id).collect();
            let mut affected: Vec<_> = report.damages[0].affected.iter().map(|version| version.id).collect();
            affected.sort_unstable();
            assert_eq!(affected, suffering.iter().map(|number| ids[*number]).collect::<Vec<_>>());
            for (number, files) in scene.history.iter().enumerate() {
                let (restored, report) = scene.restore(number, &FetchOptions::default());
                let wrong = files.iter().filter(|(name, bytes)| restored.get(*name) != Some(bytes)).count();
                assert_eq!(wrong as u64, report.damaged, "what is not right was said to be damaged");
                assert_eq!(report.damaged > 0, suffering.contains(&number));
            }
        }
        let create = scene.context.repository.store().create(&name, whole);
        runtime.block_on(create).unwrap();
    }
    scene.assert_all_readable();
}

#[test]
fn backups_build_on_versions_that_were_arranged() {
    let mut scene = Scene::new(2, 6 << 20);
    for paranoid in [false, true] {
        scene.arrange(everything);
        let files = scene.history.last().unwrap().clone();
        let statistics = scene.back_up_as(files, paranoid);
        assert_eq!(statistics.new_chunks, 0, "paranoid: {paranoid}");
    }
    scene.assert_all_readable();
    scene.arrange(everything);
    scene.assert_all_readable();
}

#[test]
fn what_a_volume_has_lost_is_put_back_from_files_that_have_it() {
    let mut scene = Scene::new(3, 3 << 20);
    scene.arrange(everything);
    let all = scene.arranger.chunks.values().filter(|known| known.last == 2 && known.first == 0);
    let victim = names::container(all.clone().next().unwrap().now.container);
    let damage = |bytes: &mut Vec<u8>| bytes[1000] ^= 1;
    assert!(scene.context.executor.block_on(scene.memory.change(&victim, damage)));
    let before = scene.restore(0, &FetchOptions::default()).1;
    assert!(before.damaged > 0);
    let roots = Roots::new([scene.source().as_os_str().as_bytes()], b"/").unwrap();
    let options = HealOptions {
        read_data: ReadData::All,
        versions: Vec::new(),
        dry_run: false,
        compression: Compression::DEFAULT,
    };
    let report = heal(&scene.context, Walk::new(roots, WalkOptions::default()), &options).unwrap();
    assert_eq!(report.versions.len(), 3, "{report:?}");
    assert!(report.versions.iter().all(HealedVersion::is_whole), "{report:?}");
    // What they lost, and what lay beside it, is stored once more and not three times.
    let layouts: Vec<_> = scene.versions().iter().map(|version| (version.generation, version.summary.layout)).collect();
    assert_eq!(layouts, [(1, Layout::Lifecycle); 3]);
    for (number, files) in scene.history.iter().enumerate() {
        assert!(scene.restore(number, &FetchOptions::default()).0 == *files);
    }
    let of_volume: u64 = all.clone().map(|known| u64::from(known.chunk.size)).sum();
    let again: u64 = {
        let context = &scene.context;
        let named = data_containers(context);
        let known: BTreeSet<_> = scene.arranger.chunks.values().map(|known| known.now.container).collect();
        let index = |id| context.executor.block_on(context.repository.read_container_index(id)).unwrap();
        named.difference(&known).map(|id| u64::from(index(*id).payload_len)).sum()
    };
    // The keeper's copies of what was lost, and one container's worth for the versions.
    assert!(again < 2 * of_volume, "{again} for {of_volume}");
}

#[test]
fn statistics_are_of_where_things_are() {
    let mut scene = Scene::new(3, 4 << 20);
    let stats_of = |scene: &Scene, number: usize| stats(&scene.context, &scene.versions()[number..=number]).unwrap();
    let before: Vec<_> = (0..3).map(|number| stats_of(&scene, number)).collect();
    scene.arrange(everything);
    for (number, before) in before.iter().enumerate() {
        let after = stats_of(&scene, number);
        assert_eq!((after.files, after.logical_bytes), (before.files, before.logical_bytes));
        assert!(after.stored_data_bytes > after.logical_bytes * 9 / 10, "{after:?}");
        assert!(after.unique_bytes >= after.logical_bytes - 40_000, "{after:?}");
    }
    let all = stats(&scene.context, &scene.versions()).unwrap();
    let listed = scene.context.executor.block_on(scene.context.repository.store().list(names::DATA)).unwrap();
    assert_eq!(all.stored_data_bytes, listed.iter().map(|object| object.size).sum::<u64>());
    let chunks = scene.arranger.chunks.values().map(|known| u64::from(known.chunk.size)).sum::<u64>();
    assert_eq!(all.unique_bytes, chunks);
}

/// The index is there, and what it says of places cannot be read: nothing is taken for something else, and nothing hangs.
#[test]
fn damaged_records_lose_what_they_lead_to_and_nothing_else() {
    let mut scene = Scene::new(2, 3 << 20);
    scene.arrange(everything);
    // A file that was never arranged is read all the same.
    let mut files = scene.history[1].clone();
    files.insert("new".into(), data::random(5, 100_000));
    scene.back_up(files);
    let context = &scene.context;
    let runs = context.executor.block_on(context.repository.store().list(names::RUNS)).unwrap();
    assert!(!runs.is_empty());
    for run in &runs {
        let middle = (run.size / 2) as usize;
        assert!(context.executor.block_on(scene.memory.change(&run.name, |bytes| bytes[middle] ^= 1)));
    }
    let (restored, report) = scene.restore(2, &FetchOptions::default());
    assert!(report.damaged > 0 && restored["new"] == scene.history[2]["new"], "{report:?}");
    let wrong = scene.history[2].iter().filter(|(name, bytes)| restored.get(*name) != Some(bytes)).count();
    assert_eq!(wrong as u64, report.damaged, "what is not right was said to be damaged");
    assert!(!scene.check().damages.is_empty());
    for run in &runs {
        let middle = (run.size / 2) as usize;
        scene.context.executor.block_on(scene.memory.change(&run.name, |bytes| bytes[middle] ^= 1));
    }
    scene.assert_all_readable();
}

#[test]
fn without_an_index_people_are_told_what_to_do() {
    let mut scene = Scene::new(2, 3 << 20);
    scene.arrange(everything);
    let context = &scene.context;
    for object in context.executor.block_on(context.repository.store().list(names::INDEX)).unwrap() {
        context.executor.block_on(context.repository.store().delete(&object.name)).unwrap();
    }
    let report = scene.check();
    assert!(!report.damages.is_empty());
    assert!(report.damages.iter().all(|damage| damage.why.contains("larder repair index")), "{:?}", report.damages);
    #[derive(Default)]
    struct Notes(parking_lot::Mutex<Vec<String>>);
    impl Progress for Notes {
        fn note(&self, text: &str) {
            self.0.lock().push(text.to_owned());
        }
    }
    let notes = Arc::new(Notes::default());
    scene.context.progress = notes.clone();
    let (_, report) = scene.restore(0, &FetchOptions::default());
    assert!(report.damaged > 0);
    let notes = notes.0.lock();
    assert_eq!(notes.iter().filter(|note| note.contains("larder repair index")).count(), 1, "{notes:?}");
}
