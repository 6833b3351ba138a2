//! Makes matchers of patterns from the command line and from files.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use larder_source::pattern_file::parse_patterns;
use larder_source::{Case, PathMatcher};

use crate::exit::Exit;
use crate::failure::Failure;

/// Patterns as the options have them.
#[derive(Debug)]
pub(crate) struct Patterns<'a> {
    /// Those that are case-sensitive.
    pub(crate) exact: &'a [OsString],
    /// Those that are not.
    pub(crate) any_case: &'a [OsString],
    /// Files of the first kind.
    pub(crate) exact_files: &'a [PathBuf],
    /// Files of the second kind.
    pub(crate) any_case_files: &'a [PathBuf],
}

impl Patterns<'_> {
    /// One matcher for all patterns of an option, and one for each file: `!` negates within its own
    /// list.
    pub(crate) fn matchers(&self) -> Result<Vec<PathMatcher>, Failure> {
        let mut matchers = Vec::new();
        for (given, case) in [(self.exact, Case::Sensitive), (self.any_case, Case::Insensitive)] {
            if !given.is_empty() {
                matchers.push(PathMatcher::new(given.iter().map(|pattern| pattern.as_bytes()), case)?);
            }
        }
        for (files, case) in [(self.exact_files, Case::Sensitive), (self.any_case_files, Case::Insensitive)] {
            for file in files {
                matchers.push(from_file(file, case)?);
            }
        }
        Ok(matchers)
    }
}

/// A matcher of names, such as those of attributes; none without patterns.
pub(crate) fn of_names(given: &[OsString]) -> Result<Option<Arc<PathMatcher>>, Failure> {
    if given.is_empty() {
        return Ok(None);
    }
    let matcher = PathMatcher::new(given.iter().map(|pattern| pattern.as_bytes()), Case::Sensitive)?;
    Ok(Some(Arc::new(matcher)))
}

fn from_file(path: &PathBuf, case: Case) -> Result<PathMatcher, Failure> {
    let what = format!("the patterns of {}", path.display());
    let contents = std::fs::read(path)
        .map_err(|error| Failure::of(Exit::Failed, &error).while_doing(&format!("cannot read {what}")))?;
    let variable = |name: &[u8]| {
        let name = std::ffi::OsStr::from_bytes(name);
        std::env::var_os(name).map(OsString::into_vec)
    };
    let patterns = parse_patterns(&contents, variable).map_err(|error| Failure::from(error).while_doing(&what))?;
    PathMatcher::new(patterns, case).map_err(|error| Failure::from(error).while_doing(&what))
}

/// A pattern that matches exactly this absolute path and everything below it.
pub(crate) fn literally(path: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(path.len());
    for byte in path {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_pattern_matches_only_its_path() {
        let odd = b"/a[b]*/\\?\xff";
        let matcher = PathMatcher::new([literally(odd)], Case::Sensitive).expect("a good pattern");
        assert!(matcher.is_match(&odd[1..]));
        assert!(matcher.is_match(&[&odd[1..], b"/below"].concat()));
        assert!(!matcher.is_match(b"ab*/\\?\xff"));
        assert!(!matcher.is_match(b"x/a[b]*/\\?\xff"));
    }
}
