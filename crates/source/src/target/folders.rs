//! Open directories of the target, and the only way from a path to a descriptor.
//!
//! Every path is resolved below the root's descriptor without following a symlink
//! (`larder_beneath`). So no link can redirect a write to the outside: neither one in the target,
//! nor one of the version, nor one swapped in meanwhile.
//!
//! A small number of directories is kept open, because files come in the order of a walk. The next
//! file's parent is nearly always open, and its path costs one hash instead of a resolution.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_beneath::{Resolver, first_component};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

/// An open directory below the root (or the root).
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    /// Opened as a place only: without the right to read it, its descriptor serves as a base for
    /// paths but not for `fchmod`.
    pub(super) path_only: bool,
    /// New files get an access control list from this directory, which must go when their entry has
    /// none.
    pub(super) gives_acl: bool,
    pub(super) device: u64,
}

impl Folder {
    fn new(fd: OwnedFd, path_only: bool) -> Self {
        let acl = if path_only {
            Err(Errno::ACCESS)
        } else {
            rustix::fs::fgetxattr(&fd, c"system.posix_acl_default", &mut [0_u8; 0][..])
        };
        // Not able to tell counts as yes: the price is one more look at each new file.
        let gives_acl = !matches!(acl, Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS));
        let device = rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_dev);
        Self { fd, path_only, gives_acl, device }
    }
}

impl Folder {
    /// Whether a file system is mounted here. Kernels before 5.8 cannot tell, and give `false`.
    pub(super) fn is_mount_point(&self) -> bool {
        rustix::fs::statx(&self.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE)
            .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Splits a path into its directory (empty: the root) and its last component.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Whether missing directories on the way are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Fail,
    Create,
}

/// The open directories of one target.
#[derive(Debug)]
pub(super) struct Folders {
    root: Arc<Folder>,
    open: Mutex<Cache>,
    resolver: Resolver,
    /// The first open directory of each file system other than the root's, with its device.
    mounted: Mutex<Vec<(u64, Arc<Folder>)>>,
}

impl Folders {
    /// `limit`: directories kept open beside the root.
    pub(super) fn new(root: OwnedFd, limit: usize) -> Self {
        let root = Arc::new(Folder::new(root, false));
        Self { root, open: Mutex::new(Cache::new(limit)), resolver: Resolver::default(), mounted: Mutex::default() }
    }

    /// Waits until every file system that was reached has everything on disk. One call for each,
    /// for any number of writes. It costs the writing itself, and one commit of the journal instead
    /// of one a file.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        rustix::fs::syncfs(&*self.root)?;
        for (_, folder) in self.mounted.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            match folder.path_only {
                false => rustix::fs::syncfs(&**folder)?,
                // A descriptor that is only a place cannot ask for its file system.
                true => rustix::fs::sync(),
            }
        }
        Ok(())
    }

    fn note_file_system(&self, folder: &Arc<Folder>) {
        if folder.device == self.root.device {
            return;
        }
        let mut mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        if !mounted.iter().any(|(device, _)| *device == folder.device) {
            mounted.push((folder.device, folder.clone()));
        }
    }

    /// The directory at `path`, a valid path of a version or empty for the root.
    ///
    /// `LOOP` or `NOTDIR`: something on the way, or at its end, is not a directory.
    pub(super) fn get(&self, path: &[u8], missing: Missing) -> Result<Arc<Folder>, Errno> {
        if path.is_empty() {
            return Ok(self.root.clone());
        }
        let (mut at, mut rest) = {
            let mut cache = self.lock();
            if let Some(folder) = cache.get(path) {
                return Ok(folder);
            }
            self.nearest(&mut cache, path)
        };
        if missing == Missing::Fail {
            at = Arc::new(open_for_reading_or_as_place(|flags| self.resolver.open(&*at, rest, flags))?);
            rest = b"";
        }
        while !rest.is_empty() {
            let (name, after) = first_component(rest);
            let folder = match open_child(&at, name) {
                Err(Errno::NOENT) => match rustix::fs::mkdirat(&*at, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => open_child(&at, name)?,
                    Err(errno) => return Err(errno),
                },
                other => other?,
            };
            (at, rest) = (Arc::new(folder), after);
        }
        self.note_file_system(&at);
        self.lock().insert(path, at.clone());
        Ok(at)
    }

    /// Forgets `path` and everything below, because another directory may stand there from now on.
    pub(super) fn forget(&self, path: &[u8]) {
        self.lock().forget(path);
    }

    /// The open directory nearest above `path`, and the rest of the path from there.
    fn nearest<'p>(&self, cache: &mut Cache, path: &'p [u8]) -> (Arc<Folder>, &'p [u8]) {
        let mut end = path.len();
        while let Some(slash) = path[..end].iter().rposition(|byte| *byte == b'/') {
            if let Some(folder) = cache.get(&path[..slash]) {
                return (folder, &path[slash + 1..]);
            }
            end = slash;
        }
        (self.root.clone(), path)
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the directory `name` directly below `base`, never through a link.
pub(super) fn open_child(base: &Folder, name: &[u8]) -> Result<Folder, Errno> {
    open_for_reading_or_as_place(|flags| larder_beneath::open_child(base, name, flags))
}

fn open_for_reading_or_as_place(open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<Folder, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    match open(flags | OFlags::RDONLY) {
        Ok(fd) => Ok(Folder::new(fd, false)),
        Err(Errno::ACCESS) => Ok(Folder::new(open(flags | OFlags::PATH)?, true)),
        Err(errno) => Err(errno),
    }
}

/// Directories by path with a bound; the one thrown out is one that was not asked for lately
/// (second chance).
#[derive(Debug)]
struct Cache {
    limit: usize,
    places: HashMap<Arc<[u8]>, usize>,
    slots: Vec<Slot>,
    hand: usize,
}

#[derive(Debug)]
struct Slot {
    path: Arc<[u8]>,
    folder: Arc<Folder>,
    used: bool,
}

impl Cache {
    fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), places: HashMap::new(), slots: Vec::new(), hand: 0 }
    }

    fn get(&mut self, path: &[u8]) -> Option<Arc<Folder>> {
        let slot = &mut self.slots[*self.places.get(path)?];
        slot.used = true;
        Some(slot.folder.clone())
    }

    fn insert(&mut self, path: &[u8], folder: Arc<Folder>) {
        if let Some(place) = self.places.get(path) {
            // Another thread was first. The newer descriptor wins, because its directory stood
            // there last.
            self.slots[*place].folder = folder;
            return;
        }
        let path: Arc<[u8]> = path.into();
        let slot = Slot { path: path.clone(), folder, used: false };
        if self.slots.len() < self.limit {
            self.places.insert(path, self.slots.len());
            self.slots.push(slot);
            return;
        }
        while std::mem::take(&mut self.slots[self.hand].used) {
            self.hand = (self.hand + 1) % self.slots.len();
        }
        self.places.remove(&self.slots[self.hand].path);
        self.places.insert(path, self.hand);
        self.slots[self.hand] = slot;
        self.hand = (self.hand + 1) % self.slots.len();
    }

    fn forget(&mut self, path: &[u8]) {
        let below = |other: &[u8]| {
            other.strip_prefix(path).is_some_and(|rest| path.is_empty() || rest.is_empty() || rest[0] == b'/')
        };
        self.slots.retain(|slot| !below(&slot.path));
        self.places.clear();
        self.places.extend(self.slots.iter().enumerate().map(|(place, slot)| (slot.path.clone(), place)));
        self.hand = 0;
    }
}

#[cfg(test)]
mod tests;
