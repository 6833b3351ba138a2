//! Files whose old content was written over: they are finished together, when their new content is
//! on disk.
//!
//! A new file that loses its content in a power cut is too short or has a hole, which the next run
//! sees. A file that was written over in place has neither: the old bytes come back, at the right
//! length. So it keeps its mark (see [`super::unfinished`]) and gets its metadata only after a
//! sync, and to sync once for many files they wait here.
//!
//! Only its owner can read a marked file, and a running system may need it. So no more than
//! [`BATCH`] of them wait. The restore calls [`Target::finish_overwritten`] after each group of
//! files, also when it is interrupted. A process that dies before leaves marked files, whose
//! content the next run compares.

use std::sync::{MutexGuard, PoisonError};

use larder_format::entry::Entry;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};

use super::error::TargetError;
use super::file::{EXISTING, FileWriter};
use super::metadata::{self, Attributes, Now};
use super::subject::Subject;
use super::{Inner, Target};
use crate::stat::{InodeId, Stat};

/// Number of files that wait for one sync at most.
const BATCH: usize = 256;

/// Number of files that are synced one by one: that does not wait for writes of other programs.
const ONE_BY_ONE_MAX: usize = 32;

/// A file with its new content, marked as unfinished.
#[derive(Debug)]
struct Overwritten {
    entry: Entry,
    id: Option<InodeId>,
}

/// All files of a target that wait, and those that waited and could not be ended.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    files: Vec<Overwritten>,
    failed: Vec<(Vec<u8>, TargetError)>,
}

impl Target {
    /// Syncs overwritten files and finishes them. Returns those that could not be finished, now or
    /// before; an error of its own means that nothing could be synced.
    pub fn finish_overwritten(&self) -> Result<Vec<(Vec<u8>, TargetError)>, TargetError> {
        let files = std::mem::take(&mut self.inner.waiting().files);
        self.inner.end_all(files)?;
        Ok(std::mem::take(&mut self.inner.waiting().failed))
    }
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.overwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a file later, and now all that wait when they are many.
    pub(super) fn end_on_disk(&self, writer: &FileWriter, entry: &Entry) -> Result<(), TargetError> {
        let mut waiting = self.waiting();
        waiting.files.push(Overwritten { entry: entry.clone(), id: writer.id() });
        let batch = if waiting.files.len() < BATCH { Vec::new() } else { std::mem::take(&mut waiting.files) };
        drop(waiting);
        self.end_all(batch)
    }

    fn end_all(&self, files: Vec<Overwritten>) -> Result<(), TargetError> {
        let one_by_one = files.len() <= ONE_BY_ONE_MAX;
        if !one_by_one {
            self.sync()?;
        }
        for file in files {
            if let Err(error) = self.end(&file, one_by_one) {
                self.waiting().failed.push((file.entry.path, error));
            }
        }
        Ok(())
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
        let goal = self.goal(&file.entry);
        let now = Now { stat: &stat, attributes: Attributes::Unknown, written_since: true };
        metadata::apply(&self.rights, &self.notes, path, Subject::Open(fd.as_fd()), &now, &goal)
    }
}
