//! Patterns against a table of verdicts, and against a matcher that tries every way.

use super::*;
use proptest::prelude::*;

fn verdict(patterns: &[&str], path: &str, is_dir: bool) -> Verdict {
    PathMatcher::new(patterns, Case::Sensitive).expect("good patterns").matches(path.as_bytes(), is_dir)
}

#[test]
fn patterns_match_paths_and_all_below_them() {
    for (pattern, path, expected) in [
        ("*.o", "src/a.o", true),
        ("*.o", "src/a.o/inner", true),
        ("*.o", "src/a.oo", false),
        ("node_modules", "a/node_modules/b/c", true),
        ("node_modules/", "a/node_modules", true),
        ("node_modules", "a/node_modules2", false),
        ("/home/u", "home/u/x", true),
        ("/home/u", "home/u2", false),
        ("/home/u", "x/home/u", false),
        ("home/u", "x/home/u/y", true),
        ("./a//b/../c", "x/a/c", true),
        ("a/*/c", "a/b/c", true),
        ("a/*/c", "a/c", false),
        ("a/*", "a", false),
        ("a/**/c", "a/c", true),
        ("a/**/c", "x/a/b/b/c/d", true),
        ("/a/**/c", "x/a/c", false),
        ("/a/**", "a", true),
        ("/a/**/*", "a", false),
        ("/a/**/*", "a/b", true),
        ("**", "a", true),
        ("/**/x", "x", true),
        ("/", "anything", true),
        ("a**b", "axxb", true),
        ("a**b", "a/b", false),
        ("\\!x", "!x", true),
        ("a b\t'", "a b\t'", true),
        ("x\ny", "d/x\ny", true),
    ] {
        let got = verdict(&[pattern], path, false);
        assert_eq!(got, if expected { Verdict::Match } else { Verdict::No }, "{pattern} on {path}");
    }
}

#[test]
fn negation_takes_back_and_the_last_match_wins() {
    let list = ["/home/u/**/*", "!/home/u/docs", "!/home/u/code", "node_modules", "*~"];
    for (path, expected) in [
        ("home/u", Verdict::ChildMayMatch),
        ("home/u/docs", Verdict::No),
        ("home/u/docs/a/b", Verdict::No),
        ("home/u/docs/a~", Verdict::Match),
        ("home/u/code/node_modules/x", Verdict::Match),
        ("home/u/other", Verdict::Match),
        ("home/v", Verdict::ChildMayMatch),
    ] {
        let is_dir = expected == Verdict::ChildMayMatch;
        assert_eq!(verdict(&list, path, is_dir), expected, "{path}");
    }
}

#[test]
fn folders_on_the_way_to_an_anchored_pattern_may_hold_a_match() {
    for (pattern, path, expected) in [
        ("/a/b/c", "a", true),
        ("/a/b/c", "a/b", true),
        ("/a/b/c", "a/x", false),
        ("/a/b/c", "b", false),
        ("/a/*/c", "a/x", true),
        ("/a/*/c", "a/x/y", false),
        ("/a/**/c", "a/x/y/z", true),
        ("/a/**/c", "b", false),
        ("/*.d/x", "etc", false),
        ("/*.d/x", "rc.d", true),
        ("rel", "anywhere/at/all", true),
        ("!rel", "anywhere", false),
    ] {
        let got = verdict(&[pattern], path, true);
        assert_eq!(got, if expected { Verdict::ChildMayMatch } else { Verdict::No }, "{pattern} on {path}");
        assert_eq!(verdict(&[pattern], path, false), Verdict::No, "a file has nothing below it");
    }
    let deep = format!("/{}", vec!["d"; 500].join("/"));
    assert_eq!(verdict(&[&deep], &vec!["d"; 400].join("/"), true), Verdict::ChildMayMatch);
}

#[test]
fn case_and_stray_bytes() {
    let list = PathMatcher::new(["*.JPG", "/Straße"], Case::Insensitive).expect("good");
    assert!(list.is_match(b"x/photo.jpg"));
    assert!(list.is_match("STRAßE/x".as_bytes()));
    assert!(!PathMatcher::new(["*.JPG"], Case::Sensitive).expect("good").is_match(b"photo.jpg"));
    let list = PathMatcher::new([&b"caf\xe9"[..], b"?.bin"], Case::Sensitive).expect("good");
    assert!(list.is_match(b"menu/caf\xe9/x"));
    assert!(!list.is_match("menu/café".as_bytes()));
    assert!(list.is_match(b"\xff.bin"));
    assert!(!list.is_match(b"\xff\xfe.bin"));
}

#[test]
fn bad_patterns_are_refused_by_name() {
    for bad in ["", "!", ".", "a/.."] {
        assert!(matches!(PathMatcher::new([bad], Case::Sensitive), Err(PatternError::Empty)), "{bad}");
    }
    for bad in ["a[", "x/\\", "[a/b]", "[]"] {
        let error = PathMatcher::new(["fine", bad], Case::Sensitive).expect_err(bad);
        assert!(matches!(error, PatternError::Malformed { pattern } if pattern == bad.as_bytes()), "{bad}");
    }
    let none: [&str; 0] = [];
    let empty = PathMatcher::new(none, Case::Sensitive).expect("good");
    assert!(empty.is_empty());
    assert_eq!(empty.matches(b"a", true), Verdict::No);
}

#[test]
fn many_patterns_compile() {
    let many = (0..10_000).map(|n| format!("/home/user{n}/*/cache?{n}/**/*.tmp"));
    let list = PathMatcher::new(many, Case::Sensitive).expect("fits");
    assert!(list.is_match(b"home/user77/x/cache-77/a/b/c.tmp"));
    assert!(!list.is_match(b"home/user77/x/cache-78/a/b/c.tmp"));
}

#[test]
fn tag_names() {
    let tag = |name: &[u8], header: &[u8]| Ok(TagFile { name: name.to_vec(), header: header.to_vec() });
    assert_eq!(TagFile::parse(b".nobackup"), tag(b".nobackup", b""));
    assert_eq!(TagFile::parse(b".nobackup:yes: really"), tag(b".nobackup", b"yes: really"));
    for bad in [&b""[..], b":x", b"a/b", b"..", b"a\0"] {
        assert_eq!(TagFile::parse(bad), Err(TagFileError { given: bad.to_vec() }));
    }
    assert_eq!(TagFile::cache_directory().header.len(), 43);
}

/// An oracle that works on lists of components, the way the rules are written down, with none of
/// the machinery.
mod oracle {
    pub(super) fn name_matches(pattern: &[char], name: &[char]) -> bool {
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some('*'), _) => {
                name_matches(&pattern[1..], name) || (!name.is_empty() && name_matches(pattern, &name[1..]))
            }
            (Some('?'), Some(_)) => name_matches(&pattern[1..], &name[1..]),
            (Some(want), Some(have)) if want == have => name_matches(&pattern[1..], &name[1..]),
            _ => false,
        }
    }

    /// Whether all of `pattern` matches the front of `path`.
    fn front_matches(pattern: &[&str], path: &[&str]) -> bool {
        match pattern.split_first() {
            None => true,
            Some((&"**", rest)) => (0..=path.len()).any(|skip| front_matches(rest, &path[skip..])),
            Some((first, rest)) => path.split_first().is_some_and(|(name, below)| {
                let chars = |text: &str| text.chars().collect::<Vec<_>>();
                name_matches(&chars(first), &chars(name)) && front_matches(rest, below)
            }),
        }
    }

    pub(super) fn matches(list: &[String], path: &str) -> bool {
        let path: Vec<&str> = path.split('/').collect();
        let mut matched = false;
        for pattern in list {
            let (negated, pattern) = pattern.strip_prefix('!').map_or((false, pattern.as_str()), |rest| (true, rest));
            let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
            let last_start = if pattern.starts_with('/') { 0 } else { path.len() - 1 };
            if (0..=last_start).any(|start| front_matches(&parts, &path[start..])) {
                matched = !negated;
            }
        }
        matched
    }
}

fn pattern() -> impl Strategy<Value = String> {
    let component = prop_oneof![
        3 => "[ab*?é]{1,3}",
        1 => Just("**".to_owned()),
        2 => "[ab]",
    ];
    let parts = proptest::collection::vec(component, 1..4);
    ("!?/?", parts).prop_map(|(start, parts)| format!("{start}{}", parts.join("/")))
}

fn path() -> impl Strategy<Value = String> {
    proptest::collection::vec("[abé]{1,3}", 1..6).prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn matching_agrees_with_the_rules(list in proptest::collection::vec(pattern(), 1..5), path in path()) {
        let matcher = PathMatcher::new(&list, Case::Sensitive).expect("good patterns");
        prop_assert_eq!(matcher.is_match(path.as_bytes()), oracle::matches(&list, &path), "{:?} on {}", list, path);
    }

    /// Restores descend only where the matcher says that something may match, so no match may be
    /// elsewhere.
    #[test]
    fn every_match_is_reached_through_folders_that_say_so(
        list in proptest::collection::vec(pattern(), 1..5), path in path()
    ) {
        // A later `!` on a folder may hide a match below it, as in restic: such lists are not meant
        // here.
        let list: Vec<&str> = list.iter().map(|pattern| pattern.trim_start_matches('!')).collect();
        let matcher = PathMatcher::new(&list, Case::Sensitive).expect("good patterns");
        if matcher.is_match(path.as_bytes()) {
            for (at, _) in path.match_indices('/') {
                prop_assert_ne!(matcher.matches(&path.as_bytes()[..at], true), Verdict::No, "{:?} on {}", list, &path[..at]);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_pattern_or_an_error(pattern in proptest::collection::vec(any::<u8>(), 0..12),
                                           path in proptest::collection::vec(any::<u8>(), 1..12)) {
        if let Ok(matcher) = PathMatcher::new([pattern], Case::Insensitive) {
            matcher.matches(&path, true);
        }
    }
}
