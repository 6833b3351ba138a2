//! [`Disk`]: the folder where a store is, real or simulated.
//!
//! Paths are relative to the folder. A write is durable after [`DiskFile::sync`]; a name that was
//! created, linked or removed is durable after [`Disk::sync_folder`].

mod reads;
mod real;
mod simulated;

use std::io;
use std::sync::Arc;

pub use real::RealDisk;
pub use simulated::{Fault, SimulatedDisk};

/// The configuration of a store: a folder with this file is one. Its name is not that of a
/// repository's, so no program takes one for the other.
pub const CONFIG: &str = "volume.config";

/// Space of a file system in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Available to this user.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// A folder with files.
pub trait Disk: Send + Sync {
    /// Creates an empty file. Fails if the name exists.
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name. Fails if that name exists.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// The names in a folder, in any order. A folder that is missing has none.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Creates a folder, if it is missing.
    fn make_folder(&self, folder: &str) -> io::Result<()>;

    /// Makes the names of a folder durable.
    fn sync_folder(&self, folder: &str) -> io::Result<()>;

    /// Makes the names of folders and several files durable, at once and in any order.
    fn sync_many(&self, folders: &[&str], files: &[Arc<dyn DiskFile>]) -> io::Result<()>;

    /// Makes several files durable, in any order.
    fn sync_files(&self, files: &[Arc<dyn DiskFile>]) -> io::Result<()> {
        self.sync_many(&[], files)
    }

    /// Space of the file system.
    fn space(&self) -> io::Result<Space>;
}

/// A file of a [`Disk`].
pub trait DiskFile: Send + Sync {
    /// Bytes of the file.
    fn length(&self) -> io::Result<u64>;

    /// Fills the buffer from an offset. `UnexpectedEof` if the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Reads ranges of this file, given by offset and length, in any order and as many at once as
    /// the disk likes. The results have the order of the ranges.
    fn read_many(&self, wanted: &[(u64, usize)]) -> Vec<io::Result<Vec<u8>>> {
        wanted.iter().map(|(offset, length)| self.read_one(*offset, *length)).collect()
    }

    /// Reads one range of this file.
    fn read_one(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read_at(offset, &mut bytes).map(|()| bytes)
    }

    /// Writes at an offset.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Cuts the file, or extends it with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Takes the space of the first `length` bytes, so that later writes to them need none. The
    /// length of the file does not change.
    fn reserve(&self, length: u64) -> io::Result<()>;

    /// Makes the contents and the length durable.
    fn sync(&self) -> io::Result<()>;
}

/// Reads a whole file of at most `most` bytes.
pub(crate) fn read_file(disk: &dyn Disk, path: &str, most: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let length = file.length()?;
    if length > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than a reader accepts"));
    }
    let mut bytes = vec![0; length as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Writes a new file durably: under a temporary name first, so that no part of it is ever seen
/// under its own. Fails if the name exists.
pub(crate) fn write_file(disk: &dyn Disk, path: &str, bytes: &[u8]) -> io::Result<()> {
    write_temporary(disk, path, bytes)?;
    name_temporary(disk, path)
}

fn temporary(path: &str) -> String {
    format!("{path}.new")
}

/// Writes a file under the temporary name of `path`, durably. After an error it is gone.
pub(crate) fn write_temporary(disk: &dyn Disk, path: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    match disk.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(&temporary)?;
    let written = file.write_at(0, bytes).and_then(|()| file.sync());
    // It must not take space that is missing already.
    written.inspect_err(|_| drop(disk.remove(&temporary)))
}

/// Gives such a file its name, durably.
pub(crate) fn name_temporary(disk: &dyn Disk, path: &str) -> io::Result<()> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    disk.link(&temporary(path), path)?;
    disk.sync_folder(folder)?;
    // What stays is removed by the next start.
    drop(disk.remove(&temporary(path)));
    Ok(())
}

/// Forgets such a file, unless it has its name. Whether it is gone.
pub(crate) fn forget_temporary(disk: &dyn Disk, path: &str) -> bool {
    match disk.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            drop(disk.remove(&temporary(path)));
            true
        }
        _ => false,
    }
}
