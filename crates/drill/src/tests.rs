//! Comparisons of restored and live files, with a repository in a folder.

use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::entry::{Entry, EntryKind, Timestamp};
use larder_format::ids::RepositoryId;
use larder_format::key_file::KeyFields;
use larder_job::{Cancel, Identity, JobContext, Machine, NoProgress, SystemClock};
use larder_lnode::{BackupOptions, Input, RestoreOptions, restore};
use larder_reader::{Reading, VersionReader};
use larder_source::target::{Target, TargetOptions};
use larder_source::{Roots, Walk, WalkOptions};
use larder_store::catalog::Version;
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::data;

use crate::compare::{Comparison, note_live};
use crate::live::{Live, Outcome};
use crate::{DrillOptions, FindingKind, Sample, SnapshotReport, drill};

struct Scene {
    dir: tempfile::TempDir,
    context: JobContext,
    _runtime: tokio::runtime::Runtime,
}

impl Scene {
    /// A repository with one version of a folder.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let config = Config {
            repository: RepositoryId([7; 16]),
            created_ms: 0,
            chunker: ChunkerParams::with_average(Algorithm::DEFAULT, 4096),
            page_cuts: true,
        };
        let location = dir.path().join("repository").to_str().expect("text").parse().expect("a location");
        let store = Store::open(&location, &StoreOptions::default()).expect("a store");
        let made =
            Repository::init(store, config, b"secret", KeyFields::for_tests(), Arc::new(larder_testkit::entropy()));
        let repository = runtime.block_on(made).expect("a repository");
        let context = JobContext {
            machine: Machine::for_tests(repository.config().repository),
            repository,
            executor: runtime.handle().into(),
            clock: Arc::new(SystemClock),
            threads: NonZeroUsize::MIN,
            memory: 32 << 20,
            renew_every: larder_store::jobs::RENEW_EVERY,
            cancel: Cancel::default(),
            progress: Arc::new(NoProgress),
            identity: Identity { host: "host".to_owned(), program: "test".to_owned(), process: 1 },
        };
        let scene = Self { dir, context, _runtime: runtime };
        std::fs::create_dir(scene.source()).expect("made");
        std::fs::write(scene.source().join("large"), data::random(1, 300_000)).expect("written");
        std::fs::write(scene.source().join("small"), b"a few bytes").expect("written");
        let source = scene.source();
        let path = source.as_os_str().as_bytes();
        let walk = Walk::new(Roots::new([path], b"/").expect("a root"), WalkOptions::default());
        let options = BackupOptions { paths: vec![path.to_vec()], ..BackupOptions::new("series") };
        larder_lnode::backup(&scene.context, Input::Tree(walk), &options).expect("saved");
        scene
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn version(&self) -> Version {
        let catalog = self.context.executor.block_on(self.context.repository.catalog());
        catalog.expect("a catalog").versions.pop().expect("a version")
    }

    fn options(&self) -> DrillOptions {
        DrillOptions {
            sample: Sample::Part(1.0),
            seed: 1,
            scratch: Some(self.dir.path().join("scratch")),
            live: Some("/".into()),
            fetch: larder_reader::FetchOptions::default(),
        }
    }
}

fn time(seconds: i64, nanos: i64) -> Timestamp {
    Timestamp { seconds, nanos: u32::try_from(nanos).expect("nanoseconds") }
}

/// Goal: a whole version passes, with and without writing, and the scratch folder is empty again.
#[test]
fn a_whole_version_passes() {
    let scene = Scene::new();
    let writing = scene.options();
    let reading = DrillOptions { scratch: None, ..writing.clone() };
    let few = DrillOptions { sample: Sample::Files(1), ..writing.clone() };
    for (options, most) in [(&writing, 2), (&reading, 2), (&few, 2)] {
        let report = drill(&scene.context, &scene.version(), options).expect("it runs");
        assert_eq!((report.finding_count(), report.population.files), (0, 2), "{report:?}");
        assert!(report.sample.files <= most && report.sample.bytes >= 300_000, "{report:?}");
        assert_eq!(report.compared, report.sample.files, "{report:?}");
        assert!(report.restore_requests.reads > 0, "{report:?}");
    }
    assert_eq!(std::fs::read_dir(scene.dir.path().join("scratch")).expect("it stays").count(), 0);
}

/// Goal: a byte that is wrong in a restored file is found by the recipe alone, with its place.
#[test]
fn a_wrong_byte_of_a_restored_file_is_found() {
    let scene = Scene::new();
    let (version, target) = (scene.version(), scene.dir.path().join("target"));
    let target_of = Target::open(&target, TargetOptions::default()).expect("a target");
    restore(&scene.context, &version, &target_of, &RestoreOptions::default()).expect("restored");
    let restored = target.join(scene.source().join("large").strip_prefix("/").expect("absolute"));
    let before = std::fs::metadata(&restored).expect("it is there");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&restored).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 200_000).expect("read");
    file.write_all_at(&[byte[0] ^ 1], 200_000).expect("written");
    let times = std::fs::FileTimes::new().set_modified(before.modified().expect("a time"));
    file.set_times(times).expect("set");
    let (reading, manifest) = Reading::begin(&scene.context, &version).expect("read");
    let reader = VersionReader::new(&scene.context, manifest);
    let mut report = SnapshotReport::default();
    let mut comparison = Comparison::new(&scene.context, &target_of, reader.data_cursor(), None);
    for placed in reader.placed_below(b"") {
        let placed = placed.expect("whole");
        comparison.item(&placed.entry, placed.data_offset, &mut report).expect("compared");
    }
    reading.end();
    assert_eq!((report.mismatches, report.findings.len()), (1, 1), "{report:?}");
    let finding = &report.findings[0];
    assert!(finding.path.ends_with(b"/large") && finding.kind == FindingKind::Differs, "{finding:?}");
    let at = finding.detail.strip_prefix("has other content near byte ").expect("a place");
    let at: u64 = at.parse().expect("a number");
    assert!((190_000..=200_000).contains(&at), "{at}");
}

/// Goal: other content under the same size and times is a mismatch; with a later change of the
/// inode it is a remark.
#[test]
fn a_live_file_that_went_bad_is_told_from_one_that_was_changed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("file");
    std::fs::write(&path, b"what it is now").expect("written");
    let facts = std::fs::metadata(&path).expect("it is there");
    let entry = Entry {
        path: path.as_os_str().as_bytes()[1..].to_vec(),
        kind: EntryKind::File { size: 14, extents: None },
        mode: 0o644,
        uid: 0,
        gid: 0,
        user: None,
        group: None,
        mtime: time(facts.mtime(), facts.mtime_nsec()),
        ctime: time(facts.ctime(), facts.ctime_nsec()),
        atime: None,
        inode: facts.ino(),
        xattrs: Vec::new(),
    };
    let compare = |entry: &Entry, content: &[u8]| {
        let mut content = content;
        Live::open(Path::new("/"), entry).map(|live| live.compare(entry, &mut content).expect("compared"))
    };
    assert_eq!(compare(&entry, b"what it is now").expect("comparable"), Outcome::Equal);
    let mut report = SnapshotReport::default();
    let differs = compare(&entry, b"what it was...").expect("comparable");
    assert!(matches!(&differs, Outcome::Differs { same_ctime: true, source, backup } if source != backup));
    note_live(&entry, differs, &mut report);
    assert_eq!((report.mismatches, report.remarks, report.findings[0].kind), (1, 0, FindingKind::SourceDiffers));
    let changed = Entry { ctime: time(1, 0), ..entry.clone() };
    note_live(&changed, compare(&changed, b"what it was...").expect("comparable"), &mut report);
    assert_eq!((report.mismatches, report.remarks, report.findings[1].kind), (1, 1, FindingKind::SourceChanged));
    let other_time = Entry { mtime: time(1, 0), ..entry };
    assert_eq!(compare(&other_time, b"what it is now").expect_err("another time"), Outcome::NotComparable);
}
