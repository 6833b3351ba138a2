//! Files to leave out of a backup, or to include in a restore: patterns, marker files, size.
//!
//! Patterns have the same meaning as in restic. `/a/b` is anchored at the root of the file system,
//! and `a/b` matches anywhere. A pattern matches a path when it matches it or one of the folders
//! above it. A leading `!` includes again what earlier patterns of the same list matched; the last
//! matching pattern wins. A folder that is left out is not entered. So nothing inside can be
//! included again unless the folder itself is (`/home/u/*` and then `!/home/u/keep` works, because
//! the second matches all below `keep`).
//!
//! All patterns of a list are compiled into one automaton: the time for a path does not grow with
//! the number of patterns.

use std::fmt;

use larder_format::ErrorKind;
use regex::bytes::{RegexSet, RegexSetBuilder};
use rustix::fs::{FileType, Mode, OFlags, openat};
use rustix::io::{Errno, pread};
use thiserror::Error;

use crate::directory::{Directory, Names};
use crate::glob::{self, Malformed, text_of};
use crate::path_text::PathText;
use crate::stat::Stat;

/// Memory all patterns of one list may take compiled. Ten thousand ordinary patterns take a tenth
/// of it.
const COMPILED_BYTES_MAX: usize = 128 << 20;

/// Components of a pattern that are looked at to see whether something below a folder may match.
/// Deeper ones count as "may". Each takes four of the 250 levels of nesting the compiler allows.
const LEADING_COMPONENTS_MAX: usize = 48;

/// Whether upper and lower case are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// They are (`--exclude`).
    Sensitive,
    /// They are not (`--iexclude`).
    Insensitive,
}

/// Why a pattern cannot be used.
#[derive(Debug, Error)]
pub enum PatternError {
    /// Nothing, or nothing after `!`.
    #[error("an empty pattern was given")]
    Empty,
    /// A set or an escape is not complete.
    #[error("the pattern {} has a [ without ] or a trailing backslash", PathText(.pattern))]
    Malformed {
        /// The pattern as given.
        pattern: Vec<u8>,
    },
    /// All patterns of the list together need too much memory.
    #[error("the patterns are too many or too complex: {source}")]
    TooLarge {
        /// The message of the compiler.
        source: Box<regex::Error>,
    },
}

impl PatternError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Empty | Self::Malformed { .. } | Self::TooLarge { .. } => ErrorKind::BadRequest,
        }
    }
}

/// The verdict of a list of patterns on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The path, or a folder above it, matches, and no later `!` pattern takes it back.
    Match,
    /// A folder that does not match, but something below it may: look inside.
    ChildMayMatch,
    /// Neither it nor anything below it.
    No,
}

/// A compiled list of patterns.
#[derive(Debug)]
pub struct PathMatcher {
    patterns: Vec<Compiled>,
    /// Pattern `n` matches the path.
    whole: RegexSet,
    /// Anchored pattern `n` may match something below the path. Never matches for others.
    leading: RegexSet,
    has_negated: bool,
}

#[derive(Debug, Clone, Copy)]
struct Compiled {
    is_negated: bool,
    is_anchored: bool,
}

impl PathMatcher {
    /// Compiles patterns, in the order in which they hold.
    pub fn new<P: AsRef<[u8]>>(patterns: impl IntoIterator<Item = P>, case: Case) -> Result<Self, PatternError> {
        let (mut facts, mut whole, mut leading) = (Vec::new(), Vec::new(), Vec::new());
        for pattern in patterns {
            let parsed = Parsed::new(pattern.as_ref())?;
            let malformed = |Malformed| PatternError::Malformed { pattern: pattern.as_ref().to_vec() };
            whole.push(parsed.whole().map_err(malformed)?);
            leading.push(parsed.leading().map_err(malformed)?);
            facts.push(Compiled { is_negated: parsed.is_negated, is_anchored: parsed.is_anchored });
        }
        let compile = |expressions: Vec<String>| {
            RegexSetBuilder::new(expressions)
                .case_insensitive(case == Case::Insensitive)
                .dot_matches_new_line(true)
                .size_limit(COMPILED_BYTES_MAX)
                .build()
                .map_err(|source| PatternError::TooLarge { source: Box::new(source) })
        };
        Ok(Self {
            has_negated: facts.iter().any(|fact| fact.is_negated),
            patterns: facts,
            whole: compile(whole)?,
            leading: compile(leading)?,
        })
    }

    /// No patterns at all.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Judges an entry's path (relative to `/`).
    pub fn matches(&self, path: &[u8], is_dir: bool) -> Verdict {
        let text = text_of(path);
        let text = text.as_bytes();
        if self.matches_text(text) {
            Verdict::Match
        } else if is_dir && self.may_match_below(text) {
            Verdict::ChildMayMatch
        } else {
            Verdict::No
        }
    }

    /// Whether the verdict is [`Verdict::Match`].
    pub fn is_match(&self, path: &[u8]) -> bool {
        self.matches_text(text_of(path).as_bytes())
    }

    fn matches_text(&self, text: &[u8]) -> bool {
        if !self.has_negated {
            return self.whole.is_match(text);
        }
        let last = self.whole.matches(text).iter().next_back();
        last.is_some_and(|last| !self.patterns[last].is_negated)
    }

    fn may_match_below(&self, text: &[u8]) -> bool {
        let leading = self.leading.matches(text);
        let whole = self.has_negated.then(|| self.whole.matches(text));
        self.patterns.iter().enumerate().fold(false, |may, (at, pattern)| {
            if pattern.is_negated {
                may && !whole.as_ref().is_some_and(|whole| whole.matched(at))
            } else {
                may || !pattern.is_anchored || leading.matched(at)
            }
        })
    }
}

/// A pattern taken apart.
struct Parsed {
    is_negated: bool,
    is_anchored: bool,
    /// `None` is `**`.
    components: Vec<Option<String>>,
}

impl Parsed {
    fn new(pattern: &[u8]) -> Result<Self, PatternError> {
        let text = text_of(pattern);
        let (is_negated, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, &*text),
        };
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let is_anchored = text.starts_with('/');
        let mut components: Vec<Option<String>> = Vec::new();
        for component in text.split('/') {
            match component {
                "" | "." => {}
                ".." => {
                    components.pop();
                }
                "**" => components.push(None),
                name => components.push(Some(name.to_owned())),
            }
        }
        // At the end it matches nothing as well as anything, and paths below a match also match.
        while components.len() > 1 && components.last().is_some_and(Option::is_none) {
            components.pop();
        }
        if components.is_empty() && !is_anchored {
            return Err(PatternError::Empty);
        }
        Ok(Self { is_negated, is_anchored, components })
    }

    /// Matches paths the pattern matches.
    fn whole(&self) -> Result<String, Malformed> {
        let mut out = if self.is_anchored { "^".to_owned() } else { "^(?:(?-u:.*)/)?".to_owned() };
        for (at, component) in self.components.iter().enumerate() {
            match component {
                None => out.push_str("(?:(?-u:[^/]+)/)*"),
                Some(component) => {
                    glob::push_component(&mut out, component)?;
                    out.push_str(if at + 1 == self.components.len() { "(?:/|$)" } else { "/" });
                }
            }
        }
        Ok(out)
    }

    /// Matches paths below which an anchored pattern may match something; only its components up to
    /// the first `**` tell.
    fn leading(&self) -> Result<String, Malformed> {
        if !self.is_anchored || self.is_negated {
            return Ok("[a&&b]".to_owned());
        }
        let mut out = "^".to_owned();
        let mut open = 0;
        for component in self.components.iter().take(LEADING_COMPONENTS_MAX) {
            let Some(component) = component else { break };
            out.push_str("(?:");
            glob::push_component(&mut out, component)?;
            out.push_str("(?:$|/");
            open += 2;
        }
        out.extend(std::iter::repeat_n(')', open));
        Ok(out)
    }
}

/// A file whose presence means that the contents of its folder are not wanted. The folder itself
/// and the file are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFile {
    /// Its name, a single component.
    name: Vec<u8>,
    /// The required beginning; empty: any.
    header: Vec<u8>,
}

/// Why a tag file cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{} is not the name of a file in a folder", PathText(.given))]
pub struct TagFileError {
    /// The given text.
    pub given: Vec<u8>,
}

impl TagFileError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::BadRequest
    }
}

impl TagFile {
    /// The marker of cache folders that many programs write (<https://bford.info/cachedir/>).
    pub fn cache_directory() -> Self {
        Self { name: b"CACHEDIR.TAG".to_vec(), header: b"Signature: 8a477f597d28d172789f06886806bc55".to_vec() }
    }

    /// Takes `NAME` or `NAME:HEADER`.
    pub fn parse(given: &[u8]) -> Result<Self, TagFileError> {
        let (name, header) = match given.iter().position(|byte| *byte == b':') {
            Some(at) => (&given[..at], &given[at + 1..]),
            None => (given, &b""[..]),
        };
        if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
            return Err(TagFileError { given: given.to_vec() });
        }
        Ok(Self { name: name.to_vec(), header: header.to_vec() })
    }

    /// Whether the directory holds it. A tag that cannot be read is none: better to store too much.
    fn marks(&self, directory: &Directory, names: &Names) -> bool {
        names.contains(&self.name) && (self.header.is_empty() || self.starts_right(directory).unwrap_or(false))
    }

    fn starts_right(&self, directory: &Directory) -> Result<bool, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(directory, self.name.as_slice(), flags, Mode::empty())?;
        if Stat::of(&file)?.file_type != FileType::RegularFile {
            return Ok(false);
        }
        let mut start = vec![0; self.header.len()];
        let mut filled = 0;
        while filled < start.len() {
            match pread(&file, &mut start[filled..], filled as u64) {
                Ok(0) => return Ok(false),
                Ok(got) => filled += got,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(start == self.header)
    }
}

/// Everything that keeps paths out of a backup.
#[derive(Default)]
pub struct Excludes {
    /// A path that one of these matches is left out. Lists do not know of one another: `!` works
    /// within its own.
    pub patterns: Vec<PathMatcher>,
    /// The contents of folders that hold one of these are left out.
    pub tags: Vec<TagFile>,
    /// Regular files of more bytes are left out.
    pub larger_than: Option<u64>,
}

impl Excludes {
    /// Whether a pattern leaves this path out.
    pub fn by_pattern(&self, path: &[u8]) -> bool {
        self.patterns.iter().any(|list| list.is_match(path))
    }

    /// Takes out all names but those of tag files if the directory is tagged; tells whether it is.
    pub(crate) fn apply_tags(&self, directory: &Directory, names: &mut Names) -> bool {
        let is_tagged = self.tags.iter().any(|tag| tag.marks(directory, names));
        if is_tagged {
            names.retain(|name| self.tags.iter().any(|tag| tag.name == name));
        }
        is_tagged
    }
}

impl fmt::Debug for Excludes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns: usize = self.patterns.iter().map(|list| list.patterns.len()).sum();
        out.debug_struct("Excludes")
            .field("patterns", &patterns)
            .field("tags", &self.tags)
            .field("larger_than", &self.larger_than)
            .finish()
    }
}

#[cfg(test)]
mod tests;
