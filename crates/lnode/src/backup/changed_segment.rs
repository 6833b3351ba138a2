//! A segment of the base that has changed: its unchanged runs are proved one by one.
//!
//! Each run (a superchunk) has a MAC. Between them, data is cut in the ordinary way. Bytes that
//! were inserted or removed move all runs behind them. The lengths of the chunks just cut tell the
//! new place: two in a row that the segment has once are those of the segment.

use std::collections::HashMap;
use std::sync::Arc;

use larder_chunking::{RunMac, StreamEnd};
use larder_dedup::{Cut, History, HistoryCutter, Tools};
use larder_format::Fingerprint;
use larder_format::recipe::Proof;
use larder_format::segment::{ChunkRecord, Segment, Superchunk};
use larder_writer::{KnownRun, tail_of};

use super::proof_check::is_proved;
use super::read_window::Pieces;

/// A changed segment, part by part.
#[derive(Debug)]
pub(super) struct Changed {
    /// Its number in the base.
    number: u32,
    records: Arc<Vec<ChunkRecord>>,
    /// Where each record begins in the segment, and the segment's end.
    offsets: Vec<usize>,
    superchunks: Vec<Superchunk>,
}

/// The part of a stream that was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CutPart {
    /// The bytes that all pieces cover.
    pub(super) bytes: usize,
    /// The bytes that were inserted (or removed: negative) before the last run that was proved.
    pub(super) moved: i64,
}

impl Changed {
    pub(super) fn new(number: u32, segment: Segment) -> Self {
        let mut offsets = Vec::with_capacity(segment.records.len() + 1);
        offsets.push(0);
        let ends = segment.records.iter().scan(0, |end, record| {
            *end += record.chunk.size as usize;
            Some(*end)
        });
        offsets.extend(ends);
        Self { number, records: Arc::new(segment.records), offsets, superchunks: segment.superchunks }
    }

    /// Cuts `data`, which begins where the segment was expected, up to the segment's end. Unchanged
    /// superchunks are reused whole, and the data between them is cut in the ordinary way. A cut
    /// that misses a superchunk's beginning misses all of it.
    pub(super) fn cut(
        &self,
        data: &[u8],
        end: StreamEnd,
        tools: Tools<'_>,
        empty: &RunMac,
        pieces: &mut Pieces,
    ) -> CutPart {
        let chunker = tools.chunker;
        let mut past = Past::new(self, tools);
        let mut places = None;
        let max = chunker.params().max;
        // Bytes inserted so far, and those before the last run that was proved.
        let (mut shift, mut moved) = (0_isize, 0);
        // The first length that was cut since the last proved run.
        let mut cut_from = pieces.lengths.len();
        let mut at = 0;
        for superchunk in &self.superchunks {
            let (begin, past_end) =
                (self.offsets[superchunk.first], self.offsets[superchunk.first + superchunk.records]);
            let length = past_end - begin;
            let expected = begin.saturating_add_signed(shift);
            at += past.cut(&data[at..], end, expected.saturating_sub(at), pieces);
            if at != expected {
                let places = places.get_or_insert_with(|| self.unique_pairs());
                if let [.., before, last] = pieces.lengths[cut_from..]
                    && let Some(record) = places.get(&(before, last)).copied().flatten()
                {
                    shift = at as isize - self.offsets[record + 1] as isize;
                }
            }
            let decided = end == StreamEnd::Reached || at + length + max as usize <= data.len();
            if Some(at) != begin.checked_add_signed(shift) || !decided || at + length > data.len() {
                continue;
            }
            let records = &self.records[superchunk.first..superchunk.first + superchunk.records];
            let sizes = records.iter().map(|record| record.chunk.size);
            let mut mac = empty.clone();
            mac.update(&data[at..at + length]);
            let proof = Proof { mac: superchunk.mac, cutter: 0, tail: tail_of(sizes.clone(), max) };
            if !is_proved(&proof, length as u64, mac, &data[at..], chunker) {
                continue;
            }
            let first = pieces.lengths.len();
            pieces.lengths.extend(sizes);
            pieces.known.push(KnownRun {
                chunks: first..pieces.lengths.len(),
                records: self.records.clone(),
                first: superchunk.first,
                segment: self.number,
                mac: Some(superchunk.mac),
            });
            at += length;
            (moved, cut_from) = (shift as i64, pieces.lengths.len());
            past.next = superchunk.first + superchunk.records;
        }
        let whole = self.offsets.last().map_or(0, |end| end.saturating_add_signed(shift));
        at += past.cut(&data[at..], end, whole.saturating_sub(at), pieces);
        CutPart { bytes: at, moved }
    }

    /// The second of two records in a row, by their lengths; `None` for lengths that occur several
    /// times.
    fn unique_pairs(&self) -> HashMap<(u32, u32), Option<usize>> {
        let mut pairs = HashMap::with_capacity(self.records.len());
        for (first, pair) in self.records.windows(2).enumerate() {
            let lengths = (pair[0].chunk.size, pair[1].chunk.size);
            pairs.entry(lengths).and_modify(|place| *place = None).or_insert(Some(first + 1));
        }
        pairs
    }
}

/// Cuts the data between superchunks. If the chunker is slow, it predicts the segment's chunks one
/// by one (skip chunking).
struct Past<'a> {
    changed: &'a Changed,
    tools: Tools<'a>,
    cutter: Option<HistoryCutter>,
    cuts: Vec<Cut>,
    /// The record expected next.
    next: usize,
    places: HashMap<Fingerprint, usize>,
}

impl<'a> Past<'a> {
    fn new(changed: &'a Changed, tools: Tools<'a>) -> Self {
        let cutter = tools.chunker.is_worth_predicting().then(HistoryCutter::new);
        let mut places = HashMap::new();
        if cutter.is_some() {
            // The first of equal chunks is the better place to continue from.
            for (place, record) in changed.records.iter().enumerate().rev() {
                places.insert(record.chunk.fingerprint, place);
            }
        }
        Self { changed, tools, cutter, cuts: Vec::new(), next: 0, places }
    }

    fn cut(&mut self, data: &[u8], end: StreamEnd, stop: usize, pieces: &mut Pieces) -> usize {
        let Some(mut cutter) = self.cutter.take() else {
            return self.tools.chunker.cut_until(data, end, stop, &mut pieces.lengths);
        };
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.clear();
        let Ok(consumed) = cutter.cut(self.tools, self, data, end, stop, &mut cuts);
        for cut in &cuts {
            let chunk = pieces.lengths.len();
            pieces.lengths.push(cut.length);
            let Some(place) = cut.known.and_then(|known| self.places.get(&known.chunk.fingerprint)) else { continue };
            match pieces.known.last_mut() {
                Some(run) if run.mac.is_none() && run.chunks.end == chunk && run.first + run.chunks.len() == *place => {
                    run.chunks.end += 1
                }
                _ => pieces.known.push(KnownRun {
                    chunks: chunk..chunk + 1,
                    records: self.changed.records.clone(),
                    first: *place,
                    segment: self.changed.number,
                    mac: None,
                }),
            }
        }
        (self.cuts, self.cutter) = (cuts, Some(cutter));
        consumed
    }
}

impl History for Past<'_> {
    type Error = std::convert::Infallible;

    fn expect(&mut self, most: usize, run: &mut Vec<ChunkRecord>) -> Result<(), Self::Error> {
        run.extend(self.changed.records.iter().skip(self.next).take(most));
        Ok(())
    }

    fn pass(&mut self, count: usize) {
        self.next += count;
    }

    fn find(&mut self, fingerprint: &Fingerprint, size: u32) -> Result<Option<ChunkRecord>, Self::Error> {
        let expected = self.changed.records.get(self.next).filter(|record| record.chunk.fingerprint == *fingerprint);
        let place = if expected.is_some() { Some(self.next) } else { self.places.get(fingerprint).copied() };
        let found = place.map(|place| (place, self.changed.records[place]));
        let Some((place, record)) = found.filter(|(_, record)| record.chunk.size == size) else { return Ok(None) };
        self.next = place + 1;
        Ok(Some(record))
    }
}
