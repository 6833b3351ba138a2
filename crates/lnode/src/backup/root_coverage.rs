//! Whether a backup of a tree has read any of its requested paths.
//!
//! The folders above the requested paths are in the version in any case, and so is a folder that
//! could not be opened. A version of only these would look like a backup without being one.

use larder_format::entry::{Entry, EntryKind};
use larder_job::{Activity, Problem};
use larder_reader::is_at_or_below;

/// See the module header.
#[derive(Debug)]
pub(super) struct RootCoverage {
    /// The requested paths, relative to `/`; none: everything that comes.
    roots: Vec<Vec<u8>>,
    /// Requested folders in the version, perhaps without any readable content.
    bare: u64,
    has_read: bool,
}

impl RootCoverage {
    /// `paths`: absolute, as recorded in the version.
    pub(super) fn new(paths: &[Vec<u8>]) -> Self {
        let roots = paths.iter().filter_map(|path| path.strip_prefix(b"/")).map(<[u8]>::to_vec).collect();
        Self { roots, bare: 0, has_read: false }
    }

    pub(super) fn entry(&mut self, entry: &Entry) {
        if self.has_read {
            return;
        }
        let is_folder = entry.kind == EntryKind::Directory;
        let is_below = |root: &Vec<u8>| entry.path != *root && is_at_or_below(&entry.path, root);
        if !is_folder || self.roots.iter().any(is_below) {
            self.has_read = true;
        } else if self.roots.contains(&entry.path) {
            self.bare += 1;
        } else {
            // Above all requested paths, unless not all of them are recorded.
            self.has_read = !self.roots.iter().any(|root| is_at_or_below(root, &entry.path));
        }
    }

    pub(super) fn problem(&mut self, problem: &Problem) {
        if problem.during == Activity::Walk && self.roots.contains(&problem.path) {
            self.bare = self.bare.saturating_sub(1);
        }
    }

    /// Whether it is a folder that is in the version only because a requested path is below it.
    pub(super) fn is_above(&self, entry: &Entry) -> bool {
        let is_at_or_above = |root: &Vec<u8>| is_at_or_below(root, &entry.path);
        entry.kind == EntryKind::Directory
            && self.roots.iter().any(is_at_or_above)
            && !self.roots.iter().any(|root| is_at_or_below(&entry.path, root))
    }

    pub(super) fn is_any(&self) -> bool {
        self.has_read || self.bare > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: EntryKind) -> Entry {
        let time = larder_format::entry::Timestamp::default();
        Entry {
            path: path.as_bytes().to_vec(),
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            user: None,
            group: None,
            mtime: time,
            ctime: time,
            atime: None,
            inode: 0,
            xattrs: Vec::new(),
        }
    }

    #[test]
    fn above_is_what_leads_to_what_was_asked_for() {
        let wanted = RootCoverage::new(&[b"/a/b".to_vec(), b"/a/c/d".to_vec()]);
        let is_above = |path| wanted.is_above(&entry(path, EntryKind::Directory));
        assert!(is_above("a") && is_above("a/c"));
        assert!(!is_above("a/b") && !is_above("a/b/x") && !is_above("a/c/d") && !is_above("x") && !is_above("a/bb"));
        assert!(!wanted.is_above(&entry("a", EntryKind::Fifo)));
        assert!(!RootCoverage::new(&[]).is_above(&entry("a", EntryKind::Directory)), "everything was asked for");
        let all = RootCoverage::new(&[b"/".to_vec()]);
        assert!(!all.is_above(&entry("a", EntryKind::Directory)));
    }

    #[test]
    fn folders_above_and_folders_that_stay_shut_are_nothing() {
        let any = |roots: &[&str], folders: &[&str], shut: &[&str]| {
            let roots: Vec<_> = roots.iter().map(|root| root.as_bytes().to_vec()).collect();
            let mut wanted = RootCoverage::new(&roots);
            folders.iter().for_each(|path| wanted.entry(&entry(path, EntryKind::Directory)));
            for path in shut {
                let (path, message) = (path.as_bytes().to_vec(), String::new());
                wanted.problem(&Problem { path, during: Activity::Walk, message });
            }
            wanted.is_any()
        };
        assert!(!any(&["/a/b"], &[], &[]));
        assert!(!any(&["/a/b"], &["a"], &["a/b"]), "not there");
        assert!(!any(&["/a/b"], &["a", "a/b"], &["a/b"]), "not opened");
        assert!(any(&["/a/b"], &["a", "a/b"], &[]), "an empty folder");
        assert!(any(&["/a/b", "/c"], &["a", "a/b", "c"], &["c"]));
        assert!(any(&["/a/b"], &["a", "a/b", "a/b/c"], &["a/b"]), "listed in part");
        assert!(any(&["/"], &["a"], &[]));
        assert!(any(&[], &["a"], &[]));
        let mut file = RootCoverage::new(&[b"/a/b".to_vec()]);
        file.entry(&entry("a/b", EntryKind::File { size: 0, extents: None }));
        assert!(file.is_any());
    }
}
