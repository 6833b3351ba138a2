//! Files and proved data are taken over unread only from versions of this machine (`WitnessedOnly`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::support::*;
use larder_format::keys::Secret;
use larder_format::layout::Layout;
use larder_format::witness_key::WitnessKey;
use larder_job::{JobContext, Machine, Progress};
use larder_lnode::{BackupOptions, BackupReport, Input, WhyBase, backup};
use larder_store::rules::Rule;
use larder_testkit::data;

#[derive(Debug, Default)]
struct Notes(parking_lot::Mutex<Vec<String>>);

impl Progress for Notes {
    fn note(&self, text: &str) {
        self.0.lock().push(text.to_owned());
    }
}

struct Scene {
    _runtime: tokio::runtime::Runtime,
    context: JobContext,
    folder: tempfile::TempDir,
    notes: Arc<Notes>,
}

/// Contents of the tree.
const HONEST: u64 = 1;
const FORGED: u64 = 2;
const LEN: usize = 200_000;

impl Scene {
    fn new() -> Self {
        let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
        fs::create_dir(folder.path().join("tree")).unwrap();
        let notes = Arc::new(Notes::default());
        let context = context(&runtime, init(&runtime, local(&folder.path().join("repository"))));
        let scene =
            Self { context: JobContext { progress: notes.clone(), ..context }, _runtime: runtime, folder, notes };
        scene.write(HONEST);
        scene
    }

    fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    /// Files that differ in their contents alone.
    fn write(&self, seed: u64) {
        for number in 0..3 {
            let path = self.tree().join(number.to_string());
            fs::write(&path, data::random(seed * 10 + number, LEN)).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        }
    }

    /// The same repository from a machine with this secret; `None`: from one without.
    fn machine(&self, secret: Option<u8>) -> JobContext {
        let id = self.context.repository.config().repository;
        let key = secret.map(|secret| WitnessKey::new(&Secret([secret; 32]), id));
        JobContext { machine: key.map(Machine::with_witness).unwrap_or_default(), ..self.context.clone() }
    }

    /// The newest version holds what the tree holds.
    fn holds_the_tree(&self) -> bool {
        let target = self.folder.path().join("target");
        let _ = fs::remove_dir_all(&target);
        let newest = versions(&self.context).pop().unwrap();
        restore(&self.context, &newest, &self.tree(), &target).unwrap();
        (0..3).all(|number| {
            let read = |folder: &Path| fs::read(folder.join(number.to_string())).unwrap();
            read(&self.tree()) == read(&target)
        })
    }
}

/// Contents are told by size and time of change alone, as on file systems without stable inodes.
fn lax(change: impl FnOnce(&mut BackupOptions)) -> BackupOptions {
    let mut options = BackupOptions { ignore_ctime: true, ignore_inode: true, ..options("series") };
    change(&mut options);
    options
}

fn back_up(context: &JobContext, scene: &Scene, change: impl FnOnce(&mut BackupOptions)) -> BackupReport {
    backup(context, walk(&scene.tree()), &lax(change)).unwrap()
}

fn whys(report: &BackupReport) -> Vec<WhyBase> {
    report.bases.iter().map(|base| base.why).collect()
}

/// A client with a key of the domain makes a version of the same series, with the names, sizes and
/// times of the files and other contents.
fn forge(scene: &Scene) {
    scene.write(FORGED);
    back_up(&scene.machine(Some(66)), scene, |options| options.force = true);
    scene.write(HONEST);
}

#[test]
fn contents_of_another_client_are_not_taken_over() {
    let scene = Scene::new();
    back_up(&scene.context, &scene, |_| {});
    forge(&scene);
    let report = back_up(&scene.context, &scene, |_| {});
    assert!(scene.holds_the_tree());
    // It compares with its own version, so nothing is read, and nothing is stored twice.
    assert_eq!(whys(&report), [WhyBase::Own, WhyBase::Newest]);
    assert_eq!((report.statistics.read_bytes, report.statistics.new_chunks), (0, 0));
    assert_eq!(report.statistics.files_unmodified, 3);
    assert_eq!(*scene.notes.0.lock(), <[String; 0]>::default());
}

/// The attack, where the rule is broken.
#[test]
fn without_the_rule_the_contents_of_another_client_are_taken_over() {
    let scene = Scene::new();
    back_up(&scene.context, &scene, |_| {});
    forge(&scene);
    let repository = scene.context.repository.without_rule(Rule::WitnessedOnly);
    back_up(&scene.context.through(&repository), &scene, |_| {});
    assert!(!scene.holds_the_tree());
}

#[test]
fn a_machine_without_a_version_of_its_own_reads_all_files_once() {
    let scene = Scene::new();
    forge(&scene);
    let report = back_up(&scene.context, &scene, |options| options.skip_if_unchanged = true);
    assert!(scene.holds_the_tree() && report.version.is_some());
    assert_eq!(report.statistics.read_bytes, 3 * LEN as u64);
    let told = std::mem::take(&mut *scene.notes.0.lock());
    assert_eq!(told, ["all files are read, because this machine made none of the newest snapshots of the series"]);
    let again = back_up(&scene.context, &scene, |_| {});
    assert_eq!((again.statistics.read_bytes, whys(&again)), (0, vec![WhyBase::Newest]));
    assert!(scene.notes.0.lock().is_empty());
}

#[test]
fn a_lost_state_costs_one_full_read_and_no_space() {
    let scene = Scene::new();
    back_up(&scene.context, &scene, |_| {});
    for (machine, why) in [(Some(3), "made none of the newest"), (None, "neither a key file nor a state folder")] {
        let machine = scene.machine(machine);
        // Equal contents do not make a foreign version this machine's own, so it is not skipped.
        let report = back_up(&machine, &scene, |options| options.skip_if_unchanged = true);
        let statistics = &report.statistics;
        assert_eq!((statistics.read_bytes, statistics.new_chunks), (3 * LEN as u64, 0));
        assert!(report.version.is_some_and(|version| version.witness.is_some() == machine.machine.has_witness()));
        let told = std::mem::take(&mut *scene.notes.0.lock());
        assert!(told.len() == 1 && told[0].contains(why), "{told:?}");
    }
    // Without a witness, every backup reads everything.
    let report = back_up(&scene.machine(None), &scene, |_| {});
    assert_eq!(report.statistics.read_bytes, 3 * LEN as u64);
}

#[test]
fn the_user_may_trust_a_version() {
    let scene = Scene::new();
    back_up(&scene.machine(Some(3)), &scene, |_| {});
    let newest = versions(&scene.context).pop().unwrap().id();
    let trusting: [&dyn Fn(&mut BackupOptions); 2] =
        [&|options| options.base = Some(newest), &|options| options.trust_newest = true];
    for trust in trusting {
        let options = lax(|options| {
            trust(options);
            options.dry_run = true;
        });
        let report = backup(&scene.context, walk(&scene.tree()), &options).unwrap();
        assert_eq!((report.statistics.read_bytes, report.statistics.files_unmodified), (0, 3));
    }
    assert_eq!(*scene.notes.0.lock(), <[String; 0]>::default());
}

/// A pair of hosts of which one takes over from the other, with one file system.
#[test]
fn machines_in_turns_follow_their_own_versions() {
    let scene = Scene::new();
    let machines = [scene.machine(Some(1)), scene.machine(Some(2))];
    for (turn, machine) in machines.iter().cycle().take(6).enumerate() {
        fs::write(scene.tree().join(format!("new {turn}")), data::random(100 + turn as u64, 10_000)).unwrap();
        let report = back_up(machine, &scene, |_| {});
        // From its second turn on, a machine reads what is new since its last one.
        let expected = match turn {
            0 => 3 * LEN + 10_000,
            1 => 3 * LEN + 20_000,
            _ => 20_000,
        };
        assert_eq!(report.statistics.read_bytes, expected as u64, "turn {turn}");
        let stored = report.statistics.added_bytes;
        assert!(turn == 0 || stored < 25_000, "turn {turn}: {stored} bytes stored, found in the newest version else");
    }
}

/// A lifecycle series shares with its newest version alone, so an older one is not followed.
#[test]
fn in_the_layout_lifecycle_files_are_read_after_another_machine() {
    let scene = Scene::new();
    let lifecycle = |options: &mut BackupOptions| options.layout = Layout::Lifecycle;
    back_up(&scene.context, &scene, lifecycle);
    forge(&scene);
    let report = back_up(&scene.context, &scene, lifecycle);
    assert!(scene.holds_the_tree());
    assert_eq!((report.statistics.read_bytes, whys(&report)[0]), (3 * LEN as u64, WhyBase::Newest));
}

/// Proofs of segments are believed only in versions of this machine, also those of other series.
#[test]
fn predictions_come_from_own_versions() {
    let scene = Scene::new();
    let stream = |context: &JobContext, series: &str, seed: u64| {
        let reader = Box::new(std::io::Cursor::new(data::random(seed, 4 << 20)));
        let input = Input::Stream { path: b"stream".to_vec(), reader, size: None };
        backup(context, input, &options(series)).unwrap().statistics
    };
    let stranger = scene.machine(Some(66));
    stream(&stranger, "series", 7);
    let unproved = stream(&scene.context, "series", 7);
    assert_eq!((unproved.predicted_bytes, unproved.new_chunks), (0, 0));
    assert_eq!(stream(&scene.context, "series", 7).predicted_bytes, 4 << 20);
    // A series without versions begins with a similar one.
    stream(&stranger, "foreign", 8);
    assert_eq!(stream(&stranger, "like foreign", 8).predicted_bytes, 4 << 20);
    let unproved = stream(&scene.context, "also like foreign", 8);
    assert_eq!((unproved.predicted_bytes, unproved.new_chunks), (0, 0));
    // So does a moved tree.
    fs::write(scene.tree().join("large"), data::random(9, 4 << 20)).unwrap();
    let tree = |context: &JobContext, series: &str| {
        let report = backup(context, walk(&scene.tree()), &options(series)).unwrap();
        assert_eq!(whys(&report).first(), (series != "tree").then_some(&WhyBase::Similar));
        (report.statistics.predicted_bytes, report.statistics.new_chunks)
    };
    tree(&stranger, "tree");
    assert_eq!(tree(&stranger, "like tree"), (4 << 20, 0));
    assert_eq!(tree(&scene.context, "also like tree"), (0, 0));
}
