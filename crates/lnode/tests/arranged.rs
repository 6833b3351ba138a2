//! Versions of the layout `lifecycle`: what recipes name is found where the index says that it is now, by every reader.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use larder_format::layout::Layout;
use larder_format::names;
use larder_lnode::check::ReadData;
use larder_lnode::{
    BackupOptions, CheckOptions, CheckReport, Context, FetchOptions, FetchReport, Progress, RestoreOptions,
    RestoreReport, VersionReader,
};
use larder_source::target::{Target, TargetOptions};
use larder_store::catalog::Version;
use larder_store::{RepositoryError, Store, StoreOptions};
use larder_testkit::{FaultStore, Faults, Memory, OpKind, data};
use support::arranging::{Arranger, Known, data_containers};
use support::*;

type Files = BTreeMap<String, Vec<u8>>;

struct Scene {
    dir: tempfile::TempDir,
    faults: Faults,
    memory: Memory,
    context: Context,
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
        let _ = fs::remove_dir_all(self.source());
        fs::create_dir(self.source()).unwrap();
        for (name, content) in &files {
            fs::write(self.source().join(name), content).unwrap();
        }
        let paths = vec![self.source().as_os_str().as_bytes().to_vec()];
        let options = BackupOptions { paths, layout: Layout::Lifecycle, ..options("series") };
        larder_lnode::backup(&self.context, walk(&self.source()), &options).unwrap();
        self.history.push(files);
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
        larder_lnode::check(&self.context, &CheckOptions { read_data: ReadData::All, ..CheckOptions::default() })
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
        let in_order = reads.clone().into_iter().collect::<BTreeSet<_>>();
        assert_eq!(reads.len(), in_order.len(), "each once");
        let (files, fetched) = scene.dump(number, &FetchOptions::default());
        assert!(files == scene.history[number]);
        assert_eq!(fetched.again, 0, "{fetched:?}");
        assert!(fetched.per_byte() < 1.2 && report.fetched.per_byte() < 1.2, "{fetched:?} {report:?}");
    }
}
