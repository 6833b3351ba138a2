//! The promise of repairs of versions: what was lost comes back from files that have it, or what is left is saved, and nothing that
//! could be read before is worse afterwards: not when the repair dies at any moment, nor beside passes and forgetting.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::*;
use larder_format::compress::Compression;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::metadata::BlockBuilder;
use larder_format::names;
use larder_gnode::pass::{self, PassOptions};
use larder_job::JobContext;
use larder_reader::VersionReader;
use larder_rewrite::check::ReadData;
use larder_rewrite::repair::{
    HealOptions, HealOutcome, HealReport, RepairError, SalvageOptions, SalvageOutcome, SalvageReport, heal, salvage,
};
use larder_rewrite::{CheckOptions, check};
use larder_source::{Roots, Walk, WalkOptions};
use larder_testkit::{Stop, sweep};

/// Versions of one series, all of which use the container that the first wrote; every edition is kept elsewhere.
struct Damaged {
    scene: Scene,
    /// What the versions hold, and what is left of it.
    whole: BTreeMap<JobId, Contents>,
    left: BTreeMap<JobId, Contents>,
    /// The container that is damaged.
    container: String,
    keep: PathBuf,
}

impl Damaged {
    fn new(damage: impl FnOnce(&Scene, &str)) -> Self {
        let scene = Scene::new();
        let keep = scene.dir.path().join("keep");
        let mut first = None;
        for edition in 0..3 {
            let id = scene.version("a", edition);
            first.get_or_insert(id);
            std::fs::create_dir_all(&keep).unwrap();
            let mut copy = std::process::Command::new("cp");
            copy.arg("-r").arg(scene.source("a")).arg(keep.join(edition.to_string()));
            assert!(copy.status().unwrap().success());
        }
        scene.version("b", 0);
        let whole = scene.contents();
        let prefix = format!("data/{}/", first.unwrap());
        let mut containers = scene.runtime.block_on(scene.memory.paths());
        containers.retain(|name| name.starts_with(&prefix));
        assert_eq!(containers.len(), 1);
        let container = containers.remove(0);
        damage(&scene, &container);
        let left = whole_files(&scene.context());
        Self { scene, whole, left, container, keep }
    }

    fn missing() -> Self {
        Self::new(|scene, container| scene.runtime.block_on(scene.memory.remove(container)))
    }

    /// One bit in the middle of the first version's contents.
    fn flipped() -> Self {
        Self::new(|scene, container| {
            let flip = |bytes: &mut Vec<u8>| bytes[40_000] ^= 4;
            assert!(scene.runtime.block_on(scene.memory.change(container, flip)));
        })
    }

    fn fork(&self) -> Scene {
        self.scene.fork()
    }

    /// Versions that lost something. What they share with one another reaches into the other series.
    fn suffering(&self) -> usize {
        self.whole.iter().filter(|(id, files)| self.left[id] != **files).count()
    }

    fn heal(&self, context: &JobContext) -> Result<HealReport, RepairError> {
        heal_from(context, &self.keep)
    }
}

fn heal_from(context: &JobContext, path: &Path) -> Result<HealReport, RepairError> {
    use std::os::unix::ffi::OsStrExt;
    let roots = Roots::new([path.as_os_str().as_bytes()], b"/").unwrap();
    let options = HealOptions {
        read_data: ReadData::All,
        versions: Vec::new(),
        dry_run: false,
        compression: Compression::DEFAULT,
    };
    heal(context, Walk::new(roots, WalkOptions::default()), &options)
}

fn salvage_all(context: &JobContext) -> Result<SalvageReport, RepairError> {
    let options = SalvageOptions {
        read_data: ReadData::All,
        versions: Vec::new(),
        dry_run: false,
        program: "test".to_owned(),
        compression: Compression::DEFAULT,
    };
    salvage(context, &options)
}

/// The files of every version that can be read whole.
fn whole_files(context: &JobContext) -> BTreeMap<JobId, Contents> {
    let read = |version: &larder_store::catalog::Version| {
        let reader = VersionReader::open(context, version).unwrap();
        let mut files = Contents::new();
        reader
            .visit_contents::<larder_store::RepositoryError>(b"", |entry, content| {
                let mut bytes = Vec::new();
                if content.read_to_end(&mut bytes).is_ok() {
                    files.insert(entry.path.clone(), bytes);
                }
                Ok(())
            })
            .unwrap();
        files
    };
    versions(context).iter().map(|version| (version.id(), read(version))).collect()
}

/// That nothing is worse: every file that could be read can be, and is the same.
#[track_caller]
fn no_worse(scene: &Scene, before: &BTreeMap<JobId, Contents>, at: &str) {
    let after = whole_files(&scene.context());
    for (id, files) in before.iter().filter(|(id, _)| after.contains_key(id)) {
        for (path, bytes) in files {
            assert!(after[id].get(path) == Some(bytes), "{at}: {} of {id}", String::from_utf8_lossy(path));
        }
    }
}

fn collect(scene: &Scene, dead_after: Duration) {
    scene.pass_with(&PassOptions { dead_after, ..pass_options() }).unwrap();
}

const NEVER: Duration = Duration::from_secs(1 << 30);

fn data_bytes(scene: &Scene) -> usize {
    let objects = scene.runtime.block_on(scene.memory.contents());
    objects.iter().filter(|(name, _)| name.starts_with("data/")).map(|(_, bytes)| bytes.len()).sum()
}

#[track_caller]
fn is_found_whole(scene: &Scene) {
    let options = CheckOptions { read_data: ReadData::All, ..CheckOptions::default() };
    assert_eq!(check(&scene.context(), &options).unwrap().damages, []);
}

#[test]
fn lost_contents_come_back_and_what_versions_share_is_stored_once() {
    for (damaged, what) in [(Damaged::missing(), "missing"), (Damaged::flipped(), "flipped")] {
        let scene = damaged.fork();
        assert!(damaged.left != damaged.whole, "{what}: something is lost");
        let size = data_bytes(&Damaged::missing().scene) + 310_000;
        let report = damaged.heal(&scene.context()).unwrap();
        assert_eq!(report.versions.len(), damaged.suffering(), "{what}");
        assert!(report.versions.iter().all(larder_rewrite::repair::HealedVersion::is_whole), "{what}: {report:?}");
        assert_eq!(report.lost, report.found);
        assert!(scene.contents() == damaged.whole, "{what}");
        // What was kept while it was repaired goes, and so does the damaged container.
        collect(&scene, NEVER);
        assert!(scene.contents() == damaged.whole, "{what}");
        let names = scene.runtime.block_on(scene.memory.paths());
        assert!(!names.contains(&damaged.container), "{what}");
        let now = data_bytes(&scene);
        assert!(now < size + size / 10, "{what}: {now} bytes instead of about {size}");
        is_found_whole(&scene);
        // It can be built on, and forgotten.
        scene.version("a", 9);
        let newest = scene.versions().iter().map(larder_store::catalog::Version::id).max().unwrap();
        let expected = scene.contents()[&newest].clone();
        for version in scene.versions().iter().filter(|version| version.id() != newest) {
            scene.forget(version.id());
        }
        collect(&scene, NEVER);
        assert!(scene.contents() == BTreeMap::from([(newest, expected)]), "{what}");
        is_found_whole(&scene);
    }
}

#[test]
fn what_the_files_do_not_have_stays_lost_and_comes_back_with_those_that_do() {
    let damaged = Damaged::missing();
    let scene = damaged.fork();
    let report = heal_from(&scene.context(), &damaged.keep.join("2/folder")).unwrap();
    assert!(report.found > 0 && report.found < report.lost, "{report:?}");
    assert!(report.versions.iter().all(|version| !version.is_whole()));
    let of_a = report.versions.iter().filter(|version| version.series == "a");
    assert!(of_a.clone().count() == 3 && of_a.into_iter().all(|version| version.outcome == HealOutcome::Healed));
    no_worse(&scene, &damaged.left, "a part is healed");
    let files = whole_files(&scene.context());
    for (id, files) in files.iter().filter(|(_, files)| files.keys().any(|path| path.ends_with(b"a/folder"))) {
        assert!(files.keys().any(|path| path.ends_with(b"folder/never")), "{id}");
    }
    // A pass in between deletes nothing that is needed.
    collect(&scene, NEVER);
    assert!(damaged.heal(&scene.context()).unwrap().versions.iter().all(|version| version.is_whole()));
    assert!(scene.contents() == damaged.whole);
    let again = damaged.heal(&scene.context()).unwrap();
    assert_eq!((again.versions.len(), again.lost), (0, 0), "nothing is left to do");
    // Nothing at all to be found changes nothing.
    let scene = damaged.fork();
    let empty = damaged.keep.join("empty");
    std::fs::create_dir_all(&empty).unwrap();
    let report = heal_from(&scene.context(), &empty).unwrap();
    assert!(report.versions.iter().all(|version| version.outcome == HealOutcome::NotFound), "{report:?}");
    assert!(whole_files(&scene.context()) == damaged.left);
}

#[test]
fn a_healing_cut_at_any_operation_makes_nothing_worse_and_can_be_run_again() {
    let damaged = Damaged::missing();
    let (context, faults) = damaged.scene.faulty(&damaged.fork().memory);
    let before = faults.count();
    damaged.heal(&context).unwrap();
    let operations = faults.count() - before;
    assert!(operations > 30, "{operations}");
    for n in sweep(0..operations, 3) {
        let stop = if n % 4 == 0 { Stop::Before } else { Stop::After };
        let at = format!("cut at operation {n} of {operations}, {stop:?}");
        let cut = damaged.fork();
        let (context, faults) = cut.faulty(&cut.memory);
        faults.stop_at(faults.count() + n, stop);
        let _ = damaged.heal(&context);
        no_worse(&cut, &damaged.left, &at);
        collect(&cut, Duration::ZERO);
        no_worse(&cut, &damaged.left, &at);
        damaged.heal(&cut.context()).unwrap();
        assert!(cut.contents() == damaged.whole, "{at}");
    }
}

/// Versions that were healed first lend their containers to those after them; here they are forgotten and collected at any moment.
#[test]
fn what_is_forgotten_and_collected_meanwhile_takes_nothing_with_it() {
    let damaged = Damaged::missing();
    let newest = *damaged.whole.keys().filter(|id| damaged.left[id] != damaged.whole[id]).max().unwrap();
    for dead_after in [NEVER, Duration::ZERO] {
        at_every_operation(
            &damaged.scene,
            move |scene| {
                let repository = scene.repository(scene.memory.store());
                let options = PassOptions { dead_after, ..pass_options() };
                scene.runtime.handle().block_on(async {
                    forget(&repository, newest).await;
                    pass::run(&scene.context_of(repository), &options).await.unwrap();
                });
            },
            |scene: &Scene, store| damaged.heal(&scene.context_at(store)),
            |scene, _, at| {
                no_worse(scene, &damaged.left, at);
                collect(scene, Duration::ZERO);
                no_worse(scene, &damaged.left, at);
                damaged.heal(&scene.context()).unwrap();
                let mut expected = damaged.whole.clone();
                expected.remove(&newest);
                assert!(scene.contents() == expected, "{at}");
                collect(scene, Duration::ZERO);
                assert!(scene.contents() == expected, "{at}");
            },
        );
    }
}

#[test]
fn what_is_left_is_saved_as_new_versions_that_follow_their_originals() {
    for (damaged, what) in [(Damaged::missing(), "missing"), (Damaged::flipped(), "flipped")] {
        let scene = damaged.fork();
        let report = salvage_all(&scene.context()).unwrap();
        assert_eq!(report.versions.len(), damaged.suffering(), "{what}");
        let files = whole_files(&scene.context());
        no_worse(&scene, &damaged.left, what);
        for version in &report.versions {
            let SalvageOutcome::Saved(saved) = version.outcome else { panic!("{what}: {version:?}") };
            assert!(
                saved > version.id && damaged.whole.keys().all(|other| *other <= version.id || *other > saved),
                "{what}"
            );
            // Everything that could be read is there; of what lost a part, the rest is.
            for (path, bytes) in &damaged.whole[&version.id] {
                let name = String::from_utf8_lossy(path);
                match (damaged.left[&version.id].get(path), files[&saved].get(path)) {
                    (Some(left), found) => assert!(found == Some(left), "{what}: {name}"),
                    (None, Some(found)) => {
                        assert_eq!(found.len(), bytes.len(), "{what}: {name}");
                        let same = found.iter().zip(bytes).filter(|(a, b)| a == b).count();
                        assert!(same > bytes.len() / 10, "{what}: {name}: {same} of {}", bytes.len());
                        assert!(found.iter().zip(bytes).all(|(a, b)| a == b || *a == 0), "{what}: {name}");
                    }
                    (None, None) => {}
                }
            }
        }
        // The originals can go: nothing of them is needed, and a second run has nothing to do.
        let again = salvage_all(&scene.context()).unwrap();
        assert!(again.versions.iter().all(|version| matches!(version.outcome, SalvageOutcome::SavedBefore(_))));
        for version in &report.versions {
            scene.forget(version.id);
        }
        let saved: BTreeMap<_, _> =
            files.into_iter().filter(|(id, _)| report.versions.iter().all(|version| version.id != *id)).collect();
        collect(&scene, NEVER);
        assert!(scene.contents() == saved, "{what}");
        is_found_whole(&scene);
        // The next backup reads what was damaged, and not only what changed.
        let id = scene.backup(&scene.context(), "a").unwrap().version.unwrap().id;
        let of_a = |(_, files): &(_, &Contents)| files.keys().any(|path| path.ends_with(b"a/folder"));
        let (_, newest) = damaged.whole.iter().filter(of_a).max().unwrap();
        assert!(scene.contents()[&id] == *newest, "{what}");
    }
}

#[test]
fn a_salvage_cut_at_any_operation_makes_nothing_worse_and_can_be_run_again() {
    let damaged = Damaged::flipped();
    let (context, faults) = damaged.scene.faulty(&damaged.fork().memory);
    let before = faults.count();
    salvage_all(&context).unwrap();
    let operations = faults.count() - before;
    for n in sweep(0..operations, 3) {
        let stop = if n % 4 == 0 { Stop::Before } else { Stop::After };
        let at = format!("cut at operation {n} of {operations}, {stop:?}");
        let cut = damaged.fork();
        let (context, faults) = cut.faulty(&cut.memory);
        faults.stop_at(faults.count() + n, stop);
        let _ = salvage_all(&context);
        no_worse(&cut, &damaged.left, &at);
        collect(&cut, Duration::ZERO);
        no_worse(&cut, &damaged.left, &at);
        let report = salvage_all(&cut.context()).unwrap();
        assert_eq!(report.versions.len(), damaged.suffering(), "{at}");
        assert_eq!(cut.versions().len(), damaged.whole.len() + damaged.suffering(), "{at}");
    }
}

/// The blocks of a version's metadata stream, each with the paths that are in it.
fn blocks_of(context: &JobContext, id: JobId) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    let version = versions(context).into_iter().find(|version| version.id() == id).unwrap();
    let (mut builder, mut blocks, mut paths) = (BlockBuilder::new(), Vec::new(), Vec::new());
    for entry in VersionReader::open(context, &version).unwrap().entries() {
        let entry = entry.unwrap();
        let closed = builder.push(&entry).unwrap();
        paths.push(entry.path);
        blocks.extend(closed.map(|block| (block.bytes, std::mem::take(&mut paths))));
    }
    blocks.extend(builder.finish().map(|block| (block.bytes, paths)));
    blocks
}

/// Where blocks end depends on the names of folders above the source, which are random; and what lies in the first one on these
/// folders' times, which others change. So the oracle looks at the blocks: those that only the second version has are left.
#[test]
fn damaged_metadata_cost_what_is_in_them_and_no_more() {
    let scene = Scene::new();
    // Enough entries for several blocks of metadata, of which the second version has the first and the last again.
    let root = scene.source("a");
    for folder in 0..60 {
        let folder = root.join(format!("folder-{folder:02}"));
        std::fs::create_dir_all(&folder).unwrap();
        for file in 0..40 {
            std::fs::write(folder.join(format!("file-{file:02}")), format!("{folder:?} {file}")).unwrap();
        }
    }
    std::fs::hard_link(root.join("folder-30/file-01"), root.join("folder-59/link")).unwrap();
    let first = scene.backup(&scene.context(), "a").unwrap().version.unwrap().id;
    std::fs::write(root.join("folder-00/file-00"), "changed").unwrap();
    std::fs::write(root.join("folder-59/file-39"), "changed").unwrap();
    let second = scene.backup(&scene.context(), "a").unwrap().version.unwrap().id;
    let whole = scene.contents();
    let of_first = blocks_of(&scene.context(), first);
    let (lost, left): (Vec<_>, Vec<_>) =
        blocks_of(&scene.context(), second).into_iter().partition(|block| of_first.contains(block));
    let paths = |blocks: Vec<(_, Vec<Vec<u8>>)>| blocks.into_iter().flat_map(|(_, paths)| paths).collect::<Vec<_>>();
    let (lost, left) = (paths(lost), paths(left));
    let is_in = |paths: &[Vec<u8>], name: &str| paths.iter().any(|path| path.ends_with(name.as_bytes()));
    assert!(is_in(&lost, "folder-30/file-01") && is_in(&left, "folder-00/file-00") && is_in(&left, "folder-59/link"));
    let name = names::container(ContainerId { kind: ContainerKind::Meta, job: first, seq: 0 });
    scene.runtime.block_on(scene.memory.remove(&name));
    let report = salvage_all(&scene.context()).unwrap();
    let of = |id| report.versions.iter().find(|version| version.id == id).unwrap();
    assert_eq!(of(first).outcome, SalvageOutcome::NothingLeft);
    let SalvageOutcome::Saved(saved) = of(second).outcome else { panic!("{report:?}") };
    assert!(of(second).losses.gaps >= 1, "{report:?}");
    let saved = versions(&scene.context()).into_iter().find(|version| version.id() == saved).unwrap();
    let files = contents_of(&scene.context(), &saved);
    assert!(files.iter().all(|(path, bytes)| whole[&second].get(path) == Some(bytes)));
    // Another name of what is lost is lost too, and folders above what is left are there.
    let mut expected: BTreeSet<Vec<u8>> = left.iter().filter(|path| !path.ends_with(b"/link")).cloned().collect();
    for path in &left {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        expected.extend(ends.map(|end| path[..end].to_vec()));
    }
    let found: BTreeSet<Vec<u8>> = files.into_keys().collect();
    let text =
        |paths: Vec<&Vec<u8>>| paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect::<Vec<_>>();
    let (missing, more) = (expected.difference(&found).collect(), found.difference(&expected).collect());
    assert_eq!((text(missing), text(more)), (Vec::new(), Vec::new()), "{report:?}");
    scene.forget(first);
    scene.forget(second);
    collect(&scene, NEVER);
    is_found_whole(&scene);
}
