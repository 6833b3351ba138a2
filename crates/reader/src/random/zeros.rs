//! Which parts of a file are zeros: holes, and stored chunks of zeros.
//!
//! Streams and devices are stored without holes, so their zeros are chunks. Such a chunk is known
//! by its fingerprint, without its content. Only the segments of the recipe are read, which reads
//! of the same range need too.

use std::collections::HashMap;
use std::ops::Range;

use larder_chunking::Fingerprinter;
use larder_format::{ChunkRef, Fingerprint};
use parking_lot::Mutex;

use super::contents::Stretch;
use super::{RandomReader, Shared};

/// Segments that one question reads at most.
const SEGMENTS: usize = 32;
/// Sizes of chunks whose fingerprint is remembered at most.
const SIZES: usize = 1 << 16;

/// The fingerprints of zeros, by their number.
#[derive(Debug, Default)]
pub(super) struct Zeros(Mutex<HashMap<u32, Fingerprint>>);

impl Zeros {
    /// Whether a chunk is zeros.
    fn are(&self, chunk: &ChunkRef, fingerprinter: &Fingerprinter) -> bool {
        let mut known = self.0.lock();
        if known.len() >= SIZES {
            known.clear();
        }
        let of_zeros = known.entry(chunk.size).or_insert_with(|| fingerprinter.one(&vec![0; chunk.size as usize]));
        *of_zeros == chunk.fingerprint
    }
}

impl RandomReader {
    /// The same as [`RandomReader::stretches`], where stored zeros are holes too. It may end before
    /// the range, because it reads a bounded part of the recipe. What cannot be read counts as
    /// data: a read tells the reason.
    pub fn zero_stretches(&self, range: Range<u64>, most: usize) -> Vec<Stretch> {
        let mut stretches = Stretches { found: Vec::new(), most };
        let mut left = SEGMENTS;
        for piece in self.shared.contents.pieces(range) {
            let (offset, length) = (piece.range.start, piece.range.end - piece.range.start);
            let is_whole = match piece.stored {
                None => stretches.add(offset, length, true),
                Some(stored) => self.shared.add_stored(offset, stored..stored + length, &mut left, &mut stretches),
            };
            if !is_whole {
                break;
            }
        }
        stretches.found
    }
}

impl Shared {
    /// Adds a range of the data stream that begins at `offset` of the file. Whether that was all.
    fn add_stored(&self, offset: u64, stored: Range<u64>, left: &mut usize, stretches: &mut Stretches) -> bool {
        let mut at = stored.start;
        while at < stored.end {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            let place = |at: u64| offset + (at - stored.start);
            let Ok(Some(segment)) = self.places.segment(at) else {
                return stretches.add(place(at), stored.end - at, false);
            };
            let first = segment.chunk_at(at).unwrap_or(segment.chunks.len());
            for (number, chunk) in segment.chunks.iter().enumerate().skip(first) {
                let end = (segment.start_of(number) + u64::from(chunk.size)).min(stored.end);
                if at >= end {
                    break;
                }
                if !stretches.add(place(at), end - at, self.zeros.are(chunk, &self.fingerprinter)) {
                    return false;
                }
                at = end;
            }
            if at < segment.end().min(stored.end) {
                // A segment without the byte that it was found for.
                return stretches.add(place(at), stored.end - at, false);
            }
        }
        true
    }
}

/// Stretches without gaps between them.
struct Stretches {
    found: Vec<Stretch>,
    most: usize,
}

impl Stretches {
    /// Appends, unless there are as many as there may be.
    fn add(&mut self, offset: u64, length: u64, is_hole: bool) -> bool {
        let is_full = self.found.len() >= self.most;
        match self.found.last_mut() {
            Some(last) if last.is_hole == is_hole => last.length += length,
            _ if is_full => return false,
            _ => self.found.push(Stretch { offset, length, is_hole }),
        }
        true
    }
}
