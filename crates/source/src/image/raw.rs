//! Images in files and block devices, byte for byte.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::time::SystemTime;

use larder_format::entry::Extent;
use rustix::fs::{Advice, fadvise};

use super::{Image, ImageError};
use crate::extents::data_extents;

/// The first bytes of a qcow2 image.
const QCOW2: [u8; 4] = *b"QFI\xfb";

/// An open file or block device. Holes of a file are known, and not read.
#[derive(Debug)]
pub struct RawImage {
    file: File,
    size: u64,
    /// When the file was last written to; of no meaning for a device.
    written: Option<SystemTime>,
    extents: Option<Vec<Extent>>,
}

impl RawImage {
    /// Opens a file or block device.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let failed = |source| ImageError::Io { path: path.to_owned(), source };
        // Not through `File::open` alone: a FIFO would wait for a writer.
        let kind = std::fs::metadata(path).map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(ImageError::NotAnImage { path: path.to_owned() });
        }
        let mut file = File::open(path).map_err(failed)?;
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        // Before the first look at its contents.
        let written = written(&file).map_err(failed)?;
        let extents = data_extents(&file, size).map_err(|error| failed(error.into()))?;
        file.rewind().map_err(failed)?;
        Ok(Self { file, size, written, extents })
    }

    /// The runs that hold data; everything between them is a hole. `None`: there is no hole.
    pub fn extents(&self) -> Option<&[Extent]> {
        self.extents.as_deref()
    }

    /// Whether it begins as a qcow2 image does. Then its bytes are not those of the disk, unless
    /// the disk itself begins so.
    pub fn looks_like_qcow2(&self) -> io::Result<bool> {
        let mut head = Vec::new();
        (&self.file).take(QCOW2.len() as u64).read_to_end(&mut head)?;
        Ok(head == QCOW2)
    }
}

impl Image for RawImage {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn read_parts(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        for (offset, buffer) in parts.iter() {
            // Only a hint: the disk may work on all of them at once.
            let _ = fadvise(&self.file, *offset, NonZeroU64::new(buffer.len() as u64), Advice::WillNeed);
        }
        parts.iter_mut().try_for_each(|(offset, buffer)| self.read_at(*offset, buffer))
    }

    fn finish(&self) -> io::Result<()> {
        if self.written == written(&self.file)? {
            return Ok(());
        }
        Err(io::Error::other("the file was written to while it was read: back up a snapshot of it, or stop its user"))
    }
}

fn written(file: &File) -> io::Result<Option<SystemTime>> {
    let found = file.metadata()?;
    if found.is_file() { found.modified().map(Some) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_holes_reads_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        let file = File::create(&path).expect("created");
        file.set_len(10 << 20).expect("sized");
        file.write_all_at(b"in the middle", 5 << 20).expect("written");
        let image = RawImage::open(&path).expect("opens");
        assert_eq!(image.size(), 10 << 20);
        let mut all = vec![1; 10 << 20];
        image.read_at(0, &mut all).expect("reads");
        assert!(all == std::fs::read(&path).expect("reads"));
        let (mut one, mut other) = (vec![1; 3 << 20], [1; 13]);
        image.read_parts(&mut [(4 << 20, &mut one), (5 << 20, &mut other)]).expect("reads");
        assert!(one == all[4 << 20..7 << 20] && other == *b"in the middle");
        let extents = image.extents().expect("holes");
        assert!(extents.iter().map(|run| run.length).sum::<u64>() < 1 << 20, "{extents:?}");
        assert!(extents.iter().any(|run| run.offset <= 5 << 20 && run.offset + run.length > (5 << 20) + 13));
        assert!(!image.looks_like_qcow2().expect("reads"));
        std::fs::write(&path, b"QFI\xfb and more").expect("written");
        assert!(RawImage::open(&path).expect("opens").looks_like_qcow2().expect("reads"));
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = RawImage::open(folder.path());
        assert!(matches!(refused, Err(ImageError::NotAnImage { .. })), "{refused:?}");
        let missing = RawImage::open(&folder.path().join("missing"));
        assert!(matches!(missing, Err(ImageError::Io { .. })), "{missing:?}");
    }

    #[test]
    fn an_image_that_shrinks_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        std::fs::write(&path, [7; 100]).expect("written");
        let image = RawImage::open(&path).expect("opens");
        File::options().write(true).open(&path).and_then(|file| file.set_len(50)).expect("shrunk");
        let error = image.read_at(40, &mut [0; 20]).expect_err("shorter");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        std::fs::write(&path, [7; 100]).expect("written");
        let image = RawImage::open(&path).expect("opens");
        image.finish().expect("nothing changed");
        let file = File::options().write(true).open(&path).expect("opens");
        file.set_modified(SystemTime::UNIX_EPOCH).expect("changed");
        assert!(image.finish().is_err());
    }
}
