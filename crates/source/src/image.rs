//! Disk images: bytes that can be read at any offset, with holes that are not read, and maps of
//! what changed since an earlier version.
//!
//! * [`raw`]: files and block devices; [`nbd`]: any server of network block devices; [`uri`]: where
//!   such a server is;
//! * [`qcow2`]: images that no program has open; [`qemu`]: disks of a running QEMU; [`tracked`]:
//!   how their changes are noted;
//! * [`thin`]: volumes in thin pools of LVM;
//! * [`limited`]: images that are read at a limited rate;
//! * [`map`]: maps of changes in files, also those of `thin_delta` and `rbd diff`.
//!
//! An image does not change while it is read. Its source arranges that, or notices a change.

pub mod limited;
mod lvm;
pub mod map;
pub mod nbd;
mod pool;
pub mod qcow2;
pub mod qemu;
mod qmp;
pub mod raw;
mod rising;
mod stops;
pub mod thin;
mod thin_delta;
mod tool;
pub mod tracked;
pub mod uri;

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use larder_format::ErrorKind;
use larder_format::ids::JobId;
use thiserror::Error;

pub use limited::{LimitedImage, Pace, ReadLimit};
pub use lvm::ThinName;
pub use map::{ChangedMap, read_map, read_map_from};
pub use nbd::NbdImage;
pub use raw::RawImage;
pub use stops::Stops;
pub use tracked::{Ending, Names, Opening, Tracked};
pub use uri::NbdUri;

/// Bytes that can be read at any offset. They do not change while a backup runs.
pub trait Image: Send {
    /// Their number.
    fn size(&self) -> u64;

    /// Fills the buffer with the bytes at `offset`. The range is within the image.
    ///
    /// # Errors
    /// Any error ends the backup without a version.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Fills several buffers with the bytes at their offsets. Where reads have to wait, that is
    /// faster than one after another.
    ///
    /// # Errors
    /// Any error ends the backup without a version.
    fn read_parts(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        parts.iter_mut().try_for_each(|(offset, buffer)| self.read_at(*offset, buffer))
    }

    /// All was read. An error if the image changed meanwhile.
    ///
    /// # Errors
    /// Any error ends the backup without a version.
    fn finish(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The parts of an image that may differ from an earlier version.
///
/// A range that changed and is not named keeps its old bytes in the new version. So a map of a
/// source that is not known for sure has to be checked. The backup itself takes nothing over from a
/// version that this machine did not make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The version.
    pub since: JobId,
    /// The size of the image in that version, in bytes.
    pub size: u64,
    /// Ranges of bytes that may differ, in any order. Bytes behind `size` differ in any case.
    pub ranges: Vec<Range<u64>>,
}

/// An image, or a map of its changes, that cannot be used.
#[derive(Debug, Error)]
pub enum ImageError {
    /// A file or device cannot be opened or read.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The message of the system.
        source: io::Error,
    },
    /// It is neither a regular file nor a block device.
    #[error("{} is neither a regular file nor a block device", .path.display())]
    NotAnImage {
        /// The file.
        path: PathBuf,
    },
    /// A text does not say where a server of network block devices is.
    #[error("{uri} is not an address of a network block device: {why}")]
    Uri {
        /// The text.
        uri: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A server of network block devices cannot be used.
    #[error("cannot use {what}: {source}")]
    Nbd {
        /// The server.
        what: String,
        /// Why.
        source: larder_nbd::client::ClientError,
    },
    /// The folder with certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] larder_nbd::TlsError),
    /// A volume is not one that can be backed up so.
    #[error("cannot back up the volume {volume}: {why}")]
    Volume {
        /// Its group and name.
        volume: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A program of QEMU or of LVM failed, or cannot be started.
    #[error("{program}: {why}")]
    Tool {
        /// The program.
        program: String,
        /// Its last words, or the message of the system.
        why: String,
    },
    /// A map of changes has a line or element without a meaning.
    #[error("{} is no map of changes: {why}", .path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
}

impl ImageError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::Nbd { .. } | Self::Tls(_) | Self::Tool { .. } => ErrorKind::Resource,
            Self::NotAnImage { .. } | Self::Map { .. } | Self::Volume { .. } => ErrorKind::Precondition,
            Self::Uri { .. } => ErrorKind::BadRequest,
        }
    }
}
