//! A simulated disk whose operations a test can look at, and let fail.

use std::io;
use std::sync::Arc;

use larder_volume::disk::{Disk, DiskFile, SimulatedDisk, Space};

type Hook = Box<dyn Fn(&str, &str) -> io::Result<()> + Send + Sync>;
type SyncHook = Box<dyn Fn(&[Arc<dyn DiskFile>]) -> Option<io::Result<()>> + Send + Sync>;

/// A disk with a hook before its operations on names.
pub(crate) struct Hooked {
    disk: SimulatedDisk,
    /// Called with the operation and the path.
    before: Hook,
    /// Called instead of `sync_many` if it gives a result.
    sync: SyncHook,
}

impl Hooked {
    /// Calls `before` before each operation on a name.
    pub(crate) fn before(
        disk: &SimulatedDisk,
        before: impl Fn(&str, &str) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<dyn Disk> {
        Arc::new(Self { disk: disk.clone(), before: Box::new(before), sync: Box::new(|_| None) })
    }

    /// Asks `sync` for the result of each sync of a commit.
    pub(crate) fn syncs(
        disk: &SimulatedDisk,
        sync: impl Fn(&[Arc<dyn DiskFile>]) -> Option<io::Result<()>> + Send + Sync + 'static,
    ) -> Arc<dyn Disk> {
        Arc::new(Self { disk: disk.clone(), before: Box::new(|_, _| Ok(())), sync: Box::new(sync) })
    }
}

impl Disk for Hooked {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        (self.before)("create", path)?;
        self.disk.create(path)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        (self.before)("open", path)?;
        self.disk.open(path)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        (self.before)("link", to)?;
        self.disk.link(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        (self.before)("remove", path)?;
        self.disk.remove(path)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.disk.list(folder)
    }

    fn make_folder(&self, folder: &str) -> io::Result<()> {
        self.disk.make_folder(folder)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        (self.before)("sync_folder", folder)?;
        self.disk.sync_folder(folder)
    }

    fn sync_many(&self, folders: &[&str], files: &[Arc<dyn DiskFile>]) -> io::Result<()> {
        folders.iter().try_for_each(|folder| (self.before)("sync_folder", folder))?;
        (self.sync)(files).unwrap_or_else(|| self.disk.sync_many(folders, files))
    }

    fn space(&self) -> io::Result<Space> {
        self.disk.space()
    }
}
