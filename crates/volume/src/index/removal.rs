//! [`Removals`]: files that nothing names any more. One that cannot be removed is tried again.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::Disk;

/// Removes files of a store. A file system without space may refuse that for a while.
pub(crate) struct Removals {
    disk: Arc<dyn Disk>,
    left: Mutex<Vec<String>>,
}

impl Removals {
    /// Of this disk.
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, left: Mutex::default() }
    }

    /// The disk.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Removes a file that nothing names.
    pub(crate) fn remove(&self, path: &str) {
        match self.disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => self.left.lock().push(path.to_owned()),
            _ => {}
        }
    }

    /// Tries again what could not be removed. What stays then is removed by the next start.
    pub(crate) fn retry(&self) {
        let left = std::mem::take(&mut *self.left.lock());
        left.iter().for_each(|path| self.remove(path));
    }
}
