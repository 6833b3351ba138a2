//! Images as the backup reads them: the runs that hold data, one behind the other.
//!
//! Holes are neither read nor stored. So an offset in the image and one in its data stream differ,
//! and [`Runs`] translates them. Without changes, an image is read from its first byte to its last,
//! as a stream is. With changes, `taken_over` decides which bytes are not read.

use std::io::{self, Read};
use std::num::NonZeroU32;
use std::ops::Range;

use larder_format::entry::Extent;
use larder_source::image::{Changes, Image};

/// How far a map of changes is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapTrust {
    /// It is right.
    Full,
    /// It may be wrong: random parts that it leaves out are read and compared with the base. Each
    /// time as many versions in a row were not compared or read as a whole, all of them are
    /// compared; `None`: never.
    Checked(Option<NonZeroU32>),
}

/// An image to back up.
pub struct ImageInput {
    /// Path of its file in the version, valid by `entry::is_valid_path`.
    pub path: Vec<u8>,
    /// The bytes.
    pub image: Box<dyn Image>,
    /// The runs that hold data: rising, apart from each other, not empty, and within the image. The
    /// rest is zeros, and not read. `None`: there are no holes.
    pub extents: Option<Vec<Extent>>,
    /// What changed since earlier versions. If one of them is the base, the rest is taken over from
    /// it and not read. Else everything is read. The same happens when that version is not whole,
    /// when its size differs, or when another machine made it. The report says why.
    pub changes: Vec<Changes>,
    /// How far these maps are believed.
    pub trust: MapTrust,
}

/// The use of a map of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapReport {
    /// What happened.
    pub outcome: MapOutcome,
    /// Bytes that the map leaves out and that were read to check it.
    pub checked_bytes: u64,
}

/// See [`MapReport`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapOutcome {
    /// Only what it names was read, and little around that.
    Used,
    /// There was none for the base, for this reason. The whole image was read.
    Unusable(&'static str),
    /// It left out a change: the chunk at this offset of the image differs from the base. The
    /// whole image was read. Earlier versions may have old bytes too.
    Wrong {
        /// Where, in bytes from the beginning of the image.
        offset: u64,
    },
}

/// The data runs of a file, in its order.
#[derive(Debug, Clone)]
pub(super) struct Runs {
    /// Offset in the file, and offset in the data stream, of each run's beginning. The length of a
    /// run in the stream ends where the next one begins.
    starts: Vec<(u64, u64)>,
    /// Bytes of the data stream.
    bytes: u64,
}

impl Runs {
    /// The runs of a file of `size` bytes whose data begins at `first` of a data stream.
    pub(super) fn new(size: u64, extents: Option<&[Extent]>, first: u64) -> Self {
        let whole = [Extent { offset: 0, length: size }];
        let (mut starts, mut bytes) = (Vec::new(), first);
        for extent in extents.unwrap_or(&whole).iter().filter(|extent| extent.length > 0) {
            starts.push((extent.offset, bytes));
            bytes += extent.length;
        }
        Self { starts, bytes }
    }

    /// Where the data ends in the stream.
    pub(super) fn end(&self) -> u64 {
        self.bytes
    }

    /// A run: its range in the file, and the offset of its first byte in the stream.
    pub(super) fn run(&self, number: usize) -> Option<(Range<u64>, u64)> {
        let (start, at) = *self.starts.get(number)?;
        let end = self.starts.get(number + 1).map_or(self.bytes, |(_, next)| *next);
        Some((start..start + (end - at), at))
    }

    /// The run that holds a byte of the stream.
    fn number_at(&self, at: u64) -> usize {
        self.starts.partition_point(|(_, start)| *start <= at).saturating_sub(1)
    }

    /// The offset in the file of a byte of the stream, and the bytes of its run from there on.
    pub(super) fn place(&self, at: u64) -> (u64, u64) {
        let Some((range, start)) = self.run(self.number_at(at)) else { return (0, 0) };
        let offset = range.start + at.saturating_sub(start);
        (offset, range.end.saturating_sub(offset))
    }
}

/// The data of an image: the bytes of its runs, one behind the other.
pub struct ImageReader {
    image: Box<dyn Image>,
    /// As in the entry.
    extents: Option<Vec<Extent>>,
    runs: Runs,
    at: u64,
}

impl std::fmt::Debug for ImageReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageReader").field("at", &self.at).finish_non_exhaustive()
    }
}

impl ImageReader {
    /// An image, and the runs that hold data as in [`ImageInput`].
    pub fn new(image: Box<dyn Image>, extents: Option<Vec<Extent>>) -> Self {
        let runs = Runs::new(image.size(), extents.as_deref(), 0);
        Self { image, extents, runs, at: 0 }
    }

    /// Bytes of the image, with holes.
    pub(super) fn size(&self) -> u64 {
        self.image.size()
    }

    /// Bytes without holes.
    pub(super) fn data_bytes(&self) -> u64 {
        self.runs.end()
    }

    /// The runs that hold data.
    pub(super) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// The same as in an entry.
    pub(super) fn extents(&self) -> Option<&[Extent]> {
        self.extents.as_deref()
    }

    /// All was read. An error if the image changed meanwhile.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.image.finish()
    }

    /// Continues with the first byte.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
    }

    /// Continues behind the next `bytes`.
    pub(super) fn pass(&mut self, bytes: u64) {
        self.at += bytes;
    }

    /// Fills the buffer with the data at `at` of the stream.
    pub(super) fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_parts([(at, buffer)])
    }

    /// Fills several buffers with the data at their places in the stream.
    ///
    /// # Errors
    /// The image cannot be read there.
    pub fn read_parts<'a>(&self, wanted: impl IntoIterator<Item = (u64, &'a mut [u8])>) -> io::Result<()> {
        let mut parts = Vec::new();
        for (mut at, mut buffer) in wanted {
            while !buffer.is_empty() {
                let (offset, left) = self.runs.place(at);
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let (part, rest) = buffer.split_at_mut(count);
                parts.push((offset, part));
                (at, buffer) = (at + count as u64, rest);
            }
        }
        self.image.read_parts(&mut parts)
    }
}

impl Read for ImageReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.data_bytes().saturating_sub(self.at);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.read_at(self.at, &mut buffer[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_file_and_stream_are_translated() {
        let extents = [Extent { offset: 10, length: 5 }, Extent { offset: 20, length: 1 }];
        let runs = Runs::new(100, Some(&extents), 7);
        assert_eq!(runs.end(), 13);
        assert_eq!((runs.run(0), runs.run(1), runs.run(2)), (Some((10..15, 7)), Some((20..21, 12)), None));
        assert_eq!(
            (runs.place(7), runs.place(11), runs.place(12), runs.place(13)),
            ((10, 5), (14, 1), (20, 1), (21, 0))
        );
        let none = Runs::new(100, Some(&[]), 7);
        assert_eq!((none.run(0), none.end(), none.place(7)), (None, 7, (0, 0)));
        let whole = Runs::new(100, None, 0);
        assert_eq!((whole.run(0), whole.place(30)), (Some((0..100, 0)), (30, 70)));
        assert_eq!(Runs::new(0, None, 0).run(0), None);
    }
}
