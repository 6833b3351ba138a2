//! Removes entries that are in the way or not in the version, and scratch folders, without ever
//! leaving the given place.
//!
//! Directories are descended by descriptors only, links are removed and not followed, and mounted
//! file systems are left alone. Depth is bounded by disk, not by descriptors: ancestors beyond a
//! few are closed and opened again through `..`. It is checked that this finds the very same
//! directory, so moved directories cannot divert the removal.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::Inner;
use super::error::TargetError;
use super::folders::Folder;
use super::notes::NoteKind;
use super::policy::{FullDirectories, KeptReason};
use crate::stat::{Follow, InodeId, Stat};

/// Directories held open while descending.
const OPEN_LEVELS: usize = 16;

/// Times a directory is read again because something was put into it while it was being emptied.
const EMPTY_ATTEMPTS: u32 = 4;

/// Directories noted in one reading of their parent. Reading it again for each would cost its size
/// every time.
const BELOW_AT_ONCE: usize = 256;

impl Inner {
    /// Clears the place of `path`, where `found` is now. `Some`: it had to be kept. A dry run only
    /// looks, and not deeper than one level.
    pub(super) fn clear(
        &self,
        folder: &Folder,
        name: &[u8],
        path: &[u8],
        found: &Stat,
    ) -> Result<Option<KeptReason>, TargetError> {
        if !found.file_type.is_dir() {
            if self.options.dry_run {
                return Ok(None);
            }
            return match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(TargetError::step("replace", path)(errno)),
            };
        }
        if self.spared.touches(path) {
            return Ok(Some(KeptReason::Protected));
        }
        if self.options.dry_run {
            return self.would_keep(path);
        }
        if let Some(folders) = &self.folders {
            folders.forget(path);
        }
        match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(Errno::BUSY) => return Ok(Some(KeptReason::MountPoint)),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(TargetError::step("replace", path)(errno)),
        }
        if self.options.full_directories == FullDirectories::Keep {
            return Ok(Some(KeptReason::DirectoryNotEmpty));
        }
        match remove_tree(folder.as_fd(), name, Repositories::Stay) {
            Ok(()) => {
                self.notes.add(NoteKind::Replaced, path, || "a folder and everything in it".to_owned());
                Ok(None)
            }
            Err(Errno::BUSY | Errno::XDEV) => Ok(Some(KeptReason::MountPoint)),
            Err(errno) => Err(TargetError::step("remove the folder in the place of", path)(errno)),
        }
    }

    /// Why a directory in the place of `path` would stay.
    fn would_keep(&self, path: &[u8]) -> Result<Option<KeptReason>, TargetError> {
        let Some(found) = self.folder(path)? else { return Ok(None) };
        if self.begins_file_system(path, &found) {
            return Ok(Some(KeptReason::MountPoint));
        }
        let is_kept = self.options.full_directories == FullDirectories::Keep;
        if is_kept && !is_empty(&found).map_err(TargetError::step("list the folder", path))? {
            return Ok(Some(KeptReason::DirectoryNotEmpty));
        }
        Ok(None)
    }
}

/// Whether a directory has no entries.
fn is_empty(folder: &Folder) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder, c".", flags, Mode::empty())?;
    let mut buffer = vec![MaybeUninit::uninit(); 1 << 12];
    let mut entries = RawDir::new(&fd, &mut buffer);
    while let Some(entry) = entries.next() {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One level of a descent: an open directory whose entries are being removed.
#[derive(Debug)]
struct Level {
    /// `None`: closed for now, to be opened again from below.
    fd: Option<OwnedFd>,
    id: InodeId,
    /// The name in the level above, to remove it when it is empty.
    name: Vec<u8>,
    /// Directories in it that were found and are not removed yet.
    below: Vec<Vec<u8>>,
    attempts: u32,
}

/// Names that every repository has.
pub(super) const OF_REPOSITORIES: [&str; 3] = ["config", "keys", "versions"];

/// Whether a directory looks like a repository. Only those of the configuration are known by their
/// paths, and a restore from a copy must not remove the original.
pub(super) fn is_repository(folder: BorrowedFd<'_>) -> bool {
    OF_REPOSITORIES.iter().all(|name| Stat::at(folder, *name, Follow::No).is_ok())
}

/// Whether a folder that looks like a repository is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repositories {
    Stay,
    Go,
}

/// Removes a folder that this program made, with everything in it, as deep as it may be. Mounted
/// file systems stay, and so does the folder then. A link in the last component is not followed.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::open(above, flags, Mode::empty())?;
    Ok(remove_tree(above.as_fd(), name.as_bytes(), Repositories::Go)?)
}

/// Removes the directory `name` of `parent` with everything in it.
///
/// `XDEV`: another file system begins in it. `BUSY`: a file system is mounted in it, or a
/// repository is. `STALE`: another program moved directories meanwhile.
pub(super) fn remove_tree(parent: BorrowedFd<'_>, name: &[u8], repositories: Repositories) -> Result<(), Errno> {
    // Every kernel refuses this for a mount point, also where it cannot be told in another way.
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        result => return result,
    }
    let device = Stat::of(parent)?.id.device;
    let open = |parent: BorrowedFd<'_>, name: &[u8]| Level::open(parent, name, device, repositories);
    let mut levels = vec![open(parent, name)?];
    while let Some(level) = levels.last_mut() {
        let fd = level.fd.as_ref().ok_or(Errno::STALE)?;
        if level.below.is_empty() {
            level.below = empty_files(fd)?;
        }
        if let Some(subdirectory) = level.below.pop() {
            match open(fd.as_fd(), &subdirectory) {
                Ok(below) => levels.push(below),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
            if levels.len() > OPEN_LEVELS {
                let far = levels.len() - 1 - OPEN_LEVELS;
                levels[far].fd = None;
            }
            continue;
        }
        let Some(done) = levels.pop() else { break };
        let above = match levels.last_mut() {
            None => parent,
            Some(above) => {
                if above.fd.is_none() {
                    above.fd = Some(above.reopen(&done)?);
                }
                above.fd.as_ref().ok_or(Errno::STALE)?.as_fd()
            }
        };
        match rustix::fs::unlinkat(above, &*done.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if done.attempts < EMPTY_ATTEMPTS => {
                levels.push(Level { attempts: done.attempts + 1, ..done });
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl Level {
    fn open(parent: BorrowedFd<'_>, name: &[u8], device: u64, repositories: Repositories) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || open_on_same_mount(parent, name, flags);
        let fd = match open() {
            // An own directory without rights for its owner is in the way of a normal user.
            Err(Errno::ACCESS) => {
                make_accessible(parent, name)?;
                open()?
            }
            other => other?,
        };
        let stat = Stat::of(&fd)?;
        if stat.id.device != device {
            return Err(Errno::XDEV);
        }
        if repositories == Repositories::Stay && is_repository(fd.as_fd()) {
            return Err(Errno::BUSY);
        }
        if stat.mode & 0o700 != 0o700 && stat.uid == rustix::process::geteuid().as_raw() {
            // Without these its entries cannot be removed. For root they make no difference.
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o700))?;
        }
        Ok(Self { fd: Some(fd), id: stat.id, name: name.to_vec(), below: Vec::new(), attempts: 0 })
    }

    /// Opens this level again from the one below it.
    fn reopen(&self, below: &Level) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let from = below.fd.as_ref().ok_or(Errno::STALE)?;
        let fd = rustix::fs::openat(from, c"..", flags, Mode::empty())?;
        if Stat::of(&fd)?.id == self.id { Ok(fd) } else { Err(Errno::STALE) }
    }
}

/// Opens a directory, but not a mount point. A second mount of the same file system has the same
/// device number, and its content is elsewhere as well.
fn open_on_same_mount(parent: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve) {
        // Old kernels and strict sandboxes: the device number must do.
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => rustix::fs::openat(parent, name, flags, Mode::empty()),
        other => other,
    }
}

fn make_accessible(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    use super::subject::Subject;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    match Subject::Place(place.as_fd()).chmod(0o700) {
        Err(Errno::PERM) => Err(Errno::ACCESS),
        other => other,
    }
}

/// Removes what can be removed at once, and returns directories that must be emptied first. None:
/// there is nothing left.
fn empty_files(fd: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(0))?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(fd, &mut buffer);
    let mut below = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let is_directory = match entry.file_type() {
            FileType::Directory => true,
            FileType::Unknown => match Stat::at(fd, name, Follow::No) {
                Ok(stat) => stat.file_type.is_dir(),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            },
            _ => false,
        };
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(fd, name, flags) {
            // Its type changed since it was read: the next reading finds the new type.
            Ok(()) | Err(Errno::NOENT | Errno::ISDIR | Errno::NOTDIR) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if is_directory => {
                below.push(name.to_vec());
                if below.len() == BELOW_AT_ONCE {
                    break;
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(below)
}
