//! Files whose old content was written over: they are finished together, when their new content is on disk.
//!
//! A new file that loses its content in a power cut is too short or has a hole, which the next run sees. A file that was written
//! over in place has neither: the old bytes come back, at the right length. So it keeps its mark (see [`super::unfinished`]) and gets
//! its metadata only after a sync, and to sync once for many files they wait here.
//!
//! The restore calls [`Target::finish_overwritten`] wherever it has a number of files behind it; what waits is bounded by what it
//! does between two calls. A process that dies before leaves marked files, whose content the next run compares.

use std::sync::PoisonError;

use larder_format::entry::Entry;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};

use super::error::TargetError;
use super::file::{EXISTING, FileWriter};
use super::metadata::{self, Attributes, Goal, Now};
use super::subject::Subject;
use super::{Inner, Target};
use crate::stat::{InodeId, Stat};

/// So many files are brought to disk one by one: that does not wait for what other programs have written.
const ONE_BY_ONE_MAX: usize = 32;

/// A file with its new content, marked as unfinished.
#[derive(Debug)]
pub(super) struct Overwritten {
    entry: Entry,
    id: Option<InodeId>,
}

impl Target {
    /// How many files wait for [`Target::finish_overwritten`].
    pub fn overwritten(&self) -> usize {
        self.inner.overwritten.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Brings files that were written over to disk and ends them. Gives back those that could not be ended; an error of its own is
    /// that nothing could be brought to disk.
    pub fn finish_overwritten(&self) -> Result<Vec<(Vec<u8>, TargetError)>, TargetError> {
        let waiting = std::mem::take(&mut *self.inner.overwritten.lock().unwrap_or_else(PoisonError::into_inner));
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let one_by_one = waiting.len() <= ONE_BY_ONE_MAX;
        if !one_by_one {
            self.sync()?;
        }
        let ended = waiting.into_iter().map(|file| (self.inner.end(&file, one_by_one), file.entry.path));
        Ok(ended.filter_map(|(result, path)| Some((path, result.err()?))).collect())
    }
}

impl Inner {
    pub(super) fn wait_for_disk(&self, writer: &FileWriter, entry: &Entry) {
        let file = Overwritten { entry: entry.clone(), id: writer.id() };
        self.overwritten.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    }

    fn end(&self, file: &Overwritten, sync: bool) -> Result<(), TargetError> {
        let path = &file.entry.path;
        let swapped = || TargetError::Swapped { path: path.clone() };
        let (folder, name) = self.existing_parent(path)?.ok_or_else(swapped)?;
        // Its mark lets its owner write; one whose mark was refused may be writable only.
        let open = |access| rustix::fs::openat(&*folder, name, EXISTING | access, Mode::empty());
        let fd = open(OFlags::WRONLY).or_else(|_| open(OFlags::RDONLY)).map_err(TargetError::step("open", path))?;
        let stat = Stat::of(&fd).map_err(TargetError::step("look at", path))?;
        if Some(stat.id) != file.id {
            return Err(swapped());
        }
        if sync {
            rustix::fs::fdatasync(&fd).map_err(TargetError::step("write to disk", path))?;
        }
        let goal = Goal::of(&file.entry, self.ids(&file.entry), self.options.owners);
        let now = Now { stat: &stat, attributes: Attributes::Unknown, written_since: true };
        metadata::apply(&self.rights, &self.notes, path, Subject::Open(fd.as_fd()), &now, &goal)
    }
}
