//! The way from a name to a descriptor: every name is resolved below the repository's folder, and
//! never through a link.
//!
//! The repository's folder is opened once; links on the way to it are the user's own. Below it
//! names are resolved by `larder_beneath`. So the owner of a repository's folder cannot make a pass
//! of another user enter another folder.
//!
//! Each request resolves its name from the repository's folder again, in one call. Folders are not
//! kept open between requests: a folder that was moved elsewhere meanwhile is not written to, and
//! nothing in it is deleted.
//!
//! | component                          | a link there                                                                |
//! |------------------------------------|-----------------------------------------------------------------------------|
//! | on the way to the repository       | is followed                                                                 |
//! | first-level folder (`data`, `meta`) | is followed once if link and target belong to root or the caller            |
//! | the same, and it leads to no folder | is told: it must not look like an empty folder                              |
//! | anything deeper, and every object  | is not followed: `ELOOP`, which is damage of that object                    |

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_beneath::Resolver;
use parking_lot::Mutex;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::in_its_place::InItsPlace;

/// How a folder is opened: so that it can be read and synced.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How an object is opened. Without `NONBLOCK` a named pipe in its place would wait for a writer.
const OBJECT: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The repository's folder.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    open: Mutex<Option<Arc<OwnedFd>>>,
    /// First-level folders that are links of root or of the caller, opened once.
    linked: Mutex<HashMap<String, Arc<OwnedFd>>>,
    resolver: Resolver,
}

impl Root {
    /// Opens nothing yet: the first create may have to make the folder.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), open: Mutex::default(), linked: Mutex::default(), resolver: Resolver::default() }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens an object for reading. Anything but a regular file of that name is an error about this
    /// object.
    pub(super) fn object(&self, name: &str) -> io::Result<(File, Stat)> {
        let file = self.open(name, OBJECT)?;
        let stat = rustix::fs::fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((File::from(file), stat)),
            other => Err(InItsPlace::new(other).into()),
        }
    }

    /// Opens a folder, empty for the repository's own.
    pub(super) fn folder(&self, name: &str) -> io::Result<OwnedFd> {
        self.open(name, FOLDER)
    }

    /// Whether a folder is a link that was followed.
    pub(super) fn is_linked(&self, name: &str) -> bool {
        self.linked.lock().contains_key(name)
    }

    fn open(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let root = self.own()?;
        match self.open_below(&root, name, flags) {
            // Another program has removed the repository and created it again.
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_removed(&*root)? => {
                *self.open.lock() = None;
                self.linked.lock().clear();
                self.open_below(&*self.own()?, name, flags)
            }
            opened => opened,
        }
    }

    /// The repository's own folder.
    fn own(&self) -> io::Result<Arc<OwnedFd>> {
        let mut open = self.open.lock();
        if let Some(root) = &*open {
            return Ok(root.clone());
        }
        let root = Arc::new(rustix::fs::open(&self.path, FOLDER, Mode::empty())?);
        *open = Some(root.clone());
        Ok(root)
    }

    fn open_below(&self, root: &OwnedFd, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        if name.is_empty() {
            return Ok(rustix::fs::openat(root, ".", flags, Mode::empty())?);
        }
        let (first, rest) = name.split_once('/').unwrap_or((name, "."));
        let is_folder = name.contains('/') || flags.contains(OFlags::DIRECTORY);
        let linked = self.linked.lock().get(first).cloned();
        match linked {
            Some(linked) if is_folder => Ok(self.resolve(&linked, rest, flags)?),
            _ => match self.resolve(root, name, flags) {
                Err(Errno::LOOP) if is_folder => {
                    let linked = self.follow(root, first)?;
                    Ok(self.resolve(&linked, rest, flags)?)
                }
                opened => Ok(opened?),
            },
        }
    }

    /// Opens the target of a first-level link, unless link or target belongs to another user.
    ///
    /// The link is held while it is examined, so that none can be put in its place meanwhile.
    fn follow(&self, root: &OwnedFd, first: &str) -> io::Result<Arc<OwnedFd>> {
        let link = rustix::fs::openat(root, first, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&link)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink || !is_trusted(&stat) {
            return Err(Errno::LOOP.into());
        }
        let target = rustix::fs::readlinkat(&link, "", Vec::new())?;
        let folder = match rustix::fs::openat(root, &*target, FOLDER, Mode::empty()) {
            // Perhaps a disk is not mounted. As an empty folder, it would look like lost objects.
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(InItsPlace::BROKEN_LINK.into()),
            opened => opened?,
        };
        if !is_trusted(&rustix::fs::fstat(&folder)?) {
            return Err(Errno::LOOP.into());
        }
        Ok(self.linked.lock().entry(first.to_owned()).or_insert(Arc::new(folder)).clone())
    }

    fn resolve(&self, base: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.resolver.open(base, path.as_bytes(), flags)
    }

    /// Resolves as kernels without `openat2` do.
    #[cfg(test)]
    pub(super) fn by_component(path: &Path) -> Self {
        Self { resolver: Resolver::by_component(), ..Self::new(path) }
    }
}

/// Opens a folder directly below `base`, never through a link.
pub(super) fn open_folder_in(base: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    larder_beneath::open_child(base, name.as_bytes(), FOLDER)
}

fn is_trusted(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether a folder has no name any more.
pub(super) fn is_removed(folder: impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fstat(folder)?.st_nlink == 0)
}

/// Splits a name into its folder (empty: the repository's own) and its last part.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}
