//! Removes entries that the version does not have from restored directories.

use std::mem::MaybeUninit;
use std::sync::Arc;

use larder_format::entry::is_valid_path;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::error::{TargetCause, TargetError};
use super::folders::{Folder, Missing, split};
use super::metadata;
use super::notes::NoteKind;
use super::remove::{OF_REPOSITORIES, Repositories, is_repository, remove_tree};
use super::{Inner, Target};
use crate::stat::{Follow, Stat};

impl Target {
    /// Whether nothing is in the folder, as far as can be seen.
    pub fn is_empty(&self) -> bool {
        let Some(folders) = &self.inner.folders else { return true };
        let root = folders.get(b"", Missing::Fail);
        root.is_ok_and(|root| extra_names::<&[u8]>(&root, &[]).is_ok_and(|names| names.is_empty()))
    }

    /// Removes everything from a directory but the names in `keep` (sorted by bytes), and reports
    /// the path of each.
    ///
    /// `directory`: a path of the version, or empty for the root. A removed directory counts as one
    /// path, with all its contents. A dry run only reports. An entry that may not be removed is
    /// noted; links are removed, never followed; mounted file systems, repositories and protected
    /// folders stay. So does everything in a file system of which the version has nothing: a backup
    /// that stays on one file system has its place as an empty directory. Does nothing when no such
    /// directory is in the target.
    pub fn delete_extra<N: AsRef<[u8]>>(
        &self,
        directory: &[u8],
        keep: &[N],
        report: impl FnMut(&[u8]),
    ) -> Result<u64, TargetError> {
        self.delete_extra_of(directory, keep, |_| true, report)
    }

    /// The same only for names that `is_selected` accepts.
    pub fn delete_extra_of<N: AsRef<[u8]>>(
        &self,
        directory: &[u8],
        keep: &[N],
        is_selected: impl Fn(&[u8]) -> bool,
        mut report: impl FnMut(&[u8]),
    ) -> Result<u64, TargetError> {
        let inner = &*self.inner;
        let Some((folder, extra)) = inner.extra(directory, keep)? else { return Ok(0) };
        if keep.is_empty() && !extra.is_empty() && inner.begins_file_system(directory, &folder) {
            inner.spare(directory, "another file system is mounted there");
            return Ok(0);
        }
        // The version may have a repository as any other folder. Then it has these names.
        let is_of_version = OF_REPOSITORIES.iter().all(|name| has(keep, name.as_bytes()));
        if !extra.is_empty() && !is_of_version && is_repository(folder.as_fd()) {
            inner.spare(directory, "it is a repository");
            return Ok(0);
        }
        let mut deleted = 0;
        for name in extra.into_iter().filter(|name| is_selected(name)) {
            let path = match directory {
                b"" => name.clone(),
                _ => [directory, b"/", &name].concat(),
            };
            if inner.delete(&folder, &name, &path)? {
                report(&path);
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    /// Whether a file system begins at a directory of the target, and it is not the one of which
    /// the version has that directory: `inode` is the number that the version has. The root of the
    /// target never counts.
    pub fn is_mounted_over(&self, directory: &[u8], inode: u64) -> Result<bool, TargetError> {
        let Some(folder) = self.inner.folder(directory)? else { return Ok(false) };
        if !self.inner.begins_file_system(directory, &folder) {
            return Ok(false);
        }
        let found = Stat::of(&*folder).map_err(TargetError::step("look at", directory))?;
        Ok(found.id.inode != inode)
    }

    /// Notes that nothing is deleted in a directory, if it has names that are not in `keep` (sorted
    /// by bytes): the version does not know the file system there.
    pub fn spare_extra<N: AsRef<[u8]>>(&self, directory: &[u8], keep: &[N]) -> Result<(), TargetError> {
        if let Some((_, extra)) = self.inner.extra(directory, keep)?
            && !extra.is_empty()
        {
            self.inner.spare(directory, "another file system is mounted there than when it was backed up");
        }
        Ok(())
    }
}

impl Inner {
    /// An existing directory. `None`: there is no such one.
    pub(super) fn folder(&self, directory: &[u8]) -> Result<Option<Arc<Folder>>, TargetError> {
        if !directory.is_empty() && !is_valid_path(directory) {
            let problem = "its path could leave the target";
            return Err(TargetError::BadEntry { path: directory.to_vec(), problem });
        }
        let Some(folders) = &self.folders else { return Ok(None) };
        match folders.get(directory, Missing::Fail) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(TargetError::step("open the folder", directory)(errno)),
        }
    }

    /// A directory in which things may be deleted, and the names in it that are not in `keep`.
    fn extra<N: AsRef<[u8]>>(&self, directory: &[u8], keep: &[N]) -> Result<Option<Extra>, TargetError> {
        let Some(folder) = self.folder(directory)?.filter(|_| !self.spared.contains(directory)) else {
            return Ok(None);
        };
        let names = extra_names(&folder, keep).map_err(TargetError::step("list the folder", directory))?;
        Ok(Some((folder, names)))
    }

    /// Whether a file system begins at a directory below the root. Btrfs has such ones that are no
    /// mounts, and a backup of one file system leaves them out too.
    pub(super) fn begins_file_system(&self, directory: &[u8], folder: &Folder) -> bool {
        if directory.is_empty() {
            return false;
        }
        let is_other = |above: Option<Arc<Folder>>| above.is_none_or(|above| above.device != folder.device);
        folder.is_mount_point() || self.folder(split(directory).0).map_or(true, is_other)
    }

    fn spare(&self, directory: &[u8], why: &str) {
        self.notes.add(NoteKind::Spared, directory, || why.to_owned());
    }

    /// Whether it was removed, or would have been.
    fn delete(&self, folder: &Folder, name: &[u8], path: &[u8]) -> Result<bool, TargetError> {
        if self.spared.touches(path) {
            self.spare(path, "the repository, its cache or its state is in it");
            return Ok(false);
        }
        if self.options.dry_run {
            let is_mounted = self.folder(path)?.is_some_and(|found| self.begins_file_system(path, &found));
            if is_mounted {
                self.notes.add(NoteKind::NotDeleted, path, || MOUNTED.to_owned());
            }
            return Ok(!is_mounted);
        }
        let removed = match Stat::at(folder, name, Follow::No) {
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => Err(errno),
            Ok(stat) if stat.file_type.is_dir() => {
                if let Some(folders) = &self.folders {
                    folders.forget(path);
                }
                remove_tree(folder.as_fd(), name, Repositories::Stay)
            }
            Ok(_) => rustix::fs::unlinkat(folder, name, AtFlags::empty()),
        };
        match removed {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => {
                let error = TargetError::step("delete", path)(errno);
                if error.cause() == TargetCause::Unusable {
                    return Err(error);
                }
                self.notes.add(NoteKind::NotDeleted, path, || match errno {
                    Errno::XDEV | Errno::BUSY => MOUNTED.to_owned(),
                    _ => metadata::reason(Err(errno)),
                });
                Ok(false)
            }
        }
    }
}

/// Why a folder stays.
const MOUNTED: &str = "a mounted file system or a repository is in it";

/// An open directory, and names in it.
type Extra = (Arc<Folder>, Vec<Vec<u8>>);

fn has<N: AsRef<[u8]>>(keep: &[N], name: &[u8]) -> bool {
    keep.binary_search_by(|kept| kept.as_ref().cmp(name)).is_ok()
}

/// Names in a directory that are not to be kept.
fn extra_names<N: AsRef<[u8]>>(folder: &Folder, keep: &[N]) -> Result<Vec<Vec<u8>>, Errno> {
    // A descriptor of its own: the position in the list belongs to the descriptor, and other
    // threads share the folder's.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder, c".", flags, Mode::empty())?;
    let mut buffer = vec![MaybeUninit::uninit(); 1 << 16];
    let mut entries = RawDir::new(&fd, &mut buffer);
    let mut extra = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || has(keep, name) {
            continue;
        }
        // A socket that is in use says nothing to a backup, so its absence in the version means
        // nothing either.
        if entry.file_type() != FileType::Socket {
            extra.push(name.to_vec());
        }
    }
    extra.sort_unstable();
    Ok(extra)
}
