//! Creating and deleting the files of a local repository, so that acknowledged changes survive
//! power loss.
//!
//! | step of a create         | a crash after it leaves                                                      |
//! |--------------------------|------------------------------------------------------------------------------|
//! | folders made             | empty folders, or nothing: their names are not on disk yet                   |
//! | unnamed file written     | nothing more: a file without a name goes with its process                    |
//! | file synced              | nothing more                                                                 |
//! | linked to its name       | the complete object, or nothing: the name is not on disk yet                 |
//! | folder synced            | the complete object, or nothing: a new folder's name may not be on disk yet  |
//! | those above synced       | the complete object                                                          |
//!
//! Where the file system has no unnamed files (NFS, some FUSE), [`super::staging`] gives the file a
//! name out of sight.

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_format::names;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::blocks::Buffers;
use super::root::{Root, is_removed, split};
use super::staging::{self, Staging};
use super::write::write_synced;
use crate::reasons::NoFolder;

/// How often a folder may vanish under a create before that fails. Deleting the last object of a
/// folder removes it.
const FOLDER_RETRIES: u64 = 200;

/// How often the file system may refuse to make a folder in one that exists before that fails.
/// The waiting between the attempts comes to about a second, because some network mounts show a
/// folder for a moment after its removal.
const REFUSALS_MAX: u32 = 45;

/// Folders kept open at most.
const DURABLE_MAX: usize = 64;

/// The writing half of a local folder.
#[derive(Debug)]
pub(super) struct Creator {
    root: Arc<Root>,
    /// Folders that are sure to be found after a crash, because this process has synced the way to
    /// them, by device and inode. They are kept open: an inode that is in use is not given to
    /// another folder.
    durable: Mutex<HashMap<(u64, u64), OwnedFd>>,
    /// Set once the file system has said that it has no unnamed files.
    needs_names: AtomicBool,
    staging: Staging,
    buffers: Arc<Buffers>,
}

impl Creator {
    pub(super) fn new(root: Arc<Root>, buffers: Arc<Buffers>) -> Self {
        let staging = Staging::default();
        Self { root, durable: Mutex::default(), needs_names: AtomicBool::new(false), staging, buffers }
    }

    /// Creates the object, durably, unless its name is taken.
    pub(super) fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (parent, file_name) = split(name);
        // Only to save the writing of a file that cannot be linked; the link decides.
        let folder = self.root.folder(parent);
        if folder.is_ok_and(|folder| rustix::fs::statat(folder, file_name, AtFlags::SYMLINK_NOFOLLOW).is_ok()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut refusals = 0;
        let mut is_final = |error: &io::Error| {
            refusals += u32::from(error.get_ref().is_some_and(|inner| inner.is::<NoFolder>()));
            refusals == REFUSALS_MAX
        };
        for retry in 0..FOLDER_RETRIES {
            // A folder can still be opened until its removal has ended, which may take a journal's
            // commit. Trying again at once only spins.
            std::thread::sleep(Duration::from_millis(retry.min(50)));
            let mut unsynced = Vec::new();
            let folder = match self.open_way(parent, &mut unsynced) {
                Err(error) if is_final(&error) => return Err(io::Error::other(error)),
                // Removed between two steps of making it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                folder => folder?,
            };
            match self.create_in(&folder, Path::new(file_name), bytes) {
                Ok(()) => {
                    rustix::fs::fsync(&folder)?;
                    return self.sync_way(unsynced);
                }
                Err(error) if is_final(&error) => return Err(io::Error::other(error)),
                // The folder was removed after it was opened, and nothing can be created in it any
                // more. How that shows differs: ENOENT from most calls, EPERM from ext4's unnamed
                // files.
                Err(error) if error.kind() != io::ErrorKind::NotFound && !is_removed(&folder)? => return Err(error),
                Err(_) => {}
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "the folder is removed again and again"))
    }

    fn create_in(&self, folder: &OwnedFd, file_name: &Path, bytes: &[u8]) -> io::Result<()> {
        if !self.needs_names.load(Ordering::Relaxed) {
            if let Some(done) = create_unnamed(&self.buffers, folder, file_name, bytes)? {
                return Ok(done);
            }
            self.needs_names.store(true, Ordering::Relaxed);
        }
        let staging = self.folder(staging::FOLDER)?;
        self.staging.create(&self.buffers, &staging, folder, file_name, bytes)
    }

    /// Deletes the object, durably. A missing one counts as deleted. A link is removed itself,
    /// never its target.
    pub(super) fn delete(&self, name: &str) -> io::Result<()> {
        let (parent, file_name) = split(name);
        let folder = match self.root.folder(parent) {
            Ok(folder) => folder,
            // A file where a folder would have to be: there is no object of that name.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match rustix::fs::unlinkat(&folder, file_name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            // A folder in an object's place: an empty one holds nothing.
            Err(Errno::ISDIR) => match rustix::fs::unlinkat(&folder, file_name, AtFlags::REMOVEDIR) {
                Err(errno) if names::is_object(name) => return Err(errno.into()),
                _ => {}
            },
            Err(errno) => return Err(errno.into()),
        }
        // Also when the object was gone already: the process that deleted it may have ended before
        // this.
        match rustix::fs::fsync(&folder) {
            Err(errno) if !is_removed(&folder)? => return Err(errno.into()),
            _ => drop(folder),
        }
        self.remove_empty(parent);
        Ok(())
    }

    /// Removes a folder that has become empty, and those above it. A create that has just opened it
    /// starts over.
    fn remove_empty(&self, folder: &str) {
        let mut folder = folder;
        while !folder.is_empty() {
            let (parent, name) = split(folder);
            let Ok(above) = self.root.folder(parent) else { return };
            if rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR).is_err() {
                return;
            }
            self.durable.lock().retain(|_, folder| is_removed(folder).is_ok_and(|removed| !removed));
            folder = parent;
        }
    }

    /// Opens a folder, making it where necessary, and sees to it that it will be found after a
    /// crash.
    fn folder(&self, name: &str) -> io::Result<OwnedFd> {
        let mut unsynced = Vec::new();
        let folder = self.open_way(name, &mut unsynced)?;
        self.sync_way(unsynced)?;
        Ok(folder)
    }

    /// Opens a folder of the repository (empty: its own), making it where necessary. Which folders
    /// on the way to it may be lost by a crash is added to `unsynced`, from the outermost.
    fn open_way(&self, name: &str, unsynced: &mut Vec<Unsynced>) -> io::Result<OwnedFd> {
        let (folder, above) = match self.root.folder(name) {
            Ok(folder) if self.durable.lock().contains_key(&identity(&folder)?) => return Ok(folder),
            // The process that made the repository's own folder has synced the one above it; a
            // link's target is not ours.
            Ok(folder) if name.is_empty() || self.root.is_linked(name) => (folder, None),
            Ok(folder) => (folder, Some(self.open_way(split(name).0, unsynced)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && name.is_empty() => {
                let above = self.open_way_outside(parent_of(self.root.path()), unsynced)?;
                // The repository's own folder is for its owner; those below follow the umask, so an
                // administrator who opens the outermost opens all.
                let made = make_folder(self.root.path(), 0o700).and_then(|()| self.root.folder(name));
                (made.map_err(|error| refused(error, &above, self.root.path()))?, Some(above))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (parent, last) = split(name);
                let above = self.open_way(parent, unsynced)?;
                match rustix::fs::mkdirat(&above, last, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => (self.root.folder(name)?, Some(above)),
                    Err(errno) => return Err(refused(errno.into(), &above, &self.root.path().join(name))),
                }
            }
            Err(error) => return Err(error),
        };
        unsynced.push(Unsynced { folder: folder.try_clone()?, above });
        Ok(folder)
    }

    /// The same for a folder above the repository's own, where links are followed.
    fn open_way_outside(&self, path: &Path, unsynced: &mut Vec<Unsynced>) -> io::Result<OwnedFd> {
        match open_outside(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = self.open_way_outside(parent_of(path), unsynced)?;
                let made = make_folder(path, 0o777).and_then(|()| open_outside(path));
                let folder = made.map_err(|error| refused(error, &above, path))?;
                unsynced.push(Unsynced { folder: folder.try_clone()?, above: Some(above) });
                Ok(folder)
            }
            folder => folder,
        }
    }

    /// Syncs the way to a folder. Done last, after the creates there: a journal then has all of it
    /// to write at once.
    fn sync_way(&self, unsynced: Vec<Unsynced>) -> io::Result<()> {
        for Unsynced { folder, above } in unsynced {
            if let Some(above) = above {
                rustix::fs::fsync(above)?;
            }
            let mut durable = self.durable.lock();
            if durable.len() >= DURABLE_MAX {
                // Forgetting costs a few syncs; a job works in a handful of folders.
                durable.clear();
            }
            durable.insert(identity(&folder)?, folder);
        }
        Ok(())
    }
}

/// A folder that a crash may lose until the one above is synced.
#[derive(Debug)]
struct Unsynced {
    folder: OwnedFd,
    above: Option<OwnedFd>,
}

/// Writes an unnamed file and links it. `None` where the file system cannot.
fn create_unnamed(buffers: &Buffers, folder: &OwnedFd, file_name: &Path, bytes: &[u8]) -> io::Result<Option<()>> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, ".", flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => File::from(file),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    write_synced(buffers, &file, bytes)?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::linkat(CWD, &*unnamed, folder, file_name, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(Some(())),
        // Either the folder is gone, or there is no /proc here.
        Err(Errno::NOENT) if !is_removed(folder)? => Ok(None),
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::INVAL | Errno::XDEV) if !is_removed(folder)? => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn open_outside(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes a folder unless another process was first.
fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Tells the removal of the folder above, which passes, from a place where there can be no folder:
/// in /proc, or behind a broken link. All are `ENOENT`.
fn refused(error: io::Error, above: &OwnedFd, path: &Path) -> io::Error {
    match is_removed(above) {
        Ok(false) if error.kind() == io::ErrorKind::NotFound => {
            io::Error::new(io::ErrorKind::NotFound, NoFolder { path: path.to_owned(), why: error })
        }
        _ => error,
    }
}

fn identity(file: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The folder above; the root of the file system is above itself.
fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A creator that believes the file system to have no unnamed files.
    fn with_names() -> (TempDir, Creator) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let creator = Creator::new(Arc::new(Root::new(&folder.path().join("repo"))), Arc::default());
        creator.needs_names.store(true, Ordering::Relaxed);
        (folder, creator)
    }

    fn staging_of(creator: &Creator) -> PathBuf {
        creator.root.path().join(staging::FOLDER)
    }

    fn staged(creator: &Creator) -> Vec<PathBuf> {
        fs::read_dir(staging_of(creator)).into_iter().flatten().map(|entry| entry.expect("readable").path()).collect()
    }

    #[test]
    fn staged_files_get_their_name_whole_and_leave_nothing() {
        let (_folder, creator) = with_names();
        creator.create("data/j/0", b"first").expect("created");
        assert_eq!(fs::read(creator.root.path().join("data/j/0")).expect("there"), b"first");
        let taken = creator.create("data/j/0", b"second").expect_err("taken");
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(creator.root.path().join("data/j/0")).expect("there"), b"first");
        assert_eq!(staged(&creator), Vec::<PathBuf>::new());
    }

    /// Guards against: all retries where no folder can ever be made. After them the error is
    /// another.
    #[test]
    fn a_place_without_folders_is_told_before_all_retries() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere/at/all", &link).expect("linked");
        for place in [Path::new("/proc/larder"), &link] {
            for path in [place.to_owned(), place.join("repo")] {
                let creator = Creator::new(Arc::new(Root::new(&path)), Arc::default());
                let error = creator.create("keys/0", b"").expect_err("refused");
                assert!(NoFolder::is_in(&error), "{error:?}");
                let words = format!("cannot create the folder {} for the repository: No such", place.display());
                assert!(error.to_string().contains(&words), "{error}");
            }
        }
    }

    /// Old kernels have no `openat2`; the rules are the same without it.
    #[test]
    fn links_are_not_followed_by_component_either() {
        for by_component in [false, true] {
            let folder = tempfile::tempdir().expect("temporary folder");
            let path = folder.path().join("repo");
            let root = if by_component { Root::by_component(&path) } else { Root::new(&path) };
            let creator = Creator::new(Arc::new(root), Arc::default());
            creator.create("data/j/0", b"ours").expect("created");
            let other = folder.path().join("other");
            fs::create_dir_all(&other).expect("made");
            fs::write(other.join("0"), "theirs").expect("written");
            std::os::unix::fs::symlink(&other, creator.root.path().join("data/k")).expect("linked");
            assert!(creator.root.object("data/j/0").is_ok());
            let refused = [
                creator.root.object("data/k/0").map(drop),
                creator.create("data/k/1", b"x"),
                creator.delete("data/k/0"),
            ];
            for outcome in refused {
                assert_eq!(outcome.expect_err("refused").raw_os_error(), Some(Errno::LOOP.raw_os_error()));
            }
            assert_eq!(fs::read(other.join("0")).expect("there"), b"theirs");
            assert_eq!(fs::read_dir(&other).expect("readable").count(), 1);
        }
    }

    #[test]
    fn of_concurrent_staged_creators_one_wins() {
        let (_folder, creator) = with_names();
        for round in 0..20 {
            let name = format!("race/{round}");
            let won = std::thread::scope(|scope| {
                let creators: Vec<_> = (0..8_u8)
                    .map(|number| {
                        (
                            number,
                            scope.spawn({
                                let (creator, name) = (&creator, &name);
                                move || creator.create(name, &[number; 9000])
                            }),
                        )
                    })
                    .collect();
                let outcomes =
                    creators.into_iter().map(|(number, creator)| (number, creator.join().expect("no panic")));
                outcomes.filter(|(_, outcome)| outcome.is_ok()).map(|(number, _)| number).collect::<Vec<_>>()
            });
            let [winner] = won[..] else { panic!("{won:?} won") };
            assert_eq!(fs::read(creator.root.path().join(&name)).expect("there"), [winner; 9000]);
        }
        assert_eq!(staged(&creator), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_a_crashed_writer_left_is_swept_and_a_living_ones_is_not() {
        let (_folder, creator) = with_names();
        let staging = creator.folder(staging::FOLDER).expect("made");
        fs::write(staging_of(&creator).join("host-1-0"), "half").expect("written");
        let living =
            rustix::fs::openat(&staging, "host-2-0", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).expect("made");
        rustix::fs::flock(&living, rustix::fs::FlockOperation::LockExclusive).expect("locked");
        creator.create("data/j/0", b"x").expect("created");
        assert_eq!(staged(&creator), [staging_of(&creator).join("host-2-0")]);
    }

    #[test]
    fn a_folder_that_vanishes_between_two_creates_is_made_again() {
        for names in [false, true] {
            let (folder, creator) = with_names();
            creator.needs_names.store(names, Ordering::Relaxed);
            creator.create("data/j/0", b"x").expect("created");
            fs::remove_dir_all(folder.path().join("repo")).expect("removed");
            creator.create("data/j/0", b"y").expect("created again");
            assert_eq!(fs::read(creator.root.path().join("data/j/0")).expect("there"), b"y");
        }
    }

    #[test]
    fn deleting_removes_empty_folders_up_to_the_root_and_not_the_root() {
        let (_folder, creator) = with_names();
        creator.needs_names.store(false, Ordering::Relaxed);
        creator.create("a/b/c", b"").expect("created");
        creator.create("a/d", b"").expect("created");
        creator.delete("a/b/c").expect("deleted");
        assert!(!creator.root.path().join("a/b").exists() && creator.root.path().join("a/d").exists());
        creator.delete("a/d").expect("deleted");
        creator.delete("a/d").expect("still deleted");
        assert!(!creator.root.path().join("a").exists() && creator.root.path().exists());
    }
}
