//! Where the contents of an archive's files are read from: the archive itself, or a file without a
//! name if the archive cannot be read at any offset.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// Contents while the archive is read.
#[derive(Debug)]
pub(super) enum Keeping {
    /// They are in this file, which is the archive.
    /// It must not change.
    InPlace(File, Stamp),
    /// They go into this file.
    Spool(Spool),
}

/// A file that takes contents one behind the other.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    written: u64,
    buffer: Vec<u8>,
}

impl Spool {
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: larder_spill::unnamed(folder)?, written: 0, buffer: Vec::new() })
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    pub(super) fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }
}

impl Keeping {
    /// The contents, to be read at any offset.
    pub(super) fn finish(self) -> io::Result<Contents> {
        match self {
            Self::InPlace(file, stamp) => Ok(Contents(Arc::new(file), Some(stamp))),
            Self::Spool(mut spool) => {
                spool.flush()?;
                Ok(Contents(Arc::new(spool.file), None))
            }
        }
    }
}

/// See the module header.
#[derive(Debug, Clone)]
pub(super) struct Contents(Arc<File>, Option<Stamp>);

/// Size and times of a file, as far as they show that it was changed.
pub(super) type Stamp = (u64, i64, i64, i64, i64);

/// The stamp of a file.
pub(super) fn stamp(file: &File) -> io::Result<Stamp> {
    let of = file.metadata()?;
    Ok((of.size(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()))
}

impl Contents {
    /// Fails if the archive was changed since the first reading began.
    pub(super) fn expect_unchanged(&self) -> io::Result<()> {
        match &self.1 {
            Some(before) if stamp(&self.0)? != *before => {
                Err(io::Error::other("the archive was changed while it was read"))
            }
            _ => Ok(()),
        }
    }

    /// Reads bytes at this offset; never none before the end of the buffer.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.0.read_at(buffer, offset)? {
            0 if !buffer.is_empty() => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive has become shorter while it was read"))
            }
            got => Ok(got),
        }
    }
}
