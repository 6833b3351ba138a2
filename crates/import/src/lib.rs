//! Originals that other programs made, as versions of a repository: archives of tar, archives of
//! Borg, and snapshots of restic.
//!
//! Each kind of original becomes entries in the order of paths ([`larder_lnode::EntrySource`]),
//! which feed an ordinary backup. The version records its origin, so that nothing is imported twice
//! and an interrupted run goes on. Times, hosts, users and tags are those of the original.
//!
//! * [`mod@tar`]: archives, in any order, compressed or not.
//! * [`borg`]: archives of Borg, which it exports as archives of tar.
//! * `restic`: snapshots of restic repositories.
//! * [`original`]: what is known of an original, and what was imported before.
//! * [`series`]: names of series. [`compare`]: a version against its original.

pub mod borg;
pub mod compare;
pub mod original;
#[cfg(feature = "restic")]
pub mod restic;
pub mod series;
mod sound;
pub mod tar;

use std::io;

use larder_format::ErrorKind;
use larder_store::{RepositoryError, StoreError};

/// An original that cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The original cannot be read.
    #[error("the source cannot be read: {0}")]
    Read(#[source] io::Error),
    /// A temporary file cannot be written or read.
    #[error("a temporary file cannot be used: {0}")]
    Scratch(#[source] io::Error),
    /// There is no place for temporary files.
    #[error("a compressed archive, or one from a pipe, needs a folder for temporary files")]
    NoScratch,
    /// The file is no archive of tar.
    #[error("this is no tar archive, or one without members")]
    NotAnArchive,
    /// The archive is compressed by another program.
    #[error("the archive is compressed with {name}, which is not read")]
    Compression {
        /// The program.
        name: &'static str,
    },
    /// The other program cannot be started.
    #[error("the program {name} cannot be started: {source}")]
    NoProgram {
        /// Its name.
        name: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The other program failed.
    #[error("{name} failed: {message}")]
    Program {
        /// Its name.
        name: &'static str,
        /// What its error means here.
        kind: ErrorKind,
        /// Its message.
        message: String,
    },
    /// The repository of another program cannot be read.
    #[error("{message}")]
    Foreign {
        /// How a caller can react to it.
        kind: ErrorKind,
        /// Why.
        message: String,
    },
    /// The storage of the original failed.
    #[error(transparent)]
    Store(StoreError),
    /// The repository that is imported into failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl ImportError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Read(error) | Self::Scratch(error) if error.kind() == io::ErrorKind::StorageFull => ErrorKind::Full,
            Self::Read(_) | Self::Scratch(_) => ErrorKind::Resource,
            Self::Program { kind, .. } | Self::Foreign { kind, .. } => *kind,
            Self::NoScratch | Self::NoProgram { .. } | Self::NotAnArchive | Self::Compression { .. } => {
                ErrorKind::Precondition
            }
            Self::Store(error) => error.kind(),
            Self::Repository(error) => error.kind(),
        }
    }
}
