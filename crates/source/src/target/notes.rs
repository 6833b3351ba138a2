//! Collects inexact restores, in bounded memory.
//!
//! A restore without root's rights fails to set the owner of every single file. One line with a
//! count and a few examples says enough. All restore threads add to one collector.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Examples kept of each kind.
pub const EXAMPLES_PER_KIND: usize = 5;

/// The subject of a note. One count and a few examples are kept for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum NoteKind {
    /// Kept because the overwrite policy says so.
    Kept,
    /// Not restored, because a folder with unknown contents is in its place.
    InTheWay,
    /// Something of another type in the way was removed.
    Replaced,
    /// Owner or group could not be set.
    Owner,
    /// Set-user-id or set-group-id left out because the owner it would act for could not be set.
    SetId,
    /// Permission bits could not be set.
    Mode,
    /// Times could not be set.
    Times,
    /// An extended attribute could not be set.
    Xattr,
    /// A POSIX access control list could not be set.
    Acl,
    /// File capabilities could not be set.
    Capability,
    /// An attribute that the version does not have could not be removed.
    ExtraXattr,
    /// A device or FIFO could not be made.
    Node,
    /// A hard link could not be made, so the file gets its own copy.
    HardLink,
    /// A directory could not be finished (opened again to set its metadata).
    Directory,
    /// Something that the version does not have could not or must not be deleted.
    NotDeleted,
    /// Something that the version cannot have was not deleted.
    Spared,
    /// Set-id bits or file capabilities left out on request.
    OmittedSetId,
    /// A device left out on request.
    OmittedDevice,
    /// An extended attribute left out on request.
    OmittedXattr,
}

impl NoteKind {
    /// Whether something of the version is missing in the target, so that the restore is only
    /// partly done.
    ///
    /// Owners are not counted: a normal user cannot set them, and that is known before.
    pub fn is_loss(self) -> bool {
        !matches!(
            self,
            Self::Kept
                | Self::Replaced
                | Self::Owner
                | Self::SetId
                | Self::HardLink
                | Self::Spared
                | Self::OmittedSetId
                | Self::OmittedDevice
                | Self::OmittedXattr
        )
    }

    /// One clause for a report, to be read after the count of paths.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Kept => "kept as they were, as the overwrite policy asks",
            Self::InTheWay => "not restored, because something else is in their place",
            Self::Replaced => "of another type replaced",
            Self::Owner => "without their owner or group: setting it needs more rights",
            Self::SetId => "without set-user-id or set-group-id, because their owner could not be set",
            Self::Mode => "without their permissions",
            Self::Times => "without their times",
            Self::Xattr => "without an extended attribute",
            Self::Acl => "without their access control list",
            Self::Capability => "without their file capabilities",
            Self::ExtraXattr => "with an extended attribute that the snapshot does not have",
            Self::Node => "not made: device nodes need more rights",
            Self::HardLink => "as copies instead of hard links",
            Self::Directory => "without their metadata: the folder could not be opened again",
            Self::NotDeleted => "not deleted, or not with everything in them",
            Self::Spared => "left in place, because backups leave such things out",
            Self::OmittedSetId => "without set-user-id, set-group-id or file capabilities, as the options ask",
            Self::OmittedDevice => "not made: the options leave out devices",
            Self::OmittedXattr => "without an extended attribute, as the options ask",
        }
    }
}

/// One example of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// Path in the version.
    pub path: Vec<u8>,
    /// Details: the attribute, the system's message.
    pub detail: String,
}

/// All notes of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSummary {
    /// Their subject.
    pub kind: NoteKind,
    /// How many there were.
    pub count: u64,
    /// The first of them, at most [`EXAMPLES_PER_KIND`].
    pub examples: Vec<Example>,
}

/// The collector. See the module header.
#[derive(Debug, Default)]
pub struct Notes {
    kinds: Mutex<BTreeMap<NoteKind, (u64, Vec<Example>)>>,
}

impl Notes {
    /// Counts one note; `detail` is only called while examples are still wanted.
    pub fn add(&self, kind: NoteKind, path: &[u8], detail: impl FnOnce() -> String) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, examples) = kinds.entry(kind).or_default();
        *count += 1;
        if examples.len() < EXAMPLES_PER_KIND {
            examples.push(Example { path: path.to_vec(), detail: detail() });
        }
    }

    /// Everything collected so far, in the order of [`NoteKind`].
    pub fn summary(&self) -> Vec<NoteSummary> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds
            .iter()
            .map(|(kind, (count, examples))| NoteSummary { kind: *kind, count: *count, examples: examples.clone() })
            .collect()
    }

    /// How many notes of one kind there are.
    pub fn count(&self, kind: NoteKind) -> u64 {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).get(&kind).map_or(0, |(count, _)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_after_the_examples_are_full() {
        let notes = Notes::default();
        for number in 0..1000_u32 {
            notes.add(NoteKind::Owner, format!("file {number}").as_bytes(), || format!("detail {number}"));
        }
        notes.add(NoteKind::Kept, b"other", String::new);
        let summary = notes.summary();
        assert_eq!(summary.len(), 2);
        assert_eq!((summary[0].kind, summary[0].count), (NoteKind::Kept, 1));
        assert_eq!((summary[1].kind, summary[1].count), (NoteKind::Owner, 1000));
        assert_eq!(summary[1].examples.len(), EXAMPLES_PER_KIND);
        assert_eq!(summary[1].examples[4], Example { path: b"file 4".to_vec(), detail: "detail 4".into() });
        assert_eq!(notes.count(NoteKind::Mode), 0);
    }
}
