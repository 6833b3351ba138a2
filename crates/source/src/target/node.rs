//! Symlinks, FIFOs and device nodes: things without content.

use larder_format::entry::{Entry, EntryKind};
use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, OFlags, makedev};
use rustix::io::Errno;

use super::error::TargetError;
use super::folders::Folder;
use super::metadata::{self, Attributes, Now};
use super::notes::NoteKind;
use super::policy::{KeptReason, Verdict, decide};
use super::subject::Subject;
use super::{Inner, Target};
use crate::stat::Stat;

/// Attempts at a place where another program makes and removes things at the same time.
const PLACE_ATTEMPTS: u32 = 4;

/// The result of [`Target::make_node`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeDecision {
    /// It was made.
    Made,
    /// It was there already; its metadata was put right where it differed.
    UpToDate,
    /// Something was left alone, or the thing cannot be made here; noted.
    Kept(KeptReason),
}

impl Target {
    /// Restores a symlink, FIFO or device node.
    pub fn make_node(&self, entry: &Entry) -> Result<NodeDecision, TargetError> {
        let inner = &*self.inner;
        let path = &entry.path;
        if matches!(entry.kind, EntryKind::File { .. } | EntryKind::Directory | EntryKind::HardLink { .. }) {
            return Err(TargetError::Misuse { path: path.clone(), problem: "neither a symlink nor a special file" });
        }
        if inner.options.omit.is_omitted(&entry.kind) {
            inner.notes.add(NoteKind::OmittedDevice, path, String::new);
            return Ok(NodeDecision::Kept(KeptReason::Omitted));
        }
        for _ in 0..PLACE_ATTEMPTS {
            let (folder, name) = match inner.parent(path) {
                Ok(Some(place)) => place,
                Ok(None) => return Ok(NodeDecision::Made),
                Err(error @ TargetError::NotBelowFolder { .. }) => {
                    let reason = inner.kept_out(path).ok_or(error)?;
                    return Ok(NodeDecision::Kept(inner.kept(path, reason)));
                }
                Err(error) => return Err(error),
            };
            if !inner.options.dry_run {
                match make(entry, &folder, name) {
                    Ok(()) => {
                        // Symlinks take no access control list from their folder.
                        let fresh = !folder.gives_acl || matches!(entry.kind, EntryKind::Symlink { .. });
                        let attributes = if fresh { Attributes::Fresh } else { Attributes::Unknown };
                        inner.dress(entry, &folder, name, attributes)?;
                        return Ok(NodeDecision::Made);
                    }
                    Err(Errno::EXIST) => {}
                    Err(Errno::NOENT) if !is_empty_link(entry) => {
                        inner.forget_parent(path);
                        continue;
                    }
                    Err(errno @ (Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)) => {
                        inner.notes.add(NoteKind::Node, path, || metadata::reason(Err(errno)));
                        return Ok(NodeDecision::Kept(KeptReason::NotPossible));
                    }
                    Err(errno) => return Err(TargetError::step("create", path)(errno)),
                }
            }
            match inner.look(&folder, name, path)? {
                Some(found) => {
                    if let Some(decision) = inner.node_over(entry, &folder, name, &found)? {
                        return Ok(decision);
                    }
                }
                None if inner.options.dry_run => return Ok(NodeDecision::Made),
                None => {}
            }
        }
        Err(TargetError::Swapped { path: path.clone() })
    }
}

impl Inner {
    /// The name exists. `None`: it is gone now, try again.
    fn node_over(
        &self,
        entry: &Entry,
        folder: &Folder,
        name: &[u8],
        found: &Stat,
    ) -> Result<Option<NodeDecision>, TargetError> {
        let path = &entry.path;
        let same_target = match &entry.kind {
            EntryKind::Symlink { target } if found.file_type.is_symlink() => {
                rustix::fs::readlinkat(folder, name, Vec::new()).is_ok_and(|now| now.as_bytes() == target)
            }
            _ => false,
        };
        match decide(entry, found, same_target, &self.around(entry)) {
            Verdict::Keep(reason) => Ok(Some(NodeDecision::Kept(self.kept(path, reason)))),
            Verdict::Same if self.options.dry_run => Ok(Some(NodeDecision::UpToDate)),
            Verdict::Same if found.links == 1 => {
                self.dress(entry, folder, name, Attributes::Unknown)?;
                Ok(Some(NodeDecision::UpToDate))
            }
            Verdict::Same => {
                let goal = self.goal(entry);
                if metadata::is_reached(&self.rights, Subject::Name { folder, name }, found, &goal) {
                    return Ok(Some(NodeDecision::UpToDate));
                }
                // A further name may be outside the target, so this one gets an inode of its own.
                self.clear(folder, name, path, found)?;
                Ok(None)
            }
            Verdict::InPlace | Verdict::Replace => {
                if let Some(reason) = self.clear(folder, name, path, found)? {
                    return Ok(Some(NodeDecision::Kept(self.kept(path, reason))));
                }
                if self.options.dry_run {
                    return Ok(Some(NodeDecision::Made));
                }
                if !found.file_type.is_dir() && found.file_type != file_type(&entry.kind) {
                    self.notes.add(NoteKind::Replaced, path, || "by a link or special file".to_owned());
                }
                Ok(None)
            }
        }
    }

    /// Sets the metadata of a node.
    fn dress(&self, entry: &Entry, folder: &Folder, name: &[u8], attributes: Attributes) -> Result<(), TargetError> {
        let path = &entry.path;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(TargetError::step("open", path))?;
        let stat = Stat::of(&place).map_err(TargetError::step("look at", path))?;
        if stat.file_type != file_type(&entry.kind) || stat.links > 1 {
            return Err(TargetError::Swapped { path: path.clone() });
        }
        let goal = self.goal(entry);
        let now = Now { stat: &stat, attributes, written_since: false };
        metadata::apply(&self.rights, &self.notes, path, Subject::Place(place.as_fd()), &now, &goal)
    }
}

/// The kernel refuses a link to nothing with the same word as a missing folder.
fn is_empty_link(entry: &Entry) -> bool {
    matches!(&entry.kind, EntryKind::Symlink { target } if target.is_empty())
}

fn file_type(kind: &EntryKind) -> FileType {
    match kind {
        EntryKind::File { .. } | EntryKind::HardLink { .. } => FileType::RegularFile,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Symlink { .. } => FileType::Symlink,
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::CharDevice { .. } => FileType::CharacterDevice,
        EntryKind::BlockDevice { .. } => FileType::BlockDevice,
    }
}

fn make(entry: &Entry, folder: &Folder, name: &[u8]) -> Result<(), Errno> {
    let device = match &entry.kind {
        EntryKind::Symlink { target } => return rustix::fs::symlinkat(target.as_slice(), folder, name),
        EntryKind::CharDevice { major, minor } | EntryKind::BlockDevice { major, minor } => makedev(*major, *minor),
        _ => 0,
    };
    // For the owner alone until the true mode is set: a device with open rights could be used in
    // between.
    rustix::fs::mknodat(folder, name, file_type(&entry.kind), Mode::from_raw_mode(0o600), device)
}
