//! [`VolumeError`]: why a store cannot do something.

use std::io;

use larder_format::{DecodeError, EncodeError, ErrorKind};

/// Why a store cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A file of the store cannot be read or written.
    #[error("{what}: {source}")]
    Io {
        /// The file, relative to the store.
        what: String,
        /// The reason.
        source: io::Error,
    },
    /// A file of the store is damaged or missing.
    #[error("{what} is damaged: {source}")]
    Damaged {
        /// The file, relative to the store, and the place in it.
        what: String,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// What was flushed is lost: records of the log are damaged and there are later ones, or a
    /// container is gone that records name.
    #[error("{what} is damaged: {source}")]
    DamagedLog {
        /// The slot and the place in it, or the container.
        what: String,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// Data of a volume cannot be read.
    #[error("volume {volume}, blocks {first} to {last}: {source}")]
    Blocks {
        /// Name of the volume.
        volume: String,
        /// First block that is concerned.
        first: u64,
        /// Last block.
        last: u64,
        /// The reason.
        source: Box<VolumeError>,
    },
    /// Another process has the store open.
    #[error("the store is in use by another process")]
    InUse,
    /// There is no store here.
    #[error("there is no volume store in {0}")]
    NoStore(String),
    /// The folder is not empty.
    #[error("{0} exists and is not an empty folder")]
    NotEmpty(String),
    /// The password opens no key of the store.
    #[error("the password opens no key of this store")]
    WrongKey,
    /// There is no volume of this name.
    #[error("there is no volume {0:?} in this store")]
    NoVolume(String),
    /// There is no snapshot of this name.
    #[error("there is no snapshot {0:?} in this store")]
    NoSnapshot(String),
    /// A volume of this name exists.
    #[error("a volume {0:?} exists already")]
    VolumeExists(String),
    /// A snapshot of this name exists.
    #[error("a snapshot {0:?} exists already")]
    SnapshotExists(String),
    /// The volume or snapshot is needed by others.
    #[error("{what} has {by}")]
    Needed {
        /// The volume or snapshot.
        what: String,
        /// What needs it: its snapshots or clones, by name.
        by: String,
    },
    /// The request goes beyond the end of a volume.
    #[error("the request ends behind the end of the volume, at {0} bytes")]
    BehindEnd(u64),
    /// A volume is over something outside of the store, which cannot be read.
    #[error("only the content below the volume has this, and it cannot be read: {source}")]
    Outside {
        /// The text that its creator gave.
        what: String,
        /// The reason.
        source: io::Error,
    },
    /// An argument has no meaning.
    #[error("{0}")]
    BadRequest(String),
    /// A chunk has the fingerprint of a stored one, and other bytes.
    #[error("a chunk has the fingerprint of that at offset {offset} of container {container}, and other bytes")]
    Collision {
        /// Container of the stored chunk.
        container: u32,
        /// Its offset in the container's payload.
        offset: u32,
    },
    /// The file system of the store is nearly full.
    #[error("the file system of the store is full: writes are refused, reads are not")]
    Full,
    /// A commit failed in a way that leaves its durability open.
    #[error("an earlier commit failed ({0}); restart the server to write again")]
    Stopped(String),
    /// A merge or a round of collection was stopped, because the store is about to close.
    #[error("it was stopped, because the store closes")]
    Interrupted,
    /// A mistake of the program: something panicked.
    #[error("a bug: {0}")]
    Bug(String),
    /// A value cannot be stored.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl VolumeError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn damaged(what: impl Into<String>) -> impl FnOnce(DecodeError) -> Self {
        let what = what.into();
        move |source| Self::Damaged { what, source }
    }

    /// An error of a file that must be there and must be whole: if it is missing or cut, that is
    /// damage.
    pub(crate) fn needed(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => {
                Self::Damaged { what, source: DecodeError::Truncated { what: "file" } }
            }
            _ => Self::Io { what, source },
        }
    }

    /// Whether nothing is connected to read the content below a volume.
    pub(crate) fn is_disconnected(&self) -> bool {
        match self {
            Self::Outside { source, .. } => source.kind() == io::ErrorKind::NotConnected,
            Self::Blocks { source, .. } => source.is_disconnected(),
            _ => false,
        }
    }

    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Full,
                _ => ErrorKind::Unusable,
            },
            Self::Damaged { source, .. } | Self::DamagedLog { source, .. } => source.kind(),
            Self::Blocks { source, .. } => source.kind(),
            Self::InUse => ErrorKind::LostRace,
            Self::NoStore(_) => ErrorKind::NoRepository,
            Self::WrongKey => ErrorKind::BadKey,
            Self::NoVolume(_)
            | Self::NoSnapshot(_)
            | Self::VolumeExists(_)
            | Self::SnapshotExists(_)
            | Self::Needed { .. }
            | Self::BehindEnd(_)
            | Self::BadRequest(_)
            | Self::NotEmpty(_) => ErrorKind::BadRequest,
            Self::Outside { .. } => ErrorKind::Unusable,
            Self::Full => ErrorKind::Full,
            Self::Stopped(_) | Self::Collision { .. } => ErrorKind::Unusable,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Bug(_) => ErrorKind::Bug,
            Self::Encode(error) => error.kind(),
        }
    }
}
