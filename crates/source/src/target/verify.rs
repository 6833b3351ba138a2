//! Compares the target with the entries, for `--verify`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use larder_format::entry::{Entry, EntryKind, Extent, Timestamp, is_valid_path};
use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::attributes;
use super::error::TargetError;
use super::folders::{self, Missing};
use super::metadata;
use super::owner::{Ids, OwnerMode};
use super::sparse::Layout;
use super::subject::Subject;
use super::{Inner, Target};
use crate::PathText;
use crate::stat::Stat;

/// Bytes compared at once.
const PIECE_BYTES: usize = 1 << 17;

/// Set-id bits: they go with the owner.
const SET_IDS: u32 = 0o6000;

/// One way in which the target differs from the version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// Nothing is there.
    Missing,
    /// It, or a directory above it, is a link or something else than it should be.
    Type,
    /// Another size in bytes.
    Size {
        /// In the version.
        expected: u64,
        /// In the target.
        found: u64,
    },
    /// Other permission bits.
    Mode {
        /// In the version.
        expected: u32,
        /// In the target.
        found: u32,
    },
    /// Another owner or group.
    Owner {
        /// Numbers of user and group that the version means here.
        expected: (u32, u32),
        /// In the target.
        found: (u32, u32),
    },
    /// Another modification time.
    Mtime {
        /// In the version.
        expected: Timestamp,
        /// In the target.
        found: Timestamp,
    },
    /// The symlink points elsewhere.
    LinkTarget {
        /// In the target.
        found: Vec<u8>,
    },
    /// It is not the same file as the first name of its group.
    HardLink,
    /// Another device number.
    Device,
    /// An extended attribute is missing, has another value, or is not in the version.
    Xattr {
        /// Its name.
        name: Vec<u8>,
    },
    /// Other bytes.
    Content {
        /// In the file, at or a little before the first difference.
        offset: u64,
    },
    /// It cannot be read.
    Unreadable {
        /// The system's word.
        reason: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(out, "is missing"),
            Self::Type => write!(out, "is of another type"),
            Self::Size { expected, found } => write!(out, "has {found} bytes instead of {expected}"),
            Self::Mode { expected, found } => write!(out, "has mode {found:04o} instead of {expected:04o}"),
            Self::Owner { expected: (uid, gid), found: (found_uid, found_gid) } => {
                write!(out, "belongs to {found_uid}:{found_gid} instead of {uid}:{gid}")
            }
            Self::Mtime { expected, found } => write!(
                out,
                "was modified at {}.{:09} instead of {}.{:09} seconds",
                found.seconds, found.nanos, expected.seconds, expected.nanos
            ),
            Self::LinkTarget { found } => write!(out, "points to {}", PathText(found)),
            Self::HardLink => write!(out, "is not a hard link to its first name"),
            Self::Device => write!(out, "is another device"),
            Self::Xattr { name } => write!(out, "differs in the attribute {}", PathText(name)),
            Self::Content { offset } => write!(out, "has other content near byte {offset}"),
            Self::Unreadable { reason } => write!(out, "cannot be read: {reason}"),
        }
    }
}

/// The result of [`Target::verify`].
#[derive(Debug)]
pub struct Verification {
    /// All differences but those of content.
    pub differences: Vec<Difference>,
    /// The file, when its content is to be compared and can be read.
    pub content: Option<File>,
}

impl Verification {
    fn only(difference: Difference) -> Self {
        Self { differences: vec![difference], content: None }
    }

    /// Reads the stored bytes of `entry` from `expected` and compares them with the file; holes
    /// must read as zeros. A difference is added. Errors are those of `expected`.
    pub fn compare_content(&mut self, entry: &Entry, expected: impl Read) -> io::Result<()> {
        let (Some(file), Ok(layout)) = (&self.content, Layout::of(entry)) else { return Ok(()) };
        if let Some(difference) = compare(file, layout, expected)? {
            self.differences.push(difference);
        }
        Ok(())
    }
}

impl Target {
    /// Compares everything but the content of regular files. Owners are compared when this process
    /// may set them.
    ///
    /// Access times are not compared: comparing changes them.
    pub fn verify(&self, entry: &Entry) -> Result<Verification, TargetError> {
        let inner = &*self.inner;
        let path = &entry.path;
        if !is_valid_path(path) {
            return Err(TargetError::BadEntry { path: path.clone(), problem: "its path could leave the target" });
        }
        if inner.options.omit.is_omitted(&entry.kind) {
            return Ok(Verification { differences: Vec::new(), content: None });
        }
        let Some(folders) = &inner.folders else { return Ok(Verification::only(Difference::Missing)) };
        let (directory, name) = folders::split(path);
        let folder = match folders.get(directory, Missing::Fail) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(Verification::only(Difference::Missing)),
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Verification::only(Difference::Type)),
            Err(errno) => return Err(TargetError::step("open the folder of", path)(errno)),
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = match rustix::fs::openat(&*folder, name, flags, Mode::empty()) {
            Ok(place) => place,
            // A further name of a device that was left out. Another first name is missing itself.
            Err(Errno::NOENT) if inner.options.omit.devices && inner.is_first_missing(entry)? => {
                return Ok(Verification { differences: Vec::new(), content: None });
            }
            Err(Errno::NOENT) => return Ok(Verification::only(Difference::Missing)),
            Err(errno) => return Err(TargetError::step("open", path)(errno)),
        };
        let stat = Stat::of(&place).map_err(TargetError::step("look at", path))?;
        let mut differences = Vec::new();
        if !inner.compare_kind(entry, place.as_fd(), &stat, &mut differences)? {
            return Ok(Verification::only(Difference::Type));
        }
        inner.compare_metadata(entry, Subject::Place(place.as_fd()), &stat, &mut differences);
        let mut content = None;
        if matches!(entry.kind, EntryKind::File { .. }) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            match rustix::fs::openat(&*folder, name, flags, Mode::empty()) {
                Ok(fd) if Stat::of(&fd).is_ok_and(|opened| opened.id == stat.id) => content = Some(File::from(fd)),
                Ok(_) => differences.push(Difference::Type),
                Err(errno) => differences.push(Difference::Unreadable { reason: metadata::reason(Err(errno)) }),
            }
        }
        Ok(Verification { differences, content })
    }
}

impl Inner {
    /// Whether it is a hard link to something that is not there.
    fn is_first_missing(&self, entry: &Entry) -> Result<bool, TargetError> {
        let EntryKind::HardLink { target } = &entry.kind else { return Ok(false) };
        match self.existing_parent(target)? {
            Some((folder, name)) => Ok(self.look(&folder, name, target)?.is_none()),
            None => Ok(true),
        }
    }

    /// Compares the facts that only one kind has. `false`: it is of another type.
    fn compare_kind(
        &self,
        entry: &Entry,
        place: rustix::fd::BorrowedFd<'_>,
        stat: &Stat,
        differences: &mut Vec<Difference>,
    ) -> Result<bool, TargetError> {
        let same_device = |major: u32, minor: u32| (major, minor) == (stat.major, stat.minor);
        match (&entry.kind, stat.file_type) {
            (EntryKind::Directory, FileType::Directory) | (EntryKind::Fifo, FileType::Fifo) => {}
            (EntryKind::File { size, .. }, FileType::RegularFile) => {
                if *size != stat.size {
                    differences.push(Difference::Size { expected: *size, found: stat.size });
                }
            }
            (EntryKind::Symlink { target }, FileType::Symlink) => {
                let found = rustix::fs::readlinkat(place, c"", Vec::new())
                    .map_err(TargetError::step("read the link", &entry.path))?
                    .into_bytes();
                if found != *target {
                    differences.push(Difference::LinkTarget { found });
                }
            }
            (EntryKind::CharDevice { major, minor }, FileType::CharacterDevice)
            | (EntryKind::BlockDevice { major, minor }, FileType::BlockDevice) => {
                if !same_device(*major, *minor) {
                    differences.push(Difference::Device);
                }
            }
            (EntryKind::HardLink { target }, file_type) if file_type != FileType::Directory => {
                let first = match self.existing_parent(target)? {
                    Some((folder, name)) => self.look(&folder, name, target)?,
                    None => None,
                };
                if first.is_none_or(|first| first.id != stat.id) {
                    differences.push(Difference::HardLink);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn compare_metadata(&self, entry: &Entry, subject: Subject<'_>, stat: &Stat, differences: &mut Vec<Difference>) {
        let may_own = self.rights.euid == 0 && self.options.owners != OwnerMode::None;
        let Ids { uid, gid } = self.ids(entry);
        if may_own && (uid, gid) != (stat.uid, stat.gid) {
            differences.push(Difference::Owner { expected: (uid, gid), found: (stat.uid, stat.gid) });
        }
        let compared = if may_own { !0 } else { !SET_IDS };
        let mode = self.options.omit.mode(entry);
        if !stat.file_type.is_symlink() && (mode ^ stat.mode) & compared != 0 {
            differences.push(Difference::Mode { expected: mode, found: stat.mode });
        }
        if entry.mtime != stat.mtime {
            differences.push(Difference::Mtime { expected: entry.mtime, found: stat.mtime });
        }
        let names = match subject.xattr_names() {
            Ok(names) => names,
            Err(errno) => {
                differences.push(Difference::Unreadable { reason: metadata::reason(Err(errno)) });
                return;
            }
        };
        let omit = &self.options.omit;
        let wanted = || entry.xattrs.iter().filter(|xattr| omit.sets(&xattr.name));
        for xattr in wanted() {
            if !subject.xattr(&xattr.name).is_ok_and(|value| value == xattr.value) {
                differences.push(Difference::Xattr { name: xattr.name.clone() });
            }
        }
        for name in names {
            let is_ours = omit.touches(&name) && !attributes::belongs_to_system(&name);
            if is_ours && !wanted().any(|xattr| xattr.name == name) {
                differences.push(Difference::Xattr { name });
            }
        }
    }
}

fn compare(file: &File, layout: Layout<'_>, mut expected: impl Read) -> io::Result<Option<Difference>> {
    let (mut wanted, mut found) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    for run in layout.runs() {
        let mut at = 0;
        while at < run.length {
            let part = usize::try_from(run.length - at).map_or(PIECE_BYTES, |rest| rest.min(PIECE_BYTES));
            expected.read_exact(&mut wanted[..part])?;
            let offset = run.offset + at;
            match file.read_exact_at(&mut found[..part], offset) {
                Ok(()) if found[..part] == wanted[..part] => {}
                Ok(()) => {
                    let into = found.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
                    return Ok(Some(Difference::Content { offset: offset + into as u64 }));
                }
                Err(error) => return Ok(Some(unreadable(offset, &error))),
            }
            at += part as u64;
        }
    }
    for hole in layout.holes(layout.size) {
        match first_nonzero(file, hole, &mut found) {
            Ok(None) => {}
            Ok(Some(offset)) => return Ok(Some(Difference::Content { offset })),
            Err(error) => return Ok(Some(unreadable(hole.offset, &error))),
        }
    }
    Ok(None)
}

fn unreadable(offset: u64, error: &io::Error) -> Difference {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Difference::Content { offset },
        _ => Difference::Unreadable { reason: error.to_string() },
    }
}

/// The first byte of a range that should read as zeros and does not. Holes of the file are skipped,
/// not read.
fn first_nonzero(file: &File, range: Extent, buffer: &mut [u8]) -> io::Result<Option<u64>> {
    let end = range.offset + range.length;
    let mut at = range.offset;
    while at < end {
        at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(errno) => return Err(errno.into()),
        };
        if at >= end {
            return Ok(None);
        }
        let part = usize::try_from(end - at).map_or(buffer.len(), |rest| rest.min(buffer.len()));
        file.read_exact_at(&mut buffer[..part], at)?;
        if let Some(into) = buffer[..part].iter().position(|byte| *byte != 0) {
            return Ok(Some(at + into as u64));
        }
        at += part as u64;
    }
    Ok(None)
}
