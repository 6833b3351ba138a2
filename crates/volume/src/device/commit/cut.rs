//! Cutting and fingerprinting streams on several cores.
//!
//! A long stream is cut from several positions at once. A cut depends only on where its chunk
//! starts and on the content behind, so two ways of cutting are the same from the first common cut
//! on. Where a segment ends, the stream goes on chunk by chunk until it meets a cut of the next
//! segment. So the chunks are those of a single thread.

use std::ops::Range;

use larder_chunking::StreamEnd;
use larder_format::Fingerprint;

use super::streams::Stream;
use crate::store::Store;
use crate::workers;

/// Bytes that one thread cuts at a time.
const SEGMENT: usize = 512 << 10;

/// Chunks of a stream in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    pub(super) lengths: Vec<u32>,
    pub(super) names: Vec<Fingerprint>,
}

/// A part of a stream. The first chunk begins at its start, and the last one begins before its end.
struct Segment {
    stream: usize,
    range: Range<usize>,
}

impl Store {
    /// Cuts all streams on at most `threads` threads, and fingerprints their chunks.
    pub(super) fn cut(&self, bytes: &[u8], streams: &[Stream], threads: usize) -> Vec<Chunks> {
        let mut segments = Vec::new();
        for (stream, of) in streams.iter().enumerate() {
            let mut from = of.range.start + self.lead(of);
            while from < of.range.end {
                let end = from.saturating_add(SEGMENT).min(of.range.end);
                segments.push(Segment { stream, range: from..end });
                from = end;
            }
        }
        let threads = threads.min(bytes.len() / (64 << 10)).max(1);
        let cut =
            workers::map(threads, &segments, |segment| self.cut_segment(bytes, &streams[segment.stream], segment));
        let mut all: Vec<Chunks> = streams.iter().map(|stream| self.leading(bytes, stream)).collect();
        // Where the chunks of each stream end so far.
        let mut ends: Vec<usize> = streams.iter().map(|stream| stream.range.start + self.lead(stream)).collect();
        for (segment, chunks) in segments.iter().zip(cut) {
            let (all, end) = (&mut all[segment.stream], &mut ends[segment.stream]);
            self.join(bytes, &streams[segment.stream], segment, &chunks, all, end);
        }
        all
    }

    fn leading(&self, bytes: &[u8], stream: &Stream) -> Chunks {
        let (lead, mut chunks) = (self.lead(stream), Chunks::default());
        if lead > 0 {
            let from = stream.range.start;
            self.push(&bytes[from..from + lead], &mut chunks);
        }
        chunks
    }

    fn push(&self, chunk: &[u8], out: &mut Chunks) {
        out.lengths.push(chunk.len() as u32);
        out.names.push(self.fingerprinter.one(chunk));
    }

    fn cut_segment(&self, bytes: &[u8], stream: &Stream, segment: &Segment) -> Chunks {
        let mut chunks = Chunks::default();
        let data = &bytes[segment.range.start..stream.range.end];
        let end = StreamEnd::Reached;
        self.chunker.cut_until(data, end, segment.range.len(), &mut chunks.lengths);
        self.fingerprinter.many(data, &chunks.lengths, &mut chunks.names);
        chunks
    }

    /// Appends the chunks of a segment to those before, which end at `end`.
    fn join(
        &self,
        bytes: &[u8],
        stream: &Stream,
        segment: &Segment,
        chunks: &Chunks,
        all: &mut Chunks,
        end: &mut usize,
    ) {
        let (mut number, mut at) = (0, segment.range.start);
        while *end < segment.range.end {
            while at < *end && number < chunks.lengths.len() {
                at += chunks.lengths[number] as usize;
                number += 1;
            }
            if at == *end && number < chunks.lengths.len() {
                all.lengths.extend_from_slice(&chunks.lengths[number..]);
                all.names.extend_from_slice(&chunks.names[number..]);
                *end += chunks.lengths[number..].iter().map(|length| *length as usize).sum::<usize>();
                return;
            }
            let length = self.chunker.next_cut(&bytes[*end..stream.range.end]);
            self.push(&bytes[*end..*end + length], all);
            *end += length;
        }
    }
}
