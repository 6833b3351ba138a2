//! The results of a walk: entries, excluded entries, and missing ones.
//!
//! Every path a walk passes over is one of these, so that a report can name it.

use std::io;

use thiserror::Error;

use crate::found::Found;
use crate::path_text::PathText;

/// A result of the walk.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every item is the large one")]
pub enum Item {
    /// An entry for the version.
    Found(Found),
    /// An entry that was excluded, with all below it.
    Skipped {
        /// Its path.
        path: Vec<u8>,
        /// Why.
        reason: SkipReason,
    },
    /// An entry that is missing from the version, with all below it, against the user's wish.
    Problem(Problem),
}

/// Why something was left out on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// A socket has no contents and means nothing without the program that made it.
    Socket,
    /// It is on another file system than the root under which it was found.
    OtherFileSystem,
    /// A pattern matches it.
    Pattern,
    /// It is a folder with a tag file; the folder and the tag are in the version, its other
    /// contents are not.
    Tagged,
    /// It is a larger file than wanted.
    TooLarge,
}

/// A path that could not be walked, and why.
#[derive(Debug, Error)]
#[error("/{}: {error}", PathText(.path))]
pub struct Problem {
    /// The path, relative to `/`.
    pub path: Vec<u8>,
    /// The problem.
    #[source]
    pub error: WalkError,
}

/// Problems with one path.
#[derive(Debug, Error)]
pub enum WalkError {
    /// A path that was asked for does not exist.
    #[error("no such file or folder")]
    NotFound,
    /// A requested path goes through something that is no folder.
    #[error("a part of the path is not a folder")]
    NotADirectory,
    /// A requested path is inside another one, but behind a symlink, which is not followed there.
    #[error("lies behind a symbolic link inside another given path; give its real path")]
    BehindSymlink,
    /// Listed, but gone when looked at.
    #[error("vanished while the folder was read")]
    Vanished,
    /// A directory was replaced or moved while the walk was in or before it; its contents are
    /// missing.
    #[error("the folder was moved or replaced while it was read")]
    Moved,
    /// The metadata could not be read.
    #[error("cannot read metadata: {source}")]
    Stat {
        /// The message of the system.
        source: io::Error,
    },
    /// A directory could not be opened; its own entry is in the version.
    #[error("cannot open the folder: {source}")]
    OpenDirectory {
        /// The message of the system.
        source: io::Error,
    },
    /// A directory could not be listed to its end; the listed entries are in the version.
    #[error("cannot list the folder: {source}")]
    List {
        /// The message of the system.
        source: io::Error,
    },
    /// The target of a symlink could not be read.
    #[error("cannot read the symbolic link: {source}")]
    ReadLink {
        /// The message of the system.
        source: io::Error,
    },
}
