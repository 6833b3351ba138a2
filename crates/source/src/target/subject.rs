//! One restored thing as the receiver of metadata: the same operations on an open file and on a
//! bare place.
//!
//! Changes go to descriptors only, so they reach the examined entry and nothing that took its place
//! since. Calls that exist only for paths go through `/proc/self/fd`, whose entries refer to the
//! very entry (also to a symlink, which is not followed further).

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use super::folders::Folder;
use larder_format::entry::Timestamp;

/// The entry whose metadata is read and written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject<'a> {
    /// A file or directory opened for reading or writing.
    Open(BorrowedFd<'a>),
    /// A place: opened with `O_PATH`, without any right to its content. The only way to hold a
    /// symlink itself.
    Place(BorrowedFd<'a>),
    /// The entry with a name in an open directory, for a look that costs no descriptor. A later
    /// look may find something else, so nothing is changed this way.
    Name { folder: &'a Folder, name: &'a [u8] },
}

impl Subject<'_> {
    pub(super) fn chown(self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self {
            Self::Open(fd) => rustix::fs::fchown(fd, uid, gid),
            Self::Place(fd) => rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH),
            Self::Name { .. } => Err(Errno::BADF),
        }
    }

    pub(super) fn chmod(self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Self::Open(fd) => rustix::fs::fchmod(fd, mode),
            Self::Place(_) => rustix::fs::chmodat(CWD, self.proc_path(), mode, AtFlags::empty()),
            Self::Name { .. } => Err(Errno::BADF),
        }
    }

    /// `atime: None` leaves the access time as it is.
    pub(super) fn set_times(self, mtime: Timestamp, atime: Option<Timestamp>) -> Result<(), Errno> {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: atime.map_or(omit, timespec), last_modification: timespec(mtime) };
        match self {
            Self::Open(fd) => rustix::fs::futimens(fd, &times),
            Self::Place(fd) => match rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH) {
                // Kernels before 5.8.
                Err(Errno::INVAL) => rustix::fs::utimensat(CWD, self.proc_path(), &times, AtFlags::empty()),
                other => other,
            },
            Self::Name { .. } => Err(Errno::BADF),
        }
    }

    pub(super) fn set_xattr(self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::Place(_) => rustix::fs::setxattr(self.proc_path(), name, value, XattrFlags::empty()),
            Self::Name { .. } => Err(Errno::BADF),
        }
    }

    pub(super) fn remove_xattr(self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fremovexattr(fd, name),
            Self::Place(_) => rustix::fs::removexattr(self.proc_path(), name),
            Self::Name { .. } => Err(Errno::BADF),
        }
    }

    pub(super) fn xattr(self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        grow(|buffer| match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, buffer),
            Self::Place(_) => rustix::fs::getxattr(self.proc_path(), name, buffer),
            Self::Name { .. } => rustix::fs::lgetxattr(self.proc_path(), name, buffer),
        })
    }

    /// Names of all attributes; none on file systems that know no attributes.
    pub(super) fn xattr_names(self) -> Result<Vec<Vec<u8>>, Errno> {
        let list = grow(|buffer| match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, buffer),
            Self::Place(_) => rustix::fs::listxattr(self.proc_path(), buffer),
            Self::Name { .. } => rustix::fs::llistxattr(self.proc_path(), buffer),
        });
        match list {
            Ok(list) => Ok(list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Vec::new()),
            Err(errno) => Err(errno),
        }
    }

    fn proc_path(self) -> Vec<u8> {
        let base = |fd: BorrowedFd<'_>| format!("/proc/self/fd/{}", fd.as_raw_fd()).into_bytes();
        match self {
            Self::Open(fd) | Self::Place(fd) => base(fd),
            Self::Name { folder, name } => {
                let mut path = base(folder.as_fd());
                path.push(b'/');
                path.extend_from_slice(name);
                path
            }
        }
    }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() }
}

/// Calls with a larger buffer until the answer fits. The kernel's own bound is 64 KiB for a value
/// and for a list.
fn grow(call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0_u8; 512];
    loop {
        match call(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 8, 0),
            Err(errno) => return Err(errno),
        }
    }
}
