//! `--paranoid`: what is taken for a duplicate is compared with what is stored, so a version made so stands on intact data.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use crate::support::*;

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
    let paranoid = || larder_lnode::BackupOptions { force: true, paranoid: true, ..options("series") };

    // Nothing is wrong: everything is a duplicate, compared.
    let report = larder_lnode::backup(&context, walk(&source), &paranoid()).unwrap();
    assert_eq!(report.statistics.new_chunks, 0);

    // A bit flips in the first container of data: its frame cannot be opened any more.
    let job = versions(&context)[0].id();
    let object = repository.join(format!("data/{job}/0"));
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[100_000] ^= 1;
    std::fs::remove_file(&object).unwrap();
    std::fs::write(&object, bytes).unwrap();
    let trusting = larder_lnode::BackupOptions { force: true, ..options("series") };
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
