//! A folder of this machine.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, statvfs};

use super::{Disk, DiskFile, Space, reads};
use crate::error::VolumeError;
use crate::workers;

const LOCK: &str = "lock";

/// A folder of this machine, locked for one process.
#[derive(Debug)]
pub struct RealDisk {
    folder: PathBuf,
    /// Hold the lock until the value is dropped: the file, and the folder. The file is for file
    /// systems that lock no folders, and somebody may remove it.
    _lock: Option<[File; 2]>,
}

impl RealDisk {
    /// A folder, without its lock: only for reading files that never change.
    pub fn unlocked(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), _lock: None }
    }

    /// Creates the folder, which must be missing or empty, and locks it.
    pub fn create(folder: &Path) -> Result<Self, VolumeError> {
        let shown = folder.display().to_string();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(VolumeError::io(shown.clone()))?;
        for entry in fs::read_dir(folder).map_err(VolumeError::io(shown.clone()))? {
            // One that found no password leaves the lock.
            if entry.map_err(VolumeError::io(shown.clone()))?.file_name() != LOCK {
                return Err(VolumeError::NotEmpty(shown));
            }
        }
        Self::lock(folder)
    }

    /// Locks the folder of a store.
    pub fn open(folder: &Path) -> Result<Self, VolumeError> {
        if !folder.join(super::CONFIG).is_file() {
            return Err(VolumeError::NoStore(folder.display().to_string()));
        }
        Self::lock(folder)
    }

    fn lock(folder: &Path) -> Result<Self, VolumeError> {
        let path = folder.join(LOCK);
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(VolumeError::io(LOCK))?;
        let opened = File::open(folder).map_err(VolumeError::io(folder.display().to_string()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(VolumeError::InUse),
            Err(error) => return Err(VolumeError::io(LOCK)(error.into())),
        }
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Err(VolumeError::InUse),
            _ => Ok(Self { folder: folder.to_owned(), _lock: Some([lock, opened]) }),
        }
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(self.folder.join(path))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.folder.join(path);
        match OpenOptions::new().read(true).write(self._lock.is_some()).open(path) {
            Ok(file) => Ok(Arc::new(RealFile(file))),
            Err(error) => Err(error),
        }
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.folder.join(from), self.folder.join(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(path))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.folder.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is no text is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn make_folder(&self, folder: &str) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.folder.join(folder))
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        File::open(self.folder.join(folder))?.sync_all()
    }

    fn sync_many(&self, folders: &[&str], files: &[Arc<dyn DiskFile>]) -> io::Result<()> {
        let folders = folders.iter().map(|folder| Unsynced::Folder(folder));
        let all: Vec<_> = folders.chain(files.iter().map(|file| Unsynced::File(&**file))).collect();
        // At once, because the file system then writes its journal only once.
        let synced = workers::map(all.len(), &all, |one| match one {
            Unsynced::Folder(folder) => self.sync_folder(folder),
            Unsynced::File(file) => file.sync(),
        });
        synced.into_iter().collect()
    }

    fn space(&self) -> io::Result<Space> {
        let found = statvfs(&self.folder)?;
        Ok(Space {
            free: found.f_bavail.saturating_mul(found.f_frsize),
            total: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }
}

/// What is not durable yet.
enum Unsynced<'a> {
    Folder(&'a str),
    File(&'a dyn DiskFile),
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn read_many(&self, wanted: &[(u64, usize)]) -> Vec<io::Result<Vec<u8>>> {
        reads::read(&self.0, wanted)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, length) {
            // File systems without it only lose speed.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            result => Ok(result?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
