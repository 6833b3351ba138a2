//! Activities of a job and fates of entries: facts for [`Progress`](crate::Progress), which chooses
//! words.

use std::fmt;

/// The activity of a job on a path when a problem arose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Listing the entries of folders.
    Walk,
    /// Reading contents.
    Read,
    /// Reading extended attributes.
    ReadAttributes,
    /// Restoring an entry.
    Restore,
    /// Fetching what is restored: the repository has lost it.
    Fetch,
    /// Repairing a version.
    Repair,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Walk => "walk",
            Self::Read => "read",
            Self::ReadAttributes => "read attributes of",
            Self::Restore | Self::Fetch => "restore",
            Self::Repair => "repair",
        })
    }
}

/// The fate of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemFate {
    /// A backup found it for the first time.
    New,
    /// A backup found it changed.
    Changed,
    /// A backup found it unchanged.
    Unmodified,
    /// A restore wrote it.
    Restored,
    /// A restore deleted it.
    Deleted,
    /// A restore left it out for now: it needs data in cold storage.
    Cold,
}
