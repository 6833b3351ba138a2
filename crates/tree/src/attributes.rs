//! Facts of a file, a folder or a link, as `stat` shows them.

use larder_format::entry::{Entry, EntryKind, Timestamp};

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// See the module header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Its number, the same as long as the tree is.
    pub inode: u64,
    /// What it is.
    pub kind: Kind,
    /// Bytes, holes included; of a link the bytes of its target.
    pub size: u64,
    /// Bytes without holes.
    pub stored: u64,
    /// Permission bits.
    pub mode: u32,
    /// Names that it has. Always 1 for a folder: that says nothing of its subfolders.
    pub names: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Last access.
    pub atime: Timestamp,
    /// It is in a snapshot and never changes.
    pub is_lasting: bool,
}

impl Attributes {
    /// Those of a folder that no snapshot has.
    pub(crate) fn of_folder(inode: u64, owner: (u32, u32), unix_ms: u64) -> Self {
        let time = Timestamp {
            seconds: i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX),
            nanos: (unix_ms % 1000) as u32 * 1_000_000,
        };
        Self {
            inode,
            kind: Kind::Folder,
            size: 0,
            stored: 0,
            mode: 0o555,
            names: 1,
            uid: owner.0,
            gid: owner.1,
            device: (0, 0),
            mtime: time,
            ctime: time,
            atime: time,
            is_lasting: false,
        }
    }

    /// Those of an entry that is no hard link.
    pub(crate) fn of_entry(inode: u64, entry: &Entry, names: u32, owner: Option<(u32, u32)>) -> Self {
        let (uid, gid) = owner.unwrap_or((entry.uid, entry.gid));
        let device = match entry.kind {
            EntryKind::CharDevice { major, minor } | EntryKind::BlockDevice { major, minor } => (major, minor),
            _ => (0, 0),
        };
        let size = match &entry.kind {
            EntryKind::Symlink { target } => target.len() as u64,
            _ => entry.size(),
        };
        Self {
            inode,
            kind: kind(entry),
            size,
            stored: entry.stored_bytes(),
            mode: entry.mode,
            names,
            uid,
            gid,
            device,
            mtime: entry.mtime,
            ctime: entry.ctime,
            atime: entry.atime.unwrap_or(entry.mtime),
            is_lasting: true,
        }
    }
}

fn kind(entry: &Entry) -> Kind {
    match entry.kind {
        EntryKind::File { .. } | EntryKind::HardLink { .. } => Kind::File,
        EntryKind::Directory => Kind::Folder,
        EntryKind::Symlink { .. } => Kind::Link,
        EntryKind::Fifo => Kind::Fifo,
        EntryKind::CharDevice { .. } => Kind::CharDevice,
        EntryKind::BlockDevice { .. } => Kind::BlockDevice,
    }
}
