//! One entry of the metadata stream: all known facts of a file, directory, link or device.
//!
//! Paths are bytes, relative to the root of the version, with components joined by `/`. They have
//! no leading or trailing slash, and no empty, `.` or `..` component. Entries of a version are
//! sorted by [`path_order`]. So a directory comes directly before its contents, and two versions
//! can be merged in one pass with constant memory.

use std::cmp::Ordering;
use std::sync::Arc;

/// A point in time with the resolution file systems have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub seconds: i64,
    /// 0 to 999,999,999, counted forward from `seconds`.
    pub nanos: u32,
}

/// A run of bytes of a file that holds data; everything between extents is a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Byte offset in the file.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub length: u64,
}

/// An extended attribute. POSIX ACLs and file capabilities are stored as the attributes the kernel
/// shows them as.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Xattr {
    /// Full name with its namespace, for instance `user.mime_type`.
    pub name: Vec<u8>,
    /// Value, any bytes.
    pub value: Vec<u8>,
}

/// The kind of an entry, with the facts that only this kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file with contents of its own in the data stream.
    File {
        /// Logical size in bytes, holes included.
        size: u64,
        /// `None`: no holes, all `size` bytes are stored. `Some`: only these runs are stored, one
        /// after the other, in rising order and without overlap.
        extents: Option<Vec<Extent>>,
    },
    /// A directory.
    Directory,
    /// A symbolic link and where it points, uninterpreted.
    Symlink {
        /// Target as `readlink` gives it.
        target: Vec<u8>,
    },
    /// Another name of a regular file (or device, FIFO) whose entry comes earlier in this version.
    HardLink {
        /// Path of the earlier entry, which is never a hard link itself.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice {
        /// Device number.
        major: u32,
        /// Device number.
        minor: u32,
    },
    /// A block device (the node, not its contents).
    BlockDevice {
        /// Device number.
        major: u32,
        /// Device number.
        minor: u32,
    },
}

/// Everything a restore needs of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// See the module header.
    pub path: Vec<u8>,
    /// Its kind.
    pub kind: EntryKind,
    /// Permission bits, set-id and sticky included (`st_mode & 0o7777`).
    pub mode: u32,
    /// Owner by number.
    pub uid: u32,
    /// Group by number.
    pub gid: u32,
    /// Owner by name, where the system knew one.
    pub user: Option<Arc<str>>,
    /// Group by name, where the system knew one.
    pub group: Option<Arc<str>>,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of content or metadata: cannot be restored, tells that a file is unchanged.
    pub ctime: Timestamp,
    /// Last access, only when asked for.
    pub atime: Option<Timestamp>,
    /// Inode number: tells that a file is unchanged.
    pub inode: u64,
    /// Extended attributes, sorted by name.
    pub xattrs: Vec<Xattr>,
}

impl Entry {
    /// Bytes this entry has in the data stream: 0 for everything but regular files.
    pub fn stored_bytes(&self) -> u64 {
        match &self.kind {
            EntryKind::File { size, extents: None } => *size,
            EntryKind::File { extents: Some(extents), .. } => extents.iter().map(|extent| extent.length).sum(),
            _ => 0,
        }
    }

    /// Logical size in bytes: 0 for everything but regular files.
    pub fn size(&self) -> u64 {
        match &self.kind {
            EntryKind::File { size, .. } => *size,
            _ => 0,
        }
    }
}

/// The order of entries in a version: a walk in depth first order with siblings by the bytes of
/// their names.
///
/// Comparing the bytes with `/` below every other byte is the same order, because names hold
/// neither `/` nor NUL.
pub fn path_order(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(rank).cmp(b.iter().map(rank))
}

/// Whether `path` obeys the rules of the module header.
pub fn is_valid_path(path: &[u8]) -> bool {
    !path.is_empty()
        && !path.contains(&0)
        && path.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_sorts_directly_before_its_contents() {
        let mut paths: Vec<&[u8]> = vec![b"a.b", b"a/b/c", b"a", b"a-", b"a/b", b"b", b"a/\xff", b"a\x01"];
        paths.sort_by(|a, b| path_order(a, b));
        let expected: Vec<&[u8]> = vec![b"a", b"a/b", b"a/b/c", b"a/\xff", b"a\x01", b"a-", b"a.b", b"b"];
        assert_eq!(paths, expected);
    }

    #[test]
    fn paths_that_could_leave_the_target_are_invalid() {
        for bad in [&b""[..], b"/", b"/a", b"a/", b"a//b", b"..", b"a/../b", b"./a", b"a/.", b"a\0b"] {
            assert!(!is_valid_path(bad), "{bad:?}");
        }
        for good in [&b"a"[..], b"a/b", b"...", b"a/..b/\xff"] {
            assert!(is_valid_path(good), "{good:?}");
        }
    }
}
