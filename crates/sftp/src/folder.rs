//! The folder that is served: from the paths of clients to descriptors below it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use larder_beneath::Resolver;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::STAGING;
use crate::refusal::Refusal;

/// How a folder is opened: so that it can be read and synced.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Most components of a path. So no folder is too deep to be counted.
const DEPTH_MAX: usize = 16;

/// The least that an entry counts, in bytes: empty files and folders need room too.
pub(crate) const ENTRY: u64 = 4 << 10;

/// A path below the folder, in its one spelling: components between slashes; empty: the folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Below(String);

impl Below {
    /// Reads the path of a client. It begins at the folder, with and without a slash.
    pub(crate) fn parse(path: &str) -> Result<Self, Refusal> {
        let components: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if components.iter().any(|part| *part == ".." || part.contains(char::is_control)) {
            return Err(Refusal::Rule("no path leads out of the folder that is served"));
        }
        if components.len() > DEPTH_MAX {
            return Err(Refusal::Rule("the path has too many folders"));
        }
        Ok(Self(components.join("/")))
    }

    /// The text that clients see.
    pub(crate) fn shown(&self) -> String {
        format!("/{}", self.0)
    }

    /// The folder it is in, and its name there.
    fn split(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }

    /// Whether it names a file under way.
    pub(crate) fn is_staging(&self) -> bool {
        let (above, name) = self.split();
        let folder = above.rsplit_once('/').map_or(above, |(_, last)| last);
        folder == STAGING && !name.starts_with('.')
    }

    /// Whether it may be the final name of a file.
    pub(crate) fn is_final(&self) -> bool {
        !self.0.is_empty() && self.0.split('/').all(|part| !part.starts_with('.'))
    }

    /// Whether it may be a folder that clients make.
    pub(crate) fn may_be_folder(&self) -> bool {
        self.is_final()
            || (self.split().1 == STAGING && (self.split().0.is_empty() || Self(self.split().0.to_owned()).is_final()))
    }
}

/// The folder.
#[derive(Debug)]
pub(crate) struct Folder {
    root: OwnedFd,
    resolver: Resolver,
}

impl Folder {
    /// Opens it, and makes it if it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        let root = rustix::fs::openat(CWD, path, FOLDER, Mode::empty())?;
        // It may be new, and the folder above may belong to somebody else.
        let _ = rustix::fs::openat(&root, "..", FOLDER, Mode::empty()).and_then(rustix::fs::fsync);
        Ok(Self { root, resolver: Resolver::default() })
    }

    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens a folder below.
    pub(crate) fn folder(&self, below: &Below) -> Result<OwnedFd, Errno> {
        self.folder_at(&below.0)
    }

    fn folder_at(&self, path: &str) -> Result<OwnedFd, Errno> {
        match path {
            "" => Ok(rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?),
            path => self.resolver.open(&self.root, path.as_bytes(), FOLDER),
        }
    }

    /// Opens the folder that something is in; with its name there.
    pub(crate) fn parent<'a>(&self, below: &'a Below) -> Result<(OwnedFd, &'a str), Refusal> {
        let (above, name) = below.split();
        if name.is_empty() {
            return Err(Refusal::Rule("this is the folder that is served"));
        }
        Ok((self.folder_at(above)?, name))
    }

    /// Opens a file for reading.
    pub(crate) fn file(&self, below: &Below) -> Result<OwnedFd, Errno> {
        if below.0.is_empty() {
            return Err(Errno::ISDIR);
        }
        // Without `NONBLOCK` a named pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        self.resolver.open(&self.root, below.0.as_bytes(), flags)
    }

    /// What is known about an entry; a link is not followed.
    pub(crate) fn stat(&self, below: &Below) -> Result<Stat, Refusal> {
        if below.0.is_empty() {
            return Ok(rustix::fs::fstat(&self.root)?);
        }
        let (parent, name) = self.parent(below)?;
        Ok(rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The bytes that all entries count.
    pub(crate) fn size(&self) -> Result<u64, Errno> {
        fn add(folder: OwnedFd, depth: usize) -> Result<u64, Errno> {
            let mut sum = 0_u64;
            for entry in Dir::read_from(&folder)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                let stat = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => continue,
                    stat => stat?,
                };
                sum = sum.saturating_add(match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or(0).max(ENTRY),
                    FileType::Directory if depth < DEPTH_MAX => {
                        match larder_beneath::open_child(&folder, name.to_bytes(), FOLDER) {
                            // Removed, or not of this user, such as `lost+found`.
                            Err(Errno::NOENT | Errno::ACCESS) => ENTRY,
                            below => add(below?, depth + 1)?.saturating_add(ENTRY),
                        }
                    }
                    _ => ENTRY,
                });
            }
            Ok(sum)
        }
        add(self.folder_at("")?, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_one_spelling_and_stay_below() {
        for (path, below) in [("", ""), ("/", ""), (".", ""), ("/web1//data/./x", "web1/data/x"), ("web1", "web1")] {
            assert_eq!(Below::parse(path), Ok(Below(below.to_owned())), "{path}");
        }
        for out in ["..", "/a/../b", "a/..", "a\0b", "a\nb", &"a/".repeat(17)] {
            assert!(matches!(Below::parse(out), Err(Refusal::Rule(_))), "{out}");
        }
    }

    #[test]
    fn only_files_in_staging_are_under_way() {
        let below = |path| Below::parse(path).expect("below");
        for staging in [".staging-sftp/x", "web1/.staging-sftp/x"] {
            assert!(below(staging).is_staging() && !below(staging).is_final(), "{staging}");
        }
        for last in ["config", "web1/data/j/0"] {
            assert!(!below(last).is_staging() && below(last).is_final(), "{last}");
        }
        for neither in ["", ".staging-sftp", ".staging-sftp/.x", ".staging-sftp/a/x", ".ssh/authorized_keys", "a/.b/c"]
        {
            assert!(!below(neither).is_staging() && !below(neither).is_final(), "{neither}");
        }
        for folder in ["web1", "web1/data", ".staging-sftp", "web1/.staging-sftp"] {
            assert!(below(folder).may_be_folder(), "{folder}");
        }
        for folder in ["", ".ssh", "web1/.ssh", ".staging-sftp/x", ".staging-sftp/.staging-sftp"] {
            assert!(!below(folder).may_be_folder(), "{folder}");
        }
    }
}
