//! The newest version stays as easy to read as the first, however many versions there were before it (HAR's and SlimStore's measure:
//! containers per 100 MB, and read amplification).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use crate::support::*;
use larder_format::ids::ContainerKind;
use larder_gnode::defragment::{self, DefragmentOptions, Defragmented, Defragmenter};
use larder_reader::VersionReader;
use larder_testkit::data;

const VERSIONS: u64 = 50;
const FILE: usize = 8 << 10;

/// A tree of which most never changes. Every version rewrites half of eight files that are written all the time, and adds one that
/// stays: of what a version uploads, a fifth is needed for long.
fn edit(scene: &Scene, version: u64) {
    let root = scene.source("tree");
    std::fs::create_dir_all(&root).unwrap();
    if version == 0 {
        for file in 0..60 {
            std::fs::write(root.join(format!("base{file:02}")), data::random(file, 8 * FILE)).unwrap();
        }
    }
    for hot in (0..8).filter(|hot| hot % 2 == version % 2) {
        std::fs::write(root.join(format!("hot{hot}")), data::random(1000 + version * 10 + hot, FILE)).unwrap();
    }
    std::fs::write(root.join(format!("new{version:02}")), data::random(100_000 + version, FILE)).unwrap();
}

/// How many data containers the newest version needs, and how much they hold for each byte that it uses of them.
fn of_newest(scene: &Scene) -> (usize, f64) {
    let context = scene.context();
    let newest = scene.versions().pop().unwrap();
    let reader = VersionReader::open(&context, &newest).unwrap();
    let data: Vec<_> =
        reader.manifest().containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data).collect();
    let held: u64 = data.iter().map(|usage| usage.bytes_held).sum();
    let used: u64 = data.iter().map(|usage| usage.bytes_used).sum();
    (data.len(), held as f64 / used as f64)
}

/// Containers and amplification of each version, and bytes that were copied in all.
fn history(options: Option<DefragmentOptions>) -> (Scene, Vec<(usize, f64)>, u64) {
    let scene = Scene::new();
    let (mut measured, mut copied) = (Vec::new(), 0);
    for version in 0..VERSIONS {
        edit(&scene, version);
        let context = scene.context();
        backup(&context, &scene.source("tree"), "tree").unwrap();
        if let Some(options) = options {
            let mut compactor = Defragmenter::new(&context, &options);
            for plan in defragment::plans(&context, &options).unwrap().plans {
                match compactor.compact(&plan).unwrap() {
                    Defragmented::Done { bytes, .. } => copied += bytes,
                    Defragmented::Overtaken => panic!("nobody else is here"),
                }
            }
        }
        measured.push(of_newest(&scene));
    }
    (scene, measured, copied)
}

#[test]
fn the_fiftieth_version_is_as_easy_to_read_as_the_seventh() {
    let (scene, measured, copied) = history(Some(DefragmentOptions::default()));
    let (most, later) = (12, &measured[7..]);
    assert!(later.iter().all(|(containers, _)| *containers <= most), "{measured:?}");
    assert!(later.iter().all(|(_, amplification)| *amplification <= 1.1), "{measured:?}");
    // What is copied is in proportion to what was new, not to the version.
    let new = VERSIONS * 5 * FILE as u64;
    assert!(copied < 3 * new, "{copied} of {new}");
    assert_eq!(scene.contents().len() as u64, VERSIONS);

    let (without, measured, _) = history(None);
    let (containers, amplification) = measured[VERSIONS as usize - 1];
    assert!(containers > 2 * most && amplification > 1.1, "{measured:?}");
    let newest = |scene: &Scene| contents_of(&scene.context(), &scene.versions().pop().unwrap());
    assert!(newest(&scene).values().eq(newest(&without).values()));
}
