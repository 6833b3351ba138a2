//! What is excluded is left out with all below it, told once, and costs nothing else.

use std::path::Path;

use crate::support::{Walked, put, relative};
use larder_source::{Case, Excludes, PathMatcher, SkipReason, TagFile, WalkOptions};
use proptest::prelude::*;

fn excluding(excludes: Excludes) -> WalkOptions {
    WalkOptions { excludes, ..Default::default() }
}

fn patterns(list: &[&str]) -> Vec<PathMatcher> {
    vec![PathMatcher::new(list, Case::Sensitive).expect("good patterns")]
}

#[test]
fn patterns_prune_and_are_told_once() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["a/target/x/y", "a/keep.rs", "b/old.o", "b/target", "c/cache/keep/x", "c/cache/drop/x"] {
        put(dir.path(), name, b"x");
    }
    let anchored = format!("{}/c/cache/*", dir.path().display());
    let back = format!("!{}/c/cache/keep", dir.path().display());
    let excludes = Excludes { patterns: patterns(&["target", "*.o", &anchored, &back]), ..Default::default() };
    let walked = Walked::with(&[dir.path()], excluding(excludes));
    assert_eq!(walked.below(dir.path()), ["a", "a/keep.rs", "b", "c", "c/cache", "c/cache/keep", "c/cache/keep/x"]);
    let skipped: Vec<String> = walked.skipped_below(dir.path()).into_iter().map(|(path, _)| path).collect();
    assert_eq!(skipped, ["a/target", "b/old.o", "b/target", "c/cache/drop"]);
    assert!(walked.skipped.iter().all(|(_, reason)| *reason == SkipReason::Pattern));
    assert!(walked.problems.is_empty());
}

#[test]
fn a_root_can_be_excluded_but_the_folders_above_it_cannot() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "up/one/x", b"x");
    put(dir.path(), "up/two/x", b"x");
    let above = format!("!{}/up/one", dir.path().display());
    let excludes = Excludes { patterns: patterns(&["up", &above]), ..Default::default() };
    let (one, two) = (dir.path().join("up/one"), dir.path().join("up/two"));
    let walked = Walked::with(&[&one, &two], excluding(excludes));
    assert_eq!(walked.below(dir.path()), ["up", "up/one", "up/one/x"]);
    assert_eq!(walked.skipped, [(relative(&two), SkipReason::Pattern)]);
}

#[test]
fn tagged_folders_keep_themselves_and_the_tag() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "cache/CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55\n# comment");
    put(dir.path(), "cache/a/b", b"x");
    put(dir.path(), "cache/z", b"x");
    put(dir.path(), "not a cache/CACHEDIR.TAG", b"Signature: something else");
    put(dir.path(), "not a cache/z", b"x");
    put(dir.path(), "short/CACHEDIR.TAG", b"Signature");
    put(dir.path(), "short/z", b"x");
    put(dir.path(), "folder/CACHEDIR.TAG/z", b"x");
    put(dir.path(), "private/.nobackup", b"");
    put(dir.path(), "private/deep/er", b"x");
    let tags = || vec![TagFile::cache_directory(), TagFile::parse(b".nobackup").expect("good")];
    let walked = Walked::with(&[dir.path()], excluding(Excludes { tags: tags(), ..Default::default() }));
    let expected = [
        "cache",
        "cache/CACHEDIR.TAG",
        "folder",
        "folder/CACHEDIR.TAG",
        "folder/CACHEDIR.TAG/z",
        "not a cache",
        "not a cache/CACHEDIR.TAG",
        "not a cache/z",
        "private",
        "private/.nobackup",
        "short",
        "short/CACHEDIR.TAG",
        "short/z",
    ];
    assert_eq!(walked.below(dir.path()), expected);
    let tagged = |path: &str| (path.to_owned(), SkipReason::Tagged);
    assert_eq!(walked.skipped_below(dir.path()), [tagged("cache"), tagged("private")]);
}

#[test]
fn large_files_are_left_out_and_other_things_are_not_measured() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "a/just", [0; 100]);
    let over = put(dir.path(), "a/over", [0; 101]);
    std::fs::hard_link(over, dir.path().join("a/over again")).expect("linked");
    std::os::unix::fs::symlink("x".repeat(200), dir.path().join("link")).expect("linked");
    let excludes = Excludes { larger_than: Some(100), ..Default::default() };
    let walked = Walked::with(&[dir.path()], excluding(excludes));
    assert_eq!(walked.below(dir.path()), ["a", "a/just", "link"]);
    let large = |path: &str| (path.to_owned(), SkipReason::TooLarge);
    assert_eq!(walked.skipped_below(dir.path()), [large("a/over"), large("a/over again")]);
}

/// `/dev` nearly always has other file systems in it: a test without the right to mount.
#[test]
fn other_file_systems_are_not_entered_unless_they_are_roots() {
    let device = |path: &str| std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(path).expect("there"));
    if !Path::new("/dev/shm").is_dir() || device("/dev") == device("/dev/shm") {
        return;
    }
    let inside = tempfile::tempdir_in("/dev/shm").expect("a folder");
    put(inside.path(), "sub/file", b"x");
    let options = || WalkOptions { one_file_system: true, ..Default::default() };
    let file = relative(&inside.path().join("sub/file"));

    let walked = Walked::with(&[Path::new("/dev")], options());
    assert!(walked.paths().contains(&b"dev/shm".as_slice()), "the mount point is an entry");
    assert!(walked.skipped.contains(&(b"dev/shm".to_vec(), SkipReason::OtherFileSystem)));
    assert!(!walked.paths().iter().any(|path| path.starts_with(b"dev/shm/")));

    let walked = Walked::with(&[Path::new("/dev"), Path::new("/dev/shm")], options());
    assert!(walked.paths().contains(&file.as_slice()), "a root of its own");

    let walked = Walked::with(&[Path::new("/dev"), inside.path()], options());
    assert!(walked.paths().contains(&file.as_slice()), "a root below the mount point");
    let strangers = walked.paths().into_iter().filter(|path| path.starts_with(b"dev/shm/"));
    assert!(strangers.into_iter().all(|path| path.starts_with(&relative(inside.path()))));

    let walked = Walked::plain(&[Path::new("/dev")]);
    assert!(walked.paths().contains(&file.as_slice()), "without the option");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Pruning on the way must leave out the same paths as judging every path by itself.
    #[test]
    fn pruning_agrees_with_judging_every_path(
        files in proptest::collection::vec(proptest::collection::vec("[ab]{1,2}", 1..5), 1..20),
        list in proptest::collection::vec("/?([ab*?]{1,2}|\\*\\*)(/([ab*?]{1,2}|\\*\\*)){0,2}", 1..4),
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        for components in &files {
            let path = dir.path().join(components.join("/"));
            if std::fs::create_dir_all(path.parent().expect("has one")).is_ok() && !path.exists() {
                std::fs::write(&path, b"").expect("written");
            }
        }
        // Anchored patterns are anchored at the folder of the test.
        let list: Vec<String> = list
            .iter()
            .map(|pattern| pattern.strip_prefix('/').map_or(pattern.clone(), |rest| format!("{}/{rest}", dir.path().display())))
            .collect();
        let matcher = || PathMatcher::new(&list, Case::Sensitive).expect("good patterns");
        let (judge, above) = (matcher(), relative(dir.path().parent().expect("has one")));
        prop_assume!(!judge.is_match(&above));
        let all = Walked::plain(&[dir.path()]);
        let expected: Vec<&[u8]> =
            all.paths().into_iter().filter(|path| path.len() <= above.len() || !judge.is_match(path)).collect();
        let excludes = Excludes { patterns: vec![matcher()], ..Default::default() };
        let walked = Walked::with(&[dir.path()], excluding(excludes));
        prop_assert_eq!(walked.paths(), expected, "{:?}", list);
    }
}
