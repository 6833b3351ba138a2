//! The kernel's facts of one inode, in our units.

use larder_format::entry::{EntryKind, Timestamp};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use rustix::path::Arg;

/// Which inode a name stood for. Device and number alone may be given to a new file; the birth time
/// tells the two apart where the file system keeps one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct InodeId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) born: Option<Timestamp>,
}

/// One answer of `statx`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) id: InodeId,
    pub(crate) file_type: FileType,
    /// Permission bits, set-id and sticky included.
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    /// Bytes allocated; less than `size` when the file has holes (or is compressed by the file
    /// system).
    pub(crate) allocated: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) atime: Timestamp,
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// Whether a symlink in the last component is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    Yes,
    No,
}

impl Stat {
    /// Of `name` below an open directory. Automount points are not triggered.
    pub(crate) fn at(directory: impl AsFd, name: impl Arg, follow: Follow) -> Result<Self, Errno> {
        let flags = match follow {
            Follow::Yes => AtFlags::NO_AUTOMOUNT,
            Follow::No => AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW,
        };
        Self::call(directory, name, flags)
    }

    /// The inode of an open descriptor.
    pub(crate) fn of(descriptor: impl AsFd) -> Result<Self, Errno> {
        Self::call(descriptor, c"", AtFlags::EMPTY_PATH)
    }

    fn call(descriptor: impl AsFd, name: impl Arg, flags: AtFlags) -> Result<Self, Errno> {
        let raw = rustix::fs::statx(descriptor, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
        let has_birth = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
        Ok(Self {
            id: InodeId {
                device: u64::from(raw.stx_dev_major) << 32 | u64::from(raw.stx_dev_minor),
                inode: raw.stx_ino,
                born: has_birth.then(|| timestamp(raw.stx_btime)),
            },
            file_type: FileType::from_raw_mode(raw.stx_mode.into()),
            mode: u32::from(raw.stx_mode) & 0o7777,
            links: raw.stx_nlink,
            uid: raw.stx_uid,
            gid: raw.stx_gid,
            size: raw.stx_size,
            allocated: raw.stx_blocks.saturating_mul(512),
            mtime: timestamp(raw.stx_mtime),
            ctime: timestamp(raw.stx_ctime),
            atime: timestamp(raw.stx_atime),
            major: raw.stx_rdev_major,
            minor: raw.stx_rdev_minor,
        })
    }

    /// The entry kind, for all types whose facts are in here: symlinks lack their target, sockets
    /// have no kind.
    pub(crate) fn plain_kind(&self) -> Option<EntryKind> {
        let (major, minor) = (self.major, self.minor);
        match self.file_type {
            FileType::RegularFile => Some(EntryKind::File { size: self.size, extents: None }),
            FileType::Directory => Some(EntryKind::Directory),
            FileType::Fifo => Some(EntryKind::Fifo),
            FileType::CharacterDevice => Some(EntryKind::CharDevice { major, minor }),
            FileType::BlockDevice => Some(EntryKind::BlockDevice { major, minor }),
            FileType::Symlink | FileType::Socket | FileType::Unknown => None,
        }
    }
}

fn timestamp(raw: StatxTimestamp) -> Timestamp {
    // Some network file systems pass on any value of their server; the format has no room for more
    // than a second.
    Timestamp { seconds: raw.tv_sec, nanos: raw.tv_nsec.min(999_999_999) }
}
