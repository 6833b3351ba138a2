//! Lengths of objects: a backup that adds one chunk looks like any other that does.
//!
//! `bench/padding/attack.py` is the same at length, with an observer who learns.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use larder_format::names;
use larder_testkit::data;

use crate::support::*;

const NIGHTS: u64 = 60;

/// Length of the longest chunk of the configuration of these tests.
const CHUNK_MAX: u64 = 6144;

/// Goal: what an observer of the store sees of a night follows nothing that changed, if one chunk
/// was added. Method: nights on which one file of few to 6,144 bytes gets new content, from text to
/// noise, and the lengths of all objects that each added.
#[test]
fn nights_that_add_one_chunk_look_alike() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let context = context(&runtime, init(&runtime, local(&dir.path().join("repository"))));
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..20 {
        fs::write(source.join(format!("unchanged-{n:02}")), data::random(n, 3000)).unwrap();
    }
    let file = source.join("changed");
    fs::write(&file, b"the first").unwrap();
    backup(&context, &source).unwrap();

    let list = |prefix: &str| -> BTreeMap<String, u64> {
        let listed = context.executor.block_on(context.repository.store().list(prefix)).unwrap();
        listed.into_iter().map(|object| (object.name, object.size)).collect()
    };
    let folders = [names::DATA, names::META, names::VERSIONS];
    let mut before: BTreeMap<_, _> = folders.into_iter().flat_map(list).collect();
    let mut added = BTreeSet::new();
    let mut sights = BTreeSet::new();
    for night in 0..NIGHTS {
        let len = 1 + night * (CHUNK_MAX - 1) / (NIGHTS - 1);
        let content = if night % 2 == 0 { data::random } else { data::text }(1000 + night, len as usize);
        fs::write(&file, content).unwrap();
        added.insert(backup(&context, &source).unwrap().statistics.added_bytes);
        let after: BTreeMap<_, _> = folders.into_iter().flat_map(list).collect();
        // Folder and length of each object: names are those of the job.
        let new = after.iter().filter(|(name, _)| !before.contains_key(*name));
        let sight: Vec<_> = new.map(|(name, size)| (name.split('/').next().unwrap().to_owned(), *size)).collect();
        sights.insert(sight);
        before = after;
    }
    assert!(added.len() as u64 > NIGHTS / 2, "the nights added different bytes: {added:?}");
    let expected = [("data", 8192), ("meta", 8192), ("versions", 4096)].map(|(folder, len)| (folder.to_owned(), len));
    assert_eq!(sights, BTreeSet::from([expected.to_vec()]));
}
