//! Directories: made writable at once, given their metadata at the end.

use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::sync::PoisonError;
use std::thread::Builder;

use larder_format::entry::{Entry, EntryKind};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::TargetError;
use super::folders::{Folder, Missing};
use super::metadata::{self, Attributes, Now};
use super::notes::NoteKind;
use super::owner::Ids;
use super::pending::{PendingDir, Rest};
use super::policy::{KeptReason, Overwrite, Verdict, decide};
use super::subject::Subject;
use super::{Inner, Target, unfinished};
use crate::stat::Stat;

/// Attempts at a place where another program makes and removes things at the same time.
const PLACE_ATTEMPTS: u32 = 4;

/// Directories for which a thread is worth starting.
const SHARE_MIN: usize = 16;

/// The result of [`Target::make_dir`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirDecision {
    /// It was made.
    Made,
    /// It was there.
    Existing,
    /// Something else stands there and was left alone, so nothing below can be restored; noted.
    Kept(KeptReason),
}

impl Target {
    /// Makes a directory, or takes the one that is there. Its metadata waits for
    /// [`Target::finish_dirs`].
    ///
    /// A directory that existed before keeps its metadata under [`Overwrite::Never`].
    pub fn make_dir(&self, entry: &Entry) -> Result<DirDecision, TargetError> {
        let inner = &*self.inner;
        let path = &entry.path;
        if entry.kind != EntryKind::Directory {
            return Err(TargetError::Misuse { path: path.clone(), problem: "not a directory" });
        }
        for _ in 0..PLACE_ATTEMPTS {
            let (folder, name) = match inner.parent(path) {
                Ok(Some(place)) => place,
                Ok(None) => return Ok(DirDecision::Made),
                Err(error @ TargetError::NotBelowFolder { .. }) => {
                    let reason = inner.kept_out(path).ok_or(error)?;
                    return Ok(DirDecision::Kept(inner.kept(path, reason)));
                }
                Err(error) => return Err(error),
            };
            if !inner.options.dry_run {
                match rustix::fs::mkdirat(&*folder, name, Mode::from_raw_mode(unfinished::DIRECTORY)) {
                    Ok(()) => {
                        let attributes = if folder.gives_acl { Attributes::Unknown } else { Attributes::Fresh };
                        inner.wait(entry, attributes);
                        return Ok(DirDecision::Made);
                    }
                    Err(Errno::EXIST) => {}
                    Err(Errno::NOENT) => {
                        inner.forget_parent(path);
                        continue;
                    }
                    Err(errno) => return Err(TargetError::step("create the folder", path)(errno)),
                }
            }
            match inner.look(&folder, name, path)? {
                Some(found) => {
                    if let Some(decision) = inner.dir_over(entry, &folder, name, &found)? {
                        return Ok(decision);
                    }
                }
                None if inner.options.dry_run => return Ok(DirDecision::Made),
                None => {}
            }
        }
        Err(TargetError::Swapped { path: path.clone() })
    }

    /// Sets the metadata of all directories made or taken so far, the deepest first. Call it when
    /// nothing more is put into them.
    pub fn finish_dirs(&self) -> Result<(), TargetError> {
        self.finish_dirs_with(NonZeroUsize::MIN)
    }

    /// The same with several threads.
    pub fn finish_dirs_with(&self, threads: NonZeroUsize) -> Result<(), TargetError> {
        loop {
            let block = self.inner.pending.lock().unwrap_or_else(PoisonError::into_inner).pop_block();
            let Some(mut block) = block.map_err(TargetError::Scratch)? else { return Ok(()) };
            let depth = |dir: &PendingDir| dir.path.iter().filter(|byte| **byte == b'/').count();
            // The mode of a directory may close it to us, so it has to wait for everything below.
            block.sort_by_cached_key(|dir| Reverse(depth(dir)));
            for equals in block.chunk_by(|a, b| depth(a) == depth(b)) {
                self.inner.finish_equals(equals, threads)?;
            }
        }
    }
}

impl Inner {
    /// The name exists. `None`: it is gone now, try again.
    fn dir_over(
        &self,
        entry: &Entry,
        folder: &Folder,
        name: &[u8],
        found: &Stat,
    ) -> Result<Option<DirDecision>, TargetError> {
        let path = &entry.path;
        let dry_run = self.options.dry_run;
        match decide(entry, found, false, &self.around(entry)) {
            Verdict::Same if dry_run => Ok(Some(DirDecision::Existing)),
            Verdict::Same => {
                let was_opened = self.make_writable(folder, name, path, found)?;
                if self.options.overwrite != Overwrite::Never || unfinished::is_marked(found) {
                    self.wait(entry, Attributes::Unknown);
                } else if was_opened {
                    self.push(&PendingDir { path: path.clone(), mode: found.mode, rest: None });
                }
                Ok(Some(DirDecision::Existing))
            }
            Verdict::Keep(reason) => {
                let mut kept_out = self.kept_out.lock().unwrap_or_else(PoisonError::into_inner);
                kept_out.insert(path.as_slice().into());
                drop(kept_out);
                Ok(Some(DirDecision::Kept(self.kept(path, reason))))
            }
            Verdict::InPlace | Verdict::Replace if dry_run => Ok(Some(DirDecision::Made)),
            Verdict::InPlace | Verdict::Replace => {
                // Only a directory can be kept by `clear`, and this is none.
                self.clear(folder, name, path, found)?;
                self.notes.add(NoteKind::Replaced, path, || "by a folder".to_owned());
                Ok(None)
            }
        }
    }

    /// Gives an own directory the rights that restoring into it needs. Root needs none.
    fn make_writable(&self, folder: &Folder, name: &[u8], path: &[u8], found: &Stat) -> Result<bool, TargetError> {
        if self.rights.euid == 0 || found.uid != self.rights.euid || found.mode & 0o700 == 0o700 {
            return Ok(false);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::openat(folder, name, flags, Mode::empty())
            .map_err(TargetError::step("open the folder", path))?;
        Subject::Place(place.as_fd())
            .chmod(found.mode | 0o700)
            .map_err(TargetError::step("get access to the folder", path))?;
        Ok(true)
    }

    fn wait(&self, entry: &Entry, attributes: Attributes) {
        let Entry { path, mtime, atime, xattrs, .. } = entry;
        let ids = self.ids(entry);
        let rest = Rest { ids, mtime: *mtime, atime: *atime, xattrs: xattrs.clone(), attributes };
        self.push(&PendingDir { path: path.clone(), mode: self.options.omit.mode(entry), rest: Some(rest) });
    }

    fn push(&self, dir: &PendingDir) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).push(dir);
    }

    /// Sets the metadata of directories, none of which is inside another.
    fn finish_equals(&self, dirs: &[PendingDir], threads: NonZeroUsize) -> Result<(), TargetError> {
        let share = dirs.len().div_ceil(threads.get()).max(SHARE_MIN);
        let finish = |share: &[PendingDir]| share.iter().try_for_each(|dir| self.finish_dir(dir));
        let (own, others) = dirs.split_at(share.min(dirs.len()));
        std::thread::scope(|scope| {
            let start = |share| (share, Builder::new().spawn_scoped(scope, move || finish(share)));
            let threads: Vec<_> = others.chunks(share).map(start).collect();
            let mut result = finish(own);
            for (share, thread) in threads {
                result = result.and(match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                    // No thread could be started for it.
                    Err(_) => finish(share),
                });
            }
            result
        })
    }

    fn finish_dir(&self, dir: &PendingDir) -> Result<(), TargetError> {
        let path = &dir.path;
        let Some(folders) = &self.folders else { return Ok(()) };
        let opened = folders.get(path, Missing::Fail).and_then(|folder| {
            let stat = Stat::of(&*folder)?;
            Ok((folder, stat))
        });
        let (folder, stat) = match opened {
            Ok(opened) => opened,
            Err(errno) => {
                self.notes.add(NoteKind::Directory, path, || metadata::reason(Err(errno)));
                return Ok(());
            }
        };
        let now = Ids { uid: stat.uid, gid: stat.gid };
        let (goal, attributes) = dir.goal(self.options.owners, &self.options.omit, now);
        let subject = if folder.path_only { Subject::Place(folder.as_fd()) } else { Subject::Open(folder.as_fd()) };
        let now = Now { stat: &stat, attributes, written_since: false };
        metadata::apply(&self.rights, &self.notes, path, subject, &now, &goal)
    }
}
