//! The folder into which a drill restores: private, large enough, and gone afterwards.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use larder_format::ids::JobId;

use crate::error::{DrillError, NoRoom};

/// Space that one item takes besides its contents.
const ITEM_BYTES: u64 = 4096;

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a folder that only this user may enter, below `above`. `items` and `bytes` are what
    /// will be restored into it.
    pub(crate) fn new(above: &Path, of: JobId, process: u32, items: u64, bytes: u64) -> Result<Self, DrillError> {
        let failed = |source| DrillError::Scratch { folder: above.to_owned(), source };
        std::fs::create_dir_all(above).map_err(failed)?;
        let needed = bytes.saturating_add(items.saturating_mul(ITEM_BYTES));
        let free = free_space(above).map_err(failed)?;
        if free < needed {
            return Err(NoRoom { folder: above.to_owned(), free, needed }.into());
        }
        let path = above.join(format!("larder-drill-{}-{process}", of.short()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder.
    pub(crate) fn remove(self) -> Result<(), DrillError> {
        let path = self.path.clone();
        let removed = remove_all(&path);
        std::mem::forget(self);
        removed.map_err(|source| DrillError::Scratch { folder: path, source })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The drill failed already, and its error is reported.
        drop(remove_all(&self.path));
    }
}

fn free_space(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Restored folders may forbid their owner to delete in them.
fn remove_all(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_folders(path)?;
            std::fs::remove_dir_all(path)
        }
        result => result,
    }
}

fn open_folders(path: &Path) -> io::Result<()> {
    let mut waiting = vec![path.to_owned()];
    while let Some(folder) = waiting.pop() {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            // Of the entry itself: a link is not followed.
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_room_is_refused_and_a_used_one_is_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let make = |bytes| Scratch::new(&dir.path().join("new"), JobId([1; 16]), 7, 1, bytes);
        assert!(matches!(make(u64::MAX), Err(DrillError::NoRoom(NoRoom { needed: u64::MAX, .. }))));
        let scratch = make(0).expect("there is room");
        let path = scratch.path().to_owned();
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o700);
        std::fs::create_dir_all(path.join("a/b")).expect("made");
        std::fs::set_permissions(path.join("a"), std::fs::Permissions::from_mode(0o500)).expect("set");
        scratch.remove().expect("removed");
        assert!(!path.exists());
        drop(make(0).expect("there is room"));
        assert!(!path.exists());
    }
}
