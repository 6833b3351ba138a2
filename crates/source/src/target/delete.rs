//! Removes entries that the version does not have from restored directories.

use std::mem::MaybeUninit;

use larder_format::entry::is_valid_path;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::error::{TargetCause, TargetError};
use super::folders::{Folder, Missing};
use super::metadata;
use super::notes::NoteKind;
use super::remove::remove_tree;
use super::{Inner, Target};
use crate::stat::{Follow, Stat};

impl Target {
    /// Removes everything from a directory but the names in `keep` (sorted by bytes), and reports
    /// the path of each.
    ///
    /// `directory`: a path of the version, or empty for the root. A removed directory counts as one
    /// path, with all its contents. A dry run only reports. An entry that may not be removed is
    /// noted; links are removed, never followed; mounted file systems and protected folders stay.
    /// So does everything in a mounted file system of which the version has nothing: a backup that
    /// stays on one file system has its place as an empty directory. Does nothing when no such
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
        if !directory.is_empty() && !is_valid_path(directory) {
            let problem = "its path could leave the target";
            return Err(TargetError::BadEntry { path: directory.to_vec(), problem });
        }
        let Some(folders) = &inner.folders else { return Ok(0) };
        if inner.spared.contains(directory) {
            return Ok(0);
        }
        let folder = match folders.get(directory, Missing::Fail) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(0),
            Err(errno) => return Err(TargetError::step("open the folder", directory)(errno)),
        };
        let extra = extra_names(&folder, keep).map_err(TargetError::step("list the folder", directory))?;
        if keep.is_empty() && !extra.is_empty() && !directory.is_empty() && folder.is_mount_point() {
            inner.notes.add(NoteKind::Spared, directory, || "another file system is mounted there".to_owned());
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
}

impl Inner {
    /// Whether it was removed, or would have been.
    fn delete(&self, folder: &Folder, name: &[u8], path: &[u8]) -> Result<bool, TargetError> {
        if self.spared.touches(path) {
            self.notes.add(NoteKind::Spared, path, || "the repository, its cache or its state is in it".to_owned());
            return Ok(false);
        }
        if self.options.dry_run {
            return Ok(true);
        }
        let removed = match Stat::at(folder, name, Follow::No) {
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => Err(errno),
            Ok(stat) if stat.file_type.is_dir() => {
                if let Some(folders) = &self.folders {
                    folders.forget(path);
                }
                remove_tree(folder, name, stat.id.device)
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
                    Errno::XDEV | Errno::BUSY => "a mounted file system or a repository is in it".to_owned(),
                    _ => metadata::reason(Err(errno)),
                });
                Ok(false)
            }
        }
    }
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
        if matches!(name, b"." | b"..") || keep.binary_search_by(|kept| kept.as_ref().cmp(name)).is_ok() {
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
