//! The decision for an entry whose place is taken, from two descriptions, without any effect.

use larder_format::entry::{Entry, EntryKind};
use rustix::fs::FileType;

use super::metadata::Rights;
use super::owner::{Ids, OwnerMode};
use super::unfinished;
use crate::stat::Stat;

/// When existing files are overwritten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Always. Size and time are not trusted: content is compared or written again.
    #[default]
    Always,
    /// When size or modification time differ; equal ones count as the same content.
    IfChanged,
    /// When the entry's modification time is later.
    IfNewer,
    /// Never: only missing entries are restored.
    Never,
}

/// Policy for a directory where the version has something else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FullDirectories {
    /// It is removed with everything in it, when the overwrite policy allows to replace it.
    #[default]
    Remove,
    /// It is removed when it is empty, else kept with a note.
    Keep,
}

/// Why something was kept instead of restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeptReason {
    /// It exists, and nothing is to be overwritten.
    Exists,
    /// The existing one is as new as the version's or newer.
    Newer,
    /// A directory with something in it is in the way.
    DirectoryNotEmpty,
    /// Another file system is mounted on a directory in the way.
    MountPoint,
    /// It belongs to a protected folder, or has one in it.
    Protected,
    /// The directory it belongs into was kept out by something that was kept itself.
    ParentKept,
    /// The user's rights or the file system do not allow such a thing to be made.
    NotPossible,
    /// Such things are left out on request.
    Omitted,
}

impl KeptReason {
    /// Whether something is there that the version does not know, and that stays.
    pub(super) fn is_in_the_way(self) -> bool {
        matches!(self, Self::DirectoryNotEmpty | Self::MountPoint | Self::Protected)
    }

    /// A clause for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Exists => "it exists already",
            Self::Newer => "the existing one is not older",
            Self::DirectoryNotEmpty => "a folder that is not empty is in the way",
            Self::MountPoint => "a mounted file system or a repository is in the way",
            Self::Protected => "the repository, its cache or its state is there",
            Self::ParentKept => "something else was kept in the place of its folder",
            Self::NotPossible => "it cannot be made here",
            Self::Omitted => "such things are left out on request",
        }
    }
}

/// The decision about one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has the right content; metadata may still differ.
    Same,
    /// Its content is written over, in the same inode.
    InPlace,
    /// It is removed and created again.
    Replace,
    /// It stays.
    Keep(KeptReason),
}

/// Everything beside the two descriptions that a decision depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    pub(super) overwrite: Overwrite,
    pub(super) owners: OwnerMode,
    pub(super) ids: Ids,
    pub(super) rights: &'a Rights,
}

/// Decides about `found`, which is in the place of `entry`. Whether two symlinks agree is the
/// caller's to find out (`same_target`).
pub(super) fn decide(entry: &Entry, found: &Stat, same_target: bool, around: &Circumstances<'_>) -> Verdict {
    let marked = unfinished::is_marked(found);
    let same = match (&entry.kind, found.file_type) {
        (EntryKind::Directory, FileType::Directory) => return Verdict::Same,
        (EntryKind::File { size, .. }, FileType::RegularFile) => {
            *size == found.size && entry.mtime == found.mtime && !marked
        }
        (EntryKind::Symlink { .. }, FileType::Symlink) => same_target,
        (EntryKind::Fifo, FileType::Fifo) => true,
        (EntryKind::CharDevice { major, minor }, FileType::CharacterDevice)
        | (EntryKind::BlockDevice { major, minor }, FileType::BlockDevice) => {
            (*major, *minor) == (found.major, found.minor)
        }
        _ => false,
    };
    let is_file = matches!(entry.kind, EntryKind::File { .. });
    match around.overwrite {
        Overwrite::Never if !marked => return Verdict::Keep(KeptReason::Exists),
        Overwrite::IfNewer if !marked && !same && entry.mtime <= found.mtime => {
            return Verdict::Keep(KeptReason::Newer);
        }
        // Of things without content nothing else is left to compare.
        Overwrite::Always if same && !is_file => return Verdict::Same,
        Overwrite::IfChanged | Overwrite::IfNewer if same => return Verdict::Same,
        _ => {}
    }
    if is_file && found.file_type == FileType::RegularFile { overwritten(found, around) } else { Verdict::Replace }
}

/// How an existing regular file gets new content.
pub(super) fn overwritten(found: &Stat, around: &Circumstances<'_>) -> Verdict {
    if may_write_over(found, around) { Verdict::InPlace } else { Verdict::Replace }
}

/// Whether writing into an existing inode changes no other file.
///
/// A file with a second name would change under that name too, which may be outside the target. A
/// file of a third user may be open in that user's hands for reading and writing.
fn may_write_over(found: &Stat, around: &Circumstances<'_>) -> bool {
    found.links == 1
        && (found.uid == around.rights.euid || found.uid == around.ids.uid || around.owners == OwnerMode::None)
}
