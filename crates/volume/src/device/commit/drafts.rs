//! New chunks of a batch in frames that are not compressed yet.

use std::ops::Range;

use larder_format::compress::Compressor;
use larder_format::container::{ChunkEntry, ChunkKind, IdentifiedFrame, compress_frame};
use larder_format::volume_map::Place;
use larder_format::{EncodeError, Fingerprint};

use crate::chain::Key;
use crate::index::{KeyMap, chunk_key};
use crate::store::FRAME_TARGET;

/// Chunks of a frame that is not compressed yet.
#[derive(Default)]
pub(super) struct Draft<'a> {
    /// Bytes, and the range of them that is meant. Neighbours in the same bytes are one part.
    parts: Vec<(&'a [u8], Range<usize>)>,
    pub(super) chunks: Vec<ChunkEntry>,
    bytes: usize,
}

impl<'a> Draft<'a> {
    fn push(&mut self, source: &'a [u8], range: Range<usize>) {
        self.bytes += range.len();
        match self.parts.last_mut() {
            Some((known, last)) if std::ptr::eq(*known, source) && last.end == range.start => last.end = range.end,
            _ => self.parts.push((source, range)),
        }
    }
}

/// New chunks of a batch, in frames.
#[derive(Default)]
pub(super) struct Drafts<'a> {
    pub(super) frames: Vec<Draft<'a>>,
    /// Frame, and offset in it, by key.
    chunks: KeyMap<(usize, usize)>,
}

impl<'a> Drafts<'a> {
    /// Takes a new chunk, unless the batch has it already: a range of `source`. Gives its frame and
    /// its offset in it.
    pub(super) fn add(&mut self, source: &'a [u8], range: Range<usize>, name: &Fingerprint) -> (usize, usize) {
        let key = chunk_key(name);
        if let Some(known) = self.chunks.get(&key) {
            return *known;
        }
        if self.frames.last().is_none_or(|last| last.bytes > 0 && last.bytes + range.len() > FRAME_TARGET) {
            self.frames.push(Draft::default());
        }
        let number = self.frames.len() - 1;
        let draft = &mut self.frames[number];
        let at = (number, draft.bytes);
        draft.chunks.push(ChunkEntry { fingerprint: *name, size: range.len() as u32, kind: ChunkKind::Plain });
        draft.push(source, range);
        self.chunks.insert(key, at);
        at
    }

    /// The places of all chunks, when frames begin at these.
    pub(super) fn places<'s>(&'s self, frames: &'s [Place]) -> impl Iterator<Item = (Key, Place)> + 's {
        let place = |(frame, within): (usize, usize)| place_in(frames, frame, within);
        self.chunks.iter().map(move |(key, at)| (*key, place(*at)))
    }
}

/// The place of a chunk in a frame.
pub(super) fn place_in(frames: &[Place], frame: usize, within: usize) -> Place {
    let Place { container, offset } = frames[frame];
    Place { container, offset: offset + within as u32 }
}

/// Compresses a frame.
pub(super) fn compress(compressor: &mut Compressor, draft: &Draft<'_>) -> Result<IdentifiedFrame, EncodeError> {
    let mut joined;
    let raw: &[u8] = match &draft.parts[..] {
        [(source, range)] => &source[range.clone()],
        parts => {
            joined = Vec::with_capacity(draft.bytes);
            parts.iter().for_each(|(source, range)| joined.extend_from_slice(&source[range.clone()]));
            &joined
        }
    };
    compress_frame(raw, &draft.chunks, compressor)
}
