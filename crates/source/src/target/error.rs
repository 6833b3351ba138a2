//! Errors with the data of a restore, as facts, and how a restore continues after them.
//!
//! Problems with metadata alone are not errors, for instance an owner that may not be set or an
//! attribute unknown to the file system. They go to [`super::Notes`].

use std::io;
use std::path::PathBuf;

use larder_format::ErrorKind;
use rustix::io::Errno;

use crate::PathText;

/// A path that could not be restored, or a target that cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The folder to restore into cannot be created or opened.
    #[error("cannot use {} as the folder to restore into", root.display())]
    Root {
        /// As the caller gave it.
        root: PathBuf,
        /// The message of the system.
        #[source]
        source: io::Error,
    },
    /// Nothing may be restored there.
    #[error("nothing is restored into {}: {} is a repository", root.display(), folder.display())]
    Protected {
        /// As the caller gave it.
        root: PathBuf,
        /// The folder that has them.
        folder: PathBuf,
    },
    /// The temporary file with the metadata of folders cannot be read. Some folders may not have
    /// theirs.
    #[error("cannot read the temporary file with the metadata of folders")]
    Scratch(#[source] io::Error),
    /// A step failed on one path.
    #[error("cannot {action} {}", PathText(path))]
    Io {
        /// The step, to be read after "cannot".
        action: &'static str,
        /// Path in the version.
        path: Vec<u8>,
        /// The message of the system.
        #[source]
        source: io::Error,
    },
    /// A component above this path is a link or a file in the target, so the path would be
    /// somewhere else.
    #[error("{} is not below a real folder of the target: something on the way is a link or a file", PathText(path))]
    NotBelowFolder {
        /// Path in the version.
        path: Vec<u8>,
    },
    /// Another program put something else in this place while it was being restored.
    #[error("{} was replaced by another program while it was being restored", PathText(path))]
    Swapped {
        /// Path in the version.
        path: Vec<u8>,
    },
    /// The entry itself is not one that a backup makes.
    #[error("the entry {} of this version is damaged: {problem}", PathText(path))]
    BadEntry {
        /// Path in the version.
        path: Vec<u8>,
        /// The reason.
        problem: &'static str,
    },
    /// A file was to be finished before all its bytes had come. It stays marked as unfinished.
    #[error("{} got only {got} of its {expected} bytes", PathText(path))]
    Incomplete {
        /// Path in the version.
        path: Vec<u8>,
        /// Bytes the entry has in the data stream.
        expected: u64,
        /// Bytes written or declared as already right.
        got: u64,
    },
    /// The caller wrote outside a file's size, to a finished file, or gave the wrong number of
    /// bytes.
    #[error("wrong use of the restore target for {}: {problem}", PathText(path))]
    Misuse {
        /// Path in the version.
        path: Vec<u8>,
        /// The reason.
        problem: &'static str,
    },
}

/// The cause of a [`TargetError`], which decides how a restore continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetCause {
    /// No space or quota left: stop, more would fail as well. Running the restore again continues.
    Full,
    /// The target is read-only, gone or its disk fails: stop.
    Unusable,
    /// Rights are missing for this path: report it and continue.
    Denied,
    /// Another program changes the target, or links in it point elsewhere: report the path and
    /// continue.
    Unsafe,
    /// The version is damaged here: report the path and continue.
    Damaged,
    /// Any other trouble with this one path: report it and continue.
    Path,
    /// A mistake in the calling code.
    Bug,
}

impl TargetError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self.cause() {
            TargetCause::Full => ErrorKind::Full,
            TargetCause::Unusable | TargetCause::Denied | TargetCause::Path => ErrorKind::Resource,
            TargetCause::Unsafe => ErrorKind::Precondition,
            TargetCause::Damaged => ErrorKind::Damaged,
            TargetCause::Bug => ErrorKind::Bug,
        }
    }

    /// How a restore continues.
    pub fn cause(&self) -> TargetCause {
        match self {
            Self::Root { source, .. } => match cause_of(source) {
                TargetCause::Full => TargetCause::Full,
                TargetCause::Denied => TargetCause::Denied,
                _ => TargetCause::Unusable,
            },
            Self::Scratch(_) => TargetCause::Unusable,
            Self::Io { source, .. } => cause_of(source),
            Self::Protected { .. } | Self::NotBelowFolder { .. } | Self::Swapped { .. } => TargetCause::Unsafe,
            Self::BadEntry { .. } => TargetCause::Damaged,
            Self::Incomplete { .. } => TargetCause::Path,
            Self::Misuse { .. } => TargetCause::Bug,
        }
    }

    /// Path in the version, except for errors of the root and of the temporary file.
    pub fn path(&self) -> Option<&[u8]> {
        match self {
            Self::Root { .. } | Self::Protected { .. } | Self::Scratch(_) => None,
            Self::Io { path, .. }
            | Self::NotBelowFolder { path }
            | Self::Swapped { path }
            | Self::BadEntry { path, .. }
            | Self::Incomplete { path, .. }
            | Self::Misuse { path, .. } => Some(path),
        }
    }

    /// For `map_err` on a system call: which step failed on which path.
    pub(super) fn step(action: &'static str, path: &[u8]) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Io { action, path: path.to_vec(), source: errno.into() }
    }
}

fn cause_of(source: &io::Error) -> TargetCause {
    match Errno::from_io_error(source) {
        Some(Errno::NOSPC | Errno::DQUOT) => TargetCause::Full,
        Some(Errno::ROFS | Errno::IO | Errno::NODEV | Errno::NXIO | Errno::STALE) => TargetCause::Unusable,
        Some(Errno::ACCESS | Errno::PERM) => TargetCause::Denied,
        Some(Errno::LOOP) => TargetCause::Unsafe,
        _ => TargetCause::Path,
    }
}
