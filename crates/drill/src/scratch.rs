//! The folder into which a drill restores: private, large enough, and gone afterwards.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use larder_format::ids::JobId;
use larder_source::target::remove_folder;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::error::{DrillError, NoRoom};

/// Space that one item takes besides its contents.
const ITEM_BYTES: u64 = 4096;
/// Names of scratch folders begin with this.
const PREFIX: &str = "larder-drill-";
/// Names that are tried.
const ATTEMPTS: usize = 16;

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// Locked while the drill runs. A folder without a lock is of a drill that was killed.
    _lock: File,
}

impl Scratch {
    /// Makes a folder that only this user may enter, below `above`, and removes those of drills
    /// that were killed. `items` and `bytes` are what will be restored into it; `random` gives
    /// names.
    pub(crate) fn new(
        above: &Path,
        of: JobId,
        random: impl Fn() -> Result<[u8; 4], DrillError>,
        items: u64,
        bytes: u64,
    ) -> Result<Self, DrillError> {
        let failed = |source| DrillError::Scratch { folder: above.to_owned(), source };
        std::fs::create_dir_all(above).map_err(failed)?;
        remove_left_ones(above);
        if let Some(no_room) = lacks_room(above, items, bytes).map_err(failed)? {
            return Err(no_room.into());
        }
        for _ in 0..ATTEMPTS {
            let path = above.join(format!("{PREFIX}{}-{:08x}", of.short(), u32::from_le_bytes(random()?)));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(failed)?,
            }
            if let Some(lock) = lock(&path).map_err(failed)? {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder.
    pub(crate) fn remove(self) -> Result<(), DrillError> {
        match remove_folder(&self.path) {
            Ok(()) => Ok(()),
            Err(source) => Err(DrillError::Scratch { folder: self.path.clone(), source }),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Usually it is gone. Otherwise the drill failed already, and its error is reported.
        drop(remove_folder(&self.path));
    }
}

/// Locks a folder. `None`: another program has the lock, or removed the folder meanwhile. File
/// systems without locks give a file that is not locked.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(folder);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => return Ok(None),
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::BADF) | Ok(()) => {}
        Err(errno) => return Err(errno.into()),
    }
    let opened = file.metadata()?;
    let is_there =
        std::fs::symlink_metadata(folder).is_ok_and(|found| (found.dev(), found.ino()) == (opened.dev(), opened.ino()));
    Ok(is_there.then_some(file))
}

/// Removes folders of drills that were killed: those of this user that nobody has locked. Nothing
/// depends on it, so errors do not count.
fn remove_left_ones(above: &Path) {
    let Ok(entries) = std::fs::read_dir(above) else { return };
    let own = rustix::process::geteuid().as_raw();
    for entry in entries.flatten() {
        let is_scratch = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let is_own = || entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own);
        if is_scratch && is_own() && is_left(&entry.path()) {
            drop(remove_folder(&entry.path()));
        }
    }
}

/// Whether a lock can be had, so that nobody else has it. It is held by no one where the file
/// system has no locks, so such folders stay.
fn is_left(folder: &Path) -> bool {
    let Ok(file) = File::open(folder) else { return false };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// What `above` lacks for a sample to be restored into it. A folder that is not there yet has the
/// space of the next one above.
pub(crate) fn lacks_room(above: &Path, items: u64, bytes: u64) -> io::Result<Option<NoRoom>> {
    let needed = bytes.saturating_add(items.saturating_mul(ITEM_BYTES));
    let there = std::path::absolute(above)?;
    let there = there.ancestors().find(|folder| folder.is_dir()).unwrap_or(above);
    let free = free_space(there)?;
    Ok((free < needed).then(|| NoRoom { folder: above.to_owned(), free, needed }))
}

fn free_space(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::os::unix::fs::PermissionsExt;

    fn scratch(above: &Path, bytes: u64, numbers: &Cell<u8>) -> Result<Scratch, DrillError> {
        let random = || Ok([numbers.replace(numbers.get() + 1), 0, 0, 0]);
        Scratch::new(above, JobId([1; 16]), random, 1, bytes)
    }

    #[test]
    fn a_folder_without_room_is_refused_and_a_used_one_is_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let make = |bytes| scratch(&dir.path().join("new"), bytes, &Cell::new(0));
        assert!(matches!(make(u64::MAX), Err(DrillError::NoRoom(NoRoom { needed: u64::MAX, .. }))));
        let scratch = make(0).expect("there is room");
        let path = scratch.path().to_owned();
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o700);
        std::fs::create_dir_all(path.join("a/b")).expect("made");
        for name in ["config", "keys", "versions"] {
            std::fs::write(path.join("a/b").join(name), "a repository in a snapshot").expect("written");
        }
        std::fs::set_permissions(path.join("a"), std::fs::Permissions::from_mode(0o500)).expect("set");
        scratch.remove().expect("removed");
        assert!(!path.exists());
        drop(make(0).expect("there is room"));
        assert!(!path.exists());
    }

    /// Process numbers are the same again in each container, so names are random.
    #[test]
    fn folders_of_killed_drills_go_and_those_of_others_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        let above = dir.path();
        let killed = above.join("larder-drill-01010101-00000000");
        std::fs::create_dir_all(killed.join("plain/text")).expect("made");
        std::fs::create_dir(above.join("of-the-user")).expect("made");
        let first = scratch(above, 0, &Cell::new(5)).expect("made");
        assert!(!killed.exists() && above.join("of-the-user").exists());
        let second = scratch(above, 0, &Cell::new(5)).expect("another name");
        assert!(first.path().exists() && second.path().exists() && first.path() != second.path());
    }

    /// One descriptor a level would not do.
    #[test]
    fn a_deep_folder_is_removed_with_few_descriptors() {
        let dir = tempfile::tempdir().expect("a folder");
        let scratch = scratch(dir.path(), 0, &Cell::new(0)).expect("made");
        let path = scratch.path().to_owned();
        // Longer than a path may be.
        let mut at: rustix::fd::OwnedFd = File::open(&path).expect("opened").into();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        for _ in 0..1500 {
            rustix::fs::mkdirat(&at, "deep", 0o700.into()).expect("made");
            at = rustix::fs::openat(&at, "deep", flags, rustix::fs::Mode::empty()).expect("opened");
        }
        scratch.remove().expect("removed");
        assert!(!path.exists());
    }
}
