//! The first version of a series finds its duplicates in similar versions of other series.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::path::Path;

use crate::support::*;
use larder_format::mark::Forgotten;
use larder_job::JobContext;
use larder_lnode::{BackupOptions, BackupReport, Input, WhyBase, backup};
use larder_testkit::{Memory, data};
use proptest::prelude::*;

fn repository(runtime: &tokio::runtime::Runtime) -> JobContext {
    let store = larder_store::Store::from_object_store(Memory::new().store(), "", &Default::default()).unwrap();
    context(runtime, init(runtime, store))
}

fn stream(bytes: &[u8], path: &[u8]) -> Input {
    let reader = Box::new(std::io::Cursor::new(bytes.to_vec()));
    Input::Stream { path: path.to_vec(), reader, size: None }
}

/// Backs a stream up under a series and a path of its own, and checks that it comes back.
fn store(context: &JobContext, series: &str, bytes: &[u8]) -> BackupReport {
    let report = backup(context, stream(bytes, series.as_bytes()), &options(series)).unwrap();
    assert!(read(context, &report) == bytes, "what comes back is not what was stored");
    report
}

fn read(context: &JobContext, report: &BackupReport) -> Vec<u8> {
    let id = report.version.as_ref().unwrap().id;
    let version = versions(context).into_iter().find(|version| version.id() == id).unwrap();
    let mut restored = Vec::new();
    larder_reader::VersionReader::open(context, &version)
        .unwrap()
        .visit_contents(b"", |_, content| {
            content.read_to_end(&mut restored).unwrap();
            Ok::<_, larder_store::RepositoryError>(())
        })
        .unwrap();
    restored
}

/// Series of the bases, all of them similar.
fn similar_to(report: &BackupReport) -> Vec<&str> {
    assert!(report.bases.iter().all(|base| base.why == WhyBase::Similar), "{:?}", report.bases);
    report.bases.iter().map(|base| &*base.series).collect()
}

fn forget(context: &JobContext, report: &BackupReport) {
    let id = report.version.as_ref().unwrap().id;
    let version = versions(context).into_iter().find(|version| version.id() == id).unwrap();
    let pin = larder_format::lease::Pin { series: version.series, job: id };
    let mark = Forgotten { time_ms: 0, host: String::new(), reason: String::new() };
    context.executor.block_on(context.repository.forget(pin, &mark)).unwrap();
}

#[test]
fn a_cloned_stream_is_stored_once() {
    let runtime = runtime();
    let context = repository(&runtime);
    // Longer than what is sampled.
    let bytes = data::mixed(1, 20 << 20);
    store(&context, "original", &bytes);
    let clone = store(&context, "clone", &bytes);
    assert_eq!(similar_to(&clone), ["original"]);
    assert_eq!(clone.statistics.new_chunks, 0);
    // The whole is predicted: nothing of it is even cut where MACs are fast.
    let summary = clone.version.as_ref().unwrap();
    assert_eq!(summary.base, Some(clone.bases[0].id));
    // From now on it has a base of its own.
    let next = store(&context, "clone", &bytes);
    assert_eq!((next.bases.len(), next.bases[0].why, next.bases[0].id), (1, WhyBase::Newest, summary.id));
    // Its sketch was taken over with the stream, and finds it: of equals the newest.
    let third = store(&context, "third", &bytes);
    assert_eq!(similar_to(&third), ["clone"]);
    assert_eq!(third.bases[0].id, next.version.as_ref().unwrap().id);
}

/// Goal: new data at the front hides no base. Method: 20 and 30 MiB of new head. A stream's head is held, so its memory is the limit.
#[test]
fn a_base_is_found_behind_a_new_head() {
    let runtime = runtime();
    let context = repository(&runtime);
    let old = data::random(1, 24 << 20);
    let original = store(&context, "original", &old);
    for (seed, head) in [(2, 20 << 20), (3, 30 << 20)] {
        let renamed = [&data::random(seed, head)[..], &old].concat();
        let series = format!("renamed {head}");
        let input = |series: &str| stream(&renamed, series.as_bytes());
        // Of what is held, only the new head would be seen.
        let little = BackupOptions { index_memory: 16 << 20, dry_run: true, ..options("with little memory") };
        assert!(backup(&context, input("x"), &little).unwrap().bases.is_empty());
        let found = store(&context, &series, &renamed);
        assert_eq!(similar_to(&found), ["original"]);
        // Metadata included.
        let (new, least) = (found.statistics.added_bytes, head as u64);
        assert!((least..least + (1 << 20)).contains(&new), "{new} new bytes behind a head of {least}");
        forget(&context, &found);
    }
    assert_eq!(versions(&context)[0].id(), original.version.unwrap().id);
}

#[test]
fn several_similar_series_are_used_together() {
    let runtime = runtime();
    let context = repository(&runtime);
    let (a, b, other) = (data::mixed(1, 5 << 20), data::mixed(2, 4 << 20), data::mixed(3, 4 << 20));
    store(&context, "a", &a);
    store(&context, "b", &b);
    store(&context, "other", &other);
    let both = store(&context, "both", &[&a[..], &b[..]].concat());
    let mut used = similar_to(&both);
    used.sort_unstable();
    assert_eq!(used, ["a", "b"]);
    assert!(both.statistics.new_chunks < 20, "{:?}", both.statistics);
    // What it took from b is in its container table, or check would complain.
    let checked = larder_rewrite::check(&context, &larder_rewrite::CheckOptions::default()).unwrap();
    assert!(checked.damages.is_empty(), "{:?}", checked.damages);
}

#[test]
fn a_forgotten_version_is_no_base() {
    let runtime = runtime();
    let context = repository(&runtime);
    let (old, new) = (data::mixed(1, 3 << 20), data::mixed(2, 3 << 20));
    let first = store(&context, "series", &old);
    let second = store(&context, "series", &new);
    // Only the newest version of a series is looked at.
    assert_eq!(similar_to(&store(&context, "like the old", &old)), [""; 0]);
    forget(&context, &second);
    assert_eq!(similar_to(&store(&context, "like the new", &new)), [""; 0]);
    let third = store(&context, "like the old again", &old);
    assert_eq!(similar_to(&third), ["like the old"]);
    forget(&context, &first);
}

/// Somebody forgets the base while the head is being read: after the choice, before the lease is checked.
#[test]
fn a_base_that_goes_away_is_done_without() {
    struct Forgetting(JobContext, BackupReport, std::io::Cursor<Vec<u8>>, bool);
    impl std::io::Read for Forgetting {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if !std::mem::replace(&mut self.3, true) {
                forget(&self.0, &self.1);
            }
            self.2.read(buffer)
        }
    }
    let runtime = runtime();
    let context = repository(&runtime);
    let bytes = data::mixed(1, 3 << 20);
    let first = store(&context, "series", &bytes);
    let reader = Forgetting(context.clone(), first, std::io::Cursor::new(bytes.clone()), false);
    let input = Input::Stream { path: b"x".to_vec(), reader: Box::new(reader), size: None };
    let report = backup(&context, input, &options("other")).unwrap();
    assert_eq!(similar_to(&report), [""; 0]);
    assert!(read(&context, &report) == bytes);
}

#[test]
fn nothing_similar_is_nothing_found_and_failures_of_the_input_stay() {
    let runtime = runtime();
    let context = repository(&runtime);
    let bytes = data::mixed(1, 3 << 20);
    store(&context, "series", &bytes);
    assert_eq!(similar_to(&store(&context, "other", &data::mixed(2, 3 << 20))), [""; 0]);
    // Streams below one chunk have no sketch, and none are looked for.
    store(&context, "tiny", b"tiny");
    assert_eq!(similar_to(&store(&context, "tiny too", b"tiny")), [""; 0]);
    assert_eq!(similar_to(&store(&context, "empty", b"")), [""; 0]);
    let unwanted = BackupOptions { find_similar: false, ..options("without") };
    assert!(backup(&context, stream(&bytes, b"x"), &unwanted).unwrap().bases.is_empty());

    struct Broken(usize);
    impl std::io::Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0 == 0 {
                return Err(std::io::Error::other("the source is broken"));
            }
            let count = buffer.len().min(self.0);
            buffer[..count].fill(7);
            self.0 -= count;
            Ok(count)
        }
    }
    let input = Input::Stream { path: b"x".to_vec(), reader: Box::new(Broken(100_000)), size: None };
    let error = backup(&context, input, &options("broken")).unwrap_err();
    assert!(matches!(error, larder_lnode::BackupError::Input { .. }), "{error:?}");
}

fn tree(root: &Path) {
    for n in 0..300_u64 {
        let folder = root.join(format!("folder{}", n % 7));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("file{n}")), data::mixed(n, 500 + n as usize * 97)).unwrap();
    }
    std::fs::write(root.join("folder3/large"), data::mixed(1000, 3 << 20)).unwrap();
    std::fs::hard_link(root.join("folder3/large"), root.join("folder5/link")).unwrap();
    std::os::unix::fs::symlink("folder1", root.join("a link")).unwrap();
}

#[test]
fn a_renamed_series_and_a_moved_folder_find_their_data() {
    use std::os::unix::ffi::OsStrExt;
    let runtime = runtime();
    let context = repository(&runtime);
    let temp = tempfile::tempdir().unwrap();
    let (before, after) = (temp.path().join("before"), temp.path().join("elsewhere"));
    tree(&before);
    let run = |series: &str, path: &Path| {
        let options = BackupOptions { paths: vec![path.as_os_str().as_bytes().to_vec()], ..options(series) };
        backup(&context, walk(path), &options).unwrap()
    };
    let first = run("first", &before);
    let renamed = run("renamed", &before);
    assert_eq!(similar_to(&renamed), ["first"]);
    let (had, has) = (&first.statistics, &renamed.statistics);
    assert_eq!((has.new_chunks, has.files_unmodified, has.files_new), (0, 0, had.files_new), "metadata prove nothing");
    assert_eq!(has.read_bytes, had.read_bytes);
    std::fs::rename(&before, &after).unwrap();
    std::fs::write(after.join("folder2/file2"), data::mixed(7777, 5000)).unwrap();
    let moved = run("moved", &after);
    assert_eq!(similar_to(&moved), ["renamed"]);
    assert!(moved.statistics.new_chunks < 10, "{:?}", moved.statistics);
    // Nothing differs from the base, and still it is a series of its own.
    let same = BackupOptions { skip_if_unchanged: true, ..options("same") };
    assert!(backup(&context, walk(&after), &same).unwrap().version.is_some());
    let target = temp.path().join("restored");
    let version = versions(&context).into_iter().find(|version| version.summary.series == "moved").unwrap();
    std::fs::create_dir(&target).unwrap();
    restore(&context, &version, &after, &target).unwrap();
    assert_eq!(differences(&after, &target), "");
}

/// Goal: the large files of a moved tree are proved, not cut, from their first segment on. Method: files of 3 MiB between others, one
/// of a size that is not predicted, one new, one changed.
#[test]
fn a_moved_tree_is_predicted() {
    let runtime = runtime();
    let context = repository(&runtime);
    let temp = tempfile::tempdir().unwrap();
    let (before, after) = (temp.path().join("before"), temp.path().join("elsewhere"));
    std::fs::create_dir(&before).unwrap();
    const LARGE: usize = 3 << 20;
    for n in 0..6_u64 {
        std::fs::write(before.join(format!("{n} large")), data::random(n, LARGE)).unwrap();
        std::fs::write(before.join(format!("{n} medium")), data::random(10 + n, 600_000)).unwrap();
        std::fs::write(before.join(format!("{n} small")), data::random(20 + n, 30_000)).unwrap();
    }
    backup(&context, walk(&before), &options("first")).unwrap();
    std::fs::rename(&before, &after).unwrap();
    std::fs::write(after.join("1 new"), data::random(30, LARGE)).unwrap();
    let mut changed = data::random(4, LARGE);
    changed[100..200].fill(7);
    std::fs::write(after.join("4 large"), changed).unwrap();
    let moved = backup(&context, walk(&after), &options("moved")).unwrap();
    assert_eq!(similar_to(&moved), ["first"]);
    let statistics = &moved.statistics;
    // Of the changed one, another segment may be proved.
    assert!(statistics.predicted_bytes >= 5 * LARGE as u64, "{statistics:?}");
    assert!(statistics.added_bytes < LARGE as u64 + 100_000, "{statistics:?}");
    assert_eq!(statistics.files_unmodified, 0, "metadata prove nothing");
    let target = temp.path().join("restored");
    std::fs::create_dir(&target).unwrap();
    let version = versions(&context).pop().unwrap();
    restore(&context, &version, &after, &target).unwrap();
    assert_eq!(differences(&after, &target), "");
}

/// A file with the inode number, the times and the size of another series' file at the same path is read all the same.
#[test]
fn metadata_of_another_series_prove_nothing_unless_asked_for() {
    let runtime = runtime();
    let context = repository(&runtime);
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("source");
    tree(&source);
    let first = backup(&context, walk(&source), &options("one host")).unwrap();
    let other = backup(&context, walk(&source), &options("other host")).unwrap();
    assert_eq!(other.statistics.files_unmodified, 0);
    let asked = BackupOptions { base: Some(first.version.unwrap().id), ..options("third host") };
    let asked = backup(&context, walk(&source), &asked).unwrap();
    assert_eq!((asked.bases[0].why, asked.statistics.read_bytes), (WhyBase::Asked, 0));
}

/// An edit: at this place, so many bytes are replaced by so many others.
type Edit = (prop::sample::Index, usize, usize);

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_similar_every_byte_comes_back(
        parts in prop::collection::vec((0..5_u64, 1..2_000_000_usize), 1..5),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..30_000_usize, 0..30_000_usize), 0..5),
        order in any::<bool>(),
    ) {
        let runtime = runtime();
        let context = repository(&runtime);
        for seed in 0..4 {
            store(&context, &format!("series {seed}"), &data::mixed(seed, 2_000_000));
        }
        let mut bytes: Vec<u8> = Vec::new();
        for (seed, length) in if order { parts.clone() } else { parts.into_iter().rev().collect() } {
            bytes.extend(&data::mixed(seed, length));
        }
        for (place, removed, inserted) in &edits as &[Edit] {
            let from = place.index(bytes.len() + 1);
            let to = (from + removed).min(bytes.len());
            bytes.splice(from..to, pseudo_random(*inserted, 5));
        }
        let first = store(&context, "mixed", &bytes);
        prop_assert!(first.bases.len() <= 3);
        store(&context, "mixed", &bytes);
        let checked = larder_rewrite::check(&context, &larder_rewrite::CheckOptions::default()).unwrap();
        prop_assert!(checked.damages.is_empty(), "{:?}", checked.damages);
    }
}

/// The search lists marks, versions and closed domains, and reads one summary a series; of versions that are not similar nothing else is read.
#[test]
fn nothing_similar_costs_one_summary_a_series() {
    let runtime = runtime();
    let context = repository(&runtime);
    for seed in 0..5 {
        store(&context, &format!("series {seed}"), &data::mixed(seed, 1_000_000));
        store(&context, &format!("series {seed}"), &data::mixed(seed, 1_000_000));
    }
    let requests = |series: &str, find_similar| {
        let before = context.repository.store().stats();
        let options = BackupOptions { find_similar, ..options(series) };
        let report = backup(&context, stream(&data::mixed(9, 1_000_000), b"x"), &options).unwrap();
        assert_eq!((report.bases.len(), report.statistics.new_chunks > 100), (0, true));
        let after = context.repository.store().stats();
        forget(&context, &report);
        (after.reads - before.reads, after.lists - before.lists)
    };
    let (reads, lists) = requests("without", false);
    // The one that was forgotten meanwhile costs its mark.
    assert_eq!(requests("with", true), (reads + 5 + 1, lists + 3));
}
