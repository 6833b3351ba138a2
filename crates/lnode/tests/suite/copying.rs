//! The promise of copies: cut at any operation of either store, nothing half is there, and the next run makes an equal version;
//! and copies do not go round in circles.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use larder_format::compress::Compression;
use larder_format::config::Config;
use larder_format::ids::{JobId, RepositoryId};
use larder_format::manifest::Origin;
use larder_format::mark::Forgotten;
use larder_job::{JobContext, Machine};
use larder_lnode::transfer::selection::{Choice, Refusal, Selection, latest_of_series};
use larder_lnode::transfer::{CopyError, CopyOptions, copy};
use larder_lnode::{BackupOptions, BackupReport};
use larder_reader::ReadError;
use larder_rewrite::check::ReadData;
use larder_rewrite::{CheckOptions, check};
use larder_store::catalog::Version;
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::{FaultStore, Memory, Stop, data};

fn copy_options() -> CopyOptions {
    CopyOptions {
        program: "test".to_owned(),
        compression: Compression::DEFAULT,
        layout: None,
        index_memory: 8 << 20,
        scratch: None,
    }
}

fn store_options() -> StoreOptions {
    let soon = Duration::from_millis(1);
    StoreOptions { retry_deadline: soon, first_deadline: soon, ..StoreOptions::default() }
}

fn plain(memory: &Memory) -> Store {
    Store::from_object_store(memory.store(), "", &store_options()).unwrap()
}

struct Scene {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), runtime: runtime() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A repository of this number, with its own id and keys.
    fn init(&self, number: u8) -> Memory {
        let memory = Memory::new();
        let config = Config { repository: RepositoryId([number; 16]), ..config() };
        let entropy = Arc::new(larder_testkit::entropy());
        self.runtime.block_on(Repository::init(plain(&memory), config, PASSWORD, key_fields(), entropy)).unwrap();
        memory
    }

    fn open(&self, store: Store) -> JobContext {
        let entropy = Arc::new(larder_testkit::entropy());
        context(&self.runtime, self.runtime.block_on(Repository::open(store, PASSWORD, entropy)).unwrap())
    }

    fn context(&self, memory: &Memory) -> JobContext {
        self.open(plain(memory))
    }

    fn write(&self, edition: u64) {
        let root = self.path("source");
        std::fs::create_dir_all(root.join("folder")).unwrap();
        let mut large = data::mixed(1, 1_200_000);
        large[700_000..][..100].copy_from_slice(&data::random(edition, 100));
        std::fs::write(root.join("large"), large).unwrap();
        std::fs::write(root.join("folder/small"), format!("edition {edition}")).unwrap();
        std::fs::write(root.join("same"), data::text(7, 20_000)).unwrap();
    }

    /// The repository is whole, and its newest version has these files.
    fn has(&self, memory: &Memory, count: usize, at: &str) {
        let context = self.context(memory);
        let report = check(&context, &CheckOptions { read_data: ReadData::All, ..CheckOptions::default() }).unwrap();
        assert_eq!(report.damages, [], "{at}");
        let versions = versions(&context);
        assert_eq!(versions.len(), count, "{at}");
        let target = tempfile::tempdir_in(self.dir.path()).unwrap();
        let report = restore(&context, versions.last().unwrap(), &self.path("source"), target.path()).unwrap();
        assert_eq!((report.errors, differences(&self.path("source"), target.path())), (0, String::new()), "{at}");
    }
}

/// Copies all that has no copy yet, as the verb does.
fn copy_all(source: &JobContext, destination: &JobContext) -> Result<Vec<BackupReport>, CopyError> {
    let list = |context: &JobContext| context.executor.block_on(context.repository.catalog());
    let (of_source, here) = match (list(source), list(destination)) {
        (Ok(of_source), Ok(here)) => (of_source.versions, here.versions),
        (Err(error), _) | (_, Err(error)) => return Err(CopyError::Read(error.into())),
    };
    let none = HashSet::new();
    let from = source.repository.config().repository;
    let mut selection = Selection::new(destination, from, &of_source, here, &none);
    let options = copy_options();
    let mut reports = Vec::new();
    for (version, choice) in selection.choose(&of_source, |_| false, false) {
        if choice != Choice::Copy {
            continue;
        }
        let before = selection.base_of(&version);
        let report = copy(source, &version, destination, before.as_ref(), &options)?;
        if let Some(summary) = report.version.clone() {
            let series = destination.repository.keys().series_key(&summary.series);
            selection.add(Version { summary, series, generation: 0, made_ms: 0, manifest_bytes: 0 });
        }
        reports.push(report);
    }
    Ok(reports)
}

#[test]
fn a_copy_cut_at_any_operation_of_either_store_is_made_by_the_next_run() {
    let scene = Scene::new();
    let (source, before) = (scene.init(1), scene.init(2));
    scene.write(0);
    backup(&scene.context(&source), &scene.path("source")).unwrap();
    copy_all(&scene.context(&source), &scene.context(&before)).unwrap();
    scene.write(1);
    backup(&scene.context(&source), &scene.path("source")).unwrap();
    for cuts_source in [false, true] {
        let run = |source: &Memory, destination: &Memory, cut: Option<(u64, Stop)>| {
            let cut_memory = if cuts_source { source } else { destination };
            let (store, faults) = FaultStore::new(cut_memory.store());
            let cut_context = scene.open(Store::from_object_store(store, "", &store_options()).unwrap());
            let other = scene.context(if cuts_source { destination } else { source });
            let opened = faults.count();
            if let Some((n, stop)) = cut {
                faults.stop_at(opened + n, stop);
            }
            let result = match cuts_source {
                true => copy_all(&cut_context, &other),
                false => copy_all(&other, &cut_context),
            };
            (result.map(|reports| reports.len()), faults.count() - opened)
        };
        let (made, operations) = run(&source.snapshot(), &before.snapshot(), None);
        assert!(made.unwrap() == 1 && operations >= 6, "{operations} operations");
        for n in 0..operations {
            for stop in [Stop::Before, Stop::After] {
                let at = format!("source: {cuts_source}, operation {n} of {operations}, {stop:?}");
                let (source, destination) = (source.snapshot(), before.snapshot());
                let (made, _) = run(&source, &destination, Some((n, stop)));
                let there = versions(&scene.context(&destination)).len();
                assert!(made.is_err() || there == 2, "{at}: reported as done, but there is no version");
                let again = copy_all(&scene.context(&source), &scene.context(&destination)).unwrap();
                assert_eq!(again.len(), 2 - there, "{at}");
                scene.has(&destination, 2, &at);
            }
        }
    }
}

/// Only the changed parts are read and stored, and what a dead run uploaded is not uploaded again.
#[test]
fn a_second_copy_reads_changes_and_a_resumed_one_stores_nothing_twice() {
    let scene = Scene::new();
    let (source, destination) = (scene.init(1), scene.init(2));
    scene.write(0);
    backup(&scene.context(&source), &scene.path("source")).unwrap();
    let first = copy_all(&scene.context(&source), &scene.context(&destination)).unwrap();
    assert_eq!(first[0].statistics.read_bytes, first[0].statistics.stream_bytes);
    scene.write(1);
    backup(&scene.context(&source), &scene.path("source")).unwrap();
    let fork = destination.snapshot();
    let second = copy_all(&scene.context(&source), &scene.context(&fork)).unwrap();
    let statistics = &second[0].statistics;
    assert!(statistics.read_bytes < statistics.stream_bytes / 3, "{statistics:?}");
    // It dies at the commit.
    let (store, faults) = FaultStore::new(destination.store());
    let context = scene.open(Store::from_object_store(store, "", &store_options()).unwrap());
    let when = larder_testkit::When::kind(larder_testkit::OpKind::Put).path("versions/");
    let dead = larder_testkit::Fault::FailBefore(larder_testkit::Failure::Status(403));
    faults.add(when, dead, larder_testkit::Times::Always);
    copy_all(&scene.context(&source), &context).unwrap_err();
    let resumed = copy_all(&scene.context(&source), &scene.context(&destination)).unwrap();
    assert_eq!((resumed[0].adopted.len(), resumed[0].statistics.new_chunks), (1, 0));
    scene.has(&destination, 2, "resumed");
    // Nothing is left to do.
    assert!(copy_all(&scene.context(&source), &scene.context(&destination)).unwrap().is_empty());
}

/// Anybody with a key of the domain can give a version in another series the id of a copy.
#[test]
fn a_version_with_the_id_of_a_copy_is_not_followed() {
    let scene = Scene::new();
    let (source, destination) = (scene.init(1), scene.init(2));
    scene.write(0);
    backup(&scene.context(&source), &scene.path("source")).unwrap();
    let copy = copy_all(&scene.context(&source), &scene.context(&destination)).unwrap().remove(0).version.unwrap();
    std::fs::write(scene.path("source").join("same"), data::text(8, 20_000)).unwrap();
    let thief = JobContext { machine: Machine::default(), ..scene.context(&destination) };
    let forged = BackupOptions { time_ms: Some(0), find_similar: false, ..options("evil") };
    larder_lnode::backup(&thief, walk(&scene.path("source")), &forged).unwrap();
    let evil = versions(&thief).into_iter().find(|version| version.summary.series == "evil").unwrap();
    scene.runtime.block_on(async {
        let mut manifest = thief.repository.manifest(&evil).await.unwrap();
        manifest.summary.id = copy.id;
        thief.repository.commit(evil.series, &manifest).await.unwrap();
    });
    scene.write(1);
    backup(&scene.context(&source), &scene.path("source")).unwrap();
    let made = copy_all(&scene.context(&source), &scene.context(&destination)).unwrap();
    assert_eq!((made.len(), made[0].bases[0].id), (1, copy.id));
    let statistics = &made[0].statistics;
    assert!(statistics.read_bytes < statistics.stream_bytes / 3, "the real one is followed: {statistics:?}");
    scene.has(&destination, 4, "with a twin");
}

#[test]
fn what_was_forgotten_meanwhile_is_told_apart_from_damage() {
    let scene = Scene::new();
    let (source, destination) = (scene.init(1), scene.init(2));
    scene.write(0);
    let context = scene.context(&source);
    backup(&context, &scene.path("source")).unwrap();
    let listed = versions(&context);
    let mark = Forgotten { time_ms: 0, host: String::new(), reason: "test".to_owned() };
    scene.runtime.block_on(context.repository.forget(&listed[0], &mark)).unwrap();
    let options = copy_options();
    let result = copy(&context, &listed[0], &scene.context(&destination), None, &options);
    assert!(matches!(result, Err(CopyError::Read(ReadError::Forgotten { .. }))), "{result:?}");
    assert!(versions(&scene.context(&destination)).is_empty());
}

/// Copies that came around by way of a third repository are not copied again, and a false claim hides only its maker's version.
#[test]
fn copies_do_not_go_round_in_circles() {
    let scene = Scene::new();
    let [a, b, c] = [1, 2, 3].map(|number| scene.init(number));
    scene.write(0);
    backup(&scene.context(&a), &scene.path("source")).unwrap();
    for _ in 0..2 {
        for (from, to) in [(&a, &b), (&b, &c), (&c, &a)] {
            copy_all(&scene.context(from), &scene.context(to)).unwrap();
        }
        assert_eq!([&a, &b, &c].map(|memory| versions(&scene.context(memory)).len()), [1, 1, 1]);
    }
    let (source, destination) = (scene.context(&b), scene.context(&a));
    let (mut of_b, of_a) = (versions(&source), versions(&destination));
    let mut liar = of_b[0].clone();
    liar.summary.id.0[15] ^= 1;
    liar.summary.origin = Some(Origin::of(RepositoryId([1; 16]), &of_a[0].summary));
    let mut honest = of_b[0].clone();
    (honest.summary.id.0[15], honest.summary.origin) = (77, None);
    of_b = vec![liar, honest];
    let none = HashSet::new();
    let selection = Selection::new(&destination, RepositoryId([2; 16]), &of_b, of_a, &none);
    let choices = selection.choose(&of_b, |_| false, true);
    let is_copied =
        |version: &Version| choices.iter().any(|(found, choice)| found == version && *choice == Choice::Copy);
    assert!(choices.len() == 2 && !is_copied(&of_b[0]) && is_copied(&of_b[1]), "{choices:?}");
}

/// One version and its copy, for questions to a selection.
struct Pair {
    scene: Scene,
    source: JobContext,
    destination: JobContext,
    original: Version,
    copy: Version,
}

impl Pair {
    fn new() -> Self {
        let scene = Scene::new();
        let (a, b) = (scene.init(1), scene.init(2));
        scene.write(0);
        let (source, destination) = (scene.context(&a), scene.context(&b));
        backup(&source, &scene.path("source")).unwrap();
        copy_all(&source, &destination).unwrap();
        let (original, copy) = (versions(&source).remove(0), versions(&destination).remove(0));
        Self { scene, source, destination, original, copy }
    }

    /// A version of the source that was made later in the same series.
    fn next(&self) -> Version {
        let mut next = self.original.clone();
        next.summary.id.0[15] ^= 0x40;
        next.summary.roots.data.0[0] ^= 1;
        next
    }

    /// What becomes of versions of the source beside these versions of the destination.
    fn choices(&self, of_source: &[Version], here: &[Version]) -> Vec<(JobId, Choice)> {
        let none = HashSet::new();
        let from = self.source.repository.config().repository;
        let selection = Selection::new(&self.destination, from, of_source, here.to_vec(), &none);
        let choices = selection.choose(of_source, |_| false, false);
        choices.into_iter().map(|(version, choice)| (version.id(), choice)).collect()
    }
}

/// A client of the destination can make versions with any id. One with the id of an original makes nothing look as if it came from
/// there, because no operator signed it, or because a copy names it as its original.
#[test]
fn a_false_original_here_hides_no_version_there() {
    let pair = Pair::new();
    // As a version that was rewritten twice: it names the first one of its chain.
    let mut successor = pair.next();
    let mut origin = Origin::of(RepositoryId([1; 16]), &pair.original.summary);
    (origin.version, origin.first) = (JobId([9; 16]), Some(pair.original.id()));
    successor.summary.origin = Some(origin);
    let mut planted = pair.copy.clone();
    (planted.summary.id, planted.summary.origin, planted.summary.is_signed) = (pair.original.id(), None, false);
    planted.summary.series = "evil".to_owned();
    let signed = |is_signed| {
        let mut planted = planted.clone();
        planted.summary.is_signed = is_signed;
        planted
    };
    let of = |here: &[Version]| pair.choices(std::slice::from_ref(&successor), here)[0].1;
    assert_eq!(of(&[signed(true)]), Choice::CameFromHere, "an operator says so, and nothing contradicts");
    assert_eq!(of(&[signed(false)]), Choice::Copy);
    assert_eq!(of(&[pair.copy.clone(), signed(true)]), Choice::Copy);
}

/// Ids are in the names of objects, so a client of the source can give its own version the id of another one. That stops neither
/// a version that was copied before nor one that an operator signed.
#[test]
fn a_twin_of_an_id_does_not_stop_the_real_version() {
    let pair = Pair::new();
    let twin_of = |version: &Version| {
        let mut twin = version.clone();
        twin.summary.roots.data.0[0] ^= 2;
        (twin.series.0[0], twin.summary.is_signed) = (twin.series.0[0] ^ 1, false);
        twin.summary.series = "evil".to_owned();
        twin
    };
    let choices_of = |version: &Version| {
        let choices = pair.choices(&[twin_of(version), version.clone()], std::slice::from_ref(&pair.copy));
        choices.into_iter().map(|(_, choice)| choice).collect::<Vec<_>>()
    };
    let refused = Choice::Refused(Refusal::SharedId);
    assert_eq!(choices_of(&pair.original), [refused, Choice::CopiedBefore(pair.copy.id())]);
    let mut next = pair.next();
    next.summary.is_signed = true;
    assert_eq!(choices_of(&next), [refused, Choice::Copy]);
    next.summary.is_signed = false;
    assert_eq!(choices_of(&next), [refused, refused]);
}

/// A client of the destination can add to a series of copies. That does not stop the next copies; it stops the first one.
#[test]
fn a_version_beside_copies_does_not_stop_the_next_copy() {
    let pair = Pair::new();
    let mut planted = pair.copy.clone();
    planted.summary.id.0[15] ^= 1;
    (planted.summary.origin, planted.summary.is_signed) = (None, false);
    let next = pair.next();
    let of = |here: &[Version]| pair.choices(&[pair.original.clone(), next.clone()], here)[1].1;
    assert_eq!(of(&[pair.copy.clone(), planted.clone()]), Choice::Copy);
    assert_eq!(of(&[planted]), Choice::Refused(Refusal::OtherSnapshotsHere));
}

/// Somebody may forget the followed copy while others are copied: the next one follows none then, and the run goes on.
#[test]
fn a_copy_that_was_forgotten_meanwhile_is_not_followed() {
    let pair = Pair::new();
    pair.scene.write(1);
    backup(&pair.source, &pair.scene.path("source")).unwrap();
    let of_source = versions(&pair.source);
    let none = HashSet::new();
    let from = pair.source.repository.config().repository;
    let selection = Selection::new(&pair.destination, from, &of_source, versions(&pair.destination), &none);
    let before = selection.base_of(&of_source[1]);
    assert!(before.is_some());
    let mark = Forgotten { time_ms: 0, host: String::new(), reason: "test".to_owned() };
    pair.scene.runtime.block_on(pair.destination.repository.forget(&pair.copy, &mark)).unwrap();
    let options = copy_options();
    let report = copy(&pair.source, &of_source[1], &pair.destination, before.as_ref(), &options).unwrap();
    assert_eq!(report.statistics.read_bytes, report.statistics.stream_bytes);
    let target = tempfile::tempdir_in(pair.scene.dir.path()).unwrap();
    let newest = versions(&pair.destination).pop().unwrap();
    restore(&pair.destination, &newest, &pair.scene.path("source"), target.path()).unwrap();
    assert_eq!(differences(&pair.scene.path("source"), target.path()), "");
}

/// `--latest 1` means the newest real version of a series: neither one whose time nothing confirms nor one with the id of another
/// version takes its place.
#[test]
fn made_up_versions_take_no_place_among_the_newest() {
    let pair = Pair::new();
    let (real, mut future) = (pair.next(), pair.next());
    (future.summary.id.0[15], future.summary.time_ms) = (0x77, real.summary.time_ms + 5000);
    let mut twin = pair.original.clone();
    (twin.summary.roots.data.0[0], twin.summary.time_ms) = (9, real.summary.time_ms + 9000);
    let mut signed = pair.original.clone();
    signed.summary.is_signed = true;
    let latest = |versions: &[Version], unconfirmed: &[&Version]| {
        let unconfirmed = unconfirmed.iter().map(|version| larder_reader::pin_of(version)).collect();
        latest_of_series(versions.to_vec(), 1, versions, &unconfirmed)
    };
    let all = [signed.clone(), real.clone(), future.clone()];
    assert_eq!(latest(&all, &[]), [future.clone()]);
    assert!(latest(&all, &[&future]).contains(&real));
    let mut elsewhere = twin.clone();
    elsewhere.series.0[0] ^= 1;
    assert!(latest(&[signed.clone(), twin], &[]).contains(&signed), "of its own series");
    assert!(latest(&[signed.clone(), elsewhere], &[]).contains(&signed), "of another one");
}
