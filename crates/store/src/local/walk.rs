//! Listing a local folder in the byte order of object names, with memory for one folder at each
//! depth.
//!
//! | entry                                            | what the listing yields                                     |
//! |--------------------------------------------------|-------------------------------------------------------------|
//! | regular file                                     | the object                                                  |
//! | staging file, `lost+found`, what cannot be a name | nothing                                                    |
//! | object that cannot be examined (a bad sector)    | an error of kind `Unreadable` with the object's name        |
//! | folder, link, pipe or device in an object's place | the same                                                   |
//! | folder that cannot be read, link to a folder     | the same with the folder's name and a slash                 |
//! | file, pipe or device in a folder's place         | the same                                                    |
//!
//! After such an error the listing continues. Links are followed only for first-level folders
//! ([`super::root`]).

use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream;
use larder_format::names;
use rustix::fs::{AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;

use super::root::{Root, open_folder_in};
use crate::entries::{self, DEPTH_MAX, Entry, may_hold_objects};
use crate::error::{StoreError, StoreOp};
use crate::error_kind::StoreErrorKind;
use crate::in_its_place::InItsPlace;
use crate::layer::{Listed, Listing};
use crate::name;

/// Objects looked up in one visit to a blocking thread.
const BATCH: usize = 1024;

/// Lists the objects below `folder` after `after`.
pub(super) fn list(root: Arc<Root>, folder: &str, after: Option<&str>) -> Listing {
    let walk = Walk::new(root, folder, after);
    let label = folder.to_owned();
    let batches = stream::unfold(Some((walk, label)), |state| async move {
        let (mut walk, label) = state?;
        let advanced = super::blocking(move || {
            let batch = walk.batch();
            (walk, batch)
        });
        match advanced.await {
            Ok((walk, Ok(batch))) if batch.is_empty() => drop(walk),
            Ok((walk, Ok(batch))) => return Some((batch, Some((walk, label)))),
            Ok((_, Err(error))) => return Some((vec![Err(StoreError::from_io(StoreOp::List, &label, error))], None)),
            Err(lost) => {
                let error = StoreError::new(StoreOp::List, &label, StoreErrorKind::Other).because(lost);
                return Some((vec![Err(error)], None));
            }
        }
        None
    });
    batches.flat_map(|batch: Vec<Item>| stream::iter(batch)).boxed()
}

/// An object, or an entry that cannot be examined.
type Item = Result<Listed, StoreError>;

/// A walk that can be left and taken up again.
#[derive(Debug)]
struct Walk {
    root: Arc<Root>,
    after: Option<String>,
    /// The folders on the way down, the deepest last.
    open: Vec<Level>,
    /// The folder to begin with, until it has been read.
    start: Option<String>,
}

/// A folder that is being listed.
#[derive(Debug)]
struct Level {
    folder: OwnedFd,
    /// Entries still to visit, with their whole names; those of folders end with a slash.
    entries: VecDeque<Entry>,
}

impl Walk {
    fn new(root: Arc<Root>, folder: &str, after: Option<&str>) -> Self {
        let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        Self { root, after: after.map(str::to_owned), open: Vec::new(), start: Some(start) }
    }

    /// The next objects; none at the end.
    fn batch(&mut self) -> io::Result<Vec<Item>> {
        let mut found = Vec::new();
        if let Some(start) = self.start.take() {
            self.enter(&start, &mut found)?;
        }
        while found.len() < BATCH {
            let Some(level) = self.open.last_mut() else { break };
            match level.entries.pop_front() {
                None => drop(self.open.pop()),
                Some(Entry { name, wrong: Some(wrong) }) => {
                    found.push(Err(StoreError::from_io(StoreOp::List, &name, InItsPlace::new(wrong).into())));
                }
                Some(Entry { name, wrong: None }) if name.ends_with('/') => self.enter(&name, &mut found)?,
                Some(Entry { name, wrong: None }) => match look_up(&level.folder, &name) {
                    Ok(stat) => found.extend(listed(name, &stat).transpose()),
                    Err(Errno::NOENT | Errno::NOTDIR) => {}
                    Err(errno) => found.push(Err(of_entry(&name, errno)?)),
                },
            }
        }
        Ok(found)
    }

    /// Reads a folder, named relative to the root and with a slash at its end.
    fn enter(&mut self, name: &str, found: &mut Vec<Item>) -> io::Result<()> {
        let path = name.strip_suffix('/').unwrap_or(name);
        let opened = match self.open.last() {
            // First-level folders may be links.
            Some(above) if path.contains('/') => open_folder_in(&above.folder, last(path)).map_err(io::Error::from),
            _ => self.root.folder(path),
        };
        let opened = opened.and_then(|folder| {
            let (entries, error) = self.read(&folder, name)?;
            Ok((Level { folder, entries }, error))
        });
        match opened {
            Ok((level, error)) => {
                self.open.push(level);
                if let Some(errno) = error {
                    found.push(Err(of_entry(name, errno)?));
                }
                Ok(())
            }
            // Removed since it was seen, or never made: there is nothing in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                if may_hold_objects(path) {
                    found.push(Err(StoreError::from_io(StoreOp::List, name, InItsPlace::NO_FOLDER.into())));
                }
                Ok(())
            }
            Err(error) => {
                found.push(Err(of_entry(name, error)?));
                Ok(())
            }
        }
    }

    /// The entries of an opened folder, and the error that kept it from being read to its end.
    fn read(&self, folder: &OwnedFd, name: &str) -> io::Result<(VecDeque<Entry>, Option<Errno>)> {
        let (mut entries, mut error) = (Vec::new(), None);
        for entry in Dir::read_from(folder)? {
            match entry {
                Ok(entry) => entries.extend(self.entry(folder, name, entry.file_name(), entry.file_type())?),
                // The entries read so far exist nevertheless.
                Err(Errno::NOENT) => break,
                Err(errno) => {
                    error = Some(errno);
                    break;
                }
            }
        }
        entries::put_in_order(&mut entries, |entry| &entry.name, self.after.as_deref());
        Ok((entries.into(), error))
    }

    fn entry(&self, folder: &OwnedFd, above: &str, file_name: &CStr, kind: FileType) -> io::Result<Option<Entry>> {
        let segment = file_name.to_str().ok().filter(|segment| name::is_valid_segment(segment));
        let Some(segment) = segment else { return Ok(None) };
        let name = format!("{above}{segment}");
        let kind = match kind {
            // Not every file system says so in its folders.
            FileType::Unknown => match rustix::fs::statat(folder, segment, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => return Ok(None),
                // Looked up once more as a file, and told.
                Err(_) => FileType::RegularFile,
            },
            kind => kind,
        };
        Ok(Entry::of(name, kind, self.open.len() < DEPTH_MAX))
    }
}

fn last(path: &str) -> &str {
    super::root::split(path).1
}

fn look_up(folder: &OwnedFd, name: &str) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, last(name), AtFlags::SYMLINK_NOFOLLOW)
}

/// The object, if it is one.
fn listed(name: String, stat: &Stat) -> Result<Option<Listed>, StoreError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let (seconds, nanoseconds) = (i128::from(stat.st_mtime), i128::from(stat.st_mtime_nsec));
            let modified_ms = u64::try_from(seconds * 1000 + nanoseconds / 1_000_000).unwrap_or(0);
            Ok(Some(Listed { name, size: u64::try_from(stat.st_size).unwrap_or(0), modified_ms }))
        }
        wrong if names::is_object(&name) => {
            Err(StoreError::from_io(StoreOp::List, &name, InItsPlace::new(wrong).into()))
        }
        _ => Ok(None),
    }
}

/// The error of one entry; an error of the whole store ends the listing.
fn of_entry(name: &str, error: impl Into<io::Error>) -> io::Result<StoreError> {
    let error: io::Error = error.into();
    let raw = error.raw_os_error();
    let told = StoreError::from_io(StoreOp::List, name, error);
    match (told.is_unlisted(), raw) {
        (false, Some(raw)) => Err(io::Error::from_raw_os_error(raw)),
        _ => Ok(told),
    }
}
