//! Reads lists of paths to back up: `--files-from`, `--files-from-verbatim`, `--files-from-raw`.
//!
//! An empty or truncated list is an error: an incomplete backup must not look like a good one.
//! Whether the paths exist is the walk's business; only patterns are looked up here.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use larder_format::ErrorKind;
use regex::bytes::Regex;
use thiserror::Error;

use crate::glob::{has_wildcards, push_component, text_of};
use crate::path_text::PathText;

/// How a list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFormat {
    /// One shell pattern a line; space around it does not count, empty lines and lines that begin
    /// with `#` are skipped.
    Patterns,
    /// One path a line, exactly as it stands; empty lines are skipped.
    Verbatim,
    /// Paths that each end with a NUL byte, as `find -print0` writes them.
    Raw,
}

/// Why a list cannot be used.
#[derive(Debug, Error)]
pub enum ListError {
    /// The list cannot be read.
    #[error("cannot read the list {}: {source}", PathText(.list))]
    Read {
        /// Name of the list.
        list: Vec<u8>,
        /// The message of the system.
        source: io::Error,
    },
    /// No path in it, or no pattern in it matches anything.
    #[error("the list {} names no file or folder", PathText(.list))]
    Empty {
        /// Name of the list.
        list: Vec<u8>,
    },
    /// The last name of a raw list has no end: the list was probably cut off.
    #[error("the list {} does not end with a NUL byte", PathText(.list))]
    CutOff {
        /// Name of the list.
        list: Vec<u8>,
    },
    /// A raw list with a name of no bytes.
    #[error("the list {} holds an empty name (number {number})", PathText(.list))]
    EmptyName {
        /// Name of the list.
        list: Vec<u8>,
        /// Counted from 1.
        number: usize,
    },
    /// A pattern that cannot be understood.
    #[error("the list {}: the pattern {} has a [ without ] or a trailing backslash", PathText(.list), PathText(.pattern))]
    Pattern {
        /// Name of the list.
        list: Vec<u8>,
        /// The pattern.
        pattern: Vec<u8>,
    },
    /// Paths cannot hold NUL.
    #[error("the list {} holds a NUL byte in {}", PathText(.list), PathText(.name))]
    Nul {
        /// Name of the list.
        list: Vec<u8>,
        /// The line.
        name: Vec<u8>,
    },
}

impl ListError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { .. } => ErrorKind::Resource,
            Self::Empty { .. }
            | Self::CutOff { .. }
            | Self::EmptyName { .. }
            | Self::Pattern { .. }
            | Self::Nul { .. } => ErrorKind::Precondition,
        }
    }
}

/// The contents of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Paths, as written or as found.
    pub paths: Vec<Vec<u8>>,
    /// Patterns that match nothing: they are reported, because they are probably mistakes.
    pub unmatched: Vec<Vec<u8>>,
}

/// Reads the list `name`; `-` is `stdin`. Relative patterns start at the folder `base`.
pub fn read_list(name: &[u8], format: ListFormat, stdin: impl Read, base: &[u8]) -> Result<Listed, ListError> {
    let mut contents = Vec::new();
    let outcome = match name {
        b"-" => { stdin }.read_to_end(&mut contents).map(|_| ()),
        name => fs::read(at(base, name)).map(|read| contents = read),
    };
    outcome.map_err(|source| ListError::Read { list: name.to_vec(), source })?;
    parse_list(name, &contents, format, base)
}

/// Takes the contents of a list apart; `list` is its name for messages.
pub fn parse_list(list: &[u8], contents: &[u8], format: ListFormat, base: &[u8]) -> Result<Listed, ListError> {
    let mut listed = Listed { paths: Vec::new(), unmatched: Vec::new() };
    match format {
        ListFormat::Raw => {
            let Some(names) = contents.strip_suffix(b"\0") else {
                let list = list.to_vec();
                return Err(if contents.is_empty() { ListError::Empty { list } } else { ListError::CutOff { list } });
            };
            for (at, name) in names.split(|byte| *byte == 0).enumerate() {
                if name.is_empty() {
                    return Err(ListError::EmptyName { list: list.to_vec(), number: at + 1 });
                }
                listed.paths.push(name.to_vec());
            }
        }
        ListFormat::Verbatim | ListFormat::Patterns => {
            for line in contents.split(|byte| *byte == b'\n') {
                if line.contains(&0) {
                    return Err(ListError::Nul { list: list.to_vec(), name: line.to_vec() });
                }
                if format == ListFormat::Verbatim {
                    if !line.is_empty() {
                        listed.paths.push(line.to_vec());
                    }
                    continue;
                }
                match line.trim_ascii() {
                    b"" => {}
                    comment if comment.starts_with(b"#") => {}
                    pattern if has_wildcards(pattern) => match expand(pattern, base) {
                        None => return Err(ListError::Pattern { list: list.to_vec(), pattern: pattern.to_vec() }),
                        Some(found) if found.is_empty() => listed.unmatched.push(pattern.to_vec()),
                        Some(found) => listed.paths.extend(found),
                    },
                    path => listed.paths.push(path.to_vec()),
                }
            }
        }
    }
    if listed.paths.is_empty() {
        return Err(ListError::Empty { list: list.to_vec() });
    }
    Ok(listed)
}

/// The existing paths a pattern matches, sorted; `None` when it cannot be understood. Folders that
/// cannot be read match nothing.
fn expand(pattern: &[u8], base: &[u8]) -> Option<Vec<Vec<u8>>> {
    let start: &[u8] = if pattern.starts_with(b"/") { b"/" } else { b"" };
    let mut found: Vec<Vec<u8>> = vec![start.to_vec()];
    for component in pattern.split(|byte| *byte == b'/').filter(|component| !component.is_empty()) {
        let matcher = if has_wildcards(component) { Some(compile(component)?) } else { None };
        let mut deeper = Vec::new();
        for path in found {
            match &matcher {
                None => deeper.push(joined(&path, component)),
                Some(matcher) => {
                    let folder = if path.is_empty() { Path::new(".") } else { as_path(&path) };
                    let Ok(names) = fs::read_dir(at(base, folder.as_os_str().as_bytes())) else { continue };
                    let names = names.filter_map(Result::ok).map(|entry| entry.file_name().into_vec());
                    let mut names: Vec<Vec<u8>> =
                        names.filter(|name| matcher.is_match(text_of(name).as_bytes())).collect();
                    names.sort_unstable();
                    deeper.extend(names.iter().map(|name| joined(&path, name)));
                }
            }
        }
        found = deeper;
    }
    found.retain(|path| fs::symlink_metadata(at(base, path)).is_ok());
    Some(found)
}

fn compile(component: &[u8]) -> Option<Regex> {
    let mut expression = "(?s)^".to_owned();
    push_component(&mut expression, &text_of(component)).ok()?;
    expression.push('$');
    Regex::new(&expression).ok()
}

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.is_empty() || path.ends_with(b"/") { b"" } else { b"/" };
    [path, slash, name].concat()
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn at(base: &[u8], path: &[u8]) -> std::path::PathBuf {
    as_path(base).join(as_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(contents: &[u8], format: ListFormat, base: &Path) -> Result<(Vec<String>, Vec<String>), ListError> {
        let text = |all: Vec<Vec<u8>>| all.iter().map(|one| PathText(one).to_string()).collect();
        parse_list(b"list", contents, format, base.as_os_str().as_bytes())
            .map(|listed| (text(listed.paths), text(listed.unmatched)))
    }

    #[test]
    fn patterns_are_looked_up_and_the_rest_is_taken_as_it_is() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["b/one.txt", "b/two.txt", "b/.hidden.txt", "a/one.txt", "c.txt", "[x]"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("parent")).expect("made");
            fs::write(path, b"").expect("written");
        }
        fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff.bin")), b"").expect("written");
        std::os::unix::fs::symlink("nowhere", dir.path().join("dangling.lnk")).expect("linked");
        let contents =
            b"# comment\n\n */*.txt \nnot there\nb/../c.txt\n?.bin\n*.lnk\n\\[x\\]\n*.none\n*/none\n[ab]/one.txt\r\n";
        let (paths, unmatched) = listed(contents, ListFormat::Patterns, dir.path()).expect("good");
        let expected = [
            "a/one.txt",
            "b/.hidden.txt",
            "b/one.txt",
            "b/two.txt",
            "not there",
            "b/../c.txt",
            "\\xff.bin",
            "dangling.lnk",
            "[x]",
            "a/one.txt",
            "b/one.txt",
        ];
        assert_eq!(paths, expected);
        assert_eq!(unmatched, ["*.none", "*/none"]);
        let absolute = [dir.path().as_os_str().as_bytes(), b"/*.txt"].concat();
        let (paths, _) = listed(&absolute, ListFormat::Patterns, Path::new("/")).expect("good");
        assert_eq!(paths, [dir.path().join("c.txt").to_str().expect("text")]);
    }

    #[test]
    fn verbatim_and_raw_lists_keep_every_byte() {
        let (paths, _) = listed(b" a \n#b\n\n*\\\r\n", ListFormat::Verbatim, Path::new("/")).expect("good");
        assert_eq!(paths, [" a ", "#b", "*\\\\\\r"]);
        let (paths, _) = listed(b"a\nb\0 \0\xff\0", ListFormat::Raw, Path::new("/")).expect("good");
        assert_eq!(paths, ["a\\nb", " ", "\\xff"]);
    }

    #[test]
    fn lists_that_name_nothing_or_are_damaged_are_errors() {
        let base = Path::new("/");
        for (contents, format) in [
            (&b""[..], ListFormat::Patterns),
            (b"# only\n\n", ListFormat::Patterns),
            (b"/no-such-thing-*\n", ListFormat::Patterns),
            (b"\n\n", ListFormat::Verbatim),
            (b"", ListFormat::Raw),
        ] {
            assert!(matches!(listed(contents, format, base), Err(ListError::Empty { .. })), "{contents:?}");
        }
        assert!(matches!(listed(b"a\0b", ListFormat::Raw, base), Err(ListError::CutOff { .. })));
        assert!(matches!(listed(b"a\0\0b\0", ListFormat::Raw, base), Err(ListError::EmptyName { number: 2, .. })));
        assert!(matches!(listed(b"a[", ListFormat::Patterns, base), Err(ListError::Pattern { .. })));
        assert!(matches!(listed(b"x\na\0b\n", ListFormat::Verbatim, base), Err(ListError::Nul { .. })));
    }

    #[test]
    fn a_list_comes_from_a_file_or_standard_input() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().as_os_str().as_bytes();
        fs::write(dir.path().join("names"), b"a\n").expect("written");
        let read = |name: &[u8]| read_list(name, ListFormat::Verbatim, &b"from stdin\n"[..], base);
        assert_eq!(read(b"names").expect("good").paths, [b"a".to_vec()]);
        assert_eq!(read(b"-").expect("good").paths, [b"from stdin".to_vec()]);
        assert!(matches!(read(b"missing"), Err(ListError::Read { .. })));
    }
}
