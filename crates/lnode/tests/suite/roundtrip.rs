//! What is backed up is what is restored, version after version.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::support::*;
use larder_format::manifest::Statistics;

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::write(root.join("empty-file"), b"").unwrap();
    fs::write(root.join("dir/small"), b"hello").unwrap();
    fs::write(root.join("dir.txt"), pseudo_random(5000, 1)).unwrap();
    fs::write(root.join("dir/sub/medium"), pseudo_random(200_000, 2)).unwrap();
    fs::write(root.join("large"), pseudo_random(7_000_000, 3)).unwrap();
    fs::write(root.join("copy-of-large"), pseudo_random(7_000_000, 3)).unwrap();
    fs::write(root.join("zeros"), vec![0; 3_000_000]).unwrap();
    for n in 0..300 {
        fs::write(root.join(format!("dir/sub/file-{n}")), format!("file number {n}\n").repeat(n)).unwrap();
    }
    symlink("dir/small", root.join("link")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    fs::hard_link(root.join("dir/sub/medium"), root.join("dir/zzz-hard")).unwrap();
    fs::set_permissions(root.join("dir/small"), fs::Permissions::from_mode(0o4751)).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(50_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 20_000_000).unwrap();
}

#[test]
fn three_versions_of_a_tree_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let context = context(&runtime, init(&runtime, local(&dir.path().join("repository"))));
    let source = dir.path().join("source");
    make_tree(&source);
    let keep = |name: &str| {
        let copy = dir.path().join(name);
        let status = std::process::Command::new("cp").arg("-a").arg(&source).arg(&copy).status().unwrap();
        assert!(status.success());
        copy
    };

    let first = backup(&context, &source).unwrap();
    let first_copy = keep("first");
    assert_eq!(first.statistics.errors, 0);
    assert_eq!(first.statistics.files_new, 309);
    // The copy of the large file is found within the job, and holes are not even read.
    assert!(first.statistics.added_bytes < 11_500_000, "{} bytes added", first.statistics.added_bytes);

    // Nothing changed: nothing is read, nothing is stored.
    let second = backup(&context, &source).unwrap();
    let Statistics { files_unmodified, read_bytes, added_bytes, .. } = second.statistics;
    assert_eq!((files_unmodified, read_bytes), (309, 0));
    // The folders above the tree belong to everybody and may have changed: that is one block of metadata.
    assert!(added_bytes < 50_000, "{added_bytes} bytes added");
    assert_eq!(second.bases.first().map(|base| base.id), first.version.as_ref().map(|version| version.id));

    // A bit of everything changes.
    let mut large = pseudo_random(7_000_000, 3);
    large.splice(3_000_000..3_000_010, *b"something longer than it was");
    fs::write(source.join("large"), &large).unwrap();
    fs::remove_file(source.join("dir/small")).unwrap();
    fs::write(source.join("dir/sub/file-7"), b"changed").unwrap();
    fs::write(source.join("dir/sub/new"), b"new").unwrap();
    fs::rename(source.join("dir.txt"), source.join("renamed.txt")).unwrap();
    let third = backup(&context, &source).unwrap();
    assert!(third.statistics.added_bytes < 200_000, "{} bytes added", third.statistics.added_bytes);

    let versions = versions(&context);
    assert_eq!(versions.len(), 3);
    for (version, original) in versions.iter().zip([&first_copy, &first_copy, &source]) {
        let target = dir.path().join(format!("target-{}", version.id()));
        let report = restore(&context, version, &source, &target).unwrap();
        assert_eq!(report.errors, 0);
        assert_eq!(differences(original, &target), "");
    }
}

#[test]
fn reading_everything_again_gives_the_same_recipes() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let context = context(&runtime, init(&runtime, local(&dir.path().join("repository"))));
    let source = dir.path().join("source");
    make_tree(&source);
    backup(&context, &source).unwrap();
    let options = larder_lnode::BackupOptions { force: true, ..options("series") };
    let again = larder_lnode::backup(&context, walk(&source), &options).unwrap();
    assert!(again.statistics.read_bytes > 15_000_000);
    let versions = versions(&context);
    let manifest = |n: usize| runtime.block_on(context.repository.manifest(&versions[n])).unwrap();
    assert_eq!(manifest(0).data, manifest(1).data);
    assert_eq!(again.statistics.new_chunks, 0);
}

#[test]
fn a_stream_comes_back_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let context = context(&runtime, init(&runtime, local(&dir.path().join("repository"))));
    for (name, bytes) in [("empty", Vec::new()), ("dump", pseudo_random(9_000_001, 4))] {
        let reader = Box::new(std::io::Cursor::new(bytes.clone()));
        let input = larder_lnode::Input::Stream { path: name.as_bytes().to_vec(), reader, size: None };
        larder_lnode::backup(&context, input, &options(name)).unwrap();
        let versions = versions(&context);
        let reader = larder_reader::VersionReader::open(&context, versions.last().unwrap()).unwrap();
        let mut read = Vec::new();
        reader
            .visit_contents(b"", |entry, content| {
                assert_eq!(entry.path, name.as_bytes());
                content.read_to_end(&mut read).unwrap();
                Ok::<_, larder_store::RepositoryError>(())
            })
            .unwrap();
        assert!(read == bytes, "{name} differs");
    }
}

/// Policies would take the new version for the oldest one.
#[test]
fn a_clock_that_is_behind_the_newest_version_is_told() {
    #[derive(Debug)]
    struct At(u64);
    impl larder_job::Clock for At {
        fn now_ms(&self) -> u64 {
            self.0
        }
    }
    #[derive(Default)]
    struct Notes(parking_lot::Mutex<Vec<String>>);
    impl larder_job::Progress for Notes {
        fn note(&self, text: &str) {
            self.0.lock().push(text.to_owned());
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("a"), "content").unwrap();
    let runtime = runtime();
    let context = context(&runtime, init(&runtime, local(&dir.path().join("repository"))));
    let notes = std::sync::Arc::new(Notes::default());
    const NOON: u64 = 4_100_000_000_000;
    const HOUR: u64 = 60 * 60 * 1000;
    let at = |now_ms| larder_job::JobContext {
        clock: std::sync::Arc::new(At(now_ms)),
        progress: notes.clone(),
        ..context.clone()
    };
    for (now_ms, told) in [(NOON, 0), (NOON - HOUR, 0), (NOON - HOUR - 1, 1), (NOON - 9600 * HOUR, 2)] {
        backup(&at(now_ms), &source).unwrap();
        let notes = notes.0.lock();
        let about_clocks = notes.iter().filter(|note| note.contains("the clock of this machine is behind"));
        assert_eq!(about_clocks.count(), told, "{now_ms}: {notes:?}");
    }
}
