//! What several tests need.
#![allow(dead_code, reason = "what uses which part is decided by who includes this")]

pub(crate) mod torture;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_source::{Found, Item, Problem, Roots, SkipReason, Walk, WalkOptions};

/// Everything a walk said.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) found: Vec<Found>,
    pub(crate) skipped: Vec<(Vec<u8>, SkipReason)>,
    pub(crate) problems: Vec<Problem>,
}

impl Walked {
    /// Walks without any options.
    pub(crate) fn plain(roots: &[&Path]) -> Self {
        Self::with(roots, WalkOptions::default())
    }

    pub(crate) fn with(roots: &[&Path], options: WalkOptions) -> Self {
        let roots = Roots::new(roots.iter().map(|root| root.as_os_str().as_bytes()), b"/").expect("good roots");
        Walk::new(roots, options).collect()
    }

    pub(crate) fn paths(&self) -> Vec<&[u8]> {
        self.found.iter().map(|found| found.entry.path.as_slice()).collect()
    }

    /// Paths below `root`, relative to it, as text.
    pub(crate) fn below(&self, root: &Path) -> Vec<String> {
        let root = [relative(root).as_slice(), b"/"].concat();
        let inside = self.found.iter().filter_map(|found| found.entry.path.strip_prefix(root.as_slice()));
        inside.map(|path| larder_source::PathText(path).to_string()).collect()
    }

    pub(crate) fn by_path(&self) -> BTreeMap<&[u8], &Found> {
        self.found.iter().map(|found| (found.entry.path.as_slice(), found)).collect()
    }

    /// Problems as lines of text, without the part of the path that `root` is.
    pub(crate) fn problem_lines(&self, root: &Path) -> Vec<String> {
        let root = root.to_str().expect("text");
        self.problems.iter().map(|problem| problem.to_string().replace(root, "")).collect()
    }

    pub(crate) fn skipped_below(&self, root: &Path) -> Vec<(String, SkipReason)> {
        let root = [relative(root).as_slice(), b"/"].concat();
        let short =
            |path: &[u8]| larder_source::PathText(path.strip_prefix(root.as_slice()).unwrap_or(path)).to_string();
        self.skipped.iter().map(|(path, reason)| (short(path), *reason)).collect()
    }
}

impl FromIterator<Item> for Walked {
    fn from_iter<T: IntoIterator<Item = Item>>(items: T) -> Self {
        let mut walked = Self::default();
        for item in items {
            match item {
                Item::Found(found) => walked.found.push(found),
                Item::Skipped { path, reason } => walked.skipped.push((path, reason)),
                Item::Problem(problem) => walked.problems.push(problem),
            }
        }
        walked
    }
}

/// The path an entry for this absolute path has.
pub(crate) fn relative(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes()[1..].to_vec()
}

pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    Path::new("/").join(OsStr::from_bytes(bytes))
}

/// Writes a file and the folders above it.
pub(crate) fn put(root: &Path, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> PathBuf {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("it has one")).expect("folders made");
    std::fs::write(&path, contents).expect("file written");
    path
}

pub(crate) fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}
