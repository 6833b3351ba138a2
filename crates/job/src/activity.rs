//! What a job does with one path, and what became of it. Facts for [`Progress`](crate::Progress), which chooses words.

use std::fmt;

/// What a job was doing with a path when a problem arose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Looking for the entries of folders.
    Walk,
    /// Reading contents.
    Read,
    /// Reading extended attributes.
    ReadAttributes,
    /// Restoring an entry.
    Restore,
    /// Repairing a version.
    Repair,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Walk => "walk",
            Self::Read => "read",
            Self::ReadAttributes => "read attributes of",
            Self::Restore => "restore",
            Self::Repair => "repair",
        })
    }
}

/// What became of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemFate {
    /// A backup found it for the first time.
    New,
    /// A backup found it changed.
    Changed,
    /// A backup found it as it was.
    Unmodified,
    /// A restore wrote it.
    Restored,
    /// A restore deleted it.
    Deleted,
}
