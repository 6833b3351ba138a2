//! Images: inputs that can be read at any offset, such as a disk, and what changed in them since an
//! earlier version.
//!
//! Without changes, an image is read from its first byte to its last, as a stream is. With changes,
//! `taken_over` decides which bytes are not read.

use std::io::{self, Read};
use std::ops::Range;

use larder_format::ids::JobId;

/// Bytes that can be read at any offset. They do not change while the backup runs.
pub trait ReadAt: Send {
    /// Their number.
    fn size(&self) -> u64;

    /// Fills the buffer with the bytes at `offset`. The range is within the image.
    ///
    /// # Errors
    /// Any error ends the backup without a version.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// The parts of an image that may differ from an earlier version.
///
/// A range that changed and is not named keeps its old bytes in the new version: nothing notices,
/// because nothing reads it. So a caller may only name a version whose content it knows for sure.
/// The backup itself takes nothing over from a version that this machine did not make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The version.
    pub since: JobId,
    /// The size of the image in that version, in bytes.
    pub size: u64,
    /// Ranges of bytes that may differ, in any order. Bytes behind `size` differ in any case.
    pub ranges: Vec<Range<u64>>,
}

/// An image, read from its first byte to its last.
pub(super) struct ImageReader {
    image: Box<dyn ReadAt>,
    at: u64,
}

impl ImageReader {
    pub(super) fn new(image: Box<dyn ReadAt>) -> Self {
        Self { image, at: 0 }
    }

    pub(super) fn size(&self) -> u64 {
        self.image.size()
    }

    /// Continues with the first byte.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
    }

    /// Continues behind the next `bytes`.
    pub(super) fn pass(&mut self, bytes: u64) {
        self.at += bytes;
    }
}

impl Read for ImageReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.size().saturating_sub(self.at);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.image.read_at(self.at, &mut buffer[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}
