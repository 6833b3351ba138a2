//! Reads one file, holes left out, and reports all changes to it meanwhile.
//!
//! The backup pipeline opens a [`FileReader`] through [`Found::open`], reads until 0, and calls
//! [`FileReader::finish`]. This makes the entry agree with the delivered bytes and tells how the
//! file changed, if it did.
//!
//! Invariants
//! * Bytes delivered = `entry.stored_bytes()` after `finish`, whatever another process does to the
//!   file.
//! * Never blocks on anything but a regular file, never follows a symlink.
//!
//! Not here: buffers. 256 KiB to 8 MiB a call is a good size. Small files need one call, as long as
//! the buffer has room for one byte more than the file.

use std::sync::Arc;

use larder_format::entry::{Entry, EntryKind, Extent};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Advice, CWD, FileType, Mode, OFlags, SeekFrom, fadvise, openat, seek};
use rustix::io::{Errno, pread};
use thiserror::Error;

use crate::drop_behind::DropBehind;
use crate::extents::data_extents;
use crate::file_system::look_after_tick;
use crate::found::Found;
use crate::read_error::ReadError;
use crate::stat::{Follow, Stat};
use crate::xattrs::{self, Place, XattrError};

/// From this size on the kernel is told that the file is read from front to back.
const ADVISE_MIN: u64 = 1 << 20;

/// How a file changed while it was read. The bytes that were read are in the version, but may be a
/// mixture of old and new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Change {
    /// It is longer now; the entry has the old length.
    #[error("grew from {from} to {to} bytes while it was read")]
    Grew {
        /// Size when opened.
        from: u64,
        /// Size at the end.
        to: u64,
    },
    /// It became shorter; the entry ends where the reading ended.
    #[error("shrank from {from} to {to} bytes while it was read; {stored} bytes are stored")]
    Shrank {
        /// Size when opened.
        from: u64,
        /// Size at the end.
        to: u64,
        /// Size the entry has now.
        stored: u64,
    },
    /// It could be read only in part, though it is as long as before; the entry ends where the
    /// reading ended.
    #[error("could be read only to byte {stored} of {size}")]
    CutShort {
        /// Size when opened.
        size: u64,
        /// Size the entry has now.
        stored: u64,
    },
    /// It holds more than its size says, as files in `/proc` do; only as much as its size says is
    /// stored.
    #[error("holds more than the {size} bytes of its size")]
    LongerThanItsSize {
        /// The size it has.
        size: u64,
    },
    /// Written to, with its size unchanged.
    #[error("was written to while it was read")]
    Written,
    /// Its metadata changed (owner, mode, attributes, names); its contents very probably did not.
    #[error("had its metadata changed while it was read")]
    Touched,
    /// The system would not tell any more.
    #[error("could not be checked for changes after it was read")]
    Unknown,
}

/// The end of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Bytes delivered.
    pub stored: u64,
    /// How the file changed meanwhile.
    pub change: Option<Change>,
}

/// An open regular file, read from front to back.
#[derive(Debug)]
pub struct FileReader {
    file: Arc<OwnedFd>,
    /// For messages.
    path: Vec<u8>,
    opened: Stat,
    /// Data runs not read to their end, the next one last. Empty lists and holes: see `Entry`.
    runs: Vec<Extent>,
    /// The run being read.
    run: Extent,
    delivered: u64,
    /// Where the file turned out to end, if before its time.
    ended_early_at: Option<u64>,
    has_more: bool,
    way: Way,
    behind: Option<DropBehind>,
}

/// How bytes are got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By offset, up to a size that is known.
    Seekable,
    /// One after the other, until there are no more.
    Stream,
}

impl Found {
    /// Opens a regular file for reading and updates the entry: metadata, size and holes are those
    /// of the open file. So the entry and the bytes agree even if the file changed since the walk.
    ///
    /// Never hangs and never follows a link: should something else have taken the file's place,
    /// that is an error. (Programs that save a file may replace it by another regular file. That
    /// one is read instead, unless the entry may be the target of hard links.) A hard link must go
    /// through [`Found::unlink`] first.
    pub fn open(&mut self) -> Result<FileReader, ReadError> {
        FileReader::open(self)
    }

    /// Opens a block device or FIFO to read its contents, and makes its entry a regular file. The
    /// size of a FIFO is known only after [`FileReader::finish`]; opening one waits until something
    /// writes to it.
    pub fn open_special(&mut self) -> Result<FileReader, ReadError> {
        FileReader::open_special(self)
    }

    /// Reads the extended attributes of the opened file: cheaper than [`Found::complete`], and
    /// certain to be those of the file whose contents are read. Returns the errors of attributes
    /// that could not be read.
    pub fn complete_from(&mut self, reader: &FileReader) -> Vec<XattrError> {
        let attributes = xattrs::read(&Place::Open(reader.as_fd()), &self.entry.path);
        self.entry.xattrs = attributes.found;
        attributes.problems
    }
}

impl FileReader {
    pub(crate) fn open(found: &mut Found) -> Result<Self, ReadError> {
        let path = found.entry.path.clone();
        if !found.is_regular_file() || !matches!(found.entry.kind, EntryKind::File { .. }) {
            return Err(ReadError::NotAFile { path });
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = |flags| openat(&*found.directory, found.name(), flags, Mode::empty());
        let opened = match open(flags | OFlags::NOATIME) {
            // Only the owner and root may leave the access time alone.
            Err(Errno::PERM) => open(flags),
            other => other,
        };
        let opened = match opened {
            // A file server holds a lease on it and is now asked to release it.
            Err(Errno::AGAIN) => open_patiently(found),
            other => other,
        };
        let file = opened.map_err(|error| ReadError::open(&path, error))?;
        let stat = look_after_tick(&file).map_err(|error| ReadError::open(&path, error))?;
        let is_same = stat.id == found.stat.id;
        if stat.file_type != FileType::RegularFile || (!is_same && found.may_be_linked_to()) {
            return Err(ReadError::Replaced { path });
        }
        let extents = if stat.allocated < stat.size {
            data_extents(&file, stat.size).map_err(|error| ReadError::open(&path, error))?
        } else {
            None
        };
        if stat.size >= ADVISE_MIN {
            // Advice only: reading works without it.
            let _ = fadvise(&file, 0, None, Advice::Sequential);
        }
        let mut runs = match &extents {
            Some(extents) => extents.iter().rev().copied().collect(),
            None => vec![Extent { offset: 0, length: stat.size }],
        };
        let run = runs.pop().unwrap_or(Extent { offset: stat.size, length: 0 });
        found.refresh(stat, EntryKind::File { size: stat.size, extents });
        let way = Way::Seekable;
        Ok(Self::begin(file, path, stat, runs, run, way))
    }

    /// Opens a block device or FIFO to read its contents. A FIFO without a writer waits for one.
    pub(crate) fn open_special(found: &mut Found) -> Result<Self, ReadError> {
        let path = found.entry.path.clone();
        let file_type = found.stat.file_type;
        if !matches!(file_type, FileType::BlockDevice | FileType::Fifo) {
            return Err(ReadError::NotAFile { path });
        }
        let nofollow = if found.follow == Follow::No { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | nofollow;
        let file = openat(&*found.directory, found.name(), flags, Mode::empty())
            .map_err(|error| ReadError::open(&path, error))?;
        let stat = look(&file).map_err(|error| ReadError::open(&path, error))?;
        if stat.id != found.stat.id || stat.file_type != file_type {
            return Err(ReadError::Replaced { path });
        }
        let (way, length) = match file_type {
            FileType::BlockDevice => (Way::Seekable, stat.size),
            _ => (Way::Stream, u64::MAX),
        };
        if way == Way::Seekable {
            // Advice only: reading works without it.
            let _ = fadvise(&file, 0, None, Advice::Sequential);
        }
        found.refresh(stat, EntryKind::File { size: stat.size, extents: None });
        let run = Extent { offset: 0, length };
        let runs = Vec::new();
        Ok(Self::begin(file, path, stat, runs, run, way))
    }

    fn begin(file: OwnedFd, path: Vec<u8>, opened: Stat, runs: Vec<Extent>, run: Extent, way: Way) -> Self {
        let file = Arc::new(file);
        Self { file, path, opened, runs, run, delivered: 0, ended_early_at: None, has_more: false, way, behind: None }
    }

    /// Takes what is read out of the page cache again, if the file is large, as far as it is not
    /// there now. For files that are read once.
    pub fn drop_behind(&mut self) {
        if self.way == Way::Seekable {
            self.behind = DropBehind::new(&self.file, self.opened.size);
        }
    }

    /// Bytes that reading will deliver unless the file shrinks; `None` for a FIFO.
    pub fn expected(&self) -> Option<u64> {
        let left = || self.run.length + self.runs.iter().map(|run| run.length).sum::<u64>();
        (self.way == Way::Seekable).then(|| self.delivered + left())
    }

    /// Reads on into the front of `buffer`; 0 is the end. The rest of the buffer may be
    /// overwritten, too.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        if buffer.is_empty() || self.ended_early_at.is_some() {
            return Ok(0);
        }
        while self.run.length == 0 {
            match self.runs.pop() {
                Some(run) => self.run = run,
                None => {
                    self.look_beyond(buffer)?;
                    return Ok(0);
                }
            }
        }
        let Extent { offset, length } = self.run;
        let is_last = offset + length == self.opened.size;
        let wanted = usize::try_from(length).unwrap_or(usize::MAX).min(buffer.len());
        // One byte more than there should be costs nothing and shows a file that grew.
        let asked = if is_last && wanted as u64 == length { (wanted + 1).min(buffer.len()) } else { wanted };
        let got = self.read_at(&mut buffer[..asked], offset)?;
        if got == 0 {
            self.ended_early_at = Some(offset);
        }
        self.has_more |= got > wanted;
        let got = got.min(wanted);
        self.run = Extent { offset: offset + got as u64, length: length - got as u64 };
        self.delivered += got as u64;
        self.moved();
        Ok(got)
    }

    /// The same file, to be read at other places by other threads. `None` if the delivered bytes
    /// are not simply the file from front to back: it has holes, or no size.
    pub fn elsewhere(&self) -> Option<Elsewhere> {
        let is_plain = self.way == Way::Seekable && self.runs.is_empty() && self.run.offset == self.delivered;
        is_plain.then(|| Elsewhere { file: self.file.clone(), size: self.opened.size })
    }

    /// Continues behind the next `bytes`: they were read by way of [`Self::elsewhere`] and count as
    /// delivered.
    pub fn pass(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.run.length, "no more can be passed than was to come");
        let bytes = bytes.min(self.run.length);
        self.run = Extent { offset: self.run.offset + bytes, length: self.run.length - bytes };
        self.delivered += bytes;
        self.moved();
    }

    fn moved(&mut self) {
        if let Some(behind) = &mut self.behind {
            behind.pass(&self.file, self.run.offset);
        }
    }

    /// Ends the reading: makes `entry` agree with the delivered bytes and says how the file changed
    /// since it was opened.
    ///
    /// To be called after an error in the middle as well, when the bytes read so far are to be
    /// kept. Reading must have reached its end (0 or an error); otherwise, the rest counts as cut
    /// off.
    pub fn finish(mut self, entry: &mut Entry) -> Finished {
        if let Some(behind) = &mut self.behind {
            behind.end(&self.file, self.opened.size);
        }
        if self.way == Way::Stream {
            entry.kind = EntryKind::File { size: self.delivered, extents: None };
            return Finished { stored: self.delivered, change: None };
        }
        let before = self.opened;
        let ended_at = self.ended_early_at.or((self.run.length > 0).then_some(self.run.offset));
        if let (Some(end), EntryKind::File { size, extents }) = (ended_at, &mut entry.kind) {
            *size = end;
            if let Some(extents) = extents {
                extents.retain_mut(|extent| {
                    extent.length = extent.length.min(end.saturating_sub(extent.offset));
                    extent.length > 0
                });
            }
        }
        let (from, stored) = (before.size, ended_at.unwrap_or(before.size));
        let change = match look(&self.file) {
            Err(_) => Some(Change::Unknown),
            Ok(after) if after.size < from => Some(Change::Shrank { from, to: after.size, stored }),
            Ok(_) if ended_at.is_some() => Some(Change::CutShort { size: from, stored }),
            Ok(after) if after.size > from => Some(Change::Grew { from, to: after.size }),
            Ok(_) if self.has_more => Some(Change::LongerThanItsSize { size: from }),
            Ok(after) if after.mtime != before.mtime => Some(Change::Written),
            Ok(after) if after.ctime != before.ctime => Some(Change::Touched),
            Ok(_) => None,
        };
        Finished { stored: self.delivered, change }
    }

    /// Looks for contents of a file that says to have none: only that case is not covered by asking
    /// for one byte more.
    fn look_beyond(&mut self, buffer: &mut [u8]) -> Result<(), ReadError> {
        if self.opened.size == 0 && !self.has_more {
            self.has_more = self.read_at(&mut buffer[..1], 0)? > 0;
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        loop {
            let outcome = match self.way {
                Way::Seekable => pread(&*self.file, &mut *buffer, offset),
                Way::Stream => rustix::io::read(&*self.file, &mut *buffer),
            };
            match outcome {
                Err(Errno::INTR) => {}
                Err(error) => return Err(ReadError::Read { path: self.path.clone(), offset, source: error.into() }),
                Ok(got) => return Ok(got),
            }
        }
    }
}

/// Opens a file that cannot be opened without waiting. It waits only for the end of a lease, which
/// the kernel limits to less than a minute, because the file is known to be regular. First it takes
/// a descriptor without access and looks at it, then it opens that very file.
fn open_patiently(found: &Found) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(&*found.directory, found.name(), flags, Mode::empty())?;
    if Stat::of(&place)?.file_type != FileType::RegularFile {
        return Err(Errno::NXIO);
    }
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// `fstat`, with the size of block devices as well.
fn look(file: &OwnedFd) -> Result<Stat, Errno> {
    let mut stat = Stat::of(file)?;
    if stat.file_type == FileType::BlockDevice {
        stat.size = seek(file, SeekFrom::End(0))?;
    }
    Ok(stat)
}

/// An open file that is read at any place, by any thread, beside its [`FileReader`].
#[derive(Debug, Clone)]
pub struct Elsewhere {
    file: Arc<OwnedFd>,
    size: u64,
}

impl Elsewhere {
    /// Its size when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `buffer` with the bytes at `offset`; `false` when there are too few, or they cannot be
    /// read. Why not is for the [`FileReader`] to find out, when it comes there.
    pub fn fill(&self, buffer: &mut [u8], offset: u64) -> bool {
        let mut filled = 0;
        while filled < buffer.len() {
            match pread(&*self.file, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => return false,
                Ok(got) => filled += got,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

impl AsFd for FileReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
