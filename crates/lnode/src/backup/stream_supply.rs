//! The bytes of a stream or an image, as the feeder reads them.

use std::io::{self, Read};

use larder_format::entry::{EntryKind, Extent};

use super::image::ImageReader;
use super::read_window::Supply;

/// The source of a stream's bytes.
pub(super) enum StreamReader {
    /// It can only be read forward. Its size, if it is known.
    Forward(Box<dyn Read + Send>, Option<u64>),
    /// Parts of it may be left out.
    Image(ImageReader),
}

impl StreamReader {
    /// Bytes to come, when known.
    pub(super) fn size(&self) -> Option<u64> {
        match self {
            Self::Forward(_, size) => *size,
            Self::Image(image) => Some(image.data_bytes()),
        }
    }

    /// All was read. An error if the source does not vouch for it.
    pub(super) fn finish(&self) -> io::Result<()> {
        match self {
            Self::Forward(..) => Ok(()),
            Self::Image(image) => image.finish(),
        }
    }

    /// The file that holds `bytes` of data, all of them.
    pub(super) fn kind(&self, bytes: u64) -> EntryKind {
        match self {
            Self::Forward(..) => EntryKind::File { size: bytes, extents: None },
            Self::Image(image) => {
                EntryKind::File { size: image.size(), extents: image.extents().map(<[Extent]>::to_vec) }
            }
        }
    }
}

/// A stream. A failure ends it.
pub(super) struct StreamSupply {
    pub(super) reader: StreamReader,
    /// Bytes so far.
    pub(super) total: u64,
    /// The error that ended it.
    pub(super) failure: Option<io::Error>,
}

impl StreamSupply {
    /// A stream from its first byte on.
    pub(super) fn new(reader: StreamReader) -> Self {
        Self { reader, total: 0, failure: None }
    }
}

impl Supply for StreamSupply {
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        loop {
            let read = match &mut self.reader {
                StreamReader::Forward(reader, _) => reader.read(buffer),
                StreamReader::Image(image) => image.read(buffer),
            };
            match read {
                Ok(count) => {
                    self.total += count as u64;
                    return count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error);
                    return 0;
                }
            }
        }
    }

    fn pass(&mut self, bytes: u64) {
        match &mut self.reader {
            StreamReader::Forward(..) => debug_assert_eq!(bytes, 0, "a stream cannot be read in another way"),
            StreamReader::Image(image) => image.pass(bytes),
        }
        self.total += bytes;
    }
}
