//! The head of an input: looked at before the backup begins, as far as that is needed.
//!
//! The backup then gets the whole input: items of a walk and bytes of a stream come again, and the
//! others are read again. Errors come again too, where they were.

use std::collections::VecDeque;
use std::io::{self, Read};

use larder_chunking::StreamEnd;
use larder_format::entry::EntryKind;
use larder_job::Cancel;
use larder_source::image::Changes;
use larder_source::{FileReader, Item, Walk};

use super::super::image::{ImageInput, ImageReader, MapTrust};
use super::super::{EntrySource, Input, Supplied};
use super::sampler::{PIECE_BYTES, Sampler};

/// Items of a walk that are looked at before the backup begins.
const ITEMS_MAX: usize = 4096;
/// Folders among them: each is held open.
const FOLDERS_MAX: usize = 128;

/// An input whose head may have been looked at.
#[expect(clippy::large_enum_variant, reason = "one a job")]
pub(in super::super) enum Sampled {
    /// The items taken from the walk, and the walk.
    Tree(std::iter::Chain<std::vec::IntoIter<Item>, Walk>),
    /// As in [`Input::Stream`].
    Stream { path: Vec<u8>, reader: Box<dyn Read + Send>, size: Option<u64> },
    /// As in [`ImageInput`].
    Image(SampledImage),
    /// As in [`Input::Entries`]: nothing was looked at.
    Entries(Box<dyn EntrySource>),
}

/// An image whose head may have been looked at.
pub(in super::super) struct SampledImage {
    pub(in super::super) path: Vec<u8>,
    pub(in super::super) image: ImageReader,
    pub(in super::super) changes: Vec<Changes>,
    pub(in super::super) trust: MapTrust,
}

impl SampledImage {
    fn new(input: ImageInput) -> Self {
        let ImageInput { path, image, extents, changes, trust } = input;
        Self { path, image: ImageReader::new(image, extents), changes, trust }
    }
}

impl Sampled {
    /// An input as it is.
    pub(in super::super) fn untouched(input: Input) -> Self {
        match input {
            Input::Tree(walk) => Self::Tree(Vec::new().into_iter().chain(walk)),
            Input::Stream { path, reader, size } => Self::Stream { path, reader, size },
            Input::Image(image) => Self::Image(SampledImage::new(image)),
            Input::Entries(source) => Self::Entries(source),
        }
    }
}

/// An input while its head is looked at.
#[expect(clippy::large_enum_variant, reason = "one a job")]
pub(super) enum Head {
    Tree(TreeHead),
    Stream { path: Vec<u8>, reader: Box<dyn Read + Send>, size: Option<u64>, pieces: Pieces },
    Image(SampledImage, Pieces),
    Entries(EntriesHead),
}

impl Head {
    pub(super) fn new(input: Input) -> Self {
        match input {
            Input::Tree(walk) => Self::Tree(TreeHead::new(walk)),
            Input::Stream { path, reader, size } => Self::Stream { path, reader, size, pieces: Pieces::default() },
            Input::Image(image) => Self::Image(SampledImage::new(image), Pieces::default()),
            Input::Entries(source) => Self::Entries(EntriesHead { again: source.again(), source, is_in_file: false }),
        }
    }

    /// Whether what was read stays in memory.
    pub(super) fn is_held(&self) -> bool {
        matches!(self, Self::Stream { .. })
    }

    /// Reads on until the sampler has this number of bytes; returns whether there may be more.
    pub(super) fn read(&mut self, sampler: &mut Sampler<'_>, limit: u64, cancel: &Cancel) -> bool {
        match self {
            Self::Entries(entries) => entries.read(sampler, limit, cancel),
            Self::Tree(tree) => tree.read(sampler, limit, cancel),
            Self::Stream { reader, size, pieces, .. } => pieces.read(reader, *size, true, sampler, limit, cancel),
            Self::Image(SampledImage { image, .. }, pieces) => {
                let size = Some(image.data_bytes());
                pieces.read(image, size, false, sampler, limit, cancel)
            }
        }
    }

    /// The input from its beginning.
    pub(super) fn replayed(self) -> Sampled {
        match self {
            Self::Entries(entries) => Sampled::Entries(entries.source),
            Self::Tree(tree) => Sampled::Tree(tree.items.into_iter().chain(tree.walk)),
            Self::Stream { path, reader, size, pieces } => {
                let reader = Box::new(Replayed { pieces: pieces.held, at: 0, failure: pieces.failure, rest: reader });
                Sampled::Stream { path, reader, size }
            }
            Self::Image(mut sampled, _) => {
                // An error comes again when the backup reads there.
                sampled.image.rewind();
                Sampled::Image(sampled)
            }
        }
    }
}

/// The head of supplied entries, which are read twice.
pub(super) struct EntriesHead {
    source: Box<dyn EntrySource>,
    again: Box<dyn EntrySource>,
    is_in_file: bool,
}

impl EntriesHead {
    fn read(&mut self, sampler: &mut Sampler<'_>, limit: u64, cancel: &Cancel) -> bool {
        let mut buffer = vec![0; PIECE_BYTES];
        while !cancel.is_cancelled() {
            if sampler.bytes() >= limit {
                return true;
            }
            if self.is_in_file {
                let wanted = (limit - sampler.bytes()).min(PIECE_BYTES as u64) as usize;
                // An error comes again when the backup reads there.
                let Ok(got) = self.again.read(&mut buffer[..wanted]) else { return false };
                let end = if got == 0 { StreamEnd::Reached } else { StreamEnd::Open };
                sampler.piece(&buffer[..got], end);
                self.is_in_file = got > 0;
                continue;
            }
            let supplied = match self.again.next_entry() {
                Ok(Some(Supplied::Entry(supplied))) => supplied,
                Ok(Some(Supplied::Problem(_))) => continue,
                Ok(None) | Err(_) => return false,
            };
            let stored = supplied.entry.stored_bytes();
            if stored > 0 {
                sampler.begin(Some(stored));
                self.is_in_file = true;
            }
        }
        false
    }
}

/// The head of a tree.
pub(super) struct TreeHead {
    walk: Walk,
    items: Vec<Item>,
    folders: usize,
    folder: Vec<u8>,
    /// The file that is being read.
    file: Option<FileReader>,
    buffer: Vec<u8>,
}

impl TreeHead {
    fn new(walk: Walk) -> Self {
        Self { walk, items: Vec::new(), folders: 0, folder: Vec::new(), file: None, buffer: Vec::new() }
    }

    fn read(&mut self, sampler: &mut Sampler<'_>, limit: u64, cancel: &Cancel) -> bool {
        self.buffer.resize(PIECE_BYTES, 0);
        while !cancel.is_cancelled() {
            if sampler.bytes() >= limit {
                return true;
            }
            if self.file.is_none() && !self.next_item(sampler) {
                break;
            }
            let Some(file) = &mut self.file else { continue };
            let wanted = (limit - sampler.bytes()).min(PIECE_BYTES as u64) as usize;
            // An error recurs when the file is backed up, and is reported then.
            let got = file.read(&mut self.buffer[..wanted]).unwrap_or(0);
            let end = if got == 0 { StreamEnd::Reached } else { StreamEnd::Open };
            sampler.piece(&self.buffer[..got], end);
            if got == 0 {
                self.file = None;
            }
        }
        false
    }

    /// Takes an item of the walk, and opens it if it has contents. `false`: there is none, or too
    /// many would be held.
    fn next_item(&mut self, sampler: &mut Sampler<'_>) -> bool {
        if self.items.len() >= ITEMS_MAX || self.folders >= FOLDERS_MAX {
            return false;
        }
        let Some(mut item) = self.walk.next() else { return false };
        if let Item::Found(found) = &mut item {
            let path = &found.entry.path;
            let parent = &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
            if self.folder != parent {
                self.folder = parent.to_vec();
                self.folders += 1;
            }
            let is_read = !found.is_special_stream() && matches!(found.entry.kind, EntryKind::File { size: 1.., .. });
            self.file = if is_read { found.open().ok() } else { None };
            if let Some(file) = &self.file {
                sampler.begin(file.expected());
            }
        }
        self.items.push(item);
        true
    }
}

/// The head of a stream or an image.
#[derive(Default)]
pub(super) struct Pieces {
    has_begun: bool,
    /// The bytes that were read, if they do not come again.
    held: VecDeque<Vec<u8>>,
    /// The error that ended the reading.
    failure: Option<io::Error>,
    is_over: bool,
}

impl Pieces {
    fn read(
        &mut self,
        reader: &mut dyn Read,
        size: Option<u64>,
        holds: bool,
        sampler: &mut Sampler<'_>,
        limit: u64,
        cancel: &Cancel,
    ) -> bool {
        if !std::mem::replace(&mut self.has_begun, true) {
            sampler.begin(size);
        }
        while !self.is_over && sampler.bytes() < limit && !cancel.is_cancelled() {
            let wanted = (limit - sampler.bytes()).min(PIECE_BYTES as u64);
            let mut piece = Vec::new();
            match (&mut *reader).take(wanted).read_to_end(&mut piece) {
                Ok(_) => self.is_over = (piece.len() as u64) < wanted,
                Err(error) => (self.is_over, self.failure) = (true, Some(error)),
            }
            // A stream that fails is not backed up, so its end does not matter.
            sampler.piece(&piece, if self.is_over { StreamEnd::Reached } else { StreamEnd::Open });
            if holds && !piece.is_empty() {
                self.held.push_back(piece);
            }
        }
        !self.is_over && !cancel.is_cancelled()
    }
}

/// A stream whose beginning was read already.
struct Replayed {
    /// Each is freed when it was read.
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first one that were read.
    at: usize,
    /// The error that ended the reading of the head.
    failure: Option<io::Error>,
    rest: Box<dyn Read + Send>,
}

impl Read for Replayed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(piece) = self.pieces.front() {
            let count = buffer.len().min(piece.len() - self.at);
            buffer[..count].copy_from_slice(&piece[self.at..self.at + count]);
            self.at += count;
            if self.at == piece.len() {
                self.pieces.pop_front();
                self.at = 0;
            }
            return Ok(count);
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.rest.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing;

    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(broken())
        }
    }

    fn broken() -> io::Error {
        io::Error::other("the source is broken")
    }

    fn replayed(pieces: &[&[u8]], failure: Option<io::Error>, rest: impl Read + Send + 'static) -> Replayed {
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        Replayed { pieces, at: 0, failure, rest: Box::new(rest) }
    }

    #[test]
    fn what_was_read_comes_again_and_then_the_rest() {
        let mut reader = replayed(&[b"he", b"ad "], None, &b"and rest"[..]);
        let mut some = [0; 3];
        assert_eq!((reader.read(&mut some).expect("reads"), some[..2].to_vec()), (2, b"he".to_vec()));
        assert_eq!(reader.pieces.len(), 1, "what was read is freed");
        let mut all = Vec::new();
        reader.read_to_end(&mut all).expect("reads");
        assert_eq!(all, b"ad and rest");
    }

    #[test]
    fn a_failure_comes_where_it_was() {
        for mut reader in [replayed(&[b"head"], Some(broken()), &b"never"[..]), replayed(&[b"head"], None, Failing)] {
            let mut all = Vec::new();
            assert_eq!(reader.read_to_end(&mut all).expect_err("fails").to_string(), "the source is broken");
            assert_eq!(all, b"head");
        }
    }
}
