//! Hard links: further names of restored files.

use larder_format::entry::{Entry, EntryKind, is_valid_path};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::error::TargetError;
use super::folders::Folder;
use super::metadata;
use super::notes::NoteKind;
use super::policy::{KeptReason, Verdict, decide};
use super::{Inner, Target, unfinished};
use crate::stat::Stat;

/// Attempts at a place where another program makes and removes things at the same time.
const PLACE_ATTEMPTS: u32 = 4;

/// The result of [`Target::make_link`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkDecision {
    /// It is a further name of the first now.
    Linked,
    /// It was one already.
    UpToDate,
    /// It was left alone, and noted.
    Kept(KeptReason),
    /// There is no restored first name to link to: it is not selected, was kept in another state,
    /// or links are impossible here. The caller restores the content under this name, as a file of
    /// its own.
    NeedsContent,
}

impl Target {
    /// Makes a hard link to the first name of its group, which must be finished.
    ///
    /// The modification time tells whether the first name is the version's file and not another one
    /// that was kept there. All names of a group share it.
    ///
    /// For callers that have restored the first name in the same run, and let it be overwritten.
    /// Others have to say its size: [`Self::make_link_of_size`].
    pub fn make_link(&self, entry: &Entry) -> Result<LinkDecision, TargetError> {
        self.make_link_of_size(entry, None)
    }

    /// The same for a first name that may have been kept, or may be of an earlier run. It counts as
    /// the version's file if it has this size, bytes, as well. `None`: no size is asked for.
    pub fn make_link_of_size(&self, entry: &Entry, size: Option<u64>) -> Result<LinkDecision, TargetError> {
        let inner = &*self.inner;
        let path = &entry.path;
        let EntryKind::HardLink { target } = &entry.kind else {
            return Err(TargetError::Misuse { path: path.clone(), problem: "not a hard link" });
        };
        if !is_valid_path(path) {
            return Err(TargetError::BadEntry { path: path.clone(), problem: "its path could leave the target" });
        }
        if !is_valid_path(target) {
            return Err(TargetError::BadEntry { path: path.clone(), problem: "its first name could leave the target" });
        }
        for _ in 0..PLACE_ATTEMPTS {
            let Some((first_folder, first_name)) = inner.existing_parent(target)? else {
                return Ok(if inner.options.dry_run { LinkDecision::Linked } else { LinkDecision::NeedsContent });
            };
            let Some(first) = inner
                .look(&first_folder, first_name, target)?
                .filter(|first| is_restored(entry, inner.options.omit.mode(entry), first))
                .filter(|first| size.is_none_or(|size| first.file_type == FileType::RegularFile && first.size == size))
            else {
                // In a dry run the first name was not made, but it would have been.
                return Ok(if inner.options.dry_run { LinkDecision::Linked } else { LinkDecision::NeedsContent });
            };
            let (folder, name) = match inner.parent(path) {
                Ok(Some(place)) => place,
                Ok(None) => return Ok(LinkDecision::Linked),
                Err(error @ TargetError::NotBelowFolder { .. }) => {
                    let reason = inner.kept_out(path).ok_or(error)?;
                    return Ok(LinkDecision::Kept(inner.kept(path, reason)));
                }
                Err(error) => return Err(error),
            };
            if !inner.options.dry_run {
                match rustix::fs::linkat(&*first_folder, first_name, &*folder, name, AtFlags::empty()) {
                    Ok(()) => return Ok(LinkDecision::Linked),
                    Err(Errno::EXIST) => {}
                    Err(Errno::NOENT) => {
                        inner.forget_parent(path);
                        inner.forget_parent(target);
                        continue;
                    }
                    Err(errno @ (Errno::PERM | Errno::MLINK | Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS)) => {
                        inner.notes.add(NoteKind::HardLink, path, || metadata::reason(Err(errno)));
                        return Ok(LinkDecision::NeedsContent);
                    }
                    Err(errno) => return Err(TargetError::step("link", path)(errno)),
                }
            }
            match inner.look(&folder, name, path)? {
                Some(found) => {
                    if let Some(decision) = inner.link_over(entry, &folder, name, &found, &first)? {
                        return Ok(decision);
                    }
                }
                None if inner.options.dry_run => return Ok(LinkDecision::Linked),
                None => {}
            }
        }
        Err(TargetError::Swapped { path: path.clone() })
    }
}

impl Inner {
    /// The name exists. `None`: it is gone now, try again.
    fn link_over(
        &self,
        entry: &Entry,
        folder: &Folder,
        name: &[u8],
        found: &Stat,
        first: &Stat,
    ) -> Result<Option<LinkDecision>, TargetError> {
        let path = &entry.path;
        if found.id == first.id {
            return Ok(Some(LinkDecision::UpToDate));
        }
        match decide(entry, found, false, &self.around(entry)) {
            Verdict::Keep(reason) => Ok(Some(LinkDecision::Kept(self.kept(path, reason)))),
            Verdict::Same | Verdict::InPlace | Verdict::Replace => {
                if let Some(reason) = self.clear(folder, name, path, found)? {
                    return Ok(Some(LinkDecision::Kept(self.kept(path, reason))));
                }
                Ok(self.options.dry_run.then_some(LinkDecision::Linked))
            }
        }
    }
}

/// Whether the first name is the version's file. File systems with coarse times keep only the whole
/// seconds.
fn is_restored(entry: &Entry, mode: u32, first: &Stat) -> bool {
    let same_time =
        first.mtime == entry.mtime || (first.mtime.nanos == 0 && first.mtime.seconds == entry.mtime.seconds);
    let is_whole = !unfinished::is_marked(first) || mode == first.mode;
    !first.file_type.is_dir() && same_time && is_whole
}
