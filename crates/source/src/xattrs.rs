//! Extended attributes of anything: files, directories, symlinks, devices.
//!
//! All namespaces are taken as the kernel shows them, so POSIX ACLs (`system.posix_acl_access`),
//! file capabilities (`security.capability`) and labels come along. Where the file system has no
//! attributes there are none. An attribute that is listed but cannot be read is reported by name,
//! and the others are kept.

use std::io;
use std::sync::OnceLock;

use larder_format::entry::Xattr;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{Access, access, fgetxattr, flistxattr, getxattr, lgetxattr, listxattr, llistxattr};
use rustix::io::Errno;
use thiserror::Error;

use crate::directory::Directory;
use crate::path_text::PathText;
use crate::stat::Follow;

/// The kernel gives no list and no value longer than this.
const LENGTH_MAX: usize = 64 << 10;

/// Enough for most lists and values.
const LENGTH_USUAL: usize = 1 << 10;

/// Extended attributes that could not be read. The path is that of the entry.
#[derive(Debug, Error)]
pub enum XattrError {
    /// The names could not be listed.
    #[error("cannot list the extended attributes of /{}: {source}", PathText(.path))]
    List {
        /// Path of the entry.
        path: Vec<u8>,
        /// The message of the system.
        source: io::Error,
    },
    /// One value could not be read.
    #[error("cannot read the extended attribute {} of /{}: {source}", PathText(.name), PathText(.path))]
    Read {
        /// Path of the entry.
        path: Vec<u8>,
        /// Name of the attribute.
        name: Vec<u8>,
        /// The message of the system.
        source: io::Error,
    },
}

/// The attributes, sorted by name, and those that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) found: Vec<Xattr>,
    pub(crate) problems: Vec<XattrError>,
}

/// Where attributes are read from.
pub(crate) enum Place<'a> {
    /// An open file or directory.
    Open(BorrowedFd<'a>),
    /// A name below an open directory.
    Name { directory: &'a Directory, name: &'a [u8], follow: Follow },
}

/// Reads all attributes of the entry behind `place`; `path` is for the messages.
pub(crate) fn read(place: &Place<'_>, path: &[u8]) -> Attributes {
    let source = Source::of(place, path);
    let mut buffer = Vec::with_capacity(LENGTH_USUAL);
    match fill(&mut buffer, |buffer| source.list(buffer)) {
        Ok(()) => {}
        Err(Errno::NOTSUP | Errno::NOSYS) => return Attributes::default(),
        Err(error) => {
            let problem = XattrError::List { path: path.to_vec(), source: error.into() };
            return Attributes { found: Vec::new(), problems: vec![problem] };
        }
    }
    if buffer.is_empty() {
        return Attributes::default();
    }
    let mut names: Vec<&[u8]> = buffer.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    let mut attributes = Attributes::default();
    let mut value = Vec::with_capacity(LENGTH_USUAL);
    for name in names {
        value.clear();
        match fill(&mut value, |value| source.get(name, value)) {
            Ok(()) => attributes.found.push(Xattr { name: name.to_vec(), value: value.clone() }),
            // Removed since it was listed.
            Err(Errno::NODATA) => {}
            Err(error) => attributes.problems.push(XattrError::Read {
                path: path.to_vec(),
                name: name.to_vec(),
                source: error.into(),
            }),
        }
    }
    attributes
}

/// Calls `read` with a small buffer and, should the kernel want more, with one that always
/// suffices.
fn fill(buffer: &mut Vec<u8>, read: impl Fn(&mut Vec<u8>) -> Result<usize, Errno>) -> Result<(), Errno> {
    match read(buffer) {
        Err(Errno::RANGE) => {
            buffer.clear();
            buffer.reserve_exact(LENGTH_MAX);
            read(buffer).map(|_| ())
        }
        other => other.map(|_| ()),
    }
}

/// The three ways the kernel offers.
enum Source<'a> {
    Open(BorrowedFd<'a>),
    /// Symlinks, devices and unreadable files cannot be opened, and `fgetxattr` refuses a
    /// descriptor for the name alone (`O_PATH`). The directory's entry in `/proc` gives a path that
    /// is short and cannot be redirected by a rename.
    Followed(Vec<u8>),
    Itself(Vec<u8>),
}

impl<'a> Source<'a> {
    fn of(place: &Place<'a>, path: &[u8]) -> Self {
        match place {
            Place::Open(descriptor) => Self::Open(*descriptor),
            Place::Name { directory, name, follow } => {
                let path = if has_proc() {
                    let mut path = format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd()).into_bytes();
                    path.extend_from_slice(name);
                    path
                } else {
                    // Better than nothing, as long as the path is not too long for the kernel.
                    [b"/", path].concat()
                };
                match follow {
                    Follow::Yes => Self::Followed(path),
                    Follow::No => Self::Itself(path),
                }
            }
        }
    }

    fn list(&self, buffer: &mut Vec<u8>) -> Result<usize, Errno> {
        match self {
            Self::Open(descriptor) => flistxattr(descriptor, spare_capacity(buffer)),
            Self::Followed(path) => listxattr(path.as_slice(), spare_capacity(buffer)),
            Self::Itself(path) => llistxattr(path.as_slice(), spare_capacity(buffer)),
        }
    }

    fn get(&self, name: &[u8], buffer: &mut Vec<u8>) -> Result<usize, Errno> {
        match self {
            Self::Open(descriptor) => fgetxattr(descriptor, name, spare_capacity(buffer)),
            Self::Followed(path) => getxattr(path.as_slice(), name, spare_capacity(buffer)),
            Self::Itself(path) => lgetxattr(path.as_slice(), name, spare_capacity(buffer)),
        }
    }
}

/// Whether `/proc` is there: it may not be in a container or a rescue system.
fn has_proc() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| access("/proc/self/fd", Access::EXISTS).is_ok())
}
