//! One thing the walk met, with the means to look closer.

use std::sync::Arc;

use larder_format::entry::{Entry, EntryKind};
use rustix::fs::FileType;

use crate::directory::Directory;
use crate::file_system::may_have_other_clock;
use crate::read_error::ReadError;
use crate::stat::{Follow, Stat};
use crate::xattrs::{self, Place, XattrError};

/// An entry as one `statx` (and `readlink`) told it, and a hold on the directory it was found in.
///
/// Expensive parts are read on request, because unchanged files need none of them: extended
/// attributes with [`Found::complete`], contents and holes with [`Found::open`]. A change of
/// attributes changes the `ctime`, so comparing entries before completing them is safe.
///
/// Every value keeps its directory open. Do not collect them by the thousand.
#[derive(Debug)]
pub struct Found {
    /// The known facts. [`Found::open`] and [`Found::complete`] bring it up to date. Extended
    /// attributes are empty and the holes of files unknown until then.
    pub entry: Entry,
    pub(crate) directory: Arc<Directory>,
    pub(crate) stat: Stat,
    pub(crate) follow: Follow,
    pub(crate) is_special_stream: bool,
}

impl Found {
    /// The name in its directory.
    pub(crate) fn name(&self) -> &[u8] {
        self.entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Whether this is a regular file, also one whose entry is a hard link.
    pub fn is_regular_file(&self) -> bool {
        self.stat.file_type == FileType::RegularFile
    }

    /// Whether another machine's clock may give this its times: it is on a network file system.
    pub fn may_have_other_clock(&self) -> bool {
        may_have_other_clock(&*self.directory)
    }

    /// Whether further names of the same file may follow as hard links to this entry.
    ///
    /// If this entry is left out of the version (its contents cannot be read), entries that link to
    /// its path must change too. Give the next one contents of its own with [`Found::unlink`], and
    /// point the others there.
    pub fn may_be_linked_to(&self) -> bool {
        self.stat.links > 1 && self.stat.file_type != FileType::Directory
    }

    /// Whether this is a block device or FIFO that was requested by its own path with
    /// `WalkOptions::read_special`. Its contents are stored by means of [`Found::open_special`].
    pub fn is_special_stream(&self) -> bool {
        self.is_special_stream
    }

    /// Makes an [`EntryKind::HardLink`] an entry of its own again, for when the entry it points to
    /// is missing from the version. Any other kind stays as it is.
    pub fn unlink(&mut self) -> Result<(), ReadError> {
        if !matches!(self.entry.kind, EntryKind::HardLink { .. }) {
            return Ok(());
        }
        if let Some(kind) = self.stat.plain_kind() {
            self.entry.kind = kind;
            return Ok(());
        }
        match rustix::fs::readlinkat(&*self.directory, self.name(), Vec::new()) {
            Ok(target) => {
                self.entry.kind = EntryKind::Symlink { target: target.into_bytes() };
                Ok(())
            }
            Err(error) => Err(ReadError::open(&self.entry.path, error)),
        }
    }

    /// Reads the extended attributes by name, for everything that is not going to be opened.
    /// Returns the errors of attributes that could not be read. (A hard link has those of the entry
    /// it points to and needs none.)
    pub fn complete(&mut self) -> Vec<XattrError> {
        let place = Place::Name { directory: &self.directory, name: self.name(), follow: self.follow };
        let attributes = xattrs::read(&place, &self.entry.path);
        self.entry.xattrs = attributes.found;
        attributes.problems
    }

    /// Uses the result of a later look at the same name.
    pub(crate) fn refresh(&mut self, stat: Stat, kind: EntryKind) {
        if (stat.uid, stat.gid) != (self.stat.uid, self.stat.gid) {
            // The names belong to the old numbers; without a name a restore goes by number.
            self.entry.user = self.entry.user.take().filter(|_| stat.uid == self.stat.uid);
            self.entry.group = self.entry.group.take().filter(|_| stat.gid == self.stat.gid);
        }
        self.entry.kind = kind;
        self.entry.mode = stat.mode;
        self.entry.uid = stat.uid;
        self.entry.gid = stat.gid;
        self.entry.mtime = stat.mtime;
        self.entry.ctime = stat.ctime;
        self.entry.atime = self.entry.atime.map(|_| stat.atime);
        self.entry.inode = stat.id.inode;
        self.stat = stat;
    }
}
