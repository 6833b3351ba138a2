//! [`ReadError`]: why a file could not be read.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::path_text::PathText;

/// Why a file could not be read. Nothing of it, or not all of it, is in the version.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It is gone.
    #[error("/{}: vanished before it was read", PathText(.path))]
    Vanished {
        /// Path of the entry.
        path: Vec<u8>,
    },
    /// Something else is in its place.
    #[error("/{}: was replaced before it was read", PathText(.path))]
    Replaced {
        /// Path of the entry.
        path: Vec<u8>,
    },
    /// The entry has no contents of its own.
    #[error("/{}: is not a regular file", PathText(.path))]
    NotAFile {
        /// Path of the entry.
        path: Vec<u8>,
    },
    /// It could not be opened.
    #[error("cannot open /{}: {source}", PathText(.path))]
    Open {
        /// Path of the entry.
        path: Vec<u8>,
        /// The message of the system.
        source: io::Error,
    },
    /// It could not be read from some point on.
    #[error("cannot read /{} at byte {offset}: {source}", PathText(.path))]
    Read {
        /// Path of the entry.
        path: Vec<u8>,
        /// Where in the file.
        offset: u64,
        /// The message of the system.
        source: io::Error,
    },
}

impl ReadError {
    pub(crate) fn open(path: &[u8], error: Errno) -> Self {
        let path = path.to_vec();
        match error {
            Errno::NOENT => Self::Vanished { path },
            // A symlink, a socket or a device without driver where a regular file was.
            Errno::LOOP | Errno::NXIO | Errno::NODEV => Self::Replaced { path },
            error => Self::Open { path, source: error.into() },
        }
    }
}
