//! `--paranoid`: what is taken for a duplicate is compared with what is stored, so a version made so stands on intact data.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::path::Path;

use crate::support::*;
use larder_lnode::BackupOptions;
use larder_testkit::data;

fn paranoid() -> BackupOptions {
    BackupOptions { force: true, paranoid: true, ..options("series") }
}

/// A bit flips: the frame that it lies in cannot be opened any more.
fn flip(object: &Path, at: usize) {
    let mut bytes = std::fs::read(object).unwrap();
    bytes[at] ^= 1;
    std::fs::remove_file(object).unwrap();
    std::fs::write(object, bytes).unwrap();
}

#[test]
fn damaged_duplicates_are_stored_anew_and_the_version_restores() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let repository = dir.path().join("repository");
    let context = context(&runtime, init(&runtime, local(&repository)));
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), pseudo_random(3_000_000, 1)).unwrap();
    backup(&context, &source).unwrap();

    // Nothing is wrong: everything is a duplicate, compared.
    let report = larder_lnode::backup(&context, walk(&source), &paranoid()).unwrap();
    assert_eq!(report.statistics.new_chunks, 0);

    let job = versions(&context)[0].id();
    flip(&repository.join(format!("data/{job}/0")), 100_000);
    let trusting = BackupOptions { force: true, ..options("series") };
    let report = larder_lnode::backup(&context, walk(&source), &trusting).unwrap();
    assert_eq!(report.statistics.new_chunks, 0, "fingerprints alone show no damage to what is stored");

    let report = larder_lnode::backup(&context, walk(&source), &paranoid()).unwrap();
    assert!(report.statistics.new_chunks > 0);
    assert!(report.statistics.new_chunks < report.statistics.chunks, "intact chunks are not stored again");
    let versions = versions(&context);
    let target = dir.path().join("target");
    let restored = restore(&context, versions.last().unwrap(), &source, &target).unwrap();
    assert_eq!(restored.errors, 0);
    assert_eq!(std::fs::read(target.join("file")).unwrap(), std::fs::read(source.join("file")).unwrap());
}

/// What is damaged is found damaged each time that it comes back, and is stored again once.
#[test]
fn a_damaged_chunk_that_repeats_is_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let repository = dir.path().join("repository");
    let context = context(&runtime, init(&runtime, local(&repository)));
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let content = pseudo_random(200_000, 2);
    for number in 0..20 {
        std::fs::write(source.join(format!("copy {number}")), &content).unwrap();
    }
    backup(&context, &source).unwrap();
    flip(&repository.join(format!("data/{}/0", versions(&context)[0].id())), 100);
    let statistics = larder_lnode::backup(&context, walk(&source), &paranoid()).unwrap().statistics;
    assert!(statistics.new_chunks > 0 && statistics.new_chunks <= statistics.chunks / 20, "{statistics:?}");
    let restored = restore(&context, versions(&context).last().unwrap(), &source, &dir.path().join("target")).unwrap();
    assert_eq!((restored.errors, restored.files_restored), (0, 20));
}

/// Goal: the list of files is compared as well. Method: links with long targets, so that their blocks fill several frames, and damage to the
/// first, which holds blocks alone; a backup that trusts fingerprints makes a version that has lost links, one that does not a whole one.
#[test]
fn damaged_metadata_is_stored_anew_and_the_version_restores() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let repository = dir.path().join("repository");
    let context = context(&runtime, init(&runtime, local(&repository)));
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let mut letters = data::random(9, 600 * 3_500).into_iter().map(|byte| char::from(b'a' + byte % 26));
    for number in 0..600 {
        let target: String = letters.by_ref().take(3_500).collect();
        std::os::unix::fs::symlink(target, source.join(format!("link {number:03}"))).unwrap();
    }
    let whole = backup(&context, &source).unwrap().statistics;
    flip(&repository.join(format!("meta/{}/0", versions(&context)[0].id())), 100);
    let newest = |target: &str| {
        let version = versions(&context).pop().unwrap();
        restore(&context, &version, &source, &dir.path().join(target)).unwrap()
    };
    let trusting = BackupOptions { force: true, ..options("series") };
    larder_lnode::backup(&context, walk(&source), &trusting).unwrap();
    assert!(newest("trusting").damaged > 0, "fingerprints alone show no damage to what is stored");

    let statistics = larder_lnode::backup(&context, walk(&source), &paranoid()).unwrap().statistics;
    assert!(statistics.added_bytes > 0, "what is damaged is stored again");
    assert!(statistics.added_bytes < whole.added_bytes / 2, "what is intact is not: {statistics:?}");
    assert_eq!(newest("paranoid").errors, 0);
    assert_eq!(differences(&source, &dir.path().join("paranoid")), "");
}
