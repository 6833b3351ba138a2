//! The promise: among many series a first backup finds what resembles its input by asking the index, and reads few of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use crate::support::*;
use larder_lnode::{BackupReport, WhyBase};
use larder_testkit::{Op, OpKind, data};

/// More than are read without asking.
const SERIES: u64 = 80;

/// Series that hold the same for a while: more of them than are read of those that share samples.
const ONCE_EQUAL: std::ops::Range<u64> = 50..70;
/// Of these the one that goes on doing so.
const STILL_EQUAL: u64 = 50;
const EQUAL: u64 = 3000;

fn write(scene: &Scene, series: &str, seed: u64) {
    let root = scene.source(series);
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("file"), data::random(seed, 300_000)).unwrap();
}

/// A first backup of a new series, and the heads of manifests it read.
fn counted(scene: &Scene, series: &str) -> (BackupReport, usize) {
    let (context, faults) = scene.faulty(&scene.memory);
    let opened = faults.count() as usize;
    let report = scene.backup(&context, series).unwrap();
    let is_head = |op: &&Op| matches!(op.kind, OpKind::Get) && op.path.starts_with("versions/");
    (report, faults.log()[opened..].iter().filter(is_head).count())
}

fn similar_to(report: &BackupReport) -> Vec<&str> {
    assert!(report.bases.iter().all(|base| base.why == WhyBase::Similar), "{:?}", report.bases);
    report.bases.iter().map(|base| &*base.series).collect()
}

#[test]
fn the_index_leads_to_what_is_similar() {
    let scene = Scene::new();
    for number in 0..SERIES {
        let series = format!("s{number}");
        write(&scene, &series, if ONCE_EQUAL.contains(&number) { EQUAL } else { number });
        backup_alone(&scene.context(), &scene.source(&series), &series);
    }
    write(&scene, "clone 1", 17);
    let (report, heads) = counted(&scene, "clone 1");
    assert_eq!(similar_to(&report), ["s17"]);
    assert!(heads >= SERIES as usize, "without an index every series is read: {heads}");

    scene.pass().unwrap();
    write(&scene, "clone 2", 42);
    let (report, heads) = counted(&scene, "clone 2");
    assert_eq!(similar_to(&report), ["s42"]);
    assert!(heads < 8, "{heads} manifests were read");

    // What the index does not have yet is looked at all the same.
    write(&scene, "late", 1000);
    backup_alone(&scene.context(), &scene.source("late"), "late");
    write(&scene, "clone 3", 1000);
    let (report, heads) = counted(&scene, "clone 3");
    assert_eq!(similar_to(&report), ["late"]);
    assert!(heads < 10, "{heads} manifests were read");

    // A newest version that no longer has the samples is not what they lead to.
    write(&scene, "s3", 2000);
    scene.backup(&scene.context(), "s3").unwrap();
    scene.pass().unwrap();
    write(&scene, "clone 4", 3);
    let (report, heads) = counted(&scene, "clone 4");
    assert_eq!(similar_to(&report), [""; 0]);
    assert!(heads < 8, "{heads} manifests were read");

    // Nor are there so many of them that the one which still has the samples is not looked at.
    for number in ONCE_EQUAL.filter(|number| *number != STILL_EQUAL) {
        let series = format!("s{number}");
        write(&scene, &series, 4000 + number);
        scene.backup(&scene.context(), &series).unwrap();
    }
    scene.pass().unwrap();
    write(&scene, "clone 6", EQUAL);
    let (report, heads) = counted(&scene, "clone 6");
    assert_eq!(similar_to(&report), [&*format!("s{STILL_EQUAL}")]);
    assert!(heads < 8, "{heads} manifests were read");

    // Without its index a repository finds the same.
    scene.runtime.block_on(async {
        for path in scene.memory.paths().await {
            if path.starts_with("index/runs/") {
                scene.memory.remove(&path).await;
            }
        }
    });
    write(&scene, "clone 5", 42);
    let (report, _) = counted(&scene, "clone 5");
    assert!(!similar_to(&report).is_empty());
}
