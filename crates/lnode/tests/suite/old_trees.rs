//! Restores over any old tree, against an oracle: the tree that was backed up. However the files of the target differ from it, they
//! are equal afterwards, and another restore finds nothing to do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::*;
use larder_job::JobContext;
use larder_lnode::{RestoreOptions, RestoreReport};
use larder_reader::FetchOptions;
use larder_source::target::{Overwrite, Target, TargetOptions};
use larder_testkit::data::{self, Rng};
use proptest::prelude::*;

/// Bytes of a piece of a dense file: several chunks.
const PIECE: usize = 50_000;
const PAGE: usize = 4096;

/// A file of the version.
#[derive(Debug, Clone)]
enum Shape {
    Empty,
    Small(usize),
    /// Pieces by their number: files share them.
    Dense(Vec<u64>),
    /// This many pages in a scattered order: each is a run of its own.
    Scattered(usize),
    /// Pieces with holes of this many bytes before each; then a hole.
    Sparse(Vec<(u64, u64)>, u64),
    /// A further name of the first file.
    Link,
}

/// The file's state in the target before the restore.
#[derive(Debug, Clone)]
enum Old {
    Missing,
    Equal,
    /// Cut, or extended by a hole.
    Length(u64),
    /// As many bytes shorter, or longer.
    Near(i64),
    /// Wrong bytes at a place, as a share of its length.
    Rotten(u8),
    OtherTime,
    /// A restore was interrupted while it wrote the file.
    Unfinished(u64),
    Folder,
    Symlink,
    /// A further name of another file of the target.
    Linked,
}

fn shape() -> impl Strategy<Value = Shape> {
    let pieces = prop::collection::vec(0_u64..9, 1..12);
    let sparse = prop::collection::vec((0_u64..200_000, 0_u64..9), 1..4);
    prop_oneof![
        1 => Just(Shape::Empty),
        2 => (1_usize..3000).prop_map(Shape::Small),
        3 => pieces.prop_map(Shape::Dense),
        1 => (1_usize..3000).prop_map(Shape::Scattered),
        2 => (sparse, 0_u64..200_000).prop_map(|(pieces, end)| Shape::Sparse(pieces, end)),
        1 => Just(Shape::Link),
    ]
}

fn old() -> impl Strategy<Value = Old> {
    prop_oneof![
        1 => Just(Old::Missing),
        1 => Just(Old::Equal),
        2 => (0_u64..1_000_000).prop_map(Old::Length),
        2 => prop_oneof![Just(1), Just(-1), Just(4096), Just(-4096), Just(700_000)].prop_map(Old::Near),
        2 => any::<u8>().prop_map(Old::Rotten),
        1 => Just(Old::OtherTime),
        1 => (0_u64..1_000_000).prop_map(Old::Unfinished),
        1 => Just(Old::Folder),
        1 => Just(Old::Symlink),
        1 => Just(Old::Linked),
    ]
}

/// How it is restored.
#[derive(Debug, Clone)]
struct How {
    /// The least memory, for the smallest windows.
    tight: bool,
    prefetch: usize,
    /// Everything, and not only the folder.
    whole: bool,
}

fn how() -> impl Strategy<Value = How> {
    (any::<bool>(), prop::sample::select(vec![0, 1, 16]), any::<bool>()).prop_map(|(tight, prefetch, whole)| How {
        tight,
        prefetch,
        whole,
    })
}

fn write(path: &Path, shape: &Shape, pages: &[Vec<u8>]) {
    let piece = |number: &u64| data::random(100 + number, PIECE);
    match shape {
        Shape::Empty => fs::write(path, "").unwrap(),
        Shape::Small(length) => fs::write(path, data::random(*length as u64, *length)).unwrap(),
        Shape::Dense(pieces) => fs::write(path, pieces.iter().flat_map(piece).collect::<Vec<_>>()).unwrap(),
        Shape::Scattered(count) => {
            let scattered: Vec<_> = (0..*count).flat_map(|n| pages[n * 2777 % pages.len()].clone()).collect();
            fs::write(path, scattered).unwrap();
        }
        Shape::Sparse(pieces, end) => {
            let file = fs::File::create(path).unwrap();
            let mut at = 0;
            for (hole, number) in pieces {
                // Whole blocks: a file system has no smaller holes.
                at += hole.next_multiple_of(PAGE as u64);
                let piece = &piece(number)[..11 * PAGE];
                file.write_all_at(piece, at).unwrap();
                at += piece.len() as u64;
            }
            file.set_len(at + end).unwrap();
        }
        Shape::Link => fs::hard_link(path.with_file_name("000"), path).unwrap(),
    }
}

fn make_old(path: &Path, old: &Old) {
    let file = || fs::File::options().write(true).open(path).unwrap();
    let length = fs::metadata(path).unwrap().len();
    match old {
        Old::Equal => {}
        Old::Missing => fs::remove_file(path).unwrap(),
        Old::Length(length) => file().set_len(*length).unwrap(),
        Old::Near(by) => file().set_len(length.saturating_add_signed(*by)).unwrap(),
        Old::Rotten(share) => file().write_all_at(b"rotten", length * u64::from(*share) / 256).unwrap(),
        Old::OtherTime => file().set_modified(std::time::UNIX_EPOCH).unwrap(),
        Old::Unfinished(length) => {
            file().set_len(*length).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o1600)).unwrap();
        }
        Old::Folder => {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }
        Old::Symlink => {
            fs::remove_file(path).unwrap();
            symlink("nowhere", path).unwrap();
        }
        Old::Linked => {
            let first = path.with_file_name("000");
            if first != path && fs::symlink_metadata(&first).is_ok_and(|found| found.is_file()) {
                fs::remove_file(path).unwrap();
                fs::hard_link(first, path).unwrap();
            }
        }
    }
}

struct Scene {
    dir: tempfile::TempDir,
    context: JobContext,
    _runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let (dir, context, _runtime) = restore_scene();
        Self { dir, context, _runtime }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    /// The folder in the target that becomes the source.
    fn target(&self, how: &How) -> PathBuf {
        let root = self.dir.path().join("target");
        if how.whole { root.join(self.source().strip_prefix("/").unwrap()) } else { root }
    }

    fn restore(&mut self, how: &How) -> RestoreReport {
        self.context.memory = if how.tight { 0 } else { 32 << 20 };
        let mut target = TargetOptions::default();
        target.overwrite = Overwrite::Always;
        let target = Target::open(&self.dir.path().join("target"), target).unwrap();
        let version = versions(&self.context).pop().unwrap();
        let subpath = (!how.whole).then(|| self.source().as_os_str().as_bytes()[1..].to_vec());
        let fetch = FetchOptions { prefetch: how.prefetch, ..FetchOptions::default() };
        let options = RestoreOptions { subpath, fetch, ..RestoreOptions::default() };
        larder_lnode::restore(&self.context, &version, &target, &options).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_old_tree_becomes_the_version(
        files in prop::collection::vec((shape(), old()), 1..14),
        small in prop_oneof![2 => Just(0_u64), 1 => 200_u64..700],
        first in how(),
        second in how(),
    ) {
        let mut scene = Scene::new();
        let mut rng = Rng::new(small);
        let mut pages: Vec<_> = (0..3000_u64).map(|page| data::random(page, PAGE)).collect();
        pages[0][..101].copy_from_slice(&database_header());
        let name = |number: usize| format!("{number:03}");
        let mut regular = small;
        for (number, (shape, _)) in files.iter().enumerate() {
            let shape = if number == 0 && matches!(shape, Shape::Link) { &Shape::Empty } else { shape };
            regular += u64::from(!matches!(shape, Shape::Link));
            write(&scene.source().join(name(number)), shape, &pages);
            // In the middle, so that it is planned between others.
            if number == files.len() / 2 {
                for n in 0..small {
                    let path = scene.source().join(format!("{}-{n}", name(number)));
                    fs::write(&path, data::text(n, 1 + rng.below(200) as usize)).unwrap();
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
                }
            }
        }
        if files.iter().any(|(shape, _)| matches!(shape, Shape::Scattered(_))) {
            fs::write(scene.source().join("pages"), pages.concat()).unwrap();
            regular += 1;
        }
        backup(&scene.context, &scene.source()).unwrap();
        let counted = |report: &RestoreReport| report.files_restored + report.files_up_to_date;

        let report = scene.restore(&first);
        prop_assert_eq!((report.errors, counted(&report)), (0, regular), "into an empty folder");
        prop_assert_eq!(differences(&scene.source(), &scene.target(&first)), "", "into an empty folder");
        // Where the second restore looks.
        if first.whole != second.whole {
            fs::rename(scene.target(&first), scene.dir.path().join("moved")).unwrap();
            let _ = fs::remove_dir_all(scene.dir.path().join("target"));
            fs::create_dir_all(scene.target(&second).parent().unwrap()).unwrap();
            fs::rename(scene.dir.path().join("moved"), scene.target(&second)).unwrap();
        }
        // The last comes first: a further name of the first file is made before that becomes another one.
        for (number, (_, old)) in files.iter().enumerate().rev() {
            let path = scene.target(&second).join(name(number));
            make_old(&path, old);
        }
        for n in (0..small).step_by(2) {
            let path = scene.target(&second).join(format!("{}-{n}", name(files.len() / 2)));
            let length = fs::metadata(&path).unwrap().len();
            fs::File::options().write(true).open(path).unwrap().set_len(rng.below(2 * length)).unwrap();
        }

        let report = scene.restore(&second);
        prop_assert_eq!((report.errors, counted(&report)), (0, regular), "over the old tree");
        prop_assert_eq!(differences(&scene.source(), &scene.target(&second)), "", "over the old tree");
        let report = scene.restore(&second);
        // A file with further names is never written over, but made once more.
        let has_links = files[1..].iter().any(|(shape, _)| matches!(shape, Shape::Link));
        let made = u64::from(has_links && report.files_restored > 0);
        prop_assert_eq!((report.errors, report.files_restored), (0, made), "once more");
        prop_assert!(has_links || report.fetched.containers == 0, "once more: {:?}", report.fetched);
        prop_assert_eq!(differences(&scene.source(), &scene.target(&second)), "", "once more");
    }
}
