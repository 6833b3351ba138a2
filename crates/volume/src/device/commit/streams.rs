//! The bytes of a batch as streams, and the items that blocks get of their chunks.

use std::ops::Range;

use larder_chunking::Algorithm;
use larder_format::volume_map::{BLOCK_LEN, MapItem, Place};

use parking_lot::Mutex;

use super::super::splice::push_zeros;
use super::batch::Changing;
use crate::store::Store;
use crate::workers;

/// Bytes that are worth a thread to copy them.
const COPIED_EACH: usize = 1 << 20;

/// Consecutive parts of blocks that are cut as one stream.
pub(super) struct Stream {
    /// Its bytes among those of the batch.
    pub(super) range: Range<usize>,
    /// Where it begins in its volume.
    pub(super) start: u64,
    /// Which block of the batch, and the bytes of it.
    parts: Vec<(usize, Range<u32>)>,
}

/// A chunk of a stream, and what it became.
pub(super) struct Item {
    pub(super) length: u32,
    /// `None`: zeros.
    pub(super) place: Option<Place>,
    pub(super) tag: [u8; 4],
}

impl Store {
    /// The streams of the blocks that changed, and the bytes of all. These are copied into `room`,
    /// once.
    pub(super) fn streams<'r>(&self, batch: &[Changing], room: &'r mut Vec<u8>) -> (Vec<Stream>, &'r [u8]) {
        let (streams, length) = Self::layout(batch);
        if room.len() < length {
            room.resize(length, 0);
        }
        let bytes = &mut room[..length];
        let mut rest = &mut *bytes;
        let mut copies = Vec::with_capacity(batch.len());
        for (number, part) in streams.iter().flat_map(|stream| &stream.parts) {
            let (target, behind) = rest.split_at_mut(part.len());
            rest = behind;
            copies.push(Mutex::new((&batch[*number].dirty, part.start, target)));
        }
        let threads = self.threads_for(length, COPIED_EACH);
        workers::map(threads, &copies, |copy| {
            let (dirty, from, target) = &mut *copy.lock();
            dirty.overlay(*from, target);
        });
        (streams, bytes)
    }

    /// The streams of the blocks that changed, and the bytes that they have together.
    fn layout(batch: &[Changing]) -> (Vec<Stream>, usize) {
        let mut streams: Vec<Stream> = Vec::new();
        let (mut end, mut length) = (None, 0);
        for (number, changing) in batch.iter().enumerate() {
            let (volume, block) = changing.key;
            if changing.is_unchanged || changing.dirty.is_zeros() {
                continue;
            }
            for part in changing.dirty.ranges() {
                let start = block * u64::from(BLOCK_LEN) + u64::from(part.start);
                if end != Some((volume, start)) || streams.is_empty() {
                    streams.push(Stream { range: length..length, start, parts: Vec::new() });
                }
                let Some(stream) = streams.last_mut() else { continue };
                length += part.len();
                stream.range.end = length;
                end = Some((volume, start + part.len() as u64));
                stream.parts.push((number, part));
            }
        }
        (streams, length)
    }

    /// Bytes of a stream before the first cut. Chunks of one length are cut where they are in the
    /// volume, so that a page of it has the same chunks in whatever request it arrives.
    pub(super) fn lead(&self, stream: &Stream) -> usize {
        let params = self.chunker.params();
        match params.algorithm {
            Algorithm::Fixed => {
                let lead = stream.start.next_multiple_of(u64::from(params.max)) - stream.start;
                (lead as usize).min(stream.range.len())
            }
            _ => 0,
        }
    }
}

impl Stream {
    /// The block of the batch where a byte of the stream goes. `at` rises from call to call with
    /// one `cursor`, which begins as zeros.
    pub(super) fn block_of(&self, at: usize, cursor: &mut (usize, usize)) -> usize {
        let (part, before) = cursor;
        while *part + 1 < self.parts.len() && at >= *before + self.parts[*part].1.len() {
            *before += self.parts[*part].1.len();
            *part += 1;
        }
        self.parts[*part].0
    }

    /// Gives every part of the stream the items that it consists of.
    pub(super) fn assign(&self, batch: &mut [Changing], chunks: &[Item]) {
        let (mut chunk, mut used) = (0, 0);
        for (number, range) in &self.parts {
            let mut items = Vec::new();
            let mut left = range.end - range.start;
            while left > 0 {
                let Item { length, place, tag } = &chunks[chunk];
                let take = left.min(length - used);
                match place {
                    None => push_zeros(take, &mut items),
                    Some(_) => {
                        items.push(MapItem { place: *place, skip: used as u16, length: take as u16, tag: *tag });
                    }
                }
                left -= take;
                used += take;
                if used == *length {
                    (chunk, used) = (chunk + 1, 0);
                }
            }
            batch[*number].parts.push((range.clone(), items));
        }
    }
}
